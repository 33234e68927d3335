//! Sampling on the device, and what the kernels are made for.

use super::*;
use crate::{Output, Scaling};

const VOCABULARY: i64 = 1001;

fn shape() -> Shape {
    Shape {
        architecture: Architecture::Llama,
        hidden: 64,
        layers: 1,
        heads: 16,
        kv_heads: 1,
        head_dim: 64,
        intermediate: 64,
        vocabulary: VOCABULARY,
        rope_theta: 10_000.0,
        rope_scaling: Scaling::None,
        norm_eps: 1e-5,
        output: Output::Tied,
        positions: 64,
    }
}

/// The kernels on a GPU; `None` with a message where there is none.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what must work")]
fn kernels() -> Option<Kernels> {
    if let Err(error) = crate::load_cuda() {
        let required = std::env::var("LIS_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "cuda"), "{error}");
        println!("skip: no CUDA");
        return None;
    }
    let net = Network::random(shape(), 3, Device::Cuda(0), Kind::BFloat16).unwrap();
    Some(Kernels::new(&net).unwrap())
}

/// Samples from logits `[rows, vocabulary]` with these random numbers: tokens and log-probabilities.
fn sample(kernels: &Kernels, logits: &Tensor, uniforms: &[f64]) -> (Vec<i64>, Vec<f64>) {
    let device = kernels.device;
    let rows: Vec<i64> = uniforms
        .iter()
        .flat_map(|uniform| {
            let [uniform, one, greedy] =
                [*uniform, 1.0, 0.0].map(|field| field.to_bits().cast_signed());
            [0, 0, 0, 0, uniform, one, greedy, 0]
        })
        .collect();
    let count = uniforms.len() as i64;
    let rows = Tensor::from_slice(&rows).view([count, ROW as i64]).to_device(device);
    let parts = kernels.parts(count, device).unwrap();
    let out = Tensor::full([2 * count], -1.0, (Kind::Double, device));
    let logits = logits.to_kind(kernels.logits).to_device(device);
    kernels.sample(&rows, &logits, &parts, &out).unwrap();
    let mut tokens = Vec::<f64>::try_from(&out.to_device(Device::Cpu)).unwrap();
    let logprobs = tokens.split_off(uniforms.len());
    (tokens.iter().map(|token| *token as i64).collect(), logprobs)
}

fn noise(rows: i64) -> Tensor {
    tch::manual_seed(5);
    let noise = Tensor::randn([rows, VOCABULARY], (Kind::Float, Device::Cpu)) * 2.0;
    noise.to_kind(Kind::BFloat16).to_kind(Kind::Double)
}

#[test]
fn tokens_are_drawn_by_their_probabilities() {
    let Some(kernels) = kernels() else { return };
    let logits = noise(300);
    let uniforms: Vec<f64> = (0..300).map(|row| f64::from(row) / 300.0).collect();
    let (tokens, logprobs) = sample(&kernels, &logits, &uniforms);
    let expected = logits.log_softmax(1, Kind::Double);
    let cumulative = expected.exp().cumsum(1, Kind::Double);
    for (row, uniform) in (0..).zip(&uniforms) {
        let token = tokens[row as usize];
        let upto = cumulative.double_value(&[row, token]);
        let logprob = expected.double_value(&[row, token]);
        let (from, to) = (upto - logprob.exp() - 1e-5, upto + 1e-5);
        assert!((from..to).contains(uniform), "row {row}: {uniform} is not in {from}..{to}");
        assert!((logprobs[row as usize] - logprob).abs() < 1e-3, "row {row}");
    }
}

#[test]
fn rounding_never_means_an_all_but_impossible_token() {
    let Some(kernels) = kernels() else { return };
    let logits = noise(400);
    // The last token has a probability of about e^-40, and the sums of both kernels differ by more than that.
    let _ = logits.narrow(1, VOCABULARY - 1, 1).fill_(-30.0);
    let uniforms = vec![1.0 - f64::EPSILON / 2.0; 400];
    let (tokens, logprobs) = sample(&kernels, &logits, &uniforms);
    let likeliest = logits.argmax(1, false);
    let gaps = (0..).zip(&tokens).filter(|(row, token)| likeliest.int64_value(&[*row]) == **token);
    // About half of the sums are rounded up.
    assert!((40..=360).contains(&gaps.count()), "{tokens:?}");
    assert!(tokens.iter().all(|token| *token < VOCABULARY - 1), "{tokens:?}");
    assert!(logprobs.iter().all(|logprob| *logprob > -25.0), "{logprobs:?}");
}

#[test]
fn wrong_tensors_are_refused() {
    let Some(kernels) = kernels() else { return };
    let x = Tensor::zeros([4, 64], (Kind::BFloat16, kernels.device));
    let weight = Tensor::ones([64], (Kind::BFloat16, kernels.device));
    assert!(kernels.rms_norm(&x, &weight, &x.empty_like()).is_ok());
    let wrong = [
        x.narrow(0, 0, 3),
        x.to_kind(Kind::Float),
        x.to_device(Device::Cpu),
        Tensor::zeros([64, 4], (Kind::BFloat16, kernels.device)).tr(),
    ];
    for out in wrong {
        assert!(kernels.rms_norm(&x, &weight, &out).is_err(), "{out:?}");
    }
}

#[test]
fn the_kernels_are_for_bfloat16_and_common_heads() {
    assert_eq!(suitable(&shape(), Kind::BFloat16), Ok(()));
    assert!(suitable(&shape(), Kind::Float).is_err());
    let wrong = [
        Shape { head_dim: 96, ..shape() },
        Shape { heads: 34, kv_heads: 2, ..shape() },
        Shape { hidden: 60, ..shape() },
    ];
    for shape in wrong {
        assert!(suitable(&shape, Kind::BFloat16).is_err(), "{shape:?}");
    }
}

#[test]
fn few_sequences_are_split_over_blocks() {
    let shape = Shape { heads: 16, kv_heads: 4, ..shape() };
    assert_eq!([1, 2, 8, 32, 500].map(|rows| splits(rows, &shape)), [16, 16, 4, 1, 1]);
}
