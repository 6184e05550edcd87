//! What `allowed_hosts`, `allowed_networks` and `require_https` open and close, and what is said about it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use std::net::IpAddr;

use postrider::destination::{Explanation, Rule};
use postrider::{DestinationPolicy, Refusal};

fn policy() -> DestinationPolicy {
    DestinationPolicy::default()
}

fn code(result: Result<postrider::Destination, Refusal>) -> Result<String, &'static str> {
    result.map(|destination| destination.as_str().to_owned()).map_err(|refusal| refusal.code)
}

fn hosts(patterns: &[&str]) -> DestinationPolicy {
    policy().allow_hosts(patterns).unwrap()
}

fn networks(networks: &[&str]) -> DestinationPolicy {
    policy().allow_networks(networks).unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_allowlist_of_one_name_takes_that_name_in_every_spelling_and_no_other() {
    let policy = hosts(&["good.com"]);
    for url in ["https://good.com/", "https://GOOD.com/", "https://good.com./", "https://good.com:8443/"] {
        assert!(policy.check_url(url).is_ok(), "{url}");
    }
    for url in [
        "https://evilgood.com/",
        "https://good.com.evil.com/",
        "https://www.good.com/",
        "https://good.com.co/",
        "https://good.co/",
        "https://8.8.8.8/",
        "https://[2606:4700::1]/",
    ] {
        assert_eq!(code(policy.check_url(url)), Err("destination_host_not_allowed"), "{url}");
    }
}

#[test]
fn a_star_covers_sub_domains_only() {
    let policy = hosts(&["*.Good.com."]);
    for url in ["https://a.good.com/", "https://a.b.good.com/", "https://A.GOOD.COM./"] {
        assert!(policy.check_url(url).is_ok(), "{url}");
    }
    for url in ["https://good.com/", "https://evilgood.com/", "https://a.good.com.evil.com/", "https://agood.com/"] {
        assert_eq!(code(policy.check_url(url)), Err("destination_host_not_allowed"), "{url}");
    }
    let both = policy.allow_hosts(["good.com"]).unwrap();
    assert!(both.check_url("https://good.com/").is_ok());
}

#[test]
fn an_allowlist_may_name_addresses_but_opens_none() {
    let policy = hosts(&["8.8.8.8", "[2606:4700::1]", "2606:4700::2", "127.0.0.1"]);
    assert!(policy.check_url("https://8.8.8.8/").is_ok());
    assert!(policy.check_url("https://0x08080808/").is_ok());
    assert!(policy.check_url("https://[::ffff:8.8.8.8]/").is_ok());
    assert!(policy.check_url("https://[2606:4700:0:0::1]/").is_ok());
    assert!(policy.check_url("https://[2606:4700::2]/").is_ok());
    assert_eq!(code(policy.check_url("https://8.8.4.4/")), Err("destination_host_not_allowed"));
    assert_eq!(code(policy.check_url("http://127.0.0.1/")), Err("destination_loopback_address"));
}

#[test]
fn what_is_no_host_pattern_is_refused() {
    for pattern in [
        "",
        "*",
        "*.",
        "*.*",
        "*good.com",
        "a.*.com",
        "good.com*",
        "https://good.com",
        "good.com/",
        "good.com:443",
        "good..com",
        ".good.com",
        "bücher.de",
        "a b",
        "*.8.8.8.8",
        "*.[::1]",
        "300.1.1.1",
        "good.com\n",
        "%67ood.com",
        "user@good.com",
    ] {
        let refusal = policy().allow_hosts([pattern]).unwrap_err();
        assert_eq!((refusal.code, refusal.field), ("allowed_hosts_invalid", "allowed_hosts"), "{pattern:?}");
        assert!(refusal.hint.is_some());
    }
    let long = "a".repeat(64);
    assert_eq!(policy().allow_hosts([&long]).unwrap_err().code, "allowed_hosts_invalid");
}

#[test]
fn patterns_are_shown_in_their_canonical_form() {
    let policy = hosts(&["GOOD.com.", "*.Good.com", "0x08080808", "[2606:4700:0::1]"]);
    let shown: Vec<String> = policy.allowed_hosts().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["good.com", "*.good.com", "8.8.8.8", "2606:4700::1"]);
}

#[test]
fn an_opened_network_opens_exactly_its_addresses() {
    let policy = networks(&["10.1.0.0/16"]);
    for open in ["10.1.0.0", "10.1.255.255", "::ffff:10.1.2.3", "8.8.8.8"] {
        assert_eq!(policy.check_address(address(open)), Ok(()), "{open}");
    }
    for (closed, expected) in [
        ("10.0.255.255", "destination_private_address"),
        ("10.2.0.0", "destination_private_address"),
        ("127.0.0.1", "destination_loopback_address"),
        ("::ffff:10.2.0.0", "destination_mapped_address"),
        ("::10.1.2.3", "destination_compatible_address"),
        ("::ffff:0:10.1.2.3", "destination_translated_address"),
        ("64:ff9b::10.1.2.3", "destination_nat64_address"),
        ("2002:a01:203::", "destination_6to4_address"),
        ("2606:4700::5efe:10.1.2.3", "destination_isatap_address"),
    ] {
        assert_eq!(policy.check_address(address(closed)).unwrap_err().code, expected, "{closed}");
    }
    assert_eq!(code(policy.check_url("http://0xa010203/")), Ok("http://10.1.2.3/".to_owned()));
    assert!(policy.check_url("http://[::ffff:10.1.2.3]/").is_ok());
}

#[test]
fn an_opened_ipv6_network_opens_exactly_its_addresses() {
    let policy = networks(&["fd12:3456::/32", "::1"]);
    assert_eq!(policy.check_address(address("fd12:3456::1")), Ok(()));
    assert_eq!(policy.check_address(address("::1")), Ok(()));
    assert_eq!(policy.check_address(address("fd12:3457::1")).unwrap_err().code, "destination_unique_local_address");
    assert_eq!(policy.check_address(address("127.0.0.1")).unwrap_err().code, "destination_loopback_address");
    assert_eq!(policy.check_address(address("::ffff:127.0.0.1")).unwrap_err().code, "destination_mapped_address");
}

#[test]
fn opening_all_of_ipv6_does_not_open_ipv4_through_its_mapped_spelling() {
    let policy = networks(&["::/0"]);
    assert_eq!(policy.check_address(address("fe80::1")), Ok(()));
    assert_eq!(policy.check_address(address("::ffff:127.0.0.1")).unwrap_err().code, "destination_mapped_address");
}

#[test]
fn a_mapped_network_is_the_ipv4_network() {
    let policy = networks(&["::ffff:10.0.0.0/104"]);
    assert_eq!(policy.allowed_networks(), networks(&["10.0.0.0/8"]).allowed_networks());
    assert_eq!(policy.check_address(address("10.9.9.9")), Ok(()));
}

#[test]
fn a_single_address_may_be_opened() {
    let policy = networks(&["192.168.1.7"]);
    assert_eq!(policy.check_address(address("192.168.1.7")), Ok(()));
    assert!(policy.check_address(address("192.168.1.8")).is_err());
}

#[test]
fn what_is_no_network_is_refused_with_what_to_write() {
    for network in ["", "10.0.0.0/33", "10.0.0/8", "localhost", "10.0.0.0/", "fd00::/129", "10.0.0.0-10.0.0.9", "*"] {
        let refusal = policy().allow_networks([network]).unwrap_err();
        assert_eq!((refusal.code, refusal.field), ("allowed_networks_invalid", "allowed_networks"), "{network:?}");
    }
    let refusal = policy().allow_networks(["10.1.2.3/8"]).unwrap_err();
    assert_eq!(refusal.code, "allowed_networks_invalid");
    assert_eq!(refusal.hint.as_deref(), Some("write `10.0.0.0/8`, or `10.1.2.3` for the address alone"));
}

#[test]
fn localhost_may_be_named_once_a_loopback_address_is_open() {
    for network in ["127.0.0.0/8", "127.0.0.1", "::1", "0.0.0.0/0", "::/0"] {
        assert!(networks(&[network]).check_url("http://localhost:9400/").is_ok(), "{network}");
    }
    for network in ["10.0.0.0/8", "fd00::/8"] {
        let code = code(networks(&[network]).check_url("http://localhost:9400/"));
        assert_eq!(code, Err("destination_localhost_name"), "{network}");
    }
    assert_eq!(code(hosts(&["localhost"]).check_url("http://localhost/")), Err("destination_localhost_name"));
}

#[test]
fn local_names_may_be_used_once_a_network_is_open_or_they_are_listed() {
    assert!(networks(&["10.0.0.0/8"]).check_url("http://db.internal/").is_ok());
    assert!(networks(&["10.0.0.0/8"]).check_url("http://receiver:9400/").is_ok());
    assert!(hosts(&["db.internal"]).check_url("http://db.internal/").is_ok());
    assert!(hosts(&["*.internal"]).check_url("http://db.internal/").is_ok());
    assert_eq!(code(hosts(&["good.com"]).check_url("http://db.internal/")), Err("destination_local_name"));
}

#[test]
fn a_metadata_service_needs_its_own_address_opened() {
    let name = "http://metadata.google.internal/";
    assert_eq!(code(networks(&["10.0.0.0/8"]).check_url(name)), Err("destination_metadata_name"));
    assert_eq!(code(hosts(&["metadata.google.internal"]).check_url(name)), Err("destination_metadata_name"));
    assert!(networks(&["169.254.169.254/32"]).check_url(name).is_ok());
}

#[test]
fn https_can_be_required() {
    let policy = policy().require_https(true);
    assert!(policy.requires_https());
    assert!(policy.check_url("https://good.com/").is_ok());
    assert_eq!(code(policy.check_url("http://good.com/")), Err("destination_https_required"));
    assert_eq!(code(policy.check_url("HTTP://good.com/")), Err("destination_https_required"));
    assert!(policy.require_https(false).check_url("http://good.com/").is_ok());
}

#[test]
fn lengths_are_taken_up_to_their_limit() {
    let url = |length: usize| format!("https://good.com/{}", "a".repeat(length - "https://good.com/".len()));
    assert!(policy().check_url(&url(2048)).is_ok());
    assert_eq!(code(policy().check_url(&url(2049))), Err("destination_too_long"));
    // Grows to three bytes a character when it is encoded.
    let growing = format!("https://good.com/{}", "\"".repeat(700));
    assert_eq!(code(policy().check_url(&growing)), Err("destination_too_long"));

    let label = |length: usize| format!("https://{}.com/", "a".repeat(length));
    assert!(policy().check_url(&label(63)).is_ok());
    assert_eq!(code(policy().check_url(&label(64))), Err("destination_host_invalid"));

    let stem = format!("{}.", "a".repeat(62)).repeat(3);
    let name = |length: usize| format!("https://{stem}{}.com/", "b".repeat(length - stem.len() - ".com".len()));
    assert!(policy().check_url(&name(252)).is_ok());
    let name = format!("https://{stem}{}.{}.com/", "b".repeat(50), "c".repeat(10));
    assert_eq!(name.len() - "https:///".len(), 254);
    assert_eq!(code(policy().check_url(&name)), Err("destination_host_invalid"));
}

#[test]
fn a_lane_is_the_host_and_its_unusual_port() {
    let lane = |url: &str| policy().check_url(url).unwrap().lane().0;
    assert_eq!(lane("https://Good.com:443/a"), "good.com");
    assert_eq!(lane("https://good.com./b?c"), "good.com");
    assert_eq!(lane("http://good.com:8080/"), "good.com:8080");
    assert_eq!(lane("http://good.com:443/"), "good.com:443");
    assert_eq!(lane("https://[2606:4700::1]:8443/"), "[2606:4700::1]:8443");
}

#[test]
fn a_destination_tells_what_to_dial() {
    let destination = policy().check_url("https://Good.com/a").unwrap();
    assert_eq!((destination.host().to_string().as_str(), destination.port()), ("good.com", 443));
    assert!(destination.is_https());
    assert_eq!(destination.address(), None);
    let destination = policy().check_url("http://0x08080808:81/").unwrap();
    assert_eq!((destination.address(), destination.port()), (Some(address("8.8.8.8")), 81));
    assert!(!destination.is_https());
}

#[test]
fn a_refusal_never_repeats_the_secret_parts_of_a_url() {
    for url in [
        "https://user:canary@good.com/",
        "https://canary@good.com/",
        "http://127.0.0.1/canary?token=canary",
        "https://good.com/#canary",
        "https://good.com:canary/",
        "http://localhost/canary",
        "canary//good.com",
    ] {
        let refusal = policy().check_url(url).unwrap_err();
        assert!(!format!("{refusal:?} {refusal}").contains("canary"), "{url}: {refusal:?}");
    }
}

#[test]
fn hints_say_what_to_set() {
    let hint = |policy: DestinationPolicy, url: &str| policy.check_url(url).unwrap_err().hint.unwrap();
    assert!(hint(policy(), "http://10.1.2.3/").contains("`10.1.2.3/32`"));
    assert!(hint(policy(), "http://[::ffff:10.1.2.3]/").contains("`10.1.2.3/32`"));
    assert!(hint(policy(), "http://[fd00::1]/").contains("`fd00::1/128`"));
    assert!(hint(policy(), "http://localhost/").contains("`127.0.0.0/8`"));
    assert!(hint(policy(), "http://127.0.0.1/").contains("`allowed_networks`"));
    assert!(hint(hosts(&["good.com"]), "http://evil.com/").contains("`allowed_hosts`"));
    assert!(hint(policy().require_https(true), "http://good.com/").contains("`require_https`"));
}

#[test]
fn an_explanation_names_the_rule_that_refused() {
    let refused_by = |policy: &DestinationPolicy, url: &str| {
        let explanation: Explanation = policy.explain(url);
        assert_eq!(explanation.result, policy.check_url(url));
        explanation.refused_by().map(|(rule, _)| rule)
    };
    let default = policy();
    assert_eq!(refused_by(&default, "https://go\tod.com/"), Some(Rule::Characters));
    assert_eq!(refused_by(&default, "ftp://good.com/"), Some(Rule::Scheme));
    assert_eq!(refused_by(&default, "https://a@good.com/"), Some(Rule::UserInfo));
    assert_eq!(refused_by(&default, "https://good.com/#a"), Some(Rule::Fragment));
    assert_eq!(refused_by(&default, "https://good.com:0/"), Some(Rule::Port));
    assert_eq!(refused_by(&default, "https://good..com/"), Some(Rule::HostSpelling));
    assert_eq!(refused_by(&default.clone().require_https(true), "http://good.com/"), Some(Rule::Https));
    assert_eq!(refused_by(&default, "https://localhost/"), Some(Rule::HostName));
    assert_eq!(refused_by(&default, "https://127.1/"), Some(Rule::Address));
    assert_eq!(refused_by(&hosts(&["good.com"]), "https://evil.com/"), Some(Rule::Allowlist));
    assert_eq!(refused_by(&default, "https://good.com/"), None);
}
