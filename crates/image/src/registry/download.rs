//! Downloading one layer into one file, resuming where an earlier attempt stopped.
//!
//! Only sizes are checked here; the digest is checked before the layer is unpacked.

use std::{
    fs, io,
    io::{Seek, SeekFrom, Write},
};

use lis_http::{RangeResponse, range_response};

use super::{
    RegistryError,
    client::{Client, backoff},
};
use crate::{oci::Descriptor, progress::Progress};

/// Completes the file, whose content is taken to be the start of the layer.
#[tracing::instrument(level = "debug", skip_all, fields(layer = %layer.digest, size = layer.size))]
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
        // Only attempts without progress count, so that a slow, unreliable connection still gets there.
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
            "{} closed the connection at {have} of {} bytes; resuming",
            client.registry(),
            layer.size
        ));
        tokio::time::sleep(backoff(failures)).await;
    }
    Ok(())
}

/// How much of the layer the file has; a file that is too long is emptied.
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
    let mut content = range_response(&response, *have);
    if *have > 0 && content != RangeResponse::Rest {
        // The registry does not support ranges, or sent another one.
        file.set_len(0).and_then(|()| file.rewind()).map_err(RegistryError::Write)?;
        *have = 0;
        if content != RangeResponse::Whole {
            response = client.layer(layer, 0).await?;
            content = range_response(&response, 0);
        }
    }
    if !matches!(content, RangeResponse::Rest | RangeResponse::Whole) {
        return Err(client.invalid(format!("status {} for a whole layer", response.status())));
    }
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(source) => return Err(client.request_failed(source)),
        };
        if *have + chunk.len() as u64 > layer.size {
            return Err(client.invalid("a layer is longer than its manifest states"));
        }
        file.write_all(&chunk).map_err(RegistryError::Write)?;
        *have += chunk.len() as u64;
        progress.advance(chunk.len() as u64);
    }
    if *have < layer.size {
        return Err(client.invalid("a layer is shorter than its manifest states"));
    }
    Ok(())
}
