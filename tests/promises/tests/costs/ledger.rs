//! What was counted, what it may come to, and what `docs/costs.md` says of both.

use std::io::Write as _;
use std::path::Path;

/// Names a file to which rows for the document are appended, for whoever writes it anew.
const FIGURES_VARIABLE: &str = "POSTRIDER_COST_FIGURES";

/// The figures of one test. They are judged together at its end, so that one run tells all of them.
#[derive(Debug)]
pub(crate) struct Ledger {
    section: &'static str,
    rows: Vec<Row>,
    remarks: Vec<String>,
}

#[derive(Debug)]
struct Row {
    what: String,
    counted: f64,
    at_most: f64,
}

impl Row {
    /// As the document has it. What was counted differs a little from run to run, its bound does not.
    fn is_in(&self, section: &str) -> bool {
        let cells =
            |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let (what, at_most) = (&self.what, figure(self.at_most));
        section.lines().map(cells).any(|cells| cells.first() == Some(what) && cells.last() == Some(&at_most))
    }
}

impl Ledger {
    /// The ledger of a section of the document.
    pub(crate) fn of(section: &'static str) -> Self {
        Self { section, rows: Vec::new(), remarks: Vec::new() }
    }

    /// Notes a figure and its bound.
    pub(crate) fn note(&mut self, what: impl Into<String>, counted: f64, at_most: f64) {
        self.rows.push(Row { what: what.into(), counted, at_most });
    }

    /// Keeps something that helps to understand a figure, in case that one is wrong.
    pub(crate) fn remark(&mut self, what: &str, detail: &impl std::fmt::Debug) {
        self.remarks.push(format!("{what}: {detail:#?}"));
    }

    /// Everything is within its bounds, and the document names the same bounds.
    #[track_caller]
    pub(crate) fn close(self) {
        self.hand_out();
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/costs.md");
        let document = std::fs::read_to_string(document).expect("docs/costs.md is there");
        let heading = format!("## {}\n", self.section);
        let section =
            document.split_once(&heading).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or_default());
        let mut complaints = Vec::new();
        for row in &self.rows {
            if row.counted > row.at_most {
                let (counted, at_most) = (figure(row.counted), figure(row.at_most));
                complaints.push(format!("{}: {counted}, and at most {at_most} was expected", row.what));
            }
            if !row.is_in(section) {
                complaints.push(format!("docs/costs.md does not have the row: {}", line(row)));
            }
        }
        let complaints = complaints.join("\n");
        assert!(complaints.is_empty(), "{}\n\n{}\n{complaints}", self.remarks.join("\n"), self.section);
    }

    fn hand_out(&self) {
        let Some(path) = std::env::var_os(FIGURES_VARIABLE) else { return };
        let lines: String = self.rows.iter().map(|row| line(row) + "\n").collect();
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        write!(file, "## {}\n\n{lines}\n", self.section).unwrap();
    }
}

fn line(row: &Row) -> String {
    format!("| {} | {} | {} |", row.what, figure(row.counted), figure(row.at_most))
}

/// Two places where they say something.
fn figure(number: f64) -> String {
    let text = if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// How much of it there is for each of so many.
#[expect(clippy::cast_precision_loss, reason = "what is counted here is far below the point where it matters")]
pub(crate) fn per(count: u64, of: usize) -> f64 {
    count as f64 / of as f64
}

/// A count by itself.
pub(crate) fn whole(count: u64) -> f64 {
    per(count, 1)
}
