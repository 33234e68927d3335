//! Sequences of different lengths as one tensor, padded on the right, with the positions of the tokens to score. The
//! layout is computed on the host, so as not to wait for the device.

use tch::{Device, TchError, Tensor};

use crate::net::Network;

/// One sequence.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Its tokens.
    pub tokens: &'a [u32],
    /// Which of them are scored, given all before; as long as `tokens`. The first is never scored.
    pub scored: &'a [bool],
}

/// A batch of sequences on a device.
#[derive(Debug)]
pub struct TokenBatch {
    /// `[batch, length]`, 64-bit integers, padded on the right with zeros.
    pub tokens: Tensor,
    /// `[batch, length - 1]`, booleans: whether the token after this position is scored.
    pub mask: Tensor,
    /// The number of sequences.
    pub batch: i64,
    /// The length of the longest one.
    pub length: i64,
    /// The indices of the predecessors of scored tokens in `[batch * length]`.
    pub(crate) from: Tensor,
    /// The indices of their scores in `[batch * (length - 1)]`.
    pub(crate) to: Tensor,
    /// The scored tokens themselves.
    pub(crate) targets: Tensor,
}

/// Sequences cannot be batched.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// There are no tokens.
    #[error("a batch needs at least one sequence of at least one token")]
    Empty,
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

impl Network {
    /// Batches sequences for this network, on its device.
    pub fn batch(&self, rows: &[Row<'_>]) -> Result<TokenBatch, BatchError> {
        let longest = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(0);
        if longest == 0 {
            return Err(BatchError::Empty);
        }
        for (row, sequence) in rows.iter().enumerate() {
            self.check(row, sequence)?;
        }
        let mut layout = Layout::default();
        for row in rows {
            layout.push(row, longest);
        }
        layout
            .into_tensors(self.device(), rows.len() as i64, longest as i64)
            .map_err(BatchError::Torch)
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
    rows: i64,
    tokens: Vec<i64>,
    mask: Vec<bool>,
    from: Vec<i64>,
    to: Vec<i64>,
    targets: Vec<i64>,
}

impl Layout {
    fn push(&mut self, row: &Row<'_>, longest: usize) {
        let padding = longest - row.tokens.len();
        self.tokens.extend(row.tokens.iter().map(|token| i64::from(*token)));
        self.tokens.extend(std::iter::repeat_n(0, padding));
        let longest = longest as i64;
        for (position, (token, scored)) in row.tokens.iter().zip(row.scored).enumerate().skip(1) {
            self.mask.push(*scored);
            if *scored {
                let before = position as i64 - 1;
                self.from.push(self.rows * longest + before);
                self.to.push(self.rows * (longest - 1) + before);
                self.targets.push(i64::from(*token));
            }
        }
        let width = (self.rows + 1) * (longest - 1);
        self.mask.resize(width as usize, false);
        self.rows += 1;
    }

    fn into_tensors(
        self,
        device: Device,
        batch: i64,
        length: i64,
    ) -> crate::error::TchResult<TokenBatch> {
        let on_device = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        Ok(TokenBatch {
            tokens: on_device(&self.tokens)?.f_view([batch, length])?,
            mask: Tensor::f_from_slice(&self.mask)?
                .f_to_device(device)?
                .f_view([batch, length - 1])?,
            batch,
            length,
            from: on_device(&self.from)?,
            to: on_device(&self.to)?,
            targets: on_device(&self.targets)?,
        })
    }
}
