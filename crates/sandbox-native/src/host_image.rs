//! The built-in image `host`: the programs of this machine without its secrets.
//!
//! `/usr` (and, where they are not links into it, `/bin`, `/lib` ...) are read-only layers of overlays. Everything else
//! is a small tree created here, into which only world-readable configuration of known names is copied. Nothing of
//! `/home`, `/root`, `/var` and `/etc/ssl/private` is included.

mod kept;

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

pub(crate) use self::kept::{KeptTree, tree};

use crate::plan::HostDir;

/// Top-level directories that hold programs.
const PROGRAM_DIRS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Configuration that programs need and that reveals nothing about the users of this machine.
const CONFIGURATION: [&str; 28] = [
    "alternatives",
    "bash.bashrc",
    "bash_completion",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "magic.mime",
    "mime.types",
    "os-release",
    "perl",
    "pki/tls/certs",
    "protocols",
    "python3",
    "python3.11",
    "R",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
];

/// Finds the host's program directories that are directories and not links, and what these layers of an image have over
/// each.
pub(crate) fn program_dirs(layers: &[PathBuf]) -> Vec<HostDir> {
    let dirs = PROGRAM_DIRS.iter().map(PathBuf::from).filter(|dir| is_real_dir(dir));
    dirs.map(|path| {
        let below = path.strip_prefix("/").unwrap_or(&path);
        let over = layers.iter().map(|layer| layer.join(below));
        HostDir { changed: over.filter(|dir| is_real_dir(dir)).collect(), path }
    })
    .collect()
}

/// Whether this is a directory, without following a link out of the tree it lies in.
fn is_real_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
}

/// Creates the tree that everything else is mounted on.
pub(crate) fn make_skeleton(at: &Path) -> io::Result<()> {
    for dir in ["dev", "etc", "home", "mnt", "opt", "proc", "run", "srv", "sys", "testbed"] {
        fs::create_dir(at.join(dir))?;
    }
    for dir in ["var/lib", "var/log", "var/cache", "var/spool", "var/tmp", "root", "tmp"] {
        fs::create_dir_all(at.join(dir))?;
    }
    for (dir, mode) in [("root", 0o700), ("tmp", 0o1777), ("var/tmp", 0o1777)] {
        fs::set_permissions(at.join(dir), fs::Permissions::from_mode(mode))?;
    }
    symlink("/run", at.join("var/run"))?;
    for dir in PROGRAM_DIRS {
        let host = Path::new(dir);
        let here = at.join(dir.trim_start_matches('/'));
        match host.symlink_metadata() {
            Ok(meta) if meta.is_dir() => fs::create_dir(here)?,
            Ok(meta) if meta.is_symlink() => symlink(fs::read_link(host)?, here)?,
            _ => {}
        }
    }
    let etc = at.join("etc");
    for name in CONFIGURATION {
        let target = etc.join(name);
        target.parent().map_or(Ok(()), fs::create_dir_all)?;
        copy_public(&Path::new("/etc").join(name), &target)?;
    }
    for (name, content) in GENERATED {
        fs::write(etc.join(name), content)?;
    }
    if !etc.join("mtab").exists() {
        symlink("/proc/self/mounts", etc.join("mtab"))?;
    }
    Ok(())
}

const GENERATED: [(&str, &str); 6] = [
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/bash\n\
         daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "root:x:0:\ndaemon:x:1:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"),
    ("hostname", "sandbox\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ("shells", "/bin/sh\n/bin/bash\n"),
];

/// Copies the world-readable parts of a file or tree. Links are copied as links.
fn copy_public(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(meta) = from.symlink_metadata() else { return Ok(()) };
    let public = meta.permissions().mode() & 0o004 != 0;
    if meta.is_symlink() {
        symlink(fs::read_link(from)?, to)
    } else if meta.is_dir() && public {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_public(&entry.path(), &to.join(entry.file_name()))?;
        }
        Ok(())
    } else if meta.is_file() && public {
        fs::copy(from, to).map(drop)
    } else {
        Ok(())
    }
}

/// Changes the owner of a tree, so that it belongs to root inside.
pub(crate) fn give_to(at: &Path, owner: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(at, Some(owner), Some(owner))?;
    if at.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(at)? {
            give_to(&entry?.path(), owner)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_files_are_copied() {
        let from = tempfile::tempdir().unwrap();
        let to = tempfile::tempdir().unwrap();
        fs::write(from.path().join("open"), "o").unwrap();
        fs::write(from.path().join("secret"), "s").unwrap();
        let secret = fs::Permissions::from_mode(0o640);
        fs::set_permissions(from.path().join("secret"), secret).unwrap();
        fs::set_permissions(from.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copy_public(from.path(), &to.path().join("x")).unwrap();
        let copied: Vec<_> =
            fs::read_dir(to.path().join("x")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(copied, ["open"]);
    }

    #[test]
    fn the_skeleton_has_no_secrets_and_what_programs_need() {
        let at = tempfile::tempdir().unwrap();
        make_skeleton(at.path()).unwrap();
        assert!(at.path().join("etc/passwd").exists());
        assert!(!at.path().join("etc/shadow").exists());
        assert!(!at.path().join("etc/ssl/private").exists());
        assert_eq!(fs::read_dir(at.path().join("root")).unwrap().count(), 0);
    }
}
