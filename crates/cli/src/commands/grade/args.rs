//! The arguments of `grade`.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use grade::lines::Kind;

/// Options of `grade`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox grade math --input answers.jsonl > grades.jsonl
  echo '{\"id\": 1, \"gold\": \"3/4\", \"pred\": \"\\\\boxed{0.75}\"}' \\
      | llm-in-sandbox grade math --input -
  llm-in-sandbox grade ifbench --input responses.jsonl \\
      | jq -c 'select(.loose | not)'

Fields of a line, by kind; an `id` is copied to the grade:
  math           gold, pred -> score
  choice         agent_answer, ground_truth -> score
  ifbench        instruction_id, kwargs, response -> strict, loose, loose8
  rouge          reference, prediction -> fmeasure
  context        domain, qa_type, ground_truth, agent_answer -> score
  judge-verdict  response -> verdict

For a line that cannot be graded, {\"line\": N, \"id\": ..., \"error\": ...} is
printed. The others are graded, and the exit code is 2.")]
pub(crate) struct GradeArgs {
    /// Kind of grader
    #[arg(value_parser = kinds())]
    pub(crate) kind: Kind,
    /// Answers, one JSON object per line; `-` reads standard input
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) input: PathBuf,
    /// Print only the grades and errors, without the summary
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name)).try_map(|name| name.parse::<Kind>())
}
