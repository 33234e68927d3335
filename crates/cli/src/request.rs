//! What the user asked for, checked: every mistake that can be seen from here is found before anything
//! is made.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use sandbox::{Layer, LayerState, Limits, Network, Protection, Spec};
use serde::{Deserialize, Serialize};

use crate::{
    args::{ComputerArgs, RuntimeKind, SandboxArgs},
    environment,
    exit::Usage,
    values::{CopyPair, Variable},
};

/// A sandbox to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Computer {
    pub(crate) runtime: RuntimeKind,
    pub(crate) spec: Spec,
    pub(crate) weakness: Weakness,
}

/// A sandbox to be made, and what goes in and out of it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) computer: Computer,
    pub(crate) copy_in: Vec<CopyPair>,
    pub(crate) copy_out: Vec<CopyPair>,
    pub(crate) timeout: Option<Duration>,
}

/// What to do about protection that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Weakness {
    /// Go on; the report says so.
    Reported,
    /// Make no use of the sandbox.
    Refused,
}

impl Request {
    /// Checks the arguments. `timeout` holds where the user gave none.
    pub(crate) fn check(args: SandboxArgs, timeout: Option<Duration>) -> anyhow::Result<Self> {
        let computer = Computer::check(args.computer, args.workdir)?;
        let spec = &computer.spec;
        let copy_in = args.copy_in.into_iter().map(|pair| source(pair, &spec.workdir));
        let copy_out = args.copy_out.into_iter().map(|pair| destination(pair, &spec.workdir));
        Ok(Self {
            copy_in: copy_in.collect::<Result<_, _>>()?,
            copy_out: copy_out.collect::<Result<_, _>>()?,
            timeout: args.timeout.map_or(timeout, |limit| limit.0),
            computer,
        })
    }
}

impl Computer {
    /// Checks the arguments.
    pub(crate) fn check(args: ComputerArgs, workdir: PathBuf) -> anyhow::Result<Self> {
        let spec = Spec {
            image: args.image,
            limits: Limits {
                memory: args.memory.0,
                cpus: args.cpus.0,
                pids: args.pids.0,
                disk: args.disk.0,
            },
            network: args.network,
            env: values(args.env)?,
            workdir,
        };
        spec.validate().map_err(sandbox::Error::from)?;
        let weakness = if args.strict { Weakness::Refused } else { Weakness::Reported };
        Ok(Self { runtime: args.runtime, spec, weakness })
    }

    /// Puts in the values of variables, which records do not hold.
    pub(crate) fn give_again(&mut self, env: Vec<Variable>) -> anyhow::Result<()> {
        let env = values(env)?;
        let given = |name: &String| env.iter().any(|(known, _)| known == name);
        let names = self.spec.env.iter().map(|(name, _)| name);
        let missing: Vec<_> = names.filter(|name| !given(name)).map(String::as_str).collect();
        if !missing.is_empty() {
            let text = format!(
                "the values of variables are not recorded; give them again: --env {}",
                missing.join(" --env ")
            );
            return Err(Usage(text).into());
        }
        self.spec.env = env;
        self.spec.validate().map_err(sandbox::Error::from)?;
        Ok(())
    }

    /// Refuses a sandbox that does not enforce what was asked for, if the user wants that.
    pub(crate) fn accept(&self, protection: &Protection) -> Result<(), sandbox::Error> {
        let weak = self.weak(protection);
        if self.weakness == Weakness::Reported || weak.is_empty() {
            return Ok(());
        }
        let why: Vec<_> =
            weak.iter().map(|layer| format!("{} ({})", layer.name, layer.detail)).collect();
        Err(sandbox::Error::Unsupported {
            what: "everything that was asked for".into(),
            why: format!("not fully enforced: {}", why.join(", ")),
            remedy: "see `llm-in-sandbox doctor`, or leave out --strict".into(),
        })
    }

    /// The layers that were asked for and do not hold. What a disk limit can do in part is enough.
    fn weak<'a>(&self, protection: &'a Protection) -> Vec<&'a Layer> {
        let limits = &self.spec.limits;
        let asked = |layer: &&Layer| match layer.name.as_str() {
            "memory limit" => limits.memory.is_some(),
            "cpu limit" => limits.cpus.is_some(),
            "process limit" => limits.pids.is_some(),
            "disk limit" => limits.disk.is_some() && layer.state != LayerState::Partial,
            "network" => self.spec.network != Network::Full,
            _ => true,
        };
        let weak = protection.layers.iter().filter(|layer| layer.state != LayerState::Enforced);
        weak.filter(asked).collect()
    }
}

/// Names and values of variables.
fn values(env: Vec<Variable>) -> Result<Vec<(String, String)>, Usage> {
    env.into_iter().map(value).collect()
}

fn value(variable: Variable) -> Result<(String, String), Usage> {
    match variable {
        Variable::Set(name, value) => Ok((name, value)),
        Variable::Copy(name) => {
            let value = environment::copied(&name)
                .ok_or_else(|| Usage(format!("--env {name}: not set here; write {name}=VALUE")))?;
            let value = value.into_string();
            let value =
                value.map_err(|_| Usage(format!("--env {name}: its value is not UTF-8")))?;
            Ok((name, value))
        }
    }
}

/// A tree to copy in: it must be there, and we must be allowed to read it.
fn source(pair: CopyPair, workdir: &Path) -> Result<CopyPair, Usage> {
    let CopyPair { host, inside } = pair;
    let readable = fs::metadata(&host).and_then(|meta| match meta.is_dir() {
        true => fs::read_dir(&host).map(drop),
        false => fs::File::open(&host).map(drop),
    });
    readable.map_err(|error| {
        Usage(format!("--copy-in: cannot read {}: {error}; check the path", host.display()))
    })?;
    let inside = workdir.join(into(inside, &host));
    Ok(CopyPair { host, inside })
}

fn destination(pair: CopyPair, workdir: &Path) -> Result<CopyPair, Usage> {
    let CopyPair { host, inside } = pair;
    let host = into(host, &inside);
    if host.file_name().is_none() {
        let text = format!("--copy-out: {} names no file; write a name after it", host.display());
        return Err(Usage(text));
    }
    Ok(CopyPair { host, inside: workdir.join(inside) })
}

/// A destination with a slash at its end, or none but dots, is a directory to put the source into.
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

    use super::*;
    use crate::args::{Cli, Command, SandboxCommand};

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
    fn defaults_hold_until_flags_speak() {
        let request = check(&[]).unwrap();
        assert_eq!(request.computer.spec, Spec::default());
        assert_eq!(request.timeout, Some(Duration::from_secs(120)));
        let request = check(&["--memory", "none", "--timeout", "none", "--env", "A=b"]).unwrap();
        assert_eq!((request.computer.spec.limits.memory, request.timeout), (None, None));
        assert_eq!(request.computer.spec.env, [("A".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn mistakes_are_found_before_anything_is_made() {
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
    fn copies_go_below_the_workdir_and_into_directories() {
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
    fn strictness_asks_only_for_what_was_asked_for() {
        let mut protection = Protection::new("x");
        protection.push("memory limit", LayerState::Missing, "");
        protection.push("disk limit", LayerState::Partial, "");
        protection.push("users", LayerState::Partial, "");
        protection.push("network", LayerState::Missing, "");
        protection.push("namespaces", LayerState::Enforced, "");
        let weak = |options: &[&str]| {
            let request = check(options).unwrap();
            let weak = request.computer.weak(&protection);
            weak.into_iter().map(|layer| layer.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(weak(&[]), ["memory limit", "users", "network"]);
        assert_eq!(weak(&["--memory", "none", "--network", "full"]), ["users"]);
    }
}
