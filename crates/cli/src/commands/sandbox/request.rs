//! The checked arguments of `sandbox run` and `sandbox shell`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use image::Store;

use super::args::SessionArgs;
use crate::{
    args::{sandbox::RuntimeKind, values::CopyPair},
    exit::UsageError,
    settings::sandbox::SandboxSettings,
};

/// A sandbox to create, and what is copied in and out of it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) sandbox: SandboxSettings,
    pub(crate) copy_in: Vec<CopyPair>,
    pub(crate) copy_out: Vec<CopyPair>,
    pub(crate) timeout: Option<Duration>,
    /// The name of the image that the files become.
    pub(crate) save: Option<String>,
}

impl Request {
    /// Checks the arguments. `timeout` applies if the user gave none.
    pub(crate) fn check(args: SessionArgs, timeout: Option<Duration>) -> anyhow::Result<Self> {
        let sandbox = SandboxSettings::check(args.sandbox, args.workdir)?;
        sandbox.check_size("--copy-in", args.copy_in.iter().map(|pair| pair.host.as_path()))?;
        let spec = &sandbox.spec;
        let copy_in = args.copy_in.into_iter().map(|pair| source(pair, &spec.workdir));
        let copy_out = args.copy_out.into_iter().map(|pair| destination(pair, &spec.workdir));
        Ok(Self {
            copy_in: copy_in.collect::<Result<_, _>>()?,
            copy_out: copy_out.collect::<Result<_, _>>()?,
            timeout: args.timeout.map_or(timeout, |limit| limit.0),
            sandbox,
            save: None,
        })
    }

    /// Saves the files as an image of this name if the command succeeds.
    pub(crate) fn saved_as(self, name: Option<String>) -> anyhow::Result<Self> {
        if let (Some(name), RuntimeKind::Native) = (&name, self.sandbox.runtime) {
            Store::check_name(name).map_err(image::Error::from)?;
        }
        Ok(Self { save: name, ..self })
    }
}

/// Checks that a file or directory to copy in is readable.
fn source(pair: CopyPair, workdir: &Path) -> Result<CopyPair, UsageError> {
    let CopyPair { host, inside } = pair;
    let readable = fs::metadata(&host).and_then(|meta| match meta.is_dir() {
        true => fs::read_dir(&host).map(drop),
        false => fs::File::open(&host).map(drop),
    });
    readable.map_err(|error| {
        UsageError(format!("--copy-in: cannot read {}: {error}; check the path", host.display()))
    })?;
    let inside = workdir.join(into(inside, &host));
    Ok(CopyPair { host, inside })
}

fn destination(pair: CopyPair, workdir: &Path) -> Result<CopyPair, UsageError> {
    let CopyPair { host, inside } = pair;
    let host = into(host, &inside);
    if host.file_name().is_none() {
        let text = format!("--copy-out: {} has no file name; add one", host.display());
        return Err(UsageError(text));
    }
    Ok(CopyPair { host, inside: workdir.join(inside) })
}

/// A destination that ends with a slash, or consists of dots, is a directory to copy into.
fn into(to: PathBuf, from: &Path) -> PathBuf {
    let slash = to.as_os_str().as_encoded_bytes().last() == Some(&b'/');
    match from.file_name() {
        Some(name) if slash || to.file_name().is_none() => to.join(name),
        _ => to,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use sandbox::{Layer, LayerState, Protection, Spec};

    use super::*;
    use crate::commands::{Cli, Command, SandboxCommand};

    fn check(options: &[&str]) -> anyhow::Result<Request> {
        let line = ["x", "sandbox", "run"].iter().chain(options).chain(&["--", "true"]);
        match Cli::try_parse_from(line)?.command {
            Command::Sandbox(SandboxCommand::Run(args)) => {
                Request::check(args.sandbox, Some(Duration::from_secs(120)))
            }
            _ => panic!("another command"),
        }
    }

    #[test]
    fn flags_override_defaults() {
        let request = check(&[]).unwrap();
        assert_eq!(request.sandbox.spec, Spec::default());
        assert_eq!(request.timeout, Some(Duration::from_secs(120)));
        let request = check(&["--memory", "none", "--timeout", "none", "--env", "A=b"]).unwrap();
        assert_eq!((request.sandbox.spec.limits.memory, request.timeout), (None, None));
        assert_eq!(request.sandbox.spec.env, [("A".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn mistakes_are_found_before_anything_is_created() {
        for bad in [
            ["--memory", "1"],
            ["--cpus", "0"],
            ["--cpus", "-1"],
            ["--pids", "0"],
            ["--disk", "1K"],
            ["--workdir", "relative"],
            ["--env", "SURELY_NOT_SET_ANYWHERE"],
            ["--copy-in", "/nonexistent:/x"],
            ["--copy-out", "/:.."],
        ] {
            let error = check(&bad).unwrap_err();
            assert_eq!(crate::exit::of(&error), crate::exit::Exit::Usage, "{bad:?}: {error}");
        }
    }

    #[test]
    fn relative_paths_are_below_the_workdir() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        let to = |inside: &str| {
            let pair = CopyPair { host: file.clone(), inside: inside.into() };
            source(pair, Path::new("/w")).unwrap().inside
        };
        assert_eq!(to("a"), Path::new("/w/a"));
        assert_eq!(to("a/"), Path::new("/w/a/f"));
        assert_eq!(to("/a"), Path::new("/a"));
        assert_eq!(to("."), Path::new("/w/./f"));
        let out = CopyPair { host: "out/".into(), inside: "r/x.txt".into() };
        let out = destination(out, Path::new("/w")).unwrap();
        assert_eq!((out.host, out.inside), ("out/x.txt".into(), "/w/r/x.txt".into()));
    }

    #[test]
    fn strict_checks_only_requested_layers() {
        let mut protection = Protection::new("x");
        protection.push(Layer::MemoryLimit, LayerState::Missing, "");
        protection.push(Layer::DiskLimit, LayerState::Partial, "");
        protection.push(Layer::Users, LayerState::Partial, "");
        protection.push(Layer::Network, LayerState::Missing, "");
        protection.push(Layer::Namespaces, LayerState::Enforced, "");
        let weak = |options: &[&str]| {
            let request = check(options).unwrap();
            let weak = request.sandbox.weak(&protection);
            weak.into_iter().map(|layer| layer.layer.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(weak(&[]), ["memory limit", "users", "network"]);
        assert_eq!(weak(&["--memory", "none", "--network", "full"]), ["users"]);
        let line = |options: &[&str]| {
            check(options).unwrap().sandbox.weakness_line(&protection).unwrap_or_default()
        };
        assert!(line(&[]).contains("on this machine: memory limit, users, network; see"));
        protection.layers.retain(|layer| layer.layer != Layer::Users);
        let all_lifted = ["--memory", "none", "--network", "full"];
        let request = check(&all_lifted).unwrap();
        assert_eq!(request.sandbox.weakness_line(&protection), None);
    }
}
