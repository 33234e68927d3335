//! Causal attention over packed sequences: all tokens of a batch in one tensor, sequence after sequence, without padding.
//! Several sequences may begin with the same tokens, the prefix, which are then there once: the rest of each attends to
//! the prefix and to itself. A prefix may have a prefix itself, so that sequences form trees.
//!
//! On a GPU with matrix instructions in 16 bits one fused kernel computes all sequences. Elsewhere they are computed one
//! after another, which gives the same numbers up to rounding. Knows no projections and no positions.

use std::{cell::OnceCell, ops::Range};

use tch::{Device, Kind, TchError, Tensor};

use crate::error::TchResult;
use crate::graph::{Attended, Cuda, CudaError, PackedHeads};

/// The widest head of the fused kernel; widths must be multiples of 8.
const MAX_FUSED_HEAD: i64 = 256;

/// How attention over a batch is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionPath {
    /// All sequences in one fused kernel.
    Packed,
    /// One sequence after another.
    Each,
}

/// The fused kernel for heads of this width and element type on a device, or why it cannot be used.
pub(crate) fn packed(head_dim: i64, kind: Kind, device: Device) -> Result<Cuda, CudaError> {
    if !device.is_cuda() {
        return Err(CudaError::NotOnDevice);
    }
    suitable(head_dim, kind).map_err(CudaError::Unsuitable)?;
    Cuda::with_matrix_instructions(device)
}

/// Whether the fused kernel is made for heads of this width and element type.
fn suitable(head_dim: i64, kind: Kind) -> Result<(), &'static str> {
    let checks = [
        (matches!(kind, Kind::BFloat16 | Kind::Half), "the network is not in 16 bits"),
        (head_dim % 8 == 0, "the size of a head is not a multiple of 8"),
        (head_dim <= MAX_FUSED_HEAD, "the size of a head is above 256"),
    ];
    match checks.into_iter().find(|(met, _)| !met) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}

/// The layout of packed sequences.
#[derive(Debug)]
pub(crate) struct Packing {
    /// In the order of their tokens; together they are all tokens.
    sequences: Vec<Sequence>,
    device: Device,
    fused: Option<Fused>,
}

/// Consecutive tokens that attend to themselves, to all of an earlier sequence, and to what that one attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// The number of its tokens, at least 1.
    pub(crate) length: i64,
    /// The index of the sequence it continues, which is an earlier one and may have a prefix itself.
    pub(crate) prefix: Option<usize>,
}

/// What the fused kernel needs besides the heads.
#[derive(Debug)]
struct Fused {
    cuda: Cuda,
    query_ends: Tensor,
    key_ends: Tensor,
    longest: [i64; 2],
    /// Found when first needed.
    uses: OnceCell<KeyUses>,
}

/// Where the keys and values of each token are attended to, among those of all sequences.
#[derive(Debug)]
pub(crate) struct KeyUses {
    /// `[tokens + 1]`, 32-bit integers: where the places of a token begin, and those of the last one end.
    pub(crate) offsets: Tensor,
    /// `[keys]`, 32-bit integers: the places of all tokens.
    pub(crate) places: Tensor,
    /// The number of places.
    pub(crate) keys: i64,
}

/// Queries, keys and values: `[tokens, heads, head_dim]`, with fewer heads for keys and values where they are shared.
pub(crate) struct Heads {
    pub(crate) queries: Tensor,
    pub(crate) keys: Tensor,
    pub(crate) values: Tensor,
}

impl Packing {
    /// Lays out sequences for heads of this width and element type on a device.
    pub(crate) fn new(
        sequences: Vec<Sequence>,
        head_dim: i64,
        kind: Kind,
        device: Device,
    ) -> TchResult<Self> {
        let mut packing = Self { sequences, device, fused: None };
        if let Ok(cuda) = packed(head_dim, kind, device) {
            packing.fused = Some(packing.fuse(cuda)?);
        }
        Ok(packing)
    }

    /// How attention is computed.
    pub(crate) fn path(&self) -> AttentionPath {
        match &self.fused {
            Some(_) => AttentionPath::Packed,
            None => AttentionPath::Each,
        }
    }

    /// `count` sequences of the same length that share nothing.
    pub(crate) fn regular(count: i64, length: i64) -> Vec<Sequence> {
        (0..count).map(|_| Sequence { length, prefix: None }).collect()
    }

    /// The sequences that a sequence attends to, in the order of their positions; the last is itself.
    fn chain(&self, at: usize) -> Vec<usize> {
        let mut chain: Vec<usize> =
            std::iter::successors(Some(at), |at| self.sequences[*at].prefix).collect();
        chain.reverse();
        chain
    }

    /// The tokens that each sequence attends to, in the order of their positions; the last range is its own.
    pub(crate) fn key_ranges(&self) -> Vec<Vec<Range<i64>>> {
        let mut end = 0;
        let own = self.sequences.iter().map(|sequence| {
            end += sequence.length;
            end - sequence.length..end
        });
        let own: Vec<Range<i64>> = own.collect();
        let ranges = |at| self.chain(at).into_iter().map(|part| own[part].clone()).collect();
        (0..own.len()).map(ranges).collect()
    }

    fn fuse(&self, cuda: Cuda) -> TchResult<Fused> {
        let queries: Vec<i64> = self.sequences.iter().map(|sequence| sequence.length).collect();
        let sum =
            |ranges: &Vec<Range<i64>>| ranges.iter().map(|range| range.end - range.start).sum();
        let keys: Vec<i64> = self.key_ranges().iter().map(sum).collect();
        let ends = |lengths: &[i64]| {
            let mut end = 0;
            let ends = lengths.iter().map(|length| {
                end += length;
                i32::try_from(end).unwrap_or(i32::MAX)
            });
            let all: Vec<i32> = std::iter::once(0).chain(ends).collect();
            Tensor::f_from_slice(&all)?.f_to_device(self.device)
        };
        // With one query each, libtorch takes a kernel for sampling, which has no gradient.
        let most = |lengths: &[i64]| lengths.iter().copied().max().unwrap_or(0).max(2);
        Ok(Fused {
            cuda,
            query_ends: ends(&queries)?,
            key_ends: ends(&keys)?,
            longest: [most(&queries), most(&keys)],
            uses: OnceCell::new(),
        })
    }

    fn key_uses(&self) -> TchResult<KeyUses> {
        // The tokens whose keys each sequence attends to, sequence after sequence.
        let tokens: Vec<usize> =
            self.key_ranges().into_iter().flatten().flatten().map(|token| token as usize).collect();
        let count = self.sequences.iter().map(|sequence| sequence.length).sum::<i64>();
        let mut offsets = vec![0i32; usize::try_from(count).unwrap_or_default() + 1];
        tokens.iter().for_each(|token| offsets[token + 1] += 1);
        for at in 1..offsets.len() {
            offsets[at] += offsets[at - 1];
        }
        let (mut next, mut places) = (offsets.clone(), vec![0i32; tokens.len()]);
        for (place, token) in (0i32..).zip(&tokens) {
            places[next[*token] as usize] = place;
            next[*token] += 1;
        }
        let on_device = |all: &[i32]| Tensor::f_from_slice(all)?.f_to_device(self.device);
        Ok(KeyUses {
            offsets: on_device(&offsets)?,
            places: on_device(&places)?,
            keys: tokens.len() as i64,
        })
    }

    /// What our own kernels need to compute attention without autograd; `None` where the fused kernel is not used.
    pub(crate) fn fused(&self) -> Option<FusedAttention<'_>> {
        self.fused.as_ref().map(|fused| FusedAttention { packing: self, fused })
    }

    /// Attention: `[tokens, heads * head_dim]`.
    pub(crate) fn attend(&self, heads: &Heads) -> TchResult<Tensor> {
        match &self.fused {
            Some(fused) => self.attend_fused(fused, heads),
            None => self.attend_each(heads),
        }
    }

    fn attend_fused(&self, fused: &Fused, heads: &Heads) -> TchResult<Tensor> {
        let together = |tensor: &Tensor| -> TchResult<Tensor> {
            if self.sequences.iter().all(|sequence| sequence.prefix.is_none()) {
                return Ok(tensor.shallow_clone());
            }
            let parts: Vec<Tensor> = self.with_prefixes(tensor)?.into_iter().flatten().collect();
            Tensor::f_cat(&parts, 0)
        };
        let (keys, values) = (together(&heads.keys)?, together(&heads.values)?);
        let packed = fused.packed([&heads.queries, &keys, &values]);
        fused.cuda.attention(packed).map_err(torch_error)?.f_flatten(1, -1)
    }

    /// The parts of keys or values that each sequence attends to, in order.
    ///
    /// A prefix is expanded once and taken apart, so that the gradients of all its uses are added in one operation.
    fn with_prefixes(&self, tensor: &Tensor) -> TchResult<Vec<Vec<Tensor>>> {
        let own = self.split(tensor)?;
        let chains: Vec<Vec<usize>> = (0..own.len()).map(|at| self.chain(at)).collect();
        let mut uses = vec![0; own.len()];
        chains.iter().flatten().for_each(|at| uses[*at] += 1);
        let mut copies = Vec::with_capacity(own.len());
        for (part, uses) in own.iter().zip(&uses) {
            copies.push(match uses {
                1 => vec![part.shallow_clone()],
                &uses => {
                    let sizes: Vec<i64> = std::iter::once(uses).chain(part.size()).collect();
                    part.f_unsqueeze(0)?.f_expand(sizes, false)?.f_unbind(0)?
                }
            });
        }
        let mut take = |at: usize| {
            let missing = || TchError::Shape(format!("sequence {at} has no copy left"));
            copies[at].pop().ok_or_else(missing)
        };
        chains.into_iter().map(|chain| chain.into_iter().map(&mut take).collect()).collect()
    }

    /// One sequence after another.
    fn attend_each(&self, heads: &Heads) -> TchResult<Tensor> {
        let queries = self.split(&heads.queries)?;
        let keys = self.with_prefixes(&heads.keys)?;
        let values = self.with_prefixes(&heads.values)?;
        let mut attended = Vec::with_capacity(queries.len());
        for ((queries, keys), values) in queries.iter().zip(keys).zip(values) {
            // From [tokens, heads, head_dim] to [1, heads, tokens, head_dim].
            let shaped = |part: &Tensor| part.f_transpose(0, 1)?.f_unsqueeze(0);
            let joined = |parts: Vec<Tensor>| match parts.as_slice() {
                [only] => shaped(only),
                parts => shaped(&Tensor::f_cat(parts, 0)?),
            };
            let found = one(&shaped(queries)?, &joined(keys)?, &joined(values)?)?;
            attended.push(found.f_squeeze_dim(0)?.f_transpose(0, 1)?.f_flatten(1, -1)?);
        }
        Tensor::f_cat(&attended, 0)
    }

    /// Splits a tensor over tokens into the sequences. This joins their gradients in one operation.
    fn split(&self, tensor: &Tensor) -> TchResult<Vec<Tensor>> {
        let lengths: Vec<i64> = self.sequences.iter().map(|sequence| sequence.length).collect();
        tensor.f_split_with_sizes(lengths, 0)
    }
}

impl Fused {
    fn packed<'a>(&'a self, heads: [&'a Tensor; 3]) -> PackedHeads<'a> {
        PackedHeads { heads, ends: [&self.query_ends, &self.key_ends], longest: self.longest }
    }
}

/// The fused kernel, without autograd. Keys and values are those of all sequences, one after another, as [`KeyUses`] has
/// them.
#[derive(Clone, Copy)]
pub(crate) struct FusedAttention<'a> {
    packing: &'a Packing,
    fused: &'a Fused,
}

impl FusedAttention<'_> {
    /// Where the keys and values of tokens are needed.
    pub(crate) fn uses(&self) -> TchResult<&KeyUses> {
        if let Some(uses) = self.fused.uses.get() {
            return Ok(uses);
        }
        let uses = self.packing.key_uses()?;
        Ok(self.fused.uses.get_or_init(|| uses))
    }

    /// Attention of queries, keys and values.
    pub(crate) fn forward(&self, heads: [&Tensor; 3]) -> TchResult<Attended> {
        self.fused.cuda.attention_forward(self.fused.packed(heads)).map_err(torch_error)
    }

    /// The gradients by queries, keys and values.
    pub(crate) fn backward(
        &self,
        heads: [&Tensor; 3],
        attended: &Attended,
        by_attended: &Tensor,
    ) -> TchResult<[Tensor; 3]> {
        let packed = self.fused.packed(heads);
        self.fused.cuda.attention_backward(packed, attended, by_attended).map_err(torch_error)
    }
}

fn torch_error(error: CudaError) -> TchError {
    TchError::Torch(error.to_string())
}

/// Attention of one sequence, whose queries are the last of its keys: `[1, heads, tokens, head_dim]`.
fn one(queries: &Tensor, keys: &Tensor, values: &Tensor) -> TchResult<Tensor> {
    let (_, query_heads, length, _) = queries.size4()?;
    let (_, key_heads, all, _) = keys.size4()?;
    let before = all - length;
    let mask = match before {
        0 => None,
        _ => {
            let ones = Tensor::f_ones([length, all], (Kind::Bool, queries.device()))?;
            Some(ones.f_tril(before)?)
        }
    };
    let shared = query_heads != key_heads;
    // No fused kernel of a GPU shares heads in 32 bits; on a processor it does.
    let repeat = shared && queries.device().is_cuda();
    let repeated = |tensor: &Tensor| match repeat {
        true => tensor.f_repeat_interleave_self_int(query_heads / key_heads, 1, None::<i64>),
        false => Ok(tensor.shallow_clone()),
    };
    Tensor::f_scaled_dot_product_attention(
        queries,
        &repeated(keys)?,
        &repeated(values)?,
        mask.as_ref(),
        0.0,
        mask.is_none(),
        None::<f64>,
        shared && !repeat,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fused_kernel_is_for_heads_in_16_bits() {
        assert_eq!(suitable(64, Kind::BFloat16), Ok(()));
        assert_eq!(suitable(256, Kind::Half), Ok(()));
        for (head_dim, kind) in [(64, Kind::Float), (20, Kind::Half), (264, Kind::BFloat16)] {
            assert!(suitable(head_dim, kind).is_err(), "{head_dim} {kind:?}");
        }
    }

    #[test]
    fn on_the_cpu_sequences_are_computed_one_after_another() {
        let sequences = Packing::regular(2, 3);
        let packing = Packing::new(sequences, 64, Kind::BFloat16, Device::Cpu).unwrap();
        assert_eq!(packing.path(), AttentionPath::Each);
    }

    #[test]
    fn keys_of_shared_tokens_have_several_places() {
        let sequence = |length, prefix| Sequence { length, prefix };
        // A prompt of two tokens, one of which continues it before two others do, and a sequence alone.
        let sequences = vec![
            sequence(2, None),
            sequence(1, Some(0)),
            sequence(2, Some(1)),
            sequence(1, Some(0)),
            sequence(3, None),
        ];
        let packing = Packing::new(sequences, 64, Kind::BFloat16, Device::Cpu).unwrap();
        let tokens = [0, 1, 0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 5, 6, 7, 8];
        let uses = packing.key_uses().unwrap();
        let [offsets, places] =
            [&uses.offsets, &uses.places].map(|all| Vec::<i32>::try_from(all).unwrap());
        assert_eq!(uses.keys as usize, tokens.len());
        for (token, range) in offsets.windows(2).enumerate() {
            let places = &places[range[0] as usize..range[1] as usize];
            assert!(places.iter().all(|place| tokens[*place as usize] == token), "{token}");
            assert_eq!(places.len(), tokens.iter().filter(|other| **other == token).count());
        }
    }

    #[test]
    fn the_keys_of_a_sequence_are_those_of_its_prefixes_and_its_own() {
        let sequences =
            [(5, None), (3, Some(0)), (2, Some(1)), (4, Some(1)), (1, Some(0)), (6, None)]
                .map(|(length, prefix)| Sequence { length, prefix });
        let packing = Packing::new(sequences.to_vec(), 64, Kind::Half, Device::Cpu).unwrap();
        let bounds = |ranges: &Vec<Range<i64>>| -> Vec<(i64, i64)> {
            ranges.iter().map(|range| (range.start, range.end)).collect()
        };
        let found: Vec<Vec<(i64, i64)>> = packing.key_ranges().iter().map(bounds).collect();
        let wanted: [&[(i64, i64)]; 6] = [
            &[(0, 5)],
            &[(0, 5), (5, 8)],
            &[(0, 5), (5, 8), (8, 10)],
            &[(0, 5), (5, 8), (10, 14)],
            &[(0, 5), (14, 15)],
            &[(15, 21)],
        ];
        assert_eq!(found, wanted);
    }
}
