//! The command `export`: what a run has learnt, as files that other programs load.
//!
//! What is written appears in its place whole or not at all, and what was there before is never mixed with it.

use std::{fs, io, path::Path};

use anyhow::Context;
use vocabulary::Vocabulary;

use crate::{
    args::ExportArgs,
    exit::{Usage, note},
};

/// Writes what is asked for.
pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<()> {
    check_places(args)?;
    let trained = training::trained(&args.run, args.step)?;
    let (net, model) = (&trained.net, &trained.model);
    if net.lora().is_none() && (args.adapter.is_some() || args.peft.is_some()) {
        let text = "this run trained the weights themselves, so there is no adapter; use --to";
        return Err(Usage(text.into()).into());
    }
    if let Some(dir) = &args.to {
        let vocabulary = Vocabulary::load(model)?;
        let write = |fresh: &Path| {
            net.save(fresh)?;
            vocabulary.save(fresh)?;
            Ok(())
        };
        whole(dir, write)
            .with_context(|| format!("cannot write the model to {}", dir.display()))?;
        note(&format!("step {} as a model in {}", trained.step, dir.display()));
    }
    if let Some(path) = &args.adapter {
        let name = args.run.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| "adapter".into());
        whole(path, |fresh| Ok(net.save_adapter_gguf(fresh, &name)?))
            .with_context(|| format!("cannot write the adapter to {}", path.display()))?;
        note(&format!("step {} as an adapter in {}", trained.step, path.display()));
    }
    if let Some(dir) = &args.peft {
        whole(dir, |fresh| Ok(net.save_adapter(fresh, &model.to_string_lossy())?))
            .with_context(|| format!("cannot write the adapter to {}", dir.display()))?;
        note(&format!("step {} as an adapter in {}", trained.step, dir.display()));
    }
    Ok(())
}

/// Refuses places that somebody uses.
fn check_places(args: &ExportArgs) -> Result<(), Usage> {
    for (option, dir) in [("--to", &args.to), ("--peft", &args.peft)] {
        if let Some(dir) = dir
            && !is_free(dir)
        {
            let dir = dir.display();
            return Err(Usage(format!("{option} {dir}: name a directory that is new, or empty")));
        }
    }
    if args.to.is_some() && args.to == args.peft {
        return Err(Usage("--to and --peft have to name two directories".into()));
    }
    match &args.adapter {
        Some(path) if path.is_dir() => {
            Err(Usage(format!("--adapter {}: name a file, not a directory", path.display())))
        }
        _ => Ok(()),
    }
}

/// Whether a directory can be made here, or is here and empty. A link is neither.
fn is_free(dir: &Path) -> bool {
    let empty = || fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
    let free = match fs::symlink_metadata(dir) {
        Ok(found) => found.is_dir() && empty(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    free && dir.file_name().is_some()
}

/// Writes something beside its place and moves it there. Where that fails, nothing of it is left.
fn whole(place: &Path, write: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let beside = tempfile::Builder::new().prefix(".partial-").tempdir_in(parent)?;
    let fresh = beside.path().join("whole");
    write(&fresh)?;
    fs::rename(&fresh, place)?;
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
    fn what_fails_leaves_nothing_and_what_works_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        let names = || -> Vec<_> {
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        let failed = whole(&place, |fresh| {
            fs::create_dir(fresh)?;
            fs::write(fresh.join("half"), "x")?;
            anyhow::bail!("the disk is full")
        });
        assert!(failed.is_err());
        assert!(names().is_empty(), "{:?}", names());
        let write = |text: &'static str| whole(&place, move |fresh| Ok(fs::write(fresh, text)?));
        write("one").unwrap();
        write("two").unwrap();
        assert_eq!((fs::read_to_string(&place).unwrap(), names().len()), ("two".into(), 1));
    }
}
