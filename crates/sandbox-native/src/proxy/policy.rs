//! What a proxy allows: names and addresses are checked here, and connections made.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use sandbox::{HostPattern, RefusalReason, is_public_name};
use tokio::{net::TcpStream, sync::Semaphore, time::Instant, time::timeout};

use super::{
    ALL_CONNECTIONS, CONNECT_TIME, MAX_CONNECTIONS,
    address::{self, AddressScope, scope_of},
    on_link,
    rate::Rate,
    refusals::Refusals,
    share::{Pool, Share},
    upstream::Upstream,
};

/// Lookups of one sandbox at once.
const MAX_LOOKUPS: usize = 8;
/// Lookups of all sandboxes at once. Each takes one of the 512 threads that also serve files for the caller, for as long as the
/// host's resolver waits for an answer.
static ALL_LOOKUPS: LazyLock<Pool> = LazyLock::new(|| Pool::new(256));
/// New connections of one sandbox in a second.
const CONNECTIONS_PER_SECOND: u32 = 200;
/// Questions of one sandbox to its resolver in a second.
const QUERIES_PER_SECOND: u32 = 200;
/// How long a connection of a sandbox with public addresses may be silent.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Addresses of one name that are looked at. One with thousands would be checked for long and fill the memory.
const MAX_FOUND: usize = 24;
/// Names that are remembered, and for how long: found ones, and others.
const MAX_NAMES: usize = 256;
const KEEP_FOUND: Duration = Duration::from_secs(30);
const KEEP_OTHERS: Duration = Duration::from_secs(5);

/// Which hosts are allowed.
pub(super) enum Rules {
    /// These.
    Hosts(Vec<HostPattern>),
    /// All with a public address.
    Public,
}

/// What a proxy allows, and what it refused.
pub(super) struct Policy {
    rules: Rules,
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) refusals: Refusals,
    pub(super) permits: Arc<Semaphore>,
    pub(super) share_of_connections: Share,
    /// How often a connection may be made.
    pub(super) connections: Option<Rate>,
    pub(super) queries: Rate,
    /// How long a connection may be silent.
    pub(super) idle: Option<Duration>,
    lookups: Arc<Semaphore>,
    share_of_lookups: Arc<Share>,
    names: Mutex<HashMap<String, (Instant, Lookup)>>,
}

/// Why a request was rejected.
pub(super) enum Refusal {
    Malformed(&'static str),
    NotAllowed(RefusalReason, String),
    Unreachable(String),
}

/// The result of looking up a name under [`Rules::Public`].
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    /// Its public addresses: at least one.
    Found(Vec<IpAddr>),
    /// It has none, but others; or its name is not that of a public host.
    NotPublic,
    NotFound,
    /// The host's resolver failed.
    Failed,
}

impl Policy {
    pub(super) fn new(rules: Rules, upstream: Arc<dyn Upstream>) -> Self {
        let public = matches!(rules, Rules::Public);
        // One sandbox never has more than a quarter of what all have.
        let most = (ALL_CONNECTIONS.number / 4).min(MAX_CONNECTIONS);
        Self {
            idle: public.then_some(IDLE),
            rules,
            upstream,
            refusals: Refusals::default(),
            permits: Arc::new(Semaphore::new(most)),
            share_of_connections: ALL_CONNECTIONS.share(),
            connections: public.then(|| Rate::new(CONNECTIONS_PER_SECOND)),
            queries: Rate::new(QUERIES_PER_SECOND),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            share_of_lookups: Arc::new(ALL_LOOKUPS.share()),
            names: Mutex::default(),
        }
    }

    /// Whether the proxy's port also speaks SOCKS.
    pub(super) fn speaks_socks(&self) -> bool {
        matches!(self.rules, Rules::Public)
    }

    /// Connects to the requested host, if the policy and its addresses allow that. Counts what it refuses.
    pub(super) async fn reach_or_report(
        &self,
        host: &str,
        port: u16,
    ) -> Result<TcpStream, Refusal> {
        let reached = self.reach(host, port).await;
        if let Err(Refusal::NotAllowed(reason, _)) = &reached {
            self.refusals.add(host, port, *reason);
        }
        reached
    }

    /// Connects to the requested host, if the policy and its addresses allow that.
    pub(super) async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        match &self.rules {
            Rules::Hosts(hosts) => self.reach_listed(hosts, host, port).await,
            Rules::Public => self.reach_public(host, port).await,
        }
    }

    /// Counts a name that only leads to addresses that are not public.
    pub(super) fn refuse_name(&self, name: &str) {
        self.refusals.add(name, 0, RefusalReason::NotPublic);
    }

    async fn reach_listed(
        &self,
        hosts: &[HostPattern],
        host: &str,
        port: u16,
    ) -> Result<TcpStream, Refusal> {
        if !hosts.iter().any(|pattern| pattern.matches(host, port)) {
            let why = format!("{host}:{port} is not among the allowed hosts");
            return Err(Refusal::NotAllowed(RefusalReason::NotAllowed, why));
        }
        let named = hosts.iter().any(|pattern| pattern.allows_private(host, port));
        let literal = host.parse::<IpAddr>();
        let found = match literal {
            Ok(address) => vec![address],
            Err(_) => self.resolve(host).await.map_err(|_| unresolved(host))?,
        };
        // A name that is not allowed as one of this network leads to what every sandbox may reach, and to nothing else: its
        // owner could point it at this machine's own public address, or at a neighbour's.
        let permitted = |address: &IpAddr| match scope_of(*address) {
            AddressScope::Public => named || is_permitted(address::canonical(*address)),
            AddressScope::Private => named,
            AddressScope::LinkLocal => named && literal.is_ok(),
        };
        let addresses: Vec<_> = found.into_iter().filter(permitted).collect();
        if addresses.is_empty() {
            let why = format!(
                "{host} leads to this machine or its private network, which has to be allowed by that name"
            );
            return Err(Refusal::NotAllowed(RefusalReason::PrivateAddress, why));
        }
        self.connect(host, port, &addresses).await
    }

    async fn reach_public(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.reach_address((address, port).into()).await;
        }
        match self.lookup(host).await {
            Lookup::Found(addresses) => self.connect(host, port, &addresses).await,
            Lookup::NotPublic => Err(not_public(host)),
            Lookup::NotFound | Lookup::Failed => Err(unresolved(host)),
        }
    }

    /// Connects to this address, if it is public.
    pub(super) async fn reach_address(&self, target: SocketAddr) -> Result<TcpStream, Refusal> {
        let address = address::canonical(target.ip());
        match is_permitted(address) {
            true => self.connect(&address.to_string(), target.port(), &[address]).await,
            false => Err(not_public(&address.to_string())),
        }
    }

    /// The public addresses of a name.
    pub(super) async fn lookup(&self, name: &str) -> Lookup {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if !is_public_name(&name) {
            return Lookup::NotPublic;
        }
        if let Some(known) = self.remembered(&name) {
            return known;
        }
        // With a dot at its end, so that no domain of this machine's network is added to it.
        let result = match self.resolve(&format!("{name}.")).await {
            Ok(found) => {
                let found = found.into_iter().map(address::canonical);
                let public: Vec<_> = found.filter(|one| is_permitted(*one)).collect();
                if public.is_empty() { Lookup::NotPublic } else { Lookup::Found(public) }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Lookup::NotFound,
            Err(_) => return Lookup::Failed,
        };
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(name, (Instant::now(), result.clone()));
        result
    }

    fn remembered(&self, name: &str) -> Option<Lookup> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, result) = names.get(name)?;
        let keep = if matches!(result, Lookup::Found(_)) { KEEP_FOUND } else { KEEP_OTHERS };
        (at.elapsed() < keep).then(|| result.clone())
    }

    /// Resolves a name in bounded time. A lookup that takes longer keeps its permits until it has ended.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let (upstream, lookups) = (Arc::clone(&self.upstream), Arc::clone(&self.lookups));
        let (name, share) = (name.to_owned(), Arc::clone(&self.share_of_lookups));
        let looking = async move {
            let own = lookups.acquire_owned().await.map_err(io::Error::other)?;
            let permits = (own, share.permit().await);
            let lookup = tokio::spawn(async move {
                let found = upstream.resolve(&name).await;
                drop(permits);
                found
            });
            lookup.await.map_err(io::Error::other)?
        };
        let mut found = timeout(CONNECT_TIME, looking).await.map_err(io::Error::from)??;
        found.truncate(MAX_FOUND);
        Ok(found)
    }

    /// Connects to the first of these addresses that answers. Each has been checked.
    async fn connect(
        &self,
        host: &str,
        port: u16,
        addresses: &[IpAddr],
    ) -> Result<TcpStream, Refusal> {
        let mut last = "it has no address".to_owned();
        for address in addresses.iter().take(MAX_ADDRESSES) {
            let connecting = self.upstream.connect((*address, port).into());
            match timeout(CONNECT_TIME, connecting).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = "no answer in time".into(),
            }
        }
        Err(Refusal::Unreachable(format!("{host}:{port}: {last}")))
    }
}

/// Whether [`Rules::Public`] permits a connection to this address.
fn is_permitted(address: IpAddr) -> bool {
    scope_of(address) == AddressScope::Public
        && !on_link::is_on_link(address)
        && !address::is_own(address)
}

fn not_public(host: &str) -> Refusal {
    let why = format!("{host} is not a public address, and only those can be reached");
    Refusal::NotAllowed(RefusalReason::NotPublic, why)
}

fn unresolved(host: &str) -> Refusal {
    Refusal::Unreachable(format!("{host} cannot be resolved"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::upstream::{HostNetwork, Pending};
    use super::*;

    /// Every name has very many addresses.
    #[derive(Debug)]
    struct ManyAddresses;

    impl Upstream for ManyAddresses {
        fn resolve<'a>(&'a self, _name: &'a str) -> Pending<'a, Vec<IpAddr>> {
            Box::pin(async {
                Ok((0..5000u32).map(|n| IpAddr::V4((0x0808_0000 + n).into())).collect())
            })
        }

        fn connect(&self, _address: SocketAddr) -> Pending<'_, TcpStream> {
            Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
        }

        fn has_ipv6(&self) -> bool {
            false
        }
    }

    /// Names of dead servers are looked up for as long as the host's resolver takes.
    #[derive(Debug)]
    struct DeadServers;

    impl Upstream for DeadServers {
        fn resolve<'a>(&'a self, name: &'a str) -> Pending<'a, Vec<IpAddr>> {
            Box::pin(async move {
                match name.starts_with("dead") {
                    true => std::future::pending().await,
                    false => Ok(vec![Ipv4Addr::new(8, 8, 8, 8).into()]),
                }
            })
        }

        fn connect(&self, _address: SocketAddr) -> Pending<'_, TcpStream> {
            Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
        }

        fn has_ipv6(&self) -> bool {
            false
        }
    }

    #[tokio::test(start_paused = true)]
    async fn names_of_dead_servers_delay_their_own_sandbox_alone() {
        let policy = || Arc::new(Policy::new(Rules::Public, Arc::new(DeadServers)));
        let begun = Instant::now();
        for _ in 0..32 {
            let greedy = policy();
            for number in 0..2 * MAX_LOOKUPS {
                let greedy = Arc::clone(&greedy);
                tokio::spawn(
                    async move { greedy.lookup(&format!("dead{number}.example.com")).await },
                );
            }
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let other = policy();
        let (one, two) = tokio::join!(other.lookup("a.example.com"), other.lookup("b.example.com"));
        assert!(matches!((&one, &two), (Lookup::Found(_), Lookup::Found(_))), "{one:?} {two:?}");
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    }

    #[test]
    fn no_sandbox_has_more_than_a_quarter_of_all_connections() {
        for rules in [Rules::Public, Rules::Hosts(Vec::new())] {
            let policy = Policy::new(rules, Arc::new(HostNetwork));
            assert!(policy.permits.available_permits() * 4 <= ALL_CONNECTIONS.number);
        }
    }

    #[tokio::test]
    async fn a_listed_name_does_not_lead_to_neighbours_with_public_addresses() {
        let hosts = ["example.com", "*.example.com", "named.org:80"];
        let hosts = hosts.map(|host| host.parse().unwrap()).to_vec();
        let policy = Policy::new(Rules::Hosts(hosts), Arc::new(ManyAddresses));
        let reached = |host| policy.reach(host, 80);
        // All its addresses can be tried.
        assert!(matches!(reached("example.com").await, Err(Refusal::Unreachable(_))));
        on_link::pretend(Ipv4Addr::new(8, 8, 0, 0), Ipv4Addr::new(255, 255, 0, 0));
        for host in ["example.com", "EXAMPLE.com.", "a.example.com"] {
            let refused = reached(host).await;
            let reason = RefusalReason::PrivateAddress;
            assert!(matches!(refused, Err(Refusal::NotAllowed(r, _)) if r == reason), "{host}");
        }
        // With its port it was meant, wherever it is.
        assert!(matches!(reached("named.org").await, Err(Refusal::Unreachable(_))));
    }

    #[tokio::test]
    async fn few_of_very_many_addresses_are_kept() {
        let policy = Policy::new(Rules::Public, Arc::new(ManyAddresses));
        let found = policy.lookup("many.example.com").await;
        assert!(matches!(&found, Lookup::Found(all) if all.len() == MAX_FOUND), "{found:?}");
    }
}
