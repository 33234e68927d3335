//! Saves file systems as images: unnamed ones for forks, named ones for snapshots.

use std::sync::Arc;

use bollard::{
    Docker,
    models::ContainerConfig,
    query_parameters::{CommitContainerOptions, RemoveImageOptions},
};
use sandbox::{Error, RequestError};

use crate::{
    config::LABEL_KIND,
    failure::{self, during},
    runtime::{self, Recipe},
    sandbox_impl::{DockerSandbox, Inner},
};

/// An image created for forks. It is removed with the last sandbox that was created from it or from a fork of it.
pub(crate) struct ForkImage {
    pub(crate) id: String,
    parent: Option<Arc<ForkImage>>,
}

/// Creates a second sandbox with the same files.
pub(crate) async fn fork(inner: Arc<Inner>) -> Result<DockerSandbox, Error> {
    let image = inner.save_for_fork().await?;
    let forked = runtime::create(Recipe {
        docker: inner.docker.clone(),
        spec: inner.spec.clone(),
        image: image.id.clone(),
        fork: Some(Arc::clone(&image)),
        owner: inner.owner.clone(),
        daemon: inner.daemon.clone(),
    });
    let forked = forked.await;
    if forked.is_err() {
        release(&inner.docker, Some(image)).await?;
    }
    forked
}

impl Inner {
    /// Saves the files as an image without a name.
    async fn save_for_fork(&self) -> Result<Arc<ForkImage>, Error> {
        let id = self.commit("fork", None).await?;
        let parent = self.image.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        Ok(Arc::new(ForkImage { id, parent }))
    }

    /// Saves the files as an image with a name.
    pub(crate) async fn save_as(&self, name: &str) -> Result<(), Error> {
        let (repo, tag) = match name.rsplit_once(':') {
            Some((repo, tag)) if !tag.contains('/') => (repo, tag),
            _ => (name, "latest"),
        };
        if repo.is_empty() || tag.is_empty() {
            return Err(RequestError::ImageName(name.to_owned()).into());
        }
        self.commit("snapshot", Some((repo, tag))).await.map(drop)
    }

    async fn commit(&self, kind: &str, name: Option<(&str, &str)>) -> Result<String, Error> {
        // No command may run or start meanwhile: it would save its state in the middle.
        let _shell = self.shell.lock().await;
        let _frozen = self.frozen.write().await;
        let options = CommitContainerOptions {
            container: Some(self.id.clone()),
            repo: name.map(|(repo, _)| repo.to_owned()),
            tag: name.map(|(_, tag)| tag.to_owned()),
            pause: true,
            // The entry point of this runtime is not part of the image.
            changes: Some(format!("LABEL {LABEL_KIND}={kind}\nENTRYPOINT []\nCMD [\"bash\"]")),
            ..Default::default()
        };
        let saved = self.patient().commit_container(options, ContainerConfig::default()).await;
        match saved {
            Ok(saved) => Ok(saved.id),
            Err(error) if is_about_the_name(&error) => {
                let message = failure::message(&error).unwrap_or_default();
                let message = format!("{message}; write a name such as name or team/name:tag");
                Err(RequestError::SnapshotRejected { message }.into())
            }
            Err(error) => Err(during("saving the files")(error)),
        }
    }
}

/// Whether the daemon refused the name of an image. Some versions call that a failure of their own.
fn is_about_the_name(error: &bollard::errors::Error) -> bool {
    let message = failure::message(error).unwrap_or_default();
    failure::code(error) == Some(400)
        || ["invalid reference format", "repository name must"]
            .iter()
            .any(|text| message.contains(text))
}

/// Releases an image. The last release removes it, and the images it was created from.
pub(crate) async fn release(docker: &Docker, image: Option<Arc<ForkImage>>) -> Result<(), Error> {
    let mut next = image.and_then(Arc::into_inner);
    while let Some(image) = next {
        remove_image(docker, &image.id).await?;
        next = image.parent.and_then(Arc::into_inner);
    }
    Ok(())
}

/// Removes an image, if it still exists.
pub(crate) async fn remove_image(docker: &Docker, name: &str) -> Result<(), Error> {
    // Parents are removed by their own `ForkImage`, not along with their children.
    let options = RemoveImageOptions { force: true, noprune: true, platforms: None };
    match docker.remove_image(name, Some(options), None).await {
        Err(error) if failure::code(&error) != Some(404) => Err(during("removing an image")(error)),
        _ => Ok(()),
    }
}
