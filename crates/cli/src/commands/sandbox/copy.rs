//! `sandbox cp`: copies files between this machine and a named sandbox.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use supervisor::Name;

use super::{args::named::SandboxCpArgs, session::report_skipped, supervise::supervisor_of};
use crate::{
    exit::{Exit, UsageError},
    settings::Settings,
};

/// One end of a copy.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Host(PathBuf),
    Sandbox(Name, PathBuf),
}

impl End {
    /// `NAME:PATH`, or a path of this machine: one with a colon can be written as `./a:b`.
    fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|byte| *byte == b':');
        let name = colon.and_then(|at| std::str::from_utf8(&bytes[..at]).ok()?.parse().ok());
        match (name, colon) {
            (Some(name), Some(at)) => {
                Self::Sandbox(name, OsStr::from_bytes(&bytes[at + 1..]).into())
            }
            _ => Self::Host(text.into()),
        }
    }
}

/// Copies.
pub(crate) async fn run(args: &SandboxCpArgs, settings: &Settings) -> anyhow::Result<Exit> {
    match (End::parse(&args.source), End::parse(&args.destination)) {
        (End::Host(host), End::Sandbox(name, path)) => copy_in(&host, &name, &path, settings).await,
        (End::Sandbox(name, path), End::Host(host)) => {
            copy_out(&name, &path, &host, settings).await
        }
        (End::Host(_), End::Host(_)) => {
            let text = "neither SRC nor DST is in a sandbox; write one of them as NAME:PATH";
            Err(UsageError(text.into()).into())
        }
        (End::Sandbox(..), End::Sandbox(..)) => {
            let text = "SRC and DST are both in a sandbox; copy to this machine first";
            Err(UsageError(text.into()).into())
        }
    }
}

async fn copy_in(
    host: &Path,
    name: &Name,
    path: &Path,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let unreadable =
        |error| UsageError(format!("cannot read {}: {error}; check the path", host.display()));
    let resolved = fs::canonicalize(host).map_err(unreadable)?;
    let entry = match is_content(host) {
        true => None,
        // `..` and `/` have no name of their own.
        false => host.file_name().or_else(|| resolved.file_name()).map(Path::new),
    };
    // An empty path is the working directory.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let (path, entry) = match entry {
        Some(entry) if ends_with_slash(path) => (path.join(entry), None),
        entry => (path.to_owned(), entry),
    };
    let supervisor = supervisor_of(name, settings).await?;
    report_skipped(&supervisor.copy_in(name, &resolved, &path, entry).await?);
    Ok(Exit::Done)
}

async fn copy_out(
    name: &Name,
    path: &Path,
    host: &Path,
    settings: &Settings,
) -> anyhow::Result<Exit> {
    let host = match is_content(path) {
        true => host.to_owned(),
        false => {
            let Some(file_name) = path.file_name() else {
                let text = format!(
                    "{name}:{} has no file name; write {name}:{}/. for the content of the directory",
                    path.display(),
                    path.display().to_string().trim_end_matches('/')
                );
                return Err(UsageError(text).into());
            };
            match ends_with_slash(host) || host.is_dir() {
                true => host.join(file_name),
                false => host.to_owned(),
            }
        }
    };
    let host = std::path::absolute(host)?;
    let supervisor = supervisor_of(name, settings).await?;
    report_skipped(&supervisor.copy_out(name, path, &host).await?);
    Ok(Exit::Done)
}

/// Whether a path stands for the content of a directory: `.`, or anything that ends with `/.`.
fn is_content(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes == b"." || bytes.ends_with(b"/.")
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_before_a_colon_is_a_sandbox() {
        let parse = |text: &str| End::parse(OsStr::new(text));
        let inside = |name: &str, path: &str| End::Sandbox(name.parse().unwrap(), path.into());
        assert_eq!(parse("box:/a:b"), inside("box", "/a:b"));
        assert_eq!(parse("box:"), inside("box", ""));
        for host in ["a", "/a:b", "./a:b", "A:b", ":b", "a b:c", "../x:y"] {
            assert_eq!(parse(host), End::Host(host.into()));
        }
        let odd = OsStr::from_bytes(b"box:\xff");
        assert_eq!(
            End::parse(odd),
            End::Sandbox("box".parse().unwrap(), OsStr::from_bytes(b"\xff").into())
        );
    }

    #[test]
    fn a_dot_at_the_end_is_the_content() {
        for (path, expected) in
            [("a/.", true), (".", true), ("/.", true), ("a/..", false), ("a.", false)]
        {
            assert_eq!(is_content(Path::new(path)), expected, "{path}");
        }
    }
}
