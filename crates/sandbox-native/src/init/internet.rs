//! The network of a sandbox that may reach public addresses: sockets for the caller, and the rules that lead connections
//! to them.
//!
//! Every address is made one of the sandbox's own, and every TCP connection to one is given to a socket that the caller's
//! process serves. Nothing here decides what can be reached, and no packet leaves the namespace.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket},
    os::fd::{AsFd, OwnedFd},
};

use serde::{Deserialize, Serialize};

use crate::{
    mounts::{Failure, Step},
    netlink::{self, Family},
    plan::Plan,
    sys,
};

/// Where the resolver is, for `/etc/resolv.conf`.
pub(crate) const RESOLVER: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 53);
/// `/etc/resolv.conf` of such a sandbox.
pub(crate) const RESOLV_CONF: &str = "nameserver 127.0.0.1\noptions timeout:15 attempts:2\n";

/// Which connections the relay takes. Others need the proxy's variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Relay {
    /// All of TCP.
    All,
    /// Those over IPv4, and why no others.
    OnlyV4(String),
    /// None, and why.
    Missing(String),
}

/// The sockets in the order of [`crate::proxy::InternetSockets`], and what the relay can do.
pub(super) fn open(plan: &Plan) -> Result<(Vec<OwnedFd>, Relay), Failure> {
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, plan.proxy_port));
    let mut sockets = vec![OwnedFd::from(proxy.step("opening the proxy's port")?)];
    sockets.push(UdpSocket::bind(RESOLVER).step("opening the resolver's port")?.into());
    sockets.push(TcpListener::bind(RESOLVER).step("opening the resolver's port")?.into());
    let relay = match relay(Family::V4) {
        Err(error) => Relay::Missing(error.to_string()),
        Ok(v4) => {
            sockets.push(v4);
            match relay(Family::V6) {
                Err(error) => Relay::OnlyV4(error.to_string()),
                Ok(v6) => {
                    sockets.push(v6);
                    Relay::All
                }
            }
        }
    };
    Ok((sockets, relay))
}

/// A socket that accepts every connection of this family to an address other than loopback.
fn relay(family: Family) -> io::Result<OwnedFd> {
    let loopback: IpAddr = match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    };
    let listener = TcpListener::bind((loopback, 0))?;
    sys::make_transparent(listener.as_fd(), family)?;
    netlink::divert_connections(family, listener.local_addr()?.port())?;
    // Last: without the rule an address must be unreachable, not one of the sandbox's own.
    netlink::route_everything_to_loopback(family)?;
    Ok(listener.into())
}
