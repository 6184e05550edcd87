//! Who is let in, for how long, and who is not.

use postrider::{KeyToken, Scope};
use serde_json::json;

use crate::browser::Browser;
use crate::stage::{Ask, Stage, text};

const SESSION: &str = "postrider_session";

#[tokio::test]
async fn nobody_sees_anything_before_signing_in() {
    let stage = Stage::quiet().await;
    let mut browser = Browser::new(&stage);
    for (path, door) in [
        ("/", "/sign-in"),
        ("/deliveries?status=dead", "/sign-in?next=%2Fdeliveries%3Fstatus%3Ddead"),
        ("/keys", "/sign-in?next=%2Fkeys"),
        ("/live", "/sign-in?next=%2Flive"),
    ] {
        assert_eq!(browser.get(path).await.location(), door, "{path}");
    }
    let answer = browser.submit("/dead/retry-all", &[("csrf", ""), ("tenant", "default")]).await;
    assert_eq!(answer.location(), "/sign-in");
    // A link from elsewhere comes without the cookie; the page asks for itself once more, and then the door opens.
    let linked = browser.send(Ask::new("GET", "/dead").header("sec-fetch-site", "cross-site")).await;
    assert_eq!(linked.status, 200);
    assert!(linked.text.contains("http-equiv=\"refresh\" content=\"0\"") && !linked.text.contains("<script"));
}

#[tokio::test]
async fn a_key_signs_in_and_the_cookie_tells_nobody_which() {
    let stage = Stage::quiet().await;
    let mut browser = Browser::new(&stage);
    let door = browser.get("/sign-in?next=/dead").await;
    let csrf = door.hidden("csrf");
    let answer = browser.submit("/sign-in", &[("csrf", &csrf), ("next", "/dead"), ("key", &stage.admin)]).await;
    assert_eq!(answer.location(), "/dead");
    let lines: Vec<&str> = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap()).collect();
    let session = lines.iter().find(|line| line.starts_with(SESSION)).unwrap();
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(session.contains(attribute), "{session}");
    }
    assert!(!session.contains("Secure"), "this was plain http");
    assert!(!session.contains(&stage.admin[4..]), "the key is sealed");
    assert_eq!(browser.get("/dead").await.status, 200);
    assert_eq!(browser.get("/sign-in").await.location(), "/", "nobody signs in twice");

    let out = browser.post("/once", "/sign-out", &[]).await;
    assert_eq!(out.location(), "/sign-in");
    assert!(!browser.cookies.contains_key(SESSION));
    assert_eq!(browser.get("/").await.location(), "/sign-in");
}

#[tokio::test]
async fn what_is_no_key_opens_nothing_and_is_tried_only_so_often() {
    let stage = Stage::quiet().await;
    let mut browser = Browser::new(&stage);
    let unknown = KeyToken::generate();
    for key in ["", "prk_", "nonsense", unknown.reveal()] {
        let answer = browser.sign_in(key).await;
        assert_eq!(answer.status, 401, "{key}");
        assert!(answer.text.contains("That key is unknown or revoked."));
        assert!(!browser.cookies.contains_key(SESSION));
    }
    for _ in 4..10 {
        assert_eq!(browser.sign_in("prk_").await.status, 401);
    }
    let answer = browser.sign_in(&stage.admin).await;
    assert_eq!(answer.status, 429, "even the right key has to wait now");
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=7).contains(&wait), "{wait}");
    assert!(!browser.cookies.contains_key(SESSION));
}

#[tokio::test]
async fn a_revoked_key_ends_its_sessions() {
    let stage = Stage::quiet().await;
    let key = json!({"name": "guest", "scope": "read"});
    let key = stage.expect(201, "POST", "/v1/keys", Some(key)).await;
    let mut browser = Browser::signed_in_with(&stage, text(&key["key"])).await;
    assert_eq!(browser.get("/").await.status, 200);
    stage.expect(204, "DELETE", &format!("/v1/keys/{}", text(&key["id"])), None).await;
    assert_eq!(browser.get("/").await.location(), "/sign-in");
}

#[tokio::test]
async fn a_session_outlives_the_server_and_a_forged_one_does_not_open() {
    let mut stage = Stage::quiet().await;
    let cookies = Browser::signed_in(&stage, None, Scope::Read).await.cookies;
    stage.restart().await;
    let mut browser = Browser { cookies, ..Browser::new(&stage) };
    assert_eq!(browser.get("/").await.status, 200);

    let session = browser.cookies[SESSION].clone();
    let damaged = format!("{}A", &session[..session.len() - 1]);
    for forged in [damaged.as_str(), &stage.admin, "sealed:v1:0000000000000000:AAAA", "%00"] {
        if forged == session {
            continue;
        }
        browser.cookies.insert(SESSION.to_owned(), forged.to_owned());
        assert_eq!(browser.get("/").await.location(), "/sign-in", "{forged}");
    }
}

#[tokio::test]
async fn the_api_takes_no_cookie_and_the_dashboard_no_header() {
    let stage = Stage::quiet().await;
    let mut browser = Browser::signed_in(&stage, None, Scope::Admin).await;
    let answer = browser.send(Ask::new("GET", "/v1/deliveries")).await;
    assert_eq!(answer.status, 401, "a page elsewhere could make a browser ask");
    let answer = Browser::new(&stage).send(Ask::new("GET", "/").key(&stage.admin)).await;
    assert_eq!(answer.location(), "/sign-in");
}
