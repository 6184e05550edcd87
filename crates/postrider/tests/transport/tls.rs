//! TLS: the name is verified whatever address was dialled, and HTTP/2 is spoken where it is offered.

use http::Version;
use postrider::transport::roots_from;
use postrider::{Phase, TransportConfig};
use postrider_conformance::receiver::{Answer, Authority, Gate, Hostile, Identity, NameServer, Receiver, Reply};

use super::*;

const NAME: &str = "receiver.example.com";

async fn trusting(authority: &Authority) -> (Transport, NameServer) {
    let server = NameServer::replying(Reply::loopback()).await;
    let config =
        TransportConfig { name_servers: vec![server.address()], extra_roots: vec![authority.root()], ..config() };
    (Transport::new(config).unwrap(), server)
}

/// Posts by name to a receiver with `identity`, which gets no request through unless the identity is good.
async fn post_to(identity: Identity, authority: &Authority) -> (Outcome, usize) {
    let receiver = Receiver::start_tls(&identity, |_, _| Answer::status(204)).await;
    let (transport, _server) = trusting(authority).await;
    let outcome = post_within(&transport, &receiver.url_as(NAME), AMPLE).await;
    (outcome, receiver.request_count())
}

#[tokio::test]
async fn a_good_certificate_of_an_extra_authority() {
    let authority = Authority::new();
    let (outcome, requests) = post_to(authority.identity(NAME), &authority).await;
    assert_status(&outcome, 204);
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn one_connection_serves_many_posts_in_turn() {
    let authority = Authority::new();
    let receiver = Receiver::start_tls(&authority.identity(NAME), |_, _| Answer::status(204)).await;
    let (transport, _server) = trusting(&authority).await;
    for _ in 0..20 {
        assert_status(&post_within(&transport, &receiver.url_as(NAME), AMPLE).await, 204);
    }
    assert_eq!(receiver.connections(), 1);
    assert!(receiver.requests().iter().all(|request| request.version == Version::HTTP_11));
}

#[tokio::test]
async fn an_authority_can_be_read_from_pem() {
    let authority = Authority::new();
    assert_eq!(roots_from(authority.root_pem().as_bytes()).unwrap(), [authority.root()]);
    assert_eq!(roots_from(&authority.root()).unwrap(), [authority.root()]);
}

#[tokio::test]
async fn an_expired_certificate() {
    let authority = Authority::new();
    let (outcome, requests) = post_to(authority.expired_identity(NAME), &authority).await;
    assert_detail(&outcome, "tls", "certificate expired");
    assert_eq!(requests, 0);
}

#[tokio::test]
async fn a_certificate_for_another_name() {
    let authority = Authority::new();
    let (outcome, requests) = post_to(authority.identity("other.example.com"), &authority).await;
    assert_detail(&outcome, "tls", "not for receiver.example.com");
    assert_eq!(requests, 0);
}

#[tokio::test]
async fn a_certificate_for_the_address_is_not_one_for_the_name() {
    let authority = Authority::new();
    let (outcome, _) = post_to(authority.identity("127.0.0.1"), &authority).await;
    assert_detail(&outcome, "tls", "not for receiver.example.com");
}

#[tokio::test]
async fn a_certificate_for_an_address_serves_a_url_with_that_address() {
    let authority = Authority::new();
    let receiver = Receiver::start_tls(&authority.identity("127.0.0.1"), |_, _| Answer::status(204)).await;
    let (transport, _server) = trusting(&authority).await;
    assert_status(&post_within(&transport, &receiver.url(), AMPLE).await, 204);
}

#[tokio::test]
async fn a_self_signed_certificate() {
    let (outcome, requests) = post_to(Identity::self_signed(NAME), &Authority::new()).await;
    assert_detail(&outcome, "tls", "self-signed or its issuer is not trusted");
    assert_eq!(requests, 0);
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_is_not_trusted() {
    let (outcome, requests) = post_to(Authority::new().identity(NAME), &Authority::new()).await;
    assert_detail(&outcome, "tls", "issuer is not trusted");
    assert_eq!(requests, 0);
}

#[tokio::test]
async fn a_handshake_that_stalls() {
    let hostile = Hostile::says_nothing().await;
    let outcome = post_within(&transport(), &hostile.tls_url(), SHORT).await;
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Handshaking });
    assert_detail(&outcome, "timeout", "negotiating tls");

    let transport = Transport::new(TransportConfig { connect_timeout: SHORT, ..config() }).unwrap();
    let started = Instant::now();
    let outcome = transport.post(post(&hostile.tls_url())).await;
    assert!(started.elapsed() < SHORT + SLACK, "{:?}", started.elapsed());
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Handshaking });
}

#[tokio::test]
async fn a_port_that_does_not_speak_tls() {
    let hostile = Hostile::greets("220 mail.example.com ESMTP ready\r\n").await;
    let outcome = post_within(&transport(), &hostile.tls_url(), AMPLE).await;
    assert_detail(&outcome, "tls", "does not speak tls");
}

#[tokio::test]
async fn a_handshake_that_is_cut_off() {
    let hostile = Hostile::greets("").await;
    let outcome = post_within(&transport(), &hostile.tls_url(), AMPLE).await;
    assert_detail(&outcome, "tls", "closed during the tls handshake");
}

#[tokio::test]
async fn http2_is_spoken_where_it_is_offered_and_requests_share_a_connection() {
    let authority = Authority::new();
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start_tls(&authority.identity(NAME).with_http2(), move |_, number| {
        if number == 1 { Answer::status(204) } else { Answer::status(204).after(&held) }
    })
    .await;
    let (transport, _server) = trusting(&authority).await;
    let url = receiver.url_as(NAME);
    assert_status(&post_within(&transport, &url, AMPLE).await, 204);
    let posts: Vec<_> = (0..10)
        .map(|_| {
            let (transport, url) = (transport.clone(), url.clone());
            tokio::spawn(async move { transport.post(post(&url)).await })
        })
        .collect();
    let requests = receiver.wait_for(11, AMPLE).await;
    assert_eq!(receiver.most_open_requests(), 10);
    gate.open();
    for posted in posts {
        assert_status(&posted.await.unwrap(), 204);
    }
    assert!(requests.iter().all(|request| request.version == Version::HTTP_2 && request.body == "{}"));
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn http2_posts_that_start_together_all_arrive() {
    let authority = Authority::new();
    let receiver = Receiver::start_tls(&authority.identity(NAME).with_http2(), |_, _| Answer::status(204)).await;
    let (transport, _server) = trusting(&authority).await;
    let posts: Vec<_> = (0..50)
        .map(|_| {
            let (transport, url) = (transport.clone(), receiver.url_as(NAME));
            tokio::spawn(async move { transport.post(post(&url)).await })
        })
        .collect();
    for posted in posts {
        assert_status(&posted.await.unwrap(), 204);
    }
    assert_eq!(receiver.request_count(), 50);
}

#[tokio::test]
async fn an_http2_receiver_that_holds_its_answer_is_a_timeout_and_others_go_on() {
    let authority = Authority::new();
    let receiver = Receiver::start_tls(&authority.identity(NAME).with_http2(), |request, _| {
        if request.path == "/never" { Answer::never() } else { Answer::status(204) }
    })
    .await;
    let (transport, _server) = trusting(&authority).await;
    let url = receiver.url_as(NAME);
    assert_status(&post_within(&transport, &url, AMPLE).await, 204);
    let outcome = post_within(&transport, &format!("{url}never"), SHORT).await;
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Waiting });
    assert_status(&post_within(&transport, &url, AMPLE).await, 204);
    receiver.wait_until("the held request to be given up", AMPLE, |receiver| receiver.open_requests() == 0).await;
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_long_http2_body_is_cut_and_the_connection_goes_on() {
    let authority = Authority::new();
    let receiver = Receiver::start_tls(&authority.identity(NAME).with_http2(), |_, _| {
        Answer::status(200).body(vec![b'x'; 4 * 1024 * 1024])
    })
    .await;
    let (transport, _server) = trusting(&authority).await;
    for _ in 0..3 {
        let outcome = post_within(&transport, &receiver.url_as(NAME), AMPLE).await;
        assert_eq!(outcome.excerpt().map(str::len), Some(4096));
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn an_http2_head_that_is_too_long_is_a_protocol_error() {
    let authority = Authority::new();
    let long = "h".repeat(100 * 1024);
    let receiver = Receiver::start_tls(&authority.identity(NAME).with_http2(), move |_, _| {
        Answer::status(200).header("x-long", &long)
    })
    .await;
    let (transport, _server) = trusting(&authority).await;
    let outcome = post_within(&transport, &receiver.url_as(NAME), AMPLE).await;
    assert_detail(&outcome, "protocol", "header_list_way_too_large");
}
