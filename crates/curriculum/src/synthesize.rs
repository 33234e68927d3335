//! Synthetic tasks over files: eighteen kinds in five levels. The answer is computed together with the files, and a
//! demonstration finds it from the files alone.
//!
//! Runs no command. A task is a function of seed, kind, level and number. The texts of tasks are training data: they stay
//! byte-identical.

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
    FolderError, Manifest, OnProgress, Progress, Row,
    folder::{self, Folder, Partition, Task},
    rng::{self, Rng},
    row::write_output_of,
    text::short_digest,
};

pub use kind::{Kind, Level};

/// The maximum number of tasks.
const MAX: usize = 1_000_000;
/// Attempts to generate a task that differs from all others.
const MAX_ATTEMPTS: u32 = 50;

/// The settings of [`synthesize`].
#[derive(Clone, Debug)]
pub struct SynthesizeSettings {
    /// The number of tasks.
    pub count: usize,
    /// The random seed.
    pub seed: u64,
    /// The levels, which alternate.
    pub levels: Vec<Level>,
    /// The kinds, which alternate.
    pub kinds: Vec<Kind>,
    /// The fraction of tasks for validation, from 0 to below 1.
    pub validation: f64,
}

/// Tasks cannot be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthesizeError {
    /// The kind does not exist.
    #[error("there is no kind of task `{name}`; there are {}", Kind::ALL.map(Kind::name).join(", "))]
    Kind {
        /// The requested kind.
        name: String,
    },
    /// The number of tasks is out of range.
    #[error("the number of tasks must be between 1 and {MAX}, not {0}")]
    Count(usize),
    /// There are no kinds or no levels.
    #[error("at least one {0} is required")]
    None(&'static str),
    /// The fraction for validation is out of range.
    #[error("the fraction for validation must be at least 0 and below 1, not {0}")]
    Validation(f64),
    /// The output folder cannot be written.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

impl SynthesizeError {
    /// Whether the input is at fault, not the machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Folder(error) => error.is_usage(),
            _ => true,
        }
    }
}

/// A generated task: files, a question about them, its answer and demonstration.
pub(crate) struct Draft {
    files: BTreeMap<String, String>,
    question: String,
    answer: Answer,
    steps: Vec<String>,
}

/// A correct answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An integer.
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
struct Query {
    question: String,
    answer: Answer,
    compute: String,
}

impl Query {
    fn new(question: String, answer: impl Into<Answer>, compute: String) -> Self {
        Self { question, answer: answer.into(), compute }
    }
}

impl Draft {
    /// A task that is solved by one command to inspect the files (`look`) and one that prints the answer.
    fn from_query(files: BTreeMap<String, String>, look: &str, query: Query) -> Self {
        Self::of(files, query.question, query.answer, look, &query.compute)
    }

    /// The same from its parts.
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
        let steps = vec![look.to_owned(), write_output_of(compute)];
        Self { files, question, answer: answer.into(), steps }
    }
}

/// One synthetic task. `number` distinguishes tasks of the same kind and level.
pub fn synthetic(kind: Kind, level: Level, seed: u64, number: u64) -> Row {
    generate(kind, level, seed, number, 0)
}

/// Generates tasks and writes them to a new folder.
pub fn synthesize(
    settings: &SynthesizeSettings,
    output: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Manifest, SynthesizeError> {
    check(settings)?;
    let folder = Folder::create(output)?;
    let mut manifest = Manifest::new("synthesize", settings.seed, settings_json(settings));
    let slots = slots(settings, &mut manifest, on_progress)?;
    let (train, validation) = split(slots, settings);
    // Generated a second time rather than stored: a million tasks would fill the memory.
    for (partition, slots) in [(Partition::Train, train), (Partition::Validation, validation)] {
        folder.rows(
            partition,
            slots.iter().map(|slot| slot.row(settings.seed)),
            &mut manifest,
            on_progress,
        )?;
    }
    folder.finish(&Task { turns: 12, tokens: 16_384 }, &mut manifest)?;
    Ok(manifest)
}

fn check(settings: &SynthesizeSettings) -> Result<(), SynthesizeError> {
    if !(1..=MAX).contains(&settings.count) {
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

fn settings_json(settings: &SynthesizeSettings) -> serde_json::Value {
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
    attempt: u32,
    id: String,
}

impl Slot {
    fn row(&self, seed: u64) -> Row {
        generate(self.kind, self.level, seed, self.number, self.attempt)
    }
}

/// The tasks in the order of the output: shuffled, so that any range contains all kinds.
fn slots(
    settings: &SynthesizeSettings,
    manifest: &mut Manifest,
    on_progress: OnProgress<'_>,
) -> Result<Vec<Slot>, FolderError> {
    let SynthesizeSettings { kinds, levels, seed, count, .. } = settings;
    let mut seen = HashSet::new();
    let mut slots: Vec<Slot> = Vec::new();
    folder::report(on_progress, Progress::Generating(*count as u64))?;
    for number in 0..*count {
        let kind = kinds[number % kinds.len()];
        let level = levels[number / kinds.len() % levels.len()];
        let number = number as u64;
        let mut attempts = (0..MAX_ATTEMPTS)
            .map(|attempt| (attempt, generate(kind, level, *seed, number, attempt).id));
        match attempts.find(|(_, id)| seen.insert(id.clone())) {
            Some((attempt, id)) => slots.push(Slot { kind, level, number, attempt, id }),
            None => {
                let why = format!("no new task of kind {kind}, level {} was found", level.number());
                manifest.skip("that repeat others", "", number + 1, why);
            }
        }
        folder::report(on_progress, Progress::Generated(1))?;
    }
    slots.sort_by_cached_key(|slot| {
        (rng::hash_labels(*seed, &["order", &slot.id]), slot.id.clone())
    });
    Ok(slots)
}

/// Splits tasks into training and validation, keeping their order.
fn split(slots: Vec<Slot>, settings: &SynthesizeSettings) -> (Vec<Slot>, Vec<Slot>) {
    let many = (slots.len() as f64 * settings.validation).round() as usize;
    let mut ids: Vec<&str> = slots.iter().map(|slot| slot.id.as_str()).collect();
    ids.sort_by_cached_key(|id| rng::hash_labels(settings.seed, &["validation", id]));
    ids.truncate(many.min(slots.len().saturating_sub(1)));
    let held_out: HashSet<String> = ids.into_iter().map(str::to_owned).collect();
    slots.into_iter().partition(|slot| !held_out.contains(&slot.id))
}

fn generate(kind: Kind, level: Level, seed: u64, number: u64, attempt: u32) -> Row {
    let labels =
        [kind.name(), &level.number().to_string(), &number.to_string(), &attempt.to_string()];
    let draft = kind.make(&mut Rng::new(seed, &labels), level);
    let (domain, ground_truth) = match draft.answer {
        // Numbers are graded exactly; words may be partly correct.
        Answer::Number(number) => ("math", number.to_string()),
        Answer::Word(word) => ("instruct_pretrain", word),
    };
    let mut content: Vec<&str> = vec![&draft.question];
    content.extend(draft.files.iter().flat_map(|(name, text)| [name.as_str(), text]));
    Row {
        id: format!("{kind}-{}-{}", level.number(), short_digest(&content)),
        domain: domain.to_owned(),
        qa_type: "Free-form".to_owned(),
        subject: kind.name().to_owned(),
        level: Some(level.number()),
        problem_statement: draft.question,
        ground_truth,
        answers: Vec::new(),
        input_files: draft.files,
        demonstration: draft.steps,
    }
}

/// A table as CSV, with a header line.
fn csv<R: AsRef<[String]>>(heading: &str, rows: impl IntoIterator<Item = R>) -> String {
    let mut text = format!("{heading}\n");
    for row in rows {
        text.push_str(&row.as_ref().join(","));
        text.push('\n');
    }
    text
}

/// Joins lines, each with a newline.
fn join_lines(lines: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    lines.into_iter().fold(String::new(), |text, line| text + line.as_ref() + "\n")
}

#[cfg(test)]
#[path = "synthesize/synthesize_tests.rs"]
mod tests;
