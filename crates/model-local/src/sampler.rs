//! Builds llama.cpp's sampler chain from the sampling settings.

use llama_cpp_2::{sampling::LlamaSampler, token::LlamaToken};
use model::Sampling;

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

fn probability(setting: Option<f64>, default: f64) -> f32 {
    let value = setting.unwrap_or(default);
    if value.is_nan() { default as f32 } else { value.clamp(0.0, 1.0) as f32 }
}

/// llama.cpp's seeds have 32 bits: both halves are used.
fn seed(setting: Option<u64>) -> u32 {
    setting.map_or_else(|| fastrand::u32(..), |seed| (seed ^ (seed >> 32)) as u32)
}
