//! The kernels of gradients of an adapter (`cuda/training.cu`).

use tch::{Kind, TchError, Tensor};

use super::{Arg, Kernels, blocks, grid, launch};
use crate::{attention::KeyUses, error::TchResult, rope::Tables, shape::Architecture};

impl Kernels {
    /// The gradient of [`Kernels::rms_norm`] by its input, plus `other`.
    pub(crate) fn rms_norm_backward(
        &self,
        x: &Tensor,
        weight: &Tensor,
        by_out: &Tensor,
        other: Option<&Tensor>,
    ) -> TchResult<Tensor> {
        let (count, hidden) = (x.size().first().copied().unwrap_or_default(), self.shape.hidden);
        let out = x.f_empty_like()?;
        // Without another one, anything: it is not read.
        for tensor in [x, by_out, &out].into_iter().chain(other) {
            self.check(tensor, Kind::BFloat16, count * hidden)?;
        }
        self.check(weight, Kind::BFloat16, hidden)?;
        let args = [
            Arg::Tensor(x),
            Arg::Tensor(weight),
            Arg::Tensor(by_out),
            Arg::Tensor(other.unwrap_or(x)),
            Arg::Tensor(&out),
            Arg::Int(i32::from(other.is_some())),
        ];
        // SAFETY: these are its parameters, checked above; a block reads and writes `hidden` numbers of each.
        unsafe { launch(&self.rms_norm_backward, [grid(count)?, 1, 1], &args) }?;
        Ok(out)
    }

    /// The gradients of [`Kernels::gate`] by `fused`, which they replace. `inner` is the gradient by its result, which the
    /// result itself replaces.
    pub(crate) fn gate_backward(&self, fused: &Tensor, inner: &Tensor) -> TchResult<()> {
        let (count, width) =
            (fused.size().first().copied().unwrap_or_default(), self.shape.intermediate);
        self.check(fused, Kind::BFloat16, count * 2 * width)?;
        self.check(inner, Kind::BFloat16, count * width)?;
        let args = [Arg::Tensor(fused), Arg::Tensor(inner)];
        let grid = [grid(count)?, blocks(width, 256 * 8), 1];
        // SAFETY: these are its parameters, checked above; the blocks of a token read and write 2 * `width` numbers of the
        // first and `width` of the second.
        unsafe { launch(&self.gate_backward, grid, &args) }
    }

    /// Whether [`Kernels::spread_heads`] is made for this network: it computes no head norms.
    pub(crate) fn spreads_heads(&self) -> bool {
        self.shape.architecture != Architecture::Qwen3
    }

    /// Queries and keys with rotary positions, and values, of packed tokens `[tokens, all heads * head_dim]`: keys and
    /// values at all places where sequences attend to them.
    pub(crate) fn spread_heads(
        &self,
        qkv: &Tensor,
        rope: &Tables,
        uses: &KeyUses,
    ) -> TchResult<[Tensor; 3]> {
        let count = self.check_heads(qkv, rope, uses)?;
        let all = self.empty_heads(qkv, count, uses.keys)?;
        let [queries, keys, values] = all.each_ref().map(Arg::Tensor);
        let [cos, sin, offsets, places] = tables(rope, uses);
        let args = [Arg::Tensor(qkv), cos, sin, offsets, places, queries, keys, values];
        // SAFETY: these are its parameters, checked above; a block reads and writes four heads of a token, and the places
        // of `uses` are below the number of keys, as `Packing` makes them.
        unsafe { launch(&self.spread_heads, self.heads_grid(count)?, &args) }?;
        Ok(all)
    }

    /// The gradient by `qkv` of [`Kernels::spread_heads`] from those by its results.
    pub(crate) fn collect_heads(
        &self,
        by_heads: &[Tensor; 3],
        rope: &Tables,
        uses: &KeyUses,
    ) -> TchResult<Tensor> {
        let [by_queries, by_keys, by_values] = by_heads;
        let count = by_queries.size().first().copied().unwrap_or_default();
        let width = self.all_heads() * self.shape.head_dim;
        let out = Tensor::f_empty([count, width], (by_queries.kind(), by_queries.device()))?;
        self.check_heads(&out, rope, uses)?;
        let shape = &self.shape;
        let numbers = [count * shape.heads, uses.keys * shape.kv_heads, uses.keys * shape.kv_heads];
        for (tensor, heads) in by_heads.iter().zip(numbers) {
            self.check(tensor, Kind::BFloat16, heads * shape.head_dim)?;
        }
        let [cos, sin, offsets, places] = tables(rope, uses);
        let [queries, keys, values] = [by_queries, by_keys, by_values].map(Arg::Tensor);
        let args = [queries, keys, values, cos, sin, offsets, places, Arg::Tensor(&out)];
        // SAFETY: as in `spread_heads`.
        unsafe { launch(&self.collect_heads, self.heads_grid(count)?, &args) }?;
        Ok(out)
    }

    /// Checks what both directions share, and returns the number of tokens.
    fn check_heads(&self, qkv: &Tensor, rope: &Tables, uses: &KeyUses) -> TchResult<i64> {
        let count = qkv.size().first().copied().unwrap_or_default();
        let head_dim = self.shape.head_dim;
        if !self.spreads_heads() {
            return Err(TchError::Shape("the kernel computes no head norms".to_owned()));
        }
        self.check(qkv, Kind::BFloat16, count * self.all_heads() * head_dim)?;
        self.check(&rope.cos, Kind::BFloat16, count * head_dim)?;
        self.check(&rope.sin, Kind::BFloat16, count * head_dim)?;
        self.check(&uses.offsets, Kind::Int, count + 1)?;
        self.check(&uses.places, Kind::Int, uses.keys)?;
        Ok(count)
    }

    fn empty_heads(&self, like: &Tensor, tokens: i64, keys: i64) -> TchResult<[Tensor; 3]> {
        let shape = &self.shape;
        let empty = |rows: i64, heads: i64| {
            Tensor::f_empty([rows, heads, shape.head_dim], (like.kind(), like.device()))
        };
        let queries = empty(tokens, shape.heads)?;
        Ok([queries, empty(keys, shape.kv_heads)?, empty(keys, shape.kv_heads)?])
    }

    /// Four heads of a token per block.
    fn heads_grid(&self, tokens: i64) -> TchResult<[u32; 3]> {
        Ok([grid(tokens)?, blocks(self.all_heads(), 4), 1])
    }
}

/// The arguments that both directions share.
fn tables<'a>(rope: &'a Tables, uses: &'a KeyUses) -> [Arg<'a>; 4] {
    [&rope.cos, &rope.sin, &uses.offsets, &uses.places].map(Arg::Tensor)
}
