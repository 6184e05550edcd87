//! Processes whose clocks are wrong, by libfaketime.

use std::path::PathBuf;
use std::process::Command;

/// How a clock is wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// It is right.
    Right,
    /// It is off by so many seconds, and goes at the right speed.
    Off(i64),
    /// It goes so many times too fast, the one that only measures durations as well.
    Fast(u32),
}

/// The same command with this clock.
///
/// # Panics
///
/// Where libfaketime is not installed: a test of clocks must not pass without it.
#[must_use]
pub fn with_clock(mut command: Command, clock: Clock) -> Command {
    match clock {
        Clock::Right => return command,
        Clock::Off(seconds) => {
            // What a wrongly set clock does: only the time of day is wrong.
            command.env("FAKETIME", format!("{seconds:+}s")).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        Clock::Fast(times) => {
            command.env("FAKETIME", format!("+0 x{times}"));
        }
    }
    command.env("LD_PRELOAD", library());
    command
}

fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("there is a /usr/lib").flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.exists()).expect(
        "libfaketime is not installed, and the tests of clocks need it; hint: apt-get install faketime, or run scripts/test",
    )
}
