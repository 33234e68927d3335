//! `train`: curves of runs, and everything that needs libtorch handed over to the program that has it.
//!
//! Knows nothing of training. The other program's arguments are its own business, `--help` included.

use std::{
    env,
    ffi::OsString,
    fs, iter,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use curves::{Smoothing, Summary, charts, html, read, short, summary, svg};
use serde::Serialize;

use crate::{
    console::sanitize,
    environment,
    exit::{self, Exit, Usage},
    output,
};

/// The program that trains.
const PROGRAM: &str = "llm-in-sandbox-train";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum TrainCommand {
    /// Draw the curves of runs: reward, turns, response length, entropy, use of the computer
    #[command(after_help = "Examples:
  llm-in-sandbox train plot runs/first
  llm-in-sandbox train plot runs/first runs/second --output comparison
  llm-in-sandbox train plot runs/first --json | jq '.figures[] | select(.figure == \"reward_mean\")'

Writes curves.html (one page, opens without a network) and an SVG file for each figure. A run that is still under
way is drawn as far as it came.")]
    Plot(PlotArgs),
    /// Train a model by reinforcement learning in sandboxes
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train rl CONFIG.toml"
    )]
    Rl(PassedOn),
    /// Train a model on recorded episodes or demonstrations
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train sft CONFIG.toml"
    )]
    Sft(PassedOn),
    /// Write a trained model in formats that others read
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train export RUN --to DIR"
    )]
    Export(PassedOn),
    /// Measure training and generation
    #[command(
        disable_help_flag = true,
        after_help = "Example:
  llm-in-sandbox train perf --device cuda"
    )]
    Perf(PassedOn),
}

/// Options of `train plot`.
#[derive(Debug, Args)]
pub(crate) struct PlotArgs {
    /// Directories of runs, or their metrics.jsonl
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where the files go [default: RUN/curves, or `curves` here for several runs]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// How calm the lines are: from 0, as the numbers are, to below 1
    #[arg(long, value_name = "SHARE", default_value = "0.7", value_parser = smoothing)]
    smooth: Smoothing,
    /// Print what the figures come to as one JSON object
    #[arg(long)]
    json: bool,
}

fn smoothing(text: &str) -> Result<Smoothing, String> {
    let share = text.parse().ok().and_then(Smoothing::new);
    share.ok_or_else(|| format!("`{text}` is no share from 0 to below 1, such as 0.7"))
}

/// Arguments of the program that trains.
#[derive(Debug, Args)]
pub(crate) struct PassedOn {
    /// Passed on as they are; --help shows what there is
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Draws, or becomes the program that trains.
pub(crate) async fn run(command: TrainCommand) -> Result<Exit> {
    let (name, PassedOn { args }) = match command {
        TrainCommand::Plot(args) => {
            return tokio::task::spawn_blocking(move || plot(&args)).await?;
        }
        TrainCommand::Rl(passed) => ("rl", passed),
        TrainCommand::Sft(passed) => ("sft", passed),
        TrainCommand::Export(passed) => ("export", passed),
        TrainCommand::Perf(passed) => ("perf", passed),
    };
    let program = trainer()?;
    // Nothing of ours is under way: signals, streams and the exit code are the other program's from here on.
    #[expect(clippy::disallowed_methods, reason = "the command line starts programs")]
    let error = std::process::Command::new(&program).arg(name).args(args).exec();
    Err(anyhow::Error::new(error).context(format!("cannot start {}", program.display())))
}

/// The program that trains: beside this one, or wherever programs are.
fn trainer() -> Result<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| own.canonicalize().ok());
    let beside = beside.as_deref().and_then(Path::parent).map(|dir| dir.join(PROGRAM));
    let found = beside
        .filter(|path| environment::is_program(path))
        .or_else(|| environment::program(PROGRAM));
    found.ok_or_else(|| {
        anyhow!(
            "training is a program of its own, {PROGRAM}, which is neither beside this one nor in the PATH; in the \
             source tree `cargo xtask install --train` builds it, with the libtorch it needs"
        )
    })
}

/// What `train plot --json` prints.
#[derive(Serialize)]
struct Plotted {
    output: PathBuf,
    files: Vec<String>,
    figures: Vec<Summary>,
}

fn plot(args: &PlotArgs) -> Result<Exit> {
    let directory = directory(args)?;
    let mut runs = Vec::new();
    for path in &args.runs {
        let run = read(path).map_err(|error| Usage(exit::line(&error.into())))?;
        if run.bad_lines > 0 {
            output::note(&format!(
                "{}: {} lines cannot be read and are left out",
                path.display(),
                run.bad_lines
            ));
        }
        runs.push(run);
    }
    let cannot = |what: &str, path: &Path| {
        format!("cannot {what} {}; --output names another place", path.display())
    };
    fs::create_dir_all(&directory).with_context(|| cannot("make", &directory))?;
    let page = ("curves.html".to_owned(), html(&runs, args.smooth));
    let drawn = charts(&runs, args.smooth).into_iter().map(|chart| {
        let text = svg(&chart);
        (chart.file, text)
    });
    let mut files = Vec::new();
    for (file, text) in iter::once(page).chain(drawn) {
        let path = directory.join(&file);
        results::write_whole(&path, text.as_bytes()).with_context(|| cannot("write", &path))?;
        files.push(file);
    }
    let figures = summary(&runs);
    let many = files.len() - 1;
    match args.json {
        true => output::print_json(&Plotted { output: directory.clone(), files, figures })?,
        false => output::print(&table(&figures))?,
    }
    output::note(&format!("wrote curves.html and {many} SVG files to {}", directory.display()));
    Ok(Exit::Done)
}

/// Where the files go. A link that a run came with would lead them anywhere.
fn directory(args: &PlotArgs) -> Result<PathBuf> {
    let usual = match (&args.output, &args.runs[..]) {
        (Some(directory), _) => return Ok(directory.clone()),
        (None, [run]) if run.is_dir() => run.join("curves"),
        (None, _) => PathBuf::from("curves"),
    };
    if usual.is_symlink() {
        let place = usual.display();
        let why = format!("{place} is a link, and none is followed; --output names another place");
        return Err(Usage(why).into());
    }
    Ok(usual)
}

fn table(figures: &[Summary]) -> String {
    let heading =
        ["FIGURE", "RUN", "STEPS", "FIRST", "LAST", "LOWEST", "HIGHEST"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    rows.extend(figures.iter().map(|row| {
        let mut cells = vec![one_line(&row.figure), one_line(&row.run), row.steps[1].to_string()];
        cells.extend([row.first, row.last, row.lowest, row.highest].map(short));
        cells
    }));
    output::table(&rows)
}

fn one_line(text: &str) -> String {
    sanitize(text).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_place_is_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        let args = |output| PlotArgs {
            runs: vec![run.clone()],
            output,
            smooth: smoothing("0").unwrap(),
            json: false,
        };
        let usual = run.join("curves");
        assert_eq!(directory(&args(None)).unwrap(), usual);
        std::os::unix::fs::symlink(dir.path(), &usual).unwrap();
        let error = directory(&args(None)).unwrap_err().to_string();
        assert!(error.contains("is a link") && error.contains("--output"), "{error}");
        // Whoever names it means it.
        assert_eq!(directory(&args(Some(usual.clone()))).unwrap(), usual);
    }
}
