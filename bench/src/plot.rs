//! A plot of a report, as SVG that is written by hand because it is some dozens of rectangles: a panel for each unit, with a
//! scale of its own and a row for each figure; then what each process cost, and what became of the deliveries. What must be
//! reached comes first and is a line across the row. It follows the reader's preference for light or dark.

use std::fmt::Write as _;

use crate::report::{Bar, CostLine, Figure, Machine, Report, readable, short, thousandths};

const WIDTH: f64 = 880.0;
const MARGIN: f64 = 28.0;
/// Where bars begin; to the left of it are their names.
const LABELS: f64 = 310.0;
/// What is left for the longest bar, with room for its number and for what it must reach.
const LONGEST: f64 = WIDTH - LABELS - MARGIN - 210.0;
const ROW: f64 = 26.0;
/// How many letters of the sentence below the title fit in a line.
const LETTERS: usize = 120;

const STYLE: &str = "\
text { font: 13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2937 }
.paper { fill: #ffffff } .title { font-size: 19px; font-weight: 600 } .unit { font-weight: 600; fill: #6b7280 }
.soft { fill: #6b7280 } .number { font-weight: 600 } .track { fill: #f1f3f6 } .rule { stroke: #e5e7eb }
.plain { fill: #3b82c4 } .cost { fill: #9aa7b8 } .reached { fill: #2f9e6b } .missed { fill: #d9534f }
.mark { stroke: #111827; stroke-width: 2 } .good { fill: #1f7a50 } .bad { fill: #b93530; font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #e5e7eb } .paper { fill: #14181f } .unit, .soft { fill: #9aa4b2 } .track { fill: #1f2630 }
.rule { stroke: #2b3340 }
.plain { fill: #5b9bd5 } .cost { fill: #66758a } .reached { fill: #3fb57f } .missed { fill: #e46f6a }
.mark { stroke: #f9fafb } .good { fill: #5fd39d } .bad { fill: #ff8d88 }
}";

pub(crate) fn bars(report: &Report) -> String {
    let mut sheet = Sheet { svg: String::new(), y: 40.0 };
    sheet.text(MARGIN, "title", report.scenario);
    for line in wrapped(&report.what, LETTERS) {
        sheet.y += 20.0;
        sheet.text(MARGIN, "soft", &line);
    }
    for unit in units(&report.figures) {
        let figures: Vec<&Figure> = report.figures.iter().filter(|figure| figure.unit == unit).collect();
        let bound = |figure: &Figure| figure.bar.map_or(0.0, Bar::bound);
        let greatest = figures.iter().map(|figure| figure.value.abs().max(bound(figure)));
        // A part of something is seen beside the whole.
        let least = if unit.starts_with("of ") { 1.0 } else { f64::MIN_POSITIVE };
        let scale = LONGEST / greatest.fold(least, f64::max);
        sheet.heading(unit);
        for figure in figures {
            sheet.figure(figure, scale);
        }
    }
    if !report.costs.is_empty() {
        let greatest = report.costs.iter().map(|line| line.cpu_seconds_per_1000).fold(f64::MIN_POSITIVE, f64::max);
        sheet.heading("CPU seconds per 1,000, and peak memory, of each process");
        for CostLine { name, cpu_seconds_per_1000, peak_mb } in &report.costs {
            let memory = peak_mb.map_or(String::new(), |megabytes| format!("{} MB", readable(megabytes)));
            sheet.row(name, "cost", LONGEST / greatest * cpu_seconds_per_1000, &thousandths(*cpu_seconds_per_1000));
            sheet.note("soft", &memory);
        }
    }
    sheet.foot(report);
    let height = sheet.y + 22.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\">\n<style>\n{STYLE}\n\
         </style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
        sheet.svg
    )
}

/// Each once: first those in which something must be reached, and apart from that in the order of the figures.
fn units(figures: &[Figure]) -> Vec<&'static str> {
    let mut units: Vec<&'static str> = Vec::new();
    let with_bar = figures.iter().filter(|figure| figure.bar.is_some());
    for figure in with_bar.chain(figures) {
        if !units.contains(&figure.unit) {
            units.push(figure.unit);
        }
    }
    units
}

/// What has been drawn, and how far down.
struct Sheet {
    svg: String,
    y: f64,
}

impl Sheet {
    fn text(&mut self, x: f64, class: &str, text: &str) {
        let _ = writeln!(self.svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>", self.y, escaped(text));
    }

    fn heading(&mut self, text: &str) {
        self.y += 36.0;
        self.text(MARGIN, "unit", text);
        self.y += 4.0;
    }

    /// A name, a bar, and its number behind it.
    fn row(&mut self, name: &str, class: &str, length: f64, number: &str) {
        self.y += ROW;
        self.text(MARGIN, "name", name);
        let length = length.clamp(1.0, LONGEST);
        let top = self.y - 13.0;
        let _ = writeln!(
            self.svg,
            "<rect class=\"track\" x=\"{LABELS}\" y=\"{top:.1}\" width=\"{LONGEST}\" height=\"17\" rx=\"3\"/>\
             <rect class=\"{class}\" x=\"{LABELS}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"17\" rx=\"3\"/>"
        );
        self.text(LABELS + LONGEST + 10.0, "number", number);
    }

    /// At the right, in the row that was drawn last.
    fn note(&mut self, class: &str, text: &str) {
        let _ = writeln!(
            self.svg,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - MARGIN,
            self.y,
            escaped(text)
        );
    }

    fn figure(&mut self, figure: &Figure, scale: f64) {
        let Figure { name, value, bar, .. } = figure;
        let Some(bar) = *bar else { return self.row(name, "plain", value.abs() * scale, &readable(*value)) };
        let is_reached = bar.is_reached_by(*value);
        let (class, verdict) = if is_reached { ("reached", "good") } else { ("missed", "bad") };
        self.row(name, class, value.abs() * scale, &readable(*value));
        self.note(verdict, &if is_reached { bar.text() } else { format!("missed: {}", bar.text()) });
        let x = LABELS + bar.bound() * scale;
        let (top, bottom) = (self.y - 16.0, self.y + 7.0);
        let _ =
            writeln!(self.svg, "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>");
    }

    fn foot(&mut self, report: &Report) {
        self.y += 24.0;
        let end = WIDTH - MARGIN;
        let _ = writeln!(
            self.svg,
            "<line class=\"rule\" x1=\"{MARGIN}\" x2=\"{end}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
            self.y, self.y
        );
        self.y += 22.0;
        self.text(MARGIN, if report.is_complete() { "good" } else { "bad" }, &report.fate());
        let Machine { cores, load, .. } = &report.machine;
        let day = report.measured_at.strftime("%Y-%m-%d");
        self.note("soft", &format!("{cores} cores, load {} at the start, {day}", short(*load)));
    }
}

/// Lines of at most so many letters, broken between words.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Tally;

    fn report() -> Report {
        let mut report = Report::new("drain", "a <backlog>");
        report.add("raw limit", 50_000.0, "POST/s");
        report.add_with_bar("ratio", 0.4, "of the raw limit", Bar::AtLeast(0.5));
        report
    }

    #[test]
    fn every_figure_has_a_bar_and_what_it_must_reach_a_line() {
        let svg = bars(&report());
        assert_eq!(svg.matches("class=\"track\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("class=\"mark\"").count(), 1, "{svg}");
        assert!(svg.contains(">a &lt;backlog&gt;<"), "{svg}");
        assert!(svg.contains(">missed: at least 0.50<"), "{svg}");
        assert!(svg.contains(">50,000<"), "{svg}");
    }

    #[test]
    fn the_mark_is_where_a_bar_of_that_value_would_end() {
        let svg = bars(&report());
        // The track is all of the raw limit, of which 0.5 must be reached and 0.4 is.
        assert!(svg.contains(&format!("class=\"mark\" x1=\"{:.1}\"", LABELS + LONGEST * 0.5)), "{svg}");
        let length = LONGEST * 0.4;
        assert!(svg.contains(&format!("class=\"missed\" x=\"{LABELS}\"")), "{svg}");
        assert!(svg.contains(&format!("width=\"{length:.1}\"")), "{svg}");
    }

    #[test]
    fn what_must_be_reached_comes_first() {
        assert_eq!(units(&report().figures), ["of the raw limit", "POST/s"]);
    }

    #[test]
    fn what_was_lost_stands_out() {
        let mut report = report();
        assert!(bars(&report).contains("class=\"good\" x=\"28.0\""), "{}", bars(&report));
        report.count(Tally { deliveries: 3, duplicates: 0, lost: 1 });
        assert!(bars(&report).contains("0 came twice, 1 were lost"), "{}", bars(&report));
        assert!(bars(&report).contains("class=\"bad\" x=\"28.0\""), "{}", bars(&report));
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("unbreakable", 3), ["unbreakable"]);
    }
}
