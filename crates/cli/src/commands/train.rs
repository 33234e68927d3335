//! `train …`: plots training curves and compares validation results; everything that needs libtorch is handed over to the training program.
//!
//! The training program's arguments are its own business, `--help` included.

mod args;
mod compare;
mod episodes;

use std::{
    env, fs, iter,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use curves::{Summary, charts, html, read, short, summary, svg};
use serde::Serialize;
use startup::LogArgs;

pub(crate) use self::args::TrainCommand;
use self::args::{ForwardedArgs, PlotArgs};
use crate::{
    console::{output, sanitize},
    exit::{self, Exit, UsageError},
    settings::environment,
};

/// The training program.
const PROGRAM: &str = "llm-in-sandbox-train";

impl TrainCommand {
    /// Replaces this process by the training program, unless the command needs no libtorch: then it is returned.
    ///
    /// Signals, streams and the exit code belong to the other program from then on.
    pub(crate) fn hand_over(self, log: LogArgs) -> Result<Self> {
        let (name, ForwardedArgs { args }) = match self {
            Self::Plot(_) | Self::Compare(_) => return Ok(self),
            Self::Rl(args) => ("rl", args),
            Self::Sft(args) => ("sft", args),
            Self::Sample(args) => ("sample", args),
            Self::Export(args) => ("export", args),
            Self::Serve(args) => ("serve", args),
            Self::Perf(args) => ("perf", args),
        };
        let program = find_program()?;
        #[expect(clippy::disallowed_methods, reason = "the command line starts programs")]
        let error =
            std::process::Command::new(&program).args(log.to_args()).arg(name).args(args).exec();
        Err(anyhow::Error::new(error).context(format!("cannot start {}", program.display())))
    }
}

/// Runs `train plot` and `train compare`; the other commands have been handed over.
pub(crate) async fn run(command: TrainCommand) -> Result<Exit> {
    match command {
        TrainCommand::Plot(args) => tokio::task::spawn_blocking(move || plot(&args)).await?,
        TrainCommand::Compare(args) => {
            tokio::task::spawn_blocking(move || compare::run(&args)).await?
        }
        other => other.hand_over(LogArgs::default()).map(|_| Exit::Done),
    }
}

/// Finds the training program: beside this one, or in the PATH.
fn find_program() -> Result<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| own.canonicalize().ok());
    let beside = beside.as_deref().and_then(Path::parent).map(|dir| dir.join(PROGRAM));
    let found = beside
        .filter(|path| environment::is_program(path))
        .or_else(|| environment::program(PROGRAM));
    found.ok_or_else(|| {
        anyhow!(
            "training needs the program {PROGRAM}, which is neither beside this one nor in the PATH; in the source \
             tree, `cargo xtask install --train` builds it, with libtorch"
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
        let run = read(path).map_err(|error| UsageError(exit::describe(&error.into())))?;
        if run.bad_lines > 0 {
            output::note(&format!(
                "{}: {} lines are unreadable and were skipped",
                path.display(),
                run.bad_lines
            ));
        }
        runs.push(run);
    }
    let cannot = |what: &str, path: &Path| {
        format!("cannot {what} {}; choose another directory with --output", path.display())
    };
    fs::create_dir_all(&directory).with_context(|| cannot("create", &directory))?;
    let page = ("curves.html".to_owned(), html(&runs, args.smooth));
    let drawn = charts(&runs, args.smooth).into_iter().map(|chart| {
        let text = svg(&chart);
        (chart.file, text)
    });
    let mut files = Vec::new();
    for (file, text) in iter::once(page).chain(drawn) {
        let path = directory.join(&file);
        atomic_file::write(&path, &text).with_context(|| cannot("write", &path))?;
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

/// The directory for the files. A symbolic link in a run from elsewhere could point anywhere.
fn directory(args: &PlotArgs) -> Result<PathBuf> {
    let default = match (&args.output, &args.runs[..]) {
        (Some(directory), _) => return Ok(directory.clone()),
        (None, [run]) if run.is_dir() => run.join("curves"),
        (None, _) => PathBuf::from("curves"),
    };
    if default.is_symlink() {
        let why = format!(
            "{} is a symbolic link and not followed; choose another directory with --output",
            default.display()
        );
        return Err(UsageError(why).into());
    }
    Ok(default)
}

fn table(figures: &[Summary]) -> String {
    let heading =
        ["FIGURE", "RUN", "STEPS", "FIRST", "LAST", "LOWEST", "HIGHEST"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    rows.extend(figures.iter().map(|row| {
        let mut cells = vec![one_line(&row.metric), one_line(&row.run), row.steps[1].to_string()];
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
    use super::{args::smoothing, *};

    #[test]
    fn the_default_directory_is_not_a_link() {
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
        assert!(error.contains("is a symbolic link") && error.contains("--output"), "{error}");
        // A directory the user names is followed.
        assert_eq!(directory(&args(Some(usual.clone()))).unwrap(), usual);
    }
}
