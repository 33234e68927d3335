//! The command `export`: writes the weights of a run as files that other programs load.
//!
//! A target appears complete or not at all, and is never mixed with what was there before.

use std::{fs, io, path::Path};

use anyhow::Context;
use startup::{UsageError, note};
use vocabulary::Vocabulary;

use crate::args::ExportArgs;

/// Writes the requested formats.
pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    check_targets(args)?;
    let trained = training::trained_network(&args.run, args.step)?;
    let (net, model) = (&trained.net, &trained.model);
    if net.lora().is_none() && (args.adapter.is_some() || args.peft.is_some()) {
        let text = "this run trained all weights, so there is no adapter; use --to";
        return Err(UsageError(text.into()).into());
    }
    if let Some(dir) = &args.to {
        let vocabulary = Vocabulary::load(model)?;
        let write = |fresh: &Path| {
            net.save(fresh)?;
            vocabulary.save(fresh)?;
            Ok(())
        };
        write_atomic(dir, write)
            .with_context(|| format!("cannot write the model to {}", dir.display()))?;
        note(&format!("step {} as a model in {}", trained.step, dir.display()));
    }
    if let Some(path) = &args.adapter {
        let name = args.run.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| "adapter".into());
        write_atomic(path, |fresh| Ok(net.save_adapter_gguf(fresh, &name)?))
            .with_context(|| format!("cannot write the adapter to {}", path.display()))?;
        note(&format!("step {} as an adapter in {}", trained.step, path.display()));
    }
    if let Some(dir) = &args.peft {
        write_atomic(dir, |fresh| Ok(net.save_adapter(fresh, &model.to_string_lossy())?))
            .with_context(|| format!("cannot write the adapter to {}", dir.display()))?;
        note(&format!("step {} as an adapter in {}", trained.step, dir.display()));
    }
    Ok(())
}

/// Rejects targets that are in use.
fn check_targets(args: &ExportArgs) -> Result<(), UsageError> {
    for (option, dir) in [("--to", &args.to), ("--peft", &args.peft)] {
        if let Some(dir) = dir
            && !is_free(dir)
        {
            let dir = dir.display();
            return Err(UsageError(format!("{option} {dir}: the directory must be new or empty")));
        }
    }
    if args.to.is_some() && args.to == args.peft {
        return Err(UsageError("--to and --peft must be different directories".into()));
    }
    match &args.adapter {
        Some(path) if path.is_dir() => Err(UsageError(format!(
            "--adapter {}: this is a directory, not a file",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Whether the path is new or an empty directory. A link is neither.
fn is_free(dir: &Path) -> bool {
    let empty = || fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
    let free = match fs::symlink_metadata(dir) {
        Ok(found) => found.is_dir() && empty(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    free && dir.file_name().is_some()
}

/// Writes to a temporary path beside the target and renames it. On failure nothing is left.
fn write_atomic(
    target: &Path,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let partial = tempfile::Builder::new().prefix(".partial-").tempdir_in(parent)?;
    let complete = partial.path().join("complete");
    write(&complete)?;
    fs::rename(&complete, target)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_and_empty_directories_are_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("empty")).unwrap();
        fs::create_dir_all(path("full/inner")).unwrap();
        fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink(path("empty"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("nowhere"), path("dangling")).unwrap();
        for (name, free) in [
            ("empty", true),
            ("new", true),
            ("deep/new", true),
            ("full", false),
            ("file", false),
            ("file/below", false),
            ("link", false),
            ("dangling", false),
            ("empty/..", false),
        ] {
            assert_eq!(is_free(&path(name)), free, "{name}");
        }
    }

    #[test]
    fn a_failed_write_leaves_nothing_and_a_complete_one_only_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        let names = || -> Vec<_> {
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        let failed = write_atomic(&target, |fresh| {
            fs::create_dir(fresh)?;
            fs::write(fresh.join("half"), "x")?;
            anyhow::bail!("the disk is full")
        });
        assert!(failed.is_err());
        assert!(names().is_empty(), "{:?}", names());
        let write =
            |text: &'static str| write_atomic(&target, move |fresh| Ok(fs::write(fresh, text)?));
        write("one").unwrap();
        write("two").unwrap();
        assert_eq!((fs::read_to_string(&target).unwrap(), names().len()), ("two".into(), 1));
    }
}
