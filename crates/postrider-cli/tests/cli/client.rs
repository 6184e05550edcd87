//! Client commands, each asked of a server and straight on its database.

use serde_json::Value;

use crate::gate::Gate;
use crate::served::{Place, Served, on_both};
use crate::support::Workplace;

on_both! {
    what_is_looked_at_is_the_same_document_in_both_modes
    what_is_done_answers_alike_in_both_modes
    what_cannot_be_done_ends_with_the_same_code_in_both_modes
    dead_letters_are_retried_in_bulk_in_both_modes
    events_are_sent_with_every_option_in_both_modes
    one_tenant_never_sees_another_s_things
}

const UNKNOWN: &str = "01h455vb4pex5vsknk084sn02q";

/// A folder without a database, whose commands ask the server with a key.
pub(crate) fn asking(served: &Served, key: &str) -> Workplace {
    Workplace::new().with("POSTRIDER_SERVER", &served.api.url).with("POSTRIDER_API_KEY", key)
}

/// The same text for what differs from one time to the next: ids, instants and secrets.
pub(crate) fn alike(value: &Value) -> Value {
    const NAMED: [&str; 6] = ["evt_", "dlv_", "ep_", "key_", "whsec_", "prk_"];
    match value {
        Value::String(text) => match NAMED.iter().find(|prefix| text.starts_with(**prefix)) {
            Some(prefix) => (*prefix).into(),
            None if text.parse::<jiff::Timestamp>().is_ok() => "an instant".into(),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(alike).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), alike(value))).collect(),
        other => other.clone(),
    }
}

pub(crate) fn id(answer: &Value) -> String {
    answer["id"].as_str().unwrap_or_else(|| panic!("it has an id: {answer:#}")).to_owned()
}

fn what_is_looked_at_is_the_same_document_in_both_modes(place: &Place) {
    let served = place.serve(&[]);
    let asking = asking(&served, &served.first_key());
    let gate = Gate::closed();
    gate.open();
    let endpoint =
        id(&asking.json(["endpoints", "add", &gate.url, "--event-types", "invoice.*", "--max-attempts", "3"]));
    let sent = asking.json([
        "send",
        "invoice.paid",
        "--data",
        "{\"odd\":  1.10}",
        "--once",
        "invoice/42",
        "--metadata",
        "team=billing",
    ]);
    let (event, delivery) = (id(&sent), id(&sent["deliveries"][0]));
    asking.until(["deliveries", "show", &delivery], "it is delivered", |shown| shown["status"] == "delivered");
    for command in [
        &["endpoints", "list"][..],
        &["endpoints", "show", &endpoint],
        &["events", "list"],
        &["events", "list", "--type", "invoice.paid", "--since", "1h", "--limit", "1"],
        &["events", "show", &event],
        &["deliveries", "list", "--status", "delivered", "--endpoint", &endpoint, "--event", &event],
        &["deliveries", "list", "--all"],
        &["deliveries", "show", &delivery],
        &["dead", "list"],
        &["once", "list"],
        &["once", "list", "--prefix", "invoice/", "--limit", "1"],
        &["once", "show", "invoice/42"],
        &["why", &delivery],
        &["keys", "list"],
    ] {
        // How long ago something was is another matter a moment later.
        let timeless = |mut document: Value| {
            if let Some(summary) = document.get_mut("summary") {
                assert!(summary.as_str().unwrap().contains("delivered"), "{summary}");
                *summary = Value::Null;
            }
            document
        };
        let over_http = timeless(asking.json(command.iter().copied()));
        assert_eq!(over_http, timeless(place.workplace.json(command.iter().copied())), "{command:?}");
        let rows = over_http.get("data").and_then(Value::as_array);
        assert!(command[0] == "dead" || rows.is_none_or(|rows| rows.len() == 1), "{command:?}: {over_http:#}");
        let text = asking.run(command.iter().copied()).succeeds();
        assert!(!text.stdout.is_empty() && text.stderr.is_empty(), "{command:?}: {text:?}");
        place.workplace.run(command.iter().copied()).succeeds();
    }
    // Nothing is made where a client asks a server.
    assert_eq!(std::fs::read_dir(asking.path()).unwrap().count(), 0);
    served.stop();
}

fn what_is_done_answers_alike_in_both_modes(place: &Place) {
    // Nobody dispatches, so that what is sent stays where it is.
    let served = place.serve(&["--no-dispatch"]);
    let asking = asking(&served, &served.first_key());
    let done = |workplace: &Workplace, subject: &str| -> Vec<Value> {
        let mut answers = Vec::new();
        let mut keep = |answer: Value| {
            answers.push(alike(&answer));
            answer
        };
        let endpoint =
            id(&keep(workplace.json(["endpoints", "add", "https://hooks.example.com/a", "--rate-limit", "5/s"])));
        keep(workplace.json(["endpoints", "update", &endpoint, "--timeout", "3s", "--unset", "rate_limit"]));
        keep(workplace.json(["endpoints", "pause", &endpoint, "--reason", "moving"]));
        keep(workplace.json(["endpoints", "resume", &endpoint]));
        keep(workplace.json(["endpoints", "rotate-secret", &endpoint, "--overlap", "1h"]));
        keep(workplace.json(["endpoints", "test", &endpoint, "--wait", "0s"]));
        let sent = keep(workplace.json(["send", "a.b", "--data", "{\"a\":1}"]));
        assert_eq!(sent["deliveries"].as_array().unwrap().len(), 1, "{sent:#}");
        let delivery = id(&sent["deliveries"][0]);
        let cancelled = keep(workplace.json(["deliveries", "cancel", &delivery, "--reason", "a mistake"]));
        assert_eq!(cancelled["status"], "cancelled");
        keep(workplace.json(["deliveries", "retry", &delivery]));
        assert_eq!(workplace.json(["deliveries", "show", &delivery])["status"], "pending");
        keep(workplace.json(["deliveries", "retry", "--status", "dead"]));
        let reset = keep(workplace.json(["once", "reset", subject]));
        assert_eq!(reset["generation"], 2, "{reset}");
        let key = id(&keep(workplace.json(["keys", "create", "--name", "ci", "--tenant", "acme", "--scope", "write"])));
        keep(workplace.json(["keys", "revoke", &key]));
        keep(workplace.json(["endpoints", "remove", &endpoint, "--yes"]));
        answers
    };
    let (over_http, on_database) = (done(&asking, "plan/1"), done(&place.workplace, "plan/2"));
    for (one, other) in over_http.iter().zip(&on_database) {
        let without_subject = |value: &Value| {
            let mut value = value.clone();
            if value.get("subject").is_some() {
                value["subject"] = Value::Null;
            }
            value
        };
        assert_eq!(without_subject(one), without_subject(other));
    }
    // Who did it is in the audit trail: the key, or the person at the database.
    let (_, audit) = served.opened_audit();
    let operators: Vec<&str> =
        audit["data"].as_array().unwrap().iter().filter_map(|row| row["operator"].as_str()).collect();
    assert!(operators.iter().any(|name| name.contains("first")), "{operators:?}");
    assert!(operators.contains(&"tester@cli"), "{operators:?}");
}

fn what_cannot_be_done_ends_with_the_same_code_in_both_modes(place: &Place) {
    let served = place.serve(&["--no-dispatch"]);
    let key = served.first_key();
    let asking = asking(&served, &key);
    let endpoint = id(&asking.json(["endpoints", "add", "https://hooks.example.com/a"]));
    let delivery = id(&asking.json(["send", "a.b"])["deliveries"][0]);
    let [no_endpoint, no_event] = ["ep", "evt"].map(|prefix| format!("{prefix}_{UNKNOWN}"));
    let [no_delivery, no_key] = ["dlv", "key"].map(|prefix| format!("{prefix}_{UNKNOWN}"));
    for (code, error, command) in [
        (3, "delivery_not_found", &["deliveries", "show", &no_delivery][..]),
        (3, "delivery_not_found", &["deliveries", "retry", &no_delivery]),
        (3, "delivery_not_found", &["deliveries", "cancel", &no_delivery, "--reason", "x"]),
        (3, "delivery_not_found", &["dead", "retry", &no_delivery]),
        (3, "delivery_not_found", &["why", &no_delivery]),
        (3, "event_not_found", &["events", "show", &no_event]),
        (3, "endpoint_not_found", &["endpoints", "show", &no_endpoint]),
        (3, "endpoint_not_found", &["endpoints", "update", &no_endpoint, "--timeout", "1s"]),
        (3, "endpoint_not_found", &["endpoints", "pause", &no_endpoint]),
        (3, "endpoint_not_found", &["endpoints", "test", &no_endpoint]),
        (3, "endpoint_not_found", &["endpoints", "remove", &no_endpoint, "--yes"]),
        (3, "key_not_found", &["keys", "revoke", &no_key]),
        (3, "subject_not_found", &["once", "show", "nobody/knows"]),
        (4, "delivery_already_due", &["deliveries", "retry", &delivery]),
        (4, "delivery_not_dead", &["dead", "retry", &delivery]),
        (4, "destination_scheme", &["endpoints", "add", "ftp://hooks.example.com/"]),
        (4, "event_type_pattern_invalid", &["endpoints", "add", "https://a.example/", "--event-types", "a b"]),
        (4, "rate_limit_invalid", &["endpoints", "update", &endpoint, "--rate-limit", "often"]),
        (4, "secret_invalid", &["endpoints", "rotate-secret", &endpoint, "--secret", "short"]),
        (4, "event_type_invalid", &["send", "no spaces please"]),
        (4, "payload_not_json", &["send", "a.b", "--data", "{"]),
        (4, "signing_secret_missing", &["send", "a.b", "--to", "https://hooks.example.com/"]),
        (4, "subject_invalid", &["send", "a.b", "--once", " "]),
        (4, "name_invalid", &["keys", "create", "--name", "", "--scope", "read"]),
    ] {
        for workplace in [&asking, &place.workplace] {
            let done = workplace.run(command.iter().copied()).fails(code, error);
            assert!(done.stdout.is_empty() && !done.stderr.contains(&key), "{command:?}: {done:?}");
        }
    }
    served.stop();
}

fn dead_letters_are_retried_in_bulk_in_both_modes(place: &Place) {
    let served = place.serve(&["--max-attempts", "1", "--retry-schedule", "1h"]);
    let asking = asking(&served, &served.first_key());
    // A port that nobody listens on.
    let endpoint = id(&asking.json(["endpoints", "add", "http://127.0.0.1:1/", "--event-types", "a.*"]));
    for number in 0..7 {
        asking.run(["send", if number < 3 { "a.few" } else { "a.many" }]).succeeds();
    }
    asking.until(["dead", "list"], "all are dead", |dead| dead["data"].as_array().unwrap().len() == 7);
    // What is retried must stay retried while it is looked at.
    asking.run(["endpoints", "pause", &endpoint]).succeeds();
    for (workplace, event_type, count) in [(&asking, "a.few", 3), (&place.workplace, "a.many", 4)] {
        let bulk = ["deliveries", "retry", "--status", "dead", "--since", "1h", "--event-type", event_type];
        let would = workplace.json(bulk.into_iter().chain(["--dry-run"]));
        assert_eq!(would, serde_json::json!({ "matched": count, "retried": 0, "dry_run": true }));
        let text = workplace.run(bulk.into_iter().chain(["--dry-run"])).succeeds();
        assert_eq!(
            (text.stdout, text.stderr.as_str()),
            (format!("{count} would be retried\n"), ""),
            "no bar into a pipe"
        );
        let done = workplace.json(bulk);
        assert_eq!(done, serde_json::json!({ "matched": count, "retried": count, "dry_run": false }));
        let again = workplace.run(["dead", "retry", "--all", "--event-type", event_type]).succeeds();
        assert_eq!(again.stdout, "0 of 0 are due now\n");
    }
    assert_eq!(asking.json(["dead", "list"])["data"], Value::Array(Vec::new()));
    served.stop();
}

fn events_are_sent_with_every_option_in_both_modes(place: &Place) {
    let served = place.serve(&["--no-dispatch"]);
    let asking = asking(&served, &served.first_key());
    for (workplace, name) in [(&asking, "http"), (&place.workplace, "database")] {
        let wanted =
            id(&workplace.json(["endpoints", "add", "https://hooks.example.com/", "--event-types", "only.this"]));
        // Odd on purpose: the very bytes are kept, but for the line break at the end of the file.
        let body = "{\"z\":1,  \"a\":1.10, \"z\":\"\\u00e9\"}";
        let file = format!("@{}", workplace.write("body.json", &format!("{body}\n")).display());
        let key = format!("key-{name}");
        let arguments = [
            "send",
            "a.b",
            "--data",
            &file,
            "--endpoint",
            &wanted,
            "--idempotency-key",
            &key,
            "--metadata",
            "team=billing",
            "--metadata",
            "plan=7",
            "--deliver-at",
            "2100-01-01",
            "--topic",
            "invoices",
        ];
        let sent = workplace.json(arguments);
        assert_eq!(sent["deliveries"].as_array().unwrap().len(), 1, "whatever types it wants: {sent:#}");
        assert_eq!((&sent["duplicate"], sent.get("claimed")), (&false.into(), None));
        assert_eq!(workplace.json(arguments)["duplicate"], true);
        let event = workplace.json(["events", "show", &id(&sent)]);
        assert_eq!(event["metadata"], serde_json::json!({ "team": "billing", "plan": "7" }));
        assert_eq!(event["topic"], "invoices");
        assert_eq!(workplace.run(["events", "show", &id(&sent), "--payload"]).succeeds().stdout, body);
        let delivery = workplace.json(["deliveries", "show", &id(&sent["deliveries"][0])]);
        assert_eq!(delivery["next_attempt_at"], "2100-01-01T00:00:00Z");

        let subject = format!("plan/{name}");
        let once = |generation: &str| {
            workplace.json(["send", "plan.due", "--once", &subject, "--once-generation", generation])
        };
        let first = workplace.json(["send", "plan.due", "--once", &subject]);
        assert_eq!(first["claimed"], true);
        let second = once("1");
        assert_eq!((&second["claimed"], &second["id"]), (&false.into(), &first["id"]));
        workplace.run(["once", "reset", &subject]).succeeds();
        assert_eq!(once("1")["id"], Value::Null, "that generation is over, and nobody has claimed this one");
        assert_eq!(once("2")["claimed"], true);
        assert_eq!(workplace.json(["once", "show", &subject])["winner"]["event_type"], "plan.due");
    }
    served.stop();
}

fn one_tenant_never_sees_another_s_things(place: &Place) {
    let served = place.serve(&["--no-dispatch"]);
    let admin = served.first_key();
    let all = asking(&served, &admin);
    let key = |tenant: &str, scope: &str| {
        let made = all.json(["keys", "create", "--name", "test", "--tenant", tenant, "--scope", scope]);
        assert_eq!((&made["tenant"], &made["scope"]), (&tenant.into(), &scope.into()));
        made["key"].as_str().unwrap().to_owned()
    };
    let (acme, other) = (asking(&served, &key("acme", "admin")), asking(&served, &key("other", "admin")));
    let endpoint = id(&acme.json(["endpoints", "add", "https://hooks.example.com/acme"]));
    let sent = acme.json(["send", "a.b", "--once", "plan/1"]);
    let (event, delivery) = (id(&sent), id(&sent["deliveries"][0]));
    for (error, command) in [
        ("endpoint_not_found", &["endpoints", "show", &endpoint][..]),
        ("endpoint_not_found", &["endpoints", "rotate-secret", &endpoint]),
        ("endpoint_not_found", &["endpoints", "remove", &endpoint, "--yes"]),
        ("event_not_found", &["events", "show", &event]),
        ("delivery_not_found", &["deliveries", "show", &delivery]),
        ("delivery_not_found", &["deliveries", "cancel", &delivery, "--reason", "x"]),
        ("delivery_not_found", &["why", &delivery]),
        ("subject_not_found", &["once", "show", "plan/1"]),
    ] {
        other.run(command.iter().copied()).fails(3, error);
        acme.run(["endpoints", "show", &endpoint]).succeeds();
    }
    for list in [["endpoints", "list"], ["events", "list"], ["deliveries", "list"]] {
        assert_eq!(other.json(list)["data"], Value::Array(Vec::new()), "{list:?}");
        assert_eq!(acme.json(list)["data"].as_array().unwrap().len(), 1, "{list:?}");
        assert_eq!(all.json(list.into_iter().chain(["--tenant", "acme"])), acme.json(list), "{list:?}");
        assert_eq!(all.json(list.into_iter().chain(["--tenant", "*"])), acme.json(list), "{list:?}");
        assert_eq!(place.workplace.json(list), acme.json(list), "a database has everything: {list:?}");
    }
    other.run(["events", "list", "--tenant", "acme"]).fails(6, "tenant_forbidden");
    other.run(["keys", "create", "--name", "x", "--all-tenants", "--scope", "read"]).fails(6, "tenant_forbidden");
    assert_eq!(acme.json(["keys", "list"])["data"].as_array().unwrap().len(), 1, "its own");

    let reading = asking(&served, &key("acme", "read"));
    reading.run(["endpoints", "list"]).succeeds();
    for command in
        [&["send", "a.b"][..], &["endpoints", "pause", &endpoint], &["keys", "list"], &["once", "reset", "plan/1"]]
    {
        reading.run(command.iter().copied()).fails(6, "scope_insufficient");
    }
    // On the database, what is named is acted on whosever it is, and what is made is the default tenant's.
    place.workplace.run(["endpoints", "pause", &endpoint]).succeeds();
    assert_eq!(acme.json(["endpoints", "show", &endpoint])["status"], "paused");
    place.workplace.run(["endpoints", "resume", &endpoint, "--tenant", "other"]).fails(3, "endpoint_not_found");
    place.workplace.run(["send", "a.c"]).succeeds();
    assert_eq!(all.json(["events", "list"])["data"][0]["type"], "a.c");
    served.stop();
}

impl Served {
    /// What was done, as the first key sees it.
    fn opened_audit(self) -> (u16, Value) {
        let served = self.opened();
        served.api.get("/v1/audit?limit=250")
    }
}
