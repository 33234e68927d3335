//! The host's network as the proxy uses it: the resolver and outgoing connections.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
};

use tokio::net::TcpStream;

use super::address;
use crate::sys;

/// The result of a request to an [`Upstream`].
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// How the proxy of sandboxes resolves names and connects. The network policy is not its task: each address is checked
/// between the two.
pub trait Upstream: fmt::Debug + Send + Sync {
    /// The addresses of a name. Fails with [`io::ErrorKind::NotFound`] if it has none. A trailing dot means that no domain
    /// may be added to it.
    fn resolve<'a>(&'a self, name: &'a str) -> Pending<'a, Vec<IpAddr>>;

    /// Connects to an address that the policy permits.
    fn connect(&self, address: SocketAddr) -> Pending<'_, TcpStream>;

    /// Whether public addresses of IPv6 can be reached. Otherwise names are resolved to IPv4 only.
    fn has_ipv6(&self) -> bool;
}

/// The network of this machine, by its own resolver and routes.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostNetwork;

impl Upstream for HostNetwork {
    fn resolve<'a>(&'a self, name: &'a str) -> Pending<'a, Vec<IpAddr>> {
        let name = name.to_owned();
        Box::pin(async move {
            let lookup = tokio::task::spawn_blocking(move || sys::resolve(&name));
            lookup.await.map_err(io::Error::other)?
        })
    }

    fn connect(&self, address: SocketAddr) -> Pending<'_, TcpStream> {
        Box::pin(TcpStream::connect(address))
    }

    fn has_ipv6(&self) -> bool {
        address::has_ipv6()
    }
}
