//! Removal: images by name, and whatever no image and no running process needs.
//!
//! Two steps: a rename into the trash, which is quick and atomic, and the deletion of the files, which any process may do
//! at any time later.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    delete::delete,
    digest::Digest,
    error::Error,
    lock::{LockMode, Try, Workspace, is_foreign, own_name, private_dir, still_at, try_exclusive},
    name::Name,
    progress::{Progress, Silent, Stage},
    store::Store,
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
    /// Layers that images use.
    pub kept: u64,
}

/// What the removal of images freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Layers that were removed.
    pub layers: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Layers that a running sandbox uses; they stay until the next prune.
    pub in_use: u64,
}

impl Store {
    /// Removes an image and the layers that only it uses.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.discard(&[name])?;
        self.empty_trash(&Silent)
    }

    /// Removes layers that no image uses, interrupted downloads and the workspaces of dead processes.
    pub fn prune(&self) -> Result<Pruned, Error> {
        let pruned = self.discard_unused()?;
        self.empty_trash(&Silent)?;
        Ok(pruned)
    }

    /// Removes images, and moves the layers that only they use to the trash. If one of the images does not exist,
    /// nothing is removed.
    ///
    /// This is quick. What is slow, the deletion of files, is done by [`Store::empty_trash`].
    pub fn discard(&self, names: &[impl AsRef<str>]) -> Result<Removed, Error> {
        let mut images = BTreeMap::new();
        for name in names {
            let name = Name::new(name.as_ref())?;
            // An image with a damaged record must be removable.
            let layers = match self.read_record(&name) {
                Ok(record) => record.layers,
                Err(Error::Record { .. }) => Vec::new(),
                Err(error) => return Err(error),
            };
            images.insert(name, layers);
        }
        let layers: BTreeSet<Digest> = images.values().flatten().copied().collect();
        // Killed after the records are gone, this process would leave layers that nobody knows of. Without space for the
        // notes images are removed nevertheless.
        let workspace = self.workspace().ok();
        if let Some(workspace) = &workspace {
            layers.iter().for_each(|layer| drop(workspace.mark_expendable(layer)));
        }
        for name in images.keys() {
            match fs::remove_file(self.record_path(name)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Error::Unknown { name: name.as_str().to_owned() });
                }
                Err(error) => {
                    return Err(Error::io(format!("cannot remove the image `{name}`"))(error));
                }
            }
        }
        let mut pruned = Pruned::default();
        match self.collect(&mut pruned, |layer| layers.contains(layer)) {
            // The damaged record of another image keeps layers, but these images are removed.
            Ok(()) | Err(Error::Record { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Removed { layers: pruned.layers, bytes: pruned.bytes, in_use: pruned.in_use })
    }

    /// Like [`Store::prune`], but moves layers and workspaces to the trash.
    pub fn discard_unused(&self) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        if !self.dir("").exists() {
            return Ok(pruned);
        }
        self.collect(&mut pruned, |_| true)?;
        self.prune_cache()?;
        for path in list(&self.downloads_dir())? {
            let size = fs::symlink_metadata(&path).map_or(0, |meta| meta.len());
            if self.discard_unlocked(&path)? {
                pruned.downloads += 1;
                pruned.bytes += size;
            }
        }
        for path in list(&self.workspaces_dir())? {
            pruned.workspaces += u64::from(self.discard_unlocked(&path)?);
        }
        Ok(pruned)
    }

    /// Deletes what is in the trash. If another process is deleting it, that one continues and this call returns. A
    /// process that is killed meanwhile leaves the rest to the next call.
    ///
    /// # Errors
    /// The first one. What comes after the entry that cannot be deleted is deleted nevertheless.
    pub fn empty_trash(&self, progress: &dyn Progress) -> Result<(), Error> {
        let trash = self.trash_dir();
        let (mut failure, mut failed) = (None, BTreeSet::new());
        let left = |failed: &BTreeSet<PathBuf>| {
            let mut paths = list(&trash)?;
            paths.retain(|path| !failed.contains(path));
            Ok::<_, Error>(paths)
        };
        // What is added after the last look, while we still have the lock, is left to us.
        while !left(&failed)?.is_empty() {
            let Try::Locked(_lock) = try_exclusive(&trash).map_err(reading(&trash))? else {
                break;
            };
            progress.stage(Stage::Removing, None);
            for path in left(&failed)? {
                if let Err(error) = delete(&path, &|count| progress.advance(count)) {
                    let what = format!("cannot remove {}", path.display());
                    failure.get_or_insert(Error::io(what)(error));
                    failed.insert(path);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Whether there is nothing to delete.
    pub fn trash_is_empty(&self) -> Result<bool, Error> {
        list(&self.trash_dir()).map(|left| left.is_empty())
    }

    /// Whether there is something in the trash, and no process is deleting it.
    pub fn has_abandoned_trash(&self) -> Result<bool, Error> {
        let trash = self.trash_dir();
        Ok(!list(&trash)?.is_empty() && !is_alive(&trash)?)
    }

    fn trash_dir(&self) -> PathBuf {
        self.dir("trash")
    }

    /// Moves a file or directory to the trash, by one rename.
    fn throw_away(&self, path: &Path) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        private_dir(&self.trash_dir())?;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let to = self.trash_dir().join(own_name(count));
            // Left by a dead process with our id.
            if fs::symlink_metadata(&to).is_ok() {
                continue;
            }
            return fs::rename(path, to);
        }
    }

    /// Throws a file or directory away unless a running process has it locked; returns whether it did.
    fn discard_unlocked(&self, path: &Path) -> Result<bool, Error> {
        if is_foreign(path) {
            return Ok(false);
        }
        let discard = || match try_exclusive(path) {
            Ok(Try::Busy) => Ok(false),
            // Locked until it is moved, so that no process starts to use it.
            Ok(Try::Locked(lock)) => {
                Ok(still_at(&lock, path)? && self.throw_away(path).map(|()| true)?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        discard().map_err(Error::io(format!("cannot remove {}", path.display())))
    }

    /// Throws those candidate layers away that nothing refers to, and those that a process which died left behind.
    fn collect(
        &self,
        pruned: &mut Pruned,
        candidate: impl Fn(&Digest) -> bool,
    ) -> Result<(), Error> {
        let _lock = self.lock(LockMode::Exclusive)?;
        // Leases before records: a lease ends only after the record of its layer exists, so a layer that is missed
        // as the one is found as the other.
        let (mut leased, mut expendable) = (BTreeSet::new(), BTreeSet::new());
        for path in list(&self.workspaces_dir())? {
            // Locks of another machine's sandboxes on its layers may not be seen here.
            if !is_foreign(&path) {
                expendable.extend(Workspace::expendable(&path).map_err(reading(&path))?);
            }
            // The leases of a dead process no longer count.
            if is_alive(&path)? {
                leased.extend(Workspace::leased(&path).map_err(reading(&path))?);
            }
        }
        let used: BTreeSet<Digest> =
            self.records()?.into_iter().flat_map(|record| record.layers).collect();
        for path in list(&self.layers_dir())? {
            let layer = path.file_name().and_then(|name| name.to_str()).map(Digest::from_hex);
            let Some(Ok(layer)) = layer else { continue };
            pruned.kept += u64::from(used.contains(&layer));
            let is_candidate = candidate(&layer) || expendable.contains(&layer);
            if used.contains(&layer) || leased.contains(&layer) || !is_candidate {
                continue;
            }
            match try_exclusive(&path).map_err(reading(&path))? {
                Try::Busy => pruned.in_use += 1,
                Try::Locked(_lock) => {
                    let bytes = self.layer_info(&layer).bytes;
                    self.throw_away(&path)
                        .map_err(Error::io(format!("cannot remove the layer {layer}")))?;
                    pruned.layers += 1;
                    pruned.bytes += bytes;
                }
            }
        }
        let mut needed: BTreeSet<Digest> = used.union(&leased).copied().collect();
        // Layers of which the archive is kept for any reason.
        let kept = list(&self.layers_dir())?;
        needed.extend(
            kept.iter().filter_map(|path| Digest::from_hex(path.file_name()?.to_str()?).ok()),
        );
        self.prune_unpacked(&needed);
        Ok(())
    }
}

fn is_alive(path: &Path) -> Result<bool, Error> {
    if is_foreign(path) {
        return Ok(true);
    }
    match try_exclusive(path) {
        Ok(Try::Busy) => Ok(true),
        Ok(Try::Locked(_)) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(reading(path)(error)),
    }
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
