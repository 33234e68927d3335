//! Made-up tasks over files: eighteen kinds in five levels, the answer computed by whoever made the files, and a
//! demonstration that finds it again from the files alone.
//!
//! Runs no command. Every task follows from seed, kind, level and number, and from nothing else.

mod dates;
mod kind;
mod ledgers;
mod lists;
mod lookup;
mod records;
mod tables;
mod trees;
mod words;

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use serde_json::json;

use crate::{
    FolderError, Manifest, Row, Step, Watch,
    dice::{self, Dice},
    folder::{self, Folder, Side, Task},
    row::answered,
    text::short_digest,
};

pub use kind::{Kind, Level};

/// The most tasks made at once.
const MOST: usize = 1_000_000;
/// How often a task that came out like another is made anew.
const TRIES: u32 = 50;

/// What to make.
#[derive(Clone, Debug)]
pub struct SynthesizeSettings {
    /// How many tasks.
    pub count: usize,
    /// Decides about everything.
    pub seed: u64,
    /// The levels, which take turns.
    pub levels: Vec<Level>,
    /// The kinds, which take turns.
    pub kinds: Vec<Kind>,
    /// The share of tasks kept for validation.
    pub validation: f64,
}

/// Why nothing can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthesizeError {
    /// A kind nobody knows.
    #[error("there is no kind of task `{name}`; there are {}", Kind::ALL.map(Kind::name).join(", "))]
    Kind {
        /// What was asked for.
        name: String,
    },
    /// No tasks, or too many.
    #[error("from 1 to {MOST} tasks can be made at once, not {0}")]
    Count(usize),
    /// Nothing to choose from.
    #[error("at least one {0} has to be chosen")]
    None(&'static str),
    /// No share.
    #[error("the share for validation has to be at least 0 and below 1, not {0}")]
    Validation(f64),
    /// The folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

impl SynthesizeError {
    /// Whether the input is at fault, rather than the machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Folder(error) => error.is_usage(),
            _ => true,
        }
    }
}

/// Files, a question about them, and how it is answered.
pub(crate) struct Made {
    files: BTreeMap<String, String>,
    question: String,
    answer: Answer,
    steps: Vec<String>,
}

/// A right answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A whole number.
    Number(i64),
    /// One word.
    Word(String),
}

impl From<i64> for Answer {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Answer {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

impl From<String> for Answer {
    fn from(word: String) -> Self {
        Self::Word(word)
    }
}

/// A question, its answer, and the command that prints the answer.
struct Asked {
    question: String,
    answer: Answer,
    compute: String,
}

impl Asked {
    fn new(question: String, answer: impl Into<Answer>, compute: String) -> Self {
        Self { question, answer: answer.into(), compute }
    }
}

impl Made {
    /// A task that is solved by a look and one command.
    fn asking(files: BTreeMap<String, String>, look: &str, asked: Asked) -> Self {
        Self::of(files, asked.question, asked.answer, look, &asked.compute)
    }

    /// A task that is solved by a look and one command, whose output is the answer.
    fn new<const N: usize>(
        files: [(String, String); N],
        question: String,
        answer: impl Into<Answer>,
        look: &str,
        compute: &str,
    ) -> Self {
        Self::of(files.into(), question, answer, look, compute)
    }

    fn of(
        files: BTreeMap<String, String>,
        question: String,
        answer: impl Into<Answer>,
        look: &str,
        compute: &str,
    ) -> Self {
        let steps = vec![look.to_owned(), answered(compute)];
        Self { files, question, answer: answer.into(), steps }
    }
}

/// One made-up task. `number` tells tasks of the same kind and level apart.
pub fn synthetic(kind: Kind, level: Level, seed: u64, number: u64) -> Row {
    tried(kind, level, seed, number, 0)
}

/// Makes tasks and writes them to a new folder.
pub fn synthesize(
    settings: &SynthesizeSettings,
    output: &Path,
    watch: Watch<'_>,
) -> Result<Manifest, SynthesizeError> {
    check(settings)?;
    let folder = Folder::begin(output)?;
    let mut manifest = Manifest::new("synthesize", settings.seed, described(settings));
    let slots = slots(settings, &mut manifest, watch)?;
    let (train, validation) = divided(slots, settings);
    // Made a second time rather than kept: a million tasks would fill the memory.
    for (side, slots) in [(Side::Train, train), (Side::Validation, validation)] {
        folder.rows(
            side,
            slots.iter().map(|slot| slot.row(settings.seed)),
            &mut manifest,
            watch,
        )?;
    }
    folder.finish(&Task { name: "synthetic", turns: 12, tokens: 16_384 }, &mut manifest)?;
    Ok(manifest)
}

fn check(settings: &SynthesizeSettings) -> Result<(), SynthesizeError> {
    if !(1..=MOST).contains(&settings.count) {
        return Err(SynthesizeError::Count(settings.count));
    }
    if settings.kinds.is_empty() {
        return Err(SynthesizeError::None("kind"));
    }
    if settings.levels.is_empty() {
        return Err(SynthesizeError::None("level"));
    }
    match (0.0..1.0).contains(&settings.validation) {
        true => Ok(()),
        false => Err(SynthesizeError::Validation(settings.validation)),
    }
}

fn described(settings: &SynthesizeSettings) -> serde_json::Value {
    let kinds: Vec<&str> = settings.kinds.iter().map(|kind| kind.name()).collect();
    let levels: Vec<u8> = settings.levels.iter().map(|level| level.number()).collect();
    json!({
        "count": settings.count, "kinds": kinds, "levels": levels, "validation": settings.validation,
    })
}

/// A task that is known to differ from all others.
struct Slot {
    kind: Kind,
    level: Level,
    number: u64,
    again: u32,
    id: String,
}

impl Slot {
    fn row(&self, seed: u64) -> Row {
        tried(self.kind, self.level, seed, self.number, self.again)
    }
}

/// The tasks in the order in which they are written: mixed, so that any stretch of them holds all kinds.
fn slots(
    settings: &SynthesizeSettings,
    manifest: &mut Manifest,
    watch: Watch<'_>,
) -> Result<Vec<Slot>, FolderError> {
    let SynthesizeSettings { kinds, levels, seed, count, .. } = settings;
    let mut seen = HashSet::new();
    let mut slots: Vec<Slot> = Vec::new();
    folder::tell(watch, Step::Making(*count as u64))?;
    for number in 0..*count {
        let kind = kinds[number % kinds.len()];
        let level = levels[number / kinds.len() % levels.len()];
        let number = number as u64;
        let mut tries =
            (0..TRIES).map(|again| (again, tried(kind, level, *seed, number, again).id));
        match tries.find(|(_, id)| seen.insert(id.clone())) {
            Some((again, id)) => slots.push(Slot { kind, level, number, again, id }),
            None => {
                let why = format!("no new task of kind {kind}, level {} was found", level.number());
                manifest.leave_out("that repeat others", "", number + 1, why);
            }
        }
        folder::tell(watch, Step::Made(1))?;
    }
    slots.sort_by_cached_key(|slot| (dice::mixed(*seed, &["order", &slot.id]), slot.id.clone()));
    Ok(slots)
}

/// The tasks to train on and those to validate with, each in the order they had.
fn divided(slots: Vec<Slot>, settings: &SynthesizeSettings) -> (Vec<Slot>, Vec<Slot>) {
    let many = (slots.len() as f64 * settings.validation).round() as usize;
    let mut ids: Vec<&str> = slots.iter().map(|slot| slot.id.as_str()).collect();
    ids.sort_by_cached_key(|id| dice::mixed(settings.seed, &["validation", id]));
    ids.truncate(many.min(slots.len().saturating_sub(1)));
    let held: HashSet<String> = ids.into_iter().map(str::to_owned).collect();
    slots.into_iter().partition(|slot| !held.contains(&slot.id))
}

fn tried(kind: Kind, level: Level, seed: u64, number: u64, again: u32) -> Row {
    let labels =
        [kind.name(), &level.number().to_string(), &number.to_string(), &again.to_string()];
    let made = kind.make(&mut Dice::new(seed, &labels), level);
    let (domain, ground_truth) = match made.answer {
        // Numbers are right or wrong; of words, some may be right.
        Answer::Number(number) => ("math", number.to_string()),
        Answer::Word(word) => ("instruct_pretrain", word),
    };
    let mut asked: Vec<&str> = vec![&made.question];
    asked.extend(made.files.iter().flat_map(|(name, text)| [name.as_str(), text]));
    Row {
        id: format!("{kind}-{}-{}", level.number(), short_digest(&asked)),
        domain: domain.to_owned(),
        qa_type: "Free-form".to_owned(),
        subject: kind.name().to_owned(),
        level: Some(level.number()),
        problem_statement: made.question,
        ground_truth,
        answers: Vec::new(),
        input_files: made.files,
        demonstration: made.steps,
    }
}

/// A table as text, with a heading.
fn csv<R: AsRef<[String]>>(heading: &str, rows: impl IntoIterator<Item = R>) -> String {
    let mut text = format!("{heading}\n");
    for row in rows {
        text.push_str(&row.as_ref().join(","));
        text.push('\n');
    }
    text
}

/// Lines as text.
fn lined(lines: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    lines.into_iter().fold(String::new(), |text, line| text + line.as_ref() + "\n")
}

#[cfg(test)]
#[path = "synthesize/synthesize_tests.rs"]
mod tests;
