//! Steps against a computation by hand in f64, and what is kept over a stop.

use tch::{Device, Kind, Tensor};

use super::*;

fn parameter(values: &[f32], kind: Kind) -> Tensor {
    Tensor::from_slice(values).to_kind(kind).set_requires_grad(true)
}

fn named(tensors: &[&Tensor]) -> Vec<(String, Tensor)> {
    tensors
        .iter()
        .enumerate()
        .map(|(at, tensor)| (format!("p{at}"), tensor.shallow_clone()))
        .collect()
}

/// Makes `gradient` the gradient of a parameter.
fn pull(parameter: &Tensor, gradient: &[f32]) {
    let gradient = Tensor::from_slice(gradient).to_kind(parameter.kind());
    (parameter * gradient).sum(parameter.kind()).backward();
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.to_kind(Kind::Float).detach()).unwrap()
}

/// One number through AdamW by the book.
fn by_the_book(mut weight: f64, gradients: &[f64], rate: f64, settings: AdamW) -> f64 {
    let AdamW { beta1, beta2, eps, decay, .. } = settings;
    let (mut first, mut second) = (0.0, 0.0);
    for (gradient, step) in gradients.iter().zip(1..) {
        first = beta1 * first + (1.0 - beta1) * gradient;
        second = beta2 * second + (1.0 - beta2) * gradient * gradient;
        let (m, v) = (first / (1.0 - beta1.powi(step)), second / (1.0 - beta2.powi(step)));
        weight = weight * (1.0 - rate * decay) - rate * m / (v.sqrt() + eps);
    }
    weight
}

#[test]
fn steps_are_those_of_the_book() {
    let settings = AdamW { clip: 1e9, ..AdamW::default() };
    let weight = parameter(&[0.5], Kind::Float);
    let mut optimiser = Optimiser::new(named(&[&weight]), settings).unwrap();
    let gradients: [f64; 3] = [0.3, -2.0, 1e-4];
    for gradient in gradients {
        pull(&weight, &[gradient as f32]);
        optimiser.absorb();
        assert!(
            matches!(optimiser.step(0.01).unwrap(), Stepped::Taken(norm) if (norm - gradient.abs()).abs() < 1e-6)
        );
    }
    let wanted = by_the_book(0.5, &gradients, 0.01, settings);
    assert!((f64::from(values(&weight)[0]) - wanted).abs() < 1e-6);
}

#[test]
fn long_gradients_are_shortened_over_all_parameters() {
    let (one, two) = (parameter(&[0.0], Kind::Float), parameter(&[0.0, 0.0], Kind::Float));
    let mut optimiser = Optimiser::new(named(&[&one, &two]), AdamW::default()).unwrap();
    pull(&one, &[3.0]);
    pull(&two, &[0.0, 4.0]);
    optimiser.absorb();
    assert!(
        matches!(optimiser.step(1.0).unwrap(), Stepped::Taken(norm) if (norm - 5.0).abs() < 1e-6)
    );
    let kept = optimiser.memory().unwrap();
    let firsts: Vec<f32> = kept.first.iter().flat_map(|(_, tensor)| values(tensor)).collect();
    let wanted = [0.06, 0.0, 0.08];
    assert!(firsts.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{firsts:?}");
}

#[test]
fn gradients_add_up_over_batches() {
    let weight = parameter(&[1.0, 2.0], Kind::Float);
    let mut optimiser =
        Optimiser::new(named(&[&weight]), AdamW { clip: 1e9, ..AdamW::default() }).unwrap();
    for gradient in [[1.0, 0.5], [2.0, -0.5]] {
        pull(&weight, &gradient);
        optimiser.absorb();
    }
    assert!(
        matches!(optimiser.step(0.1).unwrap(), Stepped::Taken(norm) if (norm - 3.0).abs() < 1e-6)
    );
}

#[test]
fn a_gradient_that_is_no_number_changes_nothing() {
    let weight = parameter(&[1.0, 2.0], Kind::Float);
    let mut optimiser = Optimiser::new(named(&[&weight]), AdamW::default()).unwrap();
    pull(&weight, &[f32::NAN, 1.0]);
    optimiser.absorb();
    assert_eq!(optimiser.step(0.1).unwrap(), Stepped::Skipped);
    assert_eq!(values(&weight), [1.0, 2.0]);
    pull(&weight, &[1.0, 1.0]);
    optimiser.absorb();
    assert!(matches!(optimiser.step(0.1).unwrap(), Stepped::Taken(_)), "and the next is taken");
}

#[test]
fn steps_too_small_for_sixteen_bits_add_up_in_the_masters() {
    let weight = parameter(&[1.0], Kind::BFloat16);
    let mut optimiser =
        Optimiser::new(named(&[&weight]), AdamW { decay: 0.0, ..AdamW::default() }).unwrap();
    for _ in 0..100 {
        pull(&weight, &[1.0]);
        optimiser.absorb();
        optimiser.step(1e-4).unwrap();
    }
    let master = values(&optimiser.memory().unwrap().master[0].1)[0];
    assert!((master - 0.99).abs() < 1e-4, "{master}");
    assert!((values(&weight)[0] - 0.99).abs() < 4e-3);
}

#[test]
fn what_is_kept_goes_on_as_if_nothing_had_happened() {
    let play = |optimiser: &mut Optimiser, weight: &Tensor, steps: std::ops::Range<u32>| {
        for step in steps {
            pull(weight, &[step as f32 * 0.1 - 0.2, 1.0]);
            optimiser.absorb();
            optimiser.step(0.05).unwrap();
        }
    };
    let whole = parameter(&[0.1, -0.7], Kind::Float);
    let mut undisturbed = Optimiser::new(named(&[&whole]), AdamW::default()).unwrap();
    play(&mut undisturbed, &whole, 0..6);

    let before = parameter(&[0.1, -0.7], Kind::Float);
    let mut first = Optimiser::new(named(&[&before]), AdamW::default()).unwrap();
    play(&mut first, &before, 0..3);
    let kept = first.memory().unwrap();
    let after = parameter(&[9.0, 9.0], Kind::Float);
    let mut second = Optimiser::new(named(&[&after]), AdamW::default()).unwrap();
    second.recall(&kept).unwrap();
    play(&mut second, &after, 3..6);
    assert_eq!(values(&whole), values(&after));
}

#[test]
fn memory_of_another_model_is_refused() {
    let weight = parameter(&[1.0, 2.0], Kind::Float);
    let mut optimiser = Optimiser::new(named(&[&weight]), AdamW::default()).unwrap();
    let mut kept = optimiser.memory().unwrap();
    kept.second[0].1 = Tensor::zeros([3], (Kind::Float, Device::Cpu));
    assert!(matches!(optimiser.recall(&kept), Err(MemoryError::Shape { .. })));
    kept.second.clear();
    let error = optimiser.recall(&kept).unwrap_err();
    assert_eq!(error.to_string(), "there is nothing about parameter p0");
    let mut more = kept.master;
    more.push(("p1".into(), Tensor::from_slice(&[0f32])));
    let error = optimiser.adopt(&more).unwrap_err();
    assert_eq!(error.to_string(), "the model has no parameter p1");
    assert_eq!(values(&weight), [1.0, 2.0]);
}

#[test]
fn weights_that_are_adopted_keep_all_their_bits_and_nothing_else() {
    let weight = parameter(&[1.0], Kind::BFloat16);
    let mut optimiser = Optimiser::new(named(&[&weight]), AdamW::default()).unwrap();
    pull(&weight, &[1.0]);
    optimiser.absorb();
    optimiser.step(0.1).unwrap();
    optimiser.adopt(&[("p0".into(), Tensor::from_slice(&[0.3f32]))]).unwrap();
    let kept = optimiser.memory().unwrap();
    assert_eq!((values(&kept.master[0].1), kept.steps), (vec![0.3f32], 0));
    assert_eq!((values(&kept.first[0].1), values(&kept.second[0].1)), (vec![0.0], vec![0.0]));
    assert_eq!(values(&weight), [0.300_781_25]);
}
