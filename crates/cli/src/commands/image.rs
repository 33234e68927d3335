//! `image …`: the image store of this machine.

mod args;

use std::{
    io::{self, Read},
    sync::Arc,
    time::UNIX_EPOCH,
};

use anyhow::Context;
use image::{Credentials, ImageInfo, Pruned, PullOptions, Recipe, Store, Transport};
use indicatif::HumanBytes;
use serde::Serialize;
use startup::Signals;

pub(crate) use self::args::ImageCommand;
use self::args::PullArgs;
use crate::{
    commands::sandbox::age,
    console::{output, progress::ProgressView},
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
        | ImageCommand::Import { json, .. }
        | ImageCommand::Build { json, .. }
        | ImageCommand::Prune { json } => Form::of(json),
        ImageCommand::Pull(args) => Form::of(&args.json),
        ImageCommand::Rm { .. } => Form::Text,
    };
    let home = match &command {
        ImageCommand::List { .. } => settings.home()?,
        _ => settings.writable_home()?,
    };
    let store = Store::open(home.join("images"))?;
    let builds = matches!(command, ImageCommand::Build { .. });
    let mut work = std::pin::pin!(execute(command, form, store));
    tokio::select! {
        done = &mut work => done.map(|()| Exit::Done),
        exit = signals.cancelled() => {
            if builds {
                // It cleans up when its programs end.
                startup::terminate_children();
                let _ = work.await;
                output::note("cancelled");
            } else {
                output::note("cancelled; `llm-in-sandbox image prune` removes the partial download");
            }
            Ok(exit)
        }
    }
}

async fn execute(command: ImageCommand, form: Form, store: Store) -> anyhow::Result<()> {
    match command {
        ImageCommand::List { .. } => list(&store.list()?, form),
        ImageCommand::Pull(args) => {
            let image = pull(&store, args).await?;
            added(&image, form)
        }
        ImageCommand::Import { source, name, .. } => {
            let kind = std::fs::metadata(&source).map_err(|error| {
                UsageError(format!("cannot import {}: {error}; check the path", source.display()))
            })?;
            let import = move |shown: &ProgressView| match kind.is_dir() {
                true => store.import_dir(&source, &name, shown),
                false => store.import_archive(&source, &name, shown),
            };
            added(&with_progress(import).await?, form)
        }
        ImageCommand::Build { name, .. } => {
            let build = move |shown: &ProgressView| store.build(&name, &Recipe::base(), shown);
            added(&with_progress(build).await?, form)
        }
        ImageCommand::Rm { name } => {
            blocking(move || store.remove(&name).map(|()| name)).await.map(|name| {
                output::note(&format!("removed {name}"));
            })
        }
        ImageCommand::Prune { .. } => {
            let pruned = blocking(move || store.prune()).await?;
            report_pruned(pruned, form)
        }
    }
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
            let heading = ["NAME", "ID", "SIZE", "LAYERS", "AGE"].map(str::to_owned).to_vec();
            let mut rows = vec![heading];
            rows.extend(images.iter().map(|image| {
                vec![
                    image.name.clone(),
                    short(&image.id.to_string()),
                    HumanBytes(image.size).to_string(),
                    image.layers.to_string(),
                    age(image.created),
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

fn report_pruned(pruned: Pruned, form: Form) -> anyhow::Result<()> {
    let Pruned { layers, downloads, workspaces, bytes, in_use } = pruned;
    match form {
        Form::Json => output::print_json(&serde_json::json!({
            "layers": layers, "downloads": downloads, "workspaces": workspaces, "bytes": bytes,
            "in_use": in_use,
        }))?,
        Form::Text => output::note(&format!(
            "removed {layers} layers, {downloads} downloads and {workspaces} interrupted jobs, {} in \
             total; {in_use} layers are in use",
            HumanBytes(bytes)
        )),
    }
    Ok(())
}
