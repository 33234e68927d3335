//! Training in the sandbox: episodes become advantages, advantages gradients, gradients better weights.
//!
//! Contains the two training loops, the algorithms (one file each), the optimizer, checkpoints and metrics. Knows
//! neither flags nor terminals, and creates sandboxes only through the runtime it is given.
//!
//! Where to start reading: [`rl()`] for reinforcement learning, [`sft()`] for supervised fine-tuning; then [`Trainer`],
//! which takes a step, and [`Rloo`], the default algorithm.
//!
//! Doctests cannot be linked with libtorch, so this one is only compiled:
//!
//! ```no_run,standalone_crate
//! use lis_training::{Objective, RlConfig, Rloo};
//!
//! let text = r#"
//!     model = "smollm2-135m"
//!     output = "runs/first"
//!     steps = 200
//!     [data]
//!     train = ["tasks/train.jsonl"]
//! "#;
//! let config = RlConfig::parse(text, &["optimiser.rate=1e-5".to_owned()])?;
//! assert_eq!(config.optimizer.learning_rate, 1e-5);
//!
//! // The leave-one-out advantages of a group of three episodes.
//! let advantages = Rloo::default().advantages(&[Some(1.0), Some(0.0), Some(0.0)]);
//! assert_eq!(advantages, [1.0, -0.5, -0.5]);
//! # Ok::<(), lis_training::ConfigError>(())
//! ```

mod adamw;
mod backward;
mod batch;
mod checkpoint;
mod config;
mod crc;
mod data;
mod demonstrations;
mod draw;
mod episodes;
mod events;
mod export;
mod file_error;
mod grpo;
mod grpo_plus_plus;
mod metrics;
mod objective;
mod plan;
mod recordings;
mod remote;
mod rl;
mod rloo;
mod run;
mod sample;
mod scores;
mod selection;
mod services;
mod setup;
mod sft;
mod shuffle;
mod tensorboard;
#[cfg(test)]
mod test_network;
mod trainer;
mod validation;

pub use adamw::{AdamW, Optimizer, OptimizerState, OptimizerStateError, StepOutcome};
pub use batch::{Packed, Row};
pub use checkpoint::{CheckpointError, Checkpoints, Position};
pub use config::*;
pub use data::DataError;
pub use draw::Bucket;
pub use episodes::{Keep, Notes, metrics, rewards, rows};
pub use events::{NoObserver, Observer, RunEvent};
pub use export::{TrainedNetwork, trained_network};
pub use file_error::FileError;
pub use grpo::Grpo;
pub use grpo_plus_plus::GrpoPlusPlus;
pub use metrics::{FILE as METRICS_FILE, Metrics};
pub use objective::{Aggregation, Clip, Logprobs, Objective, Surrogate, Totals, has_spread};
pub use plan::{PassBudget, PlannedRow, plan};
pub use rl::rl;
pub use rloo::Rloo;
pub use rollout::{Documents, Mode, Overlong};
pub use run::{RunDirectory, RunError, read_config};
pub use sample::sample;
pub use sampling_http::ConnectError;
pub use services::{RunOutcome, Services, TrainError};
pub use setup::{Machine, SetupError, network, trainer};
pub use sft::sft;
pub use shuffle::ShuffledIndices;
pub use trainer::{ImportanceSampling, LossKind, StepError, StepStats, Trainer};
