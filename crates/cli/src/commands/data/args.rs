//! The arguments of `data …`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use curriculum::{Kind, Level};

/// Subcommands of `data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Create tasks from documents with questions
    #[command(after_help = "Examples:
  llm-in-sandbox data prepare --input squad.json --output tasks/squad \\
      --licence 'CC BY-SA 4.0'
  llm-in-sandbox data prepare --input stories.jsonl quiz.jsonl \\
      --output tasks/mixed --distractors 5 --seed 7
  llm-in-sandbox data prepare --input stories.jsonl --output tasks/prompt \\
      --documents prompt --limit 500
  llm-in-sandbox benchmark tasks/squad --model NAME

Writes train.jsonl, validation.jsonl, task.toml and manifest.json. The same
inputs and seed give the same files, byte for byte. Unusable rows are counted
and listed in the manifest. docs/data.md describes the inputs.")]
    Prepare(PrepareArgs),
    /// Generate synthetic tasks over files, with computed answers
    #[command(after_help = "Examples:
  llm-in-sandbox data synthesize --output tasks/synthetic --count 2000 --seed 1
  llm-in-sandbox data synthesize --output tasks/easy --count 500 --levels 1..2 \\
      --kinds find,count,sum
  llm-in-sandbox benchmark tasks/easy --model NAME --limit 50

Kinds: find, count, sum, join, extreme, rank, average, distinct, frequent,
follow, dates, compare, json, tree, units, prose, ledger, pattern. Each row has
a demonstration: the shell commands that solve it.")]
    Synthesize(SynthesizeArgs),
}

/// Options of `data prepare`.
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// Files with contexts and questions, .jsonl or .json
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) input: Vec<PathBuf>,
    /// Task directory to create
    #[arg(long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Fraction of questions for validation, in whole documents
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1, allow_negative_numbers = true)]
    pub(crate) validation: f64,
    /// Documents of other contexts added to a single one
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) distractors: usize,
    /// Answered questions of the same context before the question
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) examples: usize,
    /// Where documents are given
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = DocumentsArg::Files, alias = "context")]
    pub(crate) documents: DocumentsArg,
    /// Maximum number of rows, chosen by the seed [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// License of the inputs, for the manifest; repeatable
    #[arg(long, value_name = "NAME", visible_alias = "license")]
    pub(crate) licence: Vec<String>,
    /// Print the manifest as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where documents are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentsArg {
    /// As files in the sandbox
    Files,
    /// In the prompt
    Prompt,
}

/// Options of `data synthesize`.
#[derive(Debug, Args)]
pub(crate) struct SynthesizeArgs {
    /// Task directory to create
    #[arg(long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Number of tasks
    #[arg(long, value_name = "N")]
    pub(crate) count: usize,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Difficulty levels from 1 to 5, such as 3, 1..5 or 1,3
    #[arg(long, value_name = "LEVELS", default_value = "1..5", value_parser = levels)]
    pub(crate) levels: Levels,
    /// Kinds of tasks, comma-separated [default: all]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub(crate) kinds: Vec<Kind>,
    /// Fraction of tasks for validation
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1, allow_negative_numbers = true)]
    pub(crate) validation: f64,
    /// Print the manifest as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Difficulty levels, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Levels(pub(crate) Vec<Level>);

fn levels(text: &str) -> Result<Levels, String> {
    let invalid = || format!("`{text}` is not a list of levels; write 3, 1..5 or 1,3, from 1 to 5");
    let number =
        |text: &str| text.trim().parse::<u8>().ok().and_then(Level::new).ok_or_else(invalid);
    let mut found = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
        if first > last {
            return Err(invalid());
        }
        found.extend(Level::ALL.into_iter().filter(|level| (first..=last).contains(level)));
    }
    found.sort_unstable();
    found.dedup();
    Ok(Levels(found))
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
        let command = crate::commands::Cli::command();
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
