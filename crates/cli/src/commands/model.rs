//! `model …`: the store of local models, and serving one of them.

mod args;
mod serve;

use std::path::{Path, PathBuf};

use anyhow::Context;
use catalogue::{Listed, Origin, Pulled, State, Store};
use indicatif::HumanBytes;
use serde::Serialize;
use startup::Signals;

pub(crate) use self::args::ModelCommand;
use crate::{console::output, exit::Exit, model::store, settings::Settings};

/// Runs the command.
pub(crate) async fn run(
    command: ModelCommand,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    match command {
        ModelCommand::List { json } => {
            let store = store::open(settings.home()?)?;
            let listed = store.list()?;
            match json {
                true => output::print_json(&listed.iter().map(describe).collect::<Vec<_>>())?,
                false => output::print(&table(&listed))?,
            }
        }
        ModelCommand::Pull { name, from, json } => {
            let store = store::open(settings.writable_home()?)?;
            let pulled = tokio::select! {
                pulled = store::pull(&store, &name, from.map(Into::into)) => pulled?,
                exit = signals.cancelled() => {
                    output::note(&format!(
                        "cancelled; the same command resumes the download, `llm-in-sandbox model rm {name}` removes it"
                    ));
                    return Ok(exit);
                }
            };
            match json {
                true => output::print_json(&got(&store, &name, &pulled))?,
                false => {
                    if pulled.origin == Origin::AlreadyStored {
                        output::note(&format!("{name} is stored already"));
                    }
                    output::print(&pulled.path.to_string_lossy())?;
                }
            }
        }
        ModelCommand::Serve(args) => return serve::run(args, settings, signals).await,
        ModelCommand::Rm { name } => {
            let store = store::open(settings.home()?)?;
            let removed = tokio::task::spawn_blocking(move || store.remove(&name).map(|()| name));
            let name = removed.await.context("removing the model failed")??;
            output::note(&format!("removed {name}"));
        }
    }
    Ok(Exit::Done)
}

fn got<'a>(store: &Store, name: &'a str, pulled: &'a Pulled) -> Got<'a> {
    let model = store.catalogue().get(name);
    Got {
        name,
        path: &pulled.path,
        size: model.map(|model| model.size),
        sha256: model.map(|model| model.sha256.to_string()),
        origin: match pulled.origin {
            Origin::AlreadyStored => "here".to_owned(),
            Origin::Source(kind) => kind.to_string(),
        },
    }
}

/// A pulled model as JSON shows it.
#[derive(Serialize)]
struct Got<'a> {
    name: &'a str,
    path: &'a Path,
    size: Option<u64>,
    sha256: Option<String>,
    origin: String,
}

/// A listed model as JSON shows it.
#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    default: bool,
    size: u64,
    sha256: String,
    licence: &'a str,
    description: &'a str,
    state: &'static str,
    have: u64,
    path: Option<PathBuf>,
    /// The adapter it is used with by default.
    adapter: Option<DescribedAdapter<'a>>,
}

/// The adapter of a listed model as JSON shows it.
#[derive(Serialize)]
struct DescribedAdapter<'a> {
    name: &'a str,
    size: u64,
    sha256: String,
    licence: &'a str,
    origin: &'a str,
    /// Whether this program contains it; one that was built without local models has none.
    included: bool,
}

fn describe<'a>(listed: &Listed<'a>) -> Described<'a> {
    let model = listed.model;
    let (state, have, path) = match &listed.state {
        State::Absent => ("absent", 0, None),
        State::Partial { have } => ("partial", *have, None),
        State::Present { path } => ("present", model.size, Some(path.clone())),
        State::Damaged { path } => ("damaged", 0, Some(path.clone())),
    };
    Described {
        name: &model.name,
        default: model.default,
        size: model.size,
        sha256: model.sha256.to_string(),
        licence: &model.licence,
        description: &model.description,
        state,
        have,
        path,
        adapter: model.adapter.as_ref().map(|adapter| DescribedAdapter {
            name: &adapter.name,
            size: adapter.size,
            sha256: adapter.sha256.to_string(),
            licence: &adapter.licence,
            origin: &adapter.origin,
            included: store::includes_adapter(&adapter.name),
        }),
    }
}

fn table(listed: &[Listed<'_>]) -> String {
    let heading = ["NAME", "SIZE", "STATE", "LICENCE", "ABOUT"].map(str::to_owned).to_vec();
    let rows = |listed: &Listed<'_>| {
        let model = describe(listed);
        let state = match &listed.state {
            State::Partial { have } => format!("partial, {}%", have * 100 / model.size),
            _ => model.state.to_owned(),
        };
        let default = if model.default { " (default)" } else { "" };
        let row = vec![
            format!("{}{default}", model.name),
            HumanBytes(model.size).to_string(),
            state,
            model.licence.to_owned(),
            model.description.to_owned(),
        ];
        let adapter = model.adapter.map(|adapter| {
            vec![
                format!("  adapter {}", adapter.name),
                HumanBytes(adapter.size).to_string(),
                if adapter.included { "included" } else { "not included" }.to_owned(),
                adapter.licence.to_owned(),
                adapter.origin.to_owned(),
            ]
        });
        [Some(row), adapter].into_iter().flatten().collect::<Vec<_>>()
    };
    output::table(&[vec![heading], listed.iter().flat_map(rows).collect()].concat())
}
