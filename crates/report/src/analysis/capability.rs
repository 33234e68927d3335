//! Classifies turns by the capabilities they use: external resources, files, computation.
//!
//! Two classifications: by the paper's patterns anywhere in what a turn writes, and by what its commands and programs
//! would do. `docs/analyses.md` defines both.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::{
    command::{Command, Input, is_python},
    network::wanted,
    patterns::{
        CALCULATING, CALCULATORS, FETCHING, FILES, FILTERS, FINDERS, INTERPRETERS, LOOPS, PACKAGES,
        PAPER_COMPUTATION, PAPER_EXTERNAL, PAPER_FILE, PROGRAMMED,
    },
    script::{Language, Script, written},
    turn::Turn,
    words::has_any,
};

/// Capabilities used by one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Resources outside the sandbox.
    pub external: bool,
    /// Files.
    pub file: bool,
    /// Computation.
    pub computation: bool,
}

/// Capabilities used by one turn, in both classifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    /// The turn, from 1.
    pub turn: u32,
    /// By the paper's patterns.
    pub paper: Use,
    /// By what its commands and programs do.
    pub extended: Use,
}

/// Turns that use each capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All turns.
    pub turns: u64,
    /// Turns that use external resources.
    pub external: u64,
    /// Turns that use files.
    pub file: u64,
    /// Turns that compute.
    pub computation: u64,
}

impl Counts {
    /// Share of turns that use external resources.
    pub fn external_rate(&self) -> f64 {
        self.rate(self.external)
    }

    /// Share of turns that use files.
    pub fn file_rate(&self) -> f64 {
        self.rate(self.file)
    }

    /// Share of turns that compute.
    pub fn computation_rate(&self) -> f64 {
        self.rate(self.computation)
    }

    /// Adds a turn.
    pub fn count(&mut self, turn: Use) {
        self.turns += 1;
        self.external += u64::from(turn.external);
        self.file += u64::from(turn.file);
        self.computation += u64::from(turn.computation);
    }

    fn rate(&self, part: u64) -> f64 {
        if self.turns == 0 { 0.0 } else { part as f64 / self.turns as f64 }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.turns += other.turns;
        self.external += other.external;
        self.file += other.file;
        self.computation += other.computation;
    }
}

/// Capability use of an episode, or the sum over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// By the paper's patterns.
    pub paper: Counts,
    /// By what its commands and programs do.
    pub extended: Counts,
}

impl AddAssign for Capabilities {
    fn add_assign(&mut self, other: Self) {
        self.paper += other.paper;
        self.extended += other.extended;
    }
}

/// Classifies the turns of an episode and counts them.
pub fn capabilities(turns: &[Turn<'_>]) -> Capabilities {
    let mut all = Capabilities::default();
    for turn in turns {
        let Uses { paper, extended, .. } = uses(turn);
        all.paper.count(paper);
        all.extended.count(extended);
    }
    all
}

/// Whether a turn writes or runs a program: a text in a programming language other than shell, or an interpreter. Unlike
/// computation it says nothing of what the program does, and includes plain arithmetic and sums over files.
pub fn runs_program(turn: &Turn<'_>) -> bool {
    let script = Script::of(turn);
    let is_interpreter = |command: &Command| {
        is_python(&command.name) || INTERPRETERS.contains(&command.name.as_str())
    };
    !script.programs.is_empty() || script.commands.iter().any(is_interpreter)
}

/// Classifies a turn.
pub fn uses(turn: &Turn<'_>) -> Uses {
    let texts = written(turn);
    let any = |patterns: &[&str]| texts.iter().any(|text| has_any(text, patterns));
    let paper = Use {
        external: any(&PAPER_EXTERNAL),
        file: any(&PAPER_FILE),
        computation: any(&PAPER_COMPUTATION),
    };
    Uses { turn: turn.number, paper, extended: extended(&Script::of(turn)) }
}

fn extended(script: &Script) -> Use {
    let code =
        |patterns: &[&str]| script.programs.iter().any(|(_, code)| has_any(&code.code, patterns));
    let command = |is: fn(&Command) -> bool| script.commands.iter().any(is);
    let loops = script.programs.iter().any(|(language, code)| {
        matches!(language, Language::Other(_))
            && LOOPS.iter().any(|pattern| code.code.contains(pattern))
    });
    Use {
        external: command(|command| wanted(command).is_some())
            || code(&FETCHING)
            || code(&PACKAGES),
        file: !script.viewed.is_empty() || command(uses_files) || code(&FILES),
        computation: script.counts || loops || command(calculates) || code(&CALCULATING),
    }
}

/// Whether a command uses files: a filter does with file arguments, not in a pipe.
fn uses_files(command: &Command) -> bool {
    let name = command.name.as_str();
    if FINDERS.contains(&name) || (command.input == Input::File && !name.is_empty()) {
        return true;
    }
    if !FILTERS.contains(&name) || command.input != Input::Open {
        return false;
    }
    let given = command.args.iter().filter(|arg| !arg.starts_with('-')).count();
    let recursive = command.args.iter().any(|arg| is_recursive(arg));
    given > usize::from(PROGRAMMED.contains(&name)) || (given == 1 && recursive) || name == "rg"
}

fn is_recursive(arg: &str) -> bool {
    let letters = arg.starts_with('-') && !arg.starts_with("--");
    arg == "--recursive" || (letters && arg.contains(['r', 'R']))
}

/// Whether a command calculates: a calculator, or a loop over numbers.
fn calculates(command: &Command) -> bool {
    let any = |is: fn(&str) -> bool| command.args.iter().any(|arg| is(arg));
    match command.name.as_str() {
        "for" => any(|arg| arg.starts_with('{') && arg.contains("..")),
        "while" => any(|arg| matches!(arg, "-lt" | "-le" | "-gt" | "-ge" | "-ne" | "-eq")),
        "awk" | "gawk" => {
            any(|arg| arg.contains("BEGIN") && (arg.contains("for") || arg.contains("while")))
        }
        name => CALCULATORS.contains(&name),
    }
}
