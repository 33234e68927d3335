//! Names of copies that are not complete yet, and removal of those whose process was killed.
//!
//! `.NAME.partial-MARK-PROCESS-NUMBER` lies beside NAME. Whether the process lives can only be said on the same machine, since
//! it was started, and in the same pid namespace: the mark stands for these. A copy with another mark, on shared storage for
//! example, is left alone.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

/// Most bytes of a file name.
const MAX_NAME: usize = 255;
/// Bytes of a file name that are left for the mark and the numbers.
const RESERVED: usize = 64;

/// A new name for an incomplete copy to `dest`. Removes copies to the same destination that were interrupted by the end of
/// their process.
///
/// # Errors
/// If the destination has no name.
pub(crate) fn path(dest: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = dest.file_name().ok_or_else(|| io::Error::other("the destination has no name"))?;
    let mut partial = prefix(name);
    remove_stale(dest, &partial);
    let (mark, own) = (mark().unwrap_or("0"), NEXT.fetch_add(1, Ordering::Relaxed));
    partial.push(format!("{mark}-{}-{own}", std::process::id()));
    Ok(dest.with_file_name(partial))
}

/// The beginning of the names of incomplete copies, which is cut where the name is too long.
fn prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    match name.len() > MAX_NAME - RESERVED {
        false => prefix.push(name),
        true => {
            let name = name.to_string_lossy();
            prefix.push(&name[..name.floor_char_boundary(MAX_NAME - RESERVED)]);
        }
    }
    prefix.push(".partial-");
    prefix
}

/// Removes incomplete copies of dead processes. What cannot be removed stays.
fn remove_stale(dest: &Path, prefix: &OsStr) {
    let Some(mark) = mark() else { return };
    let dir = match dest.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let process = rest.and_then(|rest| process_of(std::str::from_utf8(rest).ok()?, mark));
        if process.is_none_or(|process| test_kill_process(process) != Err(Errno::SRCH)) {
            continue;
        }
        // Links are removed, not followed.
        let _ = match entry.file_type() {
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(entry.path()),
            _ => fs::remove_file(entry.path()),
        };
    }
}

/// The process in the end of a name, `MARK-PROCESS-NUMBER`, if the mark is this one.
fn process_of(end: &str, mark: &str) -> Option<Pid> {
    let mut parts = end.split('-');
    let (named, process, number) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let own = named == mark && digits(process) && digits(number) && parts.next().is_none();
    own.then(|| process.parse().ok()).flatten().and_then(Pid::from_raw)
}

/// The machine since it was started, and the pid namespace, as a hexadecimal number; `None` where they are unknown.
fn mark() -> Option<&'static str> {
    static MARK: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        use std::os::unix::fs::MetadataExt;
        let started = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
        // FNV-1a: the same in every version of this program.
        let bytes = started.trim().bytes().chain(namespace.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Some(format!("{hash:016x}"))
    };
    MARK.get_or_init(find).as_deref()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// No process has such a number.
    const DEAD: i32 = i32::MAX;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_copies_of_dead_processes_to_the_same_place_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (mark, own) = (mark().unwrap(), std::process::id());
        let stale =
            [format!(".out.partial-{mark}-{DEAD}-0"), format!(".out.partial-{mark}-{DEAD}-17")];
        let kept = [
            format!(".out.partial-{mark}-{own}-0"),
            format!(".out.partial-{mark}-1-0"),
            format!(".out.partial-0123456789abcdef-{DEAD}-0"),
            // Of older versions, which did not say where the process is.
            format!(".out.partial-{DEAD}-0"),
            format!(".out.partial-{mark}-{DEAD}-0-mine"),
            format!(".out.partial-{mark}-{DEAD}-"),
            format!(".out.partial-{mark}--{DEAD}-0"),
            format!(".other.partial-{mark}-{DEAD}-0"),
            "out.txt".to_owned(),
        ];
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "").unwrap();
        fs::create_dir(dir.path().join(&stale[0])).unwrap();
        fs::write(dir.path().join(&stale[0]).join("a"), "half").unwrap();
        symlink(outside.path(), dir.path().join(&stale[0]).join("link")).unwrap();
        symlink(outside.path(), dir.path().join(&stale[1])).unwrap();
        for name in &kept {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let partial = path(&dir.path().join("out")).unwrap();
        assert_eq!(partial.parent(), Some(dir.path()));
        let mut expected = kept.to_vec();
        expected.sort();
        assert_eq!(names(dir.path()), expected);
        assert!(outside.path().join("file").exists(), "a link was followed");
    }

    #[test]
    fn names_fit_and_differ() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a".repeat(255), "é".repeat(127), "x".to_owned()] {
            let dest = dir.path().join(&name);
            let (one, other) = (path(&dest).unwrap(), path(&dest).unwrap());
            assert_ne!(one, other);
            fs::write(&one, "").unwrap();
            fs::write(&dest, "").unwrap();
            assert!(path(&dest).is_ok() && one.exists(), "its process, this one, lives");
        }
        assert!(path(Path::new("/")).is_err());
    }

    #[test]
    fn one_that_was_killed_is_recognized() {
        let dir = tempfile::tempdir().unwrap();
        let left = path(&dir.path().join("out")).unwrap();
        let own = format!("-{}-", std::process::id());
        let left = PathBuf::from(left.to_str().unwrap().replace(&own, &format!("-{DEAD}-")));
        fs::write(&left, "half").unwrap();
        path(&dir.path().join("out")).unwrap();
        assert!(!left.exists());
    }
}
