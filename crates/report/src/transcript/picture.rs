//! Images on a page: those the model was shown, and those it left as files.
//!
//! Only PNG, JPEG, GIF and WebP, known by their first bytes whatever the record calls them: formats that cannot contain
//! scripts or refer to other files. Their number and size are bounded.

use std::fmt::Write;

use base64::{Engine, prelude::BASE64_STANDARD};
use trajectory::{Content, Event, Line, Message};

use super::text::{isolated, size};
use crate::text::excerpt;

/// The largest image that is shown, in bytes.
pub const MAX_PICTURE: u64 = 2 << 20;
/// Images of a page, and bytes of all of them.
const MAX_PICTURES: usize = 40;
const MAX_BYTES: usize = 12 << 20;
/// The most pixels of an image whose header says how many it has: a small file can unpack to gigabytes.
const MAX_PIXELS: u64 = 64 << 20;
/// Images that are collected from the events of an episode; more are counted.
const MAX_COLLECTED: usize = 200;

/// An image that the model was shown in a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The turn, from 1.
    pub turn: u32,
    /// What it belongs to, such as the tool that returned it.
    pub name: String,
    /// The file, in base64 as recorded.
    pub data: String,
}

/// The images in the tool results of an episode, in the order of turns.
pub fn pictures(lines: &[Line]) -> Vec<Picture> {
    let mut found: Vec<Picture> = Vec::new();
    for line in lines {
        let (turn, name, content) = match &line.event {
            Event::Resumed { turn } => {
                found.retain(|picture| picture.turn <= *turn);
                continue;
            }
            Event::Observed(observed) => match &observed.message {
                Message::Tool(result) => (observed.turn, result.name.as_str(), &result.content),
                Message::User { content } => (observed.turn, "message to the model", content),
                Message::System { .. } | Message::Assistant(_) => continue,
            },
            _ => continue,
        };
        for part in content {
            if let Content::Image { data, .. } = part
                && found.len() < MAX_COLLECTED
            {
                found.push(Picture { turn, name: name.to_owned(), data: data.clone() });
            }
        }
    }
    found
}

/// The type of an image that may be shown, by its first bytes.
pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Bytes of a JPEG file that are searched for its size, and segments that are skipped.
const JPEG_HEAD: usize = 1 << 20;
const JPEG_SEGMENTS: usize = 1000;

/// The number of pixels, where the header of the format says it.
fn pixels(bytes: &[u8]) -> Option<u64> {
    match media_type(bytes)? {
        "image/png" => {
            let number =
                |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
            u64::from(number(16)?).checked_mul(u64::from(number(20)?))
        }
        "image/gif" => {
            let number =
                |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
            Some(u64::from(number(6)?) * u64::from(number(8)?))
        }
        "image/jpeg" => jpeg_pixels(bytes.get(..JPEG_HEAD).unwrap_or(bytes)),
        "image/webp" => webp_pixels(bytes),
        _ => None,
    }
}

/// The size in the frame header of a JPEG file: segments are skipped until there is one.
fn jpeg_pixels(bytes: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let mut at = 2;
    for _ in 0..JPEG_SEGMENTS {
        let (0xff, marker) = (*bytes.get(at)?, *bytes.get(at + 1)?) else { return None };
        match marker {
            // Fill bytes, and markers without a length.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // The frame, of whatever coding; C4, C8 and CC are tables.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some(u64::from(number(at + 5)?) * u64::from(number(at + 7)?));
            }
            0xd9 | 0xda => return None,
            _ => at += 2 + usize::from(number(at + 2)?.max(2)),
        }
    }
    None
}

/// The size in the first chunk of a WebP file: lossy, lossless or extended.
fn webp_pixels(bytes: &[u8]) -> Option<u64> {
    let chunk = bytes.get(12..16)?;
    let bytes = bytes.get(20..30)?;
    let three = |at: usize| {
        u64::from(bytes[at]) | u64::from(bytes[at + 1]) << 8 | u64::from(bytes[at + 2]) << 16
    };
    let two = |at: usize| (u64::from(bytes[at]) | u64::from(bytes[at + 1]) << 8) & 0x3fff;
    match chunk {
        b"VP8 " => Some(two(6) * two(8)),
        b"VP8L" => {
            let sizes = u64::from(u32::from_le_bytes(bytes[1..5].try_into().ok()?));
            Some(((sizes & 0x3fff) + 1) * ((sizes >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((three(4) + 1) * (three(7) + 1)),
        _ => None,
    }
}

/// The images that still fit on a page.
#[derive(Debug)]
pub(super) struct Gallery {
    left: usize,
    bytes: usize,
}

impl Default for Gallery {
    fn default() -> Self {
        Self { left: MAX_PICTURES, bytes: MAX_BYTES }
    }
}

impl Gallery {
    /// Writes a recorded image, or why it is not shown.
    pub(super) fn recorded(&mut self, out: &mut String, name: &str, data: &str) {
        // Base64 takes four bytes for three.
        let large = data.len() as u64 / 4 * 3 > MAX_PICTURE;
        let bytes = if large { None } else { BASE64_STANDARD.decode(data).ok() };
        match bytes {
            Some(bytes) if self.show(out, name, &bytes) => {}
            _ => {
                let bytes = size(data.len() as u64 / 4 * 3);
                let name = isolated(&excerpt(name, 300));
                let _ =
                    write!(out, "<p class=\"cut\">An image of {name} ({bytes}) is not shown.</p>");
            }
        }
    }

    /// Writes an image, if it is one and fits. Returns whether it did.
    pub(super) fn show(&mut self, out: &mut String, name: &str, bytes: &[u8]) -> bool {
        let Some(kind) = media_type(bytes) else { return false };
        let fits = bytes.len() as u64 <= MAX_PICTURE
            && bytes.len() <= self.bytes
            && self.left > 0
            && pixels(bytes).is_none_or(|pixels| pixels <= MAX_PIXELS);
        if !fits {
            return false;
        }
        self.left -= 1;
        self.bytes -= bytes.len();
        let label = isolated(&excerpt(name, 300));
        // Encoded here, so that nothing else can get into the attribute.
        let _ = write!(
            out,
            "<figure class=\"picture\"><img loading=\"lazy\" decoding=\"async\" alt=\"\" src=\"data:{kind};base64,"
        );
        BASE64_STANDARD.encode_string(bytes, out);
        let _ = writeln!(out, "\"><figcaption>{label}</figcaption></figure>");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes
    }

    #[test]
    fn types_are_known_by_their_first_bytes() {
        assert_eq!(media_type(&png(1, 1)), Some("image/png"));
        assert_eq!(media_type(&[0xff, 0xd8, 0xff, 0xe0]), Some("image/jpeg"));
        assert_eq!(media_type(b"GIF89a"), Some("image/gif"));
        assert_eq!(media_type(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        for other in [&b"<svg onload=alert(1)>"[..], b"<html>", b"RIFF\0\0\0\0WAVE", b"%PDF-", b""]
        {
            assert_eq!(media_type(other), None);
        }
    }

    #[test]
    fn what_is_not_an_image_is_named_and_not_shown() {
        let (mut out, mut gallery) = (String::new(), Gallery::default());
        for data in ["PHN2Zz4=", "\"><script>", "", &BASE64_STANDARD.encode(png(1 << 16, 1 << 16))]
        {
            gallery.recorded(&mut out, "<b>", data);
        }
        assert!(
            !out.contains("<img") && !out.contains("<script>") && !out.contains("<b>"),
            "{out}"
        );
        assert_eq!(out.matches("is not shown").count(), 4);
        gallery.recorded(&mut out, "view", &BASE64_STANDARD.encode(png(2, 2)));
        assert!(out.contains("src=\"data:image/png;base64,iVBOR"), "{out}");
    }

    #[test]
    fn sizes_are_read_from_the_headers() {
        let jpeg = |more: &[u8], frame: [u8; 4]| {
            let mut bytes = vec![0xff, 0xd8];
            bytes.extend(more);
            bytes.extend([0xff, 0xc2, 0, 17, 8]);
            bytes.extend(frame);
            bytes
        };
        let segment = [0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xff, 0xfe, 0, 2];
        assert_eq!(pixels(&jpeg(&segment, [0, 3, 1, 0])), Some(3 * 256));
        assert_eq!(pixels(&jpeg(&segment, [0xff, 0xff, 0xff, 0xff])), Some(0xffff * 0xffff));
        // Without a frame within reach the size is unknown.
        assert_eq!(pixels(&[0xff, 0xd8, 0xff, 0xda, 0, 0]), None);
        assert_eq!(pixels(&[&[0xff, 0xd8][..], &[0xff; 5000]].concat()), None);
        assert_eq!(pixels(&[&[0xff, 0xd8][..], &[0xff, 0xe0, 0, 0].repeat(5000)].concat()), None);
        let webp = |kind: &[u8; 4], data: [u8; 10]| {
            [b"RIFF\0\0\0\0WEBP", &kind[..], &[10, 0, 0, 0], &data].concat()
        };
        assert_eq!(pixels(&webp(b"VP8 ", [0, 0, 0, 0x9d, 1, 0x2a, 4, 0, 3, 0x40])), Some(12));
        assert_eq!(pixels(&webp(b"VP8L", [0x2f, 4, 0x80, 0, 0, 0, 0, 0, 0, 0])), Some(5 * 3));
        assert_eq!(
            pixels(&webp(b"VP8X", [0, 0, 0, 0, 0xff, 0xff, 0xff, 1, 0, 0])),
            Some((1 << 24) * 2)
        );
        assert_eq!(pixels(b"RIFF\0\0\0\0WEBPVP8X"), None);
    }

    #[test]
    fn number_and_size_are_bounded() {
        let (mut out, mut gallery) = (String::new(), Gallery::default());
        let shown = (0..100).filter(|_| gallery.show(&mut out, "x", &png(1, 1))).count();
        assert_eq!(shown, MAX_PICTURES);
        let large = [png(1, 1), vec![0; 1 << 20]].concat();
        let mut gallery = Gallery::default();
        let shown = (0..100).filter(|_| gallery.show(&mut out, "x", &large)).count();
        assert_eq!(shown, 11);
        let huge = [png(1, 1), vec![0; MAX_PICTURE as usize]].concat();
        assert!(!Gallery::default().show(&mut out, "x", &huge));
    }
}
