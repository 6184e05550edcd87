//! What processes have cost so far, as the kernel counts it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io, thread};

/// How many of the kernel's ticks are a second. It is 100 on every Linux that runs here.
const TICKS_PER_SECOND: f64 = 100.0;

/// How often the memory of a database server is looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Processor time and memory of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    /// The most that it had in memory at once.
    pub(crate) peak_bytes: u64,
}

impl Usage {
    /// Of one process, whatever others it has started.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let [user, system, ..] = ticks(pid)?;
        Ok(Self { cpu_seconds: (user + system) / TICKS_PER_SECOND, peak_bytes: bytes(&status(pid)?, "VmHWM") })
    }
}

/// Processor time of a process, of its children, and of the children that it has outlived.
pub(crate) fn family_cpu_seconds(pid: u32) -> io::Result<f64> {
    let mut sum: f64 = ticks(pid)?.iter().sum();
    for child in children(pid)? {
        // It may have ended meanwhile; then its time is the parent's.
        sum += ticks(child).unwrap_or_default().iter().sum::<f64>();
    }
    Ok(sum / TICKS_PER_SECOND)
}

/// Looks again and again at what the processes of a database server have in memory: the kernel keeps the greatest value of
/// each process, and what a server has shared among all of them would be counted as often as it has processes.
#[derive(Debug)]
pub(crate) struct FamilyMemory {
    peak_bytes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

impl FamilyMemory {
    /// Of the process and its children, from now on.
    pub(crate) fn watch(pid: u32) -> Self {
        let (peak_bytes, is_over) = (Arc::new(AtomicU64::new(family_bytes(pid))), Arc::new(AtomicBool::new(false)));
        let (peak, over) = (Arc::clone(&peak_bytes), Arc::clone(&is_over));
        let looker = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(family_bytes(pid), Ordering::Relaxed);
                thread::park_timeout(EVERY);
            }
        });
        Self { peak_bytes, is_over, looker: Some(looker) }
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for FamilyMemory {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(looker) = self.looker.take() {
            looker.thread().unpark();
            let _ = looker.join();
        }
    }
}

/// What each has for itself, and the most that one of them sees of what they share.
fn family_bytes(pid: u32) -> u64 {
    let family = children(pid).unwrap_or_default().into_iter().chain([pid]);
    let (mut own, mut shared) = (0, 0);
    for status in family.filter_map(|pid| status(pid).ok()) {
        own += bytes(&status, "RssAnon");
        shared = bytes(&status, "RssShmem").max(shared);
    }
    own + shared
}

/// User and system time, then the same of children that were waited for.
fn ticks(pid: u32) -> io::Result<[f64; 4]> {
    parsed_ticks(&fs::read_to_string(format!("/proc/{pid}/stat"))?).ok_or(io::ErrorKind::InvalidData.into())
}

fn parsed_ticks(stat: &str) -> Option<[f64; 4]> {
    // The name of the program, in brackets, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    ticks.try_into().ok()
}

fn status(pid: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/status"))
}

/// A line of `/proc/<pid>/status`, which says kilobytes: `VmHWM:     1234 kB`.
fn bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// Each thread has those that it started.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    Ok(texts
        .flat_map(|text| text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_has_cost_something() {
        let pid = std::process::id();
        let before = Usage::of(pid).expect("this process exists").cpu_seconds;
        let mut number = 1_u64;
        while Usage::of(pid).expect("it still does").cpu_seconds - before < 0.02 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005));
        }
        assert!(Usage::of(pid).expect("it still does").peak_bytes > 1_000_000);
    }

    #[test]
    fn the_name_of_a_program_does_not_confuse() {
        let stat = "7 (a) 1 (b c)) S 1 2 3 4 5 6 7 8 9 10 50 20 3 4 20 0 1";
        assert_eq!(parsed_ticks(stat), Some([50.0, 20.0, 3.0, 4.0]));
        assert_eq!(parsed_ticks("7 (a) S 1 2"), None);
    }

    #[test]
    fn a_child_is_part_of_the_family_and_not_of_the_process() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while Usage::of(child.id()).expect("it runs").cpu_seconds < 0.05 && std::time::Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(10));
        }
        let (pid, of_child) = (std::process::id(), Usage::of(child.id()).expect("it runs").cpu_seconds);
        let (alone, family) = (Usage::of(pid).expect("it exists"), family_cpu_seconds(pid).expect("it exists"));
        child.kill().and_then(|()| child.wait()).expect("it can be ended");
        assert!(of_child >= 0.05 && family - alone.cpu_seconds >= of_child - 0.02, "{of_child} {alone:?} {family}");
    }

    #[test]
    fn the_memory_of_a_family_is_seen() {
        let memory = FamilyMemory::watch(std::process::id());
        assert!(memory.peak_bytes() > 100_000, "{memory:?}");
    }

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let status = "VmHWM:\t    2048 kB\nRssAnon:\t     1 kB\nRssAnonymous:\t 9 kB\n";
        assert_eq!(["VmHWM", "RssAnon", "RssShmem"].map(|name| bytes(status, name)), [2048 * 1024, 1024, 0]);
    }
}
