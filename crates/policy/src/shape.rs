//! The shape of a network: its architecture and its sizes, checked once so that all other code may rely on them.

/// The supported architectures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama, and what shares its layers (SmolLM2 and others).
    Llama,
    /// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values.
    Qwen2,
    /// Qwen3: Llama with norms on the heads of queries and keys.
    Qwen3,
}

/// The output projection to logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Tied to the embedding.
    Tied,
    /// A separate matrix.
    Own,
}

/// How rotary frequencies are scaled for long contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Not scaled.
    None,
    /// All by one factor.
    Linear {
        /// The divisor of all frequencies.
        factor: f64,
    },
    /// Llama 3: low frequencies by a factor, high ones not, those between interpolated.
    Llama3 {
        /// The divisor of low frequencies.
        factor: f64,
        /// Frequencies with fewer rotations than this in the original context are low.
        low: f64,
        /// Frequencies with more rotations than this in the original context are high.
        high: f64,
        /// The original context, in tokens.
        original: f64,
    },
}

/// The sizes of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The architecture.
    pub architecture: Architecture,
    /// Width of the hidden states.
    pub hidden: i64,
    /// Number of layers.
    pub layers: i64,
    /// Query heads.
    pub heads: i64,
    /// Key-value heads; a divisor of `heads`.
    pub kv_heads: i64,
    /// Width of a head; even.
    pub head_dim: i64,
    /// Inner width of the feed-forward part.
    pub intermediate: i64,
    /// Size of the vocabulary.
    pub vocabulary: i64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How the rotary frequencies are scaled.
    pub rope_scaling: Scaling,
    /// Epsilon of the norms.
    pub norm_eps: f64,
    /// The output projection to logits.
    pub output: Output,
    /// Maximum sequence length, in tokens.
    pub positions: i64,
}

/// An invalid shape.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ShapeError {
    /// A size is out of range.
    #[error("{name} is {value}, and must be between 1 and {max}")]
    Size {
        /// The size.
        name: &'static str,
        /// Its value.
        value: i64,
        /// The maximum.
        max: i64,
    },
    /// The query heads are not a multiple of the key-value heads.
    #[error("{heads} query heads are not a multiple of {kv_heads} key-value heads")]
    Heads {
        /// Query heads.
        heads: i64,
        /// Key-value heads.
        kv_heads: i64,
    },
    /// Rotary positions need an even head size.
    #[error("the head size {0} is odd")]
    OddHead(i64),
    /// A number that must be positive and finite is not.
    #[error("{name} is {value}, and must be positive and finite")]
    Number {
        /// The number.
        name: &'static str,
        /// Its value.
        value: f64,
    },
}

impl Shape {
    /// Checks that sizes are in range, cannot overflow, and fit each other.
    pub fn check(&self) -> Result<(), ShapeError> {
        let sizes = [
            ("the hidden size", self.hidden, 1 << 17),
            ("the number of layers", self.layers, 1 << 10),
            ("the number of heads", self.heads, 1 << 10),
            ("the number of key heads", self.kv_heads, 1 << 10),
            ("the size of a head", self.head_dim, 1 << 10),
            ("the intermediate size", self.intermediate, 1 << 20),
            ("the size of the vocabulary", self.vocabulary, 1 << 24),
            ("the number of positions", self.positions, 1 << 26),
        ];
        if let Some(&(name, value, max)) =
            sizes.iter().find(|(_, value, max)| !(1..=*max).contains(value))
        {
            return Err(ShapeError::Size { name, value, max });
        }
        if self.heads % self.kv_heads != 0 {
            return Err(ShapeError::Heads { heads: self.heads, kv_heads: self.kv_heads });
        }
        if self.head_dim % 2 != 0 {
            return Err(ShapeError::OddHead(self.head_dim));
        }
        let mut numbers = vec![
            ("the base of the rotary frequencies", self.rope_theta),
            ("the norms' epsilon", self.norm_eps),
        ];
        match self.rope_scaling {
            Scaling::None => {}
            Scaling::Linear { factor } => numbers.push(("the rotary factor", factor)),
            Scaling::Llama3 { factor, low, high, original } => numbers.extend([
                ("the rotary factor", factor),
                ("the low rotary factor", low),
                ("the span between the rotary factors", high - low),
                ("the original context", original),
            ]),
        }
        match numbers.into_iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            Some((name, value)) => Err(ShapeError::Number { name, value }),
            None => Ok(()),
        }
    }

    /// Rows of the query projection.
    pub fn query_rows(&self) -> i64 {
        self.heads * self.head_dim
    }

    /// Rows of the key projection, and of the value projection.
    pub fn key_rows(&self) -> i64 {
        self.kv_heads * self.head_dim
    }

    /// The memory of a copy of a token's keys and values, relative to all that a training pass stores of a token: its
    /// share of what limits the length of a pass, by estimate. That of autograd: the manual pass of an adapter stores less.
    pub fn copy_cost(&self) -> f64 {
        // Inputs of both parts and their norms; queries, keys, values and what they attend to; gate, up and their product.
        let copied = 2 * self.key_rows();
        let stored = 4 * self.hidden + 2 * self.query_rows() + copied + 4 * self.intermediate;
        copied as f64 / stored.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use crate::perf;

    #[test]
    fn copies_cost_little_where_heads_share_keys() {
        let cost = |name: &str| perf::named_shape(name).unwrap().copy_cost();
        assert!((0.005..0.02).contains(&cost("qwen2.5-1.5b")), "{}", cost("qwen2.5-1.5b"));
        assert!((0.05..0.1).contains(&cost("qwen3-0.6b")), "{}", cost("qwen3-0.6b"));
    }
}
