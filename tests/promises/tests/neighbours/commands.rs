//! Every command of the command line, as it succeeds and as it fails, logging everything it can: what it prints holds no
//! secret and no payload but where that is what was asked for.

use std::collections::BTreeSet;
use std::process::Stdio;

use postrider_conformance::receiver::{Answer, Receiver};
use postrider_promises::process::Workplace;
use serde_json::Value;

use crate::leaks::{ENDPOINT_SECRET, HEADER, NEXT_SECRET, PASSWORD, WRONG_KEY, must_not_leak, payload};
use crate::stage::{Stage, on_both};

on_both! {
    /// P20, on a database.
    no_command_prints_a_secret_or_a_payload_unasked
    /// P20, against a server that lets nobody in, and against none.
    no_command_prints_a_secret_or_a_payload_when_its_server_refuses
}

/// What standard output may show. Standard error, where logs and failures are told, may show nothing in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    Nothing,
    /// A payload or a secret, since just that was asked for.
    WhatWasAsked,
}
use Shows::{Nothing, WhatWasAsked};

/// Runs commands, and remembers which.
struct Desk<'a> {
    workplace: &'a Workplace,
    tried: BTreeSet<String>,
    runs: usize,
}

impl<'a> Desk<'a> {
    fn new(workplace: &'a Workplace) -> Self {
        Self { workplace, tried: BTreeSet::new(), runs: 0 }
    }

    /// Runs a command that ends with this code, and returns what it prints on standard output.
    #[track_caller]
    fn run(&mut self, code: i32, shows: Shows, arguments: &[&str]) -> String {
        self.run_with(code, shows, arguments, &[])
    }

    /// The same with other variables.
    #[track_caller]
    fn run_with(&mut self, code: i32, shows: Shows, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        self.runs += 1;
        let format = if self.runs.is_multiple_of(2) { "json" } else { "pretty" };
        let mut command = self.workplace.command(arguments.iter().copied());
        command.env("POSTRIDER_LOG", "trace").env("POSTRIDER_LOG_FORMAT", format).env("RUST_BACKTRACE", "full");
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // The arguments of these tests are secrets themselves; the first ones say which command it was.
        let name = arguments.iter().take_while(|argument| !argument.starts_with('-')).take(2).copied();
        let name = name.collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(code), "{name}: {stdout}{stderr}");
        must_not_leak(&format!("standard error of `{name}`"), &stderr);
        if shows == Nothing {
            must_not_leak(&format!("standard output of `{name}`"), &stdout);
        }
        self.tried.insert(name);
        stdout.into_owned()
    }

    /// Runs a command twice, for people and for programs; returns the latter.
    #[track_caller]
    fn both(&mut self, shows: Shows, arguments: &[&str]) -> Value {
        self.run(0, shows, arguments);
        let text = self.run(0, shows, &[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    /// Runs a command that makes something, and returns that.
    #[track_caller]
    fn json(&mut self, shows: Shows, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(0, shows, &[arguments, &["--json"]].concat())).unwrap()
    }

    /// Every command that there is was tried.
    fn has_tried_everything(&self) {
        let missing: Vec<String> = commands(self.workplace, &[])
            .into_iter()
            .filter(|command| {
                !self.tried.iter().any(|tried| tried == command || tried.starts_with(&format!("{command} ")))
            })
            .collect();
        assert!(missing.is_empty(), "these are to be tried here, too: {missing:?}");
    }
}

/// The commands below one, as its help lists them, down to those that have none.
fn commands(workplace: &Workplace, above: &[&str]) -> Vec<String> {
    let (_, help) = workplace.run(above.iter().copied().chain(["--help"]));
    let Some((_, listed)) = help.split_once("\nCommands:\n") else { return vec![above.join(" ")] };
    let names = listed.lines().take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  "));
    let names = names.filter_map(|line| line[2..].split(' ').next()).filter(|name| !name.is_empty() && *name != "help");
    names.flat_map(|name| commands(workplace, &[above, &[name]].concat())).collect()
}

async fn no_command_prints_a_secret_or_a_payload_unasked(stage: Stage) {
    // A receiver that repeats what it gets: its answer is kept with the attempt.
    let echo = Receiver::start(|request, _| Answer::status(500).body(request.body.clone())).await;
    let (url, data) = (echo.url(), payload());
    let mut desk = Desk::new(&stage.workplace);

    desk.run(0, Nothing, &["migrate"]);
    desk.run(0, Nothing, &["migrate", "--check"]);
    desk.both(Nothing, &["config"]);
    desk.run(0, Nothing, &["config", "--new-secret-key"]);
    desk.both(Nothing, &["schedule"]);
    desk.both(Nothing, &["url", "check", &url]);
    desk.both(Nothing, &["openapi"]);
    desk.run(0, Nothing, &["completions", "bash"]);

    let header = format!("Authorization: {HEADER}");
    let endpoint = desk.json(
        WhatWasAsked,
        &["endpoints", "add", &url, "--secret", ENDPOINT_SECRET, "--header", &header, "--max-attempts", "1"],
    );
    let endpoint = endpoint["id"].as_str().unwrap();
    desk.both(Nothing, &["endpoints", "list"]);
    desk.both(Nothing, &["endpoints", "show", endpoint]);
    desk.both(Nothing, &["endpoints", "update", endpoint, "--description", "a team's", "--header", &header]);
    desk.both(Nothing, &["endpoints", "pause", endpoint, "--reason", "to see"]);
    desk.both(Nothing, &["endpoints", "resume", endpoint]);
    desk.run(0, WhatWasAsked, &["endpoints", "rotate-secret", endpoint, "--secret", NEXT_SECRET]);
    desk.both(Nothing, &["migrate", "--reseal"]);

    let key = desk.json(Nothing, &["keys", "create", "--name", "another", "--scope", "read"]);
    let (key_id, key) = (key["id"].as_str().unwrap(), key["key"].as_str().unwrap());
    let keys = desk.both(Nothing, &["keys", "list"]).to_string();
    assert!(!keys.contains(key), "a key is shown once: {keys}");
    desk.run(0, Nothing, &["keys", "revoke", key_id]);

    desk.both(Nothing, &["send", "a.b", "--data", &data, "--idempotency-key", "k"]);
    desk.run(4, Nothing, &["send", "a.c", "--data", &data, "--idempotency-key", "k"]);
    desk.both(Nothing, &["send", "a.b", "--data", &data, "--once", "plan-1"]);
    let sent = desk.json(Nothing, &["send", "a.b", "--data", &data, "--to", &url]);
    let (event, bare) = (sent["id"].as_str().unwrap(), sent["deliveries"][0]["id"].as_str().unwrap());
    desk.both(Nothing, &["endpoints", "test", endpoint, "--wait", "0s"]);
    desk.run(0, Nothing, &["dispatch", "--until-idle", "--max-attempts", "1"]);
    desk.run(0, WhatWasAsked, &["events", "show", event]);
    desk.run(0, WhatWasAsked, &["events", "show", event, "--payload"]);
    desk.run(0, Nothing, &["events", "list"]);
    desk.run(0, WhatWasAsked, &["events", "list", "--json"]);
    // How an answer begins is shown with its delivery. It is the receiver's own text, and here it is the payload.
    desk.both(WhatWasAsked, &["deliveries", "list"]);
    desk.both(WhatWasAsked, &["deliveries", "show", bare]);
    desk.both(WhatWasAsked, &["why", bare]);
    desk.both(WhatWasAsked, &["dead", "list"]);
    desk.both(Nothing, &["dead", "retry", "--all", "--dry-run"]);
    desk.run(0, Nothing, &["dead", "retry", bare]);
    desk.run(4, Nothing, &["deliveries", "retry", bare]);
    desk.run(0, Nothing, &["deliveries", "cancel", bare, "--reason", "to see"]);
    desk.both(Nothing, &["once", "list"]);
    desk.both(Nothing, &["once", "show", "plan-1"]);
    desk.both(Nothing, &["once", "reset", "plan-1"]);
    desk.run(0, Nothing, &["endpoints", "remove", endpoint, "--yes"]);
    desk.run(0, Nothing, &["demo", "--for", "1s"]);

    let signed = desk.run(0, Nothing, &["sign", "--data", &data]);
    let headers: Vec<&str> = signed.lines().flat_map(|line| ["-H", line]).collect();
    desk.run(0, Nothing, &[&["verify", "--data", &data][..], &headers].concat());
    desk.run(1, Nothing, &[&["verify", "--data", &data, "--secret", ENDPOINT_SECRET][..], &headers].concat());
    doctor(&mut desk);
    refusals(&mut desk, &url);
    if stage.is_postgres() {
        databases_that_are_not_there(&mut desk);
    }
    desk.has_tried_everything();
}

/// It may find something to say, which is no failure of this test.
fn doctor(desk: &mut Desk<'_>) {
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let output = desk.workplace.command(arguments.iter().copied()).env("POSTRIDER_LOG", "trace").output().unwrap();
        must_not_leak("standard output of `doctor`", &String::from_utf8_lossy(&output.stdout));
        must_not_leak("standard error of `doctor`", &String::from_utf8_lossy(&output.stderr));
    }
    desk.tried.insert("doctor".to_owned());
}

/// Everything of which a value is refused that is a secret, or a payload.
fn refusals(desk: &mut Desk<'_>, url: &str) {
    let data = payload();
    let torn = &data[..data.len() - 1];
    for bad in [torn, &format!("{data}{data}"), &format!("\u{feff}{data}"), data.trim_matches(['{', '}'])] {
        desk.run(4, Nothing, &["send", "a.b", "--to", url, "--data", bad]);
    }
    desk.run(4, Nothing, &["send", "a.b", "--to", url, "--data", &data, "--max-payload-bytes", "4"]);
    desk.run(4, Nothing, &["send", "no type", "--to", url, "--data", &data]);
    desk.run(4, Nothing, &["send", "a.b", "--to", "ftp://127.0.0.1/", "--data", &data]);
    desk.run(4, Nothing, &["send", "a.b", "--endpoint", "ep_01h455vb4pex5vsknk084sn02q", "--data", &data]);
    desk.run(2, Nothing, &["send", "--data", &data]);
    for bad in ["whsec_canary!", "whsec_", "canary"] {
        desk.run(4, Nothing, &["endpoints", "add", url, "--secret", bad]);
        desk.run(4, Nothing, &["sign", "--data", &data, "--secret", bad]);
    }
    for bad in [format!("Host: {HEADER}"), format!("Authorization: {HEADER}\u{7}"), format!("Authorization {HEADER}")] {
        let output = desk.workplace.command(["endpoints", "add", url, "--header", &bad]).output().unwrap();
        assert!(matches!(output.status.code(), Some(2 | 4)), "{:?}", output.status);
        // A header without a colon has no name, and is refused as a whole.
        must_not_leak("standard error of a bad header", &String::from_utf8_lossy(&output.stderr));
    }
    for (name, value) in [
        ("POSTRIDER_SECRET_KEY", "canary"),
        ("POSTRIDER_SIGNING_SECRET", "whsec_canary!"),
        ("POSTRIDER_API_KEY", WRONG_KEY),
        ("POSTRIDER_DATABASE", &format!("postgres://app:{PASSWORD}@[::/x")),
    ] {
        desk.run_with(4, Nothing, &["config"], &[(name, value)]);
        desk.run_with(4, Nothing, &["serve", "--listen", "127.0.0.1:0"], &[(name, value)]);
        desk.run_with(4, Nothing, &["listen", "--port", "0"], &[(name, value)]);
    }
    // A file that cannot be read at its most secret place.
    for line in
        ["secret_key = canary", "signing_secret = [\"whsec_canary", "database = \"postgres://app:canary@h/d\" x"]
    {
        std::fs::write(desk.workplace.path().join("bad.toml"), format!("lease = \"30s\"\n{line}\n")).unwrap();
        desk.run(4, Nothing, &["config", "--config", "bad.toml"]);
    }
}

/// The password of a database that cannot be reached, or does not let us in.
fn databases_that_are_not_there(desk: &mut Desk<'_>) {
    let nowhere = format!("postgres://app:{PASSWORD}@127.0.0.1:1/app?connect_timeout=1");
    let variables = [("POSTRIDER_DATABASE", &*nowhere)];
    desk.run_with(0, Nothing, &["config"], &variables);
    for arguments in [
        &["migrate"][..],
        &["endpoints", "list"],
        &["deliveries", "list"],
        &["send", "a.b", "--data", &payload()],
        &["keys", "list"],
        &["once", "show", "plan-1"],
    ] {
        desk.run_with(5, Nothing, arguments, &variables);
        desk.run_with(5, Nothing, &[arguments, &["--json"]].concat(), &variables);
    }
}

async fn no_command_prints_a_secret_or_a_payload_when_its_server_refuses(stage: Stage) {
    let served = stage.serve(&[]).await;
    let mut desk = Desk::new(&stage.workplace);
    let (data, key) = (payload(), served.api.key.clone());
    let stranger = format!("prk_{}", "canary".repeat(20));
    let stranger = &stranger[..key.len()];
    let nowhere = "http://127.0.0.1:1";
    for (server, key, code) in [(&*served.api.url, stranger, 6), (nowhere, &*key, 5)] {
        let variables = [("POSTRIDER_SERVER", server), ("POSTRIDER_API_KEY", key)];
        for arguments in [
            &["send", "a.b", "--data", &data][..],
            &["endpoints", "add", "http://127.0.0.1:9/", "--secret", ENDPOINT_SECRET],
            &["endpoints", "list"],
            &["events", "list"],
            &["deliveries", "list"],
            &["keys", "list"],
        ] {
            let text = desk.run_with(code, Nothing, arguments, &variables);
            assert!(!text.contains(key), "{text}");
        }
    }
    // And one that lets us in, but not this.
    let variables = [("POSTRIDER_SERVER", &*served.api.url), ("POSTRIDER_API_KEY", &*key)];
    desk.run_with(4, Nothing, &["send", "a.b", "--data", &data[1..]], &variables);
    desk.run_with(4, Nothing, &["endpoints", "add", "http://127.0.0.1:9/", "--secret", "canary"], &variables);
    let shown = desk.run_with(0, Nothing, &["send", "a.b", "--data", &data, "--json"], &variables);
    let sent: Value = serde_json::from_str(&shown).unwrap();
    desk.run_with(0, WhatWasAsked, &["events", "show", sent["id"].as_str().unwrap()], &variables);
    let text = served.running.stopped().await;
    must_not_leak("the server's log", &text);
}
