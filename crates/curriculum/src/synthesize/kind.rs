//! The kinds of made-up tasks and their levels, by name and number.

use std::{fmt, str::FromStr};

use super::{Made, SynthesizeError, dates, ledgers, lists, lookup, records, tables, trees};
use crate::dice::Dice;

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

    pub(super) fn make(self, dice: &mut Dice, level: Level) -> Made {
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
            Self::Dates => dates::dates(dice, level),
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
    pub(super) fn of<T: Copy>(self, each: [T; 5]) -> T {
        each[usize::from(self.0 - 1)]
    }

    /// Lines or records of a file.
    pub(super) fn lines(self, dice: &mut Dice) -> usize {
        let (low, high) = self.of([(5, 8), (10, 20), (30, 60), (80, 150), (200, 400)]);
        dice.between(low, high).unsigned_abs() as usize
    }
}
