//! Copies trees between the host and a sandbox as tar streams.
//!
//! Unpacking does not trust the stream, which comes from a sandbox: no name, link or device in it may affect anything but
//! the destination, and whatever it contains takes a bounded amount of memory. Packing in a sandbox does not trust the
//! tree, which changes while it is packed.

mod pack;
mod removal;
mod unpack;

use std::{
    io,
    path::{Component, Path},
};

pub use pack::{pack, pack_bytes, pack_sandbox};
pub use removal::until_removed;
pub use unpack::unpack;

/// Called for every entry and piece of a copy; an error ends the copy.
pub type OnStep<'a> = &'a dyn Fn() -> io::Result<()>;

/// Deepest entry that is copied out of a sandbox: each costs the host a walk through all directories above it.
const MAX_DEPTH: usize = 128;

/// Why an entry is skipped that lies deeper than [`MAX_DEPTH`].
const TOO_DEEP: &str = "it is nested too deeply";

/// Whether a link at `path` with this target stays inside the tree.
///
/// `..` is accepted only at the start: after a name, which may be another link, it could lead elsewhere than it seems.
fn stays_inside(path: &Path, target: &Path) -> bool {
    let depth = path.components().count() - 1;
    let mut ups = 0;
    let mut named = false;
    for component in target.components() {
        match component {
            Component::ParentDir if named => return false,
            Component::ParentDir => ups += 1,
            Component::Normal(_) => named = true,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    ups <= depth
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
