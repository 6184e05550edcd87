//! Errors, word for word: what happened, which value, what to do.

use std::fmt::Write as _;

use crate::golden;
use crate::support::Workplace;

/// Command lines that fail without a database, with their exit codes.
const CASES: &[(i32, &[&str])] = &[
    (2, &["sned"]),
    (2, &["send"]),
    (2, &["send", "invoice.paid", "--too", "x"]),
    (2, &["deliveries", "list", "--status", "lost"]),
    (2, &["deliveries", "retry"]),
    (2, &["deliveries", "retry", "--since", "1d"]),
    (2, &["deliveries", "retry", "dlv_01h455vb4pex5vsknk084sn02q", "--status", "dead"]),
    (2, &["deliveries", "cancel", "dlv_01h455vb4pex5vsknk084sn02q"]),
    (2, &["dead", "retry"]),
    (2, &["listen", "--status", "99"]),
    (2, &["listen", "--fail-rate", "2"]),
    (2, &["schedule", "--schedule", "1s", "--exponential", "1s,2,1m"]),
    (2, &["--config", "missing.toml", "config"]),
    (3, &["send", "invoice.paid", "--data", "@missing.json"]),
    (4, &["config", "--lease", "banana"]),
    (4, &["config", "--lease", "100ms"]),
    (4, &["config", "--database", "mysql://root:hush@localhost/"]),
    (4, &["config", "--signing-secret", "short"]),
    (4, &["config", "--allowed-networks", "10.0.0.0/33"]),
    (4, &["schedule", "--exponential", "1s,2"]),
    (4, &["schedule", "--exponential", "1s,0.5,1m"]),
    (4, &["schedule", "--max-attempts", "0"]),
    (4, &["schedule", "--max-attempts", "-1"]),
    (4, &["schedule", "--schedule", "1s,30"]),
    (4, &["config", "--worker-id", "a\u{1b}[2Jb"]),
    (4, &["send", "no spaces please"]),
    (4, &["send", "nor\u{1b}[2Jthis"]),
    (4, &["send", "invoice.paid", "--data", "{"]),
    (4, &["send", "invoice.paid", "--data", ""]),
    (4, &["send", "invoice.paid", "--metadata", "novalue"]),
    (4, &["send", "invoice.paid", "--metadata", "a=1", "--metadata", "a=2"]),
    (4, &["send", "invoice.paid", "--deliver-at", "tomorrow"]),
    (4, &["send", "invoice.paid", "--to", "https://hooks.example.com/"]),
    (4, &["send", "invoice.paid", "--to", "http://127.0.0.1:9400/"]),
    (4, &["url", "check", "http://127.0.0.1/"]),
    (4, &["url", "check", "ftp://example.com/"]),
    (2, &["sign", "--new-secret", "--data", "{}"]),
    (4, &["sign", "--data", "{}"]),
    (4, &["sign", "--data", "{}", "--secret", "short"]),
    (4, &["verify", "--data", "{}", "--secret", "a secret of enough bytes", "-H", "no colon"]),
    (4, &["verify", "--data", "{}", "--secret", "a secret of enough bytes", "-H", "a: b", "--tolerance", "5"]),
    (1, &["verify", "--data", "{}", "--secret", "a secret of enough bytes", "-H", "webhook-id: evt_1"]),
    (4, &["deliveries", "show", "evt_01h455vb4pex5vsknk084sn02q"]),
    (4, &["deliveries", "list", "--since", "noon"]),
    (4, &["deliveries", "list", "--limit", "0"]),
    (4, &["deliveries", "list", "--cursor", "x"]),
    (4, &["deliveries", "retry", "--status", "delivered"]),
    (4, &["deliveries", "cancel", "dlv_01h455vb4pex5vsknk084sn02q", "--reason", "why", "--operator", " "]),
    (2, &["endpoints", "update", "ep_01h455vb4pex5vsknk084sn02q"]),
    (2, &["endpoints", "update", "ep_01h455vb4pex5vsknk084sn02q", "--unset", "secret"]),
    (2, &["endpoints", "update", "ep_01h455vb4pex5vsknk084sn02q", "--timeout", "1s", "--unset", "timeout"]),
    (2, &["endpoints", "list", "--server", "http://127.0.0.1:1", "--database", "sqlite://a.db"]),
    (2, &["endpoints", "pause", "ep_01h455vb4pex5vsknk084sn02q", "--server", "http://127.0.0.1:1", "--operator", "me"]),
    (2, &["send", "a.b", "--server", "http://127.0.0.1:1", "--allowed-networks", "127.0.0.0/8"]),
    (2, &["send", "a.b", "--once-generation", "2"]),
    (2, &["keys", "create", "--name", "ci", "--scope", "root"]),
    (2, &["keys", "create", "--name", "ci", "--scope", "read", "--tenant", "acme", "--all-tenants"]),
    (3, &["endpoints", "add", "https://hooks.example.com/", "--secret", "@missing"]),
    (4, &["endpoints", "add", "http://127.0.0.1:9400/"]),
    (4, &["endpoints", "add", "https://hooks.example.com/", "--header", "hush"]),
    (4, &["endpoints", "show", "dlv_01h455vb4pex5vsknk084sn02q"]),
    (4, &["endpoints", "test", "ep_01h455vb4pex5vsknk084sn02q", "--wait", "30"]),
    (4, &["events", "show", "42"]),
    (4, &["events", "list", "--server", "localhost:8400"]),
    (4, &["events", "list", "--server", "http://127.0.0.1:1", "--tenant", "Zoë"]),
    (4, &["why", "dlv"]),
    (5, &["events", "list", "--server", "http://127.0.0.1:1"]),
    (5, &["why", "dlv_01h455vb4pex5vsknk084sn02q"]),
    (5, &["keys", "list"]),
    (5, &["deliveries", "list"]),
    (5, &["send", "invoice.paid", "--database", "sqlite:///"]),
    (5, &["migrate", "--check"]),
];

#[test]
fn error_messages_are_as_recorded() {
    let mut text = String::new();
    for (code, arguments) in CASES {
        let workplace = Workplace::new();
        let done = workplace.run(arguments.iter().copied());
        assert_eq!(done.code, Some(*code), "{arguments:?}: {done:?}");
        assert_eq!(done.stdout, "", "{arguments:?} says nothing on standard output");
        assert!(done.stderr.starts_with("error["), "{arguments:?}: {}", done.stderr);
        let obeyed = done.stderr.chars().any(|character| character.is_control() && character != '\n');
        assert!(!obeyed, "{arguments:?} lets a control character through: {:?}", done.stderr);
        assert!(!done.stderr.contains("hush"), "{arguments:?}: {}", done.stderr);
        let left: Vec<_> = std::fs::read_dir(workplace.path()).unwrap().collect();
        assert!(left.is_empty(), "{arguments:?} leaves nothing behind: {left:?}");
        writeln!(text, "$ postrider {}\n{}[{code}]\n", arguments.join(" "), done.stderr).unwrap();
    }
    golden::compare("errors.txt", &text);
}

/// With `--json`, one line on standard error, also if the command line could not be parsed.
#[test]
fn errors_are_json_for_programs() {
    for (code, arguments) in CASES {
        let done = Workplace::new().run(arguments.iter().copied().chain(["--json"]));
        assert_eq!(done.code, Some(*code), "{arguments:?}: {done:?}");
        // Whether it is accepted, or genuine, is what these were asked for: an answer, on standard output.
        let answers = matches!(arguments, ["url", "check", ..]) || *code == 1;
        let (answer, silent) = if answers { (&done.stdout, &done.stderr) } else { (&done.stderr, &done.stdout) };
        assert_eq!(silent, "", "{arguments:?}: {done:?}");
        let answer: serde_json::Value =
            serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {done:?}"));
        let problem = if answers { &answer } else { &answer["error"] };
        assert!(problem["code"].as_str().is_some_and(|code| !code.is_empty()), "{arguments:?}: {answer}");
        let said = problem.get("message").or(problem.get("detail")).and_then(serde_json::Value::as_str);
        assert!(said.is_some_and(|text| !text.is_empty() && !text.contains('\n')), "{arguments:?}: {answer}");
        assert_eq!(done.stderr.lines().count(), usize::from(!answers), "{arguments:?}: {done:?}");
    }
}

#[test]
fn no_command_at_all_is_a_usage_error_with_the_help() {
    let done = Workplace::new().run([]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("Commands:"), "{done:?}");
}

#[test]
fn a_database_that_is_not_there_is_exit_code_5() {
    let workplace = Workplace::new();
    // Port 1 on loopback is a port that nothing listens on.
    let url = "postgres://nobody:hush@127.0.0.1:1/none";
    for command in [
        &["deliveries", "list"][..],
        &["migrate"],
        &["dispatch"],
        &["serve", "--listen", "127.0.0.1:0"],
        &["send", "a.b"],
    ] {
        let done = workplace.run(command.iter().copied().chain(["--database", url]));
        assert_eq!(done.code, Some(5), "{done:?}");
        assert!(done.stderr.starts_with("error[store_") && done.stderr.contains("nobody:****@127.0.0.1:1"), "{done:?}");
        assert!(done.stderr.contains("hint: ") && !done.stderr.contains("hush"), "{done:?}");
    }
    let done = workplace.run(["send", "a.b", "--database", "sqlite:///nonexistent/folder/postrider.db"]);
    assert!(done.code == Some(5) || done.code == Some(1), "{done:?}");
    assert!(done.stderr.starts_with("error[store_"), "{done:?}");
}

#[test]
fn a_database_or_a_role_that_a_server_does_not_know_is_exit_code_5() {
    let server = std::env::var("POSTRIDER_TEST_POSTGRES").expect("POSTRIDER_TEST_POSTGRES names a server for tests");
    let mut absent: url::Url = server.parse().unwrap();
    absent.set_path("/postrider_has_no_such_database");
    let mut unknown: url::Url = server.parse().unwrap();
    unknown.set_username("postrider_has_no_such_role").unwrap();
    for (url, name) in [(absent, "postrider_has_no_such_database"), (unknown, "postrider_has_no_such_role")] {
        let done = Workplace::new().run(["send", "a.b", "--database", url.as_str()]).fails(5, "store_unavailable");
        assert!(done.stderr.contains(&format!("\"{name}\" does not exist")), "{done:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    use std::process::Stdio;
    let workplace = Workplace::new();
    for arguments in [&["config"][..], &["completions", "bash"], &["schedule", "--max-attempts", "1000"], &["--help"]] {
        let mut child =
            workplace.command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}
