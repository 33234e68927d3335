//! Pulling from a registry: layers downloaded in parallel, verified compressed and uncompressed, unpacked once.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    compress::decode,
    digest::{Digest, HashingReader},
    error::Error,
    lock::{Try, Workspace, private_dir, still_at, try_lock},
    name::Name,
    oci::{Descriptor, Platform},
    progress::{Progress, Stage},
    record::Record,
    reference::Reference,
    registry::{Client, Credentials, RegistryError, Transport, download},
    store::{ImageInfo, Store},
};

/// How to pull an image.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Whether plain HTTP is allowed for a registry that is not on this machine.
    pub transport: Transport,
    /// The user; anonymous by default.
    pub credentials: Option<Credentials>,
    /// The platform of the image; this machine's by default.
    pub platform: Platform,
    /// Layers to download at a time; 4 by default.
    pub parallel: usize,
    /// How often in a row a download may fail without progress; 5 by default.
    pub attempts: u32,
    /// The longest silence of a registry; 60 seconds by default.
    pub stall: Duration,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            transport: Transport::Secure,
            credentials: None,
            platform: Platform::here(),
            parallel: 4,
            attempts: 5,
            stall: Duration::from_secs(60),
        }
    }
}

/// How often to check whether another process has finished a layer.
const POLL: Duration = Duration::from_millis(50);

impl Store {
    /// Pulls an image and stores it under the name of its reference.
    ///
    /// An interrupted pull resumes where it stopped. Dropping the future stops it.
    #[tracing::instrument(level = "debug", skip(self, options, progress))]
    pub async fn pull(
        &self,
        reference: &str,
        options: &PullOptions,
        progress: &dyn Progress,
    ) -> Result<ImageInfo, Error> {
        let parsed: Reference = reference.parse()?;
        let name = Name::new(reference)?;
        let fail =
            |source| Error::Pull { reference: reference.to_owned(), source: Box::new(source) };
        progress.stage(Stage::Resolving, None);
        let client =
            Client::new(parsed, options.transport, options.credentials.clone(), options.stall);
        let client = client.map_err(fail)?;
        let resolved = client.resolve(&options.platform, self.limits()).await.map_err(fail)?;

        let workspace = Arc::new(self.workspace()?);
        let pairs = resolved.manifest.layers.iter().zip(resolved.config.diff_ids());
        let mut wanted = Vec::new();
        for (layer, diff_id) in pairs {
            if !self.lease_layer(&workspace, diff_id)? {
                // Owned, so that the future has no borrows and can move between threads.
                wanted.push((layer.clone(), *diff_id));
            }
        }
        progress.stage(Stage::Downloading, Some(wanted.iter().map(|(layer, _)| layer.size).sum()));
        let job = Pull { store: self, client: &client, workspace: &workspace, options, progress };
        stream::iter(wanted)
            .map(|(layer, diff_id)| job.fetch(layer, diff_id))
            .buffer_unordered(options.parallel.max(1))
            .try_collect::<()>()
            .await
            .map_err(|error| match error {
                PullError::Registry(source) => fail(source),
                PullError::Store(error) => *error,
            })?;
        let record = Record::from_config(name.as_str(), resolved.id, &resolved.config);
        self.put_record(&workspace, &name, record)
    }
}

enum PullError {
    Registry(RegistryError),
    Store(Box<Error>),
}

impl From<RegistryError> for PullError {
    fn from(error: RegistryError) -> Self {
        Self::Registry(error)
    }
}

impl From<Error> for PullError {
    fn from(error: Error) -> Self {
        Self::Store(Box::new(error))
    }
}

struct Pull<'a> {
    store: &'a Store,
    client: &'a Client,
    workspace: &'a Arc<Workspace>,
    options: &'a PullOptions,
    progress: &'a dyn Progress,
}

impl Pull<'_> {
    /// Makes sure that a layer is stored: by downloading it, or because another process did.
    async fn fetch(&self, layer: Descriptor, diff_id: Digest) -> Result<(), PullError> {
        let path = self.store.downloads_dir().join(layer.digest.hex());
        let mut file = loop {
            if self.store.lease_layer(self.workspace, &diff_id)? {
                self.progress.advance(layer.size);
                return Ok(());
            }
            match claim(&path).map_err(Error::io("cannot write the download"))? {
                Try::Locked(file) => break file,
                Try::Busy => tokio::time::sleep(POLL).await,
            }
        };
        // The process that had the file locked may have finished the layer.
        if self.store.lease_layer(self.workspace, &diff_id)? {
            let _ = fs::remove_file(&path);
            self.progress.advance(layer.size);
            return Ok(());
        }
        let inherited = file.metadata().is_ok_and(|meta| meta.len() > 0);
        let mut result = self.fetch_into(&mut file, &layer, &diff_id).await;
        if inherited
            && matches!(result, Err(PullError::Registry(RegistryError::WrongDigest { .. })))
        {
            self.progress.message("an earlier download was damaged; starting over");
            file.set_len(0).map_err(RegistryError::Write)?;
            result = self.fetch_into(&mut file, &layer, &diff_id).await;
        }
        // An interrupted download stays for the next attempt; anything else is finished.
        if !matches!(result, Err(PullError::Registry(RegistryError::Cut { .. }))) {
            let _ = fs::remove_file(&path);
        }
        result
    }

    async fn fetch_into(
        &self,
        file: &mut fs::File,
        layer: &Descriptor,
        diff_id: &Digest,
    ) -> Result<(), PullError> {
        download(self.client, layer, file, self.options.attempts, self.progress).await?;
        let file = file.try_clone().map_err(Error::io("cannot read the download"))?;
        let (store, workspace) = (self.store.clone(), Arc::clone(self.workspace));
        let (layer, diff_id) = (layer.clone(), *diff_id);
        let unpacking = tokio::task::spawn_blocking(move || {
            verify_and_unpack(&store, &workspace, &file, &layer, &diff_id)
        });
        unpacking.await.unwrap_or_else(|error| {
            Err(Error::io("unpacking a layer was aborted")(io::Error::other(error)).into())
        })
    }
}

fn verify_and_unpack(
    store: &Store,
    workspace: &Workspace,
    mut file: &fs::File,
    layer: &Descriptor,
    diff_id: &Digest,
) -> Result<(), PullError> {
    use io::Seek;
    let reading = || Error::io("cannot read the download");
    file.rewind().map_err(reading())?;
    // The digest is checked before anything interprets the bytes.
    let (found, _) = HashingReader::new(file, u64::MAX).finish().map_err(reading())?;
    if found != layer.digest {
        let what = format!("layer {}", layer.digest);
        return Err(RegistryError::WrongDigest { what, expected: layer.digest, found }.into());
    }
    file.rewind().map_err(reading())?;
    let (_, tar) = decode(file).map_err(reading())?;
    store.add_layer(workspace, tar, Some(diff_id))?;
    Ok(())
}

/// Opens and locks a download, unless another process has it locked.
fn claim(path: &Path) -> io::Result<Try> {
    if let Some(dir) = path.parent() {
        private_dir(dir)?;
    }
    let file =
        fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
    match try_lock(file)? {
        // Otherwise it was removed between opening and locking: another process finished it, check again.
        Try::Locked(file) if still_at(&file, path)? => Ok(Try::Locked(file)),
        _ => Ok(Try::Busy),
    }
}
