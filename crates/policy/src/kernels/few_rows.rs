//! Products with few rows (`cuda/few_rows.cu`).

use std::sync::Arc;

use tch::{Kind, TchError, Tensor};

use super::{Arg, Kernels, grid, launch};
use crate::{
    error::TchResult,
    graph::{CudaError, Kernel, Module},
};

/// The kernels of products with 8, 16 and 32 rows.
pub(super) struct FewRows {
    kernels: Vec<[Kernel; 3]>,
}

/// The numbers of rows, and the names of their kernels.
const ROWS: [(i64, &std::ffi::CStr); 3] =
    [(8, c"few_rows_8"), (16, c"few_rows_16"), (32, c"few_rows_32")];

/// Warps of a block: few where there are many outputs, many where there are many inputs.
const WARPS: [u32; 3] = [4, 8, 16];

/// Outputs of a block.
const OUTPUTS: i64 = 16;

/// Inputs that a warp reads at a time.
const INPUTS: i64 = 32;

impl FewRows {
    pub(super) fn new(module: &Arc<Module>) -> Result<Self, CudaError> {
        let kernels = ROWS.map(|(rows, name)| {
            let kernel = |warps: u32| {
                let sums = u32::try_from(rows * OUTPUTS).unwrap_or_default() * 4;
                module.kernel(name, warps * 32, warps * sums)
            };
            Ok([kernel(WARPS[0])?, kernel(WARPS[1])?, kernel(WARPS[2])?])
        });
        Ok(Self { kernels: kernels.into_iter().collect::<Result<_, CudaError>>()? })
    }
}

/// What is done with a product.
#[derive(Clone, Copy)]
pub(crate) enum Sum<'a> {
    /// It is written.
    Product,
    /// It is written with this bias added, `[outputs]`.
    Biased(&'a Tensor),
    /// It is added to what is there.
    Added,
}

impl Kernels {
    /// Writes the product of `x`, `[rows, inputs]`, and weights `[inputs, outputs]` in transposed layout to `out`,
    /// rounded once.
    pub(crate) fn product(
        &self,
        x: &Tensor,
        weight: &Tensor,
        sum: Sum<'_>,
        out: &mut Tensor,
    ) -> TchResult<()> {
        let (rows, _) = x.size2()?;
        let (inputs, outputs) = weight.size2()?;
        let kernels = ROWS.iter().position(|(count, _)| *count == rows);
        let suits = inputs % INPUTS == 0 && outputs % OUTPUTS == 0;
        let Some(kernels) = kernels.filter(|_| suits).and_then(|at| self.few_rows.kernels.get(at))
        else {
            let _ = match sum {
                Sum::Product => x.f_mm_out(out, weight)?,
                Sum::Biased(bias) => bias.f_addmm_out(out, x, weight)?,
                Sum::Added => out.f_addmm_(x, weight)?,
            };
            return Ok(());
        };
        let weight = weight.f_tr()?;
        self.check(x, Kind::BFloat16, rows * inputs)?;
        self.check(&weight, Kind::BFloat16, inputs * outputs)?;
        self.check(out, Kind::BFloat16, rows * outputs)?;
        // Without a bias, anything: it is not read.
        let (bias, biased, added) = match sum {
            Sum::Product => (x, 0, 0),
            Sum::Biased(bias) => {
                self.check(bias, Kind::BFloat16, outputs)?;
                (bias, 1, 0)
            }
            Sum::Added => (x, 0, 1),
        };
        let sizes = [inputs, outputs].map(|size| {
            i32::try_from(size).map_err(|_| TchError::Shape(format!("{size} columns")))
        });
        let [inputs_arg, outputs_arg] = sizes;
        let args = [
            Arg::Tensor(x),
            Arg::Tensor(&weight),
            Arg::Tensor(bias),
            Arg::Tensor(out),
            Arg::Int(inputs_arg?),
            Arg::Int(outputs_arg?),
            Arg::Int(biased),
            Arg::Int(added),
        ];
        let blocks = outputs / OUTPUTS;
        let [few, some, many] = kernels;
        let kernel = match (blocks, inputs) {
            (512.., _) => few,
            (_, 4096..) => many,
            _ => some,
        };
        // SAFETY: these are its parameters, checked above; a block reads all of `x`, 16 rows of the weights and 16 numbers
        // of the bias, and writes 16 columns of the result.
        unsafe { launch(kernel, [grid(blocks)?, 1, 1], &args) }
    }
}
