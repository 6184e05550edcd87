//! What a stretch of work costs each process that takes part in it.

use std::io;

use serde::Serialize;

use crate::usage::{FamilyMemory, Usage, family_cpu_seconds};

/// What is told first: what delivers.
const ORDER: [&str; 6] = ["serve", "dispatcher", "worker", "database", "receivers", "callers"];

/// What one process has cost, or several that do the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// `dispatcher`, `serve`, `worker`, `database`, `receivers`, `callers`.
    pub(crate) process: &'static str,
    pub(crate) cpu_seconds: f64,
    /// Of the largest, where there are several; of all together for a database server. None where it is not known.
    pub(crate) peak_bytes: Option<u64>,
}

/// Measures from its making on.
pub(crate) struct Meter {
    parts: Vec<Part>,
    database: Option<Database>,
}

struct Database {
    pid: u32,
    cpu_seconds_before: f64,
    memory: FamilyMemory,
}

struct Part {
    process: &'static str,
    pid: u32,
    cpu_seconds_before: f64,
}

impl Meter {
    /// Of a database server, where there is one, and receivers.
    pub(crate) fn new(server: Option<u32>, receivers: u32) -> io::Result<Self> {
        let database = |pid| {
            let (cpu_seconds_before, memory) = (family_cpu_seconds(pid)?, FamilyMemory::watch(pid));
            io::Result::Ok(Database { pid, cpu_seconds_before, memory })
        };
        let mut meter = Self { parts: Vec::new(), database: server.map(database).transpose()? };
        meter.watch("receivers", receivers)?;
        Ok(meter)
    }

    /// Of this process as well, from now on.
    pub(crate) fn watch(&mut self, process: &'static str, pid: u32) -> io::Result<()> {
        let cpu_seconds_before = Usage::of(pid)?.cpu_seconds;
        self.parts.push(Part { process, pid, cpu_seconds_before });
        Ok(())
    }

    /// What it was until now. Whoever has been told to stop must not be gone yet.
    pub(crate) fn read(&self) -> io::Result<Vec<Cost>> {
        let mut costs: Vec<Cost> = Vec::new();
        for Part { process, pid, cpu_seconds_before } in &self.parts {
            let usage = Usage::of(*pid)?;
            let (cpu_seconds, peak_bytes) = (usage.cpu_seconds - cpu_seconds_before, Some(usage.peak_bytes));
            match costs.iter_mut().find(|cost| cost.process == *process) {
                Some(cost) => {
                    cost.cpu_seconds += cpu_seconds;
                    cost.peak_bytes = cost.peak_bytes.max(peak_bytes);
                }
                None => costs.push(Cost { process, cpu_seconds, peak_bytes }),
            }
        }
        if let Some(Database { pid, cpu_seconds_before, memory }) = &self.database {
            let cpu_seconds = family_cpu_seconds(*pid)? - cpu_seconds_before;
            costs.push(Cost { process: "database", cpu_seconds, peak_bytes: Some(memory.peak_bytes()) });
        }
        costs.sort_by_key(|cost| ORDER.iter().position(|process| *process == cost.process));
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_do_the_same_are_one_line() {
        let pid = std::process::id();
        let mut meter = Meter::new(Some(pid), pid).expect("this process exists");
        for _ in 0..2 {
            meter.watch("dispatcher", pid).expect("it still does");
        }
        let costs = meter.read().expect("it still does");
        assert_eq!(costs.iter().map(|cost| cost.process).collect::<Vec<_>>(), ["dispatcher", "database", "receivers"]);
        assert!(costs.iter().all(|cost| cost.peak_bytes > Some(100_000)), "{costs:?}");
    }
}
