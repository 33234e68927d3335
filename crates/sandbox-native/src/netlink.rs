//! Messages to the kernel's network configuration, for the network namespace of a new sandbox: routes and the rule of the
//! transparent relay. No program such as `ip` or `nft` is needed.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::OwnedFd,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv,
        send, socket_with,
    },
};

/// An IP version, as the relay is set up for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The address of a sandbox besides loopback, from ranges that no host on the Internet has. Resolvers of C libraries
    /// find no address of a family of which only loopback is configured. The private one of IPv6 makes them prefer IPv4.
    fn own_address(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(192, 0, 2, 1).into(),
            Self::V6 => Ipv6Addr::new(0xfd6c, 0x6973, 0, 0, 0, 0, 0, 1).into(),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::V4 => libc::AF_INET as u8,
            Self::V6 => libc::AF_INET6 as u8,
        }
    }
}

const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const ACK: u16 = libc::NLM_F_ACK as u16;
const CREATE: u16 = libc::NLM_F_CREATE as u16;
const APPEND: u16 = libc::NLM_F_APPEND as u16;
/// Length of a message's header.
const HEADER: usize = 16;

/// Messages under construction, sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// How many messages have to be acknowledged.
    acknowledged: usize,
    sequence: u32,
}

impl Batch {
    /// Adds a message: its type, flags, fixed part and attributes.
    fn message(&mut self, kind: u16, flags: u16, fixed: &[u8], attributes: Attributes) {
        let length = (HEADER + fixed.len() + attributes.0.len()) as u32;
        self.sequence += 1;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((REQUEST | flags).to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend(0u32.to_ne_bytes());
        self.bytes.extend(fixed);
        self.bytes.extend(attributes.0);
        self.acknowledged += usize::from(flags & ACK != 0);
    }

    /// Sends everything and checks that the kernel did it. The protocol of routes is the default one.
    fn send(self, protocol: Option<Protocol>) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        if send(&socket, &self.bytes, SendFlags::empty())? != self.bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        match acknowledgements(&socket)? {
            count if count == self.acknowledged => Ok(()),
            _ => Err(io::Error::other("the kernel did not answer every message")),
        }
    }
}

/// Counts the kernel's answers, all of which wait when the request has been sent. The first error is returned.
fn acknowledgements(socket: &OwnedFd) -> io::Result<usize> {
    let mut count = 0;
    let mut buffer = [0u8; 8192];
    loop {
        let received = match recv(socket, &mut buffer, RecvFlags::empty()) {
            Ok((_, received)) => received.min(buffer.len()),
            Err(Errno::AGAIN) => return Ok(count),
            Err(error) => return Err(error.into()),
        };
        let mut rest = &buffer[..received];
        while rest.len() >= HEADER + 4 {
            let word = |at: usize| {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(&rest[at..at + 4]);
                u32::from_ne_bytes(bytes)
            };
            let (length, kind) = (word(0) as usize, word(4) as u16);
            match (kind, word(HEADER) as i32) {
                (kind, _) if i32::from(kind) != libc::NLMSG_ERROR => {}
                (_, 0) => count += 1,
                (_, error) => return Err(io::Error::from_raw_os_error(error.wrapping_neg())),
            }
            rest = rest.get(length.max(HEADER).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Attributes: type, length and value, aligned to four bytes.
#[derive(Clone, Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// A number in network byte order, as netfilter has them.
    fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), b"\0"].concat())
    }

    fn nested(self, kind: u16, value: Self) -> Self {
        self.bytes(kind | libc::NLA_F_NESTED as u16, &value.0)
    }
}

/// The index of the loopback interface, in every network namespace.
const LOOPBACK: u32 = 1;

/// Makes every address one of this network namespace, reached over its loopback interface, which gets another address.
///
/// Must only be called in a new namespace without other interfaces.
pub(crate) fn route_everything_to_loopback(family: Family) -> io::Result<()> {
    let own = octets(family.own_address());
    let mut batch = Batch::default();
    // ifaddrmsg: family, length of the prefix, flags, scope, interface.
    let no_detection = libc::IFA_F_NODAD as u8;
    let mut fixed =
        vec![family.number(), own.len() as u8 * 8, no_detection, libc::RT_SCOPE_UNIVERSE];
    fixed.extend(LOOPBACK.to_ne_bytes());
    let attributes =
        Attributes::default().bytes(libc::IFA_LOCAL, &own).bytes(libc::IFA_ADDRESS, &own);
    batch.message(libc::RTM_NEWADDR, CREATE | ACK, &fixed, attributes);
    // rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags.
    let scope = match family {
        Family::V4 => libc::RT_SCOPE_HOST,
        Family::V6 => libc::RT_SCOPE_UNIVERSE,
    };
    let mut fixed = vec![family.number(), 0, 0, 0, libc::RT_TABLE_LOCAL];
    fixed.extend([libc::RTPROT_STATIC, scope, libc::RTN_LOCAL]);
    fixed.extend(0u32.to_ne_bytes());
    let attributes = Attributes::default()
        .bytes(libc::RTA_OIF, &LOOPBACK.to_ne_bytes())
        .bytes(libc::RTA_PREFSRC, &own);
    batch.message(libc::RTM_NEWROUTE, CREATE | ACK, &fixed, attributes);
    batch.send(None)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().into(),
        IpAddr::V6(v6) => v6.octets().into(),
    }
}

/// Gives every TCP connection to an address other than loopback and the sandbox's own to the transparent socket that listens at this port of
/// loopback. The socket of an accepted connection has the address the client asked for as its own.
///
/// The rule keeps no state of connections, unlike one that translates addresses.
pub(crate) fn divert_connections(family: Family, port: u16) -> io::Result<()> {
    const SUBSYSTEM: u16 = 10;
    const TABLE: u16 = 0;
    const CHAIN: u16 = 3;
    const RULE: u16 = 6;
    const BEGIN: u16 = 0x10;
    const END: u16 = 0x11;
    const NAME: &str = "relay";
    let kind = |message: u16| (SUBSYSTEM << 8) | message;
    let fixed = [family.number(), 0, 0, 0];
    let edge = [0, 0, 0, SUBSYSTEM as u8];
    // Prerouting, at the priority of `mangle`.
    let hook = Attributes::default().number(1, 0).number(2, (-150i32) as u32);
    let chain = Attributes::default().text(1, NAME).text(3, NAME).nested(4, hook);
    let chain = chain.number(5, expression::ACCEPT).text(7, "filter");
    let rule = |expressions: Attributes| {
        Attributes::default().text(1, NAME).text(2, NAME).nested(4, expressions)
    };
    let mut batch = Batch::default();
    batch.message(BEGIN, 0, &edge, Attributes::default());
    batch.message(kind(TABLE), CREATE | ACK, &fixed, Attributes::default().text(1, NAME));
    batch.message(kind(CHAIN), CREATE | ACK, &fixed, chain);
    let append = CREATE | APPEND | ACK;
    let loopback = match family {
        Family::V4 => vec![127],
        Family::V6 => Ipv6Addr::LOCALHOST.octets().into(),
    };
    for own in [loopback, octets(family.own_address())] {
        batch.message(kind(RULE), append, &fixed, rule(expression::accept(family, &own)));
    }
    batch.message(kind(RULE), append, &fixed, rule(expression::divert(family, port)));
    batch.message(END, 0, &edge, Attributes::default());
    batch.send(Some(netlink::NETFILTER))
}

/// The expressions of the rules. Numbers of attributes are those of the kernel's `nf_tables.h`.
mod expression {
    use super::{Attributes, Family, Ipv4Addr, Ipv6Addr, octets};

    pub(super) const ACCEPT: u32 = 1;
    const VERDICT: u32 = 0;
    const REGISTER: u32 = 1;
    const ADDRESS_REGISTER: u32 = 2;

    fn expression(list: Attributes, name: &str, data: Attributes) -> Attributes {
        list.nested(1, Attributes::default().text(1, name).nested(2, data))
    }

    fn equals(list: Attributes, value: &[u8]) -> Attributes {
        let value = Attributes::default().bytes(1, value);
        let data = Attributes::default().number(1, REGISTER).number(2, 0).nested(3, value);
        expression(list, "cmp", data)
    }

    /// The destination begins with these bytes: accept.
    pub(super) fn accept(family: Family, value: &[u8]) -> Attributes {
        const NETWORK_HEADER: u32 = 1;
        let offset = match family {
            Family::V4 => 16,
            Family::V6 => 24,
        };
        let load = Attributes::default().number(1, REGISTER).number(2, NETWORK_HEADER);
        let load = load.number(3, offset).number(4, value.len() as u32);
        let list = equals(expression(Attributes::default(), "payload", load), value);
        let verdict = Attributes::default().nested(2, Attributes::default().number(1, ACCEPT));
        let accept = Attributes::default().number(1, VERDICT).nested(2, verdict);
        expression(list, "immediate", accept)
    }

    /// The protocol is TCP: to the socket at this port of loopback.
    pub(super) fn divert(family: Family, port: u16) -> Attributes {
        const PROTOCOL: u32 = 16;
        let load = Attributes::default().number(1, REGISTER).number(2, PROTOCOL);
        let list = expression(Attributes::default(), "meta", load);
        let list = equals(list, &[libc::IPPROTO_TCP as u8]);
        let load = |list: Attributes, register: u32, value: &[u8]| {
            let value = Attributes::default().bytes(1, value);
            let data = Attributes::default().number(1, register).nested(2, value);
            expression(list, "immediate", data)
        };
        let (number, loopback) = match family {
            Family::V4 => (libc::NFPROTO_IPV4, octets(Ipv4Addr::LOCALHOST.into())),
            Family::V6 => (libc::NFPROTO_IPV6, octets(Ipv6Addr::LOCALHOST.into())),
        };
        let list = load(list, REGISTER, &port.to_be_bytes());
        let list = load(list, ADDRESS_REGISTER, &loopback);
        let divert = Attributes::default().number(1, number as u32);
        expression(list, "tproxy", divert.number(2, ADDRESS_REGISTER).number(3, REGISTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_aligned_and_say_their_length() {
        let one = Attributes::default().bytes(3, &[7]).number(1, 0x0102_0304);
        let length = |n: u16| n.to_ne_bytes();
        let mut expected = [length(5), length(3)].concat();
        expected.extend([7, 0, 0, 0]);
        expected.extend([length(8), length(1)].concat());
        expected.extend([1, 2, 3, 4]);
        assert_eq!(one.0, expected);
        assert_eq!(Attributes::default().text(1, "abc").0.len(), 8);
    }

    #[test]
    fn a_message_has_its_whole_length() {
        let mut batch = Batch::default();
        batch.message(5, ACK, &[1, 2, 3, 4], Attributes::default().number(1, 2));
        assert_eq!(batch.bytes.len(), HEADER + 4 + 8);
        assert_eq!(batch.bytes[..4], 28u32.to_ne_bytes());
        assert_eq!((batch.acknowledged, batch.sequence), (1, 1));
    }
}
