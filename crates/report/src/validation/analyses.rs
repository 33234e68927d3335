//! What models did in a measured set, at both points: turns, tokens, limits, use of the sandbox, style of plain responses.
//!
//! Every measure is a value per episode, averaged within problems and then over them, so that it is compared as scores
//! are. Events are read one episode at a time; where they are missing, the measures that need them leave the episode out.
//! `docs/analyses.md` defines the classifiers and patterns.

use serde::{Serialize, Serializer};
use trajectory::{Event, Line, Mode, Stop};

use super::{
    EpisodeRecord, Validations,
    compare::{Compared, Difference, Pair, correct, values},
};
use crate::analysis::{
    AnswerStyle, Capabilities, Counts, StylePattern, StyleSummary, capabilities, plain_response,
    runs_program, turns,
};

/// What is measured of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measure {
    /// Responses of the model.
    Turns,
    /// Tokens of the environment.
    EnvironmentTokens,
    /// Sampled tokens.
    ResponseTokens,
    /// Whether the episode ended at a limit: of turns, tokens or time.
    AtLimit,
    /// Share of responses that were cut off at their token limit.
    CutOff,
    /// Share of turns that use a capability.
    TurnsUsing(Classifier, Capability),
    /// Whether any turn uses a capability, by what its commands and programs do.
    Uses(Capability),
    /// Share of turns that write or run a program.
    TurnsRunningPrograms,
    /// Whether any turn does.
    RunsPrograms,
    /// Words of a plain response.
    Words,
    /// Whether a plain response mentions verification.
    Verifies,
    /// Whether a plain response checks its own result.
    ChecksItself,
    /// Whether a plain response has a visible structure.
    IsStructured,
    /// Occurrences of a pattern in a plain response.
    Pattern(StylePattern),
}

/// How turns are classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classifier {
    /// By the paper's patterns.
    Paper,
    /// By what their commands and programs do.
    Extended,
}

/// What a turn uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Resources outside the sandbox.
    External,
    /// Files.
    File,
    /// Computation.
    Computation,
}

/// The behavior of a set at both points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetAnalyses {
    /// Whether the episodes have a sandbox; absent where this differs or is not recorded.
    pub mode: Option<Mode>,
    /// Episodes of each point whose events were read.
    pub read: [usize; 2],
    /// Episodes of each point whose events are missing or cannot be read.
    pub unread: [usize; 2],
    /// The measures that apply to the mode.
    pub measures: Vec<Measured>,
    /// Turns by capability, summed over the episodes of each point; of sandbox episodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<[Capabilities; 2]>,
    /// Patterns, summed over the responses of each point; of plain responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub styles: Option<[StyleSummary; 2]>,
}

/// A measure at both points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// What is measured.
    pub measure: Measure,
    /// The paired difference; p-values are corrected over the sets.
    #[serde(flatten)]
    pub difference: Difference,
}

/// An episode of a set, with what its events say.
struct Played<'a> {
    record: &'a EpisodeRecord,
    events: Option<EventFacts>,
}

/// What the events of an episode say.
struct EventFacts {
    cut_off: u64,
    /// Turns that write or run a program.
    programs: u64,
    capabilities: Capabilities,
    style: Option<AnswerStyle>,
}

impl EventFacts {
    fn of(lines: &[Line]) -> Self {
        let is_cut_off = |line: &&Line| matches!(&line.event, Event::Responded(response) if response.stop == Stop::Length);
        let text = plain_response(lines).filter(|text| !text.trim().is_empty());
        let turns = turns(lines);
        Self {
            programs: turns.iter().filter(|turn| runs_program(turn)).count() as u64,
            cut_off: lines.iter().filter(is_cut_off).count() as u64,
            capabilities: capabilities(&turns),
            style: text.map(AnswerStyle::of),
        }
    }
}

/// Measures the paired problems of a set.
pub(super) fn analyses(
    runs: &[Validations; 2],
    modes: [Option<Mode>; 2],
    pairs: &[Pair<'_>],
) -> SetAnalyses {
    let played: Vec<[Vec<Played<'_>>; 2]> = pairs
        .iter()
        .map(|pair| [0, 1].map(|at| pair[at].iter().map(|e| play(&runs[at], e)).collect()))
        .collect();
    let mode = modes[0].filter(|mode| Some(*mode) == modes[1]);
    let measured = Measure::of_mode(mode).into_iter().filter_map(|measure| {
        let difference = Difference::of(&values(&played, |episode| measure.of(episode)))?;
        Some(Measured { measure, difference })
    });
    let facts = |at: usize| played.iter().flat_map(move |pair| &pair[at]);
    let read = |at: usize| facts(at).filter_map(|episode| episode.events.as_ref());
    let sum = |at: usize| {
        let mut all = Capabilities::default();
        read(at).for_each(|events| all += events.capabilities);
        all
    };
    SetAnalyses {
        mode,
        read: [0, 1].map(|at| read(at).count()),
        unread: [0, 1].map(|at| facts(at).filter(|e| e.is_valid() && e.events.is_none()).count()),
        measures: measured.collect(),
        capabilities: (mode == Some(Mode::Sandbox)).then(|| [sum(0), sum(1)]),
        styles: (mode == Some(Mode::Llm))
            .then(|| [0, 1].map(|at| StyleSummary::of(read(at).filter_map(|events| events.style)))),
    }
}

/// Corrects the p-values of each measure over the sets.
pub(super) fn correct_over_sets(sets: &mut [Compared]) {
    let all =
        || [Mode::Sandbox, Mode::Llm].into_iter().flat_map(|mode| Measure::of_mode(Some(mode)));
    let mut done: Vec<Measure> = Vec::new();
    for measure in all() {
        if done.contains(&measure) {
            continue;
        }
        done.push(measure);
        let of_sets = sets.iter_mut().filter_map(|set| set.analyses.as_mut());
        let of_measure = of_sets
            .flat_map(|analyses| analyses.measures.iter_mut())
            .filter(|measured| measured.measure == measure);
        correct(of_measure.map(|measured| &mut measured.difference));
    }
}

/// Reads the events of an episode. One that the infrastructure failed says nothing about the model.
fn play<'a>(run: &Validations, record: &'a EpisodeRecord) -> Played<'a> {
    let lines = record.score.and_then(|_| run.events(record).ok());
    Played { record, events: lines.as_deref().map(EventFacts::of) }
}

impl Played<'_> {
    fn is_valid(&self) -> bool {
        self.record.score.is_some()
    }
}

impl Measure {
    /// The measures that apply to a mode, in the order they are shown.
    fn of_mode(mode: Option<Mode>) -> Vec<Self> {
        use Capability::{Computation, External, File};
        let each = [External, File, Computation];
        let mut all = vec![Self::ResponseTokens, Self::AtLimit];
        match mode {
            Some(Mode::Sandbox) => {
                all.extend([Self::Turns, Self::EnvironmentTokens, Self::CutOff]);
                all.extend(each.map(|used| Self::TurnsUsing(Classifier::Paper, used)));
                all.extend(each.map(|used| Self::TurnsUsing(Classifier::Extended, used)));
                all.extend(each.map(Self::Uses));
                all.extend([Self::TurnsRunningPrograms, Self::RunsPrograms]);
            }
            Some(Mode::Llm) => {
                all.extend([Self::Words, Self::Verifies, Self::ChecksItself, Self::IsStructured]);
                all.extend(StylePattern::ALL.map(Self::Pattern));
            }
            None => {}
        }
        all
    }

    /// Its name in files: such as `turns`, `paper/external` or `pattern/step`.
    pub fn name(self) -> String {
        match self {
            Self::Turns => "turns".into(),
            Self::EnvironmentTokens => "environment_tokens".into(),
            Self::ResponseTokens => "response_tokens".into(),
            Self::AtLimit => "at_limit".into(),
            Self::CutOff => "cut_off".into(),
            Self::TurnsUsing(Classifier::Paper, used) => format!("paper/{}", used.name()),
            Self::TurnsUsing(Classifier::Extended, used) => format!("extended/{}", used.name()),
            Self::Uses(used) => format!("uses/{}", used.name()),
            Self::TurnsRunningPrograms => "programs".into(),
            Self::RunsPrograms => "uses/programs".into(),
            Self::Words => "words".into(),
            Self::Verifies => "verifies".into(),
            Self::ChecksItself => "checks_itself".into(),
            Self::IsStructured => "structured".into(),
            Self::Pattern(pattern) => format!("pattern/{}", pattern.name()),
        }
    }

    /// Whether it is a share, from 0 to 1.
    pub fn is_share(self) -> bool {
        match self {
            Self::Turns | Self::EnvironmentTokens | Self::ResponseTokens => false,
            Self::Words | Self::Pattern(_) => false,
            Self::AtLimit | Self::CutOff | Self::TurnsUsing(..) | Self::Uses(_) => true,
            Self::TurnsRunningPrograms | Self::RunsPrograms => true,
            Self::Verifies | Self::ChecksItself | Self::IsStructured => true,
        }
    }

    /// The value of an episode; `None` where it has none, or its events were not read.
    fn of(self, episode: &Played<'_>) -> Option<f64> {
        let record = Some(episode.record).filter(|_| episode.is_valid())?;
        let events = episode.events.as_ref();
        let style = || events?.style;
        let yes = |is: bool| f64::from(u8::from(is));
        match self {
            Self::Turns => Some(f64::from(record.turns)),
            Self::EnvironmentTokens => Some(record.environment_tokens as f64),
            Self::ResponseTokens => Some(record.response_tokens as f64),
            Self::AtLimit => Some(yes(record.reached_limit())),
            Self::CutOff => {
                let Counts { turns, .. } = events?.capabilities.paper;
                share(events?.cut_off, turns)
            }
            Self::TurnsUsing(classifier, used) => {
                let counts = classifier.counts(&events?.capabilities);
                share(used.turns(&counts), counts.turns)
            }
            Self::Uses(used) => Some(yes(used.turns(&events?.capabilities.extended) > 0)),
            Self::TurnsRunningPrograms => share(events?.programs, events?.capabilities.paper.turns),
            Self::RunsPrograms => Some(yes(events?.programs > 0)),
            Self::Words => Some(style()?.words as f64),
            Self::Verifies => Some(yes(style()?.verifies())),
            Self::ChecksItself => Some(yes(style()?.checks_itself())),
            Self::IsStructured => Some(yes(style()?.is_structured())),
            Self::Pattern(pattern) => Some(style()?.count(pattern) as f64),
        }
    }
}

/// A share of an episode's turns; `None` where it has none.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl Classifier {
    fn counts(self, of: &Capabilities) -> Counts {
        match self {
            Self::Paper => of.paper,
            Self::Extended => of.extended,
        }
    }
}

impl Capability {
    fn name(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::File => "file",
            Self::Computation => "computation",
        }
    }

    fn turns(self, counts: &Counts) -> u64 {
        match self {
            Self::External => counts.external,
            Self::File => counts.file,
            Self::Computation => counts.computation,
        }
    }
}

#[cfg(test)]
#[path = "analyses_tests.rs"]
mod tests;
