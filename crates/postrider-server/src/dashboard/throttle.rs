//! How often somebody may try to sign in.
//!
//! Keys cannot be guessed, so this is about quiet rather than safety: whoever tries keys in a loop neither fills the log nor
//! keeps the database busy. Only failures count. They are counted by address; behind a proxy that is the proxy's.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How many failures in a row are let through.
const AT_ONCE: u32 = 10;

/// After this long one more.
const ONE_PER: Duration = Duration::from_secs(6);

/// For this many addresses failures are remembered.
const MOST: usize = 1_024;

/// Failures by address: each moves the instant on at which all of them are forgiven.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<IpAddr, Instant>>);

impl Throttle {
    /// How long somebody has to wait before the next try, if at all.
    pub(super) fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let failures = self.0.lock().expect("no code panics while it holds this lock");
        let forgiven_at = failures.get(&network(address))?;
        let owed = forgiven_at.saturating_duration_since(now);
        let allowed = ONE_PER * (AT_ONCE - 1);
        owed.checked_sub(allowed).filter(|wait| !wait.is_zero())
    }

    pub(super) fn failed(&self, address: IpAddr, now: Instant) {
        let mut failures = self.0.lock().expect("no code panics while it holds this lock");
        if failures.len() >= MOST {
            failures.retain(|_, forgiven_at| *forgiven_at > now);
        }
        if failures.len() >= MOST {
            failures.clear();
        }
        let forgiven_at = failures.entry(network(address)).or_insert(now);
        *forgiven_at = (*forgiven_at).max(now) + ONE_PER;
    }
}

/// Whoever has one IPv6 address has 2^64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_ten_failures_there_is_one_try_every_six_seconds() {
        let throttle = Throttle::default();
        let (here, elsewhere): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let now = Instant::now();
        for _ in 0..AT_ONCE {
            assert_eq!(throttle.wait(here, now), None);
            throttle.failed(here, now);
        }
        assert_eq!(throttle.wait(here, now), Some(ONE_PER));
        assert_eq!(throttle.wait(elsewhere, now), None);
        assert_eq!(throttle.wait(here, now + ONE_PER), None);
        throttle.failed(here, now + ONE_PER);
        assert!(throttle.wait(here, now + ONE_PER).is_some());
        assert_eq!(throttle.wait(here, now + ONE_PER * 20), None);
    }

    #[test]
    fn one_ipv6_network_is_one_address_and_memory_is_bounded() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for last in 0..20_000_u128 {
            throttle.failed(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | last)), now);
        }
        assert!(throttle.wait("2001:db8::ffff".parse().unwrap(), now).is_some());
        for first in 0..20_000_u32 {
            throttle.failed(IpAddr::V4(first.into()), now);
        }
        assert!(throttle.0.lock().unwrap().len() <= MOST);
    }
}
