//! One layer into one file, going on where an earlier attempt stopped.
//!
//! Only sizes are checked here; whether the bytes are the right ones is checked before they are unpacked.

use std::{
    fs, io,
    io::{Seek, SeekFrom, Write},
};

use reqwest::{Response, StatusCode, header::CONTENT_RANGE};

use super::{
    RegistryError,
    client::{Client, backoff},
};
use crate::{oci::Descriptor, progress::Progress};

/// Completes the file; what it holds already is taken to be the start of the layer.
pub(crate) async fn download(
    client: &Client,
    layer: &Descriptor,
    file: &mut fs::File,
    attempts: u32,
    progress: &dyn Progress,
) -> Result<(), RegistryError> {
    let mut have = prepare(file, layer.size).map_err(RegistryError::Write)?;
    progress.advance(have);
    let mut failures = 0;
    while have < layer.size {
        let before = have;
        let Err(error) = attempt(client, layer, file, &mut have, progress).await else { continue };
        if !error.is_transient() {
            return Err(error);
        }
        // Only attempts that bring nothing count: a slow, shaky line still gets there.
        failures = if have > before { 1 } else { failures + 1 };
        if failures >= attempts.max(1) {
            let registry = client.registry().to_owned();
            return Err(RegistryError::Cut {
                registry,
                attempts: failures,
                source: Box::new(error),
            });
        }
        progress.message(&format!(
            "{} broke off at {have} of {} bytes; going on",
            client.registry(),
            layer.size
        ));
        tokio::time::sleep(backoff(failures)).await;
    }
    Ok(())
}

/// How much of the layer the file holds; too much is as good as nothing.
fn prepare(file: &mut fs::File, size: u64) -> io::Result<u64> {
    let have = file.metadata()?.len();
    if have > size {
        file.set_len(0)?;
        return Ok(0);
    }
    file.seek(SeekFrom::Start(have))?;
    Ok(have)
}

async fn attempt(
    client: &Client,
    layer: &Descriptor,
    file: &mut fs::File,
    have: &mut u64,
    progress: &dyn Progress,
) -> Result<(), RegistryError> {
    let mut response = client.layer(layer, *have).await?;
    let goes_on =
        response.status() == StatusCode::PARTIAL_CONTENT && starts_at(&response) == Some(*have);
    if *have > 0 && !goes_on {
        // The registry cannot go on in the middle, or lost track.
        file.set_len(0).and_then(|()| file.rewind()).map_err(RegistryError::Write)?;
        *have = 0;
        if response.status() != StatusCode::OK {
            response = client.layer(layer, 0).await?;
        }
    }
    if *have == 0 && response.status() != StatusCode::OK {
        return Err(client.bad(format!("status {} for a whole layer", response.status())));
    }
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(source) => return Err(client.exchange(source)),
        };
        if *have + chunk.len() as u64 > layer.size {
            return Err(client.bad("a layer is longer than its description says"));
        }
        file.write_all(&chunk).map_err(RegistryError::Write)?;
        *have += chunk.len() as u64;
        progress.advance(chunk.len() as u64);
    }
    if *have < layer.size {
        return Err(client.bad("a layer is shorter than its description says"));
    }
    Ok(())
}

fn starts_at(response: &Response) -> Option<u64> {
    let text = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    text.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}
