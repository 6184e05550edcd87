//! Events: what is accepted is kept byte for byte, and answered as promised.

use serde_json::{Value, json};

use crate::support::{Api, answer};

const TO: &str = "https://hooks.example.com/billing";

/// P18, up to the store: the bytes of a payload survive, whatever a JSON library would make of them.
#[tokio::test]
async fn p18_a_payload_is_kept_and_shown_byte_for_byte() {
    let api = Api::start().await;
    let odd = [
        r#"{"b":1,"a":2,"b":3}"#,
        "{ \"spaced\" :\t[ 1 ,\r\n 2 ] }",
        "1e400",
        "-0.0000",
        "12345678901234567890123456789",
        r#""\u00e9\ud83d\ude00\/""#,
        "\"é😀\"",
        "null",
        "false",
        "\"\"",
        "[]",
        r#"{"":{"":[[[]]]}}"#,
    ];
    for payload in odd {
        let body = format!(r#"{{"type":"odd.one","payload":  {payload}  ,"destination_url":"{TO}"}}"#);
        let (status, enqueued) = api.post("/v1/events", body).await;
        assert_eq!(status, 202, "{payload}: {enqueued}");
        let id: postrider::EventId = enqueued["id"].as_str().unwrap().parse().unwrap();
        let stored = api.store.event(id).await.unwrap().unwrap();
        assert_eq!(stored.payload, payload.as_bytes(), "{payload}");
        let shown = api.request(reqwest::Method::GET, &format!("/v1/events/{id}")).send().await.unwrap();
        let text = shown.text().await.unwrap();
        assert!(text.contains(&format!(r#""payload":{payload},"#)), "{text}");
        let (_, batch) =
            api.post("/v1/events/batch", format!("[{{\"payload\":{payload},\"type\":\"odd.two\"}}]")).await;
        let id: postrider::EventId = batch["data"][0]["id"].as_str().unwrap().parse().unwrap();
        assert_eq!(api.store.event(id).await.unwrap().unwrap().payload, payload.as_bytes(), "{payload}, in a batch");
    }
}

#[tokio::test]
async fn an_event_is_answered_with_its_deliveries_and_can_be_looked_at() {
    let api = Api::start().await;
    let event = json!({
        "type": "invoice.paid", "payload": {"invoice": "in_42"}, "destination_url": TO,
        "metadata": {"customer": "cus_9"}, "topic": "billing"
    });
    let (status, enqueued) = api.post("/v1/events", event.to_string()).await;
    assert_eq!(status, 202, "{enqueued}");
    assert_eq!(enqueued["type"], "invoice.paid");
    assert_eq!(enqueued["duplicate"], false);
    assert!(enqueued.get("claimed").is_none(), "only there when `once` was asked for: {enqueued}");
    assert_eq!(enqueued["deliveries"][0]["destination_url"], TO);
    assert_eq!(enqueued["deliveries"][0]["status"], "pending");
    assert!(enqueued["created_at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());

    let id = enqueued["id"].as_str().unwrap();
    let (status, shown) = api.get(&format!("/v1/events/{id}")).await;
    assert_eq!(status, 200);
    assert_eq!(shown["payload"], json!({"invoice": "in_42"}));
    assert_eq!(shown["metadata"], json!({"customer": "cus_9"}));
    assert_eq!((&shown["topic"], &shown["tenant"]), (&json!("billing"), &json!("default")));
    assert_eq!(shown["deliveries"], enqueued["deliveries"]);

    let (status, listed) = api.get("/v1/events").await;
    assert_eq!(status, 200);
    assert_eq!(listed, json!({"data": [shown], "next_cursor": null}));
}

#[tokio::test]
async fn events_are_listed_by_type_and_time_and_page_by_page() {
    let api = Api::start().await;
    for number in 0..5 {
        let event_type = if number % 2 == 0 { "even.one" } else { "odd.one" };
        let (status, _) = api.post("/v1/events", json!({"type": event_type, "payload": number}).to_string()).await;
        assert_eq!(status, 202);
    }
    let payloads = |listed: &Value| -> Vec<i64> {
        listed["data"].as_array().unwrap().iter().map(|event| event["payload"].as_i64().unwrap()).collect()
    };
    let (_, even) = api.get("/v1/events?type=even.one").await;
    assert_eq!(payloads(&even), [4, 2, 0]);
    let (_, first) = api.get("/v1/events?limit=3").await;
    assert_eq!(payloads(&first), [4, 3, 2]);
    let (_, second) = api.get(&format!("/v1/events?limit=3&cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!(payloads(&second), [1, 0]);
    assert_eq!(second["next_cursor"], Value::Null);
    let (_, future) = api.get("/v1/events?since=2999-01-01T00:00:00Z").await;
    assert_eq!(payloads(&future), [] as [i64; 0]);
    let (_, recent) = api.get("/v1/events?since=1h").await;
    assert_eq!(payloads(&recent), [4, 3, 2, 1, 0]);
    let (_, old) = api.get("/v1/events?until=1h").await;
    assert_eq!(payloads(&old), [] as [i64; 0]);
    let (_, past) = api.get("/v1/events?until=2999-01-01T00:00:00Z").await;
    assert_eq!(payloads(&past), [4, 3, 2, 1, 0]);
}

#[tokio::test]
async fn a_repeated_idempotency_key_yields_the_first_event_and_other_content_is_a_conflict() {
    let api = Api::start().await;
    let body = json!({"type": "invoice.paid", "payload": 1, "destination_url": TO}).to_string();
    let (status, first) = api.post_under("k1", &body).await;
    assert_eq!((status, &first["duplicate"]), (202, &json!(false)));
    let (status, again) = api.post_under("k1", &body).await;
    assert_eq!((status, &again["duplicate"]), (200, &json!(true)));
    assert_eq!((&again["id"], &again["deliveries"]), (&first["id"], &first["deliveries"]));
    assert_eq!(again["created_at"], first["created_at"]);

    let other = json!({"type": "invoice.paid", "payload": 2, "destination_url": TO}).to_string();
    let (status, problem) = api.post_under("k1", &other).await;
    assert_eq!((status, &problem["code"]), (409, &json!("idempotency_conflict")));

    let in_body = json!({"type": "invoice.paid", "payload": 1, "destination_url": TO, "idempotency_key": "k1"});
    let (status, same) = api.post("/v1/events", in_body.to_string()).await;
    assert_eq!((status, &same["id"]), (200, &first["id"]), "the key in the body is the same key");
    let (status, problem) = api.post_under("k2", &in_body.to_string()).await;
    assert_eq!((status, &problem["code"]), (422, &json!("idempotency_key_ambiguous")));
    assert_eq!(api.get("/v1/events").await.1["data"].as_array().unwrap().len(), 1);
}

async fn once_has_one_winner(api: &Api) {
    let event = |payload: i64| json!({"type": "plan.changed", "payload": payload, "destination_url": TO, "once": {"subject": "plan/123"}});
    let (status, won) = api.post("/v1/events", event(1).to_string()).await;
    assert_eq!((status, &won["claimed"]), (202, &json!(true)), "{won}");
    let (status, lost) = api.post("/v1/events", event(2).to_string()).await;
    assert_eq!((status, &lost["claimed"], &lost["generation"]), (200, &json!(false), &json!(1)), "{lost}");
    assert_eq!((&lost["id"], &lost["deliveries"]), (&won["id"], &won["deliveries"]));
    assert_eq!(lost["duplicate"], false);
    let mut stale = event(3);
    stale["once"]["generation"] = json!(7);
    let (status, stale) = api.post("/v1/events", stale.to_string()).await;
    assert_eq!((status, &stale["claimed"]), (200, &json!(false)), "{stale}");
    let (_, batch) = api.post("/v1/events/batch", json!([event(4), {"type": "a.b", "payload": 5}]).to_string()).await;
    assert_eq!(batch["data"][0]["claimed"], false);
    assert_eq!(batch["data"][1]["duplicate"], false);
    assert_eq!(api.get("/v1/events").await.1["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn p10_once_has_one_winner_on_sqlite() {
    once_has_one_winner(&Api::start().await).await;
}

#[tokio::test]
async fn p10_once_has_one_winner_on_postgres() {
    once_has_one_winner(&Api::start_on_postgres().await).await;
}

async fn an_endpoint_that_is_named_must_be_there(api: &Api) {
    let (_, own) = api.post("/v1/endpoints", json!({"url": TO, "event_types": ["nothing.else"]}).to_string()).await;
    let id = own["id"].as_str().unwrap();
    let event = |endpoint: &str| json!({"type": "a.b", "payload": 1, "endpoint_id": endpoint});
    let (status, enqueued) = api.post("/v1/events", event(id).to_string()).await;
    assert_eq!((status, enqueued["deliveries"].as_array().map(Vec::len)), (202, Some(1)), "whatever types it wants");
    let stranger = "ep_01jd0000000000000000000000";
    for (path, body) in [
        ("/v1/events", event(stranger).to_string()),
        ("/v1/events/batch", json!([event(id), event(stranger)]).to_string()),
    ] {
        let (status, problem) = api.post(path, body).await;
        assert_eq!((status, problem["code"].as_str()), (422, Some("endpoint_not_found")), "{problem}");
    }
    let (status, problem) = api.get("/v1/events?type=a%00b").await;
    assert_eq!((status, problem["code"].as_str()), (422, Some("event_type_invalid")), "{problem}");
    let (_, listed) = api.get("/v1/events").await;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "what was refused was not stored");
}

#[tokio::test]
async fn an_endpoint_that_is_named_must_be_there_on_sqlite() {
    an_endpoint_that_is_named_must_be_there(&Api::start().await).await;
}

#[tokio::test]
async fn an_endpoint_that_is_named_must_be_there_on_postgres() {
    an_endpoint_that_is_named_must_be_there(&Api::start_on_postgres().await).await;
}

async fn a_batch_is_all_or_nothing(api: &Api) {
    let good = json!({"type": "a.b", "payload": 1, "destination_url": TO, "idempotency_key": "b1"});
    let (status, batch) =
        api.post("/v1/events/batch", json!([good, good, {"type": "c.d", "payload": 2}]).to_string()).await;
    assert_eq!(status, 202, "{batch}");
    let data = batch["data"].as_array().unwrap();
    assert_eq!(data.len(), 3);
    assert_eq!((&data[0]["duplicate"], &data[1]["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!((&data[0]["id"], &data[0]["deliveries"]), (&data[1]["id"], &data[1]["deliveries"]));
    assert_eq!(data[2]["deliveries"], json!([]), "nobody wants it");

    let refused = json!({"type": "not a type", "payload": 1});
    let (status, problem) =
        api.post("/v1/events/batch", json!([{"type": "e.f", "payload": 1}, refused]).to_string()).await;
    assert_eq!((status, &problem["code"]), (422, &json!("event_type_invalid")));
    assert_eq!(problem["errors"][0]["field"], "[1].type");
    let conflict = json!({"type": "a.b", "payload": 9, "destination_url": TO, "idempotency_key": "b1"});
    let (status, problem) =
        api.post("/v1/events/batch", json!([{"type": "e.f", "payload": 1}, conflict]).to_string()).await;
    assert_eq!((status, &problem["code"]), (409, &json!("idempotency_conflict")));
    assert_eq!(problem["errors"][0]["field"], "[1].idempotency_key");
    assert_eq!(api.get("/v1/events?type=e.f").await.1["data"], json!([]), "nothing of a batch that failed is there");

    for (batch, code) in [
        (json!([]), "batch_size_invalid"),
        (Value::Array(vec![json!({"type": "a.b", "payload": 1}); 1_001]), "batch_size_invalid"),
        (json!({"type": "a.b", "payload": 1}), "field_invalid"),
    ] {
        let (status, problem) = api.post("/v1/events/batch", batch.to_string()).await;
        assert_eq!((status, &problem["code"]), (422, &json!(code)));
    }
    let thousand = Value::Array(vec![json!({"type": "many.of", "payload": 1}); 1_000]);
    let (status, batch) = api.post("/v1/events/batch", thousand.to_string()).await;
    assert_eq!((status, batch["data"].as_array().unwrap().len()), (202, 1_000));
}

#[tokio::test]
async fn a_batch_is_all_or_nothing_on_sqlite() {
    a_batch_is_all_or_nothing(&Api::start().await).await;
}

#[tokio::test]
async fn a_batch_is_all_or_nothing_on_postgres() {
    a_batch_is_all_or_nothing(&Api::start_on_postgres().await).await;
}

#[tokio::test]
async fn a_delayed_event_waits_for_its_time() {
    let api = Api::start().await;
    let event = json!({"type": "a.b", "payload": 1, "destination_url": TO, "deliver_at": "2999-01-01T00:00:00Z"});
    assert_eq!(api.post("/v1/events", event.to_string()).await.0, 202);
    let (_, overview) = api.get("/v1/overview").await;
    assert_eq!((&overview["scheduled"], &overview["due"]), (&json!(1), &json!(0)), "{overview}");
}

async fn instants_at_the_ends_of_time_are_answered(api: &Api) {
    let event = |at: &str| json!({"type": "a.b", "payload": 1, "destination_url": TO, "deliver_at": at}).to_string();
    for at in ["-009999-01-02T02:00:00Z", "1969-12-31T23:59:59Z"] {
        let (status, problem) = api.post("/v1/events", event(at)).await;
        assert_eq!((status, &problem["code"]), (422, &json!("deliver_at_invalid")), "{at}: {problem}");
    }
    for at in ["1970-01-01T00:00:00Z", "9999-12-30T22:00:00.999999999Z"] {
        let (status, enqueued) = api.post("/v1/events", event(at)).await;
        assert_eq!(status, 202, "{at}: {enqueued}");
    }
    for (query, status) in
        [("since=-009999-01-02T02:00:00Z", 422), ("until=9999-12-30T22:00:00.999999999Z", 200), ("since=365000d", 422)]
    {
        assert_eq!(api.get(&format!("/v1/events?{query}")).await.0, status, "{query}");
    }
}

#[tokio::test]
async fn instants_at_the_ends_of_time_are_answered_on_sqlite() {
    instants_at_the_ends_of_time_are_answered(&Api::start().await).await;
}

#[tokio::test]
async fn instants_at_the_ends_of_time_are_answered_on_postgres() {
    instants_at_the_ends_of_time_are_answered(&Api::start_on_postgres().await).await;
}

#[tokio::test]
async fn http_2_without_tls_works() {
    let api = Api::start().await;
    crate::support::client();
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let request = client.post(api.url("/v1/events")).bearer_auth(&api.admin).header("content-type", "application/json");
    let (status, enqueued) = answer(request.body(r#"{"type":"a.b","payload":1}"#)).await;
    assert_eq!(status, 202, "{enqueued}");
    let response = client.get(api.url("/healthz")).send().await.unwrap();
    assert_eq!((response.version(), response.status().as_u16()), (reqwest::Version::HTTP_2, 200));
}
