//! Rollouts: attempts for training, in groups that share a problem, with every sampled token kept and a reward.
//!
//! Start reading at [`RolloutEngine`], then [`Rollout`]. Attempts are played by `lis-attempt`; this crate adds what training
//! needs: [`PolicyModel`], a model that keeps its tokens, [`ChatCodec`], text from and to tokens, and rewards. It knows
//! neither libtorch nor how a policy learns.
//!
//! ```
//! use lis_rollout::{Overlong, RolloutSettings};
//!
//! let settings = RolloutSettings { sandboxes: 64, overlong: Overlong::Mask, ..RolloutSettings::default() };
//! # assert_eq!(settings.retry.tries, 3);
//! ```

mod codec;
mod demonstration;
mod early_stop;
mod engine;
mod episode;
mod error;
mod open_groups;
mod policy;
mod rollout;
mod scripted;
mod seed;
mod settings;
mod shaping;
mod token_stream;

pub use attempt::{Documents, Mode};
pub use codec::{ChatCodec, CodecError};
pub use demonstration::{DemonstrationError, demonstration};
pub use engine::{EngineParts, PlayProgress, RolloutEngine, RolloutRequest};
pub use error::RolloutError;
pub use open_groups::OpenGroups;
pub use policy::PolicyModel;
pub use rollout::{End, Group, Loss, Rollout, Segment};
pub use sampling::{
    Flow, SampleEnd, SampleError, SampleRequest, Sampled, Sampler, SamplingParams, Until,
};
pub use settings::{CustomReward, Overlong, Reward, RolloutSettings};
pub use shaping::Shaping;
