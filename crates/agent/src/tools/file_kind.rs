//! Recognizes file formats by their first bytes, and reads the size of images in pixels.
//!
//! Decodes nothing: it reads headers, and checks that an image is complete.

/// An image of a format that models accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageInfo {
    /// The common name of its format.
    pub(crate) kind: &'static str,
    /// Such as `image/png`.
    pub(crate) media_type: &'static str,
    /// Width and height in pixels, where the header has them.
    pub(crate) pixels: Option<(u32, u32)>,
    /// Whether the file is complete.
    pub(crate) whole: Whole,
}

/// Whether a file is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// It has its end marker.
    Yes,
    /// It is truncated, for example because it is still being written.
    No,
}

/// First bytes of common binary formats, and their descriptions for the model.
const KINDS: [(&[u8], &str); 19] = [
    (b"%PDF-", "PDF document (read it with pdftotext, or python)"),
    (b"\x7fELF", "ELF program or library"),
    (
        b"PK\x03\x04",
        "zip archive, or an office document or wheel packed as one (list it with unzip -l)",
    ),
    (b"\x1f\x8b", "gzip archive (read it with zcat, or tar -tzf)"),
    (b"BZh91AY&SY", "bzip2 archive (read it with bzcat)"),
    (b"\xfd7zXZ\0", "xz archive (read it with xzcat)"),
    (b"\x28\xb5\x2f\xfd", "zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (b"SQLite format 3\0", "SQLite database (read it with sqlite3, or python)"),
    (b"\x89HDF", "HDF5 data"),
    (b"\x93NUMPY", "NumPy array (read it with python)"),
    (b"ID3\x03\0", "MP3 sound"),
    (b"ID3\x04\0", "MP3 sound"),
    (b"OggS\0", "Ogg sound or video"),
    (b"fLaC\0", "FLAC sound"),
    (b"II*\0", "TIFF picture"),
    (b"MM\0*", "TIFF picture"),
    (b"\xff\xfe", "UTF-16 text (convert it with iconv -f UTF-16 -t UTF-8)"),
    (b"\xfe\xff", "UTF-16 text (convert it with iconv -f UTF-16 -t UTF-8)"),
];

/// The image in a file, if it has a format that models accept.
pub(crate) fn image_info(bytes: &[u8]) -> Option<ImageInfo> {
    let whole = |yes: bool| if yes { Whole::Yes } else { Whole::No };
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        let pixels = pair(be32(bytes, 16), be32(bytes, 20));
        let whole = whole(bytes.ends_with(b"IEND\xae\x42\x60\x82"));
        Some(ImageInfo { kind: "PNG", media_type: "image/png", pixels, whole })
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        let whole = whole(bytes.ends_with(b"\xff\xd9"));
        Some(ImageInfo { kind: "JPEG", media_type: "image/jpeg", pixels: jpeg(bytes), whole })
    } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        let pixels = pair(le16(bytes, 6), le16(bytes, 8));
        let whole = whole(bytes.ends_with(b";"));
        Some(ImageInfo { kind: "GIF", media_type: "image/gif", pixels, whole })
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        let stated = le32(bytes, 4).map_or(u64::MAX, |size| u64::from(size) + 8);
        let whole = whole(bytes.len() as u64 >= stated);
        Some(ImageInfo { kind: "WebP", media_type: "image/webp", pixels: webp(bytes), whole })
    } else {
        None
    }
}

/// The description of a file that is not text.
pub(crate) fn binary_kind(bytes: &[u8]) -> Option<&'static str> {
    if let Some((_, kind)) = KINDS.iter().find(|(start, _)| bytes.starts_with(start)) {
        return Some(kind);
    }
    match (bytes.get(..4), bytes.get(4..8), bytes.get(8..12)) {
        (Some(b"RIFF"), _, Some(b"WAVE")) => return Some("WAV sound"),
        (_, Some(b"ftyp"), _) => return Some("MP4 video or sound"),
        _ => {}
    }
    // Text has no NUL, but one deep inside a log does not make it binary.
    bytes[..bytes.len().min(8000)].contains(&0).then_some("binary file")
}

/// The size in the first frame header among a JPEG file's segments.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xFF {
            return None;
        }
        match *bytes.get(at + 1)? {
            // Padding, and markers that stand alone.
            0xFF => at += 1,
            0x01 | 0xD0..=0xD8 => at += 2,
            0xC4 | 0xC8 | 0xCC => at += 2 + segment(bytes, at)?,
            0xC0..=0xCF => return pair(be16(bytes, at + 7), be16(bytes, at + 5)),
            0xD9 | 0xDA => return None,
            _ => at += 2 + segment(bytes, at)?,
        }
    }
}

fn segment(bytes: &[u8], at: usize) -> Option<usize> {
    be16(bytes, at + 2).map(|length| length as usize).filter(|length| *length >= 2)
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8X" => pair(Some(le24(bytes, 24)? + 1), Some(le24(bytes, 27)? + 1)),
        b"VP8L" => {
            let bits = le32(bytes, 21)?;
            pair(Some((bits & 0x3FFF) + 1), Some(((bits >> 14) & 0x3FFF) + 1))
        }
        b"VP8 " => pair(le16(bytes, 26).map(|n| n & 0x3FFF), le16(bytes, 28).map(|n| n & 0x3FFF)),
        _ => None,
    }
}

/// A size, unless it is unknown or nothing at all.
fn pair(width: Option<u32>, height: Option<u32>) -> Option<(u32, u32)> {
    width.zip(height).filter(|(width, height)| *width > 0 && *height > 0)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u16::from_be_bytes).map(u32::from)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_be_bytes)
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u16::from_le_bytes).map(u32::from)
}

fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn png() -> Vec<u8> {
        let mut file =
            b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x02\0\0\0".to_vec();
        file.extend(b"crc.\0\0\0\0IEND\xae\x42\x60\x82");
        file
    }

    fn pixels(bytes: &[u8]) -> Option<(&'static str, u32, u32)> {
        let picture = image_info(bytes)?;
        picture.pixels.map(|(width, height)| (picture.kind, width, height))
    }

    #[test]
    fn sizes_are_read_from_headers() {
        assert_eq!(pixels(&png()), Some(("PNG", 640, 480)));
        assert_eq!(pixels(b"GIF89a\x0a\0\x14\0rest;"), Some(("GIF", 10, 20)));
        let jpeg =
            b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc4\0\x02\xff\xc2\0\x0b\x08\0\x30\0\x40\x03\xff\xd9";
        assert_eq!(pixels(jpeg), Some(("JPEG", 64, 48)));
        let lossy = b"RIFF\x16\0\0\0WEBPVP8 \0\0\0\0abc\x9d\x01\x2a\x40\x01\xf0\0";
        assert_eq!(pixels(lossy), Some(("WebP", 320, 240)));
        let lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x3f\xc1\x3b\0";
        assert_eq!(pixels(lossless), Some(("WebP", 320, 240)));
        let extended = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x3f\x01\0\xef\0\0";
        assert_eq!(pixels(extended), Some(("WebP", 320, 240)));
        assert_eq!(image_info(b"text"), None);
    }

    #[test]
    fn a_truncated_image_is_detected() {
        let png = png();
        assert_eq!(image_info(&png).map(|picture| picture.whole), Some(Whole::Yes));
        assert_eq!(image_info(&png[..png.len() - 1]).map(|picture| picture.whole), Some(Whole::No));
        assert_eq!(image_info(&png[..20]).and_then(|picture| picture.pixels), None);
        assert_eq!(pixels(b"\xff\xd8\xff\xe0\0\0\xff\xd9"), None);
        assert_eq!(pixels(b"GIF89a\0\0\x14\0;"), None);
    }

    #[test]
    fn binary_files_are_detected() {
        assert_eq!(binary_kind(b"\x7fELF\x02"), Some("ELF program or library"));
        assert_eq!(binary_kind(b"RIFF....WAVEfmt "), Some("WAV sound"));
        assert_eq!(binary_kind(b"\0\0\0\x20ftypisom"), Some("MP4 video or sound"));
        assert_eq!(binary_kind(b"a\0b"), Some("binary file"));
        assert_eq!(binary_kind(b"caf\xe9\n"), None);
        assert_eq!(binary_kind(b""), None);
        assert_eq!(binary_kind(&[b"x".repeat(9000), vec![0]].concat()), None);
    }

    proptest! {
        #[test]
        fn hostile_headers_are_harmless(
            start in prop::sample::select(vec![&b"\xff\xd8\xff"[..], b"RIFF....WEBPVP8X", b"\x89PNG\r\n\x1a\n", b"GIF89a", b""]),
            rest in prop::collection::vec(prop_oneof![Just(0xFFu8), any::<u8>()], 0..60),
        ) {
            let file = [start, &rest].concat();
            if let Some((_, width, height)) = pixels(&file) {
                prop_assert!(width > 0 && height > 0);
            }
            binary_kind(&file);
        }
    }
}
