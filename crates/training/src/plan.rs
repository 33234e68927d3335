//! Sequences packed into one tensor without padding, with the positions of the tokens to score. What several of them begin
//! with is there once. The layout is computed on the host, so as not to wait for the device.

use tch::{TchError, Tensor};

use crate::attention::{self, AttentionPath, Packing, Sequence};
use crate::error::TchResult;
use crate::net::Network;

/// One sequence.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Its tokens.
    pub tokens: &'a [u32],
    /// Which of them are scored, given all before; as long as `tokens`. The first is never scored.
    pub scored: &'a [bool],
}

/// Sequences that begin with the same tokens, which are computed once.
#[derive(Debug, Clone)]
pub struct RowGroup<'a> {
    /// The number of tokens they share.
    pub shared: usize,
    /// The sequences.
    pub rows: Vec<Row<'a>>,
}

/// A batch of sequences on a device.
#[derive(Debug)]
pub struct TokenBatch {
    /// The number of computed tokens.
    pub computed: usize,
    /// The number of scored tokens.
    pub scored: usize,
    /// `[computed]`, 64-bit integers.
    pub(crate) tokens: Tensor,
    /// Their positions in their sequences, `[computed]`.
    pub(crate) positions: Tensor,
    /// The length of the longest sequence.
    pub(crate) longest: i64,
    /// The sequences, for attention.
    pub(crate) packing: Packing,
    /// The indices of the predecessors of scored tokens in `tokens`; the same for several where they are shared.
    pub(crate) from: Tensor,
    /// The scored tokens themselves.
    pub(crate) targets: Tensor,
}

/// Sequences cannot be batched.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// There are no tokens.
    #[error("a batch needs at least one sequence of at least one token")]
    Empty,
    /// Sequences do not share what they are said to share.
    #[error("sequence {row} does not begin with the {shared} tokens of its group")]
    Prefix {
        /// The index of the sequence.
        row: usize,
        /// The tokens of the group's prefix.
        shared: usize,
    },
    /// The mask has another length than the tokens.
    #[error("sequence {row} has {tokens} tokens and a mask of {mask}")]
    Mask {
        /// The index of the sequence.
        row: usize,
        /// Its tokens.
        tokens: usize,
        /// The length of its mask.
        mask: usize,
    },
    /// A token is outside the vocabulary. On a GPU this would abort the process.
    #[error("token {token} of sequence {row} is not in the vocabulary of {vocabulary}")]
    Token {
        /// The index of the sequence.
        row: usize,
        /// The token.
        token: u32,
        /// The size of the vocabulary.
        vocabulary: i64,
    },
    /// A sequence is longer than the network supports.
    #[error("sequence {row} has {tokens} tokens, and the network supports {positions}")]
    TooLong {
        /// The index of the sequence.
        row: usize,
        /// Its tokens.
        tokens: usize,
        /// The maximum length.
        positions: i64,
    },
    /// libtorch failed.
    #[error("cannot create tensors")]
    Torch(#[source] TchError),
}

impl TokenBatch {
    /// How attention over it is computed.
    pub fn attention_path(&self) -> AttentionPath {
        self.packing.path()
    }
}

impl Network {
    /// Why attention over a batch is computed one sequence after another; `None` where one fused kernel computes all.
    pub fn packed_attention_disabled_reason(&self) -> Option<String> {
        let found = attention::packed(self.shape().head_dim, self.kind(), self.device());
        found.err().map(|error| error.to_string())
    }

    /// Packs sequences for this network, on its device. They share nothing.
    pub fn batch(&self, rows: &[Row<'_>]) -> Result<TokenBatch, BatchError> {
        let groups: Vec<RowGroup<'_>> =
            rows.iter().map(|row| RowGroup { shared: 0, rows: vec![*row] }).collect();
        self.batch_groups(&groups)
    }

    /// Packs groups of sequences, each of which shares a prefix.
    pub fn batch_groups(&self, groups: &[RowGroup<'_>]) -> Result<TokenBatch, BatchError> {
        let all = || groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)));
        let longest = all().map(|(_, row)| row.tokens.len()).max().unwrap_or(0);
        if longest == 0 {
            return Err(BatchError::Empty);
        }
        for (row, (group, sequence)) in all().enumerate() {
            self.check(row, sequence)?;
            let prefix = |row: &Row<'_>| row.tokens.get(..group.shared).map(<[u32]>::to_vec);
            if prefix(sequence).is_none() || prefix(sequence) != prefix(&group.rows[0]) {
                return Err(BatchError::Prefix { row, shared: group.shared });
            }
        }
        let mut layout = Layout::default();
        groups.iter().for_each(|group| layout.push(group));
        layout.into_batch(self, longest as i64).map_err(BatchError::Torch)
    }

    fn check(&self, row: usize, sequence: &Row<'_>) -> Result<(), BatchError> {
        let (tokens, mask) = (sequence.tokens.len(), sequence.scored.len());
        if tokens != mask {
            return Err(BatchError::Mask { row, tokens, mask });
        }
        let shape = self.shape();
        if tokens as i64 > shape.positions {
            return Err(BatchError::TooLong { row, tokens, positions: shape.positions });
        }
        match sequence.tokens.iter().find(|token| i64::from(**token) >= shape.vocabulary) {
            Some(&token) => Err(BatchError::Token { row, token, vocabulary: shape.vocabulary }),
            None => Ok(()),
        }
    }
}

#[derive(Default)]
struct Layout {
    tokens: Vec<i64>,
    positions: Vec<i64>,
    sequences: Vec<Sequence>,
    from: Vec<i64>,
    targets: Vec<i64>,
}

impl Layout {
    fn push(&mut self, group: &RowGroup<'_>) {
        let Some(first) = group.rows.first() else { return };
        // A prefix of one sequence would only split it.
        let shared = if group.rows.len() > 1 { group.shared } else { 0 };
        let begin = self.tokens.len();
        self.add_tokens(first, 0..shared, None);
        let prefix = (shared > 0).then(|| self.sequences.len() - 1);
        for row in &group.rows {
            let own = self.tokens.len();
            self.add_tokens(row, shared..row.tokens.len(), prefix);
            for (position, (token, scored)) in row.tokens.iter().zip(row.scored).enumerate().skip(1)
            {
                if *scored {
                    let before = position - 1;
                    let from = if before < shared { begin + before } else { own + before - shared };
                    self.from.push(from as i64);
                    self.targets.push(i64::from(*token));
                }
            }
        }
    }

    fn add_tokens(&mut self, row: &Row<'_>, range: std::ops::Range<usize>, prefix: Option<usize>) {
        if range.is_empty() {
            return;
        }
        self.sequences.push(Sequence { length: range.len() as i64, prefix });
        self.positions.extend(range.clone().map(|position| position as i64));
        self.tokens.extend(row.tokens[range].iter().map(|token| i64::from(*token)));
    }

    fn into_batch(self, net: &Network, longest: i64) -> TchResult<TokenBatch> {
        let device = net.device();
        let on_device = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        Ok(TokenBatch {
            computed: self.tokens.len(),
            scored: self.targets.len(),
            tokens: on_device(&self.tokens)?,
            positions: on_device(&self.positions)?,
            longest,
            packing: Packing::new(self.sequences, net.shape().head_dim, net.kind(), device)?,
            from: on_device(&self.from)?,
            targets: on_device(&self.targets)?,
        })
    }
}
