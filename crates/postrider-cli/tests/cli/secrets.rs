//! No secret and no payload in anything that is printed, but where it was asked for.

use crate::support::{LOOPBACK, Workplace, listen};

/// Bytes that appear nowhere by chance.
const SECRET: &str = "CANARY-secret-0123456789abcdef";
const KEY: &str = "CANARY-key-0123456789abcdef";
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
