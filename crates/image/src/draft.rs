//! An image under construction: one layer per step, each taken from the build cache or stored in it.
//!
//! Knows neither what a step does nor who runs it; a step is its text, and its layer a tar stream.

use std::{
    io::Read,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    digest::Digest,
    error::Error,
    lock::{Lease, Workspace},
    name::Name,
    record::{BaseImage, Record},
    store::{ImageInfo, Rootfs, Store},
};

/// An image under construction. Dropped without [`Draft::save`] it leaves no image; layers of finished steps stay in the
/// build cache.
pub struct Draft {
    store: Store,
    workspace: Workspace,
    from: Option<String>,
    id: Digest,
    base: BaseImage,
    layers: Vec<Digest>,
    env: Vec<(String, String)>,
    workdir: Option<PathBuf>,
}

/// The layer of a finished step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLayer {
    /// Its digest.
    pub digest: Digest,
    /// Bytes of its files.
    pub bytes: u64,
}

/// A stored draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The image.
    pub image: ImageInfo,
    /// Whether an equal image had this name already.
    pub unchanged: bool,
}

/// Whether layers of earlier builds are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// A step that ran before on the same parent is not run again.
    Use,
    /// Every step runs.
    Ignore,
}

impl Store {
    /// Starts an image on top of a stored one, or of the built-in one (`None`).
    pub fn draft(&self, from: Option<&str>) -> Result<Draft, Error> {
        let workspace = self.workspace()?;
        match from {
            None => {
                let record = Record::local("host", BaseImage::Host, Vec::new(), Vec::new(), None);
                Ok(Draft::new(self, workspace, record, Some("host")))
            }
            Some(from) => {
                let record = self.lease_image(&workspace, &Name::new(from)?)?;
                Ok(Draft::new(self, workspace, record, Some(from)))
            }
        }
    }

    /// Starts an image on top of nothing.
    pub(crate) fn empty_draft(&self, env: Vec<(String, String)>) -> Result<Draft, Error> {
        let record = Record::local("", BaseImage::Empty, Vec::new(), env, None);
        Ok(Draft::new(self, self.workspace()?, record, None))
    }
}

impl Draft {
    fn new(store: &Store, workspace: Workspace, record: Record, from: Option<&str>) -> Self {
        let Record { id, base, layers, env, workdir, .. } = record;
        let from = from.map(str::to_owned);
        Self { store: store.clone(), workspace, from, id, base, layers, env, workdir }
    }

    /// Adds the layer that this step produced before on the same content, if it is still stored.
    pub fn recall(&mut self, step: &str) -> Result<Option<StepLayer>, Error> {
        let entry = self.store.cache_entry(&self.id, step);
        let Some(layer) = entry.and_then(|entry| entry.layer) else { return Ok(None) };
        if !self.store.lease_layer(&self.workspace, &layer)? {
            return Ok(None);
        }
        self.push(layer).map(Some)
    }

    /// How long this step took when it last ran.
    pub fn last_duration(&self, step: &str) -> Option<Duration> {
        self.store.last_duration(&self.id, step)
    }

    /// The layers so far, for the sandbox in which the next step runs.
    pub fn rootfs(&self) -> Result<Rootfs, Error> {
        let mut dirs = Vec::with_capacity(self.layers.len());
        for layer in self.layers.iter().rev() {
            // A lost one fails to be locked.
            let dir = self.store.layer_dir(layer)?;
            dirs.push(dir.unwrap_or_else(|| self.store.layer_path(layer)));
        }
        let lease = Lease::on(&dirs).map_err(Error::io("cannot lock the layers of an image"))?;
        Ok(Rootfs {
            layers: dirs.into_iter().map(|dir| Store::layer_files(&dir)).collect(),
            on_host: self.base == BaseImage::Host,
            env: self.env.clone(),
            workdir: self.workdir.clone(),
            lease,
        })
    }

    /// Adds the layer of a step, a tar stream with OCI whiteouts, and stores it in the build cache. The step began at
    /// `begun`.
    pub fn add(&mut self, step: &str, diff: impl Read, begun: Instant) -> Result<StepLayer, Error> {
        self.store.check_layer_count(self.layers.len() + 1)?;
        let layer = self.store.add_layer(&self.workspace, diff, None)?;
        self.finish_step(step, layer, begun)
    }

    /// Adds a layer that is stored already.
    pub(crate) fn finish_step(
        &mut self,
        step: &str,
        layer: Digest,
        begun: Instant,
    ) -> Result<StepLayer, Error> {
        self.store.remember_step(&self.workspace, &self.id, step, (layer, begun.elapsed()))?;
        self.push(layer)
    }

    /// Stores the image under a name, replacing one of the same name.
    pub fn save(self, name: &str) -> Result<Saved, Error> {
        let name = Name::new(name)?;
        if let Ok(known) = self.store.read_record(&name)
            && (known.id, &known.from) == (self.id, &self.from)
        {
            return Ok(Saved { image: self.store.info(known), unchanged: true });
        }
        let Self { base, layers, env, workdir, from, .. } = self;
        let record = Record::local(name.as_str(), base, layers, env, workdir);
        let record = Record { from, ..record };
        let image = self.store.put_record(&self.workspace, &name, record)?;
        Ok(Saved { image, unchanged: false })
    }

    pub(crate) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    fn push(&mut self, digest: Digest) -> Result<StepLayer, Error> {
        self.store.check_layer_count(self.layers.len() + 1)?;
        self.layers.push(digest);
        self.id = Record::content_id(self.base, &self.layers, &self.env, self.workdir.as_deref());
        Ok(StepLayer { digest, bytes: self.store.layer_info(&digest).bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &str) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &b"abc"[..]).unwrap();
        builder.into_inner().unwrap()
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        store.commit("low", None, &layer("low")[..]).unwrap();
        (dir, store)
    }

    fn add(draft: &mut Draft, step: &str) -> StepLayer {
        draft.add(step, &layer(step)[..], Instant::now()).unwrap()
    }

    #[test]
    fn a_step_is_recalled_on_the_same_content_only() {
        let (_dir, store) = store();
        let mut draft = store.draft(Some("low")).unwrap();
        assert_eq!(draft.recall("a").unwrap(), None);
        assert_eq!(draft.last_duration("a"), None);
        let (a, b) = (add(&mut draft, "a"), add(&mut draft, "b"));
        assert_eq!((a.bytes, draft.rootfs().unwrap().layers.len()), (3, 3));
        let first = draft.save("mine").unwrap();
        assert!(!first.unchanged);
        assert_eq!((first.image.layers, first.image.from.as_deref()), (3, Some("low")));

        let mut again = store.draft(Some("low")).unwrap();
        // Not on another parent, but its duration is known there.
        assert_eq!(again.recall("b").unwrap(), None);
        assert!(again.last_duration("b").is_some());
        assert_eq!(again.recall("a").unwrap(), Some(a));
        assert_eq!(again.recall("b").unwrap(), Some(b));
        let second = again.save("mine").unwrap();
        assert!(second.unchanged);
        assert_eq!(second.image, first.image);
    }

    #[test]
    fn an_abandoned_draft_leaves_its_steps_until_a_prune() {
        let (_dir, store) = store();
        let mut draft = store.draft(None).unwrap();
        let a = add(&mut draft, "a");
        // A running build keeps its layers.
        assert_eq!(store.prune().unwrap().layers, 0);
        drop(draft);
        let names: Vec<_> = store.list().unwrap().into_iter().map(|image| image.name).collect();
        assert_eq!(names, ["low"]);
        let mut again = store.draft(None).unwrap();
        assert_eq!(again.recall("a").unwrap(), Some(a));
        drop(again);
        assert_eq!(store.prune().unwrap().layers, 1);
        assert_eq!(store.draft(None).unwrap().recall("a").unwrap(), None);
    }

    #[test]
    fn too_many_layers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let limits = crate::Limits { layers: 2, ..crate::Limits::default() };
        let store = Store::with_limits(dir.path(), limits).unwrap();
        let mut draft = store.draft(None).unwrap();
        add(&mut draft, "a");
        add(&mut draft, "b");
        let error = draft.add("c", &layer("c")[..], Instant::now()).unwrap_err();
        assert!(matches!(error, Error::TooManyLayers { limit: 2 }), "{error}");
    }
}
