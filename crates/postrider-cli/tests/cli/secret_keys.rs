//! The key that encrypts secrets at rest: where it comes from, and what happens if it is not the right one.

use postrider::SecretKey;

use crate::gate::Gate;
use crate::served::{Place, on_both};
use crate::support::{LOOPBACK, Workplace};

on_both! {
    a_wrong_key_is_told_at_the_start_and_by_the_doctor
    a_key_is_rotated
}

fn new_key() -> String {
    Workplace::new().run(["config", "--new-secret-key"]).succeeds().stdout.trim().to_owned()
}

/// A place with one endpoint, whose secret is encrypted.
fn with_endpoint(place: &Place) {
    let served = place.serve(&[]).opened();
    served.api.register("https://hooks.example.com/");
    served.stop();
}

fn a_wrong_key_is_told_at_the_start_and_by_the_doctor(place: &Place) {
    with_endpoint(place);
    let findings = |text: &str| {
        text.lines().filter(|line| line.starts_with("endpoint_settings")).map(str::to_owned).collect::<String>()
    };
    let found = findings(&place.workplace.run(["doctor"]).stdout);
    assert!(found.contains(" ok "), "{found}");
    let wrong = new_key();
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["dispatch"]] {
        let arguments = command.iter().copied().chain(["--secret-key", &wrong]);
        let done = place.workplace.run(arguments).fails(4, "secret_key_wrong");
        assert!(done.stderr.contains("hint: set secret_key to the key") && !done.stderr.contains(&wrong), "{done:?}");
    }
    place.workplace.write("postrider.toml", &format!("secret_key = \"{wrong}\"\n"));
    let mut command = place.workplace.command();
    let output = command.env_remove("POSTRIDER_SECRET_KEY").args(["doctor"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(findings(&text).contains(" PROBLEM ") && !text.contains(&wrong), "{text}");
}

fn a_key_is_rotated(place: &Place) {
    let gate = Gate::closed();
    gate.open();
    let (old, new) = (new_key(), new_key());
    let served = place.serve(&["--secret-key", &old]).opened();
    let key = served.api.key.clone().unwrap();
    served.api.register(&gate.url);
    served.stop();

    let both = format!("{new},{old}");
    let served = place.serve(&["--secret-key", &both]).with_key(&key);
    let delivery = served.api.event();
    served.api.until(&delivery, "delivered");
    served.stop();
    let migrate = |keys: &str| {
        let mut command = place.workplace.command();
        command.env("POSTRIDER_SECRET_KEY", keys).args(["migrate", "--reseal", "--json"]).output().unwrap()
    };
    let output = migrate(&both);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("\"resealed\": 1"), "{text}");

    // The old one is of no use any more, and the new one alone opens everything.
    let old = ["serve", "--listen", "127.0.0.1:0", "--secret-key", &old];
    place.workplace.run(old).fails(4, "secret_key_wrong");
    let served = place.serve(&["--secret-key", &new]).with_key(&key);
    let delivery = served.api.event();
    served.api.until(&delivery, "delivered");
    served.stop();
}

#[test]
fn a_file_gets_a_key_beside_it_which_only_its_owner_can_read() {
    let workplace = Workplace::new().with(LOOPBACK.0, LOOPBACK.1);
    workplace.run(["serve", "--listen", "127.0.0.1:0", "--no-migrate"]).fails(1, "store_schema");
    let file = workplace.path().join("postrider.db.key");
    assert!(!file.exists(), "a start that was refused makes none");
    let done = workplace.run(["dispatch", "--until-idle"]).succeeds();
    assert!(done.stderr.contains("postrider.db.key"), "it is told where it is: {done:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    SecretKey::parse(&text).unwrap();
    assert!(!done.stderr.contains(text.trim()) && !done.stdout.contains(text.trim()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    workplace.run(["dispatch", "--until-idle"]).succeeds();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "it is never written again");
}

#[test]
fn a_key_file_that_is_gone_or_damaged_is_told_and_not_made_anew() {
    let workplace = Workplace::new();
    workplace.run(["endpoints", "add", "https://hooks.example.com/"]).succeeds();
    let file = workplace.path().join("postrider.db.key");
    let text = std::fs::read(&file).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0"];

    std::fs::write(&file, "canary").unwrap();
    let done = workplace.run(serve).fails(1, "secret_key_damaged");
    assert!(done.stderr.contains("postrider.db.key") && !done.stderr.contains("canary"), "{done:?}");
    assert_eq!(std::fs::read(&file).unwrap(), b"canary");
    assert_eq!(workplace.run(["doctor"]).code, Some(1));

    std::fs::remove_file(&file).unwrap();
    let done = workplace.run(serve).fails(1, "secret_key_missing");
    assert!(done.stderr.contains("postrider.db.key") && done.stderr.contains("hint: restore it"), "{done:?}");
    assert!(!file.exists(), "a new key would open nothing");
    assert_eq!(workplace.run(["doctor"]).code, Some(1));

    std::fs::write(&file, text).unwrap();
    workplace.run(["dispatch", "--until-idle"]).succeeds();
}

#[test]
fn postgres_needs_a_key_that_everybody_shares() {
    let place = Place::postgres();
    place.workplace.run(["migrate"]).succeeds();
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["dispatch"], &["doctor"]] {
        let output = place.workplace.command().env_remove("POSTRIDER_SECRET_KEY").args(command).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.code() == Some(4) || command == ["doctor"] && output.status.code() == Some(1), "{text}");
        assert!(text.contains("secret_key_missing") && text.contains("postrider config --new-secret-key"), "{text}");
    }
}
