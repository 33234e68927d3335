//! Episodes for training: the same loop in the same sandboxes as always, with every token of the policy kept as it was
//! sampled, in groups that share a problem, with rewards.
//!
//! Knows neither libtorch nor how a policy learns.

mod record;
mod sampler;

pub use record::{End, Group, Loss, Played, Segment};
pub use sampler::{Ask, Choice, Flow, SampleEnd, SampleError, Sampled, Sampler, Until};
