//! A network of a few thousand numbers, for tests.

use policy::{Architecture, Net, Output, Scaling, Shape};
use tch::{Device, Kind};

/// A random one, always the same.
pub(crate) fn tiny(layers: i64, vocabulary: i64) -> Net {
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
    Net::random(shape, 3, Device::Cpu, Kind::Float).unwrap()
}
