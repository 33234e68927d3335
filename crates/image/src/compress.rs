//! Decompression of streams, recognised by their first bytes: gzip, zstd or none.
//!
//! File names and media types are not trusted. The output is not bounded here but by the callers.

use std::{
    io,
    io::{BufRead, BufReader, Read},
};

use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

/// The compression of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// The largest window of a zstd frame, in bytes: the most that the standard tool uses by default.
const MAX_WINDOW: u64 = 128 << 20;

/// Decompresses a stream; its first bytes determine how.
pub(crate) fn decode<'a>(
    reader: impl Read + Send + 'a,
) -> io::Result<(Compression, Box<dyn Read + Send + 'a>)> {
    let mut reader = BufReader::with_capacity(128 << 10, reader);
    let compression = detect(reader.fill_buf()?)?;
    let decoded: Box<dyn Read + Send + 'a> = match compression {
        Compression::None => Box::new(reader),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
        Compression::Zstd => Box::new(Zstd::new(reader)),
    };
    Ok((compression, decoded))
}

fn detect(start: &[u8]) -> io::Result<Compression> {
    let unsupported = |what| Err(io::Error::new(io::ErrorKind::Unsupported, what));
    match start {
        [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Compression::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            unsupported("xz compression; decompress it with xz -d first")
        }
        [b'B', b'Z', b'h', ..] => {
            unsupported("bzip2 compression; decompress it with bzip2 -d first")
        }
        _ => Ok(Compression::None),
    }
}

/// All frames of a zstd stream in turn; the library decodes single frames.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    state: State,
}

#[derive(PartialEq)]
enum State {
    BetweenFrames,
    InFrame,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self { source, decoder, state: State::BetweenFrames }
    }

    /// Starts the next frame, skipping those without data. False at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let want = u64::from(length);
                    let got = io::copy(&mut self.source.by_ref().take(want), &mut io::sink())?;
                    if got < want {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.state == State::BetweenFrames {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.state = State::InFrame;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            let got = self.decoder.read(buffer)?;
            if got > 0 {
                return Ok(got);
            }
            self.state = State::BetweenFrames;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn all(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decode(packed)?.1.take(1 << 20).read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_and_frames_are_joined_and_empty_frames_skipped() {
        let data: Vec<u8> = (0..200_000u32).map(|i| (i / 7) as u8).collect();
        assert_eq!(all(&data).unwrap(), data);
        assert_eq!(
            all(&[gzip(&data), gzip(b"tail")].concat()).unwrap(),
            [&data[..], b"tail"].concat()
        );
        let zstd = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
        let skip = [&[0x52, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
        let packed = [skip.clone(), zstd(&data), skip.clone(), zstd(b"tail"), skip].concat();
        assert_eq!(all(&packed).unwrap(), [&data[..], b"tail"].concat());
    }

    #[test]
    fn a_cut_stream_is_an_error() {
        let data = vec![7; 100_000];
        let zstd = compress_to_vec(&data[..], CompressionLevel::Fastest);
        for packed in [gzip(&data), zstd] {
            assert!(all(&packed[..packed.len() - 9]).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn arbitrary_bytes_never_panic(
            data in prop::collection::vec(any::<u8>(), 0..300),
            magic in prop::sample::select(vec![vec![], vec![0x1f, 0x8b, 8], vec![0x28, 0xb5, 0x2f, 0xfd]]),
        ) {
            let _ = all(&[magic, data].concat());
        }

        #[test]
        fn a_flipped_byte_never_panics(at in 0usize..400, with in any::<u8>()) {
            let text: Vec<u8> = (0..3000u32).flat_map(|i| (i * i).to_string().into_bytes()).collect();
            for mut packed in [gzip(&text), compress_to_vec(&text[..], CompressionLevel::Fastest)] {
                let at = at % packed.len();
                packed[at] ^= with;
                let _ = all(&packed);
            }
        }
    }
}
