//! What a scenario found: a table for people, JSON for programs, and a plot.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use crate::cost::Cost;
use crate::lab::{megabytes, per_thousand};

/// One thing that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// What: `Postgres: drained`.
    pub(crate) name: String,
    /// How much.
    pub(crate) value: f64,
    /// Of what: `deliveries/s`, `ms`, `MB`, `x`.
    pub(crate) unit: &'static str,
    /// What it must reach, where it must reach anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bar: Option<Bar>,
}

/// What a figure must reach.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub(crate) fn is_reached_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bar) => value >= bar,
            Self::AtMost(bar) => value <= bar,
        }
    }

    pub(crate) fn bound(self) -> f64 {
        let (Self::AtLeast(bound) | Self::AtMost(bound)) = self;
        bound
    }

    /// `at least 0.35`
    pub(crate) fn text(self) -> String {
        let sign = if matches!(self, Self::AtLeast(_)) { "at least" } else { "at most" };
        format!("{sign} {}", readable(self.bound()))
    }
}

/// What one process cost in one case.
#[derive(Debug, Serialize)]
pub(crate) struct CostLine {
    /// `Postgres: dispatcher`
    pub(crate) name: String,
    pub(crate) cpu_seconds_per_1000: f64,
    /// The most that it had in memory at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peak_mb: Option<f64>,
}

/// What became of all deliveries of a scenario.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Tally {
    pub(crate) deliveries: usize,
    /// Requests for a delivery that had come before.
    pub(crate) duplicates: usize,
    /// Deliveries that never came, or that are not recorded as delivered.
    pub(crate) lost: usize,
}

/// The result of one scenario.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: &'static str,
    /// In one sentence, what was done.
    pub(crate) what: String,
    pub(crate) measured_at: jiff::Timestamp,
    pub(crate) machine: Machine,
    pub(crate) figures: Vec<Figure>,
    pub(crate) costs: Vec<CostLine>,
    pub(crate) tally: Tally,
}

/// What it was measured on. Absolute figures mean nothing without it, and little with it.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    memory_bytes: u64,
    /// How many processes wanted to run in the last minute, at the start: 0 on a quiet machine.
    pub(crate) load: f64,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = read("/proc/meminfo");
        let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024,
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}

impl Report {
    pub(crate) fn new(scenario: &'static str, what: impl Into<String>) -> Self {
        let (measured_at, machine) = (jiff::Timestamp::now(), Machine::here());
        let (figures, costs, tally) = (Vec::new(), Vec::new(), Tally::default());
        Self { scenario, what: what.into(), measured_at, machine, figures, costs, tally }
    }

    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.push(name, value, unit, None);
    }

    pub(crate) fn add_with_bar(&mut self, name: impl Into<String>, value: f64, unit: &'static str, bar: Bar) {
        self.push(name, value, unit, Some(bar));
    }

    /// With a bar or without.
    pub(crate) fn push(&mut self, name: impl Into<String>, value: f64, unit: &'static str, bar: Option<Bar>) {
        self.figures.push(Figure { name: name.into(), value, unit, bar });
    }

    /// What each process cost in one case, for so many deliveries.
    pub(crate) fn add_costs(&mut self, of: &str, costs: &[Cost], deliveries: usize) {
        let line = |cost: &Cost| CostLine {
            name: format!("{of}: {}", cost.process),
            cpu_seconds_per_1000: per_thousand(cost.cpu_seconds, deliveries),
            peak_mb: cost.peak_bytes.map(megabytes),
        };
        self.costs.extend(costs.iter().map(line));
    }

    /// What became of some more deliveries.
    pub(crate) fn count(&mut self, tally: Tally) {
        self.tally.deliveries += tally.deliveries;
        self.tally.duplicates += tally.duplicates;
        self.tally.lost += tally.lost;
    }

    /// Whether nothing was lost, and nothing came twice.
    pub(crate) fn is_complete(&self) -> bool {
        self.tally.duplicates == 0 && self.tally.lost == 0
    }

    /// The figures that do not reach what they must.
    pub(crate) fn missed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.bar.is_some_and(|bar| !bar.is_reached_by(figure.value)))
    }

    pub(crate) fn table(&self) -> String {
        let names = self.figures.iter().map(|figure| &figure.name).chain(self.costs.iter().map(|line| &line.name));
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let mut text = format!("{}: {}\n", self.scenario, self.what);
        for Figure { name, value, unit, bar } in &self.figures {
            let verdict = bar.map_or(String::new(), |bar| {
                let verdict = if bar.is_reached_by(*value) { "reached" } else { "MISSED" };
                format!("   {verdict}: {}", bar.text())
            });
            let _ = writeln!(text, "  {name:<width$}  {:>10} {unit}{verdict}", short(*value));
        }
        if !self.costs.is_empty() {
            let _ = writeln!(text, "  {:<width$}  {:>10} {:>10}", "", "CPU s/1000", "peak MB");
        }
        for CostLine { name, cpu_seconds_per_1000, peak_mb } in &self.costs {
            let peak = peak_mb.map_or("-".to_owned(), short);
            let _ = writeln!(text, "  {name:<width$}  {:>10} {peak:>10}", thousandths(*cpu_seconds_per_1000));
        }
        let verdict = if self.is_complete() { "" } else { "   FAILED: both must be 0" };
        let _ = writeln!(text, "  {}{verdict}", self.fate());
        text
    }

    /// `200,000 deliveries: 0 came twice, 0 were lost`
    pub(crate) fn fate(&self) -> String {
        let Tally { deliveries, duplicates, lost } = self.tally;
        format!("{} deliveries: {duplicates} came twice, {lost} were lost", grouped(deliveries))
    }

    /// Writes `<scenario>.json` and `<scenario>.svg`.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        fs::write(folder.join(self.scenario).with_extension("json"), json + "\n")?;
        fs::write(folder.join(self.scenario).with_extension("svg"), crate::plot::bars(self))
    }
}

/// A number with as many digits as it deserves.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A number for people: `41,234`, `0.41`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is rounded, and not negative")]
pub(crate) fn readable(value: f64) -> String {
    if value >= 1000.0 { grouped(value.round() as usize) } else { short(value) }
}

/// Seconds that are mostly far below one.
pub(crate) fn thousandths(seconds: f64) -> String {
    format!("{seconds:.3}")
}

/// `1,000,000`
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_is_missed_is_said_so() {
        let mut report = Report::new("drain", "a backlog");
        report.add_with_bar("ratio", 0.34, "of the raw limit", Bar::AtLeast(0.35));
        assert_eq!(report.missed().count(), 1);
        assert!(report.table().contains("MISSED: at least 0.35"), "{}", report.table());
        report.figures[0].value = 0.35;
        assert_eq!(report.missed().count(), 0);
    }

    #[test]
    fn what_was_lost_or_came_twice_fails_whatever_the_speed() {
        let mut report = Report::new("drain", "a backlog");
        report.count(Tally { deliveries: 20_000, duplicates: 0, lost: 0 });
        assert!(report.is_complete());
        report.count(Tally { deliveries: 1, duplicates: 1, lost: 0 });
        assert!(!report.is_complete());
        assert!(report.table().contains("20,001 deliveries: 1 came twice, 0 were lost   FAILED"), "{}", report.table());
    }

    #[test]
    fn costs_are_for_a_thousand_deliveries() {
        let mut report = Report::new("drain", "a backlog");
        let cost = |process, peak_bytes| Cost { process, cpu_seconds: 3.0, peak_bytes };
        report.add_costs("Postgres", &[cost("dispatcher", Some(42_000_000)), cost("callers", None)], 20_000);
        let table = report.table();
        let line = table.lines().find(|line| line.contains("Postgres: dispatcher")).expect("it has a line");
        assert_eq!(line.split_whitespace().skip(2).collect::<Vec<_>>(), ["0.150", "42.0"], "{table}");
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_deserve() {
        assert_eq!([12345.6, 12.34, 0.345, 0.000_12, 0.0].map(short), ["12346", "12.3", "0.34", "0.0001", "0.00"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
