//! No secret and no payload in anything that is printed, but where it was asked for.

use crate::gate::Gate;
use crate::served::{Place, on_both};
use crate::support::{LOOPBACK, Workplace, listen};

on_both! {
    no_secret_and_no_payload_in_the_log_of_a_server
}

/// Bytes that appear nowhere by chance.
const SECRET: &str = "CANARY-secret-0123456789abcdef";
const KEY: &str = "CANARYkeyCANARYkeyCANARYkeyCANARYkeyCANARYA=";
const PAYLOAD: &str = "CANARY-payload";

#[test]
fn no_secret_and_no_payload_in_any_output() {
    let workplace = Workplace::new()
        .with(LOOPBACK.0, LOOPBACK.1)
        .with("POSTRIDER_SIGNING_SECRET", SECRET)
        .with("POSTRIDER_SECRET_KEY", KEY)
        .with("POSTRIDER_LOG", "trace")
        .with("POSTRIDER_MAX_ATTEMPTS", "1");
    let (listening, url) = listen(&workplace, ["--status", "500"]);
    let data = format!("{{\"x\":\"{PAYLOAD}\"}}");
    let sent = workplace.json(["send", "a.b", "--data", &data, "--to", &url]);
    let id = sent["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let mut outputs = vec![("send", sent.to_string())];
    let mut keep = |name, done: crate::support::Done| outputs.push((name, format!("{}{}", done.stdout, done.stderr)));
    keep("dispatch", workplace.run(["dispatch", "--until-idle"]).succeeds());
    keep("config", workplace.run(["config"]).succeeds());
    keep("config --json", workplace.run(["config", "--json"]).succeeds());
    keep("list", workplace.run(["deliveries", "list"]).succeeds());
    keep("show", workplace.run(["deliveries", "show", &id]).succeeds());
    keep("show --json", workplace.run(["deliveries", "show", &id, "--json"]).succeeds());
    keep("dead retry", workplace.run(["dead", "retry", "--all"]).succeeds());
    keep(
        "conflict",
        workplace.run(["send", "a.b", "--data", &data, "--to", &url, "--idempotency-key", "k"]).succeeds(),
    );
    keep(
        "conflict",
        workplace
            .run(["send", "a.c", "--data", &data, "--to", &url, "--idempotency-key", "k"])
            .fails(4, "idempotency_conflict"),
    );
    keep("not JSON", workplace.run(["send", "a.b", "--data", PAYLOAD]).fails(4, "payload_not_json"));
    keep("bad secret", workplace.run(["sign", "--data", &data, "--secret", "CANARY"]).fails(4, "secret_invalid"));
    keep("bad key", workplace.run(["config", "--secret-key", "CANARY"]).fails(4, "config_value_invalid"));
    keep("sign", workplace.run(["sign", "--data", &data]).succeeds());
    for (name, text) in &outputs {
        assert!(!text.contains("CANARY"), "{name}: {text}");
    }
    // The receiver is the user's own, and shows what arrives; its secret it does not show.
    listening.line("the payload", |line| line.contains(PAYLOAD));
    assert!(!listening.text().contains("CANARY-secret"), "{}", listening.text());
}

/// A server that logs everything it can, while all kinds of secrets pass through it.
fn no_secret_and_no_payload_in_the_log_of_a_server(place: &Place) {
    let gate = Gate::answering(|earlier| if earlier == 0 { 500 } else { 200 });
    gate.open();
    let mut command = place.workplace.command();
    command.env("POSTRIDER_LOG", "trace").env("POSTRIDER_SIGNING_SECRET", SECRET);
    let served = place.serve_by(command, &["--secret-key", KEY, "--retry-schedule", "10ms"]).opened();
    let key = served.api.key.clone().unwrap();
    let endpoint = serde_json::json!({ "url": gate.url, "secret": SECRET, "headers": { "x-token": "CANARY-header" } });
    let endpoint = served.api.post("/v1/endpoints", &endpoint);
    let id = endpoint["id"].as_str().unwrap();
    let rotated = served.api.post(&format!("/v1/endpoints/{id}/rotate-secret"), &serde_json::json!({}));
    let rotated = rotated["secret"].as_str().unwrap().to_owned();
    let made = served.api.post("/v1/keys", &serde_json::json!({ "name": "another", "scope": "read" }));
    let event = serde_json::json!({ "type": "a.b", "payload": { "x": PAYLOAD } });
    let sent = served.api.post("/v1/events", &event);
    served.api.until(sent["deliveries"][0]["id"].as_str().unwrap(), "delivered");
    let wrong = served.api.clone().with_key("prk_CANARY").get("/v1/overview");
    assert_eq!(wrong.0, 401);
    let text = served.stop();
    assert!(text.contains("TRACE"), "it logs everything: {text}");
    assert!(!text.contains("CANARY"), "{text}");
    let other = made["key"].as_str().unwrap();
    for secret in [&rotated["whsec_".len()..], other] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(text.matches(&key).count(), 1, "it is printed once: {text}");
}
