//! The networks that this machine is directly connected to. Hosts there are its neighbours, whether or not their addresses
//! are public: an institute's own servers often have such.

use std::{
    io,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::sys;

/// How long the list of interfaces is kept.
const KEEP: Duration = Duration::from_secs(5);

static KNOWN: Mutex<Option<(Instant, Vec<Prefix>)>> = Mutex::new(None);

/// The network of an interface: its address, and the mask of its prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    address: IpAddr,
    mask: IpAddr,
}

impl Prefix {
    /// `None` where the prefix is one address only, and so no network; or all addresses, as some tunnels have it.
    fn new(address: IpAddr, mask: IpAddr) -> Option<Self> {
        let is_network = match mask {
            IpAddr::V4(mask) => !matches!(u32::from(mask), 0 | u32::MAX),
            IpAddr::V6(mask) => !matches!(u128::from(mask), 0 | u128::MAX),
        };
        is_network.then_some(Self { address, mask })
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, self.mask, address) {
            (IpAddr::V4(own), IpAddr::V4(mask), IpAddr::V4(address)) => {
                (u32::from(own) ^ u32::from(address)) & u32::from(mask) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(mask), IpAddr::V6(address)) => {
                (u128::from(own) ^ u128::from(address)) & u128::from(mask) == 0
            }
            _ => false,
        }
    }
}

/// Whether an address belongs to a network that this machine is connected to. Every address does where these cannot be
/// listed.
pub(super) fn is_on_link(address: IpAddr) -> bool {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= KEEP) {
        *known = listed().ok().map(|prefixes| (Instant::now(), prefixes));
    }
    known.as_ref().is_none_or(|(_, prefixes)| is_among(prefixes, address))
}

/// Lets this test's process have an interface with this address and mask.
#[cfg(test)]
pub(super) fn pretend(address: std::net::Ipv4Addr, mask: std::net::Ipv4Addr) {
    let prefix = Prefix::new(address.into(), mask.into());
    *KNOWN.lock().unwrap() = Some((Instant::now(), prefix.into_iter().collect()));
}

fn listed() -> io::Result<Vec<Prefix>> {
    let all = sys::interface_addresses()?;
    Ok(all.into_iter().filter_map(|(address, mask)| Prefix::new(address, mask)).collect())
}

fn is_among(prefixes: &[Prefix], address: IpAddr) -> bool {
    prefixes.iter().any(|prefix| prefix.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_those_of_the_interfaces_prefixes() {
        let interfaces = [
            ("129.70.12.5", "255.255.252.0"),
            ("34.1.2.3", "255.255.255.255"),
            ("10.8.0.2", "0.0.0.0"),
            ("2a02:1:2:3::7", "ffff:ffff:ffff:ffff::"),
            ("2a02:9::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ];
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        let prefixes: Vec<_> = interfaces
            .iter()
            .filter_map(|(address, mask)| Prefix::new(parse(address), parse(mask)))
            .collect();
        for near in ["129.70.12.1", "129.70.15.255", "2a02:1:2:3::1", "2a02:1:2:3:ffff::"] {
            assert!(is_among(&prefixes, parse(near)), "{near}");
        }
        for far in
            ["129.70.16.0", "129.70.11.9", "34.1.2.4", "8.8.8.8", "2a02:1:2:4::1", "2a02:9::2"]
        {
            assert!(!is_among(&prefixes, parse(far)), "{far}");
        }
    }

    #[test]
    fn interfaces_of_this_machine_are_listed() {
        assert!(is_on_link(std::net::Ipv4Addr::LOCALHOST.into()));
        assert!(is_on_link(std::net::Ipv4Addr::new(127, 9, 9, 9).into()));
    }
}
