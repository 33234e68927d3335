//! Lists a directory two levels deep: sorted, with sizes, without hidden entries.
//!
//! Follows no links, and opens a bounded number of directories.

use std::{fmt::Write as _, path::Path};

use sandbox::{Entry, EntryKind, Error, Sandbox};

use super::{
    model_error,
    numbered_lines::{one_line, size},
};

/// The most entries of one directory that are shown.
const MAX_ENTRIES: usize = 200;
/// The most directories that are opened.
const MAX_DIRECTORIES: usize = 60;

/// The listing of a directory with these entries, about `room` characters at most.
pub(crate) async fn list_directory<S: Sandbox>(
    path: &Path,
    entries: Vec<Entry>,
    room: usize,
    sandbox: &S,
) -> Result<String, Error> {
    let mut listing = Listing { room, ..Listing::default() };
    let top = listing.visible(entries);
    let mut opened = 0;
    for entry in shown(&top) {
        if listing.full() {
            break;
        }
        listing.line(entry, 0);
        if entry.kind != EntryKind::Directory {
            continue;
        }
        if opened == MAX_DIRECTORIES {
            listing.note("not looked into: too many directories");
            continue;
        }
        opened += 1;
        match sandbox.list(&path.join(&entry.name)).await {
            Ok(below) => {
                let below = listing.visible(below);
                shown(&below).iter().for_each(|entry| listing.line(entry, 1));
                listing.left_out(below.len(), 1);
            }
            Err(error) if error.is_gone() => return Err(error),
            Err(error) => listing.note(&model_error(&error).unwrap_or_else(|| error.to_string())),
        }
    }
    listing.left_out(top.len(), 0);
    Ok(listing.finish(path))
}

fn shown(entries: &[Entry]) -> &[Entry] {
    &entries[..entries.len().min(MAX_ENTRIES)]
}

#[derive(Default)]
struct Listing {
    text: String,
    room: usize,
    hidden: usize,
    cut: bool,
}

impl Listing {
    /// The entries that are not hidden.
    fn visible(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let all = entries.len();
        let shown: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| !entry.name.as_os_str().as_encoded_bytes().starts_with(b"."))
            .collect();
        self.hidden += all - shown.len();
        shown
    }

    fn full(&mut self) -> bool {
        self.cut |= self.text.len() >= self.room;
        self.cut
    }

    fn line(&mut self, entry: &Entry, depth: usize) {
        if self.full() {
            return;
        }
        let name = one_line(&entry.name.to_string_lossy());
        let indent = "  ".repeat(depth);
        // Writing to a string cannot fail.
        let _ = match entry.kind {
            EntryKind::Directory => writeln!(self.text, "{indent}{name}/"),
            EntryKind::Link => writeln!(self.text, "{indent}{name} (link)"),
            EntryKind::File => writeln!(self.text, "{indent}{name} ({})", size(entry.size)),
            EntryKind::Other => writeln!(self.text, "{indent}{name} (device, socket or pipe)"),
        };
    }

    fn left_out(&mut self, all: usize, depth: usize) {
        if all > MAX_ENTRIES && !self.cut {
            let indent = "  ".repeat(depth);
            let _ = writeln!(self.text, "{indent}[... {} more entries ...]", all - MAX_ENTRIES);
        }
    }

    fn note(&mut self, note: &str) {
        let _ = writeln!(self.text, "  [{note}]");
    }

    fn finish(mut self, path: &Path) -> String {
        if self.cut {
            self.text.push_str("[... the rest is left out; use find or ls ...]\n");
        } else if self.text.is_empty() {
            self.text.push_str("(no entries)\n");
        }
        let hidden = match self.hidden {
            0 => String::new(),
            count => format!(", {count} hidden entries left out"),
        };
        format!(
            "[{}: directory, two levels deep{hidden}]\n{}",
            one_line(&path.to_string_lossy()),
            self.text
        )
    }
}
