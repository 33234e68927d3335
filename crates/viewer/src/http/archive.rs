//! The output files of an episode as one ZIP archive, which is written while it is sent.

use std::io::{self, Read, Write};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{Request, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc::{Sender, channel};
use zip::{ZipWriter, write::SimpleFileOptions};

use super::{Page, attempts::Of, exports::download, reply::Refused, scope};
use crate::{
    Code, ViewError,
    files::{self, FileRow, Places},
    text::file_name,
};

/// Bytes that are read and sent at once.
const PIECE: usize = 64 << 10;
/// Pieces that wait for the client.
const WAITING: usize = 4;

pub(super) fn routes() -> Router<Page> {
    Router::new().route("/runs/{run}/attempts/{attempt}/archive", get(archive))
}

async fn archive(
    State(page): State<Page>,
    Path(of): Path<Of>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let scope = scope(&request);
    let name = format!("{}.zip", file_name(&format!("{}-{}", of.run, of.attempt), 120));
    let listed = tokio::task::spawn_blocking(move || {
        let places = page.places(&of, &scope)?;
        let files = files::list(&places);
        match (files.truncated, files.output.is_empty()) {
            (true, _) => Err(ViewError::new(Code::TooLarge, "there are too many files")),
            (_, true) => Err(ViewError::not_found("output file", &of.attempt)),
            _ => Ok((places, files.output)),
        }
    });
    let (places, files) = listed.await??;
    let (send, receive) = channel(WAITING);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = write(&places, &files, &send) {
            // The client sees that the archive is not complete.
            drop(send.blocking_send(Err(error)));
        }
    });
    let pieces = stream::unfold(receive, async |mut receive| {
        receive.recv().await.map(|piece| (piece, receive))
    });
    Ok(download(Body::from_stream(pieces), &name, "application/zip"))
}

type Piece = io::Result<Bytes>;

/// Sends what is written. What nobody receives any more is dropped.
struct Pieces(Sender<Piece>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        drop(self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(places: &Places, files: &[FileRow], send: &Sender<Piece>) -> io::Result<()> {
    let out = io::BufWriter::with_capacity(PIECE, Pieces(send.clone()));
    let mut archive = ZipWriter::new_stream(out);
    let mut piece = vec![0; PIECE];
    for file in files {
        let opened = places.open("output", &file.path).map_err(io::Error::other)?;
        let options = SimpleFileOptions::default().large_file(file.size >= u64::from(u32::MAX));
        // Elsewhere a backslash separates directories.
        archive.start_file(file.path.replace('\\', "_"), options)?;
        // A file that grows meanwhile has the size that was announced.
        let mut content = opened.take(file.size);
        loop {
            let read = content.read(&mut piece)?;
            if read == 0 {
                break;
            }
            archive.write_all(piece.get(..read).unwrap_or_default())?;
            if send.is_closed() {
                return Ok(());
            }
        }
    }
    archive.finish()?.into_inner().flush()
}
