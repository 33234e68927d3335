//! From a specification to what the spawner has to do. Pure: reads nothing, changes nothing.

use std::path::{Path, PathBuf};

use image::Rootfs;
use sandbox::{Limits, Network, Spec};
use serde::{Deserialize, Serialize};

use crate::environ;

/// Everything the spawner needs to make one sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The sandbox's name, also the name of its directory and control groups.
    pub(crate) id: String,
    /// What the sandbox started from, for listings.
    pub(crate) image: String,
    /// The file systems, the root first.
    pub(crate) overlays: Vec<Overlay>,
    /// What it may use.
    pub(crate) limits: Limits,
    /// Whom it may talk to.
    pub(crate) network: NetworkPlan,
    /// Variables of every command.
    pub(crate) env: Vec<(String, String)>,
    /// Where commands start.
    pub(crate) workdir: PathBuf,
    /// Whether the upper directories exist already, filled by a fork.
    pub(crate) uppers: Uppers,
}

/// Whether upper directories are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Uppers {
    /// To be made, empty.
    Fresh,
    /// Made before, with files in them.
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
    /// The small tree that holds together the built-in image; the spawner makes it.
    HostSkeleton,
}

/// The network, as far as the spawner and PID 1 care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkPlan {
    /// An empty network namespace.
    Isolated,
    /// The same, with a listening socket handed to the host's proxy.
    Proxied,
    /// The host's network.
    Host,
}

/// Where in every proxied sandbox the proxy listens.
pub(crate) const PROXY_PORT: u16 = 3128;

/// The file system of a sandbox, as found by looking at the image.
pub(crate) enum Base {
    /// An image of the store.
    Stored {
        /// What the store said.
        rootfs: Rootfs,
        /// For images on the built-in one: which of the host's directories each layer changes.
        host_dirs: Vec<PathBuf>,
    },
    /// A directory with a root file system.
    Dir(PathBuf),
    /// The built-in image, made of these directories of the host.
    Host(Vec<PathBuf>),
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
        Network::Full => NetworkPlan::Host,
    };
    let mut env = environ::merged(image_env, &[]);
    if network == NetworkPlan::Proxied {
        env = environ::merged(&env, &proxy_variables());
    }
    Plan {
        id,
        image: spec.image.to_string(),
        overlays,
        limits: spec.limits.clone(),
        network,
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
fn host_overlays(layers: &[PathBuf], host_dirs: &[PathBuf]) -> Vec<Overlay> {
    let mut lowers: Vec<_> = layers.iter().cloned().map(Lower::Dir).collect();
    lowers.push(Lower::HostSkeleton);
    let mut overlays = vec![root(lowers)];
    for dir in host_dirs {
        let target = dir.strip_prefix("/").unwrap_or(dir);
        let changed = layers.iter().map(|layer| layer.join(target));
        let mut lowers: Vec<_> = changed.filter(|dir| is_real_dir(dir)).map(Lower::Dir).collect();
        lowers.push(Lower::Dir(dir.clone()));
        overlays.push(Overlay { target: target.to_owned(), lowers });
    }
    overlays
}

/// Whether a layer has this directory, without following links out of it.
fn is_real_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

fn proxy_variables() -> Vec<(String, String)> {
    let url = format!("http://127.0.0.1:{PROXY_PORT}");
    let names =
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"];
    let mut all: Vec<_> = names.iter().map(|name| ((*name).to_owned(), url.clone())).collect();
    for name in ["no_proxy", "NO_PROXY"] {
        all.push((name.to_owned(), "127.0.0.1,::1".to_owned()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_image_gets_an_overlay_per_host_directory() {
        let spec = Spec::default();
        let made = plan("x".into(), &spec, &Base::Host(vec!["/usr".into(), "/lib".into()]));
        let targets: Vec<_> = made.overlays.iter().map(|o| o.target.to_str().unwrap()).collect();
        assert_eq!(targets, ["", "usr", "lib"]);
        assert_eq!(made.overlays[0].lowers, [Lower::HostSkeleton]);
        assert_eq!(made.overlays[1].lowers, [Lower::Dir("/usr".into())]);
        assert_eq!(made.network, NetworkPlan::Isolated);
    }

    #[test]
    fn a_proxied_sandbox_is_told_of_the_proxy_and_may_override_it() {
        let network = "allow=example.com".parse().unwrap();
        let env = vec![("https_proxy".to_owned(), "mine".to_owned())];
        let spec = Spec { network, env, ..Spec::default() };
        let made = plan("x".into(), &spec, &Base::Dir("/r".into()));
        let value = |name: &str| made.env.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
        assert_eq!(value("http_proxy"), Some("http://127.0.0.1:3128"));
        assert_eq!(value("https_proxy"), Some("mine"));
    }
}
