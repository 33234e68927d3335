//! Builds llama.cpp's sampler chain from the sampling settings.

use llama_cpp_2::{sampling::LlamaSampler, token::LlamaToken};
use model::Sampling;
use sampling::SamplingParams;

/// Defaults of llama.cpp's own server.
const TEMPERATURE: f64 = 0.8;
const TOP_K: u64 = 40;
const TOP_P: f64 = 0.95;
const MIN_P: f64 = 0.05;

/// How many of the last tokens the repetition penalty considers.
const PENALTY_WINDOW: usize = 256;

/// The chain for a request. `vocabulary` is the size of the model's vocabulary.
pub(crate) fn chain(sampling: &Sampling, vocabulary: i32, prompt: &[LlamaToken]) -> LlamaSampler {
    let mut chain = Vec::new();
    let penalty = sampling.repetition_penalty.unwrap_or(1.0);
    let penalized = penalty > 0.0 && penalty.is_finite() && penalty != 1.0;
    if penalized {
        let back = i32::try_from(PENALTY_WINDOW).unwrap_or(i32::MAX);
        chain.push(LlamaSampler::penalties(vocabulary, back, penalty as f32, 0.0, 0.0));
    }
    let temperature = sampling.temperature.unwrap_or(TEMPERATURE);
    // A temperature that is not finite is greedy as well.
    if temperature > 0.0 && temperature.is_finite() {
        let top_k = sampling.top_k.unwrap_or(TOP_K);
        let top_k = i32::try_from(top_k).unwrap_or(i32::MAX).min(vocabulary);
        chain.extend([
            LlamaSampler::top_k(top_k),
            LlamaSampler::top_p(probability(sampling.top_p, TOP_P), 1),
            LlamaSampler::min_p(probability(sampling.min_p, MIN_P), 1),
            LlamaSampler::temp(temperature as f32),
            LlamaSampler::dist(seed(sampling.seed)),
        ]);
    } else {
        chain.push(LlamaSampler::greedy());
    }
    let mut chain = LlamaSampler::chain(chain, true);
    if penalized {
        chain.accept_many(prompt.iter().skip(prompt.len().saturating_sub(PENALTY_WINDOW)));
    }
    chain
}

/// The chain for a request of tokens: the temperature first, as trainers and other servers have it.
pub(crate) fn token_chain(params: &SamplingParams, vocabulary: i32) -> LlamaSampler {
    let SamplingParams { temperature, top_p, top_k, seed } = *params;
    if temperature == 0.0 {
        return LlamaSampler::chain([LlamaSampler::greedy()], true);
    }
    let mut chain = vec![LlamaSampler::temp(temperature as f32)];
    if let Some(top_k) = top_k {
        chain.push(LlamaSampler::top_k(i32::try_from(top_k).unwrap_or(i32::MAX).min(vocabulary)));
    }
    if top_p < 1.0 {
        chain.push(LlamaSampler::top_p(top_p as f32, 1));
    }
    chain.push(LlamaSampler::dist(self::seed(Some(seed))));
    LlamaSampler::chain(chain, true)
}

/// The log-probability of a token at a temperature (at 1 where that is 0), of all tokens; NaN where the logits are not
/// finite.
pub(crate) fn logprob(logits: &[f32], temperature: f64, token: LlamaToken) -> f32 {
    let scale = if temperature == 0.0 { 1.0 } else { 1.0 / temperature };
    let own = usize::try_from(token.0).ok().and_then(|at| logits.get(at));
    let Some(own) = own else { return f32::NAN };
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let distance = |logit: f32| (f64::from(logit) - f64::from(most)) * scale;
    let sum: f64 = logits.iter().map(|logit| distance(*logit).exp()).sum();
    (distance(*own) - sum.ln()) as f32
}

fn probability(setting: Option<f64>, default: f64) -> f32 {
    let value = setting.unwrap_or(default);
    if value.is_nan() { default as f32 } else { value.clamp(0.0, 1.0) as f32 }
}

/// llama.cpp's seeds have 32 bits: both halves are used.
fn seed(setting: Option<u64>) -> u32 {
    setting.map_or_else(|| fastrand::u32(..), |seed| (seed ^ (seed >> 32)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_are_those_of_the_temperature() {
        let logits = [0.0, 2.0, 1.0];
        let at = |temperature: f64, token: i32| logprob(&logits, temperature, LlamaToken(token));
        let exact = |temperature: f64, token: usize| {
            let sum: f64 = logits.iter().map(|x| (f64::from(*x) / temperature).exp()).sum();
            (f64::from(logits[token]) / temperature - sum.ln()) as f32
        };
        for temperature in [0.5, 1.0, 2.0] {
            assert!((at(temperature, 2) - exact(temperature, 2)).abs() < 1e-6);
        }
        assert_eq!(at(0.0, 1), at(1.0, 1));
        assert!(at(1.0, 7).is_nan());
        assert!(logprob(&[f32::NAN, 1.0], 1.0, LlamaToken(1)).is_nan());
        assert!(logprob(&[f32::INFINITY, 1.0], 1.0, LlamaToken(1)).is_nan());
        // Far below the smallest number, and still exact.
        assert!((logprob(&[1e5, 0.0], 1.0, LlamaToken(0))).abs() < 1e-6);
    }
}
