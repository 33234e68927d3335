//! Dequantization, one function per storage type. Every function gets exactly one block and room for exactly its values.
//! Knows no files.

use half::{bf16, f16};

use crate::tensor_type::TensorType;

/// Dequantizes whole blocks; none for a type that cannot be read, or for bytes that are not whole blocks.
pub(crate) fn dequantize(tensor_type: TensorType, bytes: &[u8]) -> Option<Vec<f32>> {
    let block = tensor_type.block()?;
    let (size, count) = (block.bytes as usize, block.values as usize);
    if !bytes.len().is_multiple_of(size) {
        return None;
    }
    let fill: fn(&[u8], &mut [f32]) = match tensor_type {
        TensorType::F32 => {
            |block, out| out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]])
        }
        TensorType::F16 => |block, out| out[0] = half_at(block, 0),
        TensorType::Bf16 => {
            |block, out| out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32()
        }
        TensorType::Q4_0 => q4_0,
        TensorType::Q4_1 => q4_1,
        TensorType::Q5_0 => q5_0,
        TensorType::Q5_1 => q5_1,
        TensorType::Q8_0 => q8_0,
        TensorType::Q2_K => q2_k,
        TensorType::Q3_K => q3_k,
        TensorType::Q4_K => q4_k,
        TensorType::Q5_K => q5_k,
        TensorType::Q6_K => q6_k,
        TensorType::Other(_) => return None,
    };
    let mut out = vec![0.0; bytes.len() / size * count];
    for (block, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(count)) {
        fill(block, out);
    }
    Some(out)
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The two four-bit values of a byte.
fn nibbles(byte: u8) -> [f32; 2] {
    [f32::from(byte & 15), f32::from(byte >> 4)]
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    for (at, byte) in block[2..].iter().enumerate() {
        let [low, high] = nibbles(*byte);
        out[at] = (low - 8.0) * scale;
        out[at + 16] = (high - 8.0) * scale;
    }
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    for (at, byte) in block[4..].iter().enumerate() {
        let [low, high] = nibbles(*byte);
        out[at] = low * scale + least;
        out[at + 16] = high * scale + least;
    }
}

/// The 32 five-bit values: `fifths` holds their highest bits, `rest` the others.
fn fives(fifths: &[u8], rest: &[u8], mut put: impl FnMut(usize, f32)) {
    let fifths = u32::from_le_bytes([fifths[0], fifths[1], fifths[2], fifths[3]]);
    let fifth = |at: usize| if fifths >> at & 1 == 1 { 16.0 } else { 0.0 };
    for (at, byte) in rest.iter().enumerate() {
        let [low, high] = nibbles(*byte);
        put(at, low + fifth(at));
        put(at + 16, high + fifth(at + 16));
    }
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    fives(&block[2..6], &block[6..], |at, number| out[at] = (number - 16.0) * scale);
}

fn q5_1(block: &[u8], out: &mut [f32]) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    fives(&block[4..8], &block[8..], |at, number| out[at] = number * scale + least);
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let scale = half_at(block, 0);
    for (byte, out) in block[2..].iter().zip(out) {
        *out = f32::from(byte.cast_signed()) * scale;
    }
}

fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, quants) = (&block[..16], &block[16..80]);
    let (scale, least) = (half_at(block, 80), half_at(block, 82));
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let (factor, offset) =
            (scale * f32::from(scales[group] & 15), least * f32::from(scales[group] >> 4));
        let (bytes, shift) = pairs(quants, group);
        for (byte, out) in bytes.iter().zip(out) {
            *out = factor * f32::from(byte >> shift & 3) - offset;
        }
    }
}

/// The 16 bytes that hold the two-bit values of a group of 16, and how far to shift them: each half of 128 values
/// takes 32 bytes, four values to a byte.
fn pairs(quants: &[u8], group: usize) -> (&[u8], usize) {
    let (part, layer, side) = (group / 8, group % 8 / 2, group % 2);
    let start = part * 32 + side * 16;
    (&quants[start..start + 16], layer * 2)
}

fn q3_k(block: &[u8], out: &mut [f32]) {
    let (thirds, quants, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = half_at(block, 108);
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let low = if group < 8 { scales[group] & 15 } else { scales[group - 8] >> 4 };
        let high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
        let factor = scale * (f32::from(low | high << 4) - 32.0);
        let (bytes, shift) = pairs(quants, group);
        let thirds = &thirds[group % 2 * 16..][..16];
        for ((byte, third), out) in bytes.iter().zip(thirds).zip(out) {
            let missing = if third >> (group / 2) & 1 == 1 { 0.0 } else { 4.0 };
            *out = factor * (f32::from(byte >> shift & 3) - missing);
        }
    }
}

/// Scale and minimum of one of the eight groups of 32, six bits each, packed into twelve bytes.
fn packed_scales(scales: &[u8], group: usize) -> [f32; 2] {
    let (scale, least) = if group < 4 {
        (scales[group] & 63, scales[group + 4] & 63)
    } else {
        (
            scales[group + 4] & 15 | scales[group - 4] >> 6 << 4,
            scales[group + 4] >> 4 | scales[group] >> 6 << 4,
        )
    };
    [f32::from(scale), f32::from(least)]
}

fn q4_k(block: &[u8], out: &mut [f32]) {
    let (scale, least, scales, quants) =
        (half_at(block, 0), half_at(block, 2), &block[4..16], &block[16..144]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let [factor, offset] = packed_scales(scales, group);
        let (factor, offset) = (scale * factor, least * offset);
        for (byte, out) in quants[group / 2 * 32..].iter().zip(out) {
            *out = factor * nibbles(*byte)[group % 2] - offset;
        }
    }
}

fn q5_k(block: &[u8], out: &mut [f32]) {
    let (scale, least, scales) = (half_at(block, 0), half_at(block, 2), &block[4..16]);
    let (fifths, quants) = (&block[16..48], &block[48..176]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let [factor, offset] = packed_scales(scales, group);
        let (factor, offset) = (scale * factor, least * offset);
        for ((byte, fifth), out) in quants[group / 2 * 32..].iter().zip(fifths).zip(out) {
            let fifth = if fifth >> group & 1 == 1 { 16.0 } else { 0.0 };
            *out = factor * (nibbles(*byte)[group % 2] + fifth) - offset;
        }
    }
}

fn q6_k(block: &[u8], out: &mut [f32]) {
    let (lows, highs, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let (part, layer, side) = (group / 8, group % 8 / 2, group % 2);
        let factor = scale * f32::from(scales[group].cast_signed());
        let lows = &lows[part * 64 + layer % 2 * 32 + side * 16..];
        let highs = &highs[part * 32 + side * 16..];
        for ((low, high), out) in lows.iter().zip(highs).zip(out) {
            let number = nibbles(*low)[layer / 2] + f32::from(high >> (2 * layer) & 3) * 16.0;
            *out = factor * (number - 32.0);
        }
    }
}
