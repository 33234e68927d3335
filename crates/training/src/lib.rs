//! Training in the sandbox: episodes become advantages, advantages gradients, gradients better weights.
//!
//! The loops, the algorithms (one file each), the optimiser, checkpoints and figures. Knows neither flags nor terminals,
//! and makes sandboxes only through the runtime it is given.

mod adamw;
mod batch;
mod chance;
mod checkpoint;
mod config;
mod crc;
mod data;
mod demonstrations;
mod episodes;
mod export;
mod grpo;
mod grpo_plus_plus;
mod learner;
mod metrics;
mod news;
mod objective;
mod origin;
mod outside;
mod recorded;
mod rl;
mod rloo;
mod run;
mod sampler;
mod setup;
mod sft;
mod tensorboard;
#[cfg(test)]
mod tiny;

pub use adamw::{AdamW, Memory, MemoryError, Optimiser, Stepped};
pub use batch::{Packed, Row, plan};
pub use chance::{Deck, mixed};
pub use checkpoint::{CheckpointError, Checkpoints, Position};
pub use config::*;
pub use data::DataError;
pub use episodes::{Keep, Notes, figures, rewards, rows};
pub use export::{Trained, trained};
pub use grpo::Grpo;
pub use grpo_plus_plus::GrpoPlusPlus;
pub use learner::{Importance, LearnError, Learner, Learnt, Lesson};
pub use metrics::{FILE as METRICS, Figures};
pub use news::{News, Unwatched, Watcher};
pub use objective::{Aggregation, Clip, Objective, Scores, Totals, has_spread};
pub use outside::{Ending, Outside, TrainError};
pub use recorded::RecordedError;
pub use rl::rl;
pub use rloo::Rloo;
pub use rollout::{Context, Mode, Overlong};
pub use run::{RunDirectory, RunError, read as begun_with};
pub use sampler::EngineSampler;
pub use setup::{Machine, SetupError, learner, network};
pub use sft::sft;
