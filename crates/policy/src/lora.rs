//! Adapters of low rank: next to a frozen projection, a product of two thin matrices that alone is trained. They can be
//! added for training and merged for sampling and export. Refuses to know files and optimisers.

use tch::Tensor;

use crate::error::Fallible;
use crate::net::Net;
use crate::noise::Noise;
use crate::shape::Shape;

/// A projection that can be adapted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Queries.
    Query,
    /// Keys.
    Key,
    /// Values.
    Value,
    /// From the heads back.
    Output,
    /// The gate of the feed-forward part.
    Gate,
    /// What is gated.
    Up,
    /// From the feed-forward part back.
    Down,
}

/// What an adapter is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Lora {
    /// Width of the products.
    pub rank: i64,
    /// The products are scaled by `alpha / rank`.
    pub alpha: f64,
    /// The projections that get one, in every layer.
    pub targets: Vec<Target>,
    /// Seed of the first factors.
    pub seed: u64,
}

/// An adapter that cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum LoraError {
    /// The rank is none.
    #[error("a rank of {rank} does not lie between 1 and {most}")]
    Rank {
        /// What was asked.
        rank: i64,
        /// The narrowest side of the projections.
        most: i64,
    },
    /// The scale is none.
    #[error("an alpha of {0} is not positive and finite")]
    Alpha(f64),
    /// Nothing is adapted.
    #[error("no projection is adapted")]
    NoTargets,
    /// There is one already.
    #[error("the net has an adapter already")]
    Already,
    /// libtorch refused.
    #[error("its tensors cannot be made")]
    Torch(#[from] tch::TchError),
}
