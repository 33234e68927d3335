//! File systems saved as images: for forks, which nobody sees, and for snapshots, which have names.

use std::sync::Arc;

use bollard::{
    Docker,
    models::ContainerConfig,
    query_parameters::{CommitContainerOptions, RemoveImageOptions},
};
use sandbox::Error;

use crate::{
    config::LABEL_KIND,
    failure::{self, during},
    runtime::{self, Recipe},
    sandbox_impl::{DockerSandbox, Inner},
};

/// An image made for forks. It goes when the last sandbox made from it, or from a fork of that, is gone.
pub(crate) struct ForkImage {
    pub(crate) id: String,
    parent: Option<Arc<ForkImage>>,
}

/// A second sandbox with the same files.
pub(crate) async fn fork(inner: Arc<Inner>) -> Result<DockerSandbox, Error> {
    let image = inner.save_for_fork().await?;
    let made = runtime::made(Recipe {
        docker: inner.docker.clone(),
        spec: inner.spec.clone(),
        image: image.id.clone(),
        fork: Some(Arc::clone(&image)),
        owner: inner.owner.clone(),
        quota: inner.quota,
    });
    let made = made.await;
    if made.is_err() {
        release(&inner.docker, Some(image)).await?;
    }
    made
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
            return Err(Error::BadRequest(format!(
                "`{name}` is not the name of an image; write it as name or name:tag"
            )));
        }
        self.commit("snapshot", Some((repo, tag))).await.map(drop)
    }

    async fn commit(&self, kind: &str, name: Option<(&str, &str)>) -> Result<String, Error> {
        // No command may be under way that would save its state in the middle, nor one begin.
        let _shell = self.shell.lock().await;
        let _frozen = self.frozen.write().await;
        let options = CommitContainerOptions {
            container: Some(self.id.clone()),
            repo: name.map(|(repo, _)| repo.to_owned()),
            tag: name.map(|(_, tag)| tag.to_owned()),
            pause: true,
            // The first process is ours alone; an image starts like any other.
            changes: Some(format!("LABEL {LABEL_KIND}={kind}\nENTRYPOINT []\nCMD [\"bash\"]")),
            ..Default::default()
        };
        let saved = self.docker.commit_container(options, ContainerConfig::default()).await;
        match saved {
            Ok(saved) => Ok(saved.id),
            Err(error) if failure::code(&error) == Some(400) => Err(Error::BadRequest(format!(
                "the image cannot be saved: {}",
                failure::message(&error).unwrap_or_default()
            ))),
            Err(error) => Err(during("saving the files")(error)),
        }
    }
}

/// Gives up an image; the last to do so removes it, and those it was made from.
pub(crate) async fn release(docker: &Docker, image: Option<Arc<ForkImage>>) -> Result<(), Error> {
    let mut next = image.and_then(Arc::into_inner);
    while let Some(image) = next {
        remove_image(docker, &image.id).await?;
        next = image.parent.and_then(Arc::into_inner);
    }
    Ok(())
}

/// Removes an image; one that is gone already is fine.
pub(crate) async fn remove_image(docker: &Docker, name: &str) -> Result<(), Error> {
    // Parents are removed by those who made them, not along with their children.
    let options = RemoveImageOptions { force: true, noprune: true, platforms: None };
    match docker.remove_image(name, Some(options), None).await {
        Err(error) if failure::code(&error) != Some(404) => Err(during("removing an image")(error)),
        _ => Ok(()),
    }
}
