//! `postrider doctor`: what it says, and how it ends.

use serde_json::Value;

use crate::served::{Place, on_both};
use crate::support::Workplace;

on_both! {
    a_database_that_is_fit_is_called_so
    a_server_is_asked_instead_of_the_database
    whether_a_server_is_ready_is_asked_without_a_key_or_a_database
}

fn level<'a>(answer: &'a Value, check: &str) -> Option<&'a str> {
    let found = answer["data"].as_array().unwrap().iter().find(|finding| finding["check"] == check)?;
    found["level"].as_str()
}

fn examined(workplace: &Workplace, options: &[&str]) -> (Option<i32>, Value) {
    let done = workplace.run(["doctor", "--json"].into_iter().chain(options.iter().copied()));
    let answer = serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    (done.code, answer)
}

fn a_database_that_is_fit_is_called_so(place: &Place) {
    place.workplace.run(["migrate"]).succeeds();
    let (_, answer) = examined(&place.workplace, &[]);
    let problems = answer["data"].as_array().unwrap().iter().filter(|finding| finding["level"] == "problem");
    // The server of tests does not sync to disk, and that is found.
    assert!(problems.into_iter().all(|finding| finding["check"] == "durability"), "{answer:#}");
    for check in ["configuration", "destinations", "signing_secret", "encryption", "database", "migrations", "clock"] {
        assert_eq!(level(&answer, check), Some("ok"), "{check}: {answer:#}");
    }
    assert_eq!(level(&answer, "private_networks"), Some("warning"), "loopback is open here: {answer:#}");
    for check in ["schema", "endpoint_settings", "secret_key"] {
        assert_eq!(level(&answer, check), Some("ok"), "the store adds what it knows: {check}: {answer:#}");
    }
    let table = place.workplace.run(["doctor"]).stdout;
    assert!(table.lines().any(|line| line.starts_with("hint (private_networks): ")), "{table}");
}

fn a_server_is_asked_instead_of_the_database(place: &Place) {
    let served = place.serve(&[]).opened();
    let key = served.api.key.clone().unwrap();
    let asked = |key: Option<&str>| {
        let mut command = place.workplace.command();
        command.envs(key.map(|key| ("POSTRIDER_API_KEY", key)));
        let output = command.args(["doctor", "--json", "--server", &served.api.url]).output().unwrap();
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let (code, answer) = asked(Some(&key));
    assert_eq!((code, level(&answer, "server"), level(&answer, "api_key")), (Some(0), Some("ok"), Some("ok")));
    assert_eq!(level(&answer, "database"), None, "{answer:#}");
    let (code, answer) = asked(None);
    assert_eq!((code, level(&answer, "server"), level(&answer, "api_key")), (Some(1), Some("ok"), Some("problem")));
    let url = served.api.url.clone();
    served.stop();
    let (code, answer) = examined(&place.workplace, &["--server", &url]);
    assert_eq!((code, level(&answer, "server")), (Some(1), Some("problem")), "{answer:#}");
}

fn whether_a_server_is_ready_is_asked_without_a_key_or_a_database(place: &Place) {
    let served = place.serve(&[]);
    let url = served.api.url.clone();
    let address = url.trim_start_matches("http://");
    // Elsewhere, where there is neither.
    let elsewhere = Workplace::new();
    for options in [&["--ready", url.as_str()][..], &["--ready", "--listen", address]] {
        let done = elsewhere.run(["doctor"].into_iter().chain(options.iter().copied())).succeeds();
        assert_eq!(done.stdout, "ready\n");
    }
    let listening = Workplace::new().with("POSTRIDER_LISTEN", &address.replace("127.0.0.1", "0.0.0.0"));
    listening.run(["doctor", "--ready"]).succeeds();
    assert_eq!(listening.json(["doctor", "--ready"])["ready"], true);
    assert!(std::fs::read_dir(elsewhere.path()).unwrap().next().is_none(), "nothing was made");
    elsewhere.run(["doctor", "--ready", &format!("{url}/healthz/nothing")]).fails(1, "not_ready");
    served.stop();
    let done = elsewhere.run(["doctor", "--ready", &url]).fails(1, "not_ready");
    assert!(done.stderr.contains(&url), "{done:?}");
    elsewhere.run(["doctor", "--listen", address]).fails(2, "usage");
}

#[test]
fn a_database_that_is_not_there_yet_is_a_warning_and_is_not_made() {
    let workplace = Workplace::new();
    let (code, answer) = examined(&workplace, &[]);
    assert_eq!((code, level(&answer, "database")), (Some(0), Some("warning")), "{answer:#}");
    assert!(std::fs::read_dir(workplace.path()).unwrap().next().is_none(), "nothing was made");
}

#[test]
fn what_is_missing_or_cannot_be_reached_is_a_problem() {
    let place = Place::postgres();
    let (code, answer) = examined(&place.workplace, &[]);
    assert_eq!((code, level(&answer, "migrations")), (Some(1), Some("problem")), "{answer:#}");
    let (code, answer) = examined(&place.workplace, &["--database", "postgres://nobody:hush@127.0.0.1:1/none"]);
    assert_eq!((code, level(&answer, "database")), (Some(1), Some("problem")), "{answer:#}");
    assert!(!answer.to_string().contains("hush"), "{answer:#}");
}

#[test]
fn a_configuration_that_cannot_hold_is_a_finding_too() {
    let workplace = Workplace::new();
    workplace.write("postrider.toml", "lease = \"1ms\"\n");
    let (code, answer) = examined(&workplace, &[]);
    assert_eq!((code, level(&answer, "configuration")), (Some(1), Some("problem")), "{answer:#}");
    assert!(answer["data"][0]["detail"].as_str().unwrap().contains("lease"), "{answer:#}");
}

#[cfg(unix)]
#[test]
fn a_key_file_that_others_can_read_is_a_warning() {
    use std::os::unix::fs::PermissionsExt as _;
    let workplace = Workplace::new();
    workplace.run(["dispatch", "--until-idle"]).succeeds();
    let file = workplace.path().join("postrider.db.key");
    assert_eq!(level(&examined(&workplace, &[]).1, "encryption"), Some("ok"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, answer) = examined(&workplace, &[]);
    assert_eq!((code, level(&answer, "encryption")), (Some(0), Some("warning")), "{answer:#}");
}
