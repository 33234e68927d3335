//! Opens files of a directory that may come from a stranger.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Component, Path},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, open, openat, statat},
    io::Errno,
};

/// Opens a regular file below a directory for reading. No link below the directory is followed, at whatever moment it is
/// put there, so that no file from elsewhere is read. A pipe or device is refused: it would block or never end.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] with the reason for a path that leads through a link, or is not that of a regular file.
pub fn open_below(directory: &Path, file: &Path) -> io::Result<File> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = open(directory, flags, Mode::empty())?;
    let mut rest = file.components().peekable();
    while let Some(component) = rest.next() {
        let Component::Normal(name) = component else {
            return Err(refused("its path leads out of the directory"));
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let is_last = rest.peek().is_none();
        let flags = if is_last { flags } else { flags | OFlags::DIRECTORY };
        at = match openat(&at, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            // Which of the two a link gives depends on the system.
            Err(error @ (Errno::LOOP | Errno::NOTDIR | Errno::MLINK)) => {
                let is_link = statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::Symlink);
                return Err(match (is_link, is_last) {
                    (true, true) => refused("it is a link, and links are not followed"),
                    (true, false) => refused(&format!(
                        "the directory `{}` is a link, and links are not followed",
                        name.display()
                    )),
                    (false, _) => error.into(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        if is_last {
            let file = File::from(at);
            return match file.metadata()?.is_file() {
                true => Ok(file),
                false => Err(refused("it is not a file")),
            };
        }
    }
    Err(refused("it is not a file"))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read, os::unix::fs::symlink};

    use super::*;

    fn read(directory: &Path, file: &str) -> Result<String, String> {
        let mut text = String::new();
        let opened = open_below(directory, Path::new(file)).map_err(|error| error.to_string())?;
        opened.take(100).read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn links_and_paths_out_of_the_directory_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (dir.path().join("run"), dir.path().join("elsewhere"));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(elsewhere.join("b")).unwrap();
        fs::write(root.join("a/b/f"), "ours").unwrap();
        fs::write(elsewhere.join("b/f"), "secret").unwrap();
        symlink(elsewhere.join("b/f"), root.join("f")).unwrap();
        symlink(&elsewhere, root.join("c")).unwrap();
        assert_eq!(read(&root, "a/b/f").unwrap(), "ours");
        assert_eq!(read(&root, "f").unwrap_err(), "it is a link, and links are not followed");
        let through = read(&root, "c/b/f").unwrap_err();
        assert_eq!(through, "the directory `c` is a link, and links are not followed");
        for outside in ["../elsewhere/b/f", "/etc/passwd"] {
            assert_eq!(read(&root, outside).unwrap_err(), "its path leads out of the directory");
        }
        for not_a_file in ["a/b", ""] {
            assert_eq!(read(&root, not_a_file).unwrap_err(), "it is not a file");
        }
        // The directory itself may be a link: it is the one that was named.
        symlink(&root, dir.path().join("named")).unwrap();
        assert_eq!(read(&dir.path().join("named"), "a/b/f").unwrap(), "ours");
    }
}
