//! The help of every command, word for word.

use crate::golden;
use crate::support::Workplace;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["send"],
    &["dispatch"],
    &["listen"],
    &["demo"],
    &["deliveries"],
    &["deliveries", "list"],
    &["deliveries", "show"],
    &["deliveries", "retry"],
    &["deliveries", "cancel"],
    &["dead"],
    &["dead", "list"],
    &["dead", "retry"],
    &["schedule"],
    &["url"],
    &["url", "check"],
    &["sign"],
    &["verify"],
    &["migrate"],
    &["config"],
    &["completions"],
];

#[test]
fn the_help_of_every_command_is_as_recorded() {
    let workplace = Workplace::new();
    for command in COMMANDS {
        let help = workplace.run(command.iter().copied().chain(["--help"])).succeeds();
        let name = if command.is_empty() { "postrider".to_owned() } else { command.join("-") };
        golden::compare(&format!("help/{name}.txt"), &help.stdout);
    }
}

/// Finds commands that were added without being listed above.
#[test]
fn every_command_in_the_help_is_covered() {
    let workplace = Workplace::new();
    for command in COMMANDS {
        let help = workplace.run(command.iter().copied().chain(["--help"])).succeeds().stdout;
        let Some((_, below)) = help.split_once("\nCommands:\n") else { continue };
        for line in below.lines().take_while(|line| !line.trim().is_empty()) {
            // A summary that is too long for its line goes on in the next one, further to the right.
            if line.starts_with("    ") {
                continue;
            }
            let name = line.split_whitespace().next().unwrap();
            let full: Vec<&str> = command.iter().copied().chain([name]).collect();
            assert!(COMMANDS.contains(&full.as_slice()), "`{}` has no recorded help", full.join(" "));
        }
    }
}

#[test]
fn the_version_is_the_crate_s() {
    let done = Workplace::new().run(["--version"]).succeeds();
    assert_eq!(done.stdout, format!("postrider {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = Workplace::new().run(["completions", shell]).succeeds();
        assert!(done.stdout.contains("deliveries") && done.stdout.contains("until-idle"), "{shell}");
    }
}
