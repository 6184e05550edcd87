//! Every page: that it is there, keeps to itself, and shows what others wrote as text.

use postrider::Scope;
use postrider_conformance::receiver::{Answer, Receiver};
use serde_json::json;

use crate::browser::{Browser, Page};
use crate::stage::{Ask, Stage, text};

const SCRIPT: &str = "<script>alert('canary')</script><img src=x onerror=alert(1)>\"'`";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

fn keeps_to_itself(path: &str, page: &Page) {
    assert_eq!(page.headers["content-security-policy"], POLICY, "{path}");
    for (name, value) in [
        ("referrer-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(page.headers[name], value, "{path}");
    }
    // Whatever the policy would not allow is not there.
    assert!(!page.text.contains(" style=\"") && !page.text.contains("<style"), "{path}");
    for script in page.text.split("<script").skip(1) {
        assert!(script.starts_with(" src=\"/assets/script.js?v="), "{path}: {script:.80}");
    }
    for link in page.text.split(" src=\"").skip(1).chain(page.text.split(" action=\"").skip(1)) {
        assert!(link.starts_with('/') && !link.starts_with("//"), "{path}: {link:.40} is from elsewhere");
    }
    for id in page.text.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert_eq!(page.text.matches(&format!(" id=\"{id}\"")).count(), 1, "{path}: {id} is there twice");
    }
}

#[tokio::test]
async fn every_page_is_there_and_keeps_to_itself() {
    let stage = Stage::quiet().await;
    let mut browser = Browser::new(&stage);
    let door = browser.get("/sign-in").await;
    assert_eq!(door.status, 200);
    keeps_to_itself("/sign-in", &door);
    let mut browser = Browser::signed_in_with(&stage, &stage.admin).await;
    // First with nothing in it, then with something.
    for filled in [false, true] {
        let mut pages: Vec<String> = [
            "/",
            "/deliveries",
            "/dead",
            "/endpoints",
            "/endpoints/new",
            "/events",
            "/events/new",
            "/once",
            "/audit",
            "/keys",
        ]
        .map(str::to_owned)
        .into();
        if filled {
            let endpoint = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
            let endpoint = text(&endpoint["id"]);
            let event = json!({"type": "a.b", "payload": {"n": 1}, "once": {"subject": "plan/123"}});
            let event = stage.expect(202, "POST", "/v1/events", Some(event)).await;
            let delivery = text(&event["deliveries"][0]["id"]);
            pages.extend([
                format!("/endpoints/{endpoint}"),
                format!("/endpoints/{endpoint}/edit"),
                format!("/events/{}", text(&event["id"])),
                format!("/deliveries/{delivery}"),
                format!("/deliveries?status=pending&event_type=a.b&since=1h&endpoint_id={endpoint}"),
                "/deliveries?since=nonsense".to_owned(),
                "/once?subject=plan/123".to_owned(),
                "/once?subject=plan/124".to_owned(),
                "/once?prefix=plan/".to_owned(),
                "/once?prefix=zebra".to_owned(),
                "/dead?event_type=a.b".to_owned(),
                "/endpoints?status=active".to_owned(),
                "/events?type=a.b".to_owned(),
            ]);
        }
        for path in pages {
            let page = browser.get(&path).await;
            assert_eq!(page.status, 200, "{path}: {}", page.text);
            keeps_to_itself(&path, &page);
            assert!(page.text.contains("<h1"), "{path}");
        }
    }
    for (path, status) in [
        ("/deliveries/dlv_01jd8x4k2hf4xr5zt3yq7m9nbw", 404),
        ("/deliveries/nonsense", 400),
        ("/endpoints?status=nonsense", 422),
        ("/audit?cursor=nonsense", 422),
        ("/find?id=nonsense", 404),
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, status, "{path}: {}", page.text);
        keeps_to_itself(path, &page);
        assert!(page.text.contains("Code <code>"), "{path}");
    }
}

#[tokio::test]
async fn lists_go_on_where_they_ended_and_anything_is_found_by_its_id() {
    let stage = Stage::quiet().await;
    let endpoint = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let events: Vec<_> = (0..120).map(|n| json!({"type": "a.b", "payload": {"n": n}})).collect();
    let sent = stage.expect(202, "POST", "/v1/events/batch", Some(json!(events))).await;
    let claims: Vec<_> =
        (0..120).map(|n| json!({"type": "x", "payload": {}, "once": {"subject": format!("plan/{n}")}})).collect();
    stage.expect(202, "POST", "/v1/events/batch", Some(json!(claims))).await;
    let mut browser = Browser::signed_in(&stage, Some("default"), Scope::Read).await;
    for (list, row, count) in [
        ("/deliveries?event_type=a.b", "<tr id=\"dlv_", 120),
        ("/events?type=a.b", "<tr id=\"evt_", 120),
        ("/once", "href=\"/once?subject=", 120),
        ("/once?prefix=plan/1", "href=\"/once?subject=", 31),
    ] {
        let mut seen = std::collections::BTreeSet::new();
        let mut next = Some(list.to_owned());
        for _ in 0..10 {
            let Some(path) = next else { break };
            let page = browser.get(&path).await;
            let rows = page.text.split(row).skip(1);
            seen.extend(rows.map(|row| row.split('"').next().unwrap().to_owned()));
            let older = page.text.split("\" rel=\"next\"").next().filter(|before| before.len() < page.text.len());
            next = older.map(|before| before.rsplit("href=\"").next().unwrap().replace("&amp;", "&"));
        }
        assert_eq!(seen.len(), count, "{list}");
    }
    let delivery = text(&sent["data"][7]["deliveries"][0]["id"]);
    for (id, path) in
        [(delivery, "/deliveries"), (text(&sent["data"][7]["id"]), "/events"), (text(&endpoint["id"]), "/endpoints")]
    {
        assert_eq!(browser.get(&format!("/find?id=+{id}+")).await.location(), format!("{path}/{id}"));
    }
}

/// More than are looked at for one page, none of them like what is asked for.
#[tokio::test]
async fn a_list_that_finds_nothing_among_many_says_so_and_goes_on() {
    let stage = Stage::quiet().await;
    stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let events: Vec<_> = (0..1_000).map(|_| json!({"type": "a.b", "payload": {}})).collect();
    for _ in 0..21 {
        stage.expect(202, "POST", "/v1/events/batch", Some(json!(events))).await;
    }
    let mut browser = Browser::signed_in(&stage, Some("default"), Scope::Read).await;
    for (list, what) in [("/deliveries?status=delivered", "deliveries"), ("/events?type=no.such", "events")] {
        let page = browser.get(list).await.text;
        let says = format!("None of the 20,000 {what} that were looked at is like that.");
        assert!(page.contains(&says) && page.contains("Look further"), "{list}: {page}");
        let next =
            page.split("\" rel=\"next\"").next().unwrap().rsplit("href=\"").next().unwrap().replace("&amp;", "&");
        let page = browser.get(&next).await.text;
        assert!(!page.contains("Look further") && page.contains("Show all"), "{next}: {page}");
    }
    let found = stage.expect(200, "GET", "/v1/deliveries?event_type=no.such", None).await;
    assert!(found["data"].as_array().unwrap().is_empty() && found["next_cursor"].is_string(), "{found}");
}

#[tokio::test]
async fn whoever_looks_with_a_browser_is_told_in_a_page_that_nothing_is_there() {
    let stage = Stage::quiet().await;
    let html = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let mut stranger = Browser::new(&stage);
    let mut known = Browser::signed_in_with(&stage, &stage.admin).await;
    for (browser, is_known) in [(&mut stranger, false), (&mut known, true)] {
        let page = browser.send(Ask::new("GET", "/no/such?page=%3Cscript%3E").header("accept", html)).await;
        assert_eq!(page.status, 404);
        assert_eq!(
            (&page.headers["content-type"], page.code()),
            (&"text/html; charset=utf-8".parse().unwrap(), "route_unknown")
        );
        keeps_to_itself("/no/such", &page);
        assert!(
            page.text.contains("There is nothing at <code>/no/such</code>.") && page.text.contains("To the overview")
        );
        assert_eq!(page.text.contains("<nav aria-label=\"Main\">"), is_known, "the way to everywhere else");
    }
    // Where a form is sent to there is nothing to be seen.
    let page = known.send(Ask::new("GET", "/dead/retry").header("accept", html)).await;
    assert_eq!(
        (page.status, page.code(), &page.headers["allow"]),
        (405, "method_not_allowed", &"POST".parse().unwrap())
    );
    keeps_to_itself("/dead/retry", &page);
    let long = format!("/deliveries?event_type={}", "x".repeat(9_000));
    let page = known.send(Ask::new("GET", &long).header("accept", html)).await;
    assert_eq!((page.status, page.code()), (414, "uri_too_long"), "also before a page is asked");
    keeps_to_itself("/deliveries", &page);
    // Programs are told as they always are, and so is whoever asks the API.
    for (path, accept) in [("/no/such", "*/*"), ("/v1/no/such", html), ("/v1", html), ("/readyz/x", "application/json")]
    {
        let answer = stage.send(Ask::new("GET", path).header("accept", accept).key(&stage.admin)).await;
        assert_eq!(answer.problem(), (404, "route_unknown"), "{path} {accept}");
    }
}

#[tokio::test]
async fn whatever_others_wrote_is_shown_and_does_nothing() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::start(|_, _| Answer::status(500).body(SCRIPT)).await;
    let endpoint = stage
        .endpoint(json!({"url": format!("{}?q={}", receiver.url(), "%3Cscript%3E"), "description": SCRIPT,
            "headers": {"x-note": "<script>alert(2)</script>"}}))
        .await;
    let event = json!({"type": "a.b", "payload": {"text": SCRIPT, SCRIPT: 1}, "metadata": {"note": SCRIPT}});
    let event = stage.expect(202, "POST", "/v1/events", Some(event)).await;
    let delivery = text(&event["deliveries"][0]["id"]);
    stage.delivery_in(delivery, "dead").await;
    let endpoint = text(&endpoint["id"]);
    let pause = json!({"reason": SCRIPT});
    stage.expect(200, "POST", &format!("/v1/endpoints/{endpoint}/pause"), Some(pause)).await;
    let subject = json!({"type": "a.b", "payload": {}, "once": {"subject": "<script>alert(3)</script>"}});
    stage.expect(202, "POST", "/v1/events", Some(subject)).await;
    stage.expect(201, "POST", "/v1/keys", Some(json!({"name": "<script>alert(4)</script>", "scope": "read"}))).await;
    let mut browser = Browser::signed_in_with(&stage, &stage.admin).await;
    let mut shown = 0;
    for path in [
        "/".to_owned(),
        "/deliveries".to_owned(),
        "/dead".to_owned(),
        "/endpoints".to_owned(),
        "/events".to_owned(),
        "/audit".to_owned(),
        "/keys".to_owned(),
        format!("/deliveries/{delivery}"),
        format!("/endpoints/{endpoint}"),
        format!("/endpoints/{endpoint}/edit"),
        format!("/events/{}", text(&event["id"])),
        "/once".to_owned(),
        "/once?subject=%3Cscript%3Ealert(3)%3C/script%3E".to_owned(),
        "/deliveries?event_type=%3Cscript%3Ealert(5)%3C/script%3E&since=%22%3E%3Cscript%3Ealert(5)".to_owned(),
        "/find?id=%3Cscript%3Ealert(6)%3C/script%3E".to_owned(),
    ] {
        let page = browser.get(&path).await;
        keeps_to_itself(&path, &page);
        assert!(!page.text.contains("<script>") && !page.text.contains("<img"), "{path}: {}", page.text);
        shown += usize::from(page.text.contains("&lt;script&gt;alert"));
    }
    assert!(shown >= 11, "it is shown, as text, on {shown} pages");
    let raw = browser.get(&format!("/events/{}/payload", text(&event["id"]))).await;
    assert_eq!(raw.headers["content-type"], "application/json");
    assert!(raw.headers["content-disposition"].to_str().unwrap().starts_with("attachment"));
    assert!(raw.text.contains("<script>"), "to be kept in a file, byte for byte");
}
