//! Chooses problems of measured sets whose episodes are read beside each other.

use trajectory::Line;

use super::{
    CompareError, EpisodeRecord, Metric, Point, Validations,
    compare::{Pair, pairs},
};

/// The maximum number of chosen problems.
pub const MAX_PAIRS: usize = 50;

/// Problems of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpisodeChoice {
    /// The set.
    pub set: String,
    /// Which of its problems.
    pub problems: ProblemChoice,
}

/// Which problems of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemChoice {
    /// The one with this id.
    Id(String),
    /// The first ones with a higher value at the second point; those whose events exist come first.
    Gained(usize),
    /// The first ones with a lower value at the second point; those whose events exist come first.
    Lost(usize),
}

/// The episodes of a problem at both points.
#[derive(Clone, Debug, PartialEq)]
pub struct EpisodePair {
    /// The set.
    pub set: String,
    /// The steps.
    pub steps: [u64; 2],
    /// The first episode of the problem at each point.
    pub records: [EpisodeRecord; 2],
    /// The number of episodes of the problem at each point.
    pub members: [usize; 2],
}

/// Chosen problems, and where their events are.
#[derive(Clone, Debug)]
pub struct EpisodePairs {
    runs: [Validations; 2],
    /// The episodes, in the order of the choices.
    pub pairs: Vec<EpisodePair>,
}

impl EpisodePairs {
    /// Finds the episodes of chosen problems. `metric` decides which are gained or lost.
    pub fn find(
        points: [&Point; 2],
        metric: Metric,
        choices: &[EpisodeChoice],
    ) -> Result<Self, CompareError> {
        let runs = [Validations::find(&points[0].run)?, Validations::find(&points[1].run)?];
        let mut found: Vec<EpisodePair> = Vec::new();
        for EpisodeChoice { set, problems } in choices {
            let steps =
                [runs[0].step_of_point(points[0], set)?, runs[1].step_of_point(points[1], set)?];
            let measured = [runs[0].read(set, steps[0])?, runs[1].read(set, steps[1])?];
            let mut all = pairs(&measured);
            // Of problems that changed, those come first whose episodes can be shown.
            let is_hidden = |pair: &Pair<'_>| {
                [0, 1].iter().any(|at| pair[*at].first().is_none_or(|it| !runs[*at].has_events(it)))
            };
            all.sort_by_cached_key(is_hidden);
            let chosen = choose(all, metric, problems);
            if chosen.is_empty() {
                return Err(nothing(set, problems));
            }
            for pair in chosen {
                let [Some(first), Some(second)] = [0, 1].map(|at| pair[at].first().copied()) else {
                    continue;
                };
                let records = [first.clone(), second.clone()];
                let members = [pair[0].len(), pair[1].len()];
                let pair = EpisodePair { set: set.clone(), steps, records, members };
                if !found.contains(&pair) {
                    found.push(pair);
                }
            }
        }
        match found.len() {
            ..=MAX_PAIRS => Ok(Self { runs, pairs: found }),
            many => Err(CompareError::TooManyProblems { many }),
        }
    }

    /// Reads the events of both episodes of a pair; none where they are missing or cannot be read.
    pub fn events(&self, pair: &EpisodePair) -> [Option<Vec<Line>>; 2] {
        [0, 1].map(|at| self.runs[at].events(&pair.records[at]).ok())
    }
}

fn choose<'a>(pairs: Vec<Pair<'a>>, metric: Metric, problems: &ProblemChoice) -> Vec<Pair<'a>> {
    let value = |pair: &Pair<'_>, at: usize| {
        crate::stats::mean(pair[at].iter().filter_map(|episode| metric.of(episode)))
    };
    let changed = |pair: &Pair<'_>| Some(value(pair, 1)? - value(pair, 0)?);
    let all = pairs.into_iter();
    match problems {
        ProblemChoice::Id(id) => all.filter(|pair| pair[0][0].id == *id).collect(),
        ProblemChoice::Gained(most) => {
            all.filter(|pair| changed(pair).is_some_and(|it| it > 1e-12)).take(*most).collect()
        }
        ProblemChoice::Lost(most) => {
            all.filter(|pair| changed(pair).is_some_and(|it| it < -1e-12)).take(*most).collect()
        }
    }
}

fn nothing(set: &str, problems: &ProblemChoice) -> CompareError {
    let set = set.to_owned();
    match problems {
        ProblemChoice::Id(id) => CompareError::NoProblem { set, id: id.clone() },
        ProblemChoice::Gained(_) => CompareError::NoneChanged { set, how: "gained" },
        ProblemChoice::Lost(_) => CompareError::NoneChanged { set, how: "lost" },
    }
}
