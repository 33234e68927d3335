//! The native runtime: starts the spawner, and turns specifications into sandboxes.

use std::{
    ffi::OsString,
    hash::{BuildHasher, RandomState},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use image::{Lease, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbox::{Error, ImageRef, Network, Runtime, SandboxInfo, Spec};
use tokio::{
    io::Interest,
    process::{Child, Command},
    sync::Mutex,
};

use crate::{
    NativeSandbox, host_image,
    init::Reply,
    leftovers,
    link::{Arrival, Link, Numbered},
    plan::{Base, NetworkPlan, Plan, plan},
    protection, proxy,
    spawner::{Answer, Facts, Order},
    sys, wire,
};

/// The variable that tells a dynamic loader where libraries are.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// How to start the spawner: a program that does nothing but call [`crate::spawner_main`].
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What a [`NativeRuntime`] needs to know.
#[derive(Clone, Debug)]
pub struct NativeOptions {
    /// Where state and images are kept.
    pub home: PathBuf,
    /// How to start the spawner.
    pub launcher: Launcher,
}

/// Makes sandboxes from namespaces, through one spawner process.
pub struct NativeRuntime {
    shared: Arc<Shared>,
}

/// What a runtime and its sandboxes share. The spawner ends with the last of them.
pub(crate) struct Shared {
    spawner: Link<Answer>,
    _process: Mutex<Child>,
    facts: Facts,
    pub(crate) store: Store,
    runs: PathBuf,
    run: String,
    next: AtomicU32,
}

impl Numbered for Answer {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Begun(_) | Self::NotBegun(_) => None,
            Self::Created { request }
            | Self::Prepared { request }
            | Self::Destroyed { request }
            | Self::Pruned { request, .. }
            | Self::Failed { request, .. } => Some(*request),
        }
    }
}

/// Where this process found its libraries, if it was told.
#[expect(
    clippy::disallowed_methods,
    reason = "the loader reads it, nobody configures anything by it"
)]
fn libraries() -> Option<OsString> {
    std::env::var_os(LIBRARIES)
}

fn no_spawner() -> Error {
    Error::Gone("the spawner process has ended".into())
}

impl NativeRuntime {
    /// Starts the spawner.
    pub async fn start(options: NativeOptions) -> Result<Self, Error> {
        raise_descriptor_limit();
        let store = Store::open(options.home.join("images")).map_err(image_error)?;
        let runs = options.home.join("run");
        let (ours, theirs) = wire::pair().map_err(Error::io("making a socket"))?;
        let run = format!("{}-{:08x}", std::process::id(), RandomState::new().hash_one(0u8) as u32);
        // Of this process's environment the spawner gets what it may need to start at all; sandboxes get nothing.
        let process = Command::new(&options.launcher.program)
            .args(&options.launcher.args)
            // What sandboxes see as the name of their first process.
            .arg0("llm-in-sandbox")
            .env_clear()
            .envs(libraries().map(|path| (LIBRARIES, path)))
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::io(format!("starting {}", options.launcher.program.display())))?;
        let begin = Order::Begin { run_dir: runs.join(&run) };
        wire::send(std::os::fd::AsFd::as_fd(&ours), &begin, &[])
            .map_err(Error::io("talking to the spawner"))?;
        let ((answer, _), ours) =
            first::<Answer>(ours).await.map_err(Error::io("starting the spawner"))?;
        let facts = match answer {
            Answer::Begun(facts) => facts,
            Answer::NotBegun(trouble) => return Err(no_sandboxes(trouble.into())),
            _ => return Err(no_spawner()),
        };
        let spawner = Link::new(ours).map_err(Error::io("talking to the spawner"))?;
        let shared = Shared {
            spawner,
            _process: Mutex::new(process),
            facts,
            store,
            runs,
            run,
            next: AtomicU32::new(1),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The image store sandboxes start from.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }
}

/// Names what to do where the kernel refuses namespaces.
fn no_sandboxes(error: Error) -> Error {
    match error {
        Error::Io { what, source }
            if matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::StorageFull
            ) =>
        {
            Error::Unsupported {
                what: "a native sandbox".into(),
                why: format!("{what}: {source}"),
                remedy: "see `llm-in-sandbox doctor`, or use --runtime docker".into(),
            }
        }
        other => other,
    }
}

/// Hundreds of sandboxes need more descriptors than the usual first limit.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The first message on a fresh socket, before anything else reads from it.
async fn first<M: Numbered>(socket: OwnedFd) -> io::Result<(Arrival<M>, OwnedFd)> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    let socket = sys::watch(socket)?;
    let received = socket
        .async_io(Interest::READABLE, |fd| wire::receive::<M>(std::os::fd::AsFd::as_fd(fd)))
        .await?;
    let arrival = received.ok_or_else(|| io::Error::other("it ended without a word"))?;
    Ok((arrival, socket.into_inner()))
}

pub(crate) fn image_error(error: image::Error) -> Error {
    Error::Service { what: "using the image store".into(), source: Box::new(error) }
}

impl Shared {
    /// A name no other sandbox has.
    pub(crate) fn next_id(&self) -> String {
        format!("{}-{}", self.run, self.next.fetch_add(1, Ordering::Relaxed))
    }

    async fn order(&self, make: impl FnOnce(u32) -> Order) -> Result<Arrival<Answer>, Error> {
        let mut call = self.spawner.call();
        self.spawner.send(&make(call.id), &[]).await.map_err(|_| no_spawner())?;
        match call.reply().await.ok_or_else(no_spawner)? {
            (Answer::Failed { trouble, .. }, _) => Err(trouble.into()),
            arrival => Ok(arrival),
        }
    }

    /// Carries a plan out.
    pub(crate) async fn create(
        self: &Arc<Self>,
        plan: Plan,
        spec: Spec,
        lease: Option<Lease>,
    ) -> Result<NativeSandbox, Error> {
        let order = |request| Order::Create { request, plan: Box::new(plan.clone()) };
        let (_, fds) = self.order(order).await?;
        let socket = fds.into_iter().next().ok_or_else(no_spawner)?;
        let what = "setting up the sandbox";
        let ((reply, fds), socket) = first::<Reply>(socket).await.map_err(Error::io(what))?;
        match reply {
            Reply::Ready => {}
            Reply::NotReady(trouble) => {
                self.destroy(&plan.id).await?;
                return Err(trouble.into());
            }
            _ => return Err(Error::Gone("it gave an answer that makes no sense".into())),
        }
        let proxy = match (&spec.network, plan.network) {
            (Network::Allow(hosts), NetworkPlan::Proxied) => {
                let listener = fds.into_iter().next().ok_or_else(no_spawner)?;
                let serve = proxy::start(listener, hosts.clone())
                    .map_err(Error::io("starting the proxy"))?;
                Some(serve)
            }
            _ => None,
        };
        let link = Link::new(socket).map_err(Error::io("talking to the sandbox"))?;
        let protection = protection::report(&self.facts, &plan);
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

    /// Makes the writable directories of a sandbox that will be created later.
    pub(crate) async fn prepare(&self, id: &str, overlays: usize) -> Result<Vec<OwnedFd>, Error> {
        let order = |request| Order::Prepare { request, id: id.to_owned(), overlays };
        self.order(order).await.map(|(_, fds)| fds)
    }

    /// Ends a sandbox and waits until it is gone.
    pub(crate) async fn destroy(&self, id: &str) -> Result<(), Error> {
        self.order(|request| Order::Destroy { request, id: id.to_owned() }).await.map(drop)
    }

    /// Ends a sandbox, or drops one only prepared, without waiting.
    pub(crate) fn destroy_later(&self, id: String) {
        let _ = self.spawner.send_now(&Order::Destroy { request: 0, id });
    }

    /// Finds out what an image is made of.
    fn base(&self, image: &ImageRef) -> Result<(Base, Option<Lease>), Error> {
        match image {
            ImageRef::Host => Ok((Base::Host(host_image::program_dirs()), None)),
            ImageRef::Dir(dir) => {
                let unknown = |why: String| Error::UnknownImage {
                    image: image.clone(),
                    remedy: format!("{why}; give a directory with a root file system, or a name"),
                };
                let dir = std::path::absolute(dir).map_err(|e| unknown(e.to_string()))?;
                match std::fs::metadata(dir.join("bin"))
                    .or_else(|_| std::fs::metadata(dir.join("usr")))
                {
                    Ok(meta) if meta.is_dir() && dir.to_str().is_some() => {
                        Ok((Base::Dir(dir), None))
                    }
                    _ if !dir.exists() => Err(unknown("there is no such directory".into())),
                    _ => Err(unknown("the directory has neither bin nor usr in it".into())),
                }
            }
            ImageRef::Name(name) => match self.store.rootfs(name) {
                Ok(rootfs) => {
                    let host_dirs =
                        if rootfs.on_host { host_image::program_dirs() } else { Vec::new() };
                    let lease = rootfs.lease.clone();
                    Ok((Base::Stored { rootfs, host_dirs }, Some(lease)))
                }
                Err(error) if error.is_usage() => Err(Error::UnknownImage {
                    image: image.clone(),
                    remedy: match name.as_str() {
                        "base" => "make it with `llm-in-sandbox image build`".into(),
                        _ => "see `llm-in-sandbox image list`, or get it with `image pull`, \
                              `image import` or `image build`"
                            .into(),
                    },
                }),
                Err(error) => Err(image_error(error)),
            },
        }
    }
}

impl Runtime for NativeRuntime {
    type Sandbox = NativeSandbox;

    async fn create(&self, spec: &Spec) -> Result<NativeSandbox, Error> {
        spec.validate()?;
        let (base, lease) = self.shared.base(&spec.image)?;
        let plan = plan(self.shared.next_id(), spec, &base);
        self.shared.create(plan, spec.clone(), lease).await
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>, Error> {
        list_in(&self.shared.runs)
    }

    async fn prune(&self) -> Result<Vec<SandboxInfo>, Error> {
        match self.shared.order(|request| Order::Prune { request }).await? {
            (Answer::Pruned { removed, .. }, _) => Ok(removed),
            _ => Err(no_spawner()),
        }
    }
}

/// The sandboxes of every runtime with this home, leftovers included. Starts nothing and removes nothing.
pub fn list(home: &Path) -> Result<Vec<SandboxInfo>, Error> {
    list_in(&home.join("run"))
}

fn list_in(runs: &Path) -> Result<Vec<SandboxInfo>, Error> {
    leftovers::list(runs).map_err(Error::io(format!("looking into {}", runs.display())))
}
