//! Endpoints, from being registered to being removed.

use serde_json::{Value, json};

use crate::client::asking;
use crate::served::{Place, on_both};
use crate::support::{Running, Workplace};

on_both! {
    an_endpoint_s_life
    a_test_tells_what_came_of_it
    a_rotated_secret_signs_beside_the_old_one
    lists_are_filtered_and_paged
}

/// A `listen` that knows this secret, on a port of its own.
fn listening(secret: &str, options: &[&str]) -> (Running, String) {
    let options = ["--secret", secret].into_iter().chain(options.iter().copied());
    crate::support::listen(&Workplace::new(), options)
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn an_endpoint_s_life(place: &Place) {
    let served = place.serve(&[]);
    let asking = asking(&served, &served.first_key());
    let (receiver, url) = listening(SECRET, &[]);
    for workplace in [&asking, &place.workplace] {
        let made = workplace.json([
            "endpoints",
            "add",
            &url,
            "--event-types",
            "invoice.*, refund.paid",
            "--secret",
            SECRET,
            "--retry-schedule",
            "1m,10m",
            "--max-attempts",
            "7",
            "--max-in-flight",
            "3",
            "--rate-limit",
            "100/s",
            "--timeout",
            "3s",
            "--header",
            "X-Team: billing",
            "--header",
            "X-Colour:blue",
            "--description",
            "the billing team's",
        ]);
        assert_eq!(made["secret"], SECRET);
        let id = made["id"].as_str().unwrap().to_owned();
        let shown = workplace.json(["endpoints", "show", &id]);
        assert_eq!(shown.get("secret"), None, "never again: {shown:#}");
        for (field, value) in [
            ("event_types", json!(["invoice.*", "refund.paid"])),
            ("retry_schedule", json!(["1m", "10m"])),
            ("max_attempts", json!(7)),
            ("max_in_flight", json!(3)),
            ("rate_limit", json!("100/s")),
            ("timeout", json!("3s")),
            ("headers", json!({ "x-team": "billing", "x-colour": "blue" })),
            ("description", json!("the billing team's")),
            ("status", json!("active")),
            ("tenant", json!("default")),
        ] {
            assert_eq!(shown[field], value, "{field}");
        }

        let sent = workplace.json(["send", "invoice.paid"]);
        let delivery = sent["deliveries"][0]["id"].as_str().unwrap().to_owned();
        let arrival = receiver.json_line("the arrival", |line| line["delivery_id"] == delivery.as_str());
        assert_eq!(arrival["verification"], "verified", "{arrival}");
        assert_eq!(workplace.json(["send", "user.left"])["deliveries"], json!([]));

        let changed = workplace.json([
            "endpoints",
            "update",
            &id,
            "--event-types",
            "*",
            "--signature",
            "hmac-sha256-hex",
            "--header-prefix",
            "X-Acme-",
            "--unset",
            "headers",
            "--unset",
            "description",
        ]);
        assert_eq!((&changed["event_types"], &changed["headers"]), (&json!(["*"]), &json!({})));
        assert_eq!((&changed["signature"]["header_prefix"], &changed["description"]), (&"X-Acme-".into(), &"".into()));
        assert_eq!(changed["max_attempts"], 7, "what is not named stays");
        workplace.run(["endpoints", "update", &id]).fails(2, "usage");
        workplace.run(["endpoints", "update", &id, "--timeout", "1s", "--unset", "timeout"]).fails(2, "usage");
        workplace.run(["endpoints", "update", &id, "--header", "a: 1", "--header", "A: 2"]).fails(4, "header_invalid");

        let paused = workplace.json(["endpoints", "pause", &id, "--reason", "moving house"]);
        assert_eq!((&paused["status"], &paused["status_reason"]), (&"paused".into(), &"moving house".into()));
        let waiting = workplace.json(["send", "invoice.paid"])["deliveries"][0]["id"].as_str().unwrap().to_owned();
        let why = workplace.json(["why", &waiting])["summary"].as_str().unwrap().to_owned();
        assert!(why.contains("paused"), "{why}");
        let text = workplace.run(["why", &waiting]).succeeds().stdout;
        assert!(text.lines().all(|line| line.chars().count() <= 100) && text.contains("\n- "), "{text}");
        assert_eq!(workplace.json(["deliveries", "show", &waiting])["attempts"], json!([]));

        let done = workplace.run(["endpoints", "remove", &id]).fails(2, "confirmation_missing");
        assert!(done.stderr.contains("--yes"), "{done:?}");
        workplace.run(["endpoints", "remove", &id, "--yes"]).succeeds();
        workplace.run(["endpoints", "show", &id]).fails(3, "endpoint_not_found");
        workplace.until(["deliveries", "show", &waiting], "it is cancelled", |shown| shown["status"] == "cancelled");
        assert_eq!(workplace.json(["send", "invoice.paid"])["deliveries"], json!([]));
    }
    served.stop();
}

fn a_test_tells_what_came_of_it(place: &Place) {
    let served = place.serve(&["--retry-schedule", "1h"]);
    let asking = asking(&served, &served.first_key());
    let (_receiver, good) = listening(SECRET, &[]);
    let (_other, bad) = listening("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", &[]);
    for workplace in [&asking, &place.workplace] {
        let add = |url: &str| {
            let made = workplace.json(["endpoints", "add", url, "--secret", SECRET, "--event-types", "none.of.these"]);
            made["id"].as_str().unwrap().to_owned()
        };
        let (good, bad) = (add(&good), add(&bad));
        let tested = workplace.json(["endpoints", "test", &good, "--wait", "60s"]);
        assert_eq!((&tested["status"], &tested["event_type"]), (&"delivered".into(), &"postrider.test".into()));
        let text = workplace.run(["endpoints", "test", &good, "--wait", "60s"]).succeeds().stdout;
        assert!(text.contains("delivered") && text.contains("200"), "{text}");
        let done = workplace.run(["endpoints", "test", &bad, "--wait", "60s"]).fails(1, "test_failed");
        assert!(done.stderr.contains("401") && done.stderr.contains("postrider why dlv_"), "{done:?}");
        workplace.run(["endpoints", "pause", &good]).succeeds();
        let done = workplace.run(["endpoints", "test", &good, "--wait", "300ms"]).fails(1, "test_not_attempted");
        assert!(done.stderr.contains("300ms"), "{done:?}");
        workplace.run(["endpoints", "test", &good, "--wait", "soon"]).fails(4, "duration_invalid");
    }
    served.stop();
}

fn a_rotated_secret_signs_beside_the_old_one(place: &Place) {
    let served = place.serve(&["--retry-schedule", "1h"]);
    let asking = asking(&served, &served.first_key());
    let (_receiver, url) = listening(SECRET, &[]);
    for workplace in [&asking, &place.workplace] {
        let made = workplace.json(["endpoints", "add", &url, "--secret", SECRET]);
        let id = made["id"].as_str().unwrap().to_owned();
        let rotated = workplace.json(["endpoints", "rotate-secret", &id, "--overlap", "1h"]);
        let secret = rotated["secret"].as_str().unwrap();
        assert!(secret.starts_with("whsec_") && secret != SECRET, "{secret}");
        assert!(rotated["secrets_retiring_until"].is_string(), "{rotated:#}");
        workplace.run(["endpoints", "test", &id, "--wait", "60s"]).succeeds();
        let text = workplace.run(["endpoints", "rotate-secret", &id, "--overlap", "0s"]).succeeds().stdout;
        assert!(text.contains("secret  whsec_") && text.contains("not shown again"), "{text}");
        // The first one is still in its hour.
        workplace.run(["endpoints", "test", &id, "--wait", "60s"]).succeeds();
        workplace.run(["endpoints", "rotate-secret", &id, "--overlap", "31d"]).fails(4, "overlap_invalid");
        workplace.run(["endpoints", "remove", &id, "--yes"]).succeeds();
    }
    served.stop();
}

fn lists_are_filtered_and_paged(place: &Place) {
    let served = place.serve(&["--no-dispatch"]);
    let asking = asking(&served, &served.first_key());
    let ids: Vec<String> = (0..5)
        .map(|number| {
            let made = asking.json(["endpoints", "add", &format!("https://hooks.example.com/{number}")]);
            made["id"].as_str().unwrap().to_owned()
        })
        .collect();
    asking.run(["endpoints", "pause", &ids[1]]).succeeds();
    let listed = |page: &Value| -> Vec<String> {
        page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    for workplace in [&asking, &place.workplace] {
        assert_eq!(listed(&workplace.json(["endpoints", "list", "--status", "paused"])), [ids[1].clone()]);
        let first = workplace.json(["endpoints", "list", "--limit", "3"]);
        let cursor = first["next_cursor"].as_str().unwrap();
        let second = workplace.json(["endpoints", "list", "--limit", "3", "--cursor", cursor]);
        assert_eq!(second["next_cursor"], Value::Null);
        let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
        assert_eq!([listed(&first), listed(&second)].concat(), newest_first);
        assert_eq!(listed(&workplace.json(["endpoints", "list", "--all"])), newest_first);
        workplace.run(["endpoints", "list", "--all", "--cursor", cursor]).fails(2, "usage");
        workplace.run(["endpoints", "list", "--cursor", "x"]).fails(4, "cursor_invalid");
        workplace.run(["endpoints", "list", "--limit", "251"]).fails(4, "limit_invalid");
    }
    // Every page, not just the first one of the largest.
    for _ in 0..2 {
        asking.run(["send", "a.b"]).succeeds();
    }
    let all = asking.json(["deliveries", "list", "--all"]);
    assert_eq!((all["data"].as_array().unwrap().len(), &all["next_cursor"]), (10, &Value::Null));
    served.stop();
}

/// A secret that is sealed with a key of its own is lost to every server on that database.
#[test]
fn secrets_are_written_with_the_right_key_only() {
    let place = Place::postgres();
    let workplace = &place.workplace;
    workplace.run(["migrate"]).succeeds();
    let with_key = |key: Option<&str>, arguments: &[&str]| {
        let mut command = workplace.command();
        match key {
            Some(key) => command.env("POSTRIDER_SECRET_KEY", key),
            None => command.env_remove("POSTRIDER_SECRET_KEY"),
        };
        let output = command.args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let add = ["endpoints", "add", "https://hooks.example.com/"];
    let (code, text) = with_key(None, &add);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.starts_with("error[secret_key_missing]") && text.contains("--new-secret-key"), "{text}");
    let id = workplace.json(add)["id"].as_str().unwrap().to_owned();
    let other = Workplace::new().run(["config", "--new-secret-key"]).succeeds().stdout.trim().to_owned();
    for command in [&add[..], &["endpoints", "rotate-secret", &id], &["endpoints", "update", &id, "--timeout", "1s"]] {
        let (code, text) = with_key(Some(&other), command);
        assert_eq!(code, Some(4), "{command:?}: {text}");
        assert!(text.starts_with("error[secret_key_wrong]") && !text.contains(&other), "{command:?}: {text}");
    }
    // To look needs no key at all.
    let (code, text) = with_key(None, &["endpoints", "list"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(workplace.json(["endpoints", "list"])["data"].as_array().unwrap().len(), 1);
}
