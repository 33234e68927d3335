//! Tokens are drawn according to their probabilities, and the same numbers draw the same tokens.

use tch::{Device, Kind, Tensor};

use super::*;

fn draws(all: &[Draw]) -> Tensor {
    let field = |value: fn(&Draw) -> f64| all.iter().map(value).collect::<Vec<_>>();
    let values = [
        field(|draw| draw.uniform),
        field(|draw| draw.inverse_temperature),
        field(|draw| draw.greedy),
    ]
    .concat();
    Tensor::from_slice(&values).view([3, all.len() as i64])
}

fn sampled(pairs: &Tensor) -> (Vec<i64>, Vec<f64>) {
    let read = |row| Vec::<f64>::try_from(&pairs.select(0, row)).unwrap();
    (read(0).into_iter().map(|token| token as i64).collect(), read(1))
}

fn choice(temperature: f64, seed: u64) -> SamplingParams {
    SamplingParams { temperature, top_p: 1.0, top_k: None, seed }
}

/// Logits of a vocabulary that is not a multiple of the block size.
fn scores(vocabulary: i64) -> Tensor {
    (Tensor::arange(vocabulary, (Kind::Float, Device::Cpu)) * 0.37).sin() * 3.0
}

#[test]
fn every_number_draws_the_token_whose_share_it_falls_into() {
    let scores = scores(300).unsqueeze(0);
    for temperature in [0.5, 1.0, 2.0] {
        let shares = (&scores / temperature).softmax(1, Kind::Double);
        let running = Vec::<f64>::try_from(&shares.cumsum(1, Kind::Double).squeeze()).unwrap();
        for step in 0..500 {
            let uniform = (f64::from(step) + 0.5) / 500.0;
            let expected = running.iter().position(|&sum| sum > uniform).unwrap() as i64;
            let draw = Draw { uniform, inverse_temperature: 1.0 / temperature, greedy: 0.0 };
            let (token, logprob) = sampled(&sample_tokens(&scores, &draws(&[draw])).unwrap());
            let off = (running[expected as usize] - uniform).abs();
            assert!(
                token[0] == expected || off < 1e-5,
                "{temperature} {uniform}: {token:?} {expected}"
            );
            let share = shares.double_value(&[0, token[0]]);
            assert!((logprob[0] - share.ln()).abs() < 1e-5);
        }
    }
}

#[test]
fn the_ends_of_the_range_draw_real_tokens() {
    let mut only = Tensor::full([1, 200], -1e9, (Kind::Float, Device::Cpu));
    let _ = only.narrow(1, 77, 1).fill_(5.0);
    for uniform in [0.0, 0.5, 1.0 - f64::EPSILON / 2.0] {
        let draw = Draw { uniform, inverse_temperature: 1.0, greedy: 0.0 };
        assert_eq!(sampled(&sample_tokens(&only, &draws(&[draw])).unwrap()).0, [77], "{uniform}");
    }
    let _ = only.fill_(0.0);
    let draw = |uniform| Draw { uniform, inverse_temperature: 1.0, greedy: 0.0 };
    assert_eq!(sampled(&sample_tokens(&only, &draws(&[draw(0.0)])).unwrap()).0, [0]);
    assert_eq!(sampled(&sample_tokens(&only, &draws(&[draw(1.0 - 1e-9)])).unwrap()).0, [199]);
}

#[test]
fn greedy_rows_take_the_likeliest_and_tell_its_probability_at_one() {
    let scores = scores(300);
    let both = Tensor::stack(&[&scores, &scores.neg()], 0);
    let greedy = Draw::new(&choice(0.0, 1), 9);
    let (tokens, logprobs) = sampled(&sample_tokens(&both, &draws(&[greedy, greedy])).unwrap());
    for (row, token) in tokens.iter().enumerate() {
        let row = both.get(row as i64);
        assert_eq!(*token, row.argmax(0, false).int64_value(&[]));
    }
    let expected = both.log_softmax(1, Kind::Double);
    assert!((logprobs[1] - expected.double_value(&[1, tokens[1]])).abs() < 1e-5);
}

#[test]
fn few_likely_tokens_are_chosen_among() {
    let scores = Tensor::from_slice(&[0f32, 3.0, 1.0, 2.0, -5.0]).unsqueeze(0);
    let mut drawn = std::collections::BTreeSet::new();
    for step in 0..200 {
        let draw = Draw { uniform: f64::from(step) / 200.0, inverse_temperature: 1.0, greedy: 0.0 };
        let rows = [
            TruncatedRow { row: 0, draw, top_k: 2, top_p: 1.0 },
            TruncatedRow { row: 0, draw, top_k: 5, top_p: 0.5 },
            TruncatedRow { row: 0, draw, top_k: 3, top_p: 0.95 },
        ];
        let (tokens, logprobs) = sampled(&sample_truncated(&scores, &rows).unwrap());
        drawn.extend(tokens.iter().copied().enumerate());
        let whole = scores.log_softmax(1, Kind::Double).double_value(&[0, tokens[0]]);
        assert!(
            (logprobs[0] - whole).abs() < 1e-5,
            "log-probabilities are those of the whole vocabulary"
        );
    }
    // Shares: 0.64 (1), 0.24 (3), 0.09 (2), 0.03 (0), 0.0002 (4).
    let expected = [(0, 1), (0, 3), (1, 1), (2, 1), (2, 2), (2, 3)];
    assert_eq!(drawn.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn numbers_depend_on_seed_and_place_alone() {
    let all: Vec<f64> =
        (0..100).flat_map(|seed| (0..100).map(move |place| uniform(seed, place))).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    assert!((mean - 0.5).abs() < 0.01, "{mean}");
    assert!(all.iter().all(|value| (0.0..1.0).contains(value)));
    let mut sorted = all.clone();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    assert_eq!(sorted.len(), all.len());
    assert_eq!(uniform(7, 3), uniform(7, 3));
}
