//! `image …`: the image store of this machine.

mod args;
mod build;
pub(crate) mod deleter;
mod run_step;
mod sources;
mod step;

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
    time::UNIX_EPOCH,
};

use anyhow::Context;
use image::{Credentials, DirCheck, ImageInfo, Pruned, PullOptions, Removed, Store, Transport};
use indicatif::HumanBytes;
use serde::Serialize;
use startup::Signals;

pub(crate) use self::args::ImageCommand;
use self::{
    args::{ImportArgs, PullArgs},
    deleter::Deletion,
};
use crate::{
    commands::{run::owners, sandbox::age},
    console::{counted, output, progress::ProgressView},
    exit::{Exit, UsageError},
    settings::Settings,
};

/// How results are printed.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Json,
}

impl Form {
    fn of(json: &bool) -> Self {
        if *json { Self::Json } else { Self::Text }
    }
}

/// Runs the command.
pub(crate) async fn run(
    command: ImageCommand,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let form = match &command {
        ImageCommand::List { json }
        | ImageCommand::Rm { json, .. }
        | ImageCommand::Prune { json } => Form::of(json),
        ImageCommand::Import(args) => Form::of(&args.json),
        ImageCommand::Build(args) => Form::of(&args.json),
        ImageCommand::Pull(args) => Form::of(&args.json),
    };
    let home = settings.home()?;
    let store = match &command {
        ImageCommand::List { .. } => Store::open(home.join("images"))?,
        _ => settings.store()?,
    };
    if !matches!(command, ImageCommand::List { .. }) && store.has_abandoned_trash()? {
        deleter::start(&store);
    }
    let command = match command {
        ImageCommand::Build(args) => return build::run(args, store, settings, signals).await,
        command => command,
    };
    tokio::select! {
        done = execute(command, form, store, settings) => done.map(|()| Exit::Done),
        exit = signals.cancelled() => {
            output::note("cancelled; `llm-in-sandbox image prune` removes what is incomplete");
            Ok(exit)
        }
    }
}

async fn execute(
    command: ImageCommand,
    form: Form,
    store: Store,
    settings: &Settings,
) -> anyhow::Result<()> {
    match command {
        ImageCommand::List { .. } => list(&store.list()?, form),
        ImageCommand::Pull(args) => {
            let image = pull(&store, args).await?;
            added(&image, form)
        }
        ImageCommand::Import(args) => added(&import(store, args).await?, form),
        ImageCommand::Build(_) => Ok(()),
        ImageCommand::Rm { names, .. } => {
            let removed = blocking({
                let (store, names) = (store.clone(), names.clone());
                move || store.discard(&names)
            });
            let removed = removed.await?;
            let deletion = deleter::empty_trash(store).await?;
            report_removed(&names, removed, deletion, form)
        }
        ImageCommand::Prune { .. } => {
            let (moved, home) = (store.clone(), settings.home()?.to_owned());
            let (runs, pruned) = blocking(move || discard_unneeded(&moved, &home)).await?;
            prune_elsewhere(&store, settings).await?;
            let deletion = deleter::empty_trash(store).await?;
            report_pruned(&runs, pruned, deletion, form)
        }
    }
}

/// Removes unpacked layers that no image needs from directories that this machine used at another time.
#[cfg(target_os = "linux")]
async fn prune_elsewhere(store: &Store, settings: &Settings) -> anyhow::Result<()> {
    let others = settings.states()?.into_iter().filter(|state| settings.home().ok() != Some(state));
    let unpacked = others.map(|state| state.join(sandbox_native::UNPACKED));
    for unpacked in unpacked.filter(|dir| dir.is_dir()) {
        let store = store.clone().unpacking_in(unpacked);
        blocking(move || store.discard_unused()).await?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
async fn prune_elsewhere(_: &Store, _: &Settings) -> anyhow::Result<()> {
    Ok(())
}

/// Removes the images of runs whose directories are gone, then what no image uses. Returns the names of the images.
fn discard_unneeded(store: &Store, home: &Path) -> Result<(Vec<String>, Pruned), image::Error> {
    let images = store.list()?;
    let gone = owners::ownerless(home, images.iter().map(|image| image.name.as_str()));
    let removed = match gone.images.is_empty() {
        true => Removed::default(),
        false => store.discard(&gone.images)?,
    };
    gone.forget();
    let mut pruned = store.discard_unused()?;
    pruned.layers += removed.layers;
    pruned.bytes += removed.bytes;
    Ok((gone.images, pruned))
}

async fn import(store: Store, args: ImportArgs) -> anyhow::Result<ImageInfo> {
    let ImportArgs { source, name, force, .. } = args;
    let kind = std::fs::metadata(&source).map_err(|error| {
        UsageError(format!("cannot import {}: {error}; check the path", source.display()))
    })?;
    let check = if force { DirCheck::Any } else { DirCheck::RootFileSystem };
    let import = move |shown: &ProgressView| match kind.is_dir() {
        true => store.import_dir(&source, &name, check, shown),
        false => store.import_archive(&source, &name, shown),
    };
    with_progress(import).await
}

async fn pull(store: &Store, args: PullArgs) -> anyhow::Result<ImageInfo> {
    let credentials = match args.username {
        Some(username) => Some(Credentials { username, password: read_password()? }),
        None => None,
    };
    let transport = if args.insecure { Transport::Insecure } else { Transport::Secure };
    let options = PullOptions { transport, credentials, ..PullOptions::default() };
    let shown = ProgressView::on_stderr();
    Ok(store.pull(&args.reference, &options, &shown).await?)
}

fn read_password() -> anyhow::Result<String> {
    let mut text = String::new();
    let mut limited = io::stdin().lock().take(64 << 10);
    limited.read_to_string(&mut text).context("cannot read the password")?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(UsageError("--password-stdin: standard input is empty".into()).into()),
        password => Ok(password.to_owned()),
    }
}

/// Runs blocking work with a progress view, off the async threads.
async fn with_progress<T: Send + 'static>(
    work: impl FnOnce(&ProgressView) -> Result<T, image::Error> + Send + 'static,
) -> anyhow::Result<T> {
    let shown = Arc::new(ProgressView::on_stderr());
    let watcher = Arc::clone(&shown);
    let done = blocking(move || work(&watcher)).await;
    shown.clear();
    done
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, image::Error> + Send + 'static,
) -> anyhow::Result<T> {
    Ok(tokio::task::spawn_blocking(work).await.context("a worker thread failed")??)
}

/// An image as JSON shows it.
#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    id: String,
    size: u64,
    layers: usize,
    on_host: bool,
    from: Option<&'a str>,
    created: u64,
}

impl<'a> Described<'a> {
    fn new(image: &'a ImageInfo) -> Self {
        Self {
            name: &image.name,
            id: image.id.to_string(),
            size: image.size,
            layers: image.layers,
            on_host: image.on_host,
            from: image.from.as_deref(),
            created: image.created.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        }
    }
}

fn list(images: &[ImageInfo], form: Form) -> anyhow::Result<()> {
    match form {
        Form::Json => {
            output::print_json(&images.iter().map(Described::new).collect::<Vec<_>>())?;
        }
        Form::Text if images.is_empty() => output::note(
            "no images are stored; `host` is built in, get others with `image build`, `pull` or \
             `import`",
        ),
        Form::Text => {
            let heading = ["NAME", "ID", "SIZE", "LAYERS", "FROM", "CREATED"];
            let heading = heading.map(str::to_owned).to_vec();
            let mut rows = vec![heading];
            rows.extend(images.iter().map(|image| {
                vec![
                    image.name.clone(),
                    short(&image.id.to_string()),
                    HumanBytes(image.size).to_string(),
                    image.layers.to_string(),
                    image.from.clone().unwrap_or_else(|| "-".into()),
                    format!("{} ago", age(image.created)),
                ]
            }));
            output::print(&output::table(&rows))?;
        }
    }
    Ok(())
}

/// The first 12 digits of a digest.
fn short(id: &str) -> String {
    id.rsplit(':').next().unwrap_or(id).chars().take(12).collect()
}

fn added(image: &ImageInfo, form: Form) -> anyhow::Result<()> {
    match form {
        Form::Json => output::print_json(&Described::new(image))?,
        Form::Text => output::print(&image.name)?,
    }
    Ok(())
}

fn report_removed(
    names: &[String],
    removed: Removed,
    deletion: Deletion,
    form: Form,
) -> anyhow::Result<()> {
    let Removed { layers, bytes, in_use } = removed;
    match form {
        Form::Json => output::print_json(&serde_json::json!({
            "images": names, "layers": layers, "bytes": bytes, "in_use": in_use,
            "deleting": deletion == Deletion::Continues,
        }))?,
        Form::Text => {
            let (names, size) = (names.join(", "), HumanBytes(bytes));
            output::note(&match deletion {
                Deletion::Done => format!("removed {names}; {size} freed"),
                Deletion::Continues => {
                    format!("removed {names}; {size} are being deleted in the background")
                }
            });
            report_in_use(in_use);
        }
    }
    Ok(())
}

fn report_pruned(
    runs: &[String],
    pruned: Pruned,
    deletion: Deletion,
    form: Form,
) -> anyhow::Result<()> {
    let Pruned { layers, downloads, workspaces, bytes, in_use, kept } = pruned;
    match form {
        Form::Json => output::print_json(&serde_json::json!({
            "images": runs, "layers": layers, "downloads": downloads, "workspaces": workspaces,
            "bytes": bytes, "in_use": in_use, "kept": kept,
            "deleting": deletion == Deletion::Continues,
        }))?,
        Form::Text => {
            if !runs.is_empty() {
                let files = counted(runs.len(), "image");
                output::note(&format!(
                    "removed the saved files ({files}) of runs whose directories are gone: {}",
                    runs.join(", ")
                ));
            }
            output::note(&format!(
                "removed {}, {} and {}, {} in total; {} of images kept",
                counted(layers as usize, "layer"),
                counted(downloads as usize, "download"),
                counted(workspaces as usize, "interrupted job"),
                HumanBytes(bytes),
                counted(kept as usize, "layer"),
            ));
            if deletion == Deletion::Continues {
                output::note("the files are being deleted in the background");
            }
            report_in_use(in_use);
        }
    }
    Ok(())
}

/// Reports layers that cannot be removed yet.
fn report_in_use(count: u64) {
    if count > 0 {
        let layers = counted(count as usize, "unused layer");
        output::note(&format!(
            "{layers} stay until running sandboxes end; then `llm-in-sandbox image prune` removes them"
        ));
    }
}
