//! Which addresses are public, and which belong to this machine, private networks or clouds.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

/// What kind of network an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressScope {
    Public,
    Private,
    /// Includes the metadata services of clouds.
    LinkLocal,
}

/// Ranges of IPv4 that are not public, by the registry of special-purpose addresses, with the length of their prefix.
const SPECIAL_V4: [([u8; 4], u32); 19] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    // Carriers' own; with the metadata service of one cloud.
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    // Protocol assignments; with the metadata service of one cloud.
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 31, 196, 0], 24),
    ([192, 52, 193, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([192, 175, 48, 0], 24),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    // The metadata and agent service of one cloud, at an otherwise public address.
    ([168, 63, 129, 16], 32),
];

/// Ranges of IPv6 below `2000::/3` that are not public: protocol assignments with Teredo, documentation, 6to4.
const SPECIAL_V6: [([u16; 2], u32); 4] =
    [([0x2001, 0], 23), ([0x2001, 0xdb8], 32), ([0x2002, 0], 16), ([0x3fff, 0], 20)];

/// The address without the form that writes an IPv4 address as one of IPv6: connections to both lead to the same place.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The scope of an address. One of IPv6 that contains an IPv4 address has that one's scope, where translators use it.
pub(super) fn scope_of(address: IpAddr) -> AddressScope {
    match canonical(address) {
        IpAddr::V4(v4) => scope_of_v4(v4),
        IpAddr::V6(v6) => scope_of_v6(v6),
    }
}

fn scope_of_v4(address: Ipv4Addr) -> AddressScope {
    let bits = u32::from(address);
    let within = |(start, length): &([u8; 4], u32)| {
        (bits ^ u32::from_be_bytes(*start)).leading_zeros() >= *length
    };
    match SPECIAL_V4.iter().any(within) {
        _ if address.is_link_local() => AddressScope::LinkLocal,
        true => AddressScope::Private,
        false => AddressScope::Public,
    }
}

fn scope_of_v6(address: Ipv6Addr) -> AddressScope {
    let s = address.segments();
    let embedded = |hi: u16, lo: u16| {
        let [a, b] = hi.to_be_bytes();
        let [c, d] = lo.to_be_bytes();
        scope_of_v4(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        // NAT64, for hosts that have IPv6 only.
        [0x64, 0xff9b, 0, 0, 0, 0, hi, lo] => embedded(hi, lo),
        // Never public, but not less restricted than the IPv4 address in them: compatible, 6to4.
        [0, 0, 0, 0, 0, 0, hi, lo] | [0x2002, hi, lo, ..] => at_most_private(embedded(hi, lo)),
        _ if address.is_unicast_link_local() => AddressScope::LinkLocal,
        // ISATAP: a tunnel to the IPv4 address at the end.
        [.., 0 | 0x200, 0x5efe, hi, lo] => at_most_private(embedded(hi, lo)),
        _ if s[0] & 0xe000 != 0x2000 => AddressScope::Private,
        _ => {
            let bits = (u32::from(s[0]) << 16) | u32::from(s[1]);
            let within = |([hi, lo], length): &([u16; 2], u32)| {
                (bits ^ ((u32::from(*hi) << 16) | u32::from(*lo))).leading_zeros() >= *length
            };
            match SPECIAL_V6.iter().any(within) {
                true => AddressScope::Private,
                false => AddressScope::Public,
            }
        }
    }
}

fn at_most_private(scope: AddressScope) -> AddressScope {
    match scope {
        AddressScope::LinkLocal => AddressScope::LinkLocal,
        _ => AddressScope::Private,
    }
}

/// Whether a connection to this address stays on this machine, because it is one of its interfaces or routed as such.
pub(super) fn is_own(address: IpAddr) -> bool {
    // A range that is routed to this machine may have another source, but a socket can be bound to its addresses. Some
    // machines let sockets be bound to any address; there, to one that nobody has as well.
    let binds = |address: IpAddr| UdpSocket::bind((address, 0)).map(drop);
    let (any, nobodys): (SocketAddr, IpAddr) = match address {
        IpAddr::V4(_) => {
            ((Ipv4Addr::UNSPECIFIED, 0).into(), Ipv4Addr::new(203, 0, 113, 254).into())
        }
        IpAddr::V6(_) => (
            (Ipv6Addr::UNSPECIFIED, 0).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe).into(),
        ),
    };
    // A probe that fails for another reason, as the lack of descriptors, proves nothing: the address may be its own.
    match binds(address) {
        Ok(()) if binds(nobodys).is_err() => return true,
        Err(error) if !means_elsewhere(&error) => return true,
        _ => {}
    }
    // Connecting a datagram socket sends nothing: it chooses a route, and with it the source. The kernel reaches an
    // address of its own from that address.
    let source = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    match source {
        Ok(source) => source.ip() == address,
        Err(error) => !means_elsewhere(&error),
    }
}

/// Whether binding or connecting a socket failed because the address is not one of this machine.
fn means_elsewhere(error: &io::Error) -> bool {
    let no_route = [libc::ENETUNREACH, libc::EHOSTUNREACH];
    let not_here = [libc::EADDRNOTAVAIL, libc::EAFNOSUPPORT];
    error.raw_os_error().is_some_and(|code| not_here.contains(&code) || no_route.contains(&code))
}

/// Whether this machine has a route to public addresses of IPv6.
pub(super) fn has_ipv6() -> bool {
    let public = Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1);
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok_and(|socket| {
        socket.connect((public, 9)).is_ok()
            && socket.local_addr().is_ok_and(|own| scope_of(own.ip()) == AddressScope::Public)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_classified() {
        let check = |scope: AddressScope, all: &str| {
            for text in all.split_whitespace() {
                assert_eq!(scope_of(text.parse().unwrap()), scope, "{text}");
            }
        };
        check(
            AddressScope::Public,
            "8.8.8.8 1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 169.253.255.255 \
             172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 \
             168.63.129.15 168.63.129.17 2606:4700::1 2001:200::1 2003::1 2400::1 3ffe::1 ::ffff:8.8.8.8 \
             64:ff9b::808:808",
        );
        check(
            AddressScope::Private,
            "0.0.0.0 0.1.2.3 10.1.2.3 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.255 172.16.0.1 \
             172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.7 \
             203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16",
        );
        check(
            AddressScope::Private,
            ":: ::1 ::2 ::7f00:1 ::808:808 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:168.63.129.16 64:ff9b::7f00:1 \
             64:ff9b::10.0.0.1 64:ff9b:1::808:808 100::1 2001::1 2001:0:808:808::1 2001:db8::1 2001:10::1 2001:20::1 \
             2002:7f00:1:: 2002:a00:1:: 2002:808:808:: 3fff::1 4000::1 5f00::1 fc00::1 fd00::1 fd00:ec2::254 \
             fd20:ce::254 fec0::1 ff02::1 2606:4700::5efe:7f00:1 2606:4700::200:5efe:a00:1",
        );
        check(
            AddressScope::LinkLocal,
            "169.254.169.254 169.254.0.23 fe80::1 febf::1 ::ffff:169.254.169.254 2002:a9fe:a9fe::1 ::169.254.169.254 \
             64:ff9b::a9fe:a9fe fe80::5efe:808:808",
        );
    }

    #[test]
    fn mapped_addresses_are_those_of_ipv4() {
        assert_eq!(canonical("::ffff:1.2.3.4".parse().unwrap()).to_string(), "1.2.3.4");
        assert_eq!(canonical("2606::1".parse().unwrap()).to_string(), "2606::1");
    }

    #[test]
    fn addresses_of_this_machine_are_its_own() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(is_own(Ipv4Addr::new(127, 1, 2, 3).into()));
        assert!(!is_own(Ipv4Addr::new(8, 8, 8, 8).into()));
        let route = UdpSocket::bind("0.0.0.0:0").unwrap();
        if route.connect("8.8.8.8:9").is_ok() {
            assert!(is_own(route.local_addr().unwrap().ip()));
        }
    }

    #[test]
    fn a_probe_that_fails_does_not_make_an_address_public() {
        let elsewhere = |code| means_elsewhere(&io::Error::from_raw_os_error(code));
        assert!(elsewhere(libc::EADDRNOTAVAIL) && elsewhere(libc::EAFNOSUPPORT));
        assert!(elsewhere(libc::ENETUNREACH) && elsewhere(libc::EHOSTUNREACH));
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EACCES] {
            assert!(!elsewhere(code), "{code}");
        }
    }

    proptest! {
        /// No form of IPv6 makes an address public that is not, whatever prefix a translator could have.
        #[test]
        fn no_form_of_ipv6_makes_an_address_public(v4: [u8; 4]) {
            let v4 = Ipv4Addr::from(v4);
            let [a, b] = [u16::from_be_bytes([v4.octets()[0], v4.octets()[1]]), u16::from_be_bytes([v4.octets()[2], v4.octets()[3]])];
            if scope_of(v4.into()) != AddressScope::Public {
                for s in [
                    [0, 0, 0, 0, 0, 0xffff, a, b],
                    [0, 0, 0, 0, 0, 0, a, b],
                    [0x64, 0xff9b, 0, 0, 0, 0, a, b],
                    [0x2002, a, b, 0, 0, 0, 0, 1],
                    [0x2001, 0, a, b, 0, 0, !a, !b],
                    [0x2606, 0, 0, 0, 0, 0x5efe, a, b],
                ] {
                    prop_assert_ne!(scope_of(Ipv6Addr::from(s).into()), AddressScope::Public);
                }
            }
        }
    }
}
