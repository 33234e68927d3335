//! Results of validation sets of training runs: one record per episode, the settings they were played with, and paired
//! comparisons between steps and runs.
//!
//! Layout of a run: `validation/step-NNNNNN/NAME.jsonl` holds the records of a set, `NAME.json` its settings and metrics.
//! The latter is written last: without it a set is not complete. Knows no trainer.

mod compare;
mod record;
mod store;

pub use compare::{
    Breakdown, CompareError, CompareOptions, Compared, Comparison, Difference, Metric, MetricMeans,
    Point, SettingChange, Step, compare,
};
pub use record::{EpisodeRecord, MAX_ANSWER_BYTES, SetInfo, UNNAMED, VERSION};
pub use store::{MeasuredSet, StoreError, Validations, step_directory};
