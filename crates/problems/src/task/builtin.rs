//! The tasks that come with the program: the paper's benchmarks and its training data.

use agent::Prompts;

use crate::{Grader, PlainForm, Task, hub::Source};

/// The most turns of an episode.
const TURNS: u32 = 100;
/// The most tokens of an episode.
const TOKENS: u64 = 65_536;
/// The data sets of the paper, for measuring and for training.
const MEASURED: &str = "daixuancheng/llm-in-sandbox-bench";
const TRAINED: &str = "daixuancheng/llm-in-sandbox-rl";

pub(super) fn task(name: &str) -> Option<Task> {
    let (grader, plain_form, known_as): (_, _, &[&str]) = match name {
        "math" => (Grader::Math, PlainForm::Boxed, &["AIME 2025", "AIME2025", "AIME25"]),
        "physics" => (Grader::Judge, PlainForm::Statement, &["UGPhysics"]),
        "chem" => (Grader::Choice, PlainForm::Statement, &["ChemBench4K", "ChemBench"]),
        "biomed" => (Grader::Choice, PlainForm::Statement, &["MedXpertQA"]),
        "long_context" => (Grader::Judge, PlainForm::Statement, &["AA-LCR"]),
        "instruct_follow" => (Grader::Ifbench, PlainForm::Statement, &["IFBench"]),
        "instruct_pretrain" => (Grader::Context, PlainForm::Brief, &["llm-in-sandbox-rl"]),
        "swe" => (Grader::Tests, PlainForm::Diff, &["SWE-bench", "SWE-bench_Verified"]),
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
        plain_form,
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
        "instruct_pretrain" => (TRAINED, name, "train"),
        name => (MEASURED, name, "test"),
    };
    Source { dataset: dataset.into(), config: config.into(), split: split.into() }
}
