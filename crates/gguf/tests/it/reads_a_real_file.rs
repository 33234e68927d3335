//! A real model's file, where there is one.

use lis_gguf::{File, Value};

/// The file named by a variable, or none with a visible skip.
fn file(variable: &str) -> Option<File> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(File::open(path.as_ref()).unwrap());
    }
    let required = std::env::var("LIS_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "gguf"), "{variable} is not set");
    println!("skip: {variable} names no model");
    None
}

#[test]
fn a_small_llama_is_read() {
    let Some(file) = file("LIS_TEST_TINY_GGUF") else { return };
    assert_eq!(file.get("general.architecture").and_then(Value::as_str), Some("llama"));
    assert_eq!(file.get("llama.block_count").and_then(Value::as_u64), Some(30));
    assert_eq!(
        file.get("tokenizer.ggml.tokens").and_then(Value::as_strings).map(<[String]>::len),
        Some(49152)
    );
    let embedding = file.tensor("token_embd.weight").unwrap();
    assert_eq!(embedding.dimensions, [576, 49152]);
    let norm = file.read_f32("output_norm.weight").unwrap();
    assert_eq!(norm.len(), 576);
    for tensor in file.tensors().iter().filter(|tensor| tensor.name.starts_with("blk.0.")) {
        let numbers = file.read_f32(&tensor.name).unwrap();
        assert!(
            numbers.iter().all(|number| number.is_finite() && number.abs() < 1000.0),
            "{}",
            tensor.name
        );
        let squares: f64 = numbers.iter().map(|number| f64::from(*number).powi(2)).sum();
        assert!(squares / numbers.len() as f64 > 1e-8, "{}", tensor.name);
    }
}
