//! The store: unpacked layers shared by images, and one record per image.
//!
//! ```text
//! images/NAME.json     the record of an image
//! layers/HEX/fs        one unpacked layer, a lowerdir for overlayfs; HEX is the sha256 of its tar
//! layers/HEX/layer.json
//! layers/HEX/tar.gz    the layer, instead of fs, where fs is on this machine: see local.rs
//! downloads/HEX        a compressed layer while it is downloaded
//! builds/HEX.json      the layer and the duration of a build step
//! tmp/MACHINE@PID-N/   a workspace of a running process, or of a dead one until the next prune
//! trash/MACHINE@PID-N  removed, and being deleted
//! lock                 shared by processes that use layers, exclusive for those that remove them
//! ```
//! Everything is prepared in a workspace and appears by one rename, so that a killed process leaves nothing incomplete
//! and the next prune finds what it did leave.

use std::{
    fs, io,
    io::{BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    digest::{Digest, HashingReader},
    error::Error,
    limits::Limits,
    lock::{Lease, LockMode, StoreLock, Workspace, private_dir},
    name::{Name, NameError},
    record::{BaseImage, LayerInfo, Record},
    reserve::ReservingReader,
    tar_stream::TarStream,
    unpack::{Ownership, UnpackError, unpack},
};

/// Images on this machine. Cheap to clone; several processes may use one directory at once.
#[derive(Clone, Debug)]
pub struct Store {
    root: Arc<Path>,
    limits: Limits,
    /// Where layers are unpacked, if not in the store.
    pub(crate) local: Option<Arc<Path>>,
}

/// What a sandbox needs to run an image.
#[derive(Clone, Debug)]
pub struct Rootfs {
    /// Unpacked layers, topmost first, for overlayfs with the option `userxattr`.
    pub layers: Vec<PathBuf>,
    /// Whether the layers are stacked on the built-in host image rather than being a complete system.
    pub on_host: bool,
    /// The environment variables of the image.
    pub env: Vec<(String, String)>,
    /// The working directory of the image.
    pub workdir: Option<PathBuf>,
    /// Protects the layers from being pruned; hold it, or a clone, while they are mounted.
    pub lease: Lease,
}

/// A stored image, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// The name.
    pub name: String,
    /// The digest that identifies the content.
    pub id: Digest,
    /// Bytes of all files in all layers; a layer shared by several images counts in each.
    pub size: u64,
    /// When the image was added to this store.
    pub created: SystemTime,
    /// The number of layers.
    pub layers: usize,
    /// Whether the layers are stacked on the built-in host image.
    pub on_host: bool,
    /// The name, at that time, of the image it was derived from.
    pub from: Option<String>,
}

/// A layer that is unpacked in a workspace but not yet part of the store.
pub(crate) struct UnpackedLayer {
    pub(crate) dir: PathBuf,
    pub(crate) digest: Digest,
    /// Its files, where they are not in `dir`, and the workspace they are in.
    pub(crate) files: Option<(Workspace, PathBuf)>,
}

const FILES: &str = "fs";
const LAYER_INFO: &str = "layer.json";

impl Store {
    /// Opens a store in a directory, which need not exist yet.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::with_limits(root, Limits::default())
    }

    /// Opens a store that refuses images beyond these limits.
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
            _ => Ok(Self { root: root.into(), limits, local: None }),
        }
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The layers and settings of an image, protected from pruning.
    pub fn rootfs(&self, name: &str) -> Result<Rootfs, Error> {
        let name = Name::new(name)?;
        let _lock = match self.record_path(&name).exists() {
            true => self.lock(LockMode::Shared)?,
            false => return Err(Error::Unknown { name: name.as_str().to_owned() }),
        };
        let record = self.read_record(&name)?;
        let mut dirs = Vec::with_capacity(record.layers.len());
        for layer in record.layers.iter().rev() {
            let lost = || Error::LostLayer { name: record.name.clone(), layer: *layer };
            dirs.push(self.layer_dir(layer)?.ok_or_else(lost)?);
        }
        let lease =
            Lease::on(&dirs).map_err(Error::io(format!("cannot lock the layers of `{name}`")))?;
        Ok(Rootfs {
            layers: dirs.into_iter().map(|dir| Self::layer_files(&dir)).collect(),
            on_host: record.base == BaseImage::Host,
            env: record.env,
            workdir: record.workdir,
            lease,
        })
    }

    /// Every image, sorted by name.
    pub fn list(&self) -> Result<Vec<ImageInfo>, Error> {
        let mut images: Vec<_> =
            self.records()?.into_iter().map(|record| self.info(record)).collect();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Creates an image from a base (`None`: the built-in host image) and one more layer, a tar stream with OCI
    /// whiteouts.
    pub fn commit(
        &self,
        name: &str,
        base: Option<&str>,
        diff: impl Read,
    ) -> Result<ImageInfo, Error> {
        let name = Name::new(name)?;
        let workspace = self.workspace()?.with_expendable_leases();
        let (base_image, mut layers, env, workdir) = match base {
            None => (BaseImage::Host, Vec::new(), Vec::new(), None),
            Some(base) => {
                let base = self.lease_image(&workspace, &Name::new(base)?)?;
                (base.base, base.layers, base.env, base.workdir)
            }
        };
        self.check_layer_count(layers.len() + 1)?;
        layers.push(self.add_layer(&workspace, diff, None)?);
        let record = Record::local(name.as_str(), base_image, layers, env, workdir);
        let from = Some(base.unwrap_or("host").to_owned());
        self.put_record(&workspace, &name, Record { from, ..record })
    }

    /// Checks that this is the name of an image that can be stored.
    pub fn check_name(name: &str) -> Result<(), NameError> {
        Name::new(name).map(drop)
    }

    /// Whether an image of this name is stored.
    pub fn contains(&self, name: &str) -> Result<bool, Error> {
        Ok(self.record_path(&Name::new(name)?).exists())
    }

    pub(crate) fn check_layer_count(&self, count: usize) -> Result<(), Error> {
        match self.limits.layers {
            limit if count > limit => Err(Error::TooManyLayers { limit }),
            _ => Ok(()),
        }
    }

    /// The unpacked files of a stored layer.
    pub(crate) fn layer_files(layer: &Path) -> PathBuf {
        layer.join(FILES)
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

    pub(crate) fn lock(&self, mode: LockMode) -> Result<StoreLock, Error> {
        private_dir(&self.root)
            .and_then(|()| StoreLock::acquire(&self.dir("lock"), mode))
            .map_err(Error::io(format!("cannot lock the store {}", self.root.display())))
    }

    /// Unpacks an uncompressed layer, checks its digest, and stores it unless it is stored already.
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
        self.store_layer(workspace, layer)
    }

    /// Unpacks an uncompressed layer into the workspace.
    #[tracing::instrument(level = "debug", skip_all)]
    pub(crate) fn unpack_layer(
        &self,
        workspace: &Workspace,
        tar: impl Read,
    ) -> Result<UnpackedLayer, Error> {
        if self.local.is_some() {
            return self.archive_layer(workspace, tar);
        }
        let dir = workspace.new_path();
        let (digest, info) = self.unpack_into(&dir, tar)?;
        Self::write_layer_info(&dir, &info)?;
        Ok(UnpackedLayer { dir, digest, files: None })
    }

    /// Unpacks an uncompressed layer into a new directory; returns its digest.
    pub(crate) fn unpack_into(
        &self,
        dir: &Path,
        tar: impl Read,
    ) -> Result<(Digest, LayerInfo), Error> {
        let files = dir.join(FILES);
        let prepared = fs::create_dir_all(&files)
            .and_then(|()| fs::set_permissions(&files, fs::Permissions::from_mode(0o755)));
        prepared.map_err(Error::io("cannot prepare a layer"))?;

        let at = fs::File::open(&files).map_err(Error::io("cannot prepare a layer"))?;
        let tar = ReservingReader::new(tar, at, self.limits.reserve);
        let metered = HashingReader::new(tar, self.limits.layer_bytes);
        let mut stream =
            TarStream::new(BufReader::with_capacity(256 << 10, metered), self.limits.layer_entries);
        let unpacked = unpack(&mut stream, &files, Ownership::possible())?;
        // Padding after the archive counts towards the digest.
        let (digest, _) = stream
            .into_inner()
            .into_inner()
            .finish()
            .map_err(|source| Error::Unpack(UnpackError::Tar(crate::TarError::Read(source))))?;
        Ok((digest, LayerInfo { bytes: unpacked.bytes, entries: unpacked.entries }))
    }

    pub(crate) fn write_layer_info(dir: &Path, info: &LayerInfo) -> Result<(), Error> {
        write_json(&dir.join(LAYER_INFO), info)
    }

    /// Moves an unpacked layer into the store, unless it is stored already.
    pub(crate) fn store_layer(
        &self,
        workspace: &Workspace,
        layer: UnpackedLayer,
    ) -> Result<Digest, Error> {
        let UnpackedLayer { dir, digest, files } = layer;
        let _lock = self.lock(LockMode::Shared)?;
        let rename = || -> io::Result<()> {
            private_dir(&self.layers_dir())?;
            workspace.lease(&digest)?;
            match fs::rename(&dir, self.layer_path(&digest)) {
                // Another process stored the same layer meanwhile; ours is removed with the workspace.
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
        rename().map_err(Error::io(format!("cannot store the layer {digest}")))?;
        if let Some((_workspace, files)) = files {
            self.keep_unpacked(&digest, &files);
        }
        Ok(digest)
    }

    /// Whether a layer is stored; if so it stays at least as long as the workspace.
    pub(crate) fn lease_layer(&self, workspace: &Workspace, layer: &Digest) -> Result<bool, Error> {
        let _lock = self.lock(LockMode::Shared)?;
        if !self.layer_path(layer).exists() {
            return Ok(false);
        }
        workspace.lease(layer).map_err(Error::io(format!("cannot lease the layer {layer}")))?;
        Ok(true)
    }

    pub(crate) fn lease_image(&self, workspace: &Workspace, name: &Name) -> Result<Record, Error> {
        if !self.record_path(name).exists() {
            return Err(Error::Unknown { name: name.as_str().to_owned() });
        }
        let _lock = self.lock(LockMode::Shared)?;
        let record = self.read_record(name)?;
        for layer in &record.layers {
            if !self.layer_path(layer).exists() {
                return Err(Error::LostLayer { name: record.name, layer: *layer });
            }
            workspace.lease(layer).map_err(Error::io(format!("cannot lease the layer {layer}")))?;
        }
        Ok(record)
    }

    /// Stores the record of an image, replacing one of the same name.
    pub(crate) fn put_record(
        &self,
        workspace: &Workspace,
        name: &Name,
        record: Record,
    ) -> Result<ImageInfo, Error> {
        let prepared = workspace.new_path();
        write_json(&prepared, &record)?;
        let path = self.record_path(name);
        // A prune must see either the old set of images or the new one.
        let _lock = self.lock(LockMode::Shared)?;
        private_dir(&self.dir("images"))
            .and_then(|()| fs::rename(prepared, path))
            .map_err(Error::io(format!("cannot store the image `{name}`")))?;
        Ok(self.info(record))
    }

    pub(crate) fn info(&self, record: Record) -> ImageInfo {
        ImageInfo {
            size: record.layers.iter().map(|layer| self.layer_info(layer).bytes).sum(),
            name: record.name,
            id: record.id,
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(record.created),
            layers: record.layers.len(),
            on_host: record.base == BaseImage::Host,
            from: record.from,
        }
    }

    pub(crate) fn read_record(&self, name: &Name) -> Result<Record, Error> {
        read_record(&self.record_path(name))?
            .ok_or_else(|| Error::Unknown { name: name.as_str().to_owned() })
    }

    /// All records; a damaged one is an error, because the layers it refers to are unknown.
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
                // None: removed since it was listed.
                records.extend(read_record(&path)?);
            }
        }
        Ok(records)
    }

    pub(crate) fn layer_info(&self, layer: &Digest) -> LayerInfo {
        // Only for display; a layer without it still works.
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

pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
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
