//! The help of every command, word for word.

use crate::golden;
use crate::support::Workplace;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["serve"],
    &["dispatch"],
    &["demo"],
    &["send"],
    &["listen"],
    &["endpoints"],
    &["endpoints", "add"],
    &["endpoints", "list"],
    &["endpoints", "show"],
    &["endpoints", "update"],
    &["endpoints", "pause"],
    &["endpoints", "resume"],
    &["endpoints", "rotate-secret"],
    &["endpoints", "test"],
    &["endpoints", "remove"],
    &["events"],
    &["events", "list"],
    &["events", "show"],
    &["deliveries"],
    &["deliveries", "list"],
    &["deliveries", "show"],
    &["deliveries", "retry"],
    &["deliveries", "cancel"],
    &["dead"],
    &["dead", "list"],
    &["dead", "retry"],
    &["once"],
    &["once", "list"],
    &["once", "show"],
    &["once", "reset"],
    &["why"],
    &["keys"],
    &["keys", "create"],
    &["keys", "list"],
    &["keys", "revoke"],
    &["schedule"],
    &["url"],
    &["url", "check"],
    &["sign"],
    &["verify"],
    &["migrate"],
    &["config"],
    &["doctor"],
    &["openapi"],
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
            // It prints the help of the others.
            if name == "help" {
                continue;
            }
            let full: Vec<&str> = command.iter().copied().chain([name]).collect();
            assert!(COMMANDS.contains(&full.as_slice()), "`{}` has no recorded help", full.join(" "));
        }
    }
}

#[test]
fn help_is_a_command_too() {
    let workplace = Workplace::new();
    for command in COMMANDS {
        let flag = workplace.run(command.iter().copied().chain(["--help"])).succeeds();
        let told = workplace.run(["help"].into_iter().chain(command.iter().copied())).succeeds();
        assert_eq!(told.stdout, flag.stdout, "{command:?}");
    }
}

/// A flag that sets a key says what holds without it; a default of the parser's own would override the file.
#[test]
fn flags_tell_the_defaults_of_their_keys_without_setting_them() {
    let workplace = Workplace::new();
    let help = workplace.run(["dispatch", "--help"]).succeeds().stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (flag, default) in [("--lease", "30s"), ("--timeout", "15s"), ("--retry-schedule", "30s,2m,10m,1h,6h")] {
        let (_, below) = help.split_once(&format!("{flag} <")).unwrap();
        let told = below.split(" --").next().unwrap();
        assert!(told.ends_with(&format!("[default: {default}]")), "{flag}: {told}");
    }
    workplace.write("postrider.toml", "lease = \"7s\"\n");
    let lease = workplace.run(["config"]).succeeds().stdout;
    assert!(lease.lines().any(|line| line.starts_with("lease") && line.contains("7s")), "{lease}");
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
