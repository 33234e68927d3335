//! A network of a few thousand parameters, for tests.

use policy::{Architecture, Network, Output, Scaling, Shape};
use tch::{Device, Kind};

/// A network with random weights, always the same.
pub(crate) fn tiny(layers: i64, vocabulary: i64) -> Network {
    // Other tests run meanwhile: threads would mostly wait for each other.
    tch::set_num_threads(1);
    let shape = Shape {
        architecture: Architecture::Llama,
        hidden: 16,
        layers,
        heads: 2,
        kv_heads: 1,
        head_dim: 8,
        intermediate: 24,
        vocabulary,
        rope_theta: 10_000.0,
        rope_scaling: Scaling::None,
        norm_eps: 1e-5,
        output: Output::Tied,
        positions: 64,
    };
    Network::random(shape, 3, Device::Cpu, Kind::Float).unwrap()
}
