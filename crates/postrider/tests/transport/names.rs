//! Names: looked up for each connection, vetted in full, dialled by the address that was vetted.

use postrider::{Phase, TransportConfig};
use postrider_conformance::receiver::{Hostile, NameServer, Question, Receiver, Reply};

use super::*;

fn asking(server: &NameServer) -> TransportConfig {
    TransportConfig { name_servers: vec![server.address()], ..config() }
}

#[tokio::test]
async fn a_name_leads_to_its_address() {
    let server = NameServer::replying(Reply::loopback()).await;
    let receiver = Receiver::answering(204).await;
    let transport = Transport::new(asking(&server)).unwrap();
    let url = receiver.url_as("receiver.example.com");
    assert_status(&post_within(&transport, &url, AMPLE).await, 204);
    let request = receiver.requests().pop().unwrap();
    assert_eq!(request.header("host"), format!("receiver.example.com:{}", receiver.address().port()));
    assert_eq!(server.asked("receiver.example.com"), 1);
}

#[tokio::test]
async fn name_not_found() {
    let server = NameServer::replying(Reply::NoSuchName).await;
    let transport = Transport::new(asking(&server)).unwrap();
    let outcome = post_within(&transport, "http://nowhere.example.com/", AMPLE).await;
    assert_detail(&outcome, "dns", "there is no name `nowhere.example.com`");
}

#[tokio::test]
async fn a_name_without_an_address() {
    let server = NameServer::replying(Reply::addresses(&[])).await;
    let transport = Transport::new(asking(&server)).unwrap();
    let outcome = post_within(&transport, "http://empty.example.com/", AMPLE).await;
    assert_detail(&outcome, "dns", "has no address");
}

#[tokio::test]
async fn a_name_server_that_fails() {
    for (reply, sense) in [(Reply::Failure, "server failure"), (Reply::Refused, "refused")] {
        let server = NameServer::replying(reply).await;
        let transport = Transport::new(asking(&server)).unwrap();
        let outcome = post_within(&transport, "http://receiver.example.com/", AMPLE).await;
        assert_detail(&outcome, "dns", sense);
    }
}

#[tokio::test]
async fn a_name_server_that_says_nothing() {
    let server = NameServer::replying(Reply::Silence).await;
    let transport =
        Transport::new(TransportConfig { connect_timeout: Duration::from_secs(2), ..asking(&server) }).unwrap();
    let outcome = post_within(&transport, "http://receiver.example.com/", Duration::from_secs(4)).await;
    assert_detail(&outcome, "dns", "no name server answered in time");
}

#[tokio::test]
async fn no_name_server_at_all() {
    let nobody = Hostile::refuses().await;
    let config =
        TransportConfig { name_servers: vec![nobody.address()], connect_timeout: Duration::from_secs(2), ..config() };
    let outcome =
        post_within(&Transport::new(config).unwrap(), "http://receiver.example.com/", Duration::from_secs(4)).await;
    assert_detail(&outcome, "dns", "name server");
}

#[tokio::test]
async fn the_post_s_deadline_ends_a_lookup() {
    let server = NameServer::replying(Reply::Silence).await;
    let transport = Transport::new(asking(&server)).unwrap();
    let outcome = post_within(&transport, "http://receiver.example.com/", SHORT).await;
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Resolving });
    assert_detail(&outcome, "timeout", "resolving the name");
}

#[tokio::test]
async fn a_slow_name_server_for_one_name_holds_up_no_other() {
    let server = NameServer::start(|name, _, _| match name {
        "slow.example.com" => Reply::Silence,
        _ => Reply::loopback(),
    })
    .await;
    let receiver = Receiver::answering(204).await;
    let transport = Transport::new(asking(&server)).unwrap();
    let slow: Vec<_> = (0..100)
        .map(|_| {
            let transport = transport.clone();
            tokio::spawn(async move { transport.post(post("http://slow.example.com/")).await })
        })
        .collect();
    while server.asked("slow.example.com") == 0 {
        tokio::task::yield_now().await;
    }
    let outcome = post_within(&transport, &receiver.url_as("fast.example.com"), Duration::from_secs(1)).await;
    assert_status(&outcome, 204);
    assert!(slow.iter().any(|slow| !slow.is_finished()), "the slow ones were still waiting");
    for slow in slow {
        slow.abort();
    }
}

#[tokio::test]
async fn a_slow_answer_is_still_an_answer() {
    let server = NameServer::replying(Reply::After(Duration::from_millis(300), Box::new(Reply::loopback()))).await;
    let receiver = Receiver::answering(204).await;
    let transport = Transport::new(asking(&server)).unwrap();
    assert_status(&post_within(&transport, &receiver.url_as("late.example.com"), AMPLE).await, 204);
}

#[tokio::test]
async fn p17_a_name_that_leads_inside_is_blocked_and_not_dialled() {
    let receiver = Receiver::answering(204).await;
    for (address, code) in [
        ("127.0.0.1", "destination_loopback_address"),
        ("10.1.2.3", "destination_private_address"),
        ("169.254.169.254", "destination_"),
        ("::1", "destination_loopback_address"),
        ("::ffff:127.0.0.1", "destination_"),
        ("fd00::1", "destination_"),
    ] {
        let server = NameServer::replying(Reply::address(address)).await;
        let config = TransportConfig { destinations: DestinationPolicy::default(), ..asking(&server) };
        let transport = Transport::new(config).unwrap();
        let outcome = post_within(&transport, &receiver.url_as("inside.example.com"), AMPLE).await;
        assert_detail(&outcome, "blocked", code);
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn p17_an_answer_that_changes_is_vetted_again() {
    // Opened the first time, denied from then on, for each of the two questions.
    let server = NameServer::start(|_, question, number| match (question, number) {
        (Question::A, 1) => Reply::loopback(),
        (Question::A, _) => Reply::address("10.1.2.3"),
        _ => Reply::addresses(&[]),
    })
    .await;
    // The connection is not kept, so that the second post needs another.
    let receiver =
        Receiver::start(|_, _| postrider_conformance::receiver::Answer::status(204).header("connection", "close"))
            .await;
    let transport = Transport::new(asking(&server)).unwrap();
    let url = receiver.url_as("rebind.example.com");
    assert_status(&post_within(&transport, &url, AMPLE).await, 204);
    let outcome = post_within(&transport, &url, AMPLE).await;
    assert_detail(&outcome, "blocked", "10.1.2.3");
    assert_eq!(server.asked("rebind.example.com"), 2);
    assert_eq!(receiver.connections(), 1, "the second post dialled nothing");
}

#[tokio::test]
async fn p17_the_name_is_asked_once_per_connection_and_the_vetted_address_is_dialled() {
    // Were the name looked up again between vetting and dialling, the dial would go to a port that refuses.
    let server = NameServer::start(|_, question, number| match (question, number) {
        (Question::A, 1) => Reply::loopback(),
        (Question::A, _) => Reply::address("127.0.0.2"),
        _ => Reply::addresses(&[]),
    })
    .await;
    let receiver = Receiver::answering(204).await;
    let transport = Transport::new(asking(&server)).unwrap();
    assert_status(&post_within(&transport, &receiver.url_as("once.example.com"), AMPLE).await, 204);
    assert_eq!(server.asked("once.example.com"), 1);
}

#[tokio::test]
async fn p17_a_mixed_answer_is_blocked_as_a_whole() {
    let receiver = Receiver::answering(204).await;
    for mixed in [
        &["127.0.0.1", "10.1.2.3"][..],
        &["10.1.2.3", "127.0.0.1"],
        &["127.0.0.1", "fd00::1"],
        &["::1", "127.0.0.1", "192.168.1.1"],
    ] {
        let server = NameServer::replying(Reply::addresses(mixed)).await;
        let transport = Transport::new(asking(&server)).unwrap();
        let outcome = post_within(&transport, &receiver.url_as("mixed.example.com"), AMPLE).await;
        assert_eq!(outcome.kind().as_str(), "blocked", "{mixed:?}: {outcome:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn the_next_address_is_tried_when_the_first_refuses() {
    let server = NameServer::replying(Reply::addresses(&["127.0.0.2", "127.0.0.1"])).await;
    let receiver = Receiver::answering(204).await;
    let transport = Transport::new(asking(&server)).unwrap();
    assert_status(&post_within(&transport, &receiver.url_as("two.example.com"), AMPLE).await, 204);
}

#[tokio::test]
async fn the_next_address_is_tried_when_the_first_is_silent() {
    let server = NameServer::replying(Reply::addresses(&["127.0.0.2", "127.0.0.1"])).await;
    let receiver = Receiver::answering(204).await;
    let port = receiver.address().port();
    let _hole = Hostile::black_hole_at(format!("127.0.0.2:{port}").parse().unwrap()).await;
    let transport = Transport::new(asking(&server)).unwrap();
    // Far below the ten seconds that all addresses have together.
    let outcome = post_within(&transport, &receiver.url_as("two.example.com"), Duration::from_secs(3)).await;
    assert_status(&outcome, 204);
}

#[tokio::test]
async fn every_address_that_failed_is_named() {
    let server = NameServer::replying(Reply::addresses(&["127.0.0.2", "127.0.0.3"])).await;
    let hostile = Hostile::refuses().await;
    let transport = Transport::new(asking(&server)).unwrap();
    let url = format!("http://two.example.com:{}/", hostile.address().port());
    let outcome = post_within(&transport, &url, AMPLE).await;
    assert_detail(&outcome, "connect", "connection refused by 127.0.0.2:");
    assert_detail(&outcome, "connect", "connection refused by 127.0.0.3:");
}

#[tokio::test]
async fn an_allowlist_of_hosts_is_checked_before_anything_is_asked() {
    let server = NameServer::replying(Reply::loopback()).await;
    let destinations = config().destinations.allow_hosts(["good.example.com"]).unwrap();
    let transport = Transport::new(TransportConfig { destinations, ..asking(&server) }).unwrap();
    let outcome = post_within(&transport, "http://evil.example.com/", AMPLE).await;
    assert_detail(&outcome, "blocked", "destination_host_not_allowed");
    assert_eq!(server.asked("evil.example.com"), 0);
}

#[tokio::test]
async fn the_system_s_names_are_used_where_no_name_server_is_given() {
    let receiver = Receiver::answering(204).await;
    assert_status(&post_within(&transport(), &receiver.url_as("localhost"), AMPLE).await, 204);
}
