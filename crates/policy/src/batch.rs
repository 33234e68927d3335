//! Sequences of different lengths as tensors of one: padded on the right, with the places of the tokens to be scored.
//! Everything is laid out on the host, so that no device has to be waited for. Refuses to know rewards and text.

use tch::{Device, TchError, Tensor};

use crate::net::Net;

/// One sequence.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Its tokens.
    pub tokens: &'a [u32],
    /// Which of them are to be scored, given all before; as long as `tokens`. The first has nothing before it and is
    /// never scored.
    pub scored: &'a [bool],
}

/// Sequences on a device.
#[derive(Debug)]
pub struct Tokens {
    /// `[batch, length]`, 64-bit integers, padded on the right with zeros.
    pub tokens: Tensor,
    /// `[batch, length - 1]`, booleans: whether the token after this position is scored.
    pub mask: Tensor,
    /// Sequences.
    pub batch: i64,
    /// Tokens of the longest.
    pub length: i64,
    /// Where the scored tokens' predecessors are in `[batch * length]`.
    pub(crate) from: Tensor,
    /// Where their scores go in `[batch * (length - 1)]`.
    pub(crate) to: Tensor,
    /// The scored tokens themselves.
    pub(crate) targets: Tensor,
}

/// Sequences that cannot be a batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// There is nothing.
    #[error("a batch needs at least one sequence of at least one token")]
    Empty,
    /// Tokens and marks differ in number.
    #[error("sequence {row} has {tokens} tokens and {marks} marks")]
    Marks {
        /// Which sequence.
        row: usize,
        /// Its tokens.
        tokens: usize,
        /// Its marks.
        marks: usize,
    },
    /// A token that the net does not know. On a GPU this would end the process.
    #[error("token {token} of sequence {row} is none of the net's {vocabulary}")]
    Token {
        /// Which sequence.
        row: usize,
        /// The token.
        token: u32,
        /// How many the net knows.
        vocabulary: i64,
    },
    /// A sequence is longer than the net was made for.
    #[error("sequence {row} has {tokens} tokens, and the net was made for {positions}")]
    Long {
        /// Which sequence.
        row: usize,
        /// Its tokens.
        tokens: usize,
        /// The most.
        positions: i64,
    },
    /// libtorch refused.
    #[error("its tensors cannot be made")]
    Torch(#[source] TchError),
}

impl Net {
    /// Lays sequences out for this net, on its device.
    pub fn batch(&self, rows: &[Row<'_>]) -> Result<Tokens, BatchError> {
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
        layout.on(self.device(), rows.len() as i64, longest as i64).map_err(BatchError::Torch)
    }

    fn check(&self, row: usize, sequence: &Row<'_>) -> Result<(), BatchError> {
        let (tokens, marks) = (sequence.tokens.len(), sequence.scored.len());
        if tokens != marks {
            return Err(BatchError::Marks { row, tokens, marks });
        }
        let shape = self.shape();
        if tokens as i64 > shape.positions {
            return Err(BatchError::Long { row, tokens, positions: shape.positions });
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
        let marks = (self.rows + 1) * (longest - 1);
        self.mask.resize(marks as usize, false);
        self.rows += 1;
    }

    fn on(self, device: Device, batch: i64, length: i64) -> crate::error::Fallible<Tokens> {
        let there = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        Ok(Tokens {
            tokens: there(&self.tokens)?.f_view([batch, length])?,
            mask: Tensor::f_from_slice(&self.mask)?
                .f_to_device(device)?
                .f_view([batch, length - 1])?,
            batch,
            length,
            from: there(&self.from)?,
            to: there(&self.to)?,
            targets: there(&self.targets)?,
        })
    }
}
