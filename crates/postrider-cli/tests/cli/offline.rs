//! Commands that need no database: url check, sign, verify, schedule.

use crate::support::Workplace;

#[test]
fn url_check_accepts_with_the_canonical_form_and_refuses_with_the_rule() {
    let workplace = Workplace::new();
    let done = workplace.run(["url", "check", "HTTPS://Hooks.Example.COM:443/a"]).succeeds();
    assert_eq!(done.stdout, "https://hooks.example.com/a\n");
    for url in [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/",
        "http://user:pass@example.com/",
        "gopher://example.com/",
        "not a url",
    ] {
        let told = workplace.run(["url", "check", url]);
        assert_eq!(told.code, Some(4), "{url}: {told:?}");
        assert!(told.stderr.starts_with("error[destination_"), "{url}: {told:?}");
        let done = workplace.run(["url", "check", url, "--json"]);
        let answer: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!((done.code, &answer["accepted"]), (Some(4), &false.into()));
        assert!(told.stderr.contains(&format!("error[{}]", answer["code"].as_str().unwrap())), "{told:?} {done:?}");
    }
}

#[test]
fn url_check_follows_the_configuration() {
    let workplace = Workplace::new();
    workplace.run(["url", "check", "http://127.0.0.1:9400/", "--allowed-networks", "127.0.0.0/8"]).succeeds();
    let opened = Workplace::new().with("POSTRIDER_ALLOWED_NETWORKS", "10.0.0.0/8,127.0.0.0/8");
    opened.run(["url", "check", "http://127.0.0.1:9400/"]).succeeds();
    workplace
        .run(["url", "check", "http://hooks.example.com/", "--require-https"])
        .fails(4, "destination_https_required");
    workplace
        .run(["url", "check", "https://evilgood.com/", "--allowed-hosts", "good.com,*.good.com"])
        .fails(4, "destination_host_not_allowed");
}

#[test]
fn what_sign_signs_verify_verifies_in_every_scheme() {
    let workplace = Workplace::new();
    let secret = workplace.run(["sign", "--new-secret"]).succeeds().stdout.trim().to_owned();
    let other = workplace.json(["sign", "--new-secret"])["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_") && other.starts_with("whsec_") && secret != other, "{secret} {other}");
    assert!(secret.starts_with("whsec_"), "{secret}");
    let body = workplace.write("body.json", "{\"odd\":1e400,  \"order\":\"kept\"}\n");
    let data = format!("@{}", body.display());
    for scheme in [
        &["--signature", "standard"][..],
        &["--signature", "hmac-sha256-hex"],
        &["--signature", "hmac-sha256-hex", "--header-prefix", "X-Acme-", "--signed", "body"],
    ] {
        let sign = ["sign", "--data", &data, "--secret", &secret].into_iter().chain(scheme.iter().copied());
        let headers = workplace.run(sign).succeeds().stdout;
        let mut verify = vec!["verify", "--data", &data, "--secret", &secret];
        verify.extend(scheme);
        for line in headers.lines() {
            verify.extend(["--header", line]);
        }
        assert_eq!(workplace.run(verify.iter().copied()).succeeds().stdout, "verified\n", "{scheme:?}");
        verify[2] = "{}";
        workplace.run(verify.iter().copied()).fails(1, "signature_mismatch");
        verify[2] = &data;
        verify[4] = "another secret altogether";
        workplace.run(verify.iter().copied()).fails(1, "signature_mismatch");
    }
}

/// The vector that the Standard Webhooks specification's own libraries are tested with.
#[test]
fn a_known_signature_is_reproduced() {
    let done = Workplace::new()
        .run([
            "sign",
            "--secret",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "--id",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "--timestamp",
            "1614265330",
            "--data",
            r#"{"test": 2432232314}"#,
        ])
        .succeeds();
    assert_eq!(
        done.stdout,
        "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek\n\
         webhook-timestamp: 1614265330\n\
         webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\n"
    );
}

#[test]
fn an_old_signature_is_refused_unless_tolerated() {
    let workplace = Workplace::new().with("POSTRIDER_SIGNING_SECRET", "a secret of enough bytes");
    let signed = workplace.json(["sign", "--data", "{}", "--timestamp", "1700000000"]);
    let header = |name: &str| format!("{name}: {}", signed["headers"][name].as_str().unwrap());
    let headers = [header("webhook-id"), header("webhook-timestamp"), header("webhook-signature")];
    let mut verify = vec!["verify", "--data", "{}"];
    for header in &headers {
        verify.extend(["-H", header]);
    }
    workplace.run(verify.iter().copied()).fails(1, "signature_timestamp_too_old");
    workplace.run(verify.iter().copied().chain(["--now", "1700000100"])).succeeds();
    workplace.run(verify.iter().copied().chain(["--tolerance", "36500d"])).succeeds();
}

#[test]
fn standard_input_is_data_too() {
    let workplace = Workplace::new().with("POSTRIDER_SIGNING_SECRET", "a secret of enough bytes");
    let fixed = ["sign", "--id", "evt_1", "--timestamp", "1700000000", "--data"];
    let piped = workplace.run_with_input(fixed.into_iter().chain(["-"]), "{\"a\":1}").succeeds();
    let given = workplace.run(fixed.into_iter().chain(["{\"a\":1}"])).succeeds();
    assert_eq!(piped.stdout, given.stdout);
}

#[test]
fn the_schedule_has_the_attempts_with_their_offsets() {
    let workplace = Workplace::new();
    let offsets = |answer: &serde_json::Value| -> Vec<u64> {
        answer["attempts"].as_array().unwrap().iter().map(|step| step["offset_ms"].as_u64().unwrap()).collect()
    };
    let default = workplace.json(["schedule"]);
    assert_eq!(offsets(&default), [0, 30_000, 150_000, 750_000, 4_350_000]);
    let longer = workplace.json(["schedule", "--schedule", "1s,2s", "--max-attempts", "4"]);
    assert_eq!(offsets(&longer), [0, 1_000, 3_000, 5_000], "the last delay repeats");
    let exponential = workplace.json(["schedule", "--exponential", "1s,2,3s", "--max-attempts", "4"]);
    assert_eq!(offsets(&exponential), [0, 1_000, 3_000, 6_000]);
    let jittered = workplace.json(["schedule", "--schedule", "10s", "--max-attempts", "2", "--jitter", "0.5"]);
    assert_eq!(jittered["attempts"][1]["offset_ms"], 10_000);
    assert_eq!(jittered["attempts"][1]["latest_offset_ms"], 15_000);
    let table = workplace.run(["schedule"]).succeeds().stdout;
    assert!(table.contains("+30s") && table.contains("1h12m30s") && table.contains("dead letter"), "{table}");
    assert!(!table.contains('\u{1b}'), "no colours into a pipe");
}

#[test]
fn the_schedule_is_the_configured_one() {
    let workplace = Workplace::new();
    workplace.write("postrider.toml", "retry_schedule = [\"7s\"]\nmax_attempts = 2\n");
    let answer = workplace.json(["schedule"]);
    assert_eq!(answer["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(answer["attempts"][1]["delay"], "7s");
}
