//! Importing files: `docker save` output, an OCI layout in a tar, or a plain root file system, recognised by content.
//!
//! Determines what a file is and where its parts are; unpacking and storing is the store's.

use std::{
    collections::HashMap,
    fs, io,
    io::{BufReader, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use serde::Deserialize;

use crate::{
    compress::{Compression, decode},
    digest::{Digest, HashingReader},
    error::Error,
    lock::Workspace,
    name::Name,
    oci::{Descriptor, Document, ImageConfig, Index, Manifest, OciError, Platform},
    progress::{Progress, ProgressReader, Stage},
    record::{BaseImage, Record},
    store::{ImageInfo, Store},
    tar_stream::{Kind, TarError, TarStream},
};

/// The largest manifest or configuration, in bytes.
const MAX_DOCUMENT: u64 = 8 << 20;
/// The most entries of an image archive: a few for each layer.
const MAX_MEMBERS: usize = 10_000;

/// Why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be read or decompressed.
    #[error("cannot read or decompress the file")]
    Read(#[source] io::Error),
    /// The file is not an archive.
    #[error("the file is not a tar archive, compressed or not")]
    Tar(#[source] TarError),
    /// The archive is empty.
    #[error(
        "the archive is empty; expected the output of `docker save`, an OCI layout or a root file system"
    )]
    Empty,
    /// The archive lacks a part that its manifest refers to.
    #[error("the archive is incomplete: `{0}` is missing or of the wrong kind")]
    Missing(String),
    /// A part does not match its digest.
    #[error("the part `{0}` of the archive is damaged")]
    Damaged(String),
    /// Several images, none of them with the requested name.
    #[error("the archive contains several images ({0}); import it under one of these names")]
    Several(String),
    /// The manifest or configuration is unusable.
    #[error("its manifest or configuration is unusable")]
    Description(#[source] OciError),
}

impl Store {
    /// Imports a file: `docker save` output, an OCI layout or a root file system, as a tar archive that may
    /// be compressed with gzip or zstd.
    #[tracing::instrument(level = "debug", skip(self, progress))]
    pub fn import_archive(
        &self,
        file: &Path,
        name: &str,
        progress: &dyn Progress,
    ) -> Result<ImageInfo, Error> {
        let name = Name::new(name)?;
        let fail = |source| Error::Archive { path: file.to_owned(), source };
        let opened =
            fs::File::open(file).map_err(Error::io(format!("cannot open {}", file.display())))?;
        let workspace = self.workspace()?;
        match self.scan(&opened).map_err(fail)? {
            ArchiveKind::Plain => {
                progress.stage(Stage::Unpacking, opened.metadata().ok().map(|meta| meta.len()));
                let whole = ProgressReader { inner: Slice::whole(&opened), progress };
                let (_, tar) = decode(whole).map_err(|error| fail(ArchiveError::Read(error)))?;
                let layer = self.add_layer(&workspace, tar, None)?;
                let record =
                    Record::local(name.as_str(), BaseImage::Empty, vec![layer], Vec::new(), None);
                self.put_record(&workspace, &name, record)
            }
            ArchiveKind::Image(members, compression) => {
                let spooled;
                let source = match compression {
                    Compression::None => &opened,
                    _ => {
                        spooled = self.spool(&workspace, &opened).map_err(fail)?;
                        &spooled
                    }
                };
                let parts = Parts { file: source, members };
                let image = parts.image(&name).map_err(fail)?;
                self.import_image(&workspace, &name, &parts, image, progress).map_err(|error| {
                    match error {
                        ImportError::Archive(source) => fail(source),
                        ImportError::Store(error) => *error,
                    }
                })
            }
        }
    }

    fn scan(&self, file: &fs::File) -> Result<ArchiveKind, ArchiveError> {
        let (compression, reader) = decode(Slice::whole(file)).map_err(ArchiveError::Read)?;
        let limited = HashingReader::new(reader, self.limits().download_bytes);
        let mut stream = TarStream::new(BufReader::new(limited), self.limits().layer_entries);
        let mut members = HashMap::new();
        let mut any = false;
        while let Some(entry) = stream.next().map_err(ArchiveError::Tar)? {
            any = true;
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            let path = path.trim_start_matches("./").trim_matches('/').to_owned();
            if path.is_empty() {
                continue;
            }
            if !may_belong_to_image(&path) || members.len() >= MAX_MEMBERS {
                return Ok(ArchiveKind::Plain);
            }
            match entry.kind {
                Kind::File => {
                    members.insert(path, Member::File { offset: entry.offset, size: entry.size });
                }
                // Older versions of Docker store equal layers as links.
                Kind::Symlink | Kind::HardLink => {
                    let target = String::from_utf8_lossy(&entry.link).into_owned();
                    members.insert(path, Member::Link(target));
                }
                _ => {}
            }
        }
        if !any {
            return Err(ArchiveError::Empty);
        }
        if members.contains_key("manifest.json") || members.contains_key("index.json") {
            return Ok(ArchiveKind::Image(members, compression));
        }
        Ok(ArchiveKind::Plain)
    }

    /// Decompresses an archive into the workspace, because its parts are read out of order.
    fn spool(&self, workspace: &Workspace, file: &fs::File) -> Result<fs::File, ArchiveError> {
        let copy = || -> io::Result<fs::File> {
            let mut limited =
                HashingReader::new(decode(Slice::whole(file))?.1, self.limits().download_bytes);
            let mut options = fs::OpenOptions::new();
            let mut spooled =
                options.read(true).write(true).create_new(true).open(workspace.new_path())?;
            io::copy(&mut limited, &mut spooled)?;
            Ok(spooled)
        };
        copy().map_err(ArchiveError::Read)
    }

    fn import_image(
        &self,
        workspace: &Workspace,
        name: &Name,
        parts: &Parts<'_>,
        image: Image,
        progress: &dyn Progress,
    ) -> Result<ImageInfo, ImportError> {
        let config = ImageConfig::parse(&image.config).map_err(ArchiveError::Description)?;
        if image.layers.len() > self.limits().layers {
            let why = format!(
                "{} layers are more than the limit of {}",
                image.layers.len(),
                self.limits().layers
            );
            return Err(ArchiveError::Description(OciError::Shape(why)).into());
        }
        config.check(image.layers.len(), &Platform::here()).map_err(ArchiveError::Description)?;
        let slices: Vec<_> =
            image.layers.iter().map(|path| parts.get(path)).collect::<Result<_, _>>()?;
        progress.stage(Stage::Unpacking, Some(slices.iter().map(|slice| slice.left).sum()));
        for (slice, diff_id) in slices.into_iter().zip(config.diff_ids()) {
            if self.lease_layer(workspace, diff_id)? {
                progress.advance(slice.left);
                continue;
            }
            let (_, tar) =
                decode(ProgressReader { inner: slice, progress }).map_err(ArchiveError::Read)?;
            self.add_layer(workspace, tar, Some(diff_id))?;
        }
        let record = Record::from_config(name.as_str(), Digest::of(&image.config), &config);
        Ok(self.put_record(workspace, name, record)?)
    }
}

enum ImportError {
    Archive(ArchiveError),
    Store(Box<Error>),
}

impl From<ArchiveError> for ImportError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<Error> for ImportError {
    fn from(error: Error) -> Self {
        Self::Store(Box::new(error))
    }
}

enum ArchiveKind {
    Plain,
    Image(HashMap<String, Member>, Compression),
}

enum Member {
    File { offset: u64, size: u64 },
    Link(String),
}

/// Whether a path can be part of an image archive; any other makes it a plain file system.
fn may_belong_to_image(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or(path);
    let stem = first.strip_suffix(".json").or_else(|| first.strip_suffix(".tar")).unwrap_or(first);
    matches!(first, "manifest.json" | "index.json" | "oci-layout" | "repositories" | "blobs")
        || Digest::from_hex(stem).is_ok()
}

/// An image of an archive: its configuration, and the paths of its layers.
struct Image {
    config: Vec<u8>,
    layers: Vec<String>,
}

struct Parts<'a> {
    file: &'a fs::File,
    members: HashMap<String, Member>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Parts<'_> {
    fn image(&self, name: &Name) -> Result<Image, ArchiveError> {
        if self.members.contains_key("manifest.json") {
            self.saved(name)
        } else {
            self.layout(name)
        }
    }

    /// What `docker save` writes.
    fn saved(&self, name: &Name) -> Result<Image, ArchiveError> {
        let list: Vec<Saved> = self.json("manifest.json")?;
        let tags = |saved: &Saved| saved.repo_tags.clone().unwrap_or_default();
        let named = list.iter().find(|saved| tags(saved).iter().any(|tag| same_name(tag, name)));
        let saved = match (named, &list[..]) {
            (Some(saved), _) | (None, [saved]) => saved,
            (None, []) => return Err(ArchiveError::Empty),
            (None, _) => return Err(several(list.iter().flat_map(tags))),
        };
        let config = self.document(&saved.config)?;
        let stem = saved.config.rsplit('/').next().unwrap_or_default();
        // A file that is named after its digest must have it.
        if let Ok(promised) = Digest::from_hex(stem.strip_suffix(".json").unwrap_or(stem))
            && promised != Digest::of(&config)
        {
            return Err(ArchiveError::Damaged(saved.config.clone()));
        }
        Ok(Image { config, layers: saved.layers.clone() })
    }

    /// An OCI image layout.
    fn layout(&self, name: &Name) -> Result<Image, ArchiveError> {
        let mut index: Index = self.json("index.json")?;
        let named = |entry: &Descriptor| entry.ref_name().is_some_and(|of| same_name(of, name));
        if let Some(entry) = index.manifests.iter().find(|entry| named(entry)) {
            index.manifests = vec![entry.clone()];
        } else if index.manifests.iter().filter(|entry| entry.ref_name().is_some()).count() > 1 {
            return Err(several(
                index.manifests.iter().filter_map(|e| e.ref_name().map(str::to_owned)),
            ));
        }
        let manifest = self.manifest(&index, 0)?;
        let config = self.blob(&manifest.config)?;
        let layers = manifest.layers.iter().map(|layer| blob_path(&layer.digest)).collect();
        Ok(Image { config, layers })
    }

    fn manifest(&self, index: &Index, depth: u32) -> Result<Manifest, ArchiveError> {
        let chosen = match &index.manifests[..] {
            // Chosen by name or the only one: the configuration's platform is checked.
            [only] => only,
            _ => index.choose(&Platform::here()).map_err(ArchiveError::Description)?,
        };
        match Document::parse(&self.blob(chosen)?).map_err(ArchiveError::Description)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(inner) if depth < 3 => self.manifest(&inner, depth + 1),
            Document::Index(_) => Err(ArchiveError::Damaged("index.json".into())),
        }
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ArchiveError> {
        let path = blob_path(&descriptor.digest);
        let bytes = self.document(&path)?;
        if Digest::of(&bytes) != descriptor.digest {
            return Err(ArchiveError::Damaged(path));
        }
        Ok(bytes)
    }

    fn json<T: for<'de> Deserialize<'de>>(&self, path: &'static str) -> Result<T, ArchiveError> {
        serde_json::from_slice(&self.document(path)?)
            .map_err(|source| ArchiveError::Description(OciError::Json { what: path, source }))
    }

    fn document(&self, path: &str) -> Result<Vec<u8>, ArchiveError> {
        let mut slice = self.get(path)?;
        if slice.left > MAX_DOCUMENT {
            return Err(ArchiveError::Damaged(path.to_owned()));
        }
        let mut bytes = Vec::new();
        slice.read_to_end(&mut bytes).map_err(ArchiveError::Read)?;
        Ok(bytes)
    }

    /// A part by its path; a link is followed once, within the archive.
    fn get(&self, path: &str) -> Result<Slice<'_>, ArchiveError> {
        let missing = || ArchiveError::Missing(path.chars().take(200).collect());
        let member = match self.members.get(path).ok_or_else(missing)? {
            Member::Link(target) => {
                self.members.get(target.trim_start_matches("../")).ok_or_else(missing)?
            }
            file => file,
        };
        match member {
            Member::File { offset, size } => {
                Ok(Slice { file: self.file, at: *offset, left: *size })
            }
            Member::Link(_) => Err(missing()),
        }
    }
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn same_name(tag: &str, name: &Name) -> bool {
    let name = name.as_str();
    tag == name || tag.strip_suffix(":latest") == Some(name)
}

fn several(names: impl Iterator<Item = String>) -> ArchiveError {
    let names: Vec<_> = names.take(20).collect();
    ArchiveError::Several(names.join(", "))
}

/// A section of a file, read without changing the file's position.
struct Slice<'a> {
    file: &'a fs::File,
    at: u64,
    left: u64,
}

impl<'a> Slice<'a> {
    fn whole(file: &'a fs::File) -> Self {
        Self { file, at: 0, left: u64::MAX }
    }
}

impl Read for Slice<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.file.read_at(&mut buffer[..want], self.at)?;
        self.at += got as u64;
        self.left -= got as u64;
        Ok(got)
    }
}
