//! Comparisons between systems, problems gained and lost, and the settings of the systems.

use results::Mode;
use serde::{Deserialize, Serialize};

use super::{AttemptRef, Listed};
use crate::stats::Paired;

/// One side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Index of the system.
    pub system: usize,
    /// Mode.
    pub mode: Mode,
}

/// A system compared with the baseline, over problems with valid attempts on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The baseline.
    pub baseline: Side,
    /// The system compared with it.
    pub other: Side,
    /// The task; absent for the average over tasks.
    pub task: Option<String>,
    /// Number of tasks with pairs.
    pub tasks: usize,
    /// Score of the baseline over the paired problems: mean over problems, then over tasks.
    pub baseline_score: Option<f64>,
    /// Score of the other side, likewise.
    pub other_score: Option<f64>,
    /// Paired difference, other minus baseline; absent without pairs.
    pub difference: Option<Paired>,
    /// p-value, Holm-corrected for the number of comparisons with a difference.
    pub p_holm: Option<f64>,
    /// What is excluded.
    pub left_out: LeftOut,
    /// Problems solved by the other side only.
    pub gained: Listed<Change>,
    /// Problems solved by the baseline only.
    pub lost: Listed<Change>,
}

/// Problems and attempts a comparison excludes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Problems that only the baseline attempted.
    pub only_baseline: usize,
    /// Problems that only the other side attempted.
    pub only_other: usize,
    /// Problems with the same id whose text or expected answer differs.
    pub different: usize,
    /// Problems attempted on both sides, without a valid attempt on at least one.
    pub invalid: usize,
    /// Invalid attempts at problems of both sides: failed because of the infrastructure, cancelled or not graded.
    pub invalid_attempts: usize,
}

impl LeftOut {
    /// Number of problems left out.
    pub fn problems(&self) -> usize {
        self.only_baseline + self.only_other + self.different + self.invalid
    }
}

impl std::ops::AddAssign for LeftOut {
    fn add_assign(&mut self, more: Self) {
        self.only_baseline += more.only_baseline;
        self.only_other += more.only_other;
        self.different += more.different;
        self.invalid += more.invalid;
        self.invalid_attempts += more.invalid_attempts;
    }
}

/// A problem solved on one side only. A problem counts as solved where more than half of its valid attempts pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// An attempt of the baseline that shows it.
    pub baseline: AttemptRef,
    /// An attempt of the other side that shows it.
    pub other: AttemptRef,
    /// Attempts of the baseline.
    pub baseline_passes: Passes,
    /// Attempts of the other side.
    pub other_passes: Passes,
    /// Beginning of the wrong answer.
    pub wrong_answer: String,
    /// Beginning of the expected answer.
    pub expected: String,
}

/// Valid attempts at a problem, and those of them that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passes {
    /// Attempts that passed.
    pub passed: usize,
    /// Valid attempts.
    pub valid: usize,
}

impl Passes {
    /// Whether the problem counts as solved.
    pub fn solved(self) -> bool {
        2 * self.passed > self.valid
    }
}

/// Settings of the systems, under the names of the options that set them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsReport {
    /// Settings that differ between systems.
    pub differing: Vec<SettingRow>,
    /// Settings that are the same everywhere: name and value.
    pub same: Vec<(String, String)>,
}

/// A setting that differs between systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingRow {
    /// Name.
    pub name: String,
    /// Value of each system; absent where it is not set.
    pub values: Vec<Option<String>>,
}
