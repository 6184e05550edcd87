//! `postrider config` as people see it.

use serde_json::Value;

use crate::support::{SECRET_KEY, Workplace};

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
    for command in
        [&["config"][..], &["schedule"], &["dispatch"], &["serve"], &["send", "a.b"], &["deliveries", "list"]]
    {
        let done = workplace.run(command.iter().copied()).fails(4, "config_key_unknown");
        assert!(done.stderr.contains("hint: did you mean `max_in_flight`?"), "{done:?}");
    }
}

#[test]
fn keys_of_the_server_are_accepted_and_checked() {
    let workplace = Workplace::new().with("POSTRIDER_DISABLE_AFTER", "never").with("POSTRIDER_RETENTION", "90d");
    workplace.write(
        "postrider.toml",
        &format!("listen = \"0.0.0.0:8400\"\nsecret_key = [\"{SECRET_KEY}\", \"{SECRET_KEY}\"]\nretention = \"1d\"\n"),
    );
    let answer = workplace.json(["config", "--max-connections", "10"]);
    assert_eq!(row(&answer, "listen"), (&"0.0.0.0:8400".into(), "file postrider.toml"));
    assert_eq!(row(&answer, "retention"), (&"90d".into(), "variable POSTRIDER_RETENTION"));
    assert_eq!(row(&answer, "disable_after"), (&"never".into(), "variable POSTRIDER_DISABLE_AFTER"));
    assert_eq!(row(&answer, "max_connections"), (&"10".into(), "flag --max-connections"));
    assert_eq!(row(&answer, "secret_key").0, "****,****");
    Workplace::new().run(["config", "--disable-after", "soon"]).fails(4, "config_value_invalid");
}

#[test]
fn a_server_and_its_key_are_known_to_client_commands_and_the_key_is_masked() {
    let key = postrider::KeyToken::generate();
    let workplace =
        Workplace::new().with("POSTRIDER_SERVER", "http://127.0.0.1:1").with("POSTRIDER_API_KEY", key.reveal());
    let answer = workplace.json(["config"]);
    assert_eq!(row(&answer, "server"), (&"http://127.0.0.1:1/".into(), "variable POSTRIDER_SERVER"));
    assert_eq!(row(&answer, "api_key"), (&"****".into(), "variable POSTRIDER_API_KEY"));
    assert_eq!(row(&workplace.json(["config", "--server", "http://[::1]:2"]), "server").1, "flag --server");
    workplace.run(["deliveries", "list"]).fails(5, "server_unreachable");
    // Whoever names a database means it.
    workplace.run(["deliveries", "list", "--database", "sqlite://none.db"]).fails(5, "database_missing");
    let done = workplace.run(["config", "--server", "http://a", "--database", "sqlite://b"]);
    assert_eq!(done.code, Some(2), "{done:?}");
}

#[test]
fn a_new_secret_key_is_one() {
    let workplace = Workplace::new();
    let made = || workplace.run(["config", "--new-secret-key"]).succeeds().stdout;
    postrider::SecretKey::parse(&made()).unwrap();
    assert_ne!(made(), made());
    let answer = workplace.json(["config", "--new-secret-key"]);
    postrider::SecretKey::parse(answer["secret_key"].as_str().unwrap()).unwrap();
}
