//! Receivers that misbehave: each its own outcome, in time, without growing.

use std::time::Duration;

use postrider::{Outcome, Phase, TransportConfig};
use postrider_conformance::receiver::{Answer, Hostile, Receiver};
use postrider_conformance::wait::eventually;

use super::*;

/// What the system may take from a receiver that we have stopped reading: the buffers of two sockets.
const SOCKET_BUFFERS: u64 = 16 * 1024 * 1024;

/// A receiver that never stops sending has been left, and little of it was taken.
async fn assert_left_behind(hostile: &Hostile) {
    eventually("the connection's end", AMPLE, || std::future::ready((hostile.ended() == 1).then_some(()))).await;
    assert!(hostile.bytes_sent() < SOCKET_BUFFERS, "{} bytes were taken", hostile.bytes_sent());
}

#[tokio::test]
async fn refused() {
    let hostile = Hostile::refuses().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "connect", &format!("connection refused by {}", hostile.address()));
}

#[tokio::test]
async fn reset() {
    let hostile = Hostile::resets().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    // Depending on who is faster it comes while dialling, before the request was handed over, or before a response.
    assert_detail(&outcome, "connect", "reset");
}

#[tokio::test]
async fn black_hole_within_the_post_s_deadline() {
    let hostile = Hostile::black_hole().await;
    let outcome = post_within(&transport(), &hostile.url(), SHORT).await;
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Connecting });
}

#[tokio::test]
async fn black_hole_within_the_connect_timeout() {
    let hostile = Hostile::black_hole().await;
    let transport = Transport::new(TransportConfig { connect_timeout: SHORT, ..config() }).unwrap();
    let started = Instant::now();
    let outcome = transport.post(post(&hostile.url())).await;
    assert!(started.elapsed() < SHORT + SLACK, "{:?}", started.elapsed());
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Connecting });
}

#[tokio::test]
async fn accepts_and_says_nothing() {
    let hostile = Hostile::says_nothing().await;
    let outcome = post_within(&transport(), &hostile.url(), SHORT).await;
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Waiting });
    assert_detail(&outcome, "timeout", "waiting for the response");
    eventually("the connection's end", AMPLE, || std::future::ready((hostile.ended() == 1).then_some(()))).await;
}

#[tokio::test]
async fn accepts_and_reads_nothing() {
    let hostile = Hostile::reads_nothing().await;
    let body = bytes::Bytes::from(vec![b'b'; 64 * 1024 * 1024]);
    let started = Instant::now();
    let outcome = transport().post(Post { body, timeout: SHORT, ..post(&hostile.url()) }).await;
    assert!(started.elapsed() < SHORT + SLACK);
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Waiting });
}

#[tokio::test]
async fn headers_byte_by_byte() {
    let hostile = Hostile::drips_headers(Duration::from_millis(20)).await;
    let outcome = post_within(&transport(), &hostile.url(), SHORT).await;
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Waiting });
}

#[tokio::test]
async fn a_body_without_end_is_cut_and_the_response_counts() {
    let hostile = Hostile::endless_body().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_status(&outcome, 200);
    assert_eq!(outcome.excerpt().unwrap(), "e".repeat(4096));
    assert_left_behind(&hostile).await;
}

#[tokio::test]
async fn ten_gigabytes_are_not_read() {
    let hostile = Hostile::ten_gigabytes().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_status(&outcome, 200);
    assert_eq!(outcome.excerpt().unwrap().len(), 4096);
    assert_left_behind(&hostile).await;
}

#[tokio::test]
async fn a_body_that_stalls_is_a_timeout_even_of_a_success() {
    let hostile = Hostile::stalls_in_body().await;
    let outcome = post_within(&transport(), &hostile.url(), SHORT).await;
    assert_eq!(outcome, Outcome::Timeout { during: Phase::Reading });
    assert!(!outcome.is_success());
}

#[tokio::test]
async fn a_body_that_stalls_after_what_is_kept_counts() {
    let hostile = Hostile::stalls_in_body().await;
    let transport = Transport::new(TransportConfig { kept_response_bytes: 9, ..config() }).unwrap();
    let outcome = post_within(&transport, &hostile.url(), AMPLE).await;
    assert_status(&outcome, 200);
    assert_eq!(outcome.excerpt(), Some("the first"));
}

#[tokio::test]
async fn closes_half_way() {
    let hostile = Hostile::breaks_off().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "closed before the response was complete");
}

#[tokio::test]
async fn resets_half_way() {
    let hostile = Hostile::resets_in_body().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "reset before the response was complete");
}

#[tokio::test]
async fn chunks_that_end_without_an_end() {
    let hostile = Hostile::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "closed before the response was complete");
}

#[tokio::test]
async fn closes_without_a_word() {
    let hostile = Hostile::closes_without_a_word().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "closed before the head of a response");
}

#[tokio::test]
async fn garbage_instead_of_http() {
    let hostile = Hostile::garbage().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "not valid http");
}

#[tokio::test]
async fn a_header_of_a_megabyte() {
    let hostile = Hostile::megabyte_header().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "head is too large");
}

#[tokio::test]
async fn headers_without_end() {
    let hostile = Hostile::endless_headers().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "head is too large");
    assert_left_behind(&hostile).await;
}

#[tokio::test]
async fn a_hundred_and_one_headers() {
    let mut answer = "HTTP/1.1 200 OK\r\n".to_owned();
    answer.push_str(&"X-One: more\r\n".repeat(101));
    answer.push_str("\r\n");
    let hostile = Hostile::answering(answer).await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "head is too large");
}

#[tokio::test]
async fn a_flood_of_interim_responses() {
    let hostile = Hostile::interim_flood().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "far more than a response's head");
    assert_left_behind(&hostile).await;
}

#[tokio::test]
async fn a_few_interim_responses_are_skipped() {
    let answer = format!("{}HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(20));
    let hostile = Hostile::answering(answer).await;
    assert_status(&post_within(&transport(), &hostile.url(), AMPLE).await, 204);
}

#[tokio::test]
async fn both_content_length_and_transfer_encoding() {
    let hostile = Hostile::two_lengths().await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_detail(&outcome, "protocol", "both content-length and transfer-encoding");
}

#[tokio::test]
async fn a_response_that_nobody_asked_for_is_not_the_next_one_s() {
    let hostile = Hostile::answers_twice().await;
    let transport = transport();
    for _ in 0..5 {
        assert_status(&post_within(&transport, &hostile.url(), AMPLE).await, 503);
    }
    assert_eq!(hostile.accepted(), 5, "such a connection is not used again");
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let target = Receiver::answering(200).await;
    let location = target.url();
    let receiver = Receiver::start(move |_, _| Answer::status(307).header("location", &location)).await;
    let outcome = post_within(&transport(), &receiver.url(), AMPLE).await;
    assert_status(&outcome, 307);
    assert!(!outcome.is_success());
    assert_eq!(target.connections(), 0, "nobody went there");
}

#[tokio::test]
async fn a_compressed_bomb_is_not_decompressed() {
    let hostile = Hostile::gzip_bomb(100 * 1024 * 1024).await;
    let outcome = post_within(&transport(), &hostile.url(), AMPLE).await;
    assert_status(&outcome, 200);
    let excerpt = outcome.excerpt().unwrap();
    assert!(excerpt.starts_with('\u{1f}'), "it is kept as it came");
    assert!(excerpt.len() <= 4096);
}

#[tokio::test]
async fn a_switch_of_protocols_is_a_failure() {
    let hostile = Hostile::answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    let outcome = post_within(&transport(), &hostile.await.url(), SHORT).await;
    assert!(!outcome.is_success(), "{outcome:?}");
}

/// The sockets of a receiver that answers before it has read everything, as one does that refuses large bodies.
#[tokio::test]
async fn an_answer_that_comes_before_the_body_was_taken_counts() {
    let hostile = Hostile::answering("HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge").await;
    let body = bytes::Bytes::from(vec![b'b'; 8 * 1024 * 1024]);
    let outcome = transport().post(Post { body, ..post(&hostile.url()) }).await;
    assert_status(&outcome, 413);
    assert_eq!(outcome.excerpt(), Some("large"));
}
