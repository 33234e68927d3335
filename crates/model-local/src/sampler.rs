//! How the next token is chosen, as llama.cpp's chain of samplers.

use llama_cpp_2::{sampling::LlamaSampler, token::LlamaToken};
use model::Sampling;

/// What is not asked for, as llama.cpp's own server has it.
const TEMPERATURE: f64 = 0.8;
const TOP_K: u64 = 40;
const TOP_P: f64 = 0.95;
const MIN_P: f64 = 0.05;

/// Tokens further back are not counted as repeated.
const LOOKS_BACK: usize = 256;

/// The chain for a request. `vocabulary` is the number of tokens the model knows.
pub(crate) fn chain(sampling: &Sampling, vocabulary: i32, prompt: &[LlamaToken]) -> LlamaSampler {
    let mut chain = Vec::new();
    let penalty = sampling.repetition_penalty.unwrap_or(1.0);
    let penalised = penalty > 0.0 && penalty.is_finite() && penalty != 1.0;
    if penalised {
        let back = i32::try_from(LOOKS_BACK).unwrap_or(i32::MAX);
        chain.push(LlamaSampler::penalties(vocabulary, back, penalty as f32, 0.0, 0.0));
    }
    let temperature = sampling.temperature.unwrap_or(TEMPERATURE);
    // Neither more than 0 nor less: a temperature that is no number takes the likeliest as well.
    if temperature > 0.0 && temperature.is_finite() {
        let top_k = sampling.top_k.unwrap_or(TOP_K);
        let top_k = i32::try_from(top_k).unwrap_or(i32::MAX).min(vocabulary);
        chain.extend([
            LlamaSampler::top_k(top_k),
            LlamaSampler::top_p(share(sampling.top_p, TOP_P), 1),
            LlamaSampler::min_p(share(sampling.min_p, MIN_P), 1),
            LlamaSampler::temp(temperature as f32),
            LlamaSampler::dist(seed(sampling.seed)),
        ]);
    } else {
        chain.push(LlamaSampler::greedy());
    }
    let mut chain = LlamaSampler::chain(chain, true);
    if penalised {
        chain.accept_many(prompt.iter().skip(prompt.len().saturating_sub(LOOKS_BACK)));
    }
    chain
}

fn share(asked: Option<f64>, otherwise: f64) -> f32 {
    let share = asked.unwrap_or(otherwise);
    if share.is_nan() { otherwise as f32 } else { share.clamp(0.0, 1.0) as f32 }
}

/// llama.cpp takes half of a seed: both halves count.
fn seed(asked: Option<u64>) -> u32 {
    asked.map_or_else(|| fastrand::u32(..), |seed| (seed ^ (seed >> 32)) as u32)
}
