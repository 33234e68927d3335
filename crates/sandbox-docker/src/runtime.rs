//! [`DockerRuntime`]: connects to a daemon, creates containers, and finds those of dead processes.

use std::{collections::HashMap, sync::Arc};

use bollard::{
    Docker,
    query_parameters::{ListContainersOptions, ListImagesOptions},
};
use futures_util::StreamExt;
use sandbox::{Error, Feature, Runtime, STALL_TIMEOUT, SandboxInfo, Spec, UnknownImage};
use tokio::{
    io::AsyncWriteExt,
    sync::{Mutex, RwLock},
};
use tracing::Instrument as _;

use crate::{
    config::{self, LABEL, LABEL_IMAGE, LABEL_KIND, LABEL_OWNER},
    daemon::{Daemon, DiskQuota, Transport},
    deadline::{DAEMON_SHARE, LONGEST},
    disk::DiskWatch,
    failure::{self, during},
    fork::{self, ForkImage},
    keeper::Keeper,
    owner::Owner,
    protection,
    sandbox_impl::{DockerSandbox, Inner, remove_container},
    shell::ShellState,
};

/// Settings of a [`DockerRuntime`].
#[derive(Clone, Debug, Default)]
pub struct DockerOptions {
    /// The daemon's address: `unix:///path`, `tcp://host:port` or `http://host:port`. The default
    /// socket when absent.
    pub host: Option<String>,
    /// The image to use for [`sandbox::ImageRef::Host`], which Docker cannot provide.
    pub default_image: Option<String>,
}

/// Creates sandboxes with a Docker daemon.
pub struct DockerRuntime {
    docker: Docker,
    default_image: Option<String>,
    owner: Owner,
    /// What it offers, less what it refused.
    daemon: std::sync::Mutex<Daemon>,
}

impl DockerRuntime {
    /// Connects to a daemon and negotiates the version of its interface. Fails with [`Error::NoDaemon`] if none answers.
    pub async fn connect(options: DockerOptions) -> Result<Self, Error> {
        let address = options.host.unwrap_or_else(default_address);
        let refuse = |error: bollard::errors::Error| Error::NoDaemon {
            address: address.clone(),
            source: Box::new(error),
        };
        let docker = Docker::connect_with_host(&address)
            .map_err(refuse)?
            .with_timeout(DAEMON_SHARE * STALL_TIMEOUT);
        let docker = docker.negotiate_version().await.map_err(refuse)?;
        let info = docker.info().await.map_err(during("inspecting the daemon"))?;
        let default_image = options.default_image;
        let daemon = Daemon { transport: Transport::of(&address), ..Daemon::new(&info) };
        let daemon = std::sync::Mutex::new(daemon);
        Ok(Self { docker, default_image, owner: Owner::current(), daemon })
    }

    /// The daemon's version.
    pub async fn version(&self) -> Result<String, Error> {
        let version =
            self.docker.version().await.map_err(during("reading the daemon's version"))?;
        Ok(version.version.unwrap_or_default())
    }

    /// Whether the daemon can limit what a sandbox stores.
    pub fn bounds_disk(&self) -> bool {
        self.daemon().disk == DiskQuota::Enforced
    }

    fn daemon(&self) -> std::sync::MutexGuard<'_, Daemon> {
        self.daemon.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Removes an image from the daemon's store, if it exists.
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
        let mut archive =
            std::pin::pin!(self.docker.clone().with_timeout(LONGEST).export_image(name));
        while let Some(piece) = archive.next().await {
            let piece = piece.map_err(during("saving an image"))?;
            file.write_all(&piece).await.map_err(failed())?;
        }
        file.flush().await.map_err(failed())
    }

    fn recipe(&self, spec: &Spec, image: &str, daemon: Daemon) -> Recipe {
        Recipe {
            docker: self.docker.clone(),
            spec: spec.clone(),
            image: image.to_owned(),
            fork: None,
            owner: self.owner.clone(),
            daemon,
        }
    }

    /// Removes images for forks of dead processes.
    async fn prune_images(&self) -> Result<(), Error> {
        let options = ListImagesOptions {
            all: true,
            filters: Some(labelled(&format!("{LABEL_KIND}=fork"))),
            ..Default::default()
        };
        let images = self.docker.list_images(Some(options)).await;
        let mut images = images.map_err(during("listing images"))?;
        // Forks of forks before their parents.
        images.sort_by_key(|image| std::cmp::Reverse(image.created));
        for image in images {
            let owner = image.labels.get(LABEL_OWNER).and_then(|owner| owner.parse::<Owner>().ok());
            if owner.is_some_and(|owner| !owner.is_alive()) {
                // An image still in use is removed by a later prune.
                let _ = fork::remove_image(&self.docker, &image.id).await;
            }
        }
        Ok(())
    }
}

fn default_address() -> String {
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
        let mut daemon = self.daemon().clone();
        loop {
            config::check_quota(spec, &daemon)?;
            match create(self.recipe(spec, &image, daemon.clone())).await {
                // A daemon may refuse what it says it has, as a quota on the wrong file system. Continue without, which is
                // reported.
                Err(error) => daemon = daemon.without_refused(&error).ok_or(error)?,
                Ok(sandbox) => {
                    *self.daemon() = daemon;
                    return Ok(sandbox);
                }
            }
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

/// Everything needed to create a container.
pub(crate) struct Recipe {
    pub(crate) docker: Docker,
    pub(crate) spec: Spec,
    /// The image's name or id at the daemon.
    pub(crate) image: String,
    pub(crate) fork: Option<Arc<ForkImage>>,
    pub(crate) owner: Owner,
    pub(crate) daemon: Daemon,
}

/// Creates a container in a task of its own, so that a cancelled caller does not leave a container of unknown name.
pub(crate) async fn create(recipe: Recipe) -> Result<DockerSandbox, Error> {
    let ended = tokio::spawn(create_container(recipe).in_current_span()).await;
    ended.map_err(|e| Error::Gone(format!("its creation was interrupted: {e}")))?
}

/// Creates a container and waits until it is ready. On an error nothing is left behind.
#[tracing::instrument(level = "debug", skip_all, fields(sandbox, image = recipe.image))]
async fn create_container(recipe: Recipe) -> Result<DockerSandbox, Error> {
    let Recipe { docker, spec, image, fork, owner, daemon } = recipe;
    let docker = docker.with_timeout(DAEMON_SHARE * spec.stall_timeout);
    let body = config::container(&spec, image, &owner, &daemon)?;
    let created = docker.create_container(None, body).await.map_err(|error| {
        if failure::is_unknown_image(&error) {
            let reason = UnknownImage::NotAtDaemon;
            return Error::UnknownImage { image: spec.image.clone(), reason };
        }
        during("creating a container")(error)
    })?;
    let id = short(&created.id);
    tracing::Span::current().record("sandbox", &id);
    let mut guard = RemoveOnDrop { docker: &docker, id: Some(id.clone()) };
    let mut keeper = Keeper::attach(&docker, &id).await?;
    docker.start_container(&id, None).await.map_err(|error| {
        if failure::is_missing_bash(&error) {
            return Error::Unsupported {
                feature: Feature::Image(spec.image.clone()),
                reason: "it has no bash".into(),
                remedy: "use an image with bash and coreutils, or install them in it".into(),
            };
        }
        during("starting a container")(error)
    })?;
    let programs = keeper.ready().await?;
    guard.id = None;
    let measured = spec.limits.disk.filter(|_| daemon.disk == DiskQuota::Unavailable);
    Ok(DockerSandbox::new(Inner {
        protection: protection::report(&spec, &daemon),
        disk: measured.map(|limit| Arc::new(DiskWatch::new(limit.0))),
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
        daemon,
    }))
}

/// The short form of a container's id.
fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// Removes a container that did not become ready.
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
