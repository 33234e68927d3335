//! Copies trees between the host and a container, as tar streams through Docker's archive interface.

use std::{
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use bollard::{
    body_try_stream,
    query_parameters::{
        ContainerArchiveInfoOptions, DownloadFromContainerOptions, UploadToContainerOptions,
    },
};
use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use sandbox::{CopyReport, Error, Progress, archive};
use tokio::sync::mpsc;

use crate::{config::utf8, failure, failure::during, sandbox_impl::Inner};

/// Pieces buffered between the archive and the network.
const IN_FLIGHT: usize = 8;
const PIECE: usize = 64 << 10;
/// Bits of a file mode in Docker's interface.
const MODE_DIR: u32 = 1 << 31;
const MODE_LINK: u32 = 1 << 27;
const MODE_SPECIAL: u32 = 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19;

impl Inner {
    /// Copies a file or tree of the host into the container.
    pub(crate) async fn copy_in(
        self: &Arc<Self>,
        host: &Path,
        path: &Path,
    ) -> Result<CopyReport, Error> {
        if let Err(source) = std::fs::metadata(host) {
            return Err(Error::HostPath { path: host.into(), source });
        }
        let (source, name) = (host.to_path_buf(), straight(path));
        let (sender, mut pieces) = mpsc::channel(IN_FLIGHT);
        let progress = Progress::default();
        let steps = progress.clone();
        let packing = tokio::task::spawn_blocking(move || {
            let writer = Pieces { sender, progress: steps.clone() };
            let mut buffered = io::BufWriter::with_capacity(PIECE, writer);
            steps.set_busy(true);
            let packed = archive::pack(&source, &name, &mut buffered, &|| steps.step());
            if let Err(error) = &packed {
                // The daemon must not take a part for the whole.
                let broken = Err(io::Error::other(error.to_string()));
                let _ = buffered.get_ref().sender.blocking_send(broken);
            }
            steps.set_busy(false);
            packed
        });
        let cancel = progress.cancel_on_drop();
        let body = body_try_stream(futures_util::stream::poll_fn(move |c| pieces.poll_recv(c)));
        let options = UploadToContainerOptions {
            path: "/".into(),
            no_overwrite_dir_non_dir: Some("true".into()),
            ..Default::default()
        };
        let patient = self.patient();
        let upload = async { Ok(patient.upload_to_container(&self.id, Some(options), body).await) };
        let limit = self.patience();
        let sent = match self.watched("files to be copied in", (&progress, limit), upload).await {
            Ok(sent) => sent,
            Err(stalled) => return Err(stalled),
        };
        if sent.is_err() {
            drop(cancel);
        }
        let packed = packing.await.map_err(|e| Error::io("packing")(io::Error::other(e)))?;
        match sent {
            Ok(()) => packed.map_err(Error::io(format!("packing {}", host.display()))),
            Err(error) if failure::is_about_destination(&error) => {
                let why = failure::message(&error).unwrap_or_default().to_owned();
                Err(Error::Path { path: path.into(), source: io::Error::other(why) })
            }
            Err(error) => match packed {
                Err(packed) if !is_consequence(&packed) => {
                    Err(Error::io(format!("packing {}", host.display()))(packed))
                }
                _ => Err(during(format!("copying to {}", path.display()))(error)),
            },
        }
    }

    /// Copies a file or tree of the container to the host.
    pub(crate) async fn copy_out(
        self: &Arc<Self>,
        path: &Path,
        host: &Path,
    ) -> Result<CopyReport, Error> {
        let limit = self.patience();
        let source = self.within("a file to be found", limit, self.resolve(path)).await?;
        let options = DownloadFromContainerOptions { path: source };
        let mut stream = Box::pin(self.docker.download_from_container(&self.id, Some(options)));
        let (sender, pieces) = mpsc::channel::<Option<Bytes>>(IN_FLIGHT);
        let dest = host.to_path_buf();
        let progress = Progress::default();
        let steps = progress.clone();
        // Holes and hard links can make a tree far larger than the space it takes inside.
        let most = self.spec.limits.disk.map_or(u64::MAX, |disk| disk.bytes().max(64 << 20));
        let unpacking = tokio::task::spawn_blocking(move || {
            let arrived = Arrived { pieces, piece: Bytes::new(), end: StreamEnd::Open };
            archive::unpack(most, arrived, &dest, &|| steps.step())
        });
        let cancel = progress.cancel_on_drop();
        let receiving = async {
            while let Some(piece) = stream.next().await {
                let piece = piece.map_err(during(format!("copying {}", path.display())))?;
                let _ = progress.step();
                progress.set_busy(true);
                let taken = sender.send(Some(piece)).await;
                progress.set_busy(false);
                if taken.is_err() {
                    // The result of the unpacking has the reason.
                    return Ok(());
                }
            }
            let _ = sender.send(None).await;
            Ok(())
        };
        let received = self.watched("the files of the container", (&progress, limit), receiving);
        let received = received.await;
        if received.is_err() {
            drop(cancel);
        }
        drop(sender);
        let unpacked = unpacking.await.map_err(|e| Error::io("unpacking")(io::Error::other(e)))?;
        received?;
        unpacked.map_err(Error::io(format!("unpacking to {}", host.display())))
    }

    /// Resolves links to the path of the file or directory itself.
    async fn resolve(&self, path: &Path) -> Result<String, Error> {
        use io::ErrorKind::{InvalidInput, NotFound};
        let refuse =
            |kind, why: &str| Error::Path { path: path.into(), source: io::Error::new(kind, why) };
        let mut found = utf8(&Path::new("/").join(straight(path)))?.to_owned();
        for _ in 0..8 {
            if found == "/" {
                return Err(refuse(
                    InvalidInput,
                    "the root itself cannot be copied; name something below it",
                ));
            }
            let options = ContainerArchiveInfoOptions { path: found.clone() };
            let stat = match self.docker.get_container_archive_info(&self.id, Some(options)).await {
                Err(error) if failure::code(&error) == Some(404) => {
                    return Err(refuse(NotFound, "there is no such file or directory"));
                }
                other => other.map_err(during(format!("looking for {}", path.display())))?,
            };
            if stat.file_mode & MODE_LINK != 0 {
                found = stat.link_target;
            } else if stat.file_mode & MODE_DIR == 0 && stat.file_mode & MODE_SPECIAL != 0 {
                return Err(refuse(InvalidInput, "it is neither a file nor a directory"));
            } else {
                return Ok(found);
            }
        }
        Err(refuse(InvalidInput, "too many links lead to it"))
    }
}

/// The path without its root, with `..` resolved.
fn straight(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => result.push(name),
            Component::ParentDir => {
                result.pop();
            }
            _ => {}
        }
    }
    result
}

/// A writer that sends pieces to the network.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    progress: Progress,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.progress.set_busy(false);
        let sent = self.sender.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        self.progress.set_busy(true);
        self.progress.step()?;
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether packing failed only because its result was not wanted any more.
fn is_consequence(error: &io::Error) -> bool {
    let cancelled = error.get_ref().is_some_and(|inner| inner.is::<sandbox::Cancelled>());
    cancelled || error.kind() == io::ErrorKind::BrokenPipe
}

/// A reader of pieces from the network. It ends with the piece `None`; one that is cut off fails.
struct Arrived {
    pieces: mpsc::Receiver<Option<Bytes>>,
    piece: Bytes,
    end: StreamEnd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    Open,
    Complete,
}

impl Read for Arrived {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            if self.end == StreamEnd::Complete {
                return Ok(0);
            }
            match self.pieces.blocking_recv() {
                Some(Some(piece)) => self.piece = piece,
                Some(None) => self.end = StreamEnd::Complete,
                None => return Err(io::Error::other("the copy ended before it was complete")),
            }
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_components_end_at_the_root() {
        assert_eq!(straight(Path::new("/a/../../b/./c/")), Path::new("b/c"));
        assert_eq!(straight(Path::new("/../..")), Path::new(""));
    }
}
