//! Which server is asked, with which key, and what of it is told.

use serde_json::Value;

use crate::client::{asking, id};
use crate::served::Place;
use crate::support::{Workplace, listen};

#[test]
fn bad_keys_are_not_let_in() {
    let place = Place::sqlite();
    let served = place.serve(&["--no-dispatch"]);
    let admin = served.first_key();
    let all = asking(&served, &admin);
    let made = all.json(["keys", "create", "--name", "soon gone", "--all-tenants", "--scope", "read"]);
    let gone = asking(&served, made["key"].as_str().unwrap());
    gone.run(["events", "list"]).succeeds();
    all.run(["keys", "revoke", &id(&made)]).succeeds();
    gone.run(["events", "list"]).fails(6, "key_invalid");
    let without = Workplace::new().with("POSTRIDER_SERVER", &served.api.url);
    let done = without.run(["events", "list"]).fails(6, "key_missing");
    assert!(done.stderr.contains("hint: export POSTRIDER_API_KEY="), "{done:?}");
    // A key that cannot be one is not sent anywhere, and not printed either.
    let done = asking(&served, "prk_hush").run(["events", "list"]);
    assert_eq!(done.code, Some(4), "{done:?}");
    assert!(!done.stderr.contains("hush"), "{done:?}");
    let text = all.run(["keys", "list"]).succeeds().stdout;
    assert!(text.contains("revoked") && text.contains("first") && !text.contains("prk_"), "{text}");
    served.stop();
}

#[test]
fn a_server_that_is_not_there_is_exit_code_5() {
    let workplace = Workplace::new().with("POSTRIDER_SERVER", "http://127.0.0.1:1");
    for command in [&["events", "list"][..], &["send", "a.b"], &["endpoints", "add", "https://a.example/"]] {
        let done = workplace.run(command.iter().copied()).fails(5, "server_unreachable");
        assert!(done.stderr.contains("http://127.0.0.1:1") && done.stderr.contains("hint: check --server"), "{done:?}");
    }
}

#[test]
fn what_is_no_server_of_ours_is_told_apart_and_gets_no_second_request() {
    let key = "prk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let redirecting = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/v1/events\r\ncontent-length: 0\r\n\r\n";
    let web_page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>";
    let forbidding = "HTTP/1.1 403 Forbidden\r\ncontent-length: 6\r\n\r\n<html>";
    let cut_off = "HTTP/1.1 200 OK\r\ncontent-length: 600\r\n\r\n{\"data\":";
    for (answer, code, error) in [
        (redirecting, 1, "server_redirects"),
        (web_page, 1, "answer_unexpected"),
        (forbidding, 6, "answer_unexpected"),
        (cut_off, 5, "server_unreachable"),
    ] {
        let (url, heard) = answering(answer);
        let workplace = Workplace::new().with("POSTRIDER_SERVER", &url).with("POSTRIDER_API_KEY", key);
        let done = workplace.run(["events", "list", "--type", "a/b c"]).fails(code, error);
        assert!(!done.stderr.contains(key), "{done:?}");
        let heard = heard.join().unwrap();
        assert!(heard.starts_with("GET /v1/events?") && heard.contains("type=a%2Fb+c"), "{heard}");
        assert!(heard.contains(&format!("authorization: Bearer {key}")), "{heard}");
    }
}

/// A server that answers one request with this text, and tells what it heard.
fn answering(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            heard.extend(byte);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(heard).unwrap()
    });
    (url, heard)
}

#[test]
fn whom_to_ask_is_said_once() {
    let workplace = Workplace::new().with("POSTRIDER_SERVER", "http://127.0.0.1:1");
    workplace.run(["migrate", "--database", "sqlite://here.db"]).succeeds();
    let listed = workplace.json(["events", "list", "--database", "sqlite://here.db"]);
    assert_eq!(listed["data"], Value::Array(Vec::new()), "a database that is named beats a server that is known");
    for (error, command) in [
        ("usage", &["events", "list", "--server", "http://127.0.0.1:1", "--database", "sqlite://here.db"][..]),
        ("usage", &["endpoints", "pause", "ep_01h455vb4pex5vsknk084sn02q", "--operator", "me"]),
        ("usage", &["send", "a.b", "--allowed-networks", "127.0.0.0/8"]),
        ("usage", &["send", "a.b", "--migrate", "--server", "http://127.0.0.1:1"]),
        ("usage", &["endpoints", "add", "https://a.example/", "--require-https"]),
    ] {
        let done = workplace.run(command.iter().copied()).fails(2, error);
        assert!(done.stderr.contains("hint: "), "{done:?}");
    }
    for url in
        ["127.0.0.1:8400", "localhost:8400", "ftp://a.example/", "http://user:hush@a.example/", "http://a.example/?x=1"]
    {
        let done = workplace.run(["events", "list", "--server", url]).fails(4, "config_value_invalid");
        assert!(done.stderr.contains("server") && done.stderr.contains("http://127.0.0.1:8400"), "{done:?}");
    }
}

#[test]
fn no_secret_in_any_log_or_error() {
    const SECRET: &str = "CANARY-secret-0123456789abcdef";
    // The same secret, as it is shown.
    const SHOWN: &str = "Q0FOQVJZLXNlY3JldC0wMTIzNDU2Nzg5YWJjZGVm";
    const HEADER: &str = "CANARY-header";
    let mut place = Place::sqlite();
    place.workplace = place.workplace.with("POSTRIDER_LOG", "trace");
    let served = place.serve(&["--retry-schedule", "1h"]);
    let key = served.first_key();
    let asking = asking(&served, &key);
    let (_listening, url) = listen(&Workplace::new(), ["--secret", "another secret altogether"]);
    let secret = format!("@{}", asking.write("secret", &format!("{SECRET}\n")).display());
    let header = format!("Authorization: Bearer {HEADER}");
    let made = asking.run(["endpoints", "add", &url, "--secret", &secret, "--header", &header]).succeeds();
    assert!(made.stdout.contains(SHOWN) && !made.stdout.contains(HEADER), "shown this once: {made:?}");
    let endpoint = id(&asking.json(["endpoints", "list"])["data"][0]);
    let mut outputs = Vec::new();
    let mut keep = |done: crate::support::Done| outputs.push(format!("{}{}", done.stdout, done.stderr));
    keep(asking.run(["endpoints", "show", &endpoint]));
    keep(asking.run(["endpoints", "show", &endpoint, "--json"]));
    keep(place.workplace.run(["endpoints", "show", &endpoint, "--json"]));
    keep(asking.run(["endpoints", "test", &endpoint]).fails(1, "test_failed"));
    keep(asking.run(["endpoints", "list"]));
    keep(asking.run(["endpoints", "add", &url, "--secret", "CANARY"]).fails(4, "secret_invalid"));
    keep(asking.run(["endpoints", "add", &url, "--header", "CANARY"]).fails(4, "header_invalid"));
    keep(asking.run(["endpoints", "add", &url, "--header", "a b: CANARY"]));
    let made = asking.json(["keys", "create", "--name", "test", "--all-tenants", "--scope", "read"]);
    let other = made["key"].as_str().unwrap().to_owned();
    keep(asking.run(["keys", "list", "--json"]));
    keep(place.workplace.run(["keys", "list"]));
    outputs.push(served.stop().lines().filter(|line| !line.contains("first_key")).collect::<Vec<_>>().join("\n"));
    for text in &outputs {
        for secret in ["CANARY", SHOWN, &key, &other] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}
