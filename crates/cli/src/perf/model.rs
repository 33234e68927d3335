//! What a model in this process costs: tokens per second, beside a server of the same file, and how much
//! sooner a second turn begins because the first is remembered.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Args;
use model::{Delta, Endpoint, Listener, Model, OpenAi, Request, Sampling};
use serde::Serialize;
use trajectory::{Content, Message};

use super::figures::{Machine, round};
use crate::{
    agent_args::LocalArgs,
    exit::{Exit, Usage},
    local::{LocalPlan, ModelFile},
    output,
    settings::Settings,
};

/// Tokens written for each measurement, long enough for a steady pace.
const WRITTEN: u64 = 96;

/// Sentences of a prompt: about as long as the first prompt of an episode.
const SENTENCES: usize = 60;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct ModelPerfArgs {
    /// The model: local:NAME of `model list` or FILE.gguf [default: the default of `model list`]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// A server to compare with, which serves the same file with as many threads
    #[arg(long, value_name = "URL")]
    against: Option<String>,
    /// How often to measure each; the best of them counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    local: LocalArgs,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    machine: Machine,
    model: String,
    load_s: f64,
    here: Pace,
    server: Option<Pace>,
    /// Seconds until the first token of a second turn.
    second_turn: SecondTurn,
}

/// How fast a model is.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Pace {
    prompt_tokens: u64,
    prompt_tokens_per_second: f64,
    written_tokens_per_second: f64,
}

/// A second turn, as it is and as it would be if nothing were remembered.
#[derive(Clone, Copy, Debug, Serialize)]
struct SecondTurn {
    tokens: u64,
    remembered_s: f64,
    anew_s: f64,
}

/// Measures and prints.
pub(crate) async fn run(args: ModelPerfArgs, settings: &Settings) -> Result<Exit> {
    let file = match &args.model {
        None => {
            let (file, hint) = ModelFile::usual(settings)?;
            output::note(&hint);
            file
        }
        Some(name) => ModelFile::named(name).ok_or_else(|| {
            Usage(format!(
                "--model: {name} is no model in this process; write local:NAME or FILE.gguf"
            ))
        })?,
    };
    let began = Instant::now();
    let name = file.name();
    let plan = LocalPlan::new(file, args.local, std::num::NonZeroU32::MIN);
    let here = plan.load(settings).await?;
    let load_s = round(began.elapsed().as_secs_f64());
    let server = args.against.as_deref().map(|url| OpenAi::new(Endpoint::new(&name, url)));
    let server = server.transpose()?;

    // The first of everything pays for pages and caches the others find warm.
    ask(&here, &fresh("warm"), 8).await?;
    let (mut ours, mut theirs) = (Pace::default(), Pace::default());
    for round in 0..args.rounds.max(1) {
        // Taking turns, so that a noisy neighbour disturbs both.
        ours.best(ask(&here, &fresh(&format!("ours {round}")), WRITTEN).await?);
        if let Some(server) = &server {
            let asked = ask(server, &fresh(&format!("theirs {round}")), WRITTEN).await;
            theirs.best(asked.context("asking the server to compare with")?);
        }
    }
    let figures = Figures {
        machine: Machine::here(),
        model: name,
        load_s,
        here: ours,
        server: server.is_some().then_some(theirs),
        second_turn: second_turn(&here).await?,
    };
    match args.json {
        true => output::print_json(&figures)?,
        false => output::print(&render(&figures))?,
    }
    Ok(Exit::Done)
}

impl Pace {
    /// Keeps the better of two measurements: what disturbs one only ever makes it slower.
    fn best(&mut self, asked: Asked) {
        let read = asked.read as f64 / asked.first.as_secs_f64().max(1e-9);
        let written = asked.written.saturating_sub(1) as f64 / asked.rest.as_secs_f64().max(1e-9);
        self.prompt_tokens = asked.read;
        self.prompt_tokens_per_second = round(self.prompt_tokens_per_second.max(read));
        self.written_tokens_per_second = round(self.written_tokens_per_second.max(written));
    }
}

/// One reply, timed.
struct Asked {
    text: String,
    read: u64,
    written: u64,
    first: Duration,
    rest: Duration,
}

async fn ask<M: Model>(model: &M, messages: &[Message], most: u64) -> Result<Asked> {
    let sampling = Sampling { temperature: Some(0.0), ..Sampling::default() };
    let request = Request { messages, tools: &[], sampling: &sampling, max_tokens: most };
    let watch = FirstWord(Mutex::new(None));
    let began = Instant::now();
    let reply = model.complete(&request, &watch).await?;
    let ended = Instant::now();
    let first = watch.0.into_inner().ok().flatten().context("the model said nothing")?;
    Ok(Asked {
        text: reply.message.text,
        read: reply.usage.input.saturating_sub(reply.usage.cached),
        written: reply.usage.output,
        first: first - began,
        rest: ended - first,
    })
}

/// Notes when the first piece of a reply comes.
struct FirstWord(Mutex<Option<Instant>>);

impl Listener for FirstWord {
    fn hear(&self, _: Delta<'_>) {
        if let Ok(mut first) = self.0.lock() {
            first.get_or_insert_with(Instant::now);
        }
    }
}

async fn second_turn<M: Model>(model: &M) -> Result<SecondTurn> {
    let mut messages = fresh("one conversation");
    let reply = ask(model, &messages, 16).await?;
    messages.push(Message::Assistant(trajectory::Assistant {
        text: reply.text,
        ..trajectory::Assistant::default()
    }));
    messages.push(user("Go on.".into()));
    let remembered = ask(model, &messages, 4).await?;
    // The same conversation, but for its first words.
    if let (Some(first), Some(other)) = (messages.first_mut(), fresh("another talk").first()) {
        *first = other.clone();
    }
    let anew = ask(model, &messages, 4).await?;
    Ok(SecondTurn {
        tokens: anew.read,
        remembered_s: round(remembered.first.as_secs_f64()),
        anew_s: round(anew.first.as_secs_f64()),
    })
}

/// A conversation that begins like no other, so that nothing of it is remembered.
fn fresh(name: &str) -> Vec<Message> {
    let noise = format!("{name} {:x}", std::process::id());
    let sentences = (1..=SENTENCES).map(|n| format!("Line {n} says that box {} is blue.", n * 37));
    let text = format!("{noise}\n{}", sentences.collect::<Vec<_>>().join("\n"));
    vec![
        Message::System { text: format!("{noise}. You count patiently.") },
        user(format!("{text}\nCount from 1 to 500, one number a line, and write nothing else.")),
    ]
}

fn user(text: String) -> Message {
    Message::User { content: vec![Content::Text { text }] }
}

fn render(figures: &Figures) -> String {
    let Figures { machine, model, load_s, here, server, second_turn } = figures;
    let mut lines = vec![
        format!("{} cores, {:.1} GiB, {}", machine.cores, machine.memory_gib, machine.system),
        format!("{model}, loaded in {load_s:.2} s; a prompt of {} tokens", here.prompt_tokens),
    ];
    let row = |what: &str, here: f64, server: Option<f64>| match server {
        None => format!("{what:<26} {here:>8.1}"),
        Some(server) => {
            format!("{what:<26} {here:>8.1} {server:>8.1} {:>8.2}x", here / server.max(1e-9))
        }
    };
    if server.is_some() {
        lines.push(format!("{:<26} {:>8} {:>8} {:>9}", "", "here", "server", "ratio"));
    }
    lines.push(row(
        "prompt tokens per second",
        here.prompt_tokens_per_second,
        server.map(|pace| pace.prompt_tokens_per_second),
    ));
    lines.push(row(
        "written tokens per second",
        here.written_tokens_per_second,
        server.map(|pace| pace.written_tokens_per_second),
    ));
    lines.push(format!(
        "a second turn of {} tokens begins after {:.2} s; {:.2} s if nothing were remembered ({:.0}x)",
        second_turn.tokens,
        second_turn.remembered_s,
        second_turn.anew_s,
        second_turn.anew_s / second_turn.remembered_s.max(1e-9),
    ));
    lines.join("\n")
}
