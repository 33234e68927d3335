//! One attempt: one problem, played by one model, in a sandbox or as one plain call, and graded.
//!
//! [`play()`] is [`answer()`] followed by [`grade()`]. Benchmarks and rollouts call the halves, because they store the answer
//! or release the sampler in between; nothing else in this workspace plays problems. Start reading at [`play()`], then
//! [`Settings`]; the phases of an attempt in a sandbox are one module each: `sandboxes` (permits, warm pools, input files,
//! set-up), `collect` (the answer) and `grade`.
//!
//! Every attempt says whether its score is valid: see [`trajectory::Validity`]. A failure of the infrastructure is never
//! a score.
//!
//! This crate schedules nothing, stores nothing and knows no runtime and no vendor.
//!
//! ```
//! use lis_attempt::{Capability, LimitSettings, Settings};
//! use problems::Task;
//!
//! let task = Task::builtin("math").expect("a built-in task");
//! let limits = LimitSettings { turns: Some(20), ..LimitSettings::default() };
//! let settings = Settings { limits, without: [Capability::External].into(), ..Settings::default() };
//! assert_eq!(settings.limits(&task).turns, 20);
//! assert!(!settings.allows(Capability::External));
//! ```

mod collect;
mod event_log;
mod failure;
mod grade;
mod plain;
mod play;
mod sandboxes;
mod settings;

pub use collect::{Collected, answer_of, collect_directory};
pub use event_log::{EventFile, EventLog, now_ms};
pub use grade::{Graded, grade};
pub use play::{Attempt, Cancelled, Play, RetryPolicy, Retrying, answer, first_messages, play};
pub use sandboxes::{
    Reuse, Sandboxes, copy_input, create_directories, input_listing, try_sandbox, within,
};
pub use settings::{Capability, Documents, LimitSettings, Settings, UnknownCapability};
pub use trajectory::{Fault, Mode, Validity};
