//! The shape of a network: its family and its sizes, checked once, so that everything behind may count on them.
//! Refuses to know files, tensors and devices.

/// The families of networks that are known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama, and what shares its layers (SmolLM2 and others).
    Llama,
    /// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values.
    Qwen2,
    /// Qwen3: Llama with norms on the heads of queries and keys.
    Qwen3,
}

/// Where the scores of the vocabulary come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The embedding, used a second time.
    Tied,
    /// A matrix of its own.
    Own,
}

/// How rotary frequencies are stretched for long contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All by one factor.
    Linear {
        /// How many times slower every frequency turns.
        factor: f64,
    },
    /// Llama 3: slow frequencies by a factor, fast ones not, those between by a blend.
    Llama3 {
        /// How many times slower the slow frequencies turn.
        factor: f64,
        /// Frequencies turning less often than this in the original context are slow.
        low: f64,
        /// Frequencies turning more often than this in the original context are fast.
        high: f64,
        /// The original context in tokens.
        original: f64,
    },
}

/// The sizes of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The family.
    pub architecture: Architecture,
    /// Width of the residual stream.
    pub hidden: i64,
    /// Number of layers.
    pub layers: i64,
    /// Heads of queries.
    pub heads: i64,
    /// Heads of keys and values; a divisor of `heads`.
    pub kv_heads: i64,
    /// Width of a head; even.
    pub head_dim: i64,
    /// Width between the projections of the feed-forward part.
    pub intermediate: i64,
    /// Rows of the embedding.
    pub vocabulary: i64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How the rotary frequencies are stretched.
    pub rope_scaling: Scaling,
    /// What the norms add to the mean square.
    pub norm_eps: f64,
    /// Where the scores of the vocabulary come from.
    pub output: Output,
    /// Tokens of the longest sequence the network was made for.
    pub positions: i64,
}

/// A shape that no network can have.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ShapeError {
    /// A size is out of bounds.
    #[error("{name} is {value}, and must lie between 1 and {most}")]
    Size {
        /// Which size.
        name: &'static str,
        /// What it is.
        value: i64,
        /// The largest that is accepted.
        most: i64,
    },
    /// Heads cannot be shared out.
    #[error("{heads} heads of queries cannot share {kv_heads} heads of keys evenly")]
    Heads {
        /// Heads of queries.
        heads: i64,
        /// Heads of keys and values.
        kv_heads: i64,
    },
    /// Rotary positions turn pairs.
    #[error("heads of {0} numbers cannot be turned in pairs")]
    OddHead(i64),
    /// A number that must be positive and finite is not.
    #[error("{name} is {value}, and must be positive and finite")]
    Number {
        /// Which number.
        name: &'static str,
        /// What it is.
        value: f64,
    },
}

impl Shape {
    /// Refuses sizes that no network has, whose arithmetic could overflow, or that do not fit each other.
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
        if let Some(&(name, value, most)) =
            sizes.iter().find(|(_, value, most)| !(1..=*most).contains(value))
        {
            return Err(ShapeError::Size { name, value, most });
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

    /// Rows of the queries' projection.
    pub fn query_rows(&self) -> i64 {
        self.heads * self.head_dim
    }

    /// Rows of the keys' projection, and of the values'.
    pub fn key_rows(&self) -> i64 {
        self.kv_heads * self.head_dim
    }
}
