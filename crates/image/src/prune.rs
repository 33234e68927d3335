//! Removal: images by name, and whatever no image and no running process needs.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    digest::Digest,
    error::Error,
    lock::{LockMode, Try, Workspace, still_at, try_exclusive},
    name::Name,
    store::Store,
    tree,
};

/// What a prune removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Layers that no image uses.
    pub layers: u64,
    /// Interrupted downloads.
    pub downloads: u64,
    /// Workspaces of dead processes.
    pub workspaces: u64,
    /// Bytes of the layers' files and of the downloads.
    pub bytes: u64,
    /// Layers that no image uses but a running sandbox does; they stay.
    pub in_use: u64,
}

impl Store {
    /// Removes an image and the layers that only it uses.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let name = Name::new(name)?;
        // An image with a damaged record must be removable.
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
            // The damaged record of another image keeps layers, but this image is removed.
            Err(Error::Record { .. }) => Ok(()),
            other => other,
        }
    }

    /// Removes layers that no image uses, interrupted downloads and the workspaces of dead processes.
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

    /// Removes those candidate layers that nothing refers to.
    fn collect(
        &self,
        pruned: &mut Pruned,
        candidate: impl Fn(&Digest) -> bool,
    ) -> Result<(), Error> {
        let workspace = self.workspace()?;
        let lock = self.lock(LockMode::Exclusive)?;
        // Leases before records: a lease ends only after the record of its layer exists, so a layer that is missed
        // as the one is found as the other.
        let mut needed: BTreeSet<Digest> = BTreeSet::new();
        for path in list(&self.workspaces_dir())? {
            // The leases of a dead process no longer count.
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
                    // Renamed at once; the slow removal happens when the workspace is dropped.
                    fs::rename(&path, workspace.new_path())
                        .map_err(Error::io(format!("cannot remove the layer {layer}")))?;
                    pruned.layers += 1;
                    pruned.bytes += bytes;
                }
            }
        }
        drop(lock);
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

/// Removes a file or directory unless a running process has it locked; returns whether it did.
fn remove_unlocked(path: &Path) -> Result<bool, Error> {
    let remove = || match try_exclusive(path) {
        Ok(Try::Busy) => Ok(false),
        // Locked until it is removed, so that no process starts to use it.
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
