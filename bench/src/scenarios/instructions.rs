//! How many instructions the dispatcher needs for a delivery, as counted by callgrind: a figure that does not depend on how fast the
//! machine is, nor on what else it does.
//!
//! A small backlog and a larger one are drained, and what the larger one took more is divided by what it had more, so that starting and
//! stopping do not count. The dispatcher is far slower than usual meanwhile, so its batches are not quite those of a drain; and
//! valgrind shows it a processor without instructions for SHA-256, so that signing counts for more than it takes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::lab::{Kind, Lab};
use crate::report::{Report, grouped};

const DESTINATIONS: usize = 16;

pub(crate) async fn run(events: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err("valgrind is not installed, and counts the instructions: apt-get install valgrind".into());
    }
    let (few, many) = (events.div_ceil(4), events);
    let what = format!(
        "instructions of the dispatcher for a delivery of 1 kB to one of {DESTINATIONS} destinations: what {} take more than {}",
        grouped(many),
        grouped(few)
    );
    let mut report = Report::new("instructions", what);
    for &kind in kinds {
        let counted = [count(kind, few, &mut report).await?, count(kind, many, &mut report).await?];
        report.add(format!("{}: each", kind.name()), each(counted, [few, many]), "instructions of the dispatcher");
    }
    Ok(report)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn each([less, more]: [u64; 2], [few, many]: [usize; 2]) -> f64 {
    more.saturating_sub(less) as f64 / (many - few).max(1) as f64
}

/// Drains so many, and says what the dispatcher took for it from its start to its end.
async fn count(kind: Kind, events: usize, report: &mut Report) -> Result<u64, Failure> {
    let mut lab = Lab::new(kind, DESTINATIONS).await?;
    lab.fill(events).await?;
    let file = lab.folder().join("callgrind.out");
    let dispatcher = lab.dispatch_under(callgrind(&file))?;
    let arrivals = lab.arrived(events).await?;
    dispatcher.stop()?;
    report.count(super::tally(&mut lab, arrivals, events).await?);
    total(&fs::read_to_string(&file)?).ok_or_else(|| "callgrind has written no total".into())
}

fn callgrind(file: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", file.display()));
    valgrind
}

/// The instructions of all threads, as callgrind writes them down.
fn total(written: &str) -> Option<u64> {
    written.lines().find_map(|line| line.strip_prefix("totals:")).and_then(|count| count.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_in_what_callgrind_writes() {
        assert_eq!(
            total("version: 1\ncreator: callgrind-3.19.0\n\nfn=(1) main\n+3 5\ntotals: 123456\n"),
            Some(123_456)
        );
        assert_eq!(total("version: 1\n"), None);
    }

    #[test]
    fn what_start_and_end_take_does_not_count() {
        assert!((each([1_000_500, 4_000_500], [100, 400]) - 10_000.0).abs() < f64::EPSILON);
    }
}
