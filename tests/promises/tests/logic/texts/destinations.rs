//! Destination URLs, put together from the pieces that parsers disagree about.
//!
//! Two readers are asked besides the engine's own: the C library, which reads hosts as most programs do that dial them,
//! historic spellings of addresses included; and a judge of addresses by what the standard library says of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _};

use postrider::DestinationPolicy;
use proptest::prelude::*;

use super::{cases, is_code};

/// Whether an address is of the public internet, by the standard library's notions where it has them.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_benchmark = a == 198 && (18..20).contains(&b);
    let is_protocol = (a, b, c) == (192, 0, 0);
    let is_metadata = v4 == Ipv4Addr::new(168, 63, 129, 16);
    !(v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_broadcast()
        || v4.is_documentation()
        || v4.is_multicast()
        || a == 0
        || a >= 240
        || is_shared
        || is_benchmark
        || is_protocol
        || is_metadata)
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let segments = v6.segments();
    let carried = |high: u16, low: u16| is_public_v4((u32::from(high) << 16 | u32::from(low)).into());
    let (a, b) = (segments[0], segments[1]);
    // Global unicast is 2000::/3; of that, what is set apart, and what leads on to an IPv4 address.
    let is_global = a & 0xe000 == 0x2000;
    let is_documentation = (a, b) == (0x2001, 0x0db8) || a == 0x3fff && b < 0x1000;
    let leads_on_well = match (a, b) {
        (0x2002, _) => carried(b, segments[2]),
        (0x2001, 0) => carried(segments[2], segments[3]) && carried(!segments[6], !segments[7]),
        _ => true,
    };
    is_global && !is_documentation && leads_on_well
}

fn piece(choices: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(choices).prop_map(str::to_owned)
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => piece(&[
            "127.0.0.1", "127.1", "0", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.1.", "10.0.0.1",
            "192.168.1", "169.254.169.254", "0xa9fea9fe", "100.64.0.1", "1.1.1.1", "8.8.8.8", "0x08080808", "134744072", "8.8.2056",
            "256.1.1.1", "1.1.1.256", "1.1.1.1.1", "4294967296", "0x100000000", "08.8.8.8", "1e100", "0x", "0x.1", "..1",
        ]),
        2 => piece(&[
            "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
            "[fe80::1]", "[fe80::1%25eth0]", "[fec0::1]", "[fd00::1]", "[2001:db8::1]", "[2606:4700::1111]", "[::1", "::1", "[1.1.1.1]",
            "[0:0:0:0:0:ffff:0a00:0001]", "[2001:0:0:0:0:0:f5ff:fffe]",
        ]),
        3 => piece(&[
            "localhost", "LOCALHOST", "localhost.", "a.localhost", "metadata.google.internal", "host.internal", "printer.local", "intranet",
            "good.com", "GOOD.com", "good.com.", "good.com..", ".good.com", "good..com", "xn--4gbrim.com", "b\u{fc}cher.de", "g\u{ff4f}od.com",
            "\u{ff11}\u{ff12}\u{ff17}.0.0.1", "\u{2460}.1.1.1", "127\u{3002}0\u{3002}0\u{3002}1", "127%2e0.0.1", "%31%32%37.0.0.1", "good.com%00.evil.com",
        ]),
        2 => any::<u32>().prop_map(|bits| bits.to_string()),
        2 => any::<u32>().prop_map(|bits| format!("0x{bits:x}")),
        2 => (any::<u8>(), any::<u32>()).prop_map(|(first, rest)| format!("{first}.0{:o}", rest & 0x00ff_ffff)),
        1 => any::<u128>().prop_map(|bits| format!("[{}]", Ipv6Addr::from(bits))),
        1 => "[0-9a-fx.]{1,16}",
        1 => "[ -~]{1,12}",
    ]
}

fn url() -> impl Strategy<Value = String> {
    let scheme =
        piece(&["http", "https", "HTTP", "httpS", "ftp", "file", "javascript", "http+unix", " http", "http\t", ""]);
    let separator = piece(&["://", "://", "://", ":", ":/", ":///", ":\\\\", "://\t", "//"]);
    let user =
        piece(&["", "", "", "", "good.com@", "a:b@", "@", "good.com%40", "good.com\\@", "good.com#@", "good.com?@"]);
    let port = piece(&["", "", ":80", ":443", ":0", ":65535", ":65536", ":", ":8080x", ":-1", ":00080"]);
    let path = piece(&[
        "",
        "/",
        "/a?b=c",
        "?x",
        "#f",
        "/\\evil.com",
        "/%2e%2e/",
        "//evil.com",
        "/a b",
        "/\u{e9}",
        "/\r\nhost: evil",
        "\0",
    ]);
    (scheme, separator, user, host(), port, path)
        .prop_map(|(scheme, separator, user, host, port, path)| format!("{scheme}{separator}{user}{host}{port}{path}"))
}

/// The host that a program sees which looks for the usual separators, and no more.
fn plainly_read_host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// The address that the C library takes a host for, if it needs to ask nobody for it.
fn read_by_the_c_library(host: &str) -> Option<IpAddr> {
    let last = host.trim_end_matches('.').rsplit('.').next()?;
    let is_number = !last.is_empty() && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x"));
    // Anything else would be looked up, and this test asks no name server.
    let is_plain = host.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'.' || byte == b'x');
    let numeric = is_number && is_plain || host.parse::<Ipv6Addr>().is_ok();
    numeric.then(|| (host, 80).to_socket_addrs().ok()?.next()).flatten().map(|address| address.ip())
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn whatever_is_accepted_leads_to_the_public_internet_for_every_reader(text in url()) {
        let policy = DestinationPolicy::default();
        match policy.check_url(&text) {
            Ok(destination) => {
                let canonical = destination.as_str();
                // Nothing that one reader drops, turns round or folds, and another does not.
                prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'), "{:?}", text);
                prop_assert_eq!(policy.check_url(canonical), Ok(destination.clone()), "{:?}", text);
                let [written, kept] = [&text, canonical].map(|url| plainly_read_host(url).trim_end_matches('.').to_lowercase());
                if let Some(address) = destination.address() {
                    prop_assert!(is_public(address), "{:?} leads to {}", text, address);
                } else {
                    prop_assert_eq!(written, kept, "{:?}", text);
                }
                for read in [plainly_read_host(&text), plainly_read_host(canonical)] {
                    if let Some(address) = read_by_the_c_library(read) {
                        prop_assert!(is_public(address), "{:?}: the C library reads {}", text, address);
                        prop_assert_eq!(Some(address), destination.address(), "{:?}", text);
                    }
                }
            }
            Err(refusal) => {
                prop_assert!(is_code(refusal.code), "{}", refusal.code);
                prop_assert!(refusal.to_string().len() < 1_000 && !refusal.to_string().contains(['\0', '\r', '\n']));
            }
        }
    }

    #[test]
    fn an_address_is_judged_alike_here_and_there(v4 in any::<u32>(), v6 in any::<u128>(), global in any::<u128>()) {
        let policy = DestinationPolicy::default();
        let global = global & (u128::MAX >> 3) | 0x2000 << 112;
        let (six_to_four, teredo) = (0x2002 << 112 | v6 >> 16, 0x2001 << 112 | v6 >> 32);
        prop_assert_eq!(policy.check_address(Ipv4Addr::from(v4).into()).is_ok(), is_public_v4(v4.into()));
        // What the engine refuses beyond this is not wrong; what it lets through and this does not would be.
        for address in [v6, global, six_to_four, teredo].map(Ipv6Addr::from) {
            prop_assert!(policy.check_address(address.into()).is_err() || is_public_v6(address), "{}", address);
        }
    }

    #[test]
    fn a_network_opens_what_is_in_it_and_nothing_else(
        network in any::<u32>(), prefix in 0..=32_u8, inside in any::<u32>(), anywhere in any::<u32>(), text in "[0-9a-f:./]{0,24}",
    ) {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        let (base, inside) = (Ipv4Addr::from(network & mask), Ipv4Addr::from(network & mask | inside & !mask));
        let open = DestinationPolicy::default().allow_networks([format!("{base}/{prefix}")]).unwrap();
        prop_assert!(open.check_address(inside.into()).is_ok());
        let expected = anywhere & mask == network & mask || is_public_v4(anywhere.into());
        prop_assert_eq!(open.check_address(Ipv4Addr::from(anywhere).into()).is_ok(), expected);
        if network & !mask != 0 {
            let sloppy = DestinationPolicy::default().allow_networks([format!("{}/{prefix}", Ipv4Addr::from(network))]);
            prop_assert_eq!(sloppy.unwrap_err().code, "allowed_networks_invalid");
        }
        if let Err(refusal) = DestinationPolicy::default().allow_networks([&text]) {
            prop_assert_eq!(refusal.code, "allowed_networks_invalid", "{}", text);
        }
    }

    #[test]
    fn an_allowed_host_is_that_host_and_its_subdomains_only_where_it_says_so(
        pattern in "(\\*\\.)?[a-c]{1,2}\\.com", host in "([a-c]{1,2}\\.){0,2}[a-c]{1,3}\\.com\\.?", garbage in any::<String>(),
    ) {
        let policy = DestinationPolicy::default().allow_hosts([&pattern]).unwrap();
        let name = host.trim_end_matches('.');
        let expected = match pattern.strip_prefix('*') {
            Some(end) => name.ends_with(end) && name.len() > end.len(),
            None => name == pattern,
        };
        prop_assert_eq!(policy.check_url(&format!("https://{}/", host.to_uppercase())).is_ok(), expected, "{} {}", pattern, host);
        if let Err(refusal) = DestinationPolicy::default().allow_hosts([&garbage]) {
            prop_assert!(is_code(refusal.code));
        }
    }
}
