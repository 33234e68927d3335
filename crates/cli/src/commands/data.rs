//! `data …`: creates training tasks, from documents with questions or synthetic ones. The crate `curriculum` does the
//! work.

mod args;

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use curriculum::{
    Kind, Manifest, Placement, PrepareSettings, Progress as Step, SynthesizeSettings, prepare,
    synthesize,
};
use image::Progress;
use startup::Signals;

pub(crate) use self::args::DataCommand;
use self::args::DocumentsArg;
use crate::{
    console::{output, progress::ProgressView},
    exit::Exit,
};

/// Skipped rows that are shown one by one; the manifest lists more.
const MAX_SHOWN: usize = 5;

/// How long a cancelled command may take to clean up.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the tasks.
pub(crate) async fn run(command: DataCommand, signals: &mut Signals) -> Result<Exit> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let mut work = tokio::task::spawn_blocking(move || create(command, &flag));
    tokio::select! {
        done = &mut work => done?,
        exit = signals.cancelled() => {
            cancelled.store(true, Ordering::Relaxed);
            // The worker removes what it has written before it ends.
            let _ = tokio::time::timeout(CLEANUP_TIMEOUT, work).await;
            Ok(exit)
        }
    }
}

fn create(command: DataCommand, cancelled: &AtomicBool) -> Result<Exit> {
    let shown = ProgressView::on_stderr();
    let watch = |step| {
        match step {
            Step::Reading(total) => shown.items("reading", total),
            Step::Generating(total) => shown.items("generating", total),
            Step::Writing(total) => shown.items("writing", total),
            Step::Read(more) | Step::Generated(more) | Step::Wrote(more) => shown.advance(more),
        }
        match cancelled.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let (manifest, validation, output, json) = match command {
        DataCommand::Prepare(args) => {
            let settings = PrepareSettings {
                seed: args.seed,
                validation: args.validation,
                distractors: args.distractors,
                examples: args.examples,
                context: match args.documents {
                    DocumentsArg::Files => Placement::Files,
                    DocumentsArg::Prompt => Placement::Prompt,
                },
                limit: args.limit,
                licences: args.licence,
            };
            (
                prepare(&args.input, &settings, &args.output, &watch)?,
                args.validation,
                args.output,
                args.json,
            )
        }
        DataCommand::Synthesize(args) => {
            let settings = SynthesizeSettings {
                count: args.count,
                seed: args.seed,
                levels: args.levels.0,
                kinds: if args.kinds.is_empty() { Kind::ALL.to_vec() } else { args.kinds },
                validation: args.validation,
            };
            (synthesize(&settings, &args.output, &watch)?, args.validation, args.output, args.json)
        }
    };
    shown.clear();
    report_skipped(&manifest, validation);
    match json {
        true => output::print_json(&manifest)?,
        false => output::print(&table(&manifest))?,
    }
    output::note(&format!("wrote {}", output.display()));
    Ok(Exit::Done)
}

/// Reports skipped rows, and a validation set that is empty although a share of the rows was requested for it.
fn report_skipped(manifest: &Manifest, validation: f64) {
    if !manifest.left_out.is_empty() {
        output::note(&format!("skipped: {}", manifest.losses()));
    }
    for left in manifest.left_out_first.iter().take(MAX_SHOWN) {
        output::note(&format!("{}, line {}: {}", left.file, left.line, left.why));
    }
    if validation > 0.0 && manifest.counts.validation == 0 {
        output::note("the validation set is empty: there are too few independent documents");
    }
}

fn table(manifest: &Manifest) -> String {
    let counts = &manifest.counts;
    let mut rows = vec![vec!["SUBJECT".to_owned(), "ROWS".to_owned()]];
    rows.extend(counts.subjects.iter().map(|(name, many)| vec![name.clone(), many.to_string()]));
    for (name, many) in [
        ("training", counts.train),
        ("validation", counts.validation),
        ("with a demonstration", counts.demonstrated),
    ] {
        rows.push(vec![name.to_owned(), many.to_string()]);
    }
    output::table(&rows)
}
