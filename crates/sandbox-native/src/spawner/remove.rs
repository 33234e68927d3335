//! Removes the files of a sandbox: trees of any depth and size, without recursion.
//!
//! Only for trees that nothing writes to any more. Nested directories are moved to the top first, so a million levels
//! take a million steps, but neither stack nor descriptors.

use std::{fs, io, path::Path};

/// How many entries to remove.
pub(crate) enum Effort {
    /// At most this many, then leave the rest.
    AtMost(usize),
    /// All of them.
    Unlimited,
}

/// Removes a tree. Returns whether it is gone; a tree that does not exist is.
pub(crate) fn remove_tree(top: &Path, effort: &Effort) -> io::Result<bool> {
    let mut steps = 0usize;
    let mut moved = 0u64;
    let spent = |steps: usize| matches!(effort, Effort::AtMost(most) if steps > *most);
    loop {
        match fs::remove_dir(top) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) => return Err(error),
        }
        for entry in fs::read_dir(top)? {
            let entry = entry?;
            steps += 1;
            if spent(steps) {
                return Ok(false);
            }
            if !entry.file_type()?.is_dir() {
                gone(fs::remove_file(entry.path()))?;
                continue;
            }
            for inner in fs::read_dir(entry.path())? {
                let inner = inner?;
                steps += 1;
                if spent(steps) {
                    return Ok(false);
                }
                if !inner.file_type()?.is_dir() {
                    gone(fs::remove_file(inner.path()))?;
                } else if fs::remove_dir(inner.path()).is_err() {
                    moved += 1;
                    fs::rename(
                        inner.path(),
                        top.join(format!(".moved-{}-{moved}", std::process::id())),
                    )?;
                }
            }
            gone(fs::remove_dir(entry.path()))?;
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
        assert!(!remove_tree(&top, &Effort::AtMost(10)).unwrap());
        assert!(remove_tree(&top, &Effort::Unlimited).unwrap());
        assert!(!top.exists());
        assert!(remove_tree(&top, &Effort::Unlimited).unwrap());
    }
}
