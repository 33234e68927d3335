//! Removes the files of a sandbox: trees of any depth and size.
//!
//! Only for trees that nothing writes to any more. Deeply nested directories are moved to the top first, so a million
//! levels take a million steps, but neither stack nor descriptors.

use std::{fs, io, path::Path};

/// How many entries to remove.
pub(crate) enum Effort {
    /// At most this many, then leave the rest.
    AtMost(usize),
    /// All of them.
    Unlimited,
}

/// Levels of directories that are entered. Deeper ones are moved to the top first.
const MAX_DEPTH: usize = 8;

/// Removes a tree. Returns whether it is gone; a tree that does not exist is.
pub(crate) fn remove_tree(top: &Path, effort: &Effort) -> io::Result<bool> {
    let left = match effort {
        Effort::AtMost(most) => *most,
        Effort::Unlimited => usize::MAX,
    };
    let mut removal = Removal { top, left, moved: 0 };
    // What was moved to the top may not have been listed.
    loop {
        if !removal.empty(top, 1)? {
            return Ok(false);
        }
        match fs::remove_dir(top) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) => return Err(error),
        }
    }
}

/// A removal in progress.
struct Removal<'a> {
    top: &'a Path,
    /// Entries that may still be removed.
    left: usize,
    /// Directories moved to the top.
    moved: u64,
}

impl Removal<'_> {
    /// Removes what is in a directory; returns whether it got to the end.
    fn empty(&mut self, dir: &Path, depth: usize) -> io::Result<bool> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            let path = entry.path();
            if !entry.file_type()?.is_dir() {
                gone(fs::remove_file(path))?;
            } else if depth < MAX_DEPTH {
                if !self.empty(&path, depth + 1)? {
                    return Ok(false);
                }
                gone(fs::remove_dir(path))?;
            } else if fs::remove_dir(&path).is_err() {
                gone(self.move_up(&path))?;
            }
        }
        Ok(true)
    }

    /// Moves a directory to the top, under a name that no earlier removal has used.
    fn move_up(&mut self, dir: &Path) -> io::Result<()> {
        loop {
            self.moved += 1;
            let to = format!(".moved-{}-{}", std::process::id(), self.moved);
            match fs::rename(dir, self.top.join(to)) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                moved => return moved,
            }
        }
    }
}

/// Ignores a missing file: another spawner may be removing the same leftover.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_trees_go_without_a_deep_stack() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().join("top");
        fs::create_dir(&top).unwrap();
        let mut dir =
            rustix::fs::open(&top, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&dir, "d", rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
            dir =
                rustix::fs::openat(&dir, "d", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())
                    .unwrap();
        }
        fs::write(top.join("f"), "x").unwrap();
        fs::write(top.join("d/d/f"), "x").unwrap();
        assert!(!remove_tree(&top, &Effort::AtMost(10)).unwrap());
        assert!(remove_tree(&top, &Effort::Unlimited).unwrap());
        assert!(!top.exists());
        assert!(remove_tree(&top, &Effort::Unlimited).unwrap());
    }
}
