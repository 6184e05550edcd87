//! listen, send and dispatch together, on both databases.

use serde_json::Value;

use crate::support::{Workplace, listen};

/// Stamps every flow out for SQLite in the working folder and for a Postgres database of its own.
macro_rules! on_both_databases {
    ($($(#[$doc:meta])* $flow:ident)*) => {
        mod sqlite {
            use crate::support::Workplace;

            $($(#[$doc])* #[test]
            fn $flow() {
                super::$flow(&Workplace::ready_to_send());
            })*
        }

        mod postgres {
            use crate::support::Workplace;
            use postrider_postgres::testing::TestDatabase;

            $($(#[$doc])* #[test]
            fn $flow() {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let database = runtime.block_on(TestDatabase::create_empty());
                let workplace = Workplace::ready_to_send().with("POSTRIDER_DATABASE", database.url());
                workplace.run(["migrate"]).succeeds();
                super::$flow(&workplace);
            })*
        }
    };
}

on_both_databases! {
    what_is_sent_is_delivered_verified_and_recorded
    a_running_dispatcher_takes_what_is_sent_later
    a_failing_receiver_is_tried_again_until_the_delivery_is_dead
    dead_letters_are_listed_and_retried_one_by_one_and_in_bulk
    a_delivery_is_cancelled_with_a_reason
    an_event_for_later_waits
    a_repeated_idempotency_key_finds_the_first_event
    what_cannot_be_done_says_so
    lists_have_filters_and_pages
    a_dispatcher_drains_on_sigterm
    migrations_are_applied_once
    dispatch_can_be_disabled
}

const FAST: [&str; 4] = ["--retry-schedule", "100ms", "--max-attempts", "3"];

fn send(workplace: &Workplace, arguments: &[&str]) -> String {
    let sent = workplace.json(["send"].into_iter().chain(arguments.iter().copied()));
    assert_eq!(sent["duplicate"], false);
    sent["deliveries"][0]["id"].as_str().unwrap().to_owned()
}

fn dispatch_until_idle(workplace: &Workplace, options: &[&str]) -> Value {
    workplace.json(["dispatch", "--until-idle"].into_iter().chain(options.iter().copied()))
}

fn status(workplace: &Workplace, id: &str) -> String {
    workplace.json(["deliveries", "show", id])["status"].as_str().unwrap().to_owned()
}

fn what_is_sent_is_delivered_verified_and_recorded(workplace: &Workplace) {
    let (listening, url) = listen(workplace, []);
    // Odd on purpose: receivers get the very bytes.
    let body = r#"{"z":1, "a":1e400, "z":"\u00e9"}"#;
    let sent = workplace.json(["send", "invoice.paid", "--data", body, "--to", &url]);
    let (event, delivery) = (sent["id"].as_str().unwrap(), sent["deliveries"][0]["id"].as_str().unwrap());
    assert!(event.starts_with("evt_") && delivery.starts_with("dlv_"), "{sent}");
    assert_eq!((&sent["type"], &sent["deliveries"][0]["status"]), (&"invoice.paid".into(), &"pending".into()));

    let report = dispatch_until_idle(workplace, &[]);
    assert_eq!((&report["claimed"], &report["delivered"]), (&1.into(), &1.into()), "{report}");
    let arrival = listening.json_line("the arrival", |line| line["event_id"] == event);
    assert_eq!(arrival["body"], body);
    assert_eq!(arrival["verification"], "verified");
    assert_eq!((&arrival["delivery_id"], &arrival["attempt"]), (&delivery.into(), &1.into()));
    assert_eq!((&arrival["event_type"], &arrival["status"]), (&"invoice.paid".into(), &200.into()));

    let shown = workplace.json(["deliveries", "show", delivery]);
    assert_eq!((&shown["status"], &shown["attempt_count"]), (&"delivered".into(), &1.into()));
    assert_eq!(shown["event_id"], event);
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1);
    assert_eq!((&shown["attempts"][0]["number"], &shown["attempts"][0]["status_code"]), (&1.into(), &200.into()));
    let text = workplace.run(["deliveries", "show", delivery]).succeeds().stdout;
    assert!(text.contains(delivery) && text.contains("delivered") && text.contains("test-host-"), "{text}");
}

fn a_running_dispatcher_takes_what_is_sent_later(workplace: &Workplace) {
    let dispatching = workplace.start(["dispatch", "--poll-interval", "50ms"]);
    let line = dispatching
        .json_line("the start", |line| line["message"].as_str().is_some_and(|text| text.contains("dispatching from")));
    let message = line["message"].as_str().unwrap();
    assert!(message.contains("lease 30s") && message.contains("512 in flight"), "{message}");
    assert!(line["worker_id"].as_str().unwrap().starts_with("test-host-"), "{line}");
    let (listening, url) = listen(workplace, []);
    let id = send(workplace, &["a.b", "--to", &url]);
    listening.json_line("the arrival", |line| line["delivery_id"] == id.as_str());
    workplace.until(["deliveries", "show", &id], "it is delivered", |shown| shown["status"] == "delivered");
    dispatching.signal("INT");
    let (code, text) = dispatching.ended();
    assert_eq!(code, Some(0), "{text}");
}

fn a_failing_receiver_is_tried_again_until_the_delivery_is_dead(workplace: &Workplace) {
    let (listening, url) = listen(workplace, ["--status", "503"]);
    let id = send(workplace, &["a.b", "--to", &url]);
    let dispatching = workplace.start(["dispatch", "--poll-interval", "20ms"].into_iter().chain(FAST));
    let shown = workplace.until(["deliveries", "show", &id], "it is dead", |shown| shown["status"] == "dead");
    assert_eq!(shown["attempt_count"], 3, "{shown:#}");
    assert_eq!(shown["next_attempt_at"], Value::Null);
    assert!(shown["error_detail"].as_str().unwrap().contains("HTTP 503"), "{shown:#}");
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!(attempts.iter().map(|attempt| &attempt["number"]).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(attempts.iter().all(|attempt| attempt["status_code"] == 503), "{shown:#}");
    for attempt in 1..=3 {
        listening.json_line("each attempt", |line| line["attempt"] == attempt);
    }
    assert_eq!(listening.count(|line| line.contains("attempt\":")), 3, "{}", listening.text());
    dispatching.signal("TERM");
    assert_eq!(dispatching.ended().0, Some(0));
}

/// Makes dead letters, and gives their ids.
fn dead_letters(workplace: &Workplace, types: &[&str]) -> Vec<String> {
    let (_listening, url) = listen(workplace, ["--status", "500"]);
    let ids = types.iter().map(|event_type| send(workplace, &[event_type, "--to", &url])).collect();
    let report = dispatch_until_idle(workplace, &["--max-attempts", "1"]);
    assert_eq!(report["dead"], types.len(), "{report}");
    ids
}

fn dead_letters_are_listed_and_retried_one_by_one_and_in_bulk(workplace: &Workplace) {
    assert_eq!(workplace.run(["migrate"]).succeeds().code, Some(0));
    assert_eq!(workplace.run(["dead", "list"]).succeeds().stdout, "no dead letter\n");
    let ids = dead_letters(workplace, &["a.one", "a.two", "b.one", "b.two"]);
    let dead = workplace.json(["dead", "list"]);
    let listed: Vec<&str> = dead["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(listed, ids.iter().rev().map(String::as_str).collect::<Vec<_>>(), "newest first");

    let retried = workplace.json(["dead", "retry", &ids[0]]);
    assert_eq!(retried["data"][0]["result"], "retried");
    let shown = workplace.json(["deliveries", "show", &ids[0]]);
    assert_eq!(
        (&shown["status"], &shown["attempt_count"], &shown["earlier_attempts"]),
        (&"pending".into(), &0.into(), &1.into())
    );
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1, "the history is kept");

    let would = workplace.json(["dead", "retry", "--all", "--event-type", "b.one", "--dry-run"]);
    assert_eq!((&would["matched"], &would["retried"]), (&1.into(), &0.into()));
    let done = workplace.json(["dead", "retry", "--all", "--event-type", "b.one"]);
    assert_eq!((&done["matched"], &done["retried"]), (&1.into(), &1.into()));
    let since = ["deliveries", "retry", "--status", "dead", "--since", "1h"];
    assert_eq!(workplace.json(since.into_iter().chain(["--dry-run"]))["matched"], 2);
    assert_eq!(status(workplace, &ids[1]), "dead", "a dry run changes nothing");
    assert_eq!(workplace.json(since)["retried"], 2);
    assert_eq!(workplace.json(["dead", "list"])["data"], Value::Array(Vec::new()));

    // The receiver of that time is gone, so what is retried is now refused by the port.
    let report = dispatch_until_idle(workplace, &["--max-attempts", "1"]);
    assert_eq!((&report["dead"], &report["network_failures"]), (&4.into(), &4.into()), "{report}");
}

fn a_delivery_is_cancelled_with_a_reason(workplace: &Workplace) {
    let (listening, url) = listen(workplace, []);
    let id = send(workplace, &["a.b", "--to", &url]);
    workplace.run(["deliveries", "cancel", &id, "--reason", "  "]).fails(4, "reason_missing");
    let cancelled = workplace.json(["deliveries", "cancel", &id, "--reason", "sent by mistake"]);
    assert_eq!(cancelled["status"], "cancelled");
    assert!(cancelled["error_detail"].as_str().unwrap().contains("sent by mistake"), "{cancelled:#}");
    workplace.run(["deliveries", "cancel", &id, "--reason", "again"]).fails(4, "delivery_already_settled");
    workplace.run(["dead", "retry", &id]).fails(4, "delivery_not_dead");
    assert_eq!(status(workplace, &id), "cancelled", "only `deliveries retry` brings it back");
    assert_eq!(dispatch_until_idle(workplace, &[])["claimed"], 0);
    assert_eq!(listening.count(|line| line.contains(&id)), 0);

    workplace.run(["deliveries", "retry", &id]).succeeds();
    assert_eq!(dispatch_until_idle(workplace, &[])["delivered"], 1);
}

fn an_event_for_later_waits(workplace: &Workplace) {
    let (_listening, url) = listen(workplace, []);
    let id = send(workplace, &["a.b", "--to", &url, "--deliver-at", "1h"]);
    assert_eq!(dispatch_until_idle(workplace, &[])["claimed"], 0);
    let table = workplace.run(["deliveries", "list"]).succeeds().stdout;
    assert!(table.contains(&id) && table.contains("in 59m"), "{table}");
}

fn a_repeated_idempotency_key_finds_the_first_event(workplace: &Workplace) {
    let (_listening, url) = listen(workplace, []);
    let arguments = ["send", "a.b", "--data", "{}", "--to", &url, "--idempotency-key", "once"];
    let first = workplace.json(arguments);
    let second = workplace.json(arguments);
    assert_eq!((&first["duplicate"], &second["duplicate"]), (&false.into(), &true.into()));
    assert_eq!((&first["id"], &first["deliveries"]), (&second["id"], &second["deliveries"]));
    let text = workplace.run(arguments).succeeds().stdout;
    assert!(text.contains("sent before"), "{text}");
    let other = ["send", "a.b", "--data", "[]", "--to", &url, "--idempotency-key", "once"];
    let done = workplace.run(other).fails(4, "idempotency_conflict");
    assert!(done.stderr.contains(first["id"].as_str().unwrap()), "{done:?}");
}

fn what_cannot_be_done_says_so(workplace: &Workplace) {
    let (_listening, url) = listen(workplace, []);
    let id = send(workplace, &["a.b", "--to", &url]);
    let unknown = "dlv_01h455vb4pex5vsknk084sn02q";
    workplace.run(["deliveries", "show", unknown]).fails(3, "delivery_not_found");
    workplace.run(["deliveries", "retry", unknown]).fails(3, "delivery_not_found");
    workplace.run(["dead", "retry", unknown]).fails(3, "delivery_not_found");
    workplace.run(["deliveries", "cancel", unknown, "--reason", "x"]).fails(3, "delivery_not_found");
    workplace.run(["deliveries", "retry", &id]).fails(4, "delivery_already_due");
    let both = workplace.run(["deliveries", "retry", &id, unknown]);
    assert_eq!(both.code, Some(3));
    assert!(both.stderr.contains("delivery_already_due") && both.stderr.contains("delivery_not_found"), "{both:?}");
    dispatch_until_idle(workplace, &[]);
    workplace.run(["deliveries", "retry", &id]).fails(4, "delivery_already_delivered");
    workplace.run(["deliveries", "cancel", &id, "--reason", "x"]).fails(4, "delivery_already_settled");
    let none = workplace.json(["send", "nobody.cares"]);
    assert_eq!(none["deliveries"], Value::Array(Vec::new()));
}

fn lists_have_filters_and_pages(workplace: &Workplace) {
    let (_listening, url) = listen(workplace, []);
    let ids: Vec<String> = (0..5)
        .map(|number| {
            let event_type = if number % 2 == 0 { "even.one" } else { "odd.one" };
            send(workplace, &[event_type, "--to", &url, "--tenant", if number == 4 { "other" } else { "default" }])
        })
        .collect();
    let list = |options: &[&str]| -> Vec<String> {
        let answer = workplace.json(["deliveries", "list"].into_iter().chain(options.iter().copied()));
        answer["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
    assert_eq!(list(&[]), newest_first);
    assert_eq!(list(&["--event-type", "odd.one"]), [ids[3].clone(), ids[1].clone()]);
    assert_eq!(list(&["--tenant", "other"]), [ids[4].clone()]);
    assert_eq!(list(&["--status", "dead"]), [""; 0]);
    assert_eq!(list(&["--since", "1h"]).len(), 5);
    assert_eq!(list(&["--until", "1h"]), [""; 0]);
    let event = workplace.json(["deliveries", "show", &ids[2]])["event_id"].as_str().unwrap().to_owned();
    assert_eq!(list(&["--event", &event]), [ids[2].clone()]);

    let mut paged = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut arguments = vec!["deliveries", "list", "--limit", "2"];
        if let Some(cursor) = &cursor {
            arguments.extend(["--cursor", cursor]);
        }
        let page = workplace.json(arguments.iter().copied());
        paged.extend(page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(paged, newest_first);
    let text = workplace.run(["deliveries", "list", "--limit", "2"]).succeeds().stdout;
    assert!(text.lines().next().unwrap().starts_with("DELIVERY") && text.contains("more: --cursor"), "{text}");
}

fn a_dispatcher_drains_on_sigterm(workplace: &Workplace) {
    let (listening, url) = listen(workplace, ["--delay-ms", "1500"]);
    let id = send(workplace, &["a.b", "--to", &url]);
    let dispatching = workplace.start(["dispatch"]);
    listening.json_line("the arrival", |line| line["delivery_id"] == id.as_str());
    // The receiver has it and has not answered: this is in the middle of an attempt.
    dispatching.signal("TERM");
    let (code, text) = dispatching.ended();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 delivered"), "{text}");
    assert_eq!(status(workplace, &id), "delivered");
}

fn migrations_are_applied_once(workplace: &Workplace) {
    // Postgres was migrated before the flow began; an SQLite file is made here.
    workplace.run(["migrate"]).succeeds();
    assert_eq!(workplace.json(["migrate"])["applied"], Value::Array(Vec::new()));
    assert_eq!(workplace.json(["migrate", "--check"])["missing"], Value::Array(Vec::new()));
    let text = workplace.run(["migrate"]).succeeds().stdout;
    assert!(text.ends_with("is current\n"), "{text}");
}

fn dispatch_can_be_disabled(workplace: &Workplace) {
    let (_listening, url) = listen(workplace, []);
    let id = send(workplace, &["a.b", "--to", &url]);
    let dispatching = workplace.start(["dispatch", "--dispatch-enabled", "false"]);
    dispatching.line("the notice", |line| line.contains("disabled"));
    dispatching.signal("TERM");
    assert_eq!(dispatching.ended().0, Some(0));
    assert_eq!(status(workplace, &id), "pending");
}

#[test]
fn a_postgres_database_without_the_schema_says_what_to_run() {
    use postrider_postgres::testing::TestDatabase;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(TestDatabase::create_empty());
    let workplace = Workplace::ready_to_send().with("POSTRIDER_DATABASE", database.url());
    for command in [&["send", "a.b"][..], &["dispatch", "--until-idle"], &["deliveries", "list"]] {
        let done = workplace.run(command.iter().copied());
        assert_eq!(done.code, Some(1), "{done:?}");
        let error = done.stderr.lines().find(|line| line.starts_with("error[")).unwrap();
        assert!(error.starts_with("error[store_schema]"), "{done:?}");
        assert!(done.stderr.contains("hint: run `postrider migrate`"), "{done:?}");
    }
    workplace.run(["migrate", "--check"]).fails(1, "migrations_missing");
    workplace.run(["send", "a.b", "--migrate"]).succeeds();
    workplace.run(["migrate", "--check"]).succeeds();
}

#[test]
fn a_second_signal_ends_a_dispatcher_at_once() {
    let workplace = Workplace::ready_to_send();
    let (listening, url) = listen(&workplace, ["--delay-ms", "600000"]);
    let id = send(&workplace, &["a.b", "--to", &url]);
    let dispatching = workplace.start(["dispatch", "--timeout", "10m", "--drain-timeout", "10m"]);
    listening.json_line("the arrival", |line| line["delivery_id"] == id.as_str());
    dispatching.signal("TERM");
    dispatching.line("the stop", |line| line.contains("nothing new is claimed"));
    dispatching.signal("TERM");
    let (code, text) = dispatching.ended();
    assert_eq!(code, Some(1), "{text}");
}

#[test]
fn one_sqlite_file_has_one_dispatcher() {
    let workplace = Workplace::ready_to_send();
    let first = workplace.start(["dispatch"]);
    first.line("the start", |line| line.contains("dispatching from"));
    // It says so before it has the lock, so it is made to show that it works.
    let (listening, url) = listen(&workplace, []);
    let id = send(&workplace, &["a.b", "--to", &url]);
    listening.json_line("the arrival", |line| line["delivery_id"] == id.as_str());
    let done = workplace.run(["dispatch"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("error[store_locked]"), "{done:?}");
}

#[test]
fn a_receiver_tells_what_is_genuine_from_what_is_not() {
    let workplace = Workplace::ready_to_send();
    let (listening, url) = listen(&workplace, []);
    let other = Workplace::new()
        .with("POSTRIDER_ALLOWED_NETWORKS", "127.0.0.0/8")
        .with("POSTRIDER_SIGNING_SECRET", "another secret altogether");
    let id = send(&other, &["a.b", "--to", &url]);
    let report = dispatch_until_idle(&other, &["--max-attempts", "1"]);
    assert_eq!((&report["dead"], &report["responses_4xx"]), (&1.into(), &1.into()), "{report}");
    let arrival = listening.json_line("the arrival", |line| line["delivery_id"] == id.as_str());
    assert_eq!((&arrival["verification"], &arrival["status"]), (&"invalid".into(), &401.into()));
    assert_eq!(arrival["reason"], "signature_mismatch");

    let (unchecked, url) = listen(&Workplace::new(), []);
    send(&other, &["a.b", "--to", &url]);
    dispatch_until_idle(&other, &[]);
    unchecked.json_line("the arrival", |line| line["verification"] == "unchecked" && line["status"] == 200);
}

#[test]
fn every_signature_scheme_arrives_verified() {
    for scheme in [
        &["--signature", "hmac-sha256-hex", "--header-prefix", "X-Acme-"][..],
        &["--signature", "hmac-sha256-hex", "--signed", "body"],
    ] {
        let workplace = Workplace::ready_to_send();
        let (listening, url) = listen(&workplace, scheme.iter().copied());
        send(&workplace, &["a.b", "--to", &url]);
        assert_eq!(dispatch_until_idle(&workplace, scheme)["delivered"], 1);
        let arrival = listening.json_line("the arrival", |line| line["event_type"] == "a.b");
        assert_eq!(arrival["verification"], "verified", "{arrival}");
        assert!(arrival["event_id"].as_str().unwrap().starts_with("evt_"), "{arrival}");
    }
}

#[test]
fn listen_prints_one_line_per_arrival_for_people() {
    let workplace = Workplace::ready_to_send();
    let running = workplace.start(["listen", "--port", "0"]);
    let started = running.line("the start", |line| line.starts_with("listening on "));
    let url = started.split_whitespace().nth(2).unwrap();
    assert!(running.line("how to send", |line| line.contains("postrider send")).contains(url));
    let id = send(&workplace, &["a.b", "--to", url, "--data", "{\"word\":\"hello\"}"]);
    dispatch_until_idle(&workplace, &[]);
    let line = running.line("the arrival", |line| line.contains(&id));
    for word in ["a.b", "evt_", "attempt 1", "verified", "200", "hello"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    running.signal("INT");
    assert_eq!(running.ended().0, Some(0));
}

#[test]
fn a_busy_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let done = Workplace::new().run(["listen", "--port", &port]).fails(1, "port_unavailable");
    assert!(done.stderr.contains(&port) && done.stderr.contains("--port 0"), "{done:?}");
}

#[test]
fn until_idle_waits_for_what_is_in_flight() {
    let workplace = Workplace::ready_to_send();
    let (_listening, url) = listen(&workplace, ["--delay-ms", "600"]);
    send(&workplace, &["a.b", "--to", &url]);
    // Nothing would be waited for after the stop, so the attempt must have ended before it.
    let report = dispatch_until_idle(&workplace, &["--drain-timeout", "0s"]);
    assert_eq!((&report["delivered"], &report["released"]), (&1.into(), &0.into()), "{report}");
}

/// The README and the receiver itself tell newcomers what to type.
#[test]
fn what_the_receiver_says_to_type_works_as_it_stands() {
    let with_secret = Workplace::ready_to_send();
    let without = Workplace::new();
    for (workplace, verification) in [(&with_secret, "verified"), (&without, "unchecked")] {
        let listening = workplace.start(["listen", "--port", "0"]);
        listening.line("the last of what it says", |line| line.starts_with("  postrider dispatch"));
        let said = listening.text();
        let script: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        let script = format!("set -e\n{} --until-idle\n", script.join("\n"));
        let done = workplace.shell(&script);
        assert_eq!(done.code, Some(0), "{script}{done:?}");
        assert!(done.stdout.contains("1 delivered"), "{script}{done:?}");
        listening.line("the arrival", |line| line.contains("example.sent") && line.contains(verification));
    }
}
