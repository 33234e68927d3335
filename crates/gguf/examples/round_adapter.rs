//! Rounds the numbers of an adapter, so that the file compresses better and stays a plain GGUF file in half precision:
//!
//! ```sh
//! cargo run --release -p lis-gguf --example round_adapter -- adapter.gguf rounded.gguf 4.4
//! ```
//!
//! Every number becomes a multiple of a step: the power of two nearest to the root mean square of its tensor, divided by two
//! to the number given last. Prints the relative error.

use std::{env, error::Error, fs, io::BufWriter, path::Path};

use half::f16;
use lis_gguf::{File, NewTensor, TensorData, write};

#[expect(clippy::print_stdout, reason = "this is a program")]
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [from, to, bits] = &args[..] else {
        return Err("usage: round_adapter FROM.gguf TO.gguf BITS".into());
    };
    let bits: f64 = bits.parse()?;
    let file = File::open(Path::new(from))?;
    let (mut error, mut total) = (0.0, 0.0);
    let mut tensors = Vec::new();
    for tensor in file.tensors() {
        let values = file.read_f32(&tensor.name)?;
        let rounded = round(&values, bits);
        // Relative to each tensor: the factors of an adapter differ in size, and both matter.
        let square = |numbers: &mut dyn Iterator<Item = f32>| -> f64 {
            numbers.map(|number| f64::from(number).powi(2)).sum()
        };
        let size = square(&mut values.iter().copied()).max(f64::MIN_POSITIVE);
        let off = square(&mut values.iter().zip(&rounded).map(|(a, b)| a - b.to_f32()));
        error += off / size * values.len() as f64;
        total += values.len() as f64;
        let (name, dimensions) = (tensor.name.clone(), tensor.dimensions.clone());
        tensors.push(NewTensor { name, dimensions, data: TensorData::F16(rounded) });
    }
    write(&mut BufWriter::new(fs::File::create_new(to)?), file.metadata(), &tensors)?;
    println!("relative error {:.4}", (error / total).sqrt());
    Ok(())
}

/// The numbers as multiples of a step that depends on their size.
fn round(values: &[f32], bits: f64) -> Vec<f16> {
    let squares: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
    let size = (squares / values.len().max(1) as f64).sqrt();
    if size == 0.0 {
        return vec![f16::ZERO; values.len()];
    }
    // Half precision has no smaller step.
    let step = (size.log2() - bits).round().max(-24.0).exp2();
    values
        .iter()
        .map(|value| f16::from_f64((f64::from(*value) / step).round_ties_even() * step))
        .collect()
}
