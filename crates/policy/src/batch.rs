//! Sequences packed into one tensor without padding, with the positions of the tokens to score. Tokens that a sequence
//! shares with the one before it are computed once, so that sorted sequences form a tree of their common prefixes. The
//! layout is computed on the host, so as not to wait for the device.

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
    /// The number of its first tokens that are those of the row before it and are computed with that row: 0 to share
    /// nothing. That row may share some of them with the one before, and so on.
    pub shared: usize,
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
    /// The pieces of sequences between the positions at which others branch off, for attention.
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
    /// A sequence does not share what it is said to share.
    #[error("sequence {row} does not begin with {shared} tokens of the one before it")]
    Prefix {
        /// The index of the sequence.
        row: usize,
        /// The tokens it is said to share.
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

    /// Packs sequences for this network, on its device. Scored tokens are in the order of the rows, shared or not.
    pub fn batch(&self, rows: &[Row<'_>]) -> Result<TokenBatch, BatchError> {
        let longest = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(0);
        if longest == 0 {
            return Err(BatchError::Empty);
        }
        let mut before: &[u32] = &[];
        for (at, row) in rows.iter().enumerate() {
            self.check(at, row)?;
            let prefix = row.tokens.get(..row.shared);
            if prefix.is_none() || prefix != before.get(..row.shared) {
                return Err(BatchError::Prefix { row: at, shared: row.shared });
            }
            before = row.tokens;
        }
        let mut layout = Layout::default();
        for (at, row) in rows.iter().enumerate() {
            layout.push(row, &rows[at + 1..]);
        }
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
    /// The indices of the tokens of the last row in `tokens`.
    path: Vec<usize>,
    /// The sequences the last row consists of: the position after the last token of each, and its index.
    pieces: Vec<(usize, usize)>,
}

impl Layout {
    /// Adds a row, given those that follow it.
    fn push(&mut self, row: &Row<'_>, later: &[Row<'_>]) {
        let begin = self.tokens.len();
        let own = &row.tokens[row.shared..];
        self.tokens.extend(own.iter().map(|token| i64::from(*token)));
        self.positions.extend((row.shared as i64..).take(own.len()));
        self.path.truncate(row.shared);
        self.path.extend((begin..).take(own.len()));
        self.pieces.retain(|(end, _)| *end <= row.shared);
        let mut start = row.shared;
        for end in piece_ends(row, later) {
            let prefix = self.pieces.last().map(|(_, sequence)| *sequence);
            self.pieces.push((end, self.sequences.len()));
            self.sequences.push(Sequence { length: (end - start) as i64, prefix });
            start = end;
        }
        let tokens = row.tokens.iter().zip(row.scored).skip(1).zip(&self.path);
        for ((token, _), before) in tokens.filter(|((_, scored), _)| **scored) {
            self.from.push(*before as i64);
            self.targets.push(i64::from(*token));
        }
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

/// The positions that end the pieces of a row's own tokens: those at which later rows branch off, and its last.
fn piece_ends(row: &Row<'_>, later: &[Row<'_>]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = row.tokens.len();
    if end > row.shared {
        ends.push(end);
    }
    for next in later.iter().take_while(|next| next.shared > row.shared) {
        if next.shared < end {
            end = next.shared;
            ends.push(end);
        }
    }
    ends.reverse();
    ends
}
