//! Episodes for training: the same loop in the same sandboxes as always, with every token of the policy kept as it was
//! sampled, in groups that share a problem, with rewards.
//!
//! Knows neither libtorch nor how a policy learns.

mod computer;
mod demonstration;
mod ending;
mod episode;
mod error;
mod journal;
mod method;
mod plain;
mod play;
mod policy;
mod recital;
mod record;
mod sampler;
mod seed;
mod speech;
mod stage;
mod stream;

pub use demonstration::{DemonstrationError, demonstration};
pub use error::PlayError;
pub use method::{Context, Method, Mode, Overlong, OwnReward, Reward};
pub use play::Order;
pub use policy::PolicyModel;
pub use record::{End, Group, Loss, Played, Segment};
pub use sampler::{Ask, Choice, Flow, SampleEnd, SampleError, Sampled, Sampler, Until};
pub use speech::{Speech, SpeechError};
pub use stage::{Scene, Stage};
