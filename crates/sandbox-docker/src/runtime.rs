//! The runtime: finds a daemon, makes containers, and finds what dead processes left behind.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bollard::{
    Docker,
    query_parameters::{ListContainersOptions, ListImagesOptions},
};
use futures_util::StreamExt;
use sandbox::{Error, Runtime, SandboxInfo, Spec};
use tokio::{
    io::AsyncWriteExt,
    sync::{Mutex, RwLock},
};

use crate::{
    config::{self, DiskQuota, LABEL, LABEL_IMAGE, LABEL_KIND, LABEL_OWNER},
    failure::{self, during},
    fork::{self, ForkImage},
    keeper::Keeper,
    owner::Owner,
    sandbox_impl::{DockerSandbox, Inner, remove_container},
    shell::ShellState,
};

/// How a daemon is found and used.
#[derive(Clone, Debug, Default)]
pub struct DockerOptions {
    /// The daemon's address: `unix:///path`, `tcp://host:port` or `http://host:port`. The usual socket when
    /// absent.
    pub host: Option<String>,
    /// The image to use where a specification asks for the machine's own programs.
    pub default_image: Option<String>,
}

/// Makes sandboxes with a Docker daemon.
pub struct DockerRuntime {
    docker: Docker,
    default_image: Option<String>,
    owner: Owner,
    quota: AtomicBool,
}

/// The longest a request may take; saving a large file system takes a while.
const LONGEST: Duration = Duration::from_secs(900);

impl DockerRuntime {
    /// Connects to a daemon and agrees on a version of its interface.
    pub async fn connect(options: DockerOptions) -> Result<Self, Error> {
        let address = options.host.unwrap_or_else(usual_address);
        let refuse = |error: bollard::errors::Error| Error::Unsupported {
            what: "the Docker runtime".into(),
            why: format!("no daemon answers at {address}: {error}"),
            remedy: "start it, for instance with `systemctl start docker`, or give its address in \
                     DOCKER_HOST"
                .into(),
        };
        let docker = Docker::connect_with_host(&address).map_err(refuse)?.with_timeout(LONGEST);
        let docker = docker.negotiate_version().await.map_err(refuse)?;
        let info = docker.info().await.map_err(during("asking the daemon about itself"))?;
        let xfs = info.driver_status.iter().flatten().any(|pair| {
            matches!(&pair[..], [name, value] if name == "Backing Filesystem" && value == "xfs")
        });
        let quota = match info.driver.as_deref() {
            Some("btrfs" | "zfs") => true,
            Some("overlay2") => xfs,
            _ => false,
        };
        let default_image = options.default_image;
        Ok(Self { docker, default_image, owner: Owner::current(), quota: AtomicBool::new(quota) })
    }

    /// The daemon's own version, for reports.
    pub async fn version(&self) -> Result<String, Error> {
        let version = self.docker.version().await.map_err(during("asking for the version"))?;
        Ok(version.version.unwrap_or_default())
    }

    /// Whether the daemon can bound what a sandbox stores.
    pub fn bounds_disk(&self) -> bool {
        self.quota.load(Ordering::Relaxed)
    }

    /// Removes an image from the daemon's store; one that is not there is fine.
    pub async fn remove_image(&self, name: &str) -> Result<(), Error> {
        fork::remove_image(&self.docker, name).await
    }

    /// The names of the daemon's images, the newest first.
    pub async fn images(&self) -> Result<Vec<String>, Error> {
        let images = self.docker.list_images(None::<ListImagesOptions>).await;
        let mut images = images.map_err(during("listing images"))?;
        images.sort_by_key(|image| std::cmp::Reverse(image.created));
        let names = images.into_iter().flat_map(|image| image.repo_tags);
        Ok(names.filter(|name| !name.starts_with("<none>")).collect())
    }

    /// Writes an image as an archive that image stores can import.
    pub async fn save_image(&self, name: &str, to: &std::path::Path) -> Result<(), Error> {
        let failed = || Error::io(format!("writing {}", to.display()));
        let mut file = tokio::fs::File::create(to).await.map_err(failed())?;
        let mut archive = std::pin::pin!(self.docker.export_image(name));
        while let Some(piece) = archive.next().await {
            let piece = piece.map_err(during("saving an image"))?;
            file.write_all(&piece).await.map_err(failed())?;
        }
        file.flush().await.map_err(failed())
    }

    fn recipe(&self, spec: &Spec, image: &str) -> Recipe {
        let quota = if self.bounds_disk() { DiskQuota::Enforced } else { DiskQuota::Unavailable };
        Recipe {
            docker: self.docker.clone(),
            spec: spec.clone(),
            image: image.to_owned(),
            fork: None,
            owner: self.owner.clone(),
            quota,
        }
    }

    /// Removes images for forks whose makers are dead.
    async fn prune_images(&self) -> Result<(), Error> {
        let options = ListImagesOptions {
            all: true,
            filters: Some(labelled(&format!("{LABEL_KIND}=fork"))),
            ..Default::default()
        };
        let images = self.docker.list_images(Some(options)).await;
        let mut images = images.map_err(during("listing images"))?;
        // Forks of forks before what they were made from.
        images.sort_by_key(|image| std::cmp::Reverse(image.created));
        for image in images {
            let owner = image.labels.get(LABEL_OWNER).and_then(|owner| owner.parse::<Owner>().ok());
            if owner.is_some_and(|owner| !owner.is_alive()) {
                // One that others still use goes with a later prune.
                let _ = fork::remove_image(&self.docker, &image.id).await;
            }
        }
        Ok(())
    }
}

fn usual_address() -> String {
    let own = std::env::home_dir().map(|home| home.join(".docker/run/docker.sock"));
    match own {
        Some(own) if !std::path::Path::new("/var/run/docker.sock").exists() && own.exists() => {
            format!("unix://{}", own.display())
        }
        _ => "unix:///var/run/docker.sock".into(),
    }
}

fn labelled(label: &str) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".into(), vec![label.to_owned()])])
}

impl Runtime for DockerRuntime {
    type Sandbox = DockerSandbox;

    async fn create(&self, spec: &Spec) -> Result<DockerSandbox, Error> {
        spec.validate()?;
        let image = config::image_name(&spec.image, self.default_image.as_deref())?;
        match made(self.recipe(spec, &image)).await {
            // What the storage driver promised its file system does not keep: go on without, and say so.
            Err(Error::Service { source, .. })
                if self.bounds_disk() && source.to_string().contains("storage-opt") =>
            {
                self.quota.store(false, Ordering::Relaxed);
                made(self.recipe(spec, &image)).await
            }
            result => result,
        }
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>, Error> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(labelled(LABEL)),
            ..Default::default()
        };
        let found = self.docker.list_containers(Some(options)).await;
        let found = found.map_err(during("listing containers"))?;
        Ok(found
            .into_iter()
            .filter_map(|container| {
                let labels = container.labels?;
                let owner = labels.get(LABEL_OWNER)?.parse::<Owner>().ok()?;
                Some(SandboxInfo {
                    id: short(&container.id?),
                    owner_pid: owner.pid,
                    alive: owner.is_alive(),
                    image: labels.get(LABEL_IMAGE).cloned().unwrap_or_default(),
                    created: u64::try_from(container.created?).ok()?,
                })
            })
            .collect())
    }

    async fn prune(&self) -> Result<Vec<SandboxInfo>, Error> {
        let mut left = self.list().await?;
        left.retain(|info| !info.alive);
        for info in &left {
            remove_container(&self.docker, &info.id).await?;
        }
        self.prune_images().await?;
        Ok(left)
    }
}

/// Everything one container is made from.
pub(crate) struct Recipe {
    pub(crate) docker: Docker,
    pub(crate) spec: Spec,
    /// The image as the daemon knows it.
    pub(crate) image: String,
    pub(crate) fork: Option<Arc<ForkImage>>,
    pub(crate) owner: Owner,
    pub(crate) quota: DiskQuota,
}

/// Makes a container in a task of its own: a caller that stops waiting cannot leave one whose name nobody
/// has learnt.
pub(crate) async fn made(recipe: Recipe) -> Result<DockerSandbox, Error> {
    let ended = tokio::spawn(make(recipe)).await;
    ended.map_err(|e| Error::Gone(format!("making it ended early: {e}")))?
}

/// Makes a container and waits until it serves. On an error nothing is left.
async fn make(recipe: Recipe) -> Result<DockerSandbox, Error> {
    let Recipe { docker, spec, image, fork, owner, quota } = recipe;
    let body = config::container(&spec, image.clone(), &owner, quota)?;
    let made = docker.create_container(None, body).await.map_err(|error| {
        let unknown = failure::code(&error) == Some(404)
            || failure::message(&error).is_some_and(|m| m.contains("invalid reference"));
        if unknown {
            let remedy = format!("fetch it with `docker pull {image}`, or see `docker images`");
            return Error::UnknownImage { image: spec.image.clone(), remedy };
        }
        during("making a container")(error)
    })?;
    let id = short(&made.id);
    let mut guard = RemoveOnDrop { docker: &docker, id: Some(id.clone()) };
    let mut keeper = Keeper::attach(&docker, &id).await?;
    docker.start_container(&id, None).await.map_err(|error| {
        if failure::message(&error).is_some_and(|m| m.contains("\"bash\"")) {
            return Error::Unsupported {
                what: format!("a sandbox from the image `{}`", spec.image),
                why: "it has no bash".into(),
                remedy: "use an image with bash and coreutils, or install them in it".into(),
            };
        }
        during("starting a container")(error)
    })?;
    let programs = keeper.ready().await?;
    guard.id = None;
    Ok(DockerSandbox::new(Inner {
        protection: config::protection(&spec, quota),
        keeper: Mutex::new(keeper),
        programs,
        counters: Mutex::default(),
        shell: Mutex::new(ShellState::default()),
        frozen: RwLock::default(),
        image: std::sync::Mutex::new(fork),
        tokio: tokio::runtime::Handle::current(),
        docker: docker.clone(),
        id,
        spec,
        owner,
        quota,
    }))
}

/// The part of a container's name people use.
fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// A container that does not come to serve is not left behind, nor one nobody waits for.
struct RemoveOnDrop<'a> {
    docker: &'a Docker,
    id: Option<String>,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let docker = self.docker.clone();
            tokio::spawn(async move { remove_container(&docker, &id).await.map(drop) });
        }
    }
}
