//! Compares measured sets problem by problem: two steps of a run, or two runs.
//!
//! Problems are paired by id, and only where their text is the same. Episodes that the infrastructure failed have no score
//! and are counted apart.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

use super::{
    EpisodeRecord, MAX_PAIRS, MeasuredSet, SetAnalyses, StoreError, Validations,
    analyses::{analyses, correct_over_sets},
};
use crate::stats::{Paired, Scores, Test, holm, mean, paired, paired_average};

/// What is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The score of the answer, however the episode ended.
    #[default]
    Score,
    /// Whether the score is 1.
    Success,
    /// The reward of training.
    Reward,
}

/// What results are broken down by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Breakdown {
    /// The kind of problem.
    Kind,
    /// Its level.
    Level,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The run directory.
    pub run: PathBuf,
    /// Which of its steps.
    pub step: Step,
}

/// Which step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first at which a set was measured.
    First,
    /// The last at which a set was measured.
    Last,
    /// This one.
    At(u64),
}

/// How to compare.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// What is compared.
    pub metric: Metric,
    /// What results are broken down by.
    pub by: Option<Breakdown>,
    /// Only these sets; empty for all.
    pub sets: Vec<String>,
    /// Whether to compare also what models did, which reads the events of all episodes.
    pub analyses: bool,
}

/// Two points cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// Results cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A set was not measured.
    #[error("{} has no validation set `{set}`; it has {}", run.display(), known.join(", "))]
    NoSet {
        /// The run.
        run: PathBuf,
        /// The set.
        set: String,
        /// Its sets.
        known: Vec<String>,
    },
    /// Nothing was measured at a step.
    #[error("{} has no validation after step {step}; it has them after {}", run.display(), known.join(", "))]
    NoStep {
        /// The run.
        run: PathBuf,
        /// The step.
        step: u64,
        /// Its steps.
        known: Vec<String>,
    },
    /// A run was measured once only.
    #[error("every validation set of {} was measured once only; compare it with another run", run.display())]
    Once {
        /// The run.
        run: PathBuf,
    },
    /// Both points are the same.
    #[error("both sides are the validation of {} after step {step}; choose another step or run", run.display())]
    Same {
        /// The run.
        run: PathBuf,
        /// The step.
        step: u64,
    },
    /// A set has no such problem at both points.
    #[error("validation set `{set}` has no problem `{id}` at both points")]
    NoProblem {
        /// The set.
        set: String,
        /// The id.
        id: String,
    },
    /// No problem of a set changed in this direction.
    #[error("no problem of validation set `{set}` was {how}")]
    NoneChanged {
        /// The set.
        set: String,
        /// `gained` or `lost`.
        how: &'static str,
    },
    /// Too many problems are chosen.
    #[error("{many} problems are chosen, and at most {MAX_PAIRS} can be shown")]
    TooManyProblems {
        /// How many.
        many: usize,
    },
    /// The points have no set in common.
    #[error("there is no validation set in common: {} has {}, {} has {}", runs[0].display(), sets[0].join(", "), runs[1].display(), sets[1].join(", "))]
    NothingInCommon {
        /// The runs.
        runs: [PathBuf; 2],
        /// Their sets.
        sets: [Vec<String>; 2],
    },
}

/// Two points compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The run of the baseline.
    pub base: PathBuf,
    /// The run compared with it.
    pub other: PathBuf,
    /// What is compared.
    pub metric: Metric,
    /// The sets measured at both points.
    pub sets: Vec<Compared>,
    /// The unweighted mean of the sets' differences, where there are several.
    pub average: Option<Difference>,
    /// Sets that were measured at one point only, or have no problem in common.
    pub left_out: Vec<String>,
}

/// A set at both points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Its name.
    pub set: String,
    /// The steps.
    pub steps: [u64; 2],
    /// The settings that differ.
    pub settings: Vec<SettingChange>,
    /// Problems of each point that the other does not have, or has with another text.
    pub unpaired: [usize; 2],
    /// Episodes of each point without a score.
    pub failed: [usize; 2],
    /// The metric.
    pub score: Difference,
    /// Responses per episode.
    pub turns: Difference,
    /// Sampled tokens per episode.
    pub response_tokens: Difference,
    /// Tokens of the environment per episode.
    pub environment_tokens: Difference,
    /// The same by kind or level of problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<MetricMeans>,
    /// What models did, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analyses: Option<SetAnalyses>,
}

/// Problems of one kind or level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricMeans {
    /// The kind or level.
    pub group: String,
    /// The metric.
    pub score: Difference,
}

/// A setting that differs between the points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SettingChange {
    /// Its name.
    pub key: String,
    /// Its values; null where it is absent.
    pub values: [Value; 2],
}

/// A paired difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Problems with a value at both points.
    pub problems: usize,
    /// The means over these problems.
    pub means: [f64; 2],
    /// The second minus the first.
    pub difference: f64,
    /// 95% bootstrap interval over problems; absent where all differences are equal.
    pub interval: Option<[f64; 2]>,
    /// Two-sided p-value.
    pub p: f64,
    /// Holm-corrected over the sets, or over the groups of a set.
    pub p_corrected: f64,
    /// The test.
    pub test: Test,
    /// Problems with a higher value at the second point.
    pub better: usize,
    /// Problems with a lower one.
    pub worse: usize,
}

/// Compares a point with a baseline, set by set.
pub fn compare(
    base: &Point,
    other: &Point,
    options: &CompareOptions,
) -> Result<Comparison, CompareError> {
    let runs = [Validations::find(&base.run)?, Validations::find(&other.run)?];
    let points = [base, other];
    for (run, point) in runs.iter().zip(points) {
        run.check(point, &options.sets)?;
    }
    let is_wanted = |name: &&String| options.sets.is_empty() || options.sets.contains(name);
    let names: BTreeSet<&String> =
        runs.iter().flat_map(|run| run.sets().keys()).filter(is_wanted).collect();
    let (mut sets, mut all, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    let mut common = false;
    for name in names {
        let steps = [0, 1].map(|at| runs[at].step_of(name, points[at].step));
        let same = base.run == other.run && steps[0] == steps[1];
        let ([Some(first), Some(second)], false) = (steps, same) else {
            left_out.push(name.clone());
            continue;
        };
        common = true;
        let measured = [runs[0].read(name, first)?, runs[1].read(name, second)?];
        match compared(name, [first, second], &measured, &runs, options) {
            Some((set, pairs)) => {
                sets.push(set);
                all.push(pairs);
            }
            None => left_out.push(name.clone()),
        }
    }
    if !common {
        return Err(match (base.run == other.run, other.step) {
            // Others than this step are there.
            (true, Step::At(step)) if runs[0].steps().len() > 1 => {
                CompareError::Same { run: base.run.clone(), step }
            }
            (true, _) => CompareError::Once { run: base.run.clone() },
            (false, _) => nothing_in_common(points, &runs),
        });
    }
    correct(sets.iter_mut().map(|set| &mut set.score));
    correct_over_sets(&mut sets);
    let pairs: Vec<&[Scores]> = all.iter().map(Vec::as_slice).collect();
    let average = paired_average(&pairs).filter(|_| sets.len() > 1);
    let means = [0, 1].map(|at| mean(sets.iter().map(|set| set.score.means[at])).unwrap_or(0.0));
    Ok(Comparison {
        base: base.run.clone(),
        other: other.run.clone(),
        metric: options.metric,
        average: average.map(|found| Difference::new(&found, means)),
        sets,
        left_out,
    })
}

fn nothing_in_common(points: [&Point; 2], runs: &[Validations; 2]) -> CompareError {
    CompareError::NothingInCommon {
        runs: points.map(|point| point.run.clone()),
        sets: [0, 1].map(|at| runs[at].sets().keys().cloned().collect()),
    }
}

impl Validations {
    /// Whether a point and the named sets exist.
    fn check(&self, point: &Point, sets: &[String]) -> Result<(), CompareError> {
        let run = || point.run.clone();
        if let Some(set) = sets.iter().find(|set| !self.sets().contains_key(*set)) {
            let known = self.sets().keys().cloned().collect();
            return Err(CompareError::NoSet { run: run(), set: set.clone(), known });
        }
        let steps = self.steps();
        match point.step {
            Step::At(step) if !steps.contains(&step) => Err(CompareError::NoStep {
                run: run(),
                step,
                known: steps.iter().map(u64::to_string).collect(),
            }),
            _ => Ok(()),
        }
    }

    /// All steps at which a set was measured.
    fn steps(&self) -> BTreeSet<u64> {
        self.sets().values().flatten().copied().collect()
    }

    /// The step of a set at a point.
    pub(super) fn step_of_point(&self, point: &Point, set: &str) -> Result<u64, CompareError> {
        self.check(point, &[set.to_owned()])?;
        self.step_of(set, point.step).ok_or_else(|| CompareError::NoStep {
            run: point.run.clone(),
            step: match point.step {
                Step::At(step) => step,
                Step::First | Step::Last => 0,
            },
            known: self.sets()[set].iter().map(u64::to_string).collect(),
        })
    }

    /// The step of a set that is meant.
    fn step_of(&self, set: &str, step: Step) -> Option<u64> {
        let steps = self.sets().get(set)?;
        match step {
            Step::First => steps.first().copied(),
            Step::Last => steps.last().copied(),
            Step::At(step) => steps.contains(&step).then_some(step),
        }
    }
}

/// The episodes of a problem at both points.
pub(super) type Pair<'a> = [Vec<&'a EpisodeRecord>; 2];

/// Compares a set; `None` where the points have no problem in common. Also returns the values of each problem.
fn compared(
    name: &str,
    steps: [u64; 2],
    measured: &[MeasuredSet; 2],
    runs: &[Validations; 2],
    options: &CompareOptions,
) -> Option<(Compared, Vec<Scores>)> {
    let [base, other] = [&measured[0], &measured[1]].map(|set| by_problem(set).len());
    let pairs = pairs(measured);
    let of_metric = |episode: &&EpisodeRecord| options.metric.of(episode);
    let scores = values(&pairs, of_metric);
    let mut groups: BTreeMap<String, Vec<Scores>> = BTreeMap::new();
    for (pair, scores) in pairs.iter().zip(&scores) {
        if let Some(group) = options.by.and_then(|by| by.of(pair[0].first()?)) {
            groups.entry(group).or_default().push(scores.clone());
        }
    }
    let groups = groups.into_iter();
    let groups = groups
        .filter_map(|(group, scores)| Some(MetricMeans { group, score: Difference::of(&scores)? }));
    let mut groups: Vec<MetricMeans> = groups.collect();
    correct(groups.iter_mut().map(|group| &mut group.score));
    let valid = |of: fn(&EpisodeRecord) -> f64| {
        Difference::of(&values(&pairs, |episode| episode.score.map(|_| of(episode))))
    };
    let failed = |set: &MeasuredSet| set.records.iter().filter(|e| e.score.is_none()).count();
    let set = Compared {
        set: name.to_owned(),
        steps,
        settings: changes(measured),
        unpaired: [base - pairs.len(), other - pairs.len()],
        failed: [failed(&measured[0]), failed(&measured[1])],
        score: Difference::of(&scores)?,
        turns: valid(|episode| f64::from(episode.turns))?,
        response_tokens: valid(|episode| episode.response_tokens as f64)?,
        environment_tokens: valid(|episode| episode.environment_tokens as f64)?,
        groups,
        analyses: options.analyses.then(|| {
            let modes = [0, 1].map(|at| measured[at].mode());
            analyses(runs, modes, &pairs)
        }),
    };
    Some((set, scores))
}

/// The problems that both points have, in the order of their ids.
pub(super) fn pairs(measured: &[MeasuredSet; 2]) -> Vec<Pair<'_>> {
    let [base, mut other] = [&measured[0], &measured[1]].map(by_problem);
    let both = |(id, episodes)| Some([episodes, other.remove(&id)?]);
    base.into_iter().filter_map(both).collect()
}

/// The episodes of each problem. Problems are the same where id and text are.
fn by_problem(set: &MeasuredSet) -> BTreeMap<(&str, &str), Vec<&EpisodeRecord>> {
    let mut problems: BTreeMap<(&str, &str), Vec<&EpisodeRecord>> = BTreeMap::new();
    for episode in &set.records {
        problems.entry((&episode.id, &episode.digest)).or_default().push(episode);
    }
    problems
}

/// A value of the episodes of each problem.
pub(super) fn values<T>(pairs: &[[Vec<T>; 2]], of: impl Fn(&T) -> Option<f64>) -> Vec<Scores> {
    let side = |episodes: &[T]| episodes.iter().filter_map(&of).collect();
    pairs.iter().map(|[base, other]| (side(base), side(other))).collect()
}

fn changes(measured: &[MeasuredSet; 2]) -> Vec<SettingChange> {
    let [base, other] = [&measured[0].info.settings, &measured[1].info.settings];
    let keys: BTreeSet<&String> = base.keys().chain(other.keys()).collect();
    let value = |settings: &serde_json::Map<String, Value>, key: &str| {
        settings.get(key).cloned().unwrap_or_default()
    };
    let change = |key: &String| SettingChange {
        key: key.clone(),
        values: [value(base, key), value(other, key)],
    };
    keys.into_iter().map(change).filter(|change| change.values[0] != change.values[1]).collect()
}

impl Metric {
    pub(super) fn of(self, episode: &EpisodeRecord) -> Option<f64> {
        match self {
            Self::Score => episode.score,
            Self::Success => episode.score.map(|_| f64::from(u8::from(episode.success))),
            Self::Reward => episode.reward,
        }
    }
}

impl Breakdown {
    fn of(self, episode: &EpisodeRecord) -> Option<String> {
        match self {
            Self::Kind => episode.kind.clone(),
            Self::Level => episode.level.clone(),
        }
    }
}

impl Difference {
    /// The difference of problems' values; `None` where no problem has values at both points.
    pub(super) fn of(problems: &[Scores]) -> Option<Self> {
        let found = paired(problems)?;
        let both = || problems.iter().filter(|(base, other)| !base.is_empty() && !other.is_empty());
        let average = |values: &[f64]| mean(values.iter().copied()).unwrap_or(0.0);
        let base = mean(both().map(|(base, _)| average(base)))?;
        let other = mean(both().map(|(_, other)| average(other)))?;
        Some(Self::new(&found, [base, other]))
    }

    fn new(found: &Paired, means: [f64; 2]) -> Self {
        Self {
            problems: found.problems,
            means,
            difference: found.difference,
            interval: found.bootstrap,
            p: found.p,
            p_corrected: found.p,
            test: found.test,
            better: found.better,
            worse: found.worse,
        }
    }
}

/// Corrects the p-values of a family of comparisons.
pub(super) fn correct<'a>(family: impl Iterator<Item = &'a mut Difference>) {
    let family: Vec<&mut Difference> = family.collect();
    let corrected = holm(&family.iter().map(|one| one.p).collect::<Vec<_>>());
    family.into_iter().zip(corrected).for_each(|(one, p)| one.p_corrected = p);
}

impl Point {
    /// Parses `RUN` or `RUN@STEP`; a directory whose name holds an `@` is taken as it is.
    pub fn parse(text: &Path, default: Step) -> Self {
        let split = text.to_str().filter(|_| !text.exists()).and_then(|text| text.rsplit_once('@'));
        match split.and_then(|(run, step)| Some((run, step.parse().ok()?))) {
            Some((run, step)) => Self { run: run.into(), step: Step::At(step) },
            None => Self { run: text.to_owned(), step: default },
        }
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
