//! The kernels of `cuda/kernels.cu`: compiled for a network when an engine starts, with one method per kernel. They are for
//! bfloat16 on devices with matrix instructions; everything else is computed with libtorch's operations.

use tch::{Device, Kind, Tensor};

use crate::{
    error::TchResult,
    graph::{Arg, Cuda, CudaError, Kernel, Module},
    lora::Factors,
    net::Network,
    sampler::logit_kind,
    shape::{Architecture, Shape},
};

const SOURCE: &str = include_str!("../cuda/kernels.cu");

/// The number of tokens of a page of the cache.
pub(crate) const PAGE: usize = 64;

/// 64-bit numbers of a row: token, position, slot, page, the three fields of a draw, and one unused.
pub(crate) const ROW: usize = 8;

/// Rows of queries that a block of `attend_many` has.
const TILE_ROWS: i64 = 64;

/// Query heads that may share keys.
const MAX_GROUP: i64 = 16;

/// Logits per part of the vocabulary.
const CHUNK: i64 = 2048;

/// Blocks of `attend_one` that keep a large device busy.
const BUSY: i64 = 128;

/// The compiled kernels.
pub(crate) struct Kernels {
    embed: Kernel,
    rms_norm: Kernel,
    rotate: Kernel,
    gate: Kernel,
    attend_one: Kernel,
    attend_many: Kernel,
    sample_parts: Kernel,
    sample_token: Kernel,
    merge: Kernel,
    shape: Shape,
    /// Dropped last: the kernels are its.
    _module: Module,
}

/// Where a layer's keys and values are.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'a> {
    /// `[slots, max_pages]`: the addresses of pages in the first layer.
    pub(crate) table: &'a Tensor,
    pub(crate) max_pages: i64,
    /// What is added to them, in bytes.
    pub(crate) layer: i64,
}

/// Memory in which blocks that share a sequence join their results.
pub(crate) struct Joined {
    partial: Tensor,
    arrived: Tensor,
}

impl Kernels {
    /// Compiles the kernels for a network, or says why they cannot be used.
    pub(crate) fn new(net: &Network) -> Result<Self, CudaError> {
        let shape = net.shape();
        let Device::Cuda(device) = net.device() else {
            return Err(CudaError::Failed("the network is not on a CUDA device".to_owned()));
        };
        suitable(shape, net.kind()).map_err(|why| CudaError::Failed(why.to_owned()))?;
        let module = Cuda::load()?.compile(device, SOURCE, &definitions(shape, logit_kind(net)))?;
        let row = 2 * u32::try_from(shape.head_dim).unwrap_or_default();
        Ok(Self {
            embed: module.kernel(c"embed", 128, 0)?,
            rms_norm: module.kernel(c"rms_norm", 256, 0)?,
            rotate: module.kernel(c"rotate", 128, 0)?,
            gate: module.kernel(c"gate", 256, 0)?,
            // Four warps, three stages, keys and values of 16 tokens.
            attend_one: module.kernel(c"attend_one", 128, 4 * 3 * 2 * 16 * row)?,
            // Two stages, keys and values of a page.
            attend_many: module.kernel(c"attend_many", 128, 4 * PAGE as u32 * row)?,
            sample_parts: module.kernel(c"sample_parts", 256, 0)?,
            sample_token: module.kernel(c"sample_token", 256, 0)?,
            merge: module.kernel(c"merge", 128, 0)?,
            shape: shape.clone(),
            _module: module,
        })
    }

    /// Writes the embeddings of the tokens of `rows` to `x`, and their pages to the table.
    pub(crate) fn embed(
        &self,
        rows: &Tensor,
        embedding: &Tensor,
        x: &Tensor,
        pages: Pages<'_>,
    ) -> TchResult<()> {
        let args = [
            Arg::Tensor(rows),
            Arg::Tensor(embedding),
            Arg::Tensor(x),
            Arg::Tensor(pages.table),
            Arg::Int(pages.max_pages as i32),
        ];
        launch(&self.embed, [count(rows)?, 1, 1], &args)
    }

    /// RMSNorm of `[tokens, hidden]`.
    pub(crate) fn rms_norm(&self, x: &Tensor, weight: &Tensor, out: &Tensor) -> TchResult<()> {
        let args = [Arg::Tensor(x), Arg::Tensor(weight), Arg::Tensor(out)];
        launch(&self.rms_norm, [count(x)?, 1, 1], &args)
    }

    /// Head norms, rotary positions, and the new keys and values of the cache.
    pub(crate) fn rotate(
        &self,
        rows: &Tensor,
        qkv: &Tensor,
        rope: [&Tensor; 2],
        norms: Option<(&Tensor, &Tensor)>,
        pages: Pages<'_>,
    ) -> TchResult<()> {
        // Without norms, anything: they are not read.
        let (query_norm, key_norm) = norms.unwrap_or((rope[0], rope[0]));
        let args = [
            Arg::Tensor(rows),
            Arg::Tensor(qkv),
            Arg::Tensor(rope[0]),
            Arg::Tensor(rope[1]),
            Arg::Tensor(query_norm),
            Arg::Tensor(key_norm),
            Arg::Long(pages.layer),
        ];
        let heads = blocks(self.shape.heads + 2 * self.shape.kv_heads, 4);
        launch(&self.rotate, [count(rows)?, heads, 1], &args)
    }

    /// `silu(gate) * up` of `[tokens, 2 * intermediate]`.
    pub(crate) fn gate(&self, fused: &Tensor, out: &Tensor) -> TchResult<()> {
        let grid = [count(fused)?, blocks(self.shape.intermediate, 256 * 8), 1];
        launch(&self.gate, grid, &[Arg::Tensor(fused), Arg::Tensor(out)])
    }

    /// Attention of one token of every row.
    pub(crate) fn attend_one(
        &self,
        rows: &Tensor,
        qkv: &Tensor,
        pages: Pages<'_>,
        out: &Tensor,
        joined: &Joined,
    ) -> TchResult<()> {
        let args = [
            Arg::Tensor(rows),
            Arg::Tensor(qkv),
            Arg::Tensor(pages.table),
            Arg::Int(pages.max_pages as i32),
            Arg::Long(pages.layer),
            Arg::Tensor(out),
            Arg::Tensor(&joined.partial),
            Arg::Tensor(&joined.arrived),
        ];
        let count = count(rows)?;
        let splits = splits(i64::from(count), &self.shape);
        let grid = [splits as u32, self.shape.kv_heads as u32, count];
        launch(&self.attend_one, grid, &args)
    }

    /// Attention of new tokens. `tiles` is `[tiles, 2]`: the first token of each and their number, at most
    /// [`Kernels::tile_tokens`].
    pub(crate) fn attend_many(
        &self,
        rows: &Tensor,
        qkv: &Tensor,
        pages: Pages<'_>,
        out: &Tensor,
        tiles: &Tensor,
    ) -> TchResult<()> {
        let args = [
            Arg::Tensor(rows),
            Arg::Tensor(qkv),
            Arg::Tensor(pages.table),
            Arg::Int(pages.max_pages as i32),
            Arg::Long(pages.layer),
            Arg::Tensor(out),
            Arg::Tensor(tiles),
        ];
        launch(&self.attend_many, [count(tiles)?, self.shape.kv_heads as u32, 1], &args)
    }

    /// Consecutive tokens of a sequence that a block of [`Kernels::attend_many`] has.
    pub(crate) fn tile_tokens(&self) -> usize {
        usize::try_from(TILE_ROWS / group(&self.shape)).unwrap_or(1)
    }

    /// Samples a token of every row of logits: tokens and log-probabilities, `[2, rows]` in double precision. `parts`
    /// comes from [`Kernels::parts`].
    pub(crate) fn sample(
        &self,
        rows: &Tensor,
        logits: &Tensor,
        parts: &Tensor,
        out: &Tensor,
    ) -> TchResult<()> {
        let (count, chunks) = (count(rows)?, blocks(self.shape.vocabulary, CHUNK));
        let args = [Arg::Tensor(rows), Arg::Tensor(logits), Arg::Tensor(parts)];
        launch(&self.sample_parts, [chunks, count, 1], &args)?;
        let args = [
            Arg::Tensor(rows),
            Arg::Tensor(logits),
            Arg::Tensor(parts),
            Arg::Int(chunks.cast_signed()),
            Arg::Tensor(out),
        ];
        launch(&self.sample_token, [count, 1, 1], &args)
    }

    /// Memory for sampling from this many rows of logits.
    pub(crate) fn parts(&self, rows: i64, device: Device) -> TchResult<Tensor> {
        let chunks = i64::from(blocks(self.shape.vocabulary, CHUNK));
        Tensor::f_empty([rows * chunks * 4], (Kind::Float, device))
    }

    /// Memory for [`Kernels::attend_one`] of up to this many rows.
    pub(crate) fn joined(&self, rows: i64, device: Device) -> TchResult<Joined> {
        let Shape { kv_heads, head_dim, .. } = self.shape;
        // Sequences are split only where there are at most `BUSY` blocks afterwards.
        let one = group(&self.shape) * (head_dim + 2);
        Ok(Joined {
            partial: Tensor::f_empty([BUSY * one], (Kind::Float, device))?,
            arrived: Tensor::f_zeros([rows * kv_heads], (Kind::Int, device))?,
        })
    }

    /// Writes `base + scale * b a` to `out`, rounded with dither. All are contiguous, `[rows, columns]` where they are not
    /// factors.
    pub(crate) fn merge(
        &self,
        base: &Tensor,
        factors: &Factors,
        out: &Tensor,
        scale: f64,
    ) -> TchResult<()> {
        let (rows, columns) = base.size2()?;
        let (a, b) = (factors.a.f_contiguous()?, factors.b.f_contiguous()?);
        let args = [
            Arg::Tensor(base),
            Arg::Tensor(&a),
            Arg::Tensor(&b),
            Arg::Tensor(out),
            Arg::Int(factors.rank() as i32),
            Arg::Int(columns as i32),
            Arg::Float(scale as f32),
        ];
        launch(&self.merge, [blocks(columns, 128 * 8), rows as u32, 1], &args)
    }
}

/// The number of blocks that share the keys of a sequence: enough to keep the device busy.
fn splits(rows: i64, shape: &Shape) -> i64 {
    (BUSY / (rows * shape.kv_heads).max(1)).clamp(1, 16)
}

fn group(shape: &Shape) -> i64 {
    shape.heads / shape.kv_heads
}

/// Whether the kernels are made for networks of this shape and kind.
fn suitable(shape: &Shape, kind: Kind) -> Result<(), &'static str> {
    let checks = [
        (kind == Kind::BFloat16, "the network is not in bfloat16"),
        (matches!(shape.head_dim, 64 | 128), "the size of a head is neither 64 nor 128"),
        (group(shape) <= MAX_GROUP, "more than 16 query heads share their keys"),
        (shape.hidden % 8 == 0, "the hidden size is not a multiple of 8"),
        (shape.intermediate % 8 == 0, "the intermediate size is not a multiple of 8"),
        (shape.intermediate < 1 << 16, "the intermediate size is above 65,535"),
    ];
    match checks.into_iter().find(|(met, _)| !met) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}

fn definitions(shape: &Shape, logits: Kind) -> Vec<String> {
    let head_norms = i64::from(shape.architecture == Architecture::Qwen3);
    let numbers = [
        ("HEADS", shape.heads),
        ("KV_HEADS", shape.kv_heads),
        ("HEAD_DIM", shape.head_dim),
        ("HIDDEN", shape.hidden),
        ("INTERMEDIATE", shape.intermediate),
        ("VOCABULARY", shape.vocabulary),
        ("HEAD_NORMS", head_norms),
        ("FLOAT_LOGITS", i64::from(logits == Kind::Float)),
    ];
    let mut all: Vec<String> =
        numbers.iter().map(|(name, value)| format!("{name}={value}")).collect();
    all.push(format!("SM_SCALE={:e}f", (shape.head_dim as f64).sqrt().recip()));
    all.push(format!("NORM_EPS={:e}f", shape.norm_eps));
    all
}

/// The number of rows of a tensor.
fn count(tensor: &Tensor) -> TchResult<u32> {
    let first = tensor.size().first().copied().unwrap_or_default();
    u32::try_from(first).map_err(|_| tch::TchError::Shape(format!("{first} rows")))
}

fn blocks(count: i64, each: i64) -> u32 {
    u32::try_from((count + each - 1) / each).unwrap_or_default()
}

fn launch(kernel: &Kernel, grid: [u32; 3], args: &[Arg<'_>]) -> TchResult<()> {
    if grid.contains(&0) {
        return Ok(());
    }
    kernel.launch(grid, args).map_err(|error| tch::TchError::Torch(error.to_string()))
}
