//! The `view` command of `str_replace_editor`: files, directories and images.
//!
//! Changes nothing, and sends no image that a server might refuse.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sandbox::Sandbox;
use trajectory::Content;

use super::{
    Observation, Tools, Vision,
    directory_listing::list_directory,
    edit::{CallError, Extent, display_path, load, path_error, require_text},
    file_kind::{ImageInfo, Whole, image_info},
    model_error,
    numbered_lines::{counted, number_lines},
    text_edit::{count_lines, mostly_crlf},
};

/// The largest image that vendors accept, in bytes before base64 encoding.
const MAX_IMAGE: usize = (5 << 20) / 4 * 3;
/// The longest side of an image that vendors accept, in pixels.
const MAX_SIDE: u32 = 8000;

/// Shows the file or directory at a path.
pub(crate) async fn view<S: Sandbox>(
    tools: &Tools,
    path: &Path,
    range: Option<(i64, i64)>,
    sandbox: &S,
) -> Result<Observation, CallError> {
    let input = match sandbox.read_file(path).await {
        Ok(input) => input,
        Err(error) if model_error(&error).is_some() => {
            return match sandbox.list(path).await {
                Ok(entries) => {
                    let listing = list_directory(path, entries, tools.shown, sandbox).await;
                    let listing = listing.map_err(CallError::Sandbox)?;
                    Ok(Observation::text(listing.trim_end_matches('\n')))
                }
                Err(_) => Err(path_error(path, error, sandbox).await),
            };
        }
        Err(error) => return Err(CallError::Sandbox(error)),
    };
    let (bytes, extent) = load(path, input).await?;
    if let Some(picture) = image_info(&bytes) {
        return Ok(view_image(tools.vision, path, &picture, &bytes, extent));
    }
    require_text(path, &bytes, extent)?;
    view_text(path, &bytes, range, tools.shown).map(Observation::text).map_err(CallError::Rejected)
}

/// An image, or a description if it cannot be sent.
fn view_image(
    vision: Vision,
    path: &Path,
    picture: &ImageInfo,
    bytes: &[u8],
    extent: Extent,
) -> Observation {
    let pixels = match picture.pixels {
        Some((width, height)) => format!("{width} x {height} pixels"),
        None => "of unknown size in pixels".into(),
    };
    let about = format!(
        "{}: {} picture, {pixels}, {}",
        display_path(path),
        picture.kind,
        extent.size(bytes)
    );
    // A server refuses the whole conversation for one bad image, so that only valid ones are sent.
    let sides = picture.pixels.map_or(0, |(width, height)| width.max(height));
    let hidden = if vision == Vision::TextOnly {
        "pictures cannot be shown to you; examine it with a program"
    } else if picture.whole == Whole::No || picture.pixels.is_none() {
        "it is damaged or incomplete and cannot be shown"
    } else if bytes.len() > MAX_IMAGE || extent == Extent::Start || sides > MAX_SIDE {
        "it is too large to be shown; make a smaller copy"
    } else {
        let image =
            Content::Image { media_type: picture.media_type.into(), data: STANDARD.encode(bytes) };
        let mut seen = Observation::text(format!("[{about}]"));
        seen.content.push(image);
        return seen;
    };
    Observation::text(format!("[{about}; {hidden}]"))
}

/// The lines of a text file, or those of a range.
fn view_text(
    path: &Path,
    file: &[u8],
    range: Option<(i64, i64)>,
    room: usize,
) -> Result<String, String> {
    let count = count_lines(file);
    let mut facts = vec![counted(count, "line")];
    if count == 0 {
        return Ok(format!("[{}: an empty file]", display_path(path)));
    }
    let (first, last) = match range {
        None => (1, count),
        Some(range) => {
            bounds(range, count).map_err(|why| format!("{}: {why}", display_path(path)))?
        }
    };
    if mostly_crlf(file) {
        facts.push("CR LF line ends".into());
    }
    if !file.ends_with(b"\n") {
        facts.push("no newline at the end".into());
    }
    let page = number_lines(file, first..=last, room);
    facts.extend(page.altered.notes());
    let mut text = format!("[{}: {}]\n{}", display_path(path), facts.join(", "), page.text);
    if page.last < last {
        let (next, fit) = (page.last + 1, page.last + 1 - first);
        let until = last.min(page.last + fit);
        text.push_str(&format!(
            "[... {} left out; see the next ones with view_range [{next}, {until}] ...]",
            counted(last - page.last, "line")
        ));
    }
    text.truncate(text.trim_end_matches('\n').len());
    Ok(text)
}

/// The first and last line of a range, from 1, in a file of `count` lines.
fn bounds((first, last): (i64, i64), count: usize) -> Result<(usize, usize), String> {
    let inside = |line: i64| usize::try_from(line).ok().filter(|line| (1..=count).contains(line));
    let end = if last == -1 { Some(count) } else { usize::try_from(last).ok() };
    match (inside(first), end) {
        (Some(first), Some(end)) if end >= first => Ok((first, end.min(count))),
        _ => Err(format!(
            "view_range [{first}, {last}] does not fit: give a first line from 1 to {count}, and a last \
             line that is not before it, or -1 for the end"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        assert_eq!(bounds((1, -1), 5), Ok((1, 5)));
        assert_eq!(bounds((2, 3), 5), Ok((2, 3)));
        assert_eq!(bounds((5, 100), 5), Ok((5, 5)));
        for bad in [(0, 3), (6, 7), (3, 2), (-1, -1), (1, -2), (i64::MIN, i64::MAX)] {
            assert!(bounds(bad, 5).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn peculiarities_of_a_file_are_noted() {
        let path = Path::new("/a");
        assert_eq!(view_text(path, b"", None, 100), Ok("[/a: an empty file]".into()));
        assert_eq!(view_text(path, b"x\n", None, 100), Ok("[/a: 1 line]\n     1\tx".into()));
        let dos = view_text(path, b"x\r\ny", None, 100).expect("lines");
        assert_eq!(
            dos,
            "[/a: 2 lines, CR LF line ends, no newline at the end]\n     1\tx\n     2\ty"
        );
        let long =
            view_text(path, &b"0123456789\n".repeat(100), Some((11, 90)), 100).expect("lines");
        assert!(long.contains("    11\t") && long.contains("    15\t"), "{long}");
        let marker = "[... 75 lines left out; see the next ones with view_range [16, 20] ...]";
        assert!(long.ends_with(marker), "{long}");
    }

    #[test]
    fn only_valid_images_are_sent() {
        let gif = b"GIF89a\x0a\0\x14\0;";
        let see = |vision, bytes: &[u8]| {
            let picture = image_info(bytes).expect("a picture");
            view_image(vision, Path::new("/a.gif"), &picture, bytes, Extent::Whole)
        };
        let seen = see(Vision::Images, gif);
        let about = "[/a.gif: GIF picture, 10 x 20 pixels, 11 bytes]";
        let data = STANDARD.encode(gif);
        let image = Content::Image { media_type: "image/gif".into(), data };
        assert_eq!(seen.content, [Content::text(about), image]);
        let huge = [&gif[..10], &vec![0; MAX_IMAGE], b";"].concat();
        for (vision, bytes, why) in [
            (Vision::TextOnly, &gif[..], "cannot be shown to you"),
            (Vision::Images, &gif[..10], "damaged"),
            (Vision::Images, b"GIF89a\xff\xff\x14\0;", "too large"),
            (Vision::Images, &huge, "too large"),
        ] {
            let seen = see(vision, bytes);
            assert_eq!(seen.content.len(), 1);
            assert!(seen.content[0].as_text().is_some_and(|text| text.contains(why)), "{seen:?}");
        }
    }
}
