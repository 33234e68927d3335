//! `data`: tasks to train on, from documents with questions or made up.
//!
//! What a row is, and how it comes about, is the crate `curriculum`'s business; here are flags, progress and words.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use curriculum::{
    Kind, Level, Manifest, Placement, PrepareSettings, Step, SynthesizeSettings, prepare,
    synthesize,
};
use image::Progress;

use crate::{exit::Exit, interrupt::Interrupts, output, progress::Shown};

/// So many things that were left out are named on the terminal; the manifest names more.
const NAMED: usize = 5;

/// How long a cancelled command may take to clear up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to make.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Make tasks from documents with questions
    #[command(after_help = "Examples:
  llm-in-sandbox data prepare --input squad.json --output tasks/squad --licence 'CC BY-SA 4.0'
  llm-in-sandbox data prepare --input stories.jsonl quiz.jsonl --output tasks/mixed --distractors 5 --seed 7
  llm-in-sandbox data prepare --input stories.jsonl --output tasks/prompt --context prompt --limit 500
  llm-in-sandbox benchmark tasks/squad --model NAME

Writes train.jsonl, validation.jsonl, task.toml and manifest.json. The same inputs and seed give the same
files, byte by byte. What cannot be used is counted and named in the manifest. docs/data.md describes the inputs.")]
    Prepare(PrepareArgs),
    /// Make up tasks over files, with their answers computed
    #[command(after_help = "Examples:
  llm-in-sandbox data synthesize --output tasks/synthetic --count 2000 --seed 1
  llm-in-sandbox data synthesize --output tasks/easy --count 500 --levels 1..2 --kinds find,count,sum
  llm-in-sandbox benchmark tasks/easy --model NAME --limit 50

Kinds: find, count, sum, join, extreme, rank, average, distinct, frequent, follow, dates, compare, json, tree,
units, prose, ledger, pattern. Each row holds a demonstration: the shell commands that solve it.")]
    Synthesize(SynthesizeArgs),
}

/// Options of `data prepare`.
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// Files with contexts and questions: .jsonl or .json
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    input: Vec<PathBuf>,
    /// The folder to make
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Decides about everything that is chosen
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The share of questions kept for validation, in whole documents
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, allow_negative_numbers = true)]
    validation: f64,
    /// Documents of other contexts that join a single one
    #[arg(long, value_name = "N", default_value_t = 3)]
    distractors: usize,
    /// Earlier questions of the same context, with their answers, before the question
    #[arg(long, value_name = "N", default_value_t = 2)]
    examples: usize,
    /// Where contexts are put
    #[arg(long, value_name = "PLACE", value_enum, default_value_t = PlacementArg::Files)]
    context: PlacementArg,
    /// The most rows, chosen by the seed [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The licence of the inputs, for the manifest. May be repeated
    #[arg(long, value_name = "NAME")]
    licence: Vec<String>,
    /// Print the manifest as one JSON object
    #[arg(long)]
    json: bool,
}

/// Where contexts are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlacementArg {
    /// Into files in the sandbox
    Files,
    /// Into the statement
    Prompt,
}

/// Options of `data synthesize`.
#[derive(Debug, Args)]
pub(crate) struct SynthesizeArgs {
    /// The folder to make
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// How many tasks
    #[arg(long, value_name = "N")]
    count: usize,
    /// Decides about everything
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How hard, from 1 to 5: 3, 1..5 or 1,3
    #[arg(long, value_name = "LEVELS", default_value = "1..5", value_parser = levels)]
    levels: Levels,
    /// Which kinds, with commas between them [default: all]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// The share of tasks kept for validation
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, allow_negative_numbers = true)]
    validation: f64,
    /// Print the manifest as one JSON object
    #[arg(long)]
    json: bool,
}

/// Some levels, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Levels(Vec<Level>);

fn levels(text: &str) -> Result<Levels, String> {
    let refuse = || format!("`{text}` are no levels; write 3, 1..5 or 1,3, from 1 to 5");
    let number =
        |text: &str| text.trim().parse::<u8>().ok().and_then(Level::new).ok_or_else(refuse);
    let mut found = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
        if first > last {
            return Err(refuse());
        }
        found.extend(Level::ALL.into_iter().filter(|level| (first..=last).contains(level)));
    }
    found.sort_unstable();
    found.dedup();
    Ok(Levels(found))
}

/// Does what was asked for.
pub(crate) async fn run(command: DataCommand, interrupts: &mut Interrupts) -> Result<Exit> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let mut work = tokio::task::spawn_blocking(move || carry_out(command, &flag));
    tokio::select! {
        done = &mut work => done?,
        exit = interrupts.cancelled() => {
            cancelled.store(true, Ordering::Relaxed);
            // It removes what it has written before it ends.
            let _ = tokio::time::timeout(PATIENCE, work).await;
            Ok(exit)
        }
    }
}

fn carry_out(command: DataCommand, cancelled: &AtomicBool) -> Result<Exit> {
    let shown = Shown::on_stderr();
    let watch = |step| {
        match step {
            Step::Reading(total) => shown.things("reading", total),
            Step::Making(total) => shown.things("making", total),
            Step::Writing(total) => shown.things("writing", total),
            Step::Read(more) | Step::Made(more) | Step::Wrote(more) => shown.advance(more),
        }
        match cancelled.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let (manifest, output, json) = match command {
        DataCommand::Prepare(args) => {
            let settings = PrepareSettings {
                seed: args.seed,
                validation: args.validation,
                distractors: args.distractors,
                examples: args.examples,
                context: match args.context {
                    PlacementArg::Files => Placement::Files,
                    PlacementArg::Prompt => Placement::Prompt,
                },
                limit: args.limit,
                licences: args.licence,
            };
            (prepare(&args.input, &settings, &args.output, &watch)?, args.output, args.json)
        }
        DataCommand::Synthesize(args) => {
            let settings = SynthesizeSettings {
                count: args.count,
                seed: args.seed,
                levels: args.levels.0,
                kinds: if args.kinds.is_empty() { Kind::ALL.to_vec() } else { args.kinds },
                validation: args.validation,
            };
            (synthesize(&settings, &args.output, &watch)?, args.output, args.json)
        }
    };
    shown.clear();
    tell(&manifest);
    match json {
        true => output::print_json(&manifest)?,
        false => output::print(&table(&manifest))?,
    }
    output::note(&format!("wrote {}", output.display()));
    Ok(Exit::Done)
}

/// What was left out, and why there is nothing to validate with.
fn tell(manifest: &Manifest) {
    if !manifest.left_out.is_empty() {
        output::note(&format!("left out: {}", manifest.losses()));
    }
    for left in manifest.left_out_first.iter().take(NAMED) {
        output::note(&format!("{}, line {}: {}", left.file, left.line, left.why));
    }
    let wanted = manifest.settings["validation"].as_f64().is_some_and(|share| share > 0.0);
    if wanted && manifest.counts.validation == 0 {
        output::note(
            "nothing is left to validate with: there are too few documents that share nothing",
        );
    }
}

fn table(manifest: &Manifest) -> String {
    let counts = &manifest.counts;
    let mut rows = vec![vec!["SUBJECT".to_owned(), "ROWS".to_owned()]];
    rows.extend(counts.subjects.iter().map(|(name, many)| vec![name.clone(), many.to_string()]));
    for (name, many) in [
        ("to train on", counts.train),
        ("to validate with", counts.validation),
        ("with a demonstration", counts.demonstrated),
    ] {
        rows.push(vec![name.to_owned(), many.to_string()]);
    }
    output::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_written_in_several_ways() {
        let numbers = |text: &str| {
            levels(text).map(|Levels(all)| all.into_iter().map(Level::number).collect::<Vec<_>>())
        };
        assert_eq!(numbers("1..5"), Ok(vec![1, 2, 3, 4, 5]));
        assert_eq!(numbers("1..=2"), Ok(vec![1, 2]));
        assert_eq!(numbers("4, 2"), Ok(vec![2, 4]));
        assert_eq!(numbers("1..2,2..3"), Ok(vec![1, 2, 3]));
        for bad in ["", "0", "6", "5..1", "1..6", "x", "1..2..3"] {
            assert!(numbers(bad).unwrap_err().contains("from 1 to 5"), "{bad}");
        }
    }

    #[test]
    fn the_help_knows_every_kind() {
        use clap::CommandFactory;
        let command = crate::args::Cli::command();
        let synthesize = command
            .find_subcommand("data")
            .and_then(|data| data.find_subcommand("synthesize"))
            .unwrap();
        let help = synthesize.get_after_help().unwrap().to_string();
        for kind in Kind::ALL {
            assert!(help.contains(kind.name()), "{kind}");
        }
    }
}
