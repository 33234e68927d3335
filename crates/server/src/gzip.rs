//! Compressed bodies, in pieces: neither the whole file nor its whole compressed form is ever in memory.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::{
    Compression,
    write::{GzDecoder, GzEncoder},
};
use futures_util::{Stream, StreamExt};

/// Compresses a stream.
pub(crate) fn compress(
    pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let state = (Box::pin(pieces), Some(encoder));
    futures_util::stream::unfold(state, |(mut pieces, encoder)| async move {
        let mut encoder = encoder?;
        loop {
            match pieces.next().await {
                Some(Ok(piece)) => {
                    if let Err(error) = encoder.write_all(&piece) {
                        return Some((Err(error), (pieces, None)));
                    }
                    let ready = std::mem::take(encoder.get_mut());
                    if !ready.is_empty() {
                        return Some((Ok(ready.into()), (pieces, Some(encoder))));
                    }
                }
                Some(Err(error)) => return Some((Err(error), (pieces, None))),
                None => {
                    let rest = encoder.finish().map(Bytes::from);
                    return Some((rest, (pieces, None)));
                }
            }
        }
    })
}

/// Bytes that are decompressed at a time: they become a thousand times as many at most.
const STEP: usize = 256;

/// Decompresses a stream.
pub(crate) fn decompress(
    pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let state = (Box::pin(pieces), Bytes::new(), Some(GzDecoder::new(Vec::new())));
    futures_util::stream::unfold(state, |(mut pieces, mut left, decoder)| async move {
        let mut decoder = decoder?;
        loop {
            while !left.is_empty() {
                let step = left.split_to(left.len().min(STEP));
                if let Err(error) = decoder.write_all(&step) {
                    return Some((Err(error), (pieces, left, None)));
                }
                let ready = std::mem::take(decoder.get_mut());
                if !ready.is_empty() {
                    return Some((Ok(ready.into()), (pieces, left, Some(decoder))));
                }
            }
            match pieces.next().await {
                Some(Ok(piece)) => left = piece,
                Some(Err(error)) => return Some((Err(error), (pieces, left, None))),
                None => {
                    let rest = decoder.finish().map(Bytes::from);
                    return Some((rest, (pieces, left, None)));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn whole(pieces: impl Stream<Item = io::Result<Bytes>>) -> io::Result<Vec<u8>> {
        let mut pieces = std::pin::pin!(pieces);
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all)
    }

    fn stream(bytes: Vec<u8>) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let pieces: Vec<_> = bytes.chunks(1000).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        futures_util::stream::iter(pieces)
    }

    #[tokio::test]
    async fn what_was_compressed_is_decompressed() {
        for text in [Vec::new(), b"hello".to_vec(), vec![7; 1 << 20]] {
            let packed = whole(compress(stream(text.clone()))).await.unwrap();
            assert_eq!(whole(decompress(stream(packed.clone()))).await.unwrap(), text);
            let cut = packed[..packed.len() - 1].to_vec();
            assert!(whole(decompress(stream(cut))).await.is_err());
        }
        assert!(whole(decompress(stream(b"no gzip at all".to_vec()))).await.is_err());
    }
}
