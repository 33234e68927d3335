//! The built-in tasks: the benchmarks and the training data of the paper.

use agent::Prompts;

use crate::{Grader, PlainPrompt, Task, hub::Source};

/// The turn limit of an episode.
const TURNS: u32 = 100;
/// The token limit of an episode.
const TOKENS: u64 = 65_536;
/// The data sets of the paper, for evaluation and for training.
const EVALUATION: &str = "daixuancheng/llm-in-sandbox-bench";
const TRAINING: &str = "daixuancheng/llm-in-sandbox-rl";

pub(super) fn task(name: &str) -> Option<Task> {
    let (grader, plain_prompt, known_as): (_, _, &[&str]) = match name {
        "math" => (Grader::Math, PlainPrompt::Boxed, &["AIME 2025", "AIME2025", "AIME25"]),
        "physics" => (Grader::Judge, PlainPrompt::Statement, &["UGPhysics"]),
        "chem" => (Grader::Choice, PlainPrompt::Statement, &["ChemBench4K", "ChemBench"]),
        "biomed" => (Grader::Choice, PlainPrompt::Statement, &["MedXpertQA"]),
        "long_context" => (Grader::Judge, PlainPrompt::Statement, &["AA-LCR"]),
        "instruct_follow" => (Grader::Ifbench, PlainPrompt::Statement, &["IFBench"]),
        "instruct_pretrain" => (Grader::Context, PlainPrompt::Brief, &["llm-in-sandbox-rl"]),
        "swe" => (Grader::Tests, PlainPrompt::Diff, &["SWE-bench", "SWE-bench_Verified"]),
        _ => return None,
    };
    let own = ["llm-in-sandbox-bench"]
        .into_iter()
        .filter(|_| !matches!(name, "swe" | "instruct_pretrain"));
    Some(Task {
        name: name.to_owned(),
        grader,
        turns: TURNS,
        tokens: if name == "long_context" { 2 * TOKENS } else { TOKENS },
        known_as: known_as.iter().copied().chain(own).map(str::to_owned).collect(),
        prompts: prompts(name)?,
        plain_prompt,
        answer_marker: None,
        data: None,
        hub: Some(source(name)),
        image: None,
        notes: Vec::new(),
    })
}

fn prompts(name: &str) -> Option<Prompts> {
    match name {
        "instruct_pretrain" => {
            Prompts::parse(include_str!("../../prompts/instruct_pretrain.yaml")).ok()
        }
        name => Prompts::builtin(name),
    }
}

fn source(name: &str) -> Source {
    let (dataset, config, split) = match name {
        "swe" => ("SWE-bench/SWE-bench_Verified", "default", "test"),
        "instruct_pretrain" => (TRAINING, name, "train"),
        name => (EVALUATION, name, "test"),
    };
    Source { dataset: dataset.into(), config: config.into(), split: split.into() }
}
