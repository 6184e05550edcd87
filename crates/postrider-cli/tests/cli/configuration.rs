//! `postrider config` as people see it.

use serde_json::Value;

use crate::support::Workplace;

fn row<'a>(answer: &'a Value, key: &str) -> (&'a Value, &'a str) {
    let row = answer["data"].as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
    (&row["value"], row["source"].as_str().unwrap())
}

#[test]
fn each_value_is_printed_with_where_it_came_from() {
    let workplace = Workplace::new().with("POSTRIDER_TIMEOUT", "9s").with("POSTRIDER_LEASE", "8s");
    workplace.write("postrider.toml", "timeout = \"1s\"\nlease = \"2s\"\nmax_attempts = 7\n");
    let answer = workplace.json(["config", "--lease", "5s"]);
    assert_eq!(row(&answer, "lease"), (&"5s".into(), "flag --lease"));
    assert_eq!(row(&answer, "timeout"), (&"9s".into(), "variable POSTRIDER_TIMEOUT"));
    assert_eq!(row(&answer, "max_attempts"), (&"7".into(), "file postrider.toml"));
    assert_eq!(row(&answer, "poll_interval"), (&"1s".into(), "default"));
    assert_eq!(row(&answer, "database"), (&"sqlite://postrider.db".into(), "default"));
    assert_eq!(row(&answer, "signing_secret"), (&Value::Null, "default"));
    let table = workplace.run(["config", "--database", "sqlite://other.db"]).succeeds().stdout;
    let line = table.lines().find(|line| line.starts_with("database")).unwrap();
    assert!(line.contains("sqlite://other.db") && line.ends_with("flag --database"), "{line}");
}

#[test]
fn another_file_can_be_named_by_flag_or_variable() {
    let workplace = Workplace::new();
    workplace.write("other.toml", "lease = \"4s\"\n");
    let answer = workplace.json(["config", "--config", "other.toml"]);
    assert_eq!(row(&answer, "lease"), (&"4s".into(), "file other.toml"));
    let workplace = workplace.with("POSTRIDER_CONFIG", "other.toml");
    assert_eq!(row(&workplace.json(["config"]), "lease"), (&"4s".into(), "file other.toml"));
}

#[test]
fn a_wrong_file_stops_every_command_that_reads_it() {
    let workplace = Workplace::new();
    workplace.write("postrider.toml", "max_in_flite = 3\n");
    for command in [&["config"][..], &["schedule"], &["dispatch"], &["send", "a.b"], &["deliveries", "list"]] {
        let done = workplace.run(command.iter().copied()).fails(4, "config_key_unknown");
        assert!(done.stderr.contains("hint: did you mean `max_in_flight`?"), "{done:?}");
    }
}

/// The file that the documentation describes, with everything in it.
#[test]
fn keys_of_the_server_are_accepted_and_checked() {
    let workplace = Workplace::new();
    workplace.write(
        "postrider.toml",
        "listen = \"0.0.0.0:8400\"\nsecret_key = \"0123456789abcdef0123456789abcdef\"\nretention = \"90d\"\n",
    );
    let answer = workplace.json(["config"]);
    assert_eq!(row(&answer, "retention").0, "90d");
    assert_eq!(row(&answer, "secret_key").0, "****");
    workplace.write("postrider.toml", "retention = \"soon\"\n");
    workplace.run(["config"]).fails(4, "config_value_invalid");
}
