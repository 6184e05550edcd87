//! How much memory a process has had, and processes that get no more than so much.

use std::process::Command;

/// The most that a process has held in memory at once since it began, in bytes.
pub fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has a peak");
    let kilobytes = line.trim().strip_suffix("kB").expect("it is told in kB").trim();
    kilobytes.parse::<u64>().expect("a number") * 1024
}

/// The same command, for a process to which the system gives at most `bytes` of memory of its own: the next
/// allocation ends it.
pub fn limited(command: &Command, bytes: u64) -> Command {
    let mut limited = Command::new("/usr/bin/prlimit");
    limited.arg(format!("--data={bytes}")).arg("--").arg(command.get_program()).args(command.get_args());
    limited.env_clear().stdin(std::process::Stdio::null());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited
}
