//! `perf sandbox`: starts the runtimes to compare, from the same image.

use std::sync::Arc;

use anyhow::{Context, Result};
use perf::{
    Machine,
    sandbox::{Effort, Images, SandboxReport, Spread},
};
use sandbox::{ImageRef, Spec};
use sandbox_docker::DockerRuntime;

use super::{
    args::{Against, PerfSandboxArgs},
    table,
};
use crate::{exit::Exit, settings::Settings};

/// Measures sandboxes and prints the figures.
pub(super) async fn run(args: PerfSandboxArgs, settings: &Settings) -> Result<Exit> {
    let other = match args.against {
        Some(Against::Docker) => Some(connect(settings, args.docker_image).await?),
        None => None,
    };
    let mut one_shot_ms = None;
    let mut images =
        Images { native: None, docker: other.as_ref().map(|(_, image)| image.clone()) };
    let native = match native_runtime(settings).await? {
        Some(runtime) => {
            let image = match (args.image, &other) {
                (Some(image), _) => image,
                (None, None) => ImageRef::Host,
                (None, Some((docker, name))) => import_image(docker, name, settings).await?,
            };
            images.native = Some(image.to_string());
            one_shot_ms = Some(one_shot(&image).await?);
            let spec = Spec { image, ..Spec::default() };
            let effort = Effort::native(args.count);
            Some(perf::sandbox::measure(Arc::new(runtime), &spec, effort).await?)
        }
        None => None,
    };
    let docker = match other {
        Some((runtime, name)) => {
            let spec = Spec { image: ImageRef::Name(name), ..Spec::default() };
            let effort = Effort::docker(args.docker_count);
            Some(perf::sandbox::measure(Arc::new(runtime), &spec, effort).await?)
        }
        None => None,
    };
    let bash_ms = perf::sandbox::bare_bash().await.context("starting bash on this machine")?;
    let report =
        SandboxReport { machine: Machine::current(), images, bash_ms, one_shot_ms, native, docker };
    super::print(args.json, &report, table::sandbox)
}

/// Measures this program with a sandbox for one command.
async fn one_shot(image: &ImageRef) -> Result<Spread> {
    let program = std::env::current_exe().context("finding this program")?;
    let image = image.to_string();
    let args = ["sandbox", "run", "--image", &image, "--", "true"];
    perf::sandbox::one_shot(&program, &args).await
}

/// Connects to the daemon and chooses the image to use.
async fn connect(settings: &Settings, image: Option<String>) -> Result<(DockerRuntime, String)> {
    let runtime = DockerRuntime::connect(settings.docker()).await?;
    let image = match image {
        Some(image) => image,
        None => runtime.images().await?.into_iter().next().context(
            "the Docker daemon has no image to compare with; pull one with bash, such as debian, \
             and name it with --docker-image",
        )?,
    };
    Ok((runtime, image))
}

/// Imports the daemon's image into the image store, so that both runtimes start from the same files.
async fn import_image(docker: &DockerRuntime, name: &str, settings: &Settings) -> Result<ImageRef> {
    let imported = format!("perf/{}", name.replace(['/', ':', '@'], "-"));
    let dir = tempfile::tempdir_in(settings.writable_home()?)?;
    let archive = dir.path().join("image.tar");
    docker.save_image(name, &archive).await?;
    let (store, name) = (settings.store()?, imported.clone());
    tokio::task::spawn_blocking(move || store.import_archive(&archive, &name, &image::Silent))
        .await??;
    Ok(ImageRef::Name(imported))
}

#[cfg(target_os = "linux")]
async fn native_runtime(settings: &Settings) -> Result<Option<sandbox_native::NativeRuntime>> {
    Ok(Some(sandbox_native::NativeRuntime::start(settings.native()?).await?))
}

#[cfg(not(target_os = "linux"))]
async fn native_runtime(_: &Settings) -> Result<Option<DockerRuntime>> {
    Ok(None)
}
