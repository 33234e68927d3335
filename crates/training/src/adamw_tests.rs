//! Steps against a computation by hand in f64, and what a restart preserves.

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
    let AdamW { beta1, beta2, eps, weight_decay, .. } = settings;
    let (mut first, mut second) = (0.0, 0.0);
    for (gradient, step) in gradients.iter().zip(1..) {
        first = beta1 * first + (1.0 - beta1) * gradient;
        second = beta2 * second + (1.0 - beta2) * gradient * gradient;
        let (m, v) = (first / (1.0 - beta1.powi(step)), second / (1.0 - beta2.powi(step)));
        weight = weight * (1.0 - rate * weight_decay) - rate * m / (v.sqrt() + eps);
    }
    weight
}

#[test]
fn steps_are_those_of_the_book() {
    let settings = AdamW { max_grad_norm: 1e9, ..AdamW::default() };
    let weight = parameter(&[0.5], Kind::Float);
    let mut optimizer = Optimizer::new(named(&[&weight]), settings).unwrap();
    let gradients: [f64; 3] = [0.3, -2.0, 1e-4];
    for gradient in gradients {
        pull(&weight, &[gradient as f32]);
        optimizer.accumulate_gradients();
        assert!(
            matches!(optimizer.step(0.01).unwrap(), StepOutcome::Taken(norm) if (norm - gradient.abs()).abs() < 1e-6)
        );
    }
    let wanted = by_the_book(0.5, &gradients, 0.01, settings);
    assert!((f64::from(values(&weight)[0]) - wanted).abs() < 1e-6);
}

#[test]
fn long_gradients_are_shortened_over_all_parameters() {
    let (one, two) = (parameter(&[0.0], Kind::Float), parameter(&[0.0, 0.0], Kind::Float));
    let mut optimizer = Optimizer::new(named(&[&one, &two]), AdamW::default()).unwrap();
    pull(&one, &[3.0]);
    pull(&two, &[0.0, 4.0]);
    optimizer.accumulate_gradients();
    assert!(
        matches!(optimizer.step(1.0).unwrap(), StepOutcome::Taken(norm) if (norm - 5.0).abs() < 1e-6)
    );
    let state = optimizer.state().unwrap();
    let firsts: Vec<f32> = state.first.iter().flat_map(|(_, tensor)| values(tensor)).collect();
    let wanted = [0.06, 0.0, 0.08];
    assert!(firsts.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{firsts:?}");
}

#[test]
fn gradients_add_up_over_batches() {
    let weight = parameter(&[1.0, 2.0], Kind::Float);
    let mut optimizer =
        Optimizer::new(named(&[&weight]), AdamW { max_grad_norm: 1e9, ..AdamW::default() })
            .unwrap();
    for gradient in [[1.0, 0.5], [2.0, -0.5]] {
        pull(&weight, &gradient);
        optimizer.accumulate_gradients();
    }
    assert!(
        matches!(optimizer.step(0.1).unwrap(), StepOutcome::Taken(norm) if (norm - 3.0).abs() < 1e-6)
    );
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let weight = parameter(&[1.0, 2.0], Kind::Float);
    let mut optimizer = Optimizer::new(named(&[&weight]), AdamW::default()).unwrap();
    pull(&weight, &[f32::NAN, 1.0]);
    optimizer.accumulate_gradients();
    assert_eq!(optimizer.step(0.1).unwrap(), StepOutcome::Skipped);
    assert_eq!(values(&weight), [1.0, 2.0]);
    pull(&weight, &[1.0, 1.0]);
    optimizer.accumulate_gradients();
    assert!(matches!(optimizer.step(0.1).unwrap(), StepOutcome::Taken(_)), "and the next is taken");
}

#[test]
fn steps_too_small_for_sixteen_bits_add_up_in_the_masters() {
    let weight = parameter(&[1.0], Kind::BFloat16);
    let mut optimizer =
        Optimizer::new(named(&[&weight]), AdamW { weight_decay: 0.0, ..AdamW::default() }).unwrap();
    for _ in 0..100 {
        pull(&weight, &[1.0]);
        optimizer.accumulate_gradients();
        optimizer.step(1e-4).unwrap();
    }
    let master = values(&optimizer.state().unwrap().master[0].1)[0];
    assert!((master - 0.99).abs() < 1e-4, "{master}");
    assert!((values(&weight)[0] - 0.99).abs() < 4e-3);
}

#[test]
fn a_restored_state_continues_exactly() {
    let play = |optimizer: &mut Optimizer, weight: &Tensor, steps: std::ops::Range<u32>| {
        for step in steps {
            pull(weight, &[step as f32 * 0.1 - 0.2, 1.0]);
            optimizer.accumulate_gradients();
            optimizer.step(0.05).unwrap();
        }
    };
    let whole = parameter(&[0.1, -0.7], Kind::Float);
    let mut undisturbed = Optimizer::new(named(&[&whole]), AdamW::default()).unwrap();
    play(&mut undisturbed, &whole, 0..6);

    let before = parameter(&[0.1, -0.7], Kind::Float);
    let mut first = Optimizer::new(named(&[&before]), AdamW::default()).unwrap();
    play(&mut first, &before, 0..3);
    let state = first.state().unwrap();
    let after = parameter(&[9.0, 9.0], Kind::Float);
    let mut second = Optimizer::new(named(&[&after]), AdamW::default()).unwrap();
    second.load_state(&state).unwrap();
    play(&mut second, &after, 3..6);
    assert_eq!(values(&whole), values(&after));
}

#[test]
fn the_state_of_another_model_is_refused() {
    let weight = parameter(&[1.0, 2.0], Kind::Float);
    let mut optimizer = Optimizer::new(named(&[&weight]), AdamW::default()).unwrap();
    let mut state = optimizer.state().unwrap();
    state.second[0].1 = Tensor::zeros([3], (Kind::Float, Device::Cpu));
    assert!(matches!(optimizer.load_state(&state), Err(OptimizerStateError::Shape { .. })));
    state.second.clear();
    let error = optimizer.load_state(&state).unwrap_err();
    assert_eq!(error.to_string(), "the checkpoint lacks parameter p0");
    let mut more = state.master;
    more.push(("p1".into(), Tensor::from_slice(&[0f32])));
    let error = optimizer.reset_to(&more).unwrap_err();
    assert_eq!(error.to_string(), "the model has no parameter p1");
    assert_eq!(values(&weight), [1.0, 2.0]);
}

#[test]
fn a_reset_keeps_all_bits_of_the_weights_and_no_moments() {
    let weight = parameter(&[1.0], Kind::BFloat16);
    let mut optimizer = Optimizer::new(named(&[&weight]), AdamW::default()).unwrap();
    pull(&weight, &[1.0]);
    optimizer.accumulate_gradients();
    optimizer.step(0.1).unwrap();
    optimizer.reset_to(&[("p0".into(), Tensor::from_slice(&[0.3f32]))]).unwrap();
    let state = optimizer.state().unwrap();
    assert_eq!((values(&state.master[0].1), state.steps), (vec![0.3f32], 0));
    assert_eq!((values(&state.first[0].1), values(&state.second[0].1)), (vec![0.0], vec![0.0]));
    assert_eq!(values(&weight), [0.300_781_25]);
}
