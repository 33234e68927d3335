//! This machine: the user, root rights, programs, the Debian release.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::run;

/// Where Debian puts programs. A program in a home directory does not count: no sandbox could see it.
const PROGRAM_DIRS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// These directories as a `PATH`.
pub(crate) fn program_path() -> String {
    PROGRAM_DIRS.join(":")
}

/// The full path of a system program.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    PROGRAM_DIRS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

/// The user and main group this process runs as.
pub(crate) fn ids() -> Result<(u32, u32)> {
    let number = |flag| -> Result<u32> {
        run::output(Command::new("id").arg(flag))?
            .trim()
            .parse()
            .context("`id` did not print a number")
    };
    Ok((number("-u")?, number("-g")?))
}

/// A program run as root: directly, or through sudo.
pub(crate) fn as_root(name: &str) -> Result<Command> {
    let path = program_path();
    if ids()?.0 == 0 {
        let mut command = Command::new("env");
        command.arg(format!("PATH={path}")).arg(name);
        return Ok(command);
    }
    let Some(sudo) = program("sudo") else {
        bail!("`{name}` needs root; run this as root, or install sudo");
    };
    let mut command = Command::new(sudo);
    command.arg("env").arg(format!("PATH={path}")).arg(name);
    Ok(command)
}

/// The code name of this Debian release.
pub(crate) fn codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    codename_in(&text).context("/etc/os-release has no VERSION_CODENAME; the tests need Debian")
}

fn codename_in(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let name = value.trim().trim_matches('"');
    (!name.is_empty()).then(|| name.to_owned())
}

/// The files of apt's sources for this release. Those of other vendors are left out: their names for the release
/// differ.
pub(crate) fn apt_sources(codename: &str) -> Vec<PathBuf> {
    let below = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = below
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "sources" || e == "list"))
        .collect();
    files.push(PathBuf::from("/etc/apt/sources.list"));
    files.sort();
    files.retain(|path| fs::read_to_string(path).is_ok_and(|text| names_release(&text, codename)));
    files
}

fn names_release(sources: &str, codename: &str) -> bool {
    let lines = sources.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(str::split_whitespace).any(|word| {
        word.strip_prefix(codename).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_release() {
        let text = "ID=debian\nVERSION_CODENAME=bookworm\n";
        assert_eq!(codename_in(text).as_deref(), Some("bookworm"));
        assert_eq!(codename_in("VERSION_CODENAME=\"sid\"").as_deref(), Some("sid"));
        assert_eq!(codename_in("ID=arch\n"), None);
        assert_eq!(codename_in("VERSION_CODENAME=\n"), None);
    }

    #[test]
    fn other_archives_are_left_out() {
        assert!(names_release("Suites: bookworm bookworm-updates", "bookworm"));
        assert!(names_release("Suites: bookworm-security", "bookworm"));
        assert!(names_release("deb mirror://x bookworm main", "bookworm"));
        assert!(!names_release("# deb mirror://x bookworm main", "bookworm"));
        assert!(!names_release("deb mirror://x cloud-bookworm main", "bookworm"));
        assert!(!names_release("Suites: bookworms", "bookworm"));
    }
}
