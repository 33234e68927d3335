//! Taking things away: images by name, and whatever no image or living process needs.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    digest::Digest,
    error::Error,
    lock::{Pass, Try, Workspace, still_at, try_exclusive},
    name::Name,
    store::Store,
    tree,
};

/// What a prune took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Layers of no image.
    pub layers: u64,
    /// Downloads that were cut and not taken up again.
    pub downloads: u64,
    /// Workspaces of processes that died.
    pub workspaces: u64,
    /// Bytes of the layers' files and of the downloads.
    pub bytes: u64,
    /// Layers of no image that stay, because something still runs on them.
    pub in_use: u64,
}

impl Store {
    /// Forgets an image, and removes the layers only it had.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let name = Name::new(name)?;
        // A damaged description must not keep its image from being removed.
        let layers = match self.read_record(&name) {
            Ok(record) => record.layers,
            Err(Error::Record { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        match fs::remove_file(self.record_path(&name)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Unknown { name: name.as_str().to_owned() });
            }
            Err(error) => {
                return Err(Error::io(format!("cannot remove the image `{name}`"))(error));
            }
        }
        match self.collect(&mut Pruned::default(), |layer| layers.contains(layer)) {
            // Another image's damage keeps layers here, but this image is gone as asked.
            Err(Error::Record { .. }) => Ok(()),
            other => other,
        }
    }

    /// Removes layers of no image, cut downloads and what dead processes left.
    pub fn prune(&self) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        if !self.dir("").exists() {
            return Ok(pruned);
        }
        self.collect(&mut pruned, |_| true)?;
        for path in list(&self.downloads_dir())? {
            let size = fs::symlink_metadata(&path).map_or(0, |meta| meta.len());
            if remove_unlocked(&path)? {
                pruned.downloads += 1;
                pruned.bytes += size;
            }
        }
        for path in list(&self.workspaces_dir())? {
            pruned.workspaces += u64::from(remove_unlocked(&path)?);
        }
        Ok(pruned)
    }

    /// Removes the layers that are candidates and that nothing refers to.
    fn collect(
        &self,
        pruned: &mut Pruned,
        candidate: impl Fn(&Digest) -> bool,
    ) -> Result<(), Error> {
        let workspace = self.workspace()?;
        let gate = self.gate(Pass::Alone)?;
        // Leases before records: a lease ends only after its layer's record is there, so whoever is missed
        // as the one is seen as the other.
        let mut needed: BTreeSet<Digest> = BTreeSet::new();
        for path in list(&self.workspaces_dir())? {
            // A dead workspace's leases mean nothing any more.
            if is_alive(&path)? {
                needed.extend(Workspace::leased(&path).map_err(reading(&path))?);
            }
        }
        needed.extend(self.records()?.into_iter().flat_map(|record| record.layers));
        for path in list(&self.layers_dir())? {
            let layer = path.file_name().and_then(|name| name.to_str()).map(Digest::from_hex);
            let Some(Ok(layer)) = layer else { continue };
            if needed.contains(&layer) || !candidate(&layer) {
                continue;
            }
            match try_exclusive(&path).map_err(reading(&path))? {
                Try::Busy => pruned.in_use += 1,
                Try::Locked(_lock) => {
                    let bytes = self.layer_info(&layer).bytes;
                    // Out of its place at once; the slow removal happens when the workspace goes.
                    fs::rename(&path, workspace.fresh())
                        .map_err(Error::io(format!("cannot remove the layer {layer}")))?;
                    pruned.layers += 1;
                    pruned.bytes += bytes;
                }
            }
        }
        drop(gate);
        drop(workspace);
        Ok(())
    }
}

fn is_alive(path: &Path) -> Result<bool, Error> {
    match try_exclusive(path) {
        Ok(Try::Busy) => Ok(true),
        Ok(Try::Locked(_)) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(reading(path)(error)),
    }
}

/// Removes a file or directory unless a living process has it locked; tells whether it did.
fn remove_unlocked(path: &Path) -> Result<bool, Error> {
    let remove = || match try_exclusive(path) {
        Ok(Try::Busy) => Ok(false),
        // The lock stays until it is gone, so nobody takes up what is being removed.
        Ok(Try::Locked(lock)) => {
            Ok(still_at(&lock, path)? && tree::remove_path(path).map(|()| true)?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    remove().map_err(Error::io(format!("cannot remove {}", path.display())))
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = || fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect();
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(reading(dir)),
    }
}

fn reading(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    Error::io(format!("cannot read {}", path.display()))
}
