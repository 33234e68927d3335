//! Turns a specification into what the spawner has to do. Pure: what has to be read from the machine is in [`Base`].

use std::{net::SocketAddr, path::PathBuf};

use image::Rootfs;
use sandbox::{ByteSize, DiskQuota, Limits, Network, Spec};
use serde::{Deserialize, Serialize};

use crate::environ;

/// Everything the spawner needs to create one sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The sandbox's name, also the name of its directory and control groups.
    pub(crate) id: String,
    /// The image's name, for listings.
    pub(crate) image: String,
    /// The file systems, the root first.
    pub(crate) overlays: Vec<Overlay>,
    /// Resource limits.
    pub(crate) limits: Limits,
    /// How the disk limit is enforced.
    pub(crate) disk_quota: DiskQuota,
    /// Bytes that stay free on the file system with the sandbox's files, where they are not chosen automatically.
    pub(crate) disk_reserve: Option<ByteSize>,
    /// Network access.
    pub(crate) network: NetworkPlan,
    /// Port of the proxy on loopback, where the network is proxied or public addresses can be reached.
    pub(crate) proxy_port: u16,
    /// Loopback addresses that lead to the same ones of the host, where the network is proxied. Clients do not ask a proxy
    /// for such an address: programs in the sandbox serve there as well. At most [`Network::MAX_LOOPBACK`]: their sockets
    /// travel in one message.
    pub(crate) forwarded: Vec<SocketAddr>,
    /// Environment of every command.
    pub(crate) env: Vec<(String, String)>,
    /// Working directory of commands.
    pub(crate) workdir: PathBuf,
    /// Whether the writable directories already exist.
    pub(crate) uppers: Uppers,
}

/// State of the writable directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Uppers {
    /// To be created, empty.
    Fresh,
    /// Already created and filled, for a fork.
    Prepared,
}

/// One overlay mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overlay {
    /// Where it is mounted, relative to the sandbox's root; empty for the root itself.
    pub(crate) target: PathBuf,
    /// The read-only layers below, the topmost first.
    pub(crate) lowers: Vec<Lower>,
}

/// A read-only layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lower {
    /// A directory of the host.
    Dir(PathBuf),
    /// The small tree of the built-in image, created by the spawner.
    HostSkeleton,
}

/// Network access, as the spawner and PID 1 implement it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkPlan {
    /// An empty network namespace.
    Isolated,
    /// An empty network namespace with a listening socket that the caller's proxy serves.
    Proxied,
    /// An empty network namespace in which every address leads to sockets that the caller's proxy serves.
    Internet,
    /// The host's network.
    Host,
}

/// Port of the proxy in a proxied sandbox, unless the caller allows the same port of the host.
const PROXY_PORT: u16 = 3128;

/// The resolved image of a sandbox.
pub(crate) enum Base {
    /// An image of the store.
    Stored {
        /// The image's layers and environment.
        rootfs: Rootfs,
        /// For images based on the built-in one: the host's program directories.
        host_dirs: Vec<HostDir>,
    },
    /// A directory with a root file system.
    Dir(PathBuf),
    /// The built-in image, made of these directories of the host.
    Host(Vec<HostDir>),
}

/// A directory of programs on the host, part of the built-in image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostDir {
    /// Its absolute path.
    pub(crate) path: PathBuf,
    /// The directories of image layers that lie over it, the topmost first.
    pub(crate) changed: Vec<PathBuf>,
}

/// Plans a sandbox.
pub(crate) fn plan(id: String, spec: &Spec, base: &Base) -> Plan {
    let (image_env, overlays): (&[_], _) = match base {
        Base::Dir(dir) => (&[], vec![root(vec![Lower::Dir(dir.clone())])]),
        Base::Host(dirs) => (&[], host_overlays(&[], dirs)),
        Base::Stored { rootfs, host_dirs } if rootfs.on_host => {
            (&rootfs.env, host_overlays(&rootfs.layers, host_dirs))
        }
        Base::Stored { rootfs, .. } => {
            (&rootfs.env, vec![root(rootfs.layers.iter().cloned().map(Lower::Dir).collect())])
        }
    };
    let network = match spec.network {
        Network::None => NetworkPlan::Isolated,
        Network::Allow(_) => NetworkPlan::Proxied,
        Network::Internet => NetworkPlan::Internet,
        Network::Full => NetworkPlan::Host,
    };
    let forwarded = spec.network.loopback();
    let proxy_port = proxy_port(&forwarded);
    let mut env = environ::merged(image_env, &[]);
    if matches!(network, NetworkPlan::Proxied | NetworkPlan::Internet) {
        env = environ::merged(&env, &proxy_variables(proxy_port));
    }
    Plan {
        id,
        image: spec.image.to_string(),
        overlays,
        limits: spec.limits.clone(),
        disk_quota: spec.disk_quota,
        disk_reserve: spec.disk_reserve,
        network,
        proxy_port,
        forwarded,
        env: environ::merged(&env, &spec.env),
        workdir: spec.workdir.clone(),
        uppers: Uppers::Fresh,
    }
}

fn root(lowers: Vec<Lower>) -> Overlay {
    Overlay { target: PathBuf::new(), lowers }
}

/// The built-in image: its skeleton as root, and an overlay over each directory of the host.
///
/// Overlayfs does not look through mounts inside a layer, so `/usr` needs a mount of its own.
fn host_overlays(layers: &[PathBuf], host_dirs: &[HostDir]) -> Vec<Overlay> {
    let mut lowers: Vec<_> = layers.iter().cloned().map(Lower::Dir).collect();
    lowers.push(Lower::HostSkeleton);
    let mut overlays = vec![root(lowers)];
    for HostDir { path, changed } in host_dirs {
        let target = path.strip_prefix("/").unwrap_or(path);
        let mut lowers: Vec<_> = changed.iter().cloned().map(Lower::Dir).collect();
        lowers.push(Lower::Dir(path.clone()));
        overlays.push(Overlay { target: target.to_owned(), lowers });
    }
    overlays
}

fn proxy_port(forwarded: &[SocketAddr]) -> u16 {
    let is_free = |port: &u16| forwarded.iter().all(|address| address.port() != *port);
    (PROXY_PORT..=u16::MAX).find(is_free).unwrap_or(PROXY_PORT)
}

fn proxy_variables(port: u16) -> Vec<(String, String)> {
    let url = format!("http://127.0.0.1:{port}");
    let names =
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"];
    let mut all: Vec<_> = names.iter().map(|name| ((*name).to_owned(), url.clone())).collect();
    for name in ["no_proxy", "NO_PROXY"] {
        all.push((name.to_owned(), "localhost,127.0.0.1,::1".to_owned()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_image_gets_an_overlay_per_host_directory() {
        let spec = Spec::default();
        let dir = |path: &str, changed: &[&str]| HostDir {
            path: path.into(),
            changed: changed.iter().map(PathBuf::from).collect(),
        };
        let plan =
            plan("x".into(), &spec, &Base::Host(vec![dir("/usr", &["/l/usr"]), dir("/lib", &[])]));
        let targets: Vec<_> = plan.overlays.iter().map(|o| o.target.to_str().unwrap()).collect();
        assert_eq!(targets, ["", "usr", "lib"]);
        assert_eq!(plan.overlays[0].lowers, [Lower::HostSkeleton]);
        assert_eq!(
            plan.overlays[1].lowers,
            [Lower::Dir("/l/usr".into()), Lower::Dir("/usr".into())]
        );
        assert_eq!(plan.overlays[2].lowers, [Lower::Dir("/lib".into())]);
        assert_eq!(plan.network, NetworkPlan::Isolated);
    }

    #[test]
    fn a_proxied_sandbox_has_proxy_variables_that_can_be_overridden() {
        let network = "allow=example.com".parse().unwrap();
        let env = vec![("https_proxy".to_owned(), "mine".to_owned())];
        let spec = Spec { network, env, ..Spec::default() };
        let plan = plan("x".into(), &spec, &Base::Dir("/r".into()));
        let value = |name: &str| plan.env.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
        assert_eq!(value("http_proxy"), Some("http://127.0.0.1:3128"));
        assert_eq!(value("https_proxy"), Some("mine"));
        assert_eq!(value("no_proxy"), Some("localhost,127.0.0.1,::1"));
        assert!(plan.forwarded.is_empty());
    }

    #[test]
    fn a_sandbox_with_public_addresses_has_the_same_variables() {
        let plan_for = |network| {
            let spec = Spec { network, ..Spec::default() };
            plan("x".into(), &spec, &Base::Dir("/r".into()))
        };
        let public = plan_for(Network::Internet);
        assert_eq!(public.network, NetworkPlan::Internet);
        assert_eq!(public.env, plan_for("allow=example.com".parse().unwrap()).env);
        // Not SOCKS: some clients fail at start if they know that proxy's protocol and lack a library for it.
        assert!(public.env.contains(&("ALL_PROXY".into(), "http://127.0.0.1:3128".into())));
    }

    #[test]
    fn allowed_loopback_ports_lead_to_the_host_and_are_not_the_proxys() {
        let network = "allow=127.0.0.1:3128,localhost:3129,a.com:3130".parse().unwrap();
        let spec = Spec { network, ..Spec::default() };
        let plan = plan("x".into(), &spec, &Base::Dir("/r".into()));
        let addresses: Vec<_> = plan.forwarded.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:3128", "127.0.0.1:3129", "[::1]:3129"]);
        assert_eq!(plan.proxy_port, 3130);
        assert!(plan.env.contains(&("http_proxy".into(), "http://127.0.0.1:3130".into())));
    }
}
