//! The kinds and levels of synthetic tasks.

use std::{fmt, str::FromStr};

use super::{Draft, SynthesizeError, dates, ledgers, lists, lookup, records, tables, trees};
use crate::rng::Rng;

/// The kind of a synthetic task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Find the value of a setting.
    Find,
    /// Count matching lines.
    Count,
    /// Sum a column.
    Sum,
    /// Join two or three tables.
    Join,
    /// Find the largest or smallest entry.
    Extreme,
    /// Find the n-th entry of an order.
    Rank,
    /// Compute means, medians, ranges.
    Average,
    /// Count distinct values.
    Distinct,
    /// Find the most frequent value.
    Frequent,
    /// Follow references from file to file.
    Follow,
    /// Compute days, weekdays and gaps.
    Dates,
    /// Compare two files or directories.
    Compare,
    /// Query nested JSON.
    Json,
    /// Search files in directories.
    Tree,
    /// Convert amounts in different units.
    Units,
    /// Find facts in sentences.
    Prose,
    /// Track a balance.
    Ledger,
    /// Find codes in text.
    Pattern,
}

impl Kind {
    /// All kinds, in their order of alternation.
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

    /// Its name.
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

    pub(super) fn make(self, rng: &mut Rng, level: Level) -> Draft {
        match self {
            Self::Find => lookup::find(rng, level),
            Self::Count => lists::count(rng, level),
            Self::Sum => tables::sum(rng, level),
            Self::Join => tables::join(rng, level),
            Self::Extreme => tables::extreme(rng, level),
            Self::Rank => tables::rank(rng, level),
            Self::Average => ledgers::average(rng, level),
            Self::Distinct => lists::distinct(rng, level),
            Self::Frequent => lists::frequent(rng, level),
            Self::Follow => trees::follow(rng, level),
            Self::Dates => dates::dates(rng, level),
            Self::Compare => trees::compare(rng, level),
            Self::Json => records::json(rng, level),
            Self::Tree => trees::tree(rng, level),
            Self::Units => ledgers::units(rng, level),
            Self::Prose => lookup::prose(rng, level),
            Self::Ledger => ledgers::ledger(rng, level),
            Self::Pattern => lists::pattern(rng, level),
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

/// The difficulty of a task: one small file at 1, hundreds of lines in many files and several conditions at 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// All levels.
    pub const ALL: [Self; 5] = [Self(1), Self(2), Self(3), Self(4), Self(5)];

    /// A level from 1 to 5; `None` for other numbers.
    pub fn new(level: u8) -> Option<Self> {
        (1..=5).contains(&level).then_some(Self(level))
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The value of this level.
    pub(super) fn of<T: Copy>(self, each: [T; 5]) -> T {
        each[usize::from(self.0 - 1)]
    }

    /// A random number of lines or records of a file.
    pub(super) fn lines(self, rng: &mut Rng) -> usize {
        let (low, high) = self.of([(5, 8), (10, 20), (30, 60), (80, 150), (200, 400)]);
        rng.between(low, high).unsigned_abs() as usize
    }
}
