//! Settings of a sandbox, checked before anything is created.

use std::{
    fs,
    path::{Path, PathBuf},
};

use indicatif::HumanBytes;
use sandbox::{Layer, LayerReport, LayerState, Limits, Network, Protection, Spec};
use serde::{Deserialize, Serialize};

use super::environment;
use crate::{
    args::{
        sandbox::{RuntimeKind, SandboxArgs},
        values::Variable,
    },
    exit::UsageError,
};

/// A sandbox to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SandboxSettings {
    pub(crate) runtime: RuntimeKind,
    pub(crate) spec: Spec,
    pub(crate) weakness: Weakness,
}

/// What to do if a requested protection is not fully enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Weakness {
    /// Report it.
    Reported,
    /// Fail.
    Refused,
}

impl SandboxSettings {
    /// Checks the arguments.
    pub(crate) fn check(args: SandboxArgs, workdir: PathBuf) -> anyhow::Result<Self> {
        let spec = Spec {
            image: args.image,
            limits: Limits {
                memory: args.memory.0,
                cpus: args.cpus.0,
                pids: args.pids.0,
                disk: args.disk.0,
            },
            disk_quota: args.disk_quota,
            disk_reserve: args.disk_reserve.0,
            network: args.network,
            env: values(args.env)?,
            workdir,
            stall_timeout: args.stall_timeout,
        };
        spec.validate().map_err(sandbox::Error::from)?;
        let weakness = if args.strict { Weakness::Refused } else { Weakness::Reported };
        Ok(Self { runtime: args.runtime, spec, weakness })
    }

    /// Sets the values of variables, which are not recorded. Fails if one is missing.
    pub(crate) fn restore_env(&mut self, env: Vec<Variable>) -> anyhow::Result<()> {
        let env = values(env)?;
        let given = |name: &String| env.iter().any(|(known, _)| known == name);
        let names = self.spec.env.iter().map(|(name, _)| name);
        let missing: Vec<_> = names.filter(|name| !given(name)).map(String::as_str).collect();
        if !missing.is_empty() {
            let text = format!(
                "the values of variables are not recorded; repeat them: --env {}",
                missing.join(" --env ")
            );
            return Err(UsageError(text).into());
        }
        self.spec.env = env;
        self.spec.validate().map_err(sandbox::Error::from)?;
        Ok(())
    }

    /// Rejects files to copy in that are larger than the disk limit, before anything is created. `option` names them.
    pub(crate) fn check_size<'a>(
        &self,
        option: &str,
        paths: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), UsageError> {
        // A Docker daemon may not be able to limit the disk.
        let (RuntimeKind::Native, Some(limit)) = (self.runtime, self.spec.limits.disk) else {
            return Ok(());
        };
        let size = paths.into_iter().map(size_of).fold(0, u64::saturating_add);
        if size <= limit.bytes() {
            return Ok(());
        }
        let size = HumanBytes(size);
        Err(UsageError(format!(
            "{option}: the files have {size}, more than the sandbox's disk limit of {limit}; allow more with --disk"
        )))
    }

    /// Rejects a sandbox that does not fully enforce the requested protections, with `--strict`.
    pub(crate) fn accept(&self, protection: &Protection) -> Result<(), sandbox::Error> {
        let weak = self.weak(protection);
        if self.weakness == Weakness::Reported || weak.is_empty() {
            return Ok(());
        }
        let why: Vec<_> =
            weak.iter().map(|layer| format!("{} ({})", layer.layer, layer.detail)).collect();
        Err(sandbox::Error::Unsupported {
            feature: sandbox::Feature::FullProtection,
            reason: format!("not fully enforced: {}", why.join(", ")),
            remedy: "some layers are missing on this machine".into(),
        })
    }

    /// A line about requested protections that are not fully enforced on this machine, if there are any.
    pub(crate) fn weakness_line(&self, protection: &Protection) -> Option<String> {
        let weak = self.weak(protection);
        let names: Vec<_> = weak.iter().map(|layer| layer.layer.label()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "not fully enforced on this machine: {}; see `llm-in-sandbox doctor`, or refuse to run so with --strict",
                names.join(", ")
            )
        })
    }

    /// The requested layers that are not fully enforced. A partial disk limit is accepted.
    pub(crate) fn weak<'a>(&self, protection: &'a Protection) -> Vec<&'a LayerReport> {
        let limits = &self.spec.limits;
        let requested = |layer: &&LayerReport| match layer.layer {
            Layer::MemoryLimit => limits.memory.is_some(),
            Layer::CpuLimit => limits.cpus.is_some(),
            Layer::ProcessLimit => limits.pids.is_some(),
            Layer::DiskLimit => limits.disk.is_some() && layer.state != LayerState::Partial,
            Layer::Network => self.spec.network != Network::Full,
            // No command of the program pauses a sandbox for long.
            Layer::Pause => false,
            _ => true,
        };
        let weak = protection.layers.iter().filter(|layer| layer.state != LayerState::Enforced);
        weak.filter(requested).collect()
    }
}

/// The bytes in a file or in all files of a tree, without following links in it. What cannot be read counts as nothing:
/// copying it reports the error.
fn size_of(path: &Path) -> u64 {
    let mut total = 0_u64;
    let top = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut open = vec![top];
    while let Some(path) = open.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        } else if metadata.is_file() {
            total = total.saturating_add(metadata.len());
        }
    }
    total
}

/// Resolves the values of variables.
pub(crate) fn values(env: Vec<Variable>) -> Result<Vec<(String, String)>, UsageError> {
    env.into_iter().map(value).collect()
}

fn value(variable: Variable) -> Result<(String, String), UsageError> {
    match variable {
        Variable::Set(name, value) => Ok((name, value)),
        Variable::Copy(name) => {
            let value = environment::copied(&name).ok_or_else(|| {
                UsageError(format!("--env {name}: not set in this environment; write {name}=VALUE"))
            })?;
            let value = value.into_string();
            let value =
                value.map_err(|_| UsageError(format!("--env {name}: its value is not UTF-8")))?;
            Ok((name, value))
        }
    }
}
