//! [`Spec`], the specification of a sandbox: image, limits, network, environment. Plain data.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{ByteSize, DiskQuota, is_public_name};

/// Everything a runtime needs to create a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The file system the sandbox starts from.
    pub image: ImageRef,
    /// Resource limits.
    pub limits: Limits,
    /// How the disk limit is enforced.
    #[serde(skip_serializing_if = "DiskQuota::is_default")]
    pub disk_quota: DiskQuota,
    /// Free bytes of the file system with the sandbox's files below which it is stopped if it writes, and none created.
    /// `None` stands for 1 GiB, or a hundredth of the file system if that is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_reserve: Option<ByteSize>,
    /// Network access.
    pub network: Network,
    /// Environment variables, added to a minimal default environment.
    pub env: Vec<(String, String)>,
    /// Working directory of commands; created when missing.
    pub workdir: PathBuf,
    /// How long a request to the sandbox may make no progress. It then fails with
    /// [`Error::Stalled`](crate::Error::Stalled), and the sandbox is removed.
    #[serde(skip_serializing_if = "is_default_stall_timeout")]
    pub stall_timeout: Duration,
}

/// How long a request may make no progress by default.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);

fn is_default_stall_timeout(timeout: &Duration) -> bool {
    *timeout == STALL_TIMEOUT
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            image: ImageRef::Host,
            limits: Limits::default(),
            disk_quota: DiskQuota::default(),
            disk_reserve: None,
            network: Network::None,
            env: Vec::new(),
            workdir: PathBuf::from("/testbed"),
            stall_timeout: STALL_TIMEOUT,
        }
    }
}

/// Why a specification cannot work on any runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A limit is out of range.
    #[error("the limit {name}={value} is impossible: {why}")]
    Limit {
        /// Which limit.
        name: &'static str,
        /// The requested value.
        value: String,
        /// The valid range.
        why: &'static str,
    },
    /// There is no disk limit for a file system of that size.
    #[error("the disk quota `{0}` needs a disk limit")]
    Quota(DiskQuota),
    /// The working directory is not an absolute path.
    #[error("the working directory `{0}` is not an absolute path; write it as /testbed")]
    Workdir(PathBuf),
    /// Requests would fail before they begin.
    #[error(
        "a stall timeout must be longer than 0, where every request would fail, and at most a year"
    )]
    StallTimeout,
    /// An environment variable cannot be passed to a program.
    #[error("the environment variable `{0}` has an empty name, or `=` or NUL where none may be")]
    Env(String),
    /// A host pattern is malformed.
    #[error("`{0}` is not a host; write a name such as example.com, *.example.com or name:8080")]
    Host(String),
    /// The network policy is malformed.
    #[error("`{0}` is not a network policy; write none, internet, full or allow=HOST,HOST")]
    Network(String),
    /// The network policy allows too many ports of this machine.
    #[error(
        "the network policy allows {0} loopback addresses, more than {most}; `localhost` counts as two at each port, one \
         of IPv4 and one of IPv6",
        most = Network::MAX_LOOPBACK
    )]
    Loopback(usize),
}

impl Spec {
    /// Longest time that a request may be allowed to make no progress: a year.
    pub const MAX_STALL_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

    /// Checks what does not depend on the machine.
    pub fn validate(&self) -> Result<(), SpecError> {
        self.limits.validate()?;
        if self.disk_quota.needs_limit() && self.limits.disk.is_none() {
            return Err(SpecError::Quota(self.disk_quota));
        }
        let text = self.workdir.to_str().is_some_and(|text| !text.contains('\0'));
        if !self.workdir.is_absolute() || !text {
            return Err(SpecError::Workdir(self.workdir.clone()));
        }
        if self.stall_timeout.is_zero() || self.stall_timeout > Self::MAX_STALL_TIMEOUT {
            return Err(SpecError::StallTimeout);
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(SpecError::Env(name.clone()));
            }
        }
        match self.network.loopback().len() {
            count if count > Network::MAX_LOOPBACK => Err(SpecError::Loopback(count)),
            _ => Ok(()),
        }
    }
}

/// The file system a sandbox starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageRef {
    /// The programs of this machine, read-only, without its secrets.
    #[default]
    Host,
    /// A directory with a root file system.
    Dir(PathBuf),
    /// A name in the runtime's image store.
    Name(String),
}

impl FromStr for ImageRef {
    type Err = std::convert::Infallible;

    /// `host`, a path (it starts with `/` or `.`, or ends with `/`), or a name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "host" => Self::Host,
            path if path.starts_with(['/', '.']) || path.ends_with('/') => {
                Self::Dir(PathBuf::from(path))
            }
            name => Self::Name(name.to_owned()),
        })
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Dir(path) => write!(f, "{}", path.display()),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Resource limits of a sandbox; `None` means unlimited. By default 1 GiB of memory, one core, 512 processes and 2 GiB of
/// disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Memory of all processes together, page cache included.
    pub memory: Option<ByteSize>,
    /// Processor time, in cores.
    pub cpus: Option<f64>,
    /// Number of processes and threads.
    pub pids: Option<u32>,
    /// Bytes written to the sandbox's own file system.
    pub disk: Option<ByteSize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: Some(ByteSize::gib(1)),
            cpus: Some(1.0),
            pids: Some(512),
            disk: Some(ByteSize::gib(2)),
        }
    }
}

impl Limits {
    fn validate(&self) -> Result<(), SpecError> {
        let refuse = |name, value: &dyn fmt::Display, why| {
            Err(SpecError::Limit { name, value: value.to_string(), why })
        };
        match self.memory {
            Some(m) if m < ByteSize::mib(8) => {
                return refuse("memory", &m, "a shell needs at least 8M");
            }
            Some(m) if m.0 > i64::MAX as u64 => {
                return refuse("memory", &m, "no machine has that much");
            }
            _ => {}
        }
        match self.cpus {
            Some(c) if !(0.01..=4096.0).contains(&c) => {
                return refuse("cpus", &c, "it must lie between 0.01 and 4096");
            }
            _ => {}
        }
        match self.pids {
            Some(p) if p < 8 => return refuse("pids", &p, "a shell and its pipes need at least 8"),
            Some(p) if p > 4_000_000 => {
                return refuse("pids", &p, "Linux counts to 4194304 processes");
            }
            _ => {}
        }
        match self.disk {
            Some(d) if d < ByteSize::mib(1) => {
                return refuse("disk", &d, "it must be at least 1M");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Network access of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Loopback inside the sandbox only.
    #[default]
    None,
    /// The named hosts, over HTTP and HTTPS, through a filtering proxy.
    Allow(Vec<HostPattern>),
    /// Every public address over TCP, through a filtering relay and proxy. Never this machine, its private network or a
    /// cloud's metadata service.
    Internet,
    /// The network of the host.
    Full,
}

impl Network {
    /// The most loopback addresses that may lead to the same ones of the host.
    pub const MAX_LOOPBACK: usize = 12;

    /// The loopback addresses this policy allows, each once, sorted.
    pub fn loopback(&self) -> Vec<SocketAddr> {
        let Self::Allow(hosts) = self else { return Vec::new() };
        let mut addresses: Vec<_> = hosts.iter().flat_map(HostPattern::loopback).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}

impl FromStr for Network {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "internet" => Ok(Self::Internet),
            "full" => Ok(Self::Full),
            _ => {
                let hosts =
                    text.strip_prefix("allow=").ok_or_else(|| SpecError::Network(text.into()))?;
                let hosts: Result<Vec<_>, _> =
                    hosts.split(',').map(HostPattern::from_str).collect();
                hosts.map(Self::Allow)
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Internet => f.write_str("internet"),
            Self::Full => f.write_str("full"),
            Self::Allow(hosts) => {
                let names: Vec<_> = hosts.iter().map(ToString::to_string).collect();
                write!(f, "allow={}", names.join(","))
            }
        }
    }
}

/// A host a sandbox may reach: `example.com`, `*.example.com` (any name below it) or `example.com:8080`.
///
/// Without a port, ports 80 and 443 are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    name: String,
    subdomains: bool,
    port: Option<u16>,
}

impl HostPattern {
    /// Whether this pattern allows the host and port.
    pub fn matches(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let port_fits = match self.port {
            Some(only) => only == port,
            None => port == 80 || port == 443,
        };
        let name_fits = if self.subdomains {
            host.strip_suffix(self.name.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.name
        };
        port_fits && name_fits
    }

    /// Whether this pattern allows everything that the other one does.
    pub fn covers(&self, other: &Self) -> bool {
        let name_fits = match (self.subdomains, other.subdomains) {
            (true, true) if self.name == other.name => true,
            (true, _) => other
                .name
                .strip_suffix(self.name.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (false, subdomains) => !subdomains && self.name == other.name,
        };
        name_fits
            && (self.port == other.port
                || self.port.is_none() && matches!(other.port, Some(80 | 443)))
    }

    /// Whether this pattern allows the host and port even at an address of this machine or its private network: by
    /// address, as `localhost`, or with its port. The name of a public site alone is not enough, because its owner could
    /// point it at such an address.
    pub fn allows_private(&self, host: &str, port: u16) -> bool {
        let local = self.name == "localhost" || self.name.parse::<IpAddr>().is_ok();
        !self.subdomains && (self.port.is_some() || local) && self.matches(host, port)
    }

    /// Whether this pattern is an address and not a name.
    pub fn is_address(&self) -> bool {
        self.name.parse::<IpAddr>().is_ok()
    }

    /// Whether all it allows are names that could be those of public hosts, and nothing at a private address.
    pub fn is_public(&self) -> bool {
        let name = if self.subdomains { format!("x.{}", self.name) } else { self.name.clone() };
        self.port.is_none() && is_public_name(&name)
    }

    /// The loopback addresses this pattern allows: `localhost`, `127.0.0.1` or `[::1]` at its ports.
    pub fn loopback(&self) -> Vec<SocketAddr> {
        let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        let addresses = match self.name.as_str() {
            _ if self.subdomains => Vec::new(),
            "localhost" => vec![v4, v6],
            name => name.parse().into_iter().filter(|ip| [v4, v6].contains(ip)).collect(),
        };
        let ports = self.port.map_or_else(|| vec![80, 443], |port| vec![port]);
        let at = |port| addresses.iter().map(move |ip| SocketAddr::new(*ip, port));
        ports.into_iter().flat_map(at).collect()
    }
}

impl FromStr for HostPattern {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || SpecError::Host(text.to_owned());
        let (subdomains, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (name, port) = if let Some(inner) = rest.strip_prefix('[') {
            let (name, tail) = inner.split_once(']').ok_or_else(refuse)?;
            name.parse::<Ipv6Addr>().map_err(|_| refuse())?;
            let port = match tail.strip_prefix(':') {
                None if !tail.is_empty() => return Err(refuse()),
                port => port.map(str::parse).transpose().map_err(|_| refuse())?,
            };
            (name, port)
        } else {
            match rest.split_once(':') {
                Some((name, port)) => (name, Some(port.parse().map_err(|_| refuse())?)),
                None => (rest, None),
            }
        };
        // Before the check: a name of dots alone is none.
        let name = name.trim_end_matches('.');
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
        if name.is_empty() || !name.chars().all(plain) || port == Some(0) {
            return Err(refuse());
        }
        let name = name.to_ascii_lowercase();
        Ok(Self { name, subdomains, port })
    }
}

impl TryFrom<String> for HostPattern {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(host: HostPattern) -> Self {
        host.to_string()
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.subdomains { "*." } else { "" };
        if self.name.contains(':') {
            write!(f, "{star}[{}]", self.name)?;
        } else {
            write!(f, "{star}{}", self.name)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_match_by_name_and_port() {
        let host = |text: &str| text.parse::<HostPattern>().unwrap();
        assert!(host("example.com").matches("EXAMPLE.com.", 443));
        assert!(!host("example.com").matches("example.com", 22));
        assert!(!host("example.com").matches("evil-example.com", 443));
        assert!(!host("example.com").matches("a.example.com", 443));
        assert!(host("*.example.com").matches("a.b.example.com", 80));
        assert!(!host("*.example.com").matches("example.com", 80));
        assert!(!host("*.example.com").matches(".example.com", 80));
        assert!(host("example.com:8080").matches("example.com", 8080));
        assert!(!host("example.com:8080").matches("example.com", 443));
        assert!(host("[::1]:9").matches("::1", 9));
        for bad in
            ["", "*", "*.", "a b", "a:0", "a:99999", "a/b", ".", "*..", "[::1", "[x]:1", "a@b"]
        {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn loopback_hosts_are_known_by_their_addresses() {
        let at = |text: &str| {
            let found = text.parse::<HostPattern>().unwrap().loopback();
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(at("localhost:9"), ["127.0.0.1:9", "[::1]:9"]);
        assert_eq!(at("127.0.0.1"), ["127.0.0.1:80", "127.0.0.1:443"]);
        assert_eq!(at("[::1]:9"), ["[::1]:9"]);
        for other in ["*.localhost:9", "127.0.0.2:9", "10.0.0.1:9", "example.com:9"] {
            assert!(at(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn public_hosts_are_told_from_addresses_and_local_names() {
        let host = |text: &str| text.parse::<HostPattern>().unwrap();
        for name in ["example.com", "example.com.", "*.com", "*.example.com"] {
            assert!(host(name).is_public() && !host(name).is_address(), "{name}");
        }
        for address in ["169.254.169.254.", "10.0.0.1", "127.0.0.1..", "[::1]"] {
            assert!(!host(address).is_public() && host(address).is_address(), "{address}");
        }
        for local in ["localhost", "intra", "metadata.google.internal", "*.254", "*.internal"] {
            assert!(!host(local).is_public(), "{local}");
        }
        assert!(!host("example.com:80").is_public(), "with a port it may be private");
    }

    #[test]
    fn network_policies_round_trip() {
        for text in ["none", "internet", "full", "allow=a.com,*.b.com:81,[::1]:9"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        for bad in ["", "allow", "allow=", "allow=a,,b", "All", "Internet"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn impossible_limits_are_named() {
        let with = |limits| Spec { limits, ..Spec::default() }.validate();
        assert!(with(Limits::default()).is_ok());
        assert!(with(Limits { memory: Some(ByteSize(1)), ..Limits::default() }).is_err());
        assert!(with(Limits { cpus: Some(0.0), ..Limits::default() }).is_err());
        assert!(with(Limits { cpus: Some(f64::NAN), ..Limits::default() }).is_err());
        assert!(with(Limits { pids: Some(1), ..Limits::default() }).is_err());
        assert!(with(Limits { disk: Some(ByteSize(0)), ..Limits::default() }).is_err());
        let unlimited = Limits { disk: None, ..Limits::default() };
        let spec = Spec { limits: unlimited, disk_quota: DiskQuota::Strict, ..Spec::default() };
        assert_eq!(spec.validate(), Err(SpecError::Quota(DiskQuota::Strict)));
        let spec = Spec { workdir: "testbed".into(), ..Spec::default() };
        assert!(matches!(spec.validate(), Err(SpecError::Workdir(_))));
        let spec = Spec { env: vec![("A=B".into(), "c".into())], ..Spec::default() };
        assert!(matches!(spec.validate(), Err(SpecError::Env(_))));
    }

    #[test]
    fn files_of_older_versions_have_no_disk_quota() {
        let old = serde_json::to_value(Spec::default()).unwrap();
        assert!(old.get("disk_quota").is_none() && old.get("disk_reserve").is_none(), "{old}");
        let spec = Spec {
            disk_quota: DiskQuota::Strict,
            disk_reserve: Some(ByteSize::mib(5)),
            ..Spec::default()
        };
        let stored = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&stored).unwrap(), spec);
        for quota in DiskQuota::ALL {
            assert_eq!(quota.to_string().parse(), Ok(quota));
        }
    }

    #[test]
    fn too_many_loopback_addresses_are_refused() {
        let with = |ports: std::ops::Range<u16>| {
            let host = |port: u16| format!("localhost:{port},127.0.0.1:{port},a.com:{port}");
            let hosts: Vec<_> = ports.map(host).collect();
            let network = format!("allow={}", hosts.join(",")).parse().unwrap();
            Spec { network, ..Spec::default() }.validate()
        };
        assert_eq!(with(1..7), Ok(()));
        assert_eq!(with(1..8), Err(SpecError::Loopback(14)));
    }
}
