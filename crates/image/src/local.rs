//! Layers on storage that cannot hold their files: on NFS and its like, a directory has neither whiteouts nor the marks of
//! overlayfs, and many small files are slow.
//!
//! Such a store keeps each layer as one archive, and unpacks it into a directory of this machine at its first use:
//!
//! ```text
//! ROOT/layers/HEX/tar.gz   the layer, as it was added; ROOT may be shared by several machines
//! LOCAL/layers/HEX/fs      its files
//! LOCAL/tmp/               workspaces
//! LOCAL/unpacking          locked by the process that unpacks
//! ```
//! LOCAL is a cache: all of it can be removed while no sandbox runs.

use std::{
    collections::BTreeSet,
    fs, io,
    io::{BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

use crate::{
    compress::decode,
    delete::delete,
    digest::Digest,
    error::Error,
    lock::{LockMode, StoreLock, Try, Workspace, private_dir, try_exclusive},
    reserve::ReservingReader,
    store::{Store, UnpackedLayer},
};

const ARCHIVE: &str = "tar.gz";

impl Store {
    /// Unpacks layers below `local`, a directory of this machine, and stores new ones as archives. Layers that are stored
    /// unpacked already are used as they are.
    pub fn unpacking_in(self, local: impl Into<PathBuf>) -> Self {
        let mut store = self;
        store.local = Some(local.into().into());
        store
    }

    /// Where the directories of unpacked layers are, and the workspaces to unpack them in.
    fn unpacked_root(&self) -> &Path {
        self.local.as_deref().unwrap_or_else(|| self.root())
    }

    fn unpacked_path(&self, layer: &Digest) -> PathBuf {
        self.unpacked_root().join("layers").join(layer.hex())
    }

    fn archive_path(&self, layer: &Digest) -> PathBuf {
        self.layer_path(layer).join(ARCHIVE)
    }

    /// The directory with the files of a layer; `None` if the layer is lost.
    pub(crate) fn layer_dir(&self, layer: &Digest) -> Result<Option<PathBuf>, Error> {
        let stored = self.layer_path(layer);
        if Self::layer_files(&stored).exists() {
            return Ok(Some(stored));
        }
        let archive = self.archive_path(layer);
        if !archive.exists() {
            return Ok(None);
        }
        let unpacked = self.unpacked_path(layer);
        if !Self::layer_files(&unpacked).exists() {
            self.unpack_archived(layer, &archive, &unpacked)?;
        }
        Ok(Some(unpacked))
    }

    /// Unpacks a layer that is stored as an archive. Others wait for it rather than unpack it too.
    #[tracing::instrument(level = "debug", skip_all, fields(%layer))]
    fn unpack_archived(
        &self,
        layer: &Digest,
        archive: &Path,
        unpacked: &Path,
    ) -> Result<(), Error> {
        let root = self.unpacked_root();
        let failed = || Error::io(format!("cannot unpack the layer {layer} in {}", root.display()));
        private_dir(root).map_err(failed())?;
        let locked = StoreLock::acquire(&root.join("unpacking"), LockMode::Exclusive);
        let _lock = locked.map_err(failed())?;
        if Self::layer_files(unpacked).exists() {
            return Ok(());
        }
        let workspace = Workspace::new(&root.join("tmp")).map_err(failed())?;
        let dir = workspace.new_path();
        let file = fs::File::open(archive).map_err(failed())?;
        let (_, tar) = decode(file).map_err(failed())?;
        let (found, _) = self.unpack_into(&dir, tar)?;
        if found != *layer {
            return Err(Error::WrongLayer { expected: *layer, found });
        }
        private_dir(unpacked)
            .and_then(|()| fs::rename(Self::layer_files(&dir), Self::layer_files(unpacked)))
            .map_err(failed())
    }

    /// Writes a layer's archive into a workspace, and unpacks it in another on this machine.
    pub(crate) fn archive_layer(
        &self,
        workspace: &Workspace,
        tar: impl Read,
    ) -> Result<UnpackedLayer, Error> {
        let writing = || Error::io("cannot write a layer's archive");
        let root = self.unpacked_root();
        let local = Workspace::new(&root.join("tmp"))
            .map_err(Error::io(format!("cannot unpack a layer in {}", root.display())))?;
        let (dir, files) = (workspace.new_path(), local.new_path());
        fs::create_dir(&dir).map_err(writing())?;
        let archive = fs::File::create_new(dir.join(ARCHIVE)).map_err(writing())?;
        let archive = BufWriter::with_capacity(1 << 20, archive);
        let mut archive = GzEncoder::new(archive, Compression::fast());
        let at = fs::File::open(&dir).map_err(writing())?;
        let tar = ReservingReader::new(tar, at, self.limits().reserve);
        let copied = Copied { reader: tar, copy: &mut archive };
        let (digest, info) = self.unpack_into(&files, copied)?;
        let written = archive.finish().and_then(|mut file| file.flush());
        written.map_err(writing())?;
        Self::write_layer_info(&dir, &info)?;
        Ok(UnpackedLayer { dir, digest, files: Some((local, files)) })
    }

    /// Moves the files of a layer that was just unpacked to where sandboxes find them. Should another process have been
    /// faster, or this fail, they are unpacked again when they are needed.
    pub(crate) fn keep_unpacked(&self, layer: &Digest, files: &Path) {
        let unpacked = self.unpacked_path(layer);
        let _ = private_dir(&unpacked)
            .and_then(|()| fs::rename(Self::layer_files(files), Self::layer_files(&unpacked)));
    }

    /// Removes unpacked layers that are in none of these, and that no sandbox uses; and what killed processes left.
    pub(crate) fn prune_unpacked(&self, needed: &BTreeSet<Digest>) {
        let Some(local) = &self.local else { return };
        let entries = |name: &str| fs::read_dir(local.join(name)).into_iter().flatten().flatten();
        let unneeded = entries("layers").filter(|entry| {
            let name = entry.file_name();
            let layer = name.to_str().and_then(|name| Digest::from_hex(name).ok());
            layer.is_none_or(|layer| !needed.contains(&layer))
        });
        for entry in unneeded.chain(entries("tmp")) {
            // Nothing is lost but space if one cannot be removed.
            if let Ok(Try::Locked(_lock)) = try_exclusive(&entry.path()) {
                let _ = delete(&entry.path(), &|_| {});
            }
        }
    }
}

/// A reader that copies what is read.
struct Copied<'a, R, W> {
    reader: R,
    copy: &'a mut W,
}

impl<R: Read, W: Write> Read for Copied<'_, R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.reader.read(buffer)?;
        let written = self.copy.write_all(&buffer[..got]);
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write a layer's archive: {error}"))
        })?;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A layer with a file and a whiteout.
    fn layer() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, data) in [("etc/name", "x".repeat(3000)), ("etc/.wh.gone", String::new())] {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, data.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn count(dir: PathBuf) -> usize {
        fs::read_dir(dir).map_or(0, Iterator::count)
    }

    #[test]
    fn a_layer_is_one_file_and_each_machine_unpacks_it() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Store::open(dir.path().join("shared")).unwrap();
        let node = |name: &str| shared.clone().unpacking_in(dir.path().join(name));
        let (one, two) = (node("one"), node("two"));
        let image = one.commit("mine", None, &layer()[..]).unwrap();
        assert_eq!(image.size, 3000);
        let stored = fs::read_dir(shared.layers_dir()).unwrap().next().unwrap().unwrap().path();
        assert!(stored.join(ARCHIVE).exists() && !Store::layer_files(&stored).exists());
        for (store, name) in [(&one, "one"), (&two, "two")] {
            let rootfs = store.rootfs("mine").unwrap();
            assert!(rootfs.layers[0].starts_with(dir.path().join(name)), "{rootfs:?}");
            assert_eq!(fs::read(rootfs.layers[0].join("etc/name")).unwrap().len(), 3000);
            assert!(rootfs.layers[0].join("etc/gone").symlink_metadata().is_ok());
            // Used by a sandbox: kept, though no image needs it any more.
            store.prune_unpacked(&BTreeSet::new());
            assert_eq!(count(dir.path().join(name).join("layers")), 1);
            assert_eq!(count(dir.path().join(name).join("tmp")), 0);
        }
        // On a machine where the store can hold files itself.
        let rootfs = shared.rootfs("mine").unwrap();
        assert_eq!(rootfs.layers, [Store::layer_files(&stored)]);
        drop(rootfs);
        two.remove("mine").unwrap();
        one.prune().unwrap();
        for name in ["one", "two"] {
            assert_eq!(count(dir.path().join(name).join("layers")), 0, "{name}");
        }
        assert_eq!(count(shared.layers_dir()), 0);
    }

    #[test]
    fn a_damaged_archive_is_noticed_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (root, local) = (dir.path().join("store"), dir.path().join("local"));
        let store = Store::open(root).unwrap().unpacking_in(&local);
        store.commit("mine", None, &layer()[..]).unwrap();
        fs::remove_dir_all(&local).unwrap();
        let stored = fs::read_dir(store.layers_dir()).unwrap().next().unwrap().unwrap().path();
        let archive = stored.join(ARCHIVE);
        let whole = fs::read(&archive).unwrap();
        fs::write(&archive, &whole[..whole.len() / 2]).unwrap();
        assert!(matches!(store.rootfs("mine"), Err(Error::Unpack(_))));
        // Another layer in its place.
        let mut other = GzEncoder::new(Vec::new(), Compression::fast());
        other.write_all(&tar::Builder::new(Vec::new()).into_inner().unwrap()).unwrap();
        fs::write(&archive, other.finish().unwrap()).unwrap();
        assert!(matches!(store.rootfs("mine"), Err(Error::WrongLayer { .. })));
        assert_eq!((count(local.join("layers")), count(local.join("tmp"))), (0, 0));
        fs::write(&archive, whole).unwrap();
        assert_eq!(store.rootfs("mine").unwrap().layers.len(), 1);
    }
}
