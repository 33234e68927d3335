//! Malformed files are refused with a reason: no panic, no allocation beyond the file's size.

use std::io::Write;

use lis_gguf::{Array, File, NewTensor, OpenError, ReadError, TensorData, Value, write};
use proptest::prelude::*;

use crate::reads_every_kind::file_with;

fn open(bytes: &[u8]) -> Result<File, OpenError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    File::open(file.path())
}

fn head(version: u32, tensors: u64, entries: u64) -> Vec<u8> {
    let mut out = Vec::from(*b"GGUF");
    out.extend(version.to_le_bytes());
    out.extend(tensors.to_le_bytes());
    out.extend(entries.to_le_bytes());
    out
}

fn sound() -> Vec<u8> {
    let metadata = vec![
        ("a".to_owned(), Value::from("text")),
        ("b".to_owned(), Value::Array(Array::String(vec!["x".to_owned(), String::new()]))),
        ("c".to_owned(), Value::Array(Array::I32(vec![1, -2, 3]))),
    ];
    let tensor = NewTensor {
        name: "t".to_owned(),
        dimensions: vec![2, 3],
        data: TensorData::F32(vec![1.0; 6]),
    };
    let mut out = Vec::new();
    write(&mut out, &metadata, &[tensor]).unwrap();
    out
}

#[test]
fn other_files_and_other_versions_are_refused() {
    assert!(matches!(open(b""), Err(OpenError::NotGguf)));
    assert!(matches!(open(b"GGML and so on"), Err(OpenError::NotGguf)));
    assert!(matches!(open(&head(1, 0, 0)), Err(OpenError::Version(1))));
    assert!(matches!(open(&head(3u32.swap_bytes(), 0, 0)), Err(OpenError::Version(_))));
    assert!(matches!(File::open("/no/such/file".as_ref()), Err(OpenError::Io(_))));
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused() {
    assert!(matches!(open(&head(3, u64::MAX, 0)), Err(OpenError::Count { what: "tensors", .. })));
    assert!(matches!(open(&head(3, 0, 1 << 40)), Err(OpenError::Count { .. })));
    let mut long_key = head(3, 0, 1);
    long_key.extend(u64::MAX.to_le_bytes());
    assert!(matches!(open(&long_key), Err(OpenError::Count { what: "bytes of a name", .. })));
    let mut long_array = head(3, 0, 1);
    long_array.extend(1u64.to_le_bytes());
    long_array.extend(b"k");
    long_array.extend(9u32.to_le_bytes());
    long_array.extend(12u32.to_le_bytes());
    long_array.extend((1u64 << 23).to_le_bytes());
    assert!(matches!(open(&long_array), Err(OpenError::Count { what: "items of an array", .. })));
}

#[test]
fn nested_arrays_and_invalid_strings_are_refused() {
    let mut nested = head(3, 0, 1);
    nested.extend(1u64.to_le_bytes());
    nested.extend(b"k");
    nested.extend(9u32.to_le_bytes());
    nested.extend(9u32.to_le_bytes());
    nested.extend(1u64.to_le_bytes());
    assert!(matches!(open(&nested), Err(OpenError::ValueType(9))));
    let mut text = head(3, 0, 1);
    text.extend(2u64.to_le_bytes());
    text.extend([0xff, 0xfe]);
    assert!(matches!(open(&text), Err(OpenError::Text { at: 32 })));
}

#[test]
fn tensors_must_lie_within_the_file() {
    let whole = file_with(0, 8, &[0; 32]);
    assert!(File::open(whole.path()).is_ok());
    let cut = file_with(0, 9, &[0; 32]);
    assert!(matches!(File::open(cut.path()), Err(OpenError::Outside { name }) if name == "t"));
    let huge = file_with(0, u64::MAX / 2, &[0; 32]);
    assert!(File::open(huge.path()).is_err());
    let ragged = file_with(2, 33, &[0; 64]);
    assert!(matches!(File::open(ragged.path()), Err(OpenError::Dimensions { .. })));
}

#[test]
fn values_of_unknown_types_are_refused_when_read() {
    let file = file_with(23, 256, &[0; 32]);
    let file = File::open(file.path()).unwrap();
    assert!(matches!(file.read_f32("t"), Err(ReadError::Type { .. })));
    assert!(matches!(file.read_f32("u"), Err(ReadError::Missing(name)) if name == "u"));
}

#[test]
fn a_file_truncated_anywhere_in_its_header_is_refused() {
    let sound = sound();
    assert!(open(&sound).is_ok());
    for length in 0..sound.len() - 24 {
        assert!(open(&sound[..length]).is_err(), "{length}");
    }
}

proptest! {
    #[test]
    fn no_change_of_a_byte_makes_it_panic(at in 0usize..200, byte: u8) {
        let mut file = sound();
        let at = at % file.len();
        file[at] = byte;
        if let Ok(file) = open(&file) {
            for tensor in file.tensors() {
                let _ = file.read_f32(&tensor.name);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(rest in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut file = Vec::from(*b"GGUF\x03\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
        file.extend(rest);
        let _ = open(&file);
    }
}
