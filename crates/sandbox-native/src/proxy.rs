//! The filtering proxy: the only way out of a sandbox whose network is limited to named hosts, or to public addresses.
//!
//! It runs in the caller's process and accepts connections on sockets in the sandbox's network namespace, which has no
//! other way out. Every connection is decided by the address that is then connected to.
//!
//! - Named hosts: HTTP by absolute URL, or a tunnel by CONNECT. Names are matched before they are resolved, and addresses
//!   are checked afterwards. Allowed loopback addresses of the host have sockets of their own in the sandbox, because
//!   clients do not ask a proxy for them. A connection there leads to the same address of the host, by the same checks.
//! - Public addresses: the same, and SOCKS; a resolver; and a relay that accepts a connection to any address, for programs
//!   that know no proxy.

mod address;
mod dns;
mod http;
mod on_link;
mod pipe;
mod policy;
mod rate;
mod refusals;
mod share;
mod socks;
mod upstream;

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, LazyLock},
    time::Duration,
};

use rustix::process::{Resource, getrlimit};
use sandbox::{HostPattern, RefusedConnections};
use tokio::{
    io::Interest,
    net::{TcpListener, TcpStream, UdpSocket},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

pub use self::upstream::{HostNetwork, Pending, Upstream};
use self::{
    pipe::pipe,
    policy::{Lookup, Policy, Refusal, Rules},
    share::Pool,
};

/// Most concurrent connections of one sandbox.
const MAX_CONNECTIONS: usize = 256;
const HEAD_TIME: Duration = Duration::from_secs(30);
const CONNECT_TIME: Duration = Duration::from_secs(15);
/// How much longer a server is tried for a client that has closed its side. It may still want the answer, and a client that
/// is gone looks the same.
const CLOSED_TIME: Duration = Duration::from_secs(2);
const CLOSED_CHECK: Duration = Duration::from_millis(200);

/// Connections of all sandboxes at once: each takes two descriptors of this process, which needs others for files and
/// sandboxes.
static ALL_CONNECTIONS: LazyLock<Pool> = LazyLock::new(|| {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The limit may change, the pool does not.
    Pool::new((descriptors / 8).clamp(64, 8192) as usize)
});

/// A sandbox's proxy, which serves until it is dropped.
pub(crate) struct Proxy {
    tasks: Vec<AbortHandle>,
    policy: Arc<Policy>,
}

/// The sockets of a sandbox that may reach public addresses, as PID 1 sends them.
pub(crate) struct InternetSockets {
    pub(crate) proxy: OwnedFd,
    pub(crate) resolver_udp: OwnedFd,
    pub(crate) resolver_tcp: OwnedFd,
    /// One for each version of IP that is relayed.
    pub(crate) relays: Vec<OwnedFd>,
}

impl InternetSockets {
    /// Takes them in their order; `None` if there are too few.
    pub(crate) fn from_fds(fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let (proxy, resolver_udp, resolver_tcp) = (fds.next()?, fds.next()?, fds.next()?);
        Some(Self { proxy, resolver_udp, resolver_tcp, relays: fds.collect() })
    }
}

/// What a listening socket is for.
#[derive(Clone, Copy, Debug)]
enum Service {
    /// HTTP, and SOCKS where public addresses are allowed.
    Proxy,
    /// The way to this address of the host.
    Forward(SocketAddr),
    /// The way to the address that the client asked for.
    Relay,
    /// The DNS.
    Resolver,
}

impl Proxy {
    /// Allows these hosts. Serves on the proxy's socket, and on sockets whose addresses lead to the same ones of the host.
    pub(crate) fn allow(
        proxy: OwnedFd,
        forwarded: impl Iterator<Item = OwnedFd>,
        hosts: Vec<HostPattern>,
        upstream: Arc<dyn Upstream>,
    ) -> io::Result<Self> {
        let mut started = Self::new(Rules::Hosts(hosts), upstream);
        started.listen(proxy, Service::Proxy)?;
        for socket in forwarded {
            let address = std::net::TcpListener::from(socket.try_clone()?).local_addr()?;
            started.listen(socket, Service::Forward(address))?;
        }
        Ok(started)
    }

    /// Allows public addresses.
    pub(crate) fn internet(
        sockets: InternetSockets,
        upstream: Arc<dyn Upstream>,
    ) -> io::Result<Self> {
        let mut started = Self::new(Rules::Public, upstream);
        started.listen(sockets.proxy, Service::Proxy)?;
        started.listen(sockets.resolver_tcp, Service::Resolver)?;
        for relay in sockets.relays {
            started.listen(relay, Service::Relay)?;
        }
        let socket = std::net::UdpSocket::from(sockets.resolver_udp);
        socket.set_nonblocking(true)?;
        let serving = dns::serve(UdpSocket::from_std(socket)?, Arc::clone(&started.policy));
        started.tasks.push(tokio::spawn(serving).abort_handle());
        Ok(started)
    }

    fn new(rules: Rules, upstream: Arc<dyn Upstream>) -> Self {
        Self { tasks: Vec::new(), policy: Arc::new(Policy::new(rules, upstream)) }
    }

    /// What was refused so far.
    pub(crate) fn refused(&self) -> Vec<RefusedConnections> {
        self.policy.refusals.all()
    }

    fn listen(&mut self, socket: OwnedFd, service: Service) -> io::Result<()> {
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let task = tokio::spawn(accept(listener, service, Arc::clone(&self.policy)));
        self.tasks.push(task.abort_handle());
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn accept(listener: TcpListener, service: Service, policy: Arc<Policy>) {
    // Dropped, and so closed, with the sandbox.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            // Permits are taken once a client is there: those of a sandbox are perhaps fewer than its sockets, and the sockets
            // of idle sandboxes take no share of all.
            Ok((client, _)) => {
                let permit = Arc::clone(&policy.permits).acquire_owned().await;
                let Ok(permit) = permit else { return };
                if let Some(rate) = &policy.connections {
                    rate.wait().await;
                }
                let share = policy.share_of_connections.permit().await;
                let policy = Arc::clone(&policy);
                connections.spawn(async move {
                    let _ = serve(client, service, &policy).await;
                    drop((permit, share));
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn serve(client: TcpStream, service: Service, policy: &Policy) -> io::Result<()> {
    match service {
        Service::Forward(address) => forward(client, address, policy).await,
        Service::Relay => relay(client, policy).await,
        Service::Resolver => dns::serve_stream(client, policy).await,
        Service::Proxy if policy.speaks_socks() => {
            let mut first = [0];
            match timeout(HEAD_TIME, client.peek(&mut first)).await {
                Ok(Ok(1)) if first[0] == socks::VERSION => socks::serve(client, policy).await,
                Ok(Ok(1)) => http::serve(client, policy).await,
                _ => Ok(()),
            }
        }
        Service::Proxy => http::serve(client, policy).await,
    }
}

/// Waits for a connection to a server as long as its client may want it.
async fn while_wanted<T>(client: &TcpStream, reach: impl Future<Output = T>) -> io::Result<T> {
    tokio::select! {
        biased;
        reached = reach => Ok(reached),
        () = left(client) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Waits until a client has been gone for some time, without reading what it sent.
async fn left(client: &TcpStream) {
    loop {
        let Ok(ready) = client.ready(Interest::READABLE | Interest::ERROR).await else { return };
        if ready.is_error() || (ready.is_read_closed() && ready.is_write_closed()) {
            return;
        }
        if ready.is_read_closed() {
            tokio::time::sleep(CLOSED_TIME).await;
            return;
        }
        // It has sent something, and would be ready at once again.
        tokio::time::sleep(CLOSED_CHECK).await;
    }
}

/// Connects a client to this loopback address of the host, by whichever name the policy allows it.
async fn forward(mut client: TcpStream, address: SocketAddr, policy: &Policy) -> io::Result<()> {
    for host in [address.ip().to_string().as_str(), "localhost"] {
        let reached = while_wanted(&client, policy.reach(host, address.port())).await?;
        if let Ok(mut server) = reached {
            return pipe(&mut client, &mut server, policy.idle).await;
        }
    }
    // Nothing answers there. The client sees that its connection is reset, not that it ended in good order.
    client.set_zero_linger()
}

/// Connects a client to the address that it asked for, which its socket here has as its own.
async fn relay(mut client: TcpStream, policy: &Policy) -> io::Result<()> {
    let target = client.local_addr()?;
    match while_wanted(&client, policy.reach_address(target)).await? {
        Ok(mut server) => pipe(&mut client, &mut server, policy.idle).await,
        Err(refusal) => {
            if let Refusal::NotAllowed(reason, _) = refusal {
                policy.refusals.add(&target.ip().to_string(), target.port(), reason);
            }
            // As above.
            client.set_zero_linger()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that is gone while its server is being reached gives its place to others.
    #[tokio::test]
    async fn a_server_is_not_tried_for_a_client_that_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for reset in [true, false] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let accepted = listener.accept().await.unwrap().0;
            tokio::io::AsyncWriteExt::write_all(&mut client, b"unread").await.unwrap();
            if reset {
                client.set_zero_linger().unwrap();
            }
            let begun = std::time::Instant::now();
            drop(client);
            let never = std::future::pending::<()>();
            let gone = timeout(CONNECT_TIME, while_wanted(&accepted, never)).await.unwrap();
            assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
            // One that has only closed its side may wait for the answer.
            assert_eq!(begun.elapsed() >= CLOSED_TIME, !reset, "{:?}", begun.elapsed());
        }
        let client = TcpStream::connect(address).await.unwrap();
        let accepted = listener.accept().await.unwrap().0;
        let never = std::future::pending::<()>();
        let waited = timeout(CLOSED_TIME * 2, while_wanted(&accepted, never)).await;
        assert!(waited.is_err(), "a client that waits is not gone");
        drop(client);
    }
}
