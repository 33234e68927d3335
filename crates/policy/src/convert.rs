//! Conversion between the layout in memory and those of files: fused projections and their parts, and the row order of
//! GGUF files of the Llama family.

use tch::Tensor;

use crate::error::TchResult;
use crate::shape::Shape;

/// The parts of a tensor by their names in the Hugging Face layout: views without gradients.
pub(crate) fn parts(
    name: &str,
    tensor: &Tensor,
    shape: &Shape,
) -> TchResult<Vec<(String, Tensor)>> {
    let whole = tensor.f_detach()?;
    let (query, key) = (shape.query_rows(), shape.key_rows());
    let (fused, rows): (&str, &[(&str, i64)]) = if name.contains("qkv_proj") {
        ("qkv_proj", &[("q_proj", query), ("k_proj", key), ("v_proj", key)])
    } else if name.contains("gate_up_proj") {
        ("gate_up_proj", &[("gate_proj", shape.intermediate), ("up_proj", shape.intermediate)])
    } else {
        return Ok(vec![(name.to_owned(), whole)]);
    };
    let mut parts = Vec::new();
    let mut start = 0;
    for (part, rows) in rows {
        parts.push((name.replace(fused, part), whole.f_narrow(0, start, *rows)?));
        start += rows;
    }
    Ok(parts)
}

/// Reorders rows of queries or keys from GGUF files of the Llama family, where rotated pairs are adjacent, to the Hugging
/// Face layout, where they are half a head apart.
pub(crate) fn from_interleaved(rows: &Tensor, heads: i64) -> TchResult<Tensor> {
    reorder(rows, heads, |half| [heads, half, 2, -1])
}

/// The inverse of [`from_interleaved`].
pub(crate) fn to_interleaved(rows: &Tensor, heads: i64) -> TchResult<Tensor> {
    reorder(rows, heads, |half| [heads, 2, half, -1])
}

fn reorder(rows: &Tensor, heads: i64, view: impl Fn(i64) -> [i64; 4]) -> TchResult<Tensor> {
    let size = rows.size();
    let half = size.first().copied().unwrap_or(0) / heads / 2;
    rows.f_reshape(view(half))?.f_transpose(1, 2)?.f_reshape(size)
}

#[cfg(test)]
mod tests {
    use tch::Tensor;

    use super::{from_interleaved, to_interleaved};

    #[test]
    fn rotated_pairs_become_half_a_head_apart() {
        // Two heads of four rows; a row says which head, which pair and which of the pair it is.
        let stored = Tensor::from_slice(&[100i64, 101, 110, 111, 200, 201, 210, 211]).view([8, 1]);
        let ours = from_interleaved(&stored, 2).unwrap();
        assert_eq!(
            Vec::<i64>::try_from(ours.view(-1)).unwrap(),
            [100, 110, 101, 111, 200, 210, 201, 211]
        );
        assert_eq!(to_interleaved(&ours, 2).unwrap(), stored);
    }
}
