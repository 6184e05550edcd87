//! Destinations by property: no spelling of a denied address passes, nothing panics, and canonical forms are stable.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use postrider::DestinationPolicy;
use proptest::prelude::*;

/// Denied networks, written down here a second time on purpose: address, prefix length.
const DENIED_IPV4: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([169, 254, 169, 254], 32),
    ([168, 63, 129, 16], 32),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

const DENIED_IPV6: [(Ipv6Addr, u32); 9] = [
    (Ipv6Addr::UNSPECIFIED, 128),
    (Ipv6Addr::LOCALHOST, 128),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

fn denied_ipv4() -> impl Strategy<Value = Ipv4Addr> {
    (proptest::sample::select(&DENIED_IPV4[..]), any::<u32>()).prop_map(|((network, prefix), bits)| {
        let host_bits = u32::MAX.checked_shr(prefix).unwrap_or(0);
        Ipv4Addr::from(u32::from_be_bytes(network) | (bits & host_bits))
    })
}

fn denied_ipv6() -> impl Strategy<Value = Ipv6Addr> {
    (proptest::sample::select(&DENIED_IPV6[..]), any::<u128>()).prop_map(|((network, prefix), bits)| {
        let host_bits = u128::MAX.checked_shr(prefix).unwrap_or(0);
        Ipv6Addr::from(u128::from(network) | (bits & host_bits))
    })
}

/// One number of an IPv4 address: decimal, octal with any number of zeros, or hexadecimal in either case.
fn number(value: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        Just(value.to_string()),
        (1_usize..6).prop_map(move |zeros| format!("{}{value:o}", "0".repeat(zeros))),
        (0_usize..6).prop_map(move |zeros| format!("0x{}{value:x}", "0".repeat(zeros))),
        (0_usize..6).prop_map(move |zeros| format!("0X{}{value:X}", "0".repeat(zeros))),
    ]
}

/// A host in ASCII that a lenient reader takes for `address`.
fn ipv4_spelling(address: Ipv4Addr) -> impl Strategy<Value = String> {
    let [a, b, c, d] = address.octets().map(u32::from);
    let whole = u32::from(address);
    let dotted = prop_oneof![
        (number(a), number(b), number(c), number(d)).prop_map(|(a, b, c, d)| format!("{a}.{b}.{c}.{d}")),
        (number(a), number(b), number(c << 8 | d)).prop_map(|(a, b, c)| format!("{a}.{b}.{c}")),
        (number(a), number(whole & 0x00ff_ffff)).prop_map(|(a, b)| format!("{a}.{b}")),
        number(whole),
    ];
    (dotted, any::<bool>()).prop_map(|(host, dot)| if dot { format!("{host}.") } else { host })
}

/// Any characters of the host replaced by their full-width, circled or percent-encoded forms.
fn disguise(host: String) -> impl Strategy<Value = String> {
    let length = host.chars().count();
    proptest::collection::vec(0_u8..5, length).prop_map(move |choices| {
        let replace = |(character, choice): (char, u8)| match (choice, character) {
            (1, '!'..='~') => char::from_u32(u32::from(character) + 0xfee0).unwrap().to_string(),
            (2, '1'..='9') => char::from_u32(u32::from(character) - u32::from('1') + 0x2460).unwrap().to_string(),
            (2, '.') => "\u{3002}".to_owned(),
            (3, _) => format!("%{:02x}", u32::from(character)),
            (4, _) => character.to_uppercase().to_string(),
            _ => character.to_string(),
        };
        host.chars().zip(choices.iter().copied()).map(replace).collect()
    })
}

/// IPv6 addresses that lead to an IPv4 address.
fn carriers(address: Ipv4Addr) -> Vec<Ipv6Addr> {
    let low = u128::from(u32::from(address));
    let inverted = u128::from(!u32::from(address));
    [
        0xffff_u128 << 32 | low,
        low,
        0xffff_u128 << 48 | low,
        0x0064_ff9b_u128 << 96 | low,
        0x0064_ff9b_0001_u128 << 80 | low,
        0x2002_u128 << 112 | low << 80,
        0x2002_u128 << 112 | low << 80 | 1,
        0x2001_0000_u128 << 96 | low << 64,
        0x2001_0000_u128 << 96 | 0x0808_0808_u128 << 64 | inverted,
        0x2606_4700_u128 << 96 | 0x5efe_u128 << 32 | low,
        0x2606_4700_u128 << 96 | 0x0200_5efe_u128 << 32 | low,
    ]
    .map(Ipv6Addr::from)
    .to_vec()
}

/// Compressed, full, zero-padded, upper case, or ending in dotted decimals.
fn ipv6_spelling(address: Ipv6Addr) -> impl Strategy<Value = String> {
    let segments = address.segments();
    let joined = |format: fn(u16) -> String| segments.map(format).join(":");
    let [.., high, low] = segments;
    let [a, b, c, d] = (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
    let dotted = segments[..6].iter().map(|segment| format!("{segment:x}")).collect::<Vec<_>>().join(":");
    proptest::sample::select(vec![
        address.to_string(),
        address.to_string().to_uppercase(),
        joined(|segment| format!("{segment:x}")),
        joined(|segment| format!("{segment:04X}")),
        format!("{dotted}:{a}.{b}.{c}.{d}"),
    ])
}

fn around(host: &str, scheme: &str, port: Option<u16>, path: &str) -> String {
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{path}")
}

fn scheme() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["http", "https", "HTTP", "hTTpS"])
}

fn path() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["", "/", "/a/b?c=d", "?x=8.8.8.8"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_spelling_of_a_denied_ipv4_address_passes(
        (address, host) in denied_ipv4().prop_flat_map(|address| (Just(address), ipv4_spelling(address))),
        scheme in scheme(), port in proptest::option::of(1_u16..), path in path(),
    ) {
        let refusal = DestinationPolicy::default().check_url(&around(&host, scheme, port, path)).unwrap_err();
        let direct = DestinationPolicy::default().check_address(address.into()).unwrap_err();
        // The spelling was understood as that address, rather than refused for some other reason.
        prop_assert_eq!(refusal.code, direct.code);
    }

    #[test]
    fn no_disguise_of_a_denied_ipv4_address_passes(
        host in denied_ipv4().prop_flat_map(ipv4_spelling).prop_flat_map(disguise),
        scheme in scheme(), path in path(),
    ) {
        prop_assert!(DestinationPolicy::default().check_url(&around(&host, scheme, None, path)).is_err());
    }

    #[test]
    fn no_ipv6_address_that_carries_a_denied_ipv4_address_passes(
        (carrier, host) in denied_ipv4()
            .prop_flat_map(|address| proptest::sample::select(carriers(address)))
            .prop_flat_map(|carrier| (Just(carrier), ipv6_spelling(carrier))),
        scheme in scheme(), port in proptest::option::of(1_u16..),
    ) {
        let policy = DestinationPolicy::default();
        prop_assert!(policy.check_address(carrier.into()).is_err());
        let refusal = policy.check_url(&around(&format!("[{host}]"), scheme, port, "/")).unwrap_err();
        prop_assert_eq!(refusal.code, policy.check_address(carrier.into()).unwrap_err().code);
    }

    #[test]
    fn no_spelling_of_a_denied_ipv6_address_passes(
        (address, host) in denied_ipv6().prop_flat_map(|address| (Just(address), ipv6_spelling(address))),
        scheme in scheme(),
    ) {
        let policy = DestinationPolicy::default();
        let refusal = policy.check_url(&around(&format!("[{host}]"), scheme, None, "/")).unwrap_err();
        prop_assert_eq!(refusal.code, policy.check_address(address.into()).unwrap_err().code);
    }

    #[test]
    fn a_spelling_of_a_public_address_leads_to_that_address(
        (address, host) in any::<u32>().prop_map(Ipv4Addr::from)
            .prop_filter("public", |address| DestinationPolicy::default().check_address((*address).into()).is_ok())
            .prop_flat_map(|address| (Just(address), ipv4_spelling(address))),
    ) {
        let destination = DestinationPolicy::default().check_url(&around(&host, "http", None, "/")).unwrap();
        prop_assert_eq!(destination.address(), Some(IpAddr::V4(address)));
    }

    #[test]
    fn nothing_makes_it_panic_and_what_is_accepted_stays_as_it_is(text in any::<String>()) {
        is_stable(&text)?;
    }

    #[test]
    fn nothing_behind_a_scheme_makes_it_panic(text in "https?:/{0,3}[ -~]{0,60}") {
        is_stable(&text)?;
    }

    #[test]
    fn what_looks_like_a_url_has_a_stable_canonical_form(
        text in r"[hH]ttps?://([a-zA-Z0-9_-]{1,6}\.){1,3}(com|COM|de\.|x1)(:[0-9]{1,5})?(/[!-~]{0,40})?(\?[!-~]{0,40})?",
    ) {
        is_stable(&text)?;
    }

    #[test]
    fn arbitrary_addresses_are_judged_alike_in_both_spellings(bits in any::<u32>()) {
        let (short, mapped) = (Ipv4Addr::from(bits), Ipv4Addr::from(bits).to_ipv6_mapped());
        let policy = DestinationPolicy::default();
        prop_assert_eq!(policy.check_address(short.into()).is_ok(), policy.check_address(mapped.into()).is_ok());
        let open = policy.allow_networks([short.to_string()]).unwrap();
        prop_assert!(open.check_address(short.into()).is_ok() && open.check_address(mapped.into()).is_ok());
    }
}

/// Accepted text has a canonical form that is accepted again unchanged, is plain ASCII, and is a URI to an HTTP client.
fn is_stable(text: &str) -> Result<(), TestCaseError> {
    let policies =
        [DestinationPolicy::default(), DestinationPolicy::default().allow_networks(["0.0.0.0/0", "::/0"]).unwrap()];
    for policy in policies {
        if let Ok(destination) = policy.check_url(text) {
            let canonical = destination.as_str();
            prop_assert_eq!(policy.check_url(canonical), Ok(destination.clone()), "{}", canonical);
            prop_assert!(canonical.is_ascii());
            let uri: http::Uri =
                canonical.parse().map_err(|error| TestCaseError::fail(format!("{canonical}: {error}")))?;
            prop_assert_eq!(uri.host().map(str::to_owned), Some(destination.host().to_string()));
        }
    }
    Ok(())
}
