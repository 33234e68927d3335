//! [`NativeRuntime`]: starts the spawner and turns specifications into sandboxes.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use image::{Lease, Rootfs, Store};
use sandbox::{
    DiskQuota, Error, Feature, ImageRef, Network, Runtime, SandboxInfo, Spec, UnknownImage,
};
use tokio::{io::Interest, sync::Mutex, time::timeout};

use crate::{
    NativeSandbox,
    diagnostics::SpawnerProcess,
    host_image,
    init::Reply,
    launch::{Launched, Launcher},
    leftovers,
    link::{Arrival, Link, Numbered},
    plan::{Base, NetworkPlan, Plan, plan},
    protection,
    proxy::{HostNetwork, InternetSockets, Proxy, Upstream},
    spawner::{HostSupport, SpawnerReply, SpawnerRequest},
    sys, wire,
};

/// How long the spawner may take to remove what dead processes have left, which it does when it starts, too.
const LONGEST_PRUNE: Duration = Duration::from_secs(600);

/// Settings of a [`NativeRuntime`].
#[derive(Clone, Debug)]
pub struct NativeOptions {
    /// Directory for images; must be absolute. May be on slow storage, and shared by several machines.
    pub home: PathBuf,
    /// Directory for the state of running sandboxes; must be absolute, and on a local disk. See [`crate::suitability`].
    /// Where it is not `home`, the layers of images are unpacked below it at their first use.
    pub state: PathBuf,
    /// How to start the spawner.
    pub launcher: Launcher,
}

/// The directory below that for state in which layers of images are unpacked, where it is not the one for images.
pub const UNPACKED: &str = "images";

/// Creates sandboxes from Linux namespaces, through one spawner process.
pub struct NativeRuntime {
    shared: Arc<Shared>,
}

/// State shared by a runtime and its sandboxes. The spawner ends when the last of them is dropped.
pub(crate) struct Shared {
    spawner: Link<SpawnerReply>,
    process: Mutex<SpawnerProcess>,
    support: HostSupport,
    pub(crate) store: Store,
    runs: PathBuf,
    run: String,
    next: AtomicU32,
    upstream: Arc<dyn Upstream>,
}

impl Numbered for SpawnerReply {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Started(_) | Self::NotStarted(_) => None,
            Self::Created { request }
            | Self::Prepared { request }
            | Self::Destroyed { request }
            | Self::Pruned { request, .. }
            | Self::Failed { request, .. } => Some(*request),
        }
    }
}

fn unexpected(answer: &SpawnerReply) -> Error {
    Error::Gone(format!("unexpected answer from the spawner: {answer:?}"))
}

fn missing_descriptor() -> Error {
    Error::Gone("the spawner's answer lacks a descriptor".into())
}

/// How many times the limit of a request a spawner that answers others may take for it.
const LONGEST: u32 = 20;

impl NativeRuntime {
    /// Starts the spawner.
    ///
    /// Fails with [`Error::Denied`] where this machine does not allow the user to create namespaces. The error for a
    /// spawner that ends early has its exit status and the end of its standard error.
    pub async fn start(options: NativeOptions) -> Result<Self, Error> {
        Self::start_with(options, Arc::new(HostNetwork)).await
    }

    /// Starts the spawner. Filtering proxies of its sandboxes use another network than the host's own, for example a
    /// network of test servers. The policy of a sandbox is enforced all the same, on the addresses this one returns.
    pub async fn start_with(
        options: NativeOptions,
        upstream: Arc<dyn Upstream>,
    ) -> Result<Self, Error> {
        let store = Store::open(options.home.join("images")).map_err(image_error)?;
        let store = match options.state == options.home {
            true => store,
            false => store.unpacking_in(options.state.join(UNPACKED)),
        };
        let runs = options.state.join("run");
        let run = format!("{}-{:08x}", std::process::id(), RandomState::new().hash_one(0u8) as u32);
        let launched = options.launcher.take();
        let Launched { process, socket: ours } = launched
            .map_err(Error::io(format!("starting {}", options.launcher.program.display())))?;
        let mut process = SpawnerProcess::new(process);
        let begin = SpawnerRequest::Start {
            run_dir: runs.join(&run),
            host_image: options.state.join("host-image"),
        };
        let begun = async {
            wire::send(std::os::fd::AsFd::as_fd(&ours), &begin, &[])?;
            first::<SpawnerReply>(ours).await
        };
        let ((answer, _), ours) = match timeout(LONGEST_PRUNE, begun).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(source)) => {
                return Err(Error::Io { what: process.explain().await, source });
            }
            Err(_) => {
                let waiting_for = "the spawner to start".to_owned();
                return Err(Error::Stalled { waiting_for, limit: LONGEST_PRUNE });
            }
        };
        let support = match answer {
            SpawnerReply::Started(support) => support,
            SpawnerReply::NotStarted(failure) => return Err(denied(failure.into())),
            other => return Err(unexpected(&other)),
        };
        let spawner = Link::new(ours).map_err(Error::io("connecting to the spawner"))?;
        let shared = Shared {
            spawner,
            process: Mutex::new(process),
            support,
            store,
            runs,
            run,
            next: AtomicU32::new(1),
            upstream,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Creates a sandbox on these layers, which need not be those of a stored image. `spec.image` is only listed.
    pub async fn create_on(&self, spec: &Spec, rootfs: Rootfs) -> Result<NativeSandbox, Error> {
        spec.validate()?;
        let (base, lease) = stored(rootfs);
        let plan = plan(self.shared.next_id(), spec, &base);
        self.shared.create(plan, spec.clone(), Some(lease)).await
    }

    /// The image store of this runtime.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }
}

/// Distinguishes a kernel that denies namespaces from other failures. The limit on user namespaces reports `ENOSPC`.
fn denied(error: Error) -> Error {
    use io::ErrorKind::{PermissionDenied, StorageFull};
    match error {
        Error::Io { what, source } if matches!(source.kind(), PermissionDenied | StorageFull) => {
            Error::Denied { what, source }
        }
        other => other,
    }
}

/// Receives the first message on a new socket, before a [`Link`] reads from it.
async fn first<M: Numbered>(socket: OwnedFd) -> io::Result<(Arrival<M>, OwnedFd)> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    let socket = sys::watch(socket)?;
    let received = socket
        .async_io(Interest::READABLE, |fd| wire::receive::<M>(std::os::fd::AsFd::as_fd(fd)))
        .await?;
    let arrival = received.ok_or_else(|| io::Error::other("it ended without an answer"))?;
    Ok((arrival, socket.into_inner()))
}

/// A sandbox that is being created; destroyed on drop unless it is complete.
struct Unfinished<'a> {
    shared: &'a Shared,
    id: Option<String>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.shared.destroy_later(id);
        }
    }
}

pub(crate) fn image_error(error: image::Error) -> Error {
    Error::Service { what: "using the image store".into(), source: Box::new(error) }
}

impl Shared {
    /// Returns a name that no other sandbox has.
    pub(crate) fn next_id(&self) -> String {
        format!("{}-{}", self.run, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The error for a spawner that has ended, with its exit status and its last lines.
    async fn no_spawner(&self) -> Error {
        Error::Gone(self.process.lock().await.explain().await)
    }

    /// Sends a request to the spawner and waits for its reply, as long as the spawner answers anybody within `limit`.
    async fn request(
        &self,
        waiting_for: &str,
        limit: Duration,
        make: impl FnOnce(u32) -> SpawnerRequest,
    ) -> Result<Arrival<SpawnerReply>, Error> {
        let mut call = self.spawner.call();
        let request = make(call.id);
        let replied = async {
            self.spawner.send(&request, &[]).await.ok()?;
            call.reply().await
        };
        let silent = async {
            let mut seen = self.spawner.arrived();
            loop {
                sandbox::patience(limit).await;
                match self.spawner.arrived() {
                    now if now == seen => return,
                    now => seen = now,
                }
            }
        };
        let reply = tokio::select! {
            reply = replied => reply,
            // Even if it answers others: the process that is waited for may never end.
            () = sandbox::patience(limit.saturating_mul(LONGEST)) => {
                return Err(Error::Stalled { waiting_for: waiting_for.to_owned(), limit });
            }
            () = silent => {
                return Err(Error::Stalled { waiting_for: waiting_for.to_owned(), limit });
            }
        };
        let Some(reply) = reply else { return Err(self.no_spawner().await) };
        match reply {
            (SpawnerReply::Failed { failure, .. }, _) => Err(failure.into()),
            arrival => Ok(arrival),
        }
    }

    /// How the disk limit of a plan is enforced here.
    fn quota_of(&self, plan: &Plan) -> DiskQuota {
        match plan.disk_quota {
            DiskQuota::Auto if plan.limits.disk.is_none() => DiskQuota::Measured,
            DiskQuota::Auto => match self.support.no_project_quota {
                Some(_) => DiskQuota::Measured,
                None => DiskQuota::Project,
            },
            chosen => chosen,
        }
    }

    /// Creates the sandbox of a plan.
    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = plan.id, image = plan.image))]
    pub(crate) async fn create(
        self: &Arc<Self>,
        plan: Plan,
        spec: Spec,
        lease: Option<Lease>,
    ) -> Result<NativeSandbox, Error> {
        let plan = Plan { disk_quota: self.quota_of(&plan), ..plan };
        let missing = match plan.disk_quota {
            DiskQuota::Project => self.support.no_project_quota.as_ref(),
            DiskQuota::Strict => self.support.no_strict_quota.as_ref(),
            DiskQuota::Auto | DiskQuota::Measured | DiskQuota::Memory => None,
        };
        if let Some(missing) = missing {
            return Err(Error::Unsupported {
                feature: Feature::DiskQuota(plan.disk_quota),
                reason: missing.clone(),
                remedy: "the quota `auto` needs nothing".into(),
            });
        }
        let make = |request| SpawnerRequest::Create { request, plan: Box::new(plan.clone()) };
        let limit = spec.stall_timeout;
        // Whatever happens from now on, nothing is left behind.
        let mut unfinished = Unfinished { shared: self, id: Some(plan.id.clone()) };
        let (_, fds) = self.request("a new sandbox", limit, make).await?;
        let socket = fds.into_iter().next().ok_or_else(missing_descriptor)?;
        let ((reply, fds), socket) = match timeout(limit, first::<Reply>(socket)).await {
            Ok(Ok(first)) => first,
            // The new process has reported over the spawner's standard error.
            Ok(Err(source)) => {
                let what = self.process.lock().await.log().explain("setting up the sandbox");
                return Err(Error::Io { what, source });
            }
            Err(_) => {
                let waiting_for = "the first process of a new sandbox".to_owned();
                return Err(Error::Stalled { waiting_for, limit });
            }
        };
        let relay = match reply {
            Reply::Ready { relay } => relay,
            Reply::NotReady(failure) => {
                unfinished.id = None;
                self.destroy(&plan.id, limit).await?;
                return Err(failure.into());
            }
            other => {
                return Err(Error::Gone(format!("unexpected first message of PID 1: {other:?}")));
            }
        };
        let proxy = match (&spec.network, plan.network) {
            (Network::Allow(hosts), NetworkPlan::Proxied) => {
                let mut listeners = fds.into_iter();
                let listener = listeners.next().ok_or_else(missing_descriptor)?;
                let upstream = Arc::clone(&self.upstream);
                let proxy = Proxy::allow(listener, listeners, hosts.clone(), upstream);
                Some(proxy.map_err(Error::io("starting the proxy"))?)
            }
            (Network::Internet, NetworkPlan::Internet) => {
                let sockets = InternetSockets::from_fds(fds).ok_or_else(missing_descriptor)?;
                let proxy = Proxy::internet(sockets, Arc::clone(&self.upstream));
                Some(proxy.map_err(Error::io("starting the proxy"))?)
            }
            _ => None,
        };
        let link = Link::new(socket).map_err(Error::io("connecting to the sandbox"))?;
        let protection = protection::report(&self.support, &plan, relay.as_ref());
        unfinished.id = None;
        Ok(NativeSandbox {
            plan,
            spec,
            protection,
            shared: Arc::clone(self),
            link,
            proxy,
            lease,
            shell: Mutex::new(()),
        })
    }

    /// Creates the writable directories of a sandbox that will be created later.
    pub(crate) async fn prepare(
        &self,
        plan: &Plan,
        limit: Duration,
    ) -> Result<Vec<OwnedFd>, Error> {
        let make = |request| SpawnerRequest::Prepare { request, plan: Box::new(plan.clone()) };
        self.request("the directories of a fork", limit, make).await.map(|(_, fds)| fds)
    }

    /// Destroys a sandbox and waits until it is gone.
    pub(crate) async fn destroy(&self, id: &str, limit: Duration) -> Result<(), Error> {
        let make = |request| SpawnerRequest::Destroy { request, id: id.to_owned() };
        self.request("a sandbox to be destroyed", limit, make).await.map(drop)
    }

    /// Destroys a sandbox, or a prepared one, without waiting.
    pub(crate) fn destroy_later(&self, id: String) {
        self.spawner.send_later(SpawnerRequest::Destroy { request: 0, id });
    }

    /// Resolves an image to the directories it consists of.
    fn base(&self, image: &ImageRef) -> Result<(Base, Option<Lease>), Error> {
        match image {
            ImageRef::Host => Ok((Base::Host(host_image::program_dirs(&[])), None)),
            ImageRef::Dir(dir) => {
                let unknown = |reason| Error::UnknownImage { image: image.clone(), reason };
                let dir = std::path::absolute(dir)
                    .map_err(|source| Error::HostPath { path: dir.clone(), source })?;
                match std::fs::metadata(dir.join("bin"))
                    .or_else(|_| std::fs::metadata(dir.join("usr")))
                {
                    Ok(meta) if meta.is_dir() && dir.to_str().is_some() => {
                        Ok((Base::Dir(dir), None))
                    }
                    _ if !dir.exists() => Err(unknown(UnknownImage::NoDirectory)),
                    _ => Err(unknown(UnknownImage::NotARootFileSystem)),
                }
            }
            ImageRef::Name(name) => match self.store.rootfs(name) {
                Ok(rootfs) => {
                    let (base, lease) = stored(rootfs);
                    Ok((base, Some(lease)))
                }
                Err(error) if error.is_usage() => Err(Error::UnknownImage {
                    image: image.clone(),
                    reason: UnknownImage::NotInStore,
                }),
                Err(error) => Err(image_error(error)),
            },
        }
    }
}

/// The layers of an image, with the host's directories that belong below them.
fn stored(rootfs: Rootfs) -> (Base, Lease) {
    let host_dirs = match rootfs.on_host {
        true => host_image::program_dirs(&rootfs.layers),
        false => Vec::new(),
    };
    let lease = rootfs.lease.clone();
    (Base::Stored { rootfs, host_dirs }, lease)
}

impl Runtime for NativeRuntime {
    type Sandbox = NativeSandbox;

    async fn create(&self, spec: &Spec) -> Result<NativeSandbox, Error> {
        spec.validate()?;
        let (base, lease) = match &spec.image {
            // It may have to be unpacked first.
            image @ ImageRef::Name(_) => {
                let (shared, image) = (Arc::clone(&self.shared), image.clone());
                let found = tokio::task::spawn_blocking(move || shared.base(&image)).await;
                found.map_err(|error| Error::Gone(format!("a worker thread failed: {error}")))??
            }
            image => self.shared.base(image)?,
        };
        let plan = plan(self.shared.next_id(), spec, &base);
        self.shared.create(plan, spec.clone(), lease).await
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>, Error> {
        list_in(&self.shared.runs)
    }

    async fn prune(&self) -> Result<Vec<SandboxInfo>, Error> {
        let make = |request| SpawnerRequest::Prune { request };
        match self.shared.request("leftovers to be removed", LONGEST_PRUNE, make).await? {
            (SpawnerReply::Pruned { removed, .. }, _) => Ok(removed),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

/// Lists the sandboxes of every runtime of this machine with this state directory, including leftovers of dead processes.
/// Changes nothing.
pub fn list(state: &Path) -> Result<Vec<SandboxInfo>, Error> {
    list_in(&state.join("run"))
}

fn list_in(runs: &Path) -> Result<Vec<SandboxInfo>, Error> {
    leftovers::list(runs).map_err(Error::io(format!("listing {}", runs.display())))
}
