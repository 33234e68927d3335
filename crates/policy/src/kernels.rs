//! The kernels of `cuda/kernels.cu` and `cuda/training.cu`: compiled for a network when an engine or a trainer starts, with
//! one method per kernel. They are for bfloat16 on devices with matrix instructions; everything else is computed with libtorch's operations.
//!
//! Every method checks the element types and sizes of the tensors it passes on. Rows are not read back from the device to
//! be checked: those of active sequences contain a valid token, position and slot, and the address of a page of the
//! [`Pages`], as `sampler/fused.rs` makes them.
#![expect(
    unsafe_code,
    reason = "kernels get addresses, and the compiler of Rust cannot check what they do with them"
)]

use tch::{Device, Kind, TchError, Tensor};

use crate::{
    error::TchResult,
    graph::{Arg, Cuda, CudaError, Kernel},
    lora::Factors,
    net::Network,
    sampler::logit_kind,
    shape::{Architecture, Shape},
};

mod training;

const SOURCE: &str =
    concat!(include_str!("../cuda/kernels.cu"), include_str!("../cuda/training.cu"));

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

/// Numbers of such a part: its maximum, its sum, its likeliest token, and one unused.
const PART: i64 = 4;

/// Blocks of `attend_one` that keep a large device busy.
const BUSY: i64 = 128;

/// The compiled kernels. Each keeps their module loaded.
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
    rms_norm_backward: Kernel,
    gate_backward: Kernel,
    spread_heads: Kernel,
    collect_heads: Kernel,
    shape: Shape,
    logits: Kind,
    device: Device,
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

/// What both kinds of attention read and write.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    /// The tokens, `[tokens, ROW]`.
    pub(crate) rows: &'a Tensor,
    /// Their queries, keys and values, `[tokens, (heads + 2 * kv_heads) * head_dim]`.
    pub(crate) qkv: &'a Tensor,
    /// The keys and values to attend to, those of the tokens included.
    pub(crate) pages: Pages<'a>,
    /// `[tokens, heads * head_dim]`.
    pub(crate) out: &'a Tensor,
}

impl<'a> Attention<'a> {
    /// The arguments that both kernels begin with.
    fn args(&self) -> [Arg<'a>; 6] {
        [
            Arg::Tensor(self.rows),
            Arg::Tensor(self.qkv),
            Arg::Tensor(self.pages.table),
            Arg::Int(self.pages.max_pages as i32),
            Arg::Long(self.pages.layer),
            Arg::Tensor(self.out),
        ]
    }
}

/// Memory in which blocks that share a sequence join their results.
pub(crate) struct Joined {
    partial: Tensor,
    arrived: Tensor,
}

impl Kernels {
    /// Compiles the kernels for a network, or says why they cannot be used.
    pub(crate) fn new(net: &Network) -> Result<Self, CudaError> {
        let (shape, logits) = (net.shape(), logit_kind(net));
        let Device::Cuda(device) = net.device() else { return Err(CudaError::NotOnDevice) };
        suitable(shape, net.kind()).map_err(CudaError::Unsuitable)?;
        let cuda = Cuda::with_matrix_instructions(net.device())?;
        let module = cuda.compile(device, SOURCE, &definitions(shape, logits))?;
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
            rms_norm_backward: module.kernel(c"rms_norm_backward", 256, 0)?,
            gate_backward: module.kernel(c"gate_backward", 256, 0)?,
            spread_heads: module.kernel(c"spread_heads", 128, 0)?,
            collect_heads: module.kernel(c"collect_heads", 128, 0)?,
            shape: shape.clone(),
            logits,
            device: net.device(),
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
        let Shape { hidden, vocabulary, .. } = self.shape;
        let count = self.check_rows(rows)?;
        self.check(embedding, Kind::BFloat16, vocabulary * hidden)?;
        self.check(x, Kind::BFloat16, count * hidden)?;
        self.check(pages.table, Kind::Int64, pages.max_pages)?;
        let args = [
            Arg::Tensor(rows),
            Arg::Tensor(embedding),
            Arg::Tensor(x),
            Arg::Tensor(pages.table),
            Arg::Int(pages.max_pages as i32),
        ];
        // SAFETY: these are its parameters, checked above; a block reads one row, and reads and writes `hidden` numbers.
        unsafe { launch(&self.embed, [grid(count)?, 1, 1], &args) }
    }

    /// RMSNorm of `[tokens, hidden]`.
    pub(crate) fn rms_norm(&self, x: &Tensor, weight: &Tensor, out: &Tensor) -> TchResult<()> {
        let (count, hidden) = (x.size().first().copied().unwrap_or_default(), self.shape.hidden);
        self.check(x, Kind::BFloat16, count * hidden)?;
        self.check(weight, Kind::BFloat16, hidden)?;
        self.check(out, Kind::BFloat16, count * hidden)?;
        let args = [Arg::Tensor(x), Arg::Tensor(weight), Arg::Tensor(out)];
        // SAFETY: these are its parameters, checked above; a block reads and writes `hidden` numbers.
        unsafe { launch(&self.rms_norm, [grid(count)?, 1, 1], &args) }
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
        let head_dim = self.shape.head_dim;
        let count = self.check_rows(rows)?;
        self.check(qkv, Kind::BFloat16, count * self.all_heads() * head_dim)?;
        // Without norms, anything: they are not read.
        let (query_norm, key_norm) = norms.unwrap_or((rope[0], rope[0]));
        let positions = pages.max_pages.saturating_sub(1) * PAGE as i64;
        for (tensor, numbers) in rope
            .into_iter()
            .map(|table| (table, positions * head_dim))
            .chain([(query_norm, head_dim), (key_norm, head_dim)])
        {
            self.check(tensor, Kind::BFloat16, numbers)?;
        }
        let args = [
            Arg::Tensor(rows),
            Arg::Tensor(qkv),
            Arg::Tensor(rope[0]),
            Arg::Tensor(rope[1]),
            Arg::Tensor(query_norm),
            Arg::Tensor(key_norm),
            Arg::Long(pages.layer),
        ];
        let heads = blocks(self.all_heads(), 4);
        // SAFETY: these are its parameters, checked above; a block reads and writes four heads of a token, and writes to
        // the page that its row names.
        unsafe { launch(&self.rotate, [grid(count)?, heads, 1], &args) }
    }

    /// `silu(gate) * up` of `[tokens, 2 * intermediate]`.
    pub(crate) fn gate(&self, fused: &Tensor, out: &Tensor) -> TchResult<()> {
        let (count, width) =
            (fused.size().first().copied().unwrap_or_default(), self.shape.intermediate);
        self.check(fused, Kind::BFloat16, count * 2 * width)?;
        self.check(out, Kind::BFloat16, count * width)?;
        let args = [Arg::Tensor(fused), Arg::Tensor(out)];
        // SAFETY: these are its parameters, checked above; the blocks of a token read 2 * `width` numbers and write `width`.
        unsafe { launch(&self.gate, [grid(count)?, blocks(width, 256 * 8), 1], &args) }
    }

    /// Attention of one token of every row.
    pub(crate) fn attend_one(&self, attention: &Attention<'_>, joined: &Joined) -> TchResult<()> {
        let count = self.check_attention(attention)?;
        let kv_heads = self.shape.kv_heads;
        let splits = splits(count, &self.shape);
        if splits > 1 {
            let one = group(&self.shape) * (self.shape.head_dim + 2);
            self.check(&joined.partial, Kind::Float, count * kv_heads * splits * one)?;
        }
        self.check(&joined.arrived, Kind::Int, count * kv_heads)?;
        let [rows, qkv, table, max_pages, layer, out] = attention.args();
        let (partial, arrived) = (Arg::Tensor(&joined.partial), Arg::Tensor(&joined.arrived));
        let args = [rows, qkv, table, max_pages, layer, out, partial, arrived];
        let grid = [grid(splits)?, grid(kv_heads)?, grid(count)?];
        // SAFETY: these are its parameters, checked above; a block reads the pages that the table has for the positions up
        // to its row's, and writes the heads of one token, and its part of the joined memory.
        unsafe { launch(&self.attend_one, grid, &args) }
    }

    /// Attention of new tokens. `tiles` is `[tiles, 2]`: the first token of each and their number, at most
    /// [`Kernels::tile_tokens`].
    pub(crate) fn attend_many(&self, attention: &Attention<'_>, tiles: &Tensor) -> TchResult<()> {
        self.check_attention(attention)?;
        let count = tiles.size().first().copied().unwrap_or_default();
        self.check(tiles, Kind::Int, 2 * count)?;
        let [rows, qkv, table, max_pages, layer, out] = attention.args();
        let args = [rows, qkv, table, max_pages, layer, out, Arg::Tensor(tiles)];
        let grid = [grid(count)?, grid(self.shape.kv_heads)?, 1];
        // SAFETY: these are its parameters, checked above; a block reads the pages that the table has for the positions up
        // to its last token's, and writes the heads of the tokens of its tile, which are rows of `attention`.
        unsafe { launch(&self.attend_many, grid, &args) }
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
        let vocabulary = self.shape.vocabulary;
        let chunks = blocks(vocabulary, CHUNK);
        let count = self.check_rows(rows)?;
        self.check(logits, self.logits, count * vocabulary)?;
        self.check(parts, Kind::Float, count * i64::from(chunks) * PART)?;
        self.check(out, Kind::Double, 2 * count)?;
        let args = [Arg::Tensor(rows), Arg::Tensor(logits), Arg::Tensor(parts)];
        // SAFETY: these are its parameters, checked above; a block reads a chunk of a row's logits and writes its part.
        unsafe { launch(&self.sample_parts, [chunks, grid(count)?, 1], &args) }?;
        let args = [
            Arg::Tensor(rows),
            Arg::Tensor(logits),
            Arg::Tensor(parts),
            Arg::Int(chunks.cast_signed()),
            Arg::Tensor(out),
        ];
        // SAFETY: as above; a block reads the parts and logits of a row and writes two numbers.
        unsafe { launch(&self.sample_token, [grid(count)?, 1, 1], &args) }
    }

    /// Memory for sampling from this many rows of logits.
    pub(crate) fn parts(&self, rows: i64, device: Device) -> TchResult<Tensor> {
        let chunks = i64::from(blocks(self.shape.vocabulary, CHUNK));
        Tensor::f_empty([rows * chunks * PART], (Kind::Float, device))
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
        let ((rows, columns), rank) = (base.size2()?, factors.rank());
        let (a, b) = (factors.a.f_contiguous()?, factors.b.f_contiguous()?);
        let sizes = [
            (base, rows * columns),
            (out, rows * columns),
            (&a, rank * columns),
            (&b, rows * rank),
        ];
        sizes
            .iter()
            .try_for_each(|(tensor, numbers)| self.check(tensor, Kind::BFloat16, *numbers))?;
        if columns % 8 != 0 {
            return Err(TchError::Shape(format!("{columns} columns are not a multiple of 8")));
        }
        let args = [
            Arg::Tensor(base),
            Arg::Tensor(&a),
            Arg::Tensor(&b),
            Arg::Tensor(out),
            Arg::Int(rank as i32),
            Arg::Int(columns as i32),
            Arg::Float(scale as f32),
        ];
        // SAFETY: these are its parameters, checked above; the blocks of a row read and write `columns` numbers, in eights.
        unsafe { launch(&self.merge, [blocks(columns, 128 * 8), grid(rows)?, 1], &args) }
    }

    /// Checks what both kinds of attention share, and returns the number of tokens.
    fn check_attention(&self, attention: &Attention<'_>) -> TchResult<i64> {
        let Attention { rows, qkv, pages, out } = attention;
        let Shape { heads, head_dim, .. } = self.shape;
        let count = self.check_rows(rows)?;
        self.check(qkv, Kind::BFloat16, count * self.all_heads() * head_dim)?;
        self.check(out, Kind::BFloat16, count * heads * head_dim)?;
        self.check(pages.table, Kind::Int64, pages.max_pages)?;
        Ok(count)
    }

    /// Checks `[rows, ROW]`, and returns the number of rows.
    fn check_rows(&self, rows: &Tensor) -> TchResult<i64> {
        let (count, width) = rows.size2()?;
        self.check(rows, Kind::Int64, count * ROW as i64)?;
        match width == ROW as i64 {
            true => Ok(count),
            false => Err(TchError::Shape(format!("rows have {width} fields"))),
        }
    }

    /// Checks what a kernel accesses: with another tensor it would read or write what is not its own.
    fn check(&self, tensor: &Tensor, kind: Kind, numbers: i64) -> TchResult<()> {
        let fits = tensor.kind() == kind
            && tensor.device() == self.device
            && tensor.numel() as i64 >= numbers
            && tensor.is_contiguous();
        match fits {
            true => Ok(()),
            false => Err(TchError::Shape(format!(
                "a kernel needs {numbers} contiguous {kind:?} on {:?}, not {tensor:?}",
                self.device
            ))),
        }
    }

    fn all_heads(&self) -> i64 {
        self.shape.heads + 2 * self.shape.kv_heads
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
pub(crate) fn suitable(shape: &Shape, kind: Kind) -> Result<(), &'static str> {
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

/// A dimension of a grid.
fn grid(count: i64) -> TchResult<u32> {
    u32::try_from(count).map_err(|_| TchError::Shape(format!("{count} blocks")))
}

fn blocks(count: i64, each: i64) -> u32 {
    u32::try_from((count + each - 1) / each).unwrap_or_default()
}

/// Launches a kernel, unless there is nothing to do.
///
/// # Safety
///
/// As for [`Kernel::launch`].
unsafe fn launch(kernel: &Kernel, grid: [u32; 3], args: &[Arg<'_>]) -> TchResult<()> {
    if grid.contains(&0) {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let launched = unsafe { kernel.launch(grid, args) };
    launched.map_err(|error| TchError::Torch(error.to_string()))
}

#[cfg(test)]
#[path = "kernels_tests.rs"]
mod tests;
