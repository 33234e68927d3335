//! Recognizes models too small for tool calls by their names.

/// Whether a model of this name works better with blocks of commands than with tool calls.
pub(super) fn is_small(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.rsplit('/').next().unwrap_or(&name);
    match billions(name) {
        Some(size) => size <= MAX_BILLIONS,
        None => {
            ["smollm", "tinyllama"].iter().any(|family| name.contains(family))
                || name.contains("phi")
                    && ["mini", "phi-1", "phi-2"].iter().any(|one| name.contains(one))
        }
    }
}

/// Models with more parameters, in billions, handle tool calls.
const MAX_BILLIONS: f64 = 3.3;

/// Fewer millions are a context length, not a model size.
const MIN_MILLIONS: f64 = 30.0;

/// The number of parameters in a name such as `qwen2.5-coder-1.5b`; the largest of several, as in `30b-a3b`.
fn billions(name: &str) -> Option<f64> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let sizes = words.filter_map(|word| {
        let billions = word.strip_suffix('b').and_then(|size| size.parse::<f64>().ok());
        let millions = word.strip_suffix('m').and_then(|size| size.parse::<f64>().ok());
        billions.or(millions.filter(|size| *size >= MIN_MILLIONS).map(|size| size / 1000.0))
    });
    sizes.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_models_are_known_by_name() {
        for name in [
            "qwen2.5-coder-1.5b",
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            "qwen2.5-coder:3b",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            "SmolLM2-135M-Instruct",
            "smollm2",
            "tinyllama",
            "meta-llama/Llama-3.2-1B-Instruct",
            "gemma-2b-it",
            "gemma3:1b",
            "microsoft/phi-2",
            "phi-3.5-mini-instruct",
        ] {
            assert!(is_small(name), "{name}");
        }
    }

    #[test]
    fn others_are_not() {
        for name in [
            "gpt-4o-mini",
            "o4-mini",
            "claude-sonnet-4-5",
            "Qwen/Qwen3-Coder-30B-A3B-Instruct",
            "qwen2.5-coder-7b",
            "qwen2.5-14b-instruct-1m",
            "llama-3.3-70b",
            "mixtral-8x7b",
            "gemma-3-27b-it",
            "phi-4",
            "gpt-5-nano",
            "",
        ] {
            assert!(!is_small(name), "{name}");
        }
    }
}
