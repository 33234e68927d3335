//! Made-up tasks over files: eighteen kinds in five levels, the answer computed by whoever made the files, and a
//! demonstration that finds it again from the files alone.
//!
//! Runs no command. Every task follows from seed, kind, level and number, and from nothing else.

mod ledgers;
mod lists;
mod lookup;
mod records;
mod tables;
mod trees;
mod words;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    path::Path,
    str::FromStr,
};

use serde_json::json;

use crate::{
    FolderError, Manifest, Row, Step,
    dice::{self, Dice},
    folder::{Folder, Side, Task},
    row::answered,
    text::short_digest,
};

/// The most tasks made at once.
const MOST: usize = 1_000_000;
/// How often a task that came out like another is made anew.
const TRIES: u32 = 50;

/// What a task is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// The value of a setting.
    Find,
    /// Lines that match.
    Count,
    /// A column, added up.
    Sum,
    /// Two or three tables that belong together.
    Join,
    /// The largest or smallest.
    Extreme,
    /// The n-th in order.
    Rank,
    /// Means, medians, ranges.
    Average,
    /// How many different ones.
    Distinct,
    /// The one that occurs most.
    Frequent,
    /// From file to file.
    Follow,
    /// Days, weekdays and gaps.
    Dates,
    /// What two files have in common, and what not.
    Compare,
    /// Nested data.
    Json,
    /// Files in directories.
    Tree,
    /// Amounts in different units.
    Units,
    /// Facts in sentences.
    Prose,
    /// A balance that goes up and down.
    Ledger,
    /// Codes hidden in text.
    Pattern,
}

impl Kind {
    /// All of them, in the order in which they take turns.
    pub const ALL: [Self; 18] = [
        Self::Find,
        Self::Count,
        Self::Sum,
        Self::Join,
        Self::Extreme,
        Self::Rank,
        Self::Average,
        Self::Distinct,
        Self::Frequent,
        Self::Follow,
        Self::Dates,
        Self::Compare,
        Self::Json,
        Self::Tree,
        Self::Units,
        Self::Prose,
        Self::Ledger,
        Self::Pattern,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Join => "join",
            Self::Extreme => "extreme",
            Self::Rank => "rank",
            Self::Average => "average",
            Self::Distinct => "distinct",
            Self::Frequent => "frequent",
            Self::Follow => "follow",
            Self::Dates => "dates",
            Self::Compare => "compare",
            Self::Json => "json",
            Self::Tree => "tree",
            Self::Units => "units",
            Self::Prose => "prose",
            Self::Ledger => "ledger",
            Self::Pattern => "pattern",
        }
    }

    fn make(self, dice: &mut Dice, level: Level) -> Made {
        match self {
            Self::Find => lookup::find(dice, level),
            Self::Count => lists::count(dice, level),
            Self::Sum => tables::sum(dice, level),
            Self::Join => tables::join(dice, level),
            Self::Extreme => tables::extreme(dice, level),
            Self::Rank => tables::rank(dice, level),
            Self::Average => ledgers::average(dice, level),
            Self::Distinct => lists::distinct(dice, level),
            Self::Frequent => lists::frequent(dice, level),
            Self::Follow => trees::follow(dice, level),
            Self::Dates => records::dates(dice, level),
            Self::Compare => trees::compare(dice, level),
            Self::Json => records::json(dice, level),
            Self::Tree => trees::tree(dice, level),
            Self::Units => ledgers::units(dice, level),
            Self::Prose => lookup::prose(dice, level),
            Self::Ledger => ledgers::ledger(dice, level),
            Self::Pattern => lists::pattern(dice, level),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = SynthesizeError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| SynthesizeError::Kind { name: name.chars().take(40).collect() })
    }
}

/// How hard a task is: one small file at 1, hundreds of lines in many files and several conditions at 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// All of them.
    pub const ALL: [Self; 5] = [Self(1), Self(2), Self(3), Self(4), Self(5)];

    /// From 1 to 5.
    pub fn new(level: u8) -> Option<Self> {
        (1..=5).contains(&level).then_some(Self(level))
    }

    /// The number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The number of the five that belongs to this level.
    fn of<T: Copy>(self, each: [T; 5]) -> T {
        each[usize::from(self.0 - 1)]
    }

    /// Lines or records of a file.
    fn lines(self, dice: &mut Dice) -> usize {
        let (low, high) = self.of([(5, 8), (10, 20), (30, 60), (80, 150), (200, 400)]);
        dice.between(low, high).unsigned_abs() as usize
    }
}

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

impl Made {
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
    watch: &dyn Fn(Step),
) -> Result<Manifest, SynthesizeError> {
    check(settings)?;
    let folder = Folder::begin(output)?;
    let mut manifest = Manifest::new("synthesize", settings.seed, described(settings));
    watch(Step::Writing(settings.count as u64));
    let rows = rows(settings, &mut manifest);
    let (train, validation) = divided(rows, settings);
    folder.rows(Side::Train, train.into_iter(), &mut manifest, watch)?;
    folder.rows(Side::Validation, validation.into_iter(), &mut manifest, watch)?;
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

/// The tasks in the order in which they are written: mixed, so that any stretch of them holds all kinds.
fn rows(settings: &SynthesizeSettings, manifest: &mut Manifest) -> Vec<Row> {
    let SynthesizeSettings { kinds, levels, seed, .. } = settings;
    let mut seen = HashSet::new();
    let mut rows: Vec<Row> = Vec::with_capacity(settings.count);
    for number in 0..settings.count {
        let kind = kinds[number % kinds.len()];
        let level = levels[number / kinds.len() % levels.len()];
        let mut tries = (0..TRIES).map(|again| tried(kind, level, *seed, number as u64, again));
        match tries.find(|row| seen.insert(row.id.clone())) {
            Some(row) => rows.push(row),
            None => {
                let why = format!("no new task of kind {kind}, level {} was found", level.number());
                manifest.leave_out("that repeat others", "", number as u64 + 1, why);
            }
        }
    }
    rows.sort_by_cached_key(|row| (dice::mixed(*seed, &["order", &row.id]), row.id.clone()));
    rows
}

/// The rows to train on and those to validate with, each in the order they had.
fn divided(rows: Vec<Row>, settings: &SynthesizeSettings) -> (Vec<Row>, Vec<Row>) {
    let many = (rows.len() as f64 * settings.validation).round() as usize;
    let mut ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    ids.sort_by_cached_key(|id| dice::mixed(settings.seed, &["validation", id]));
    ids.truncate(many.min(rows.len().saturating_sub(1)));
    let held: HashSet<String> = ids.into_iter().map(str::to_owned).collect();
    rows.into_iter().partition(|row| !held.contains(&row.id))
}

fn tried(kind: Kind, level: Level, seed: u64, number: u64, again: u32) -> Row {
    let labels = [kind.name(), &level.0.to_string(), &number.to_string(), &again.to_string()];
    let made = kind.make(&mut Dice::new(seed, &labels), level);
    let (domain, ground_truth) = match made.answer {
        // Numbers are right or wrong; of words, some may be right.
        Answer::Number(number) => ("math", number.to_string()),
        Answer::Word(word) => ("instruct_pretrain", word),
    };
    let mut asked: Vec<&str> = vec![&made.question];
    asked.extend(made.files.iter().flat_map(|(name, text)| [name.as_str(), text]));
    Row {
        id: format!("{kind}-{}-{}", level.0, short_digest(&asked)),
        domain: domain.to_owned(),
        qa_type: "Free-form".to_owned(),
        subject: kind.name().to_owned(),
        level: Some(level.0),
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
