//! The store: unpacked layers shared by images, and one description per image.
//!
//! ```text
//! images/NAME.json     what an image consists of
//! layers/HEX/fs        one unpacked layer, a lowerdir for overlayfs; HEX is the sha256 of its tar
//! layers/HEX/layer.json
//! downloads/HEX        a compressed layer on its way
//! tmp/PID-N/           a workspace of a living process, or of a dead one until the next prune
//! lock                 the gate between those who rely on layers and those who remove them
//! ```
//! Everything appears by one rename, so a killed process leaves nothing half-made where it counts.

use std::{
    fs, io,
    io::{BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    digest::{Digest, Metered},
    error::Error,
    limits::Limits,
    lock::{Gate, Lease, Pass, Workspace, private_dir},
    name::Name,
    record::{Ground, LayerInfo, Record},
    tar_stream::TarStream,
    unpack::{Ownership, UnpackError, unpack},
};

/// Images on this machine. Cheap to clone; several processes may use one directory at once.
#[derive(Clone, Debug)]
pub struct Store {
    root: Arc<Path>,
    limits: Limits,
}

/// What a sandbox needs to start from an image.
#[derive(Clone, Debug)]
pub struct Rootfs {
    /// Unpacked layers, topmost first, for overlayfs with the option `userxattr`.
    pub layers: Vec<PathBuf>,
    /// Whether the layers lie on top of the built-in host image rather than being a whole system.
    pub on_host: bool,
    /// Environment variables the image sets.
    pub env: Vec<(String, String)>,
    /// Where the image wants commands to start.
    pub workdir: Option<PathBuf>,
    /// Keeps the layers from being pruned; keep it, or a clone, while they are mounted.
    pub lease: Lease,
}

/// One line of the list of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// The name as it was given.
    pub name: String,
    /// The identity of the content.
    pub id: Digest,
    /// Bytes of all files in all layers; layers shared with other images count in each.
    pub size: u64,
    /// When the image was added to this store.
    pub created: SystemTime,
    /// How many layers there are.
    pub layers: usize,
    /// Whether the layers lie on top of the built-in host image.
    pub on_host: bool,
}

/// A layer unpacked in a workspace and not yet part of the store.
pub(crate) struct Loose {
    dir: PathBuf,
    pub(crate) digest: Digest,
}

const FILES: &str = "fs";
const LAYER_INFO: &str = "layer.json";

impl Store {
    /// Uses a directory, which need not exist yet.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::with_limits(root, Limits::default())
    }

    /// Uses a directory, and takes no image beyond these limits.
    pub fn with_limits(root: impl Into<PathBuf>, limits: Limits) -> Result<Self, Error> {
        let root = root.into();
        let shown = root.display().to_string();
        let root = std::path::absolute(root)
            .map_err(Error::io(format!("cannot use the store {shown}")))?;
        match fs::metadata(&root) {
            Ok(meta) if !meta.is_dir() => {
                let source = io::ErrorKind::NotADirectory.into();
                Err(Error::Io { what: format!("cannot use the store {shown}"), source })
            }
            _ => Ok(Self { root: root.into(), limits }),
        }
    }

    /// The layers and settings of an image, held against pruning.
    pub fn rootfs(&self, name: &str) -> Result<Rootfs, Error> {
        let name = Name::new(name)?;
        let _gate = match self.record_path(&name).exists() {
            true => self.gate(Pass::Shared)?,
            false => return Err(Error::Unknown { name: name.as_str().to_owned() }),
        };
        let record = self.read_record(&name)?;
        let dirs: Vec<_> = record.layers.iter().rev().map(|layer| self.layer_path(layer)).collect();
        if let Some(at) = dirs.iter().position(|dir| !dir.exists()) {
            let layer = record.layers[record.layers.len() - 1 - at];
            return Err(Error::LostLayer { name: record.name, layer });
        }
        let lease =
            Lease::on(&dirs).map_err(Error::io(format!("cannot lock the layers of `{name}`")))?;
        Ok(Rootfs {
            layers: dirs.into_iter().map(|dir| dir.join(FILES)).collect(),
            on_host: record.ground == Ground::Host,
            env: record.env,
            workdir: record.workdir,
            lease,
        })
    }

    /// Every image, by name.
    pub fn list(&self) -> Result<Vec<ImageInfo>, Error> {
        let mut images: Vec<_> =
            self.records()?.into_iter().map(|record| self.info(record)).collect();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Makes an image out of another (`None`: the built-in host image) and one more layer, a tar stream
    /// with OCI whiteouts.
    pub fn commit(
        &self,
        name: &str,
        base: Option<&str>,
        diff: impl Read,
    ) -> Result<ImageInfo, Error> {
        let name = Name::new(name)?;
        let workspace = self.workspace()?;
        let (ground, mut layers, env, workdir) = match base {
            None => (Ground::Host, Vec::new(), Vec::new(), None),
            Some(base) => {
                let base = self.lease_image(&workspace, &Name::new(base)?)?;
                (base.ground, base.layers, base.env, base.workdir)
            }
        };
        layers.push(self.add_layer(&workspace, diff, None)?);
        let record = Record::made_here(name.as_str(), ground, layers, env, workdir);
        self.put_record(&workspace, &name, record)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn layers_dir(&self) -> PathBuf {
        self.dir("layers")
    }

    pub(crate) fn workspaces_dir(&self) -> PathBuf {
        self.dir("tmp")
    }

    pub(crate) fn downloads_dir(&self) -> PathBuf {
        self.dir("downloads")
    }

    pub(crate) fn layer_path(&self, layer: &Digest) -> PathBuf {
        self.layers_dir().join(layer.hex())
    }

    pub(crate) fn record_path(&self, name: &Name) -> PathBuf {
        self.dir("images").join(name.file_name())
    }

    pub(crate) fn workspace(&self) -> Result<Workspace, Error> {
        Workspace::new(&self.workspaces_dir())
            .map_err(Error::io(format!("cannot write to the store {}", self.root.display())))
    }

    pub(crate) fn gate(&self, how: Pass) -> Result<Gate, Error> {
        private_dir(&self.root)
            .and_then(|()| Gate::pass(&self.dir("lock"), how))
            .map_err(Error::io(format!("cannot lock the store {}", self.root.display())))
    }

    /// Unpacks an uncompressed layer, checks it, and puts it in its place unless it is there already.
    pub(crate) fn add_layer(
        &self,
        workspace: &Workspace,
        tar: impl Read,
        expected: Option<&Digest>,
    ) -> Result<Digest, Error> {
        let layer = self.unpack_layer(workspace, tar)?;
        if let Some(&expected) = expected
            && expected != layer.digest
        {
            return Err(Error::WrongLayer { expected, found: layer.digest });
        }
        self.adopt(workspace, layer)
    }

    /// Unpacks an uncompressed layer into the workspace, where nobody sees it yet.
    pub(crate) fn unpack_layer(
        &self,
        workspace: &Workspace,
        tar: impl Read,
    ) -> Result<Loose, Error> {
        let dir = workspace.fresh();
        let files = dir.join(FILES);
        let prepared = fs::create_dir_all(&files)
            .and_then(|()| fs::set_permissions(&files, fs::Permissions::from_mode(0o755)));
        prepared.map_err(Error::io("cannot prepare a layer"))?;

        let metered = Metered::new(tar, self.limits.layer_bytes);
        let mut stream =
            TarStream::new(BufReader::with_capacity(256 << 10, metered), self.limits.layer_entries);
        let unpacked = unpack(&mut stream, &files, Ownership::possible())?;
        // Padding after the archive counts towards the digest.
        let (digest, _) = stream
            .into_inner()
            .into_inner()
            .finish()
            .map_err(|source| Error::Unpack(UnpackError::Tar(crate::TarError::Read(source))))?;
        let info = LayerInfo { bytes: unpacked.bytes, entries: unpacked.entries };
        write_json(&dir.join(LAYER_INFO), &info)?;
        Ok(Loose { dir, digest })
    }

    /// Puts an unpacked layer in its place, unless it is there already.
    pub(crate) fn adopt(&self, workspace: &Workspace, layer: Loose) -> Result<Digest, Error> {
        let Loose { dir, digest } = layer;
        let _gate = self.gate(Pass::Shared)?;
        let place = || -> io::Result<()> {
            private_dir(&self.layers_dir())?;
            workspace.lease(&digest)?;
            match fs::rename(&dir, self.layer_path(&digest)) {
                // Someone else unpacked the same layer meanwhile; theirs is as good, ours goes with the
                // workspace.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                    ) =>
                {
                    Ok(())
                }
                other => other,
            }
        };
        place().map_err(Error::io(format!("cannot store the layer {digest}")))?;
        Ok(digest)
    }

    /// Whether a layer is here; if so it stays at least as long as the workspace.
    pub(crate) fn lease_layer(&self, workspace: &Workspace, layer: &Digest) -> Result<bool, Error> {
        let _gate = self.gate(Pass::Shared)?;
        if !self.layer_path(layer).exists() {
            return Ok(false);
        }
        workspace.lease(layer).map_err(Error::io(format!("cannot lease the layer {layer}")))?;
        Ok(true)
    }

    fn lease_image(&self, workspace: &Workspace, name: &Name) -> Result<Record, Error> {
        if !self.record_path(name).exists() {
            return Err(Error::Unknown { name: name.as_str().to_owned() });
        }
        let _gate = self.gate(Pass::Shared)?;
        let record = self.read_record(name)?;
        for layer in &record.layers {
            if !self.layer_path(layer).exists() {
                return Err(Error::LostLayer { name: record.name, layer: *layer });
            }
            workspace.lease(layer).map_err(Error::io(format!("cannot lease the layer {layer}")))?;
        }
        Ok(record)
    }

    /// Makes an image visible under its name, in place of one that had it.
    pub(crate) fn put_record(
        &self,
        workspace: &Workspace,
        name: &Name,
        record: Record,
    ) -> Result<ImageInfo, Error> {
        let fresh = workspace.fresh();
        write_json(&fresh, &record)?;
        let place = self.record_path(name);
        // A prune must see either the old set of images or the new one.
        let _gate = self.gate(Pass::Shared)?;
        private_dir(&self.dir("images"))
            .and_then(|()| fs::rename(fresh, place))
            .map_err(Error::io(format!("cannot store the image `{name}`")))?;
        Ok(self.info(record))
    }

    fn info(&self, record: Record) -> ImageInfo {
        ImageInfo {
            size: record.layers.iter().map(|layer| self.layer_info(layer).bytes).sum(),
            name: record.name,
            id: record.id,
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(record.created),
            layers: record.layers.len(),
            on_host: record.ground == Ground::Host,
        }
    }

    pub(crate) fn read_record(&self, name: &Name) -> Result<Record, Error> {
        read_record(&self.record_path(name))?
            .ok_or_else(|| Error::Unknown { name: name.as_str().to_owned() })
    }

    /// All descriptions; a damaged one is an error, because what it refers to is not known.
    pub(crate) fn records(&self) -> Result<Vec<Record>, Error> {
        let dir = self.dir("images");
        let fail = || Error::io(format!("cannot read {}", dir.display()));
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail()(error)),
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(fail())?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                // Nothing there: removed while we looked.
                records.extend(read_record(&path)?);
            }
        }
        Ok(records)
    }

    pub(crate) fn layer_info(&self, layer: &Digest) -> LayerInfo {
        // Sizes are for people; a layer without its note still works.
        let bytes = fs::read(self.layer_path(layer).join(LAYER_INFO)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| Error::Record { path: path.to_owned(), source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("cannot read {}", path.display()))(error)),
    }
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        let mut file = fs::File::create_new(path)?;
        serde_json::to_writer_pretty(&mut file, value)?;
        file.write_all(b"\n")
    };
    write().map_err(Error::io(format!("cannot write {}", path.display())))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
