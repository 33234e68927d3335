//! Results of validation sets of training runs: one record per episode, the settings they were played with, and paired
//! comparisons between steps and runs.
//!
//! [`compare()`] pairs scores, turns and tokens, and on request what models did; [`markdown()`] renders the latter.
//! Layout of a run: `validation/step-NNNNNN/NAME.jsonl` holds the records of a set, `NAME.json` its settings and metrics.
//! The latter is written last: without it a set is not complete. Knows no trainer.

mod analyses;
mod compare;
mod episodes;
mod markdown;
mod record;
mod store;

pub use analyses::{Capability, Classifier, Measure, Measured, SetAnalyses};
pub use compare::{
    Breakdown, CompareError, CompareOptions, Compared, Comparison, Difference, Metric, MetricMeans,
    Point, SettingChange, Step, compare,
};
pub use episodes::{EpisodeChoice, EpisodePair, EpisodePairs, MAX_PAIRS, ProblemChoice};
pub use markdown::markdown;
pub use record::{EpisodeRecord, MAX_ANSWER_BYTES, SetInfo, UNNAMED, VERSION};
pub use store::{MeasuredSet, StoreError, Validations, step_directory};
