//! Addresses: which are not on the public internet, and why.
//!
//! The tables follow IANA's registries of special-purpose addresses, and add the metadata services of the large clouds,
//! one of which has a public address. In IPv6 the world is turned around: only `2000::/3` has been given out for global
//! use, so everything else is refused even where no table names it.
//!
//! Many IPv6 forms carry an IPv4 address, and a translator, a tunnel or the operating system itself sends the packet on
//! to that. They are refused when what they carry is refused, under a code that names the form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::FIELD;
use crate::refusal::Refusal;

/// The metadata service of most clouds.
pub(super) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Why an address is not public, or in which form it carries another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    code: &'static str,
    /// "… is a loopback address".
    what: &'static str,
}

const UNSPECIFIED: Kind = Kind { code: "destination_unspecified_address", what: "an unspecified address" };
const LOOPBACK: Kind = Kind { code: "destination_loopback_address", what: "a loopback address" };
const PRIVATE: Kind = Kind { code: "destination_private_address", what: "a private address" };
const SHARED: Kind = Kind { code: "destination_shared_address", what: "a shared address of a provider's network" };
const LINK_LOCAL: Kind = Kind { code: "destination_link_local_address", what: "a link-local address" };
const METADATA_SERVICE: Kind =
    Kind { code: "destination_metadata_address", what: "the address of a cloud's metadata service" };
const DOCUMENTATION: Kind = Kind { code: "destination_documentation_address", what: "an address for documentation" };
const BENCHMARK: Kind = Kind { code: "destination_benchmark_address", what: "an address for benchmarks" };
const MULTICAST: Kind = Kind { code: "destination_multicast_address", what: "a multicast address" };
const BROADCAST: Kind = Kind { code: "destination_broadcast_address", what: "a broadcast address" };
const RESERVED: Kind = Kind { code: "destination_reserved_address", what: "a reserved address" };
const UNIQUE_LOCAL: Kind = Kind { code: "destination_unique_local_address", what: "a unique-local address" };
const SITE_LOCAL: Kind = Kind { code: "destination_site_local_address", what: "a site-local address" };

const COMPATIBLE: Kind = Kind { code: "destination_compatible_address", what: "an IPv4-compatible address" };
const MAPPED: Kind = Kind { code: "destination_mapped_address", what: "an IPv4-mapped address" };
const TRANSLATED: Kind = Kind { code: "destination_translated_address", what: "an IPv4-translated address" };
const NAT64: Kind = Kind { code: "destination_nat64_address", what: "a NAT64 address" };
const SIX_TO_FOUR: Kind = Kind { code: "destination_6to4_address", what: "a 6to4 address" };
const TEREDO: Kind = Kind { code: "destination_teredo_address", what: "a Teredo address" };
const ISATAP: Kind = Kind { code: "destination_isatap_address", what: "an ISATAP address" };

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    let mut bits = 0;
    let mut index = 0;
    while index < segments.len() {
        bits = bits << 16 | segments[index] as u128;
        index += 1;
    }
    Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), prefix)
}

/// The first that contains an address says what it is, so single addresses stand before the networks around them.
const IPV4: [(Ipv4Net, Kind); 21] = [
    (Ipv4Net::new_assert(METADATA, 32), METADATA_SERVICE),
    // Credentials of containers and pods at Amazon.
    (v4(169, 254, 170, 2, 32), METADATA_SERVICE),
    (v4(169, 254, 170, 23, 32), METADATA_SERVICE),
    (v4(100, 100, 100, 200, 32), METADATA_SERVICE), // Alibaba
    (v4(192, 0, 0, 192, 32), METADATA_SERVICE),     // Oracle
    (v4(168, 63, 129, 16, 32), METADATA_SERVICE),   // Azure, in public space
    (v4(0, 0, 0, 0, 8), UNSPECIFIED),
    (v4(10, 0, 0, 0, 8), PRIVATE),
    (v4(100, 64, 0, 0, 10), SHARED),
    (v4(127, 0, 0, 0, 8), LOOPBACK),
    (v4(169, 254, 0, 0, 16), LINK_LOCAL),
    (v4(172, 16, 0, 0, 12), PRIVATE),
    (v4(192, 0, 0, 0, 24), RESERVED),
    (v4(192, 0, 2, 0, 24), DOCUMENTATION),
    (v4(192, 88, 99, 0, 24), RESERVED),
    (v4(192, 168, 0, 0, 16), PRIVATE),
    (v4(198, 18, 0, 0, 15), BENCHMARK),
    (v4(198, 51, 100, 0, 24), DOCUMENTATION),
    (v4(203, 0, 113, 0, 24), DOCUMENTATION),
    (v4(224, 0, 0, 0, 4), MULTICAST),
    // 255.255.255.255 is told apart below.
    (v4(240, 0, 0, 0, 4), RESERVED),
];

const IPV6: [(Ipv6Net, Kind); 14] = [
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), METADATA_SERVICE), // Amazon
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), METADATA_SERVICE),  // Google
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), UNSPECIFIED),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), LOOPBACK),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), BENCHMARK),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), DOCUMENTATION),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), DOCUMENTATION),
    // Protocol assignments: identifiers that are not addresses, anycast services, and Teredo, which is looked into first.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), RESERVED),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), UNIQUE_LOCAL),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), LINK_LOCAL),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), SITE_LOCAL),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), MULTICAST),
    // A translator of the operator's own; where in it the IPv4 address stands is the operator's choice.
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), NAT64),
    // The test network that came before today's, given back long ago.
    (v6([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16), RESERVED),
];

/// What has been given out for global use.
const GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Outside of global use by the tables above, but no worse than the IPv4 address that is carried: mapped, NAT64, Teredo.
const LEADS_TO_IPV4: [Ipv6Net; 3] = [
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
    v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32),
];

/// Refuses what is not public.
pub(super) fn check(address: IpAddr) -> Result<(), Refusal> {
    match address {
        IpAddr::V4(address) => match kind_of_ipv4(address) {
            Some(kind) => Err(refusal(kind.code, address.into(), kind.what)),
            None => Ok(()),
        },
        IpAddr::V6(address) => check_ipv6(address),
    }
}

fn check_ipv6(address: Ipv6Addr) -> Result<(), Refusal> {
    for (form, carried) in embedded(address).into_iter().flatten() {
        if let Some(kind) = kind_of_ipv4(carried) {
            let what = format!("{} that carries {carried}, {}", form.what, kind.what);
            return Err(refusal(form.code, address.into(), &what));
        }
    }
    if LEADS_TO_IPV4.iter().any(|network| network.contains(&address)) {
        return Ok(());
    }
    if let Some((_, kind)) = IPV6.iter().find(|(network, _)| network.contains(&address)) {
        return Err(refusal(kind.code, address.into(), kind.what));
    }
    if !GLOBAL.contains(&address) {
        return Err(refusal(RESERVED.code, address.into(), RESERVED.what));
    }
    Ok(())
}

fn kind_of_ipv4(address: Ipv4Addr) -> Option<Kind> {
    if address.is_broadcast() {
        return Some(BROADCAST);
    }
    IPV4.iter().find(|(network, _)| network.contains(&address)).map(|(_, kind)| *kind)
}

/// The IPv4 addresses that an IPv6 address carries, each with the form that carries it.
fn embedded(address: Ipv6Addr) -> [Option<(Kind, Ipv4Addr)>; 3] {
    let segments = address.segments();
    let at = |index: usize| {
        let [a, b] = segments[index].to_be_bytes();
        let [c, d] = segments[index + 1].to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    let by_prefix = match segments {
        // These two have names of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0, _, _] => Some((COMPATIBLE, at(6))),
        [0, 0, 0, 0, 0, 0xffff, _, _] => Some((MAPPED, at(6))),
        [0, 0, 0, 0, 0xffff, 0, _, _] => Some((TRANSLATED, at(6))),
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some((NAT64, at(6))),
        [0x2002, ..] => Some((SIX_TO_FOUR, at(1))),
        [0x2001, 0, ..] => Some((TEREDO, at(2))),
        _ => None,
    };
    // Teredo carries its server as it is, and its client with all bits inverted.
    let teredo_client = match segments {
        [0x2001, 0, ..] => Some((TEREDO, Ipv4Addr::from(!u32::from(at(6))))),
        _ => None,
    };
    // ISATAP puts the address into the second half, below any prefix.
    let isatap = match segments {
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => Some((ISATAP, at(6))),
        _ => None,
    };
    [by_prefix, teredo_client, isatap]
}

fn refusal(code: &'static str, address: IpAddr, what: &str) -> Refusal {
    // An IPv4-mapped address is opened by the network of the address that it maps.
    let opened_by = IpNet::from(address.to_canonical());
    Refusal::new(code, FIELD, format!("{address} is {what}"))
        .hint(format!("to allow it, add `{opened_by}` or a network around it to `allowed_networks`"))
}

pub(super) fn touches_loopback(network: &IpNet) -> bool {
    match network {
        IpNet::V4(network) => {
            let loopback = v4(127, 0, 0, 0, 8);
            loopback.contains(network) || network.contains(&loopback)
        }
        IpNet::V6(network) => network.contains(&Ipv6Addr::LOCALHOST),
    }
}

/// A CIDR or a single address. A network of IPv4-mapped addresses is the IPv4 network, since both spellings are the same
/// place and addresses are compared in the shorter one.
pub(super) fn parse_network(text: &str) -> Result<IpNet, Refusal> {
    let refuse = |reason: &str| {
        let shown: String = text.chars().take(64).flat_map(char::escape_default).collect();
        Refusal::new("allowed_networks_invalid", "allowed_networks", format!("`{shown}` is not a network: {reason}"))
    };
    let usage = "write it as `10.0.0.0/8`, `fd00::/8` or a single address";
    let network = match text.parse::<IpNet>() {
        Ok(network) => network,
        Err(_) => {
            IpNet::from(text.parse::<IpAddr>().map_err(|_| refuse("it is neither a CIDR nor an address").hint(usage))?)
        }
    };
    if network != network.trunc() {
        let hint = format!("write `{}`, or `{}` for the address alone", network.trunc(), network.addr());
        return Err(refuse("its address has bits outside its prefix").hint(hint));
    }
    match network {
        IpNet::V6(mapped) if mapped.prefix_len() >= 96 => match mapped.addr().to_ipv4_mapped() {
            Some(address) => Ok(Ipv4Net::new_assert(address, mapped.prefix_len() - 96).into()),
            None => Ok(network),
        },
        _ => Ok(network),
    }
}
