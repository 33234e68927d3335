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
mod episodes;
mod grpo;
mod grpo_plus_plus;
mod learner;
mod metrics;
mod objective;
mod rloo;
mod run;
mod sampler;
mod tensorboard;

pub use adamw::{AdamW, Memory, MemoryError, Optimiser, Stepped};
pub use batch::{Packed, Row, plan};
pub use chance::{Deck, mixed};
pub use checkpoint::{CheckpointError, Checkpoints, Position};
pub use config::*;
pub use episodes::{Keep, Notes, figures, rewards, rows};
pub use grpo::Grpo;
pub use grpo_plus_plus::GrpoPlusPlus;
pub use learner::{Importance, LearnError, Learner, Learnt, Lesson};
pub use metrics::{FILE as METRICS, Figures};
pub use objective::{Aggregation, Clip, Objective, Scores, Totals, has_spread};
pub use rloo::Rloo;
pub use run::{RunDirectory, RunError};
pub use sampler::EngineSampler;
