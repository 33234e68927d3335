//! What is written is what is read.

use std::io::Write;

use lis_gguf::{Array, File, NewTensor, TensorData, Value, WriteError, write};

#[test]
fn every_type_of_value_comes_back() {
    let values = vec![
        Value::U8(1),
        Value::I8(-1),
        Value::U16(2),
        Value::I16(-2),
        Value::U32(3),
        Value::I32(-3),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F32(0.5),
        Value::F64(-0.25),
        Value::Bool(true),
        Value::from("ä\n"),
        Value::Array(Array::U8(vec![1, 2])),
        Value::Array(Array::I8(vec![-1])),
        Value::Array(Array::U16(vec![7])),
        Value::Array(Array::I16(vec![-7])),
        Value::Array(Array::U32(vec![])),
        Value::Array(Array::I32(vec![1, -2])),
        Value::Array(Array::U64(vec![9])),
        Value::Array(Array::I64(vec![-9])),
        Value::Array(Array::F32(vec![1.5])),
        Value::Array(Array::F64(vec![2.5])),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::String(vec![String::new(), "x".to_owned()])),
    ];
    let metadata: Vec<_> =
        values.into_iter().enumerate().map(|(at, value)| (format!("k{at}"), value)).collect();
    let tensors = [
        NewTensor {
            name: "a".to_owned(),
            dimensions: vec![3, 1],
            data: TensorData::F32(vec![1.0, 2.0, 3.0]),
        },
        NewTensor {
            name: "b".to_owned(),
            dimensions: vec![1],
            data: TensorData::F16(vec![half::f16::from_f32(-4.0)]),
        },
    ];
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = Vec::new();
    write(&mut bytes, &metadata, &tensors).unwrap();
    file.write_all(&bytes).unwrap();
    let read = File::open(file.path()).unwrap();
    assert_eq!(read.metadata(), metadata);
    assert_eq!(read.get("k11").and_then(Value::as_str), Some("ä\n"));
    for (tensor, numbers) in tensors.iter().zip([vec![1.0, 2.0, 3.0], vec![-4.0]]) {
        assert_eq!(read.tensor(&tensor.name).unwrap().dimensions, tensor.dimensions);
        assert_eq!(read.read_f32(&tensor.name).unwrap(), numbers);
    }
}

#[test]
fn numbers_that_do_not_fit_their_dimensions_are_refused() {
    let tensor = NewTensor {
        name: "a".to_owned(),
        dimensions: vec![2, 2],
        data: TensorData::F32(vec![1.0; 3]),
    };
    let refused = write(&mut Vec::new(), &[], &[tensor]);
    assert!(matches!(refused, Err(WriteError::Length { values: 3, .. })));
}
