//! Every tensor type is read like PyPI's `gguf` reads it from the same bytes (`blocks.py` wrote the reference).

use std::io::Write;

use lis_gguf::{File, TensorType};

/// A file with one tensor of one row, stored as given.
pub(crate) fn file_with(kind: u32, row: u64, bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut out = Vec::from(*b"GGUF");
    out.extend(3u32.to_le_bytes());
    out.extend(1u64.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend(1u64.to_le_bytes());
    out.extend(b"t");
    out.extend(1u32.to_le_bytes());
    out.extend(row.to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend(bytes);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&out).unwrap();
    file
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn quantized_blocks_are_read_like_the_reference() {
    let cases: serde_json::Value = serde_json::from_str(include_str!("blocks.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let bytes = unhex(case["bytes"].as_str().unwrap());
        let expected: Vec<f32> = unhex(case["numbers"].as_str().unwrap())
            .chunks_exact(4)
            .map(|number| f32::from_le_bytes(number.try_into().unwrap()))
            .collect();
        let file = file_with(case["code"].as_u64().unwrap() as u32, expected.len() as u64, &bytes);
        let read = File::open(file.path()).unwrap().read_f32("t").unwrap();
        assert_eq!(read.len(), expected.len());
        for (at, (read, expected)) in read.iter().zip(&expected).enumerate() {
            assert!(
                (read - expected).abs() <= expected.abs() * 1e-6,
                "{} at {at}: {read} {expected}",
                case["name"]
            );
        }
    }
}

#[test]
fn unquantized_values_are_read_exactly() {
    let numbers = [0.0, -1.5, 3.25, 65504.0];
    let singles: Vec<u8> = numbers.iter().flat_map(|number: &f32| number.to_le_bytes()).collect();
    // 0, -1.5, 3.25 and 65504 in half precision; in brain floats 65504 is rounded up to 65536.
    let halves: Vec<u8> =
        [0u16, 0xbe00, 0x4280, 0x7bff].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let brains: Vec<u8> =
        [0u16, 0xbfc0, 0x4050, 0x4780].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let read = |kind: TensorType, bytes: &[u8]| {
        File::open(file_with(kind.code(), 4, bytes).path()).unwrap().read_f32("t").unwrap()
    };
    assert_eq!(read(TensorType::F32, &singles), numbers);
    assert_eq!(read(TensorType::F16, &halves), numbers);
    assert_eq!(read(TensorType::Bf16, &brains), [0.0, -1.5, 3.25, 65536.0]);
}
