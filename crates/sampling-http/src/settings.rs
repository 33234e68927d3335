//! Which server, how it is used, and which log-probabilities it returns. Plain values.

use model::{Endpoint, Retry};
use sampling::SamplingParams;
use serde::{Deserialize, Serialize};

/// A server and how it is used.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The server; its base URL ends with the version, as in `http://localhost:8000/v1`.
    pub endpoint: Endpoint,
    /// The protocol.
    pub api: Api,
    /// Maximum tokens of a sequence; `None` for what the server reports.
    pub context: Option<usize>,
    /// Which log-probabilities the server returns; `None` for what a server of its kind returns by default.
    pub logprobs: Option<LogprobsKind>,
    /// Ids from this on do not exist.
    pub vocabulary: usize,
    /// Concurrent requests; further ones wait.
    pub concurrency: usize,
    /// How transient failures are retried.
    pub retry: Retry,
}

impl ServerSettings {
    /// The defaults for a server and the size of its vocabulary.
    pub fn new(endpoint: Endpoint, vocabulary: usize) -> Self {
        Self {
            endpoint,
            api: Api::default(),
            context: None,
            logprobs: None,
            vocabulary,
            concurrency: 256,
            retry: Retry::default(),
        }
    }
}

/// A protocol with token ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/v1/completions` with `return_token_ids`: vLLM, SGLang, `llm-in-sandbox`.
    #[default]
    Completions,
    /// SGLang's `/generate` with `input_ids`, for versions without `return_token_ids`.
    Generate,
}

/// What the log-probabilities of a server refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogprobsKind {
    /// The network's output as it is, at temperature 1: vLLM's default.
    Raw,
    /// After temperature, `top_p` and `top_k`: vLLM with `--logprobs-mode processed_logprobs`.
    Processed,
    /// After the temperature alone: SGLang and `llm-in-sandbox`.
    Temperature,
}

impl LogprobsKind {
    /// The default of a server, by the owner in its list of models.
    pub(crate) fn of_owner(owner: &str) -> Self {
        match owner {
            "sglang" | "llm-in-sandbox" => Self::Temperature,
            _ => Self::Raw,
        }
    }

    /// Whether these are the log-probabilities that [`sampling::Sampled`] promises: at the requested temperature, before
    /// `top_p` and `top_k`.
    pub fn is_exact(self, params: &SamplingParams) -> bool {
        let whole = params.top_p >= 1.0 && params.top_k.is_none();
        match self {
            Self::Temperature => true,
            // Those of greedy sampling are at 1.
            Self::Raw => params.temperature == 1.0 || params.temperature == 0.0,
            Self::Processed => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_settings_give_the_promised_logprobs() {
        use LogprobsKind::{Processed, Raw, Temperature};
        let params =
            |temperature, top_p, top_k| SamplingParams { temperature, top_p, top_k, seed: 0 };
        for (params, raw, processed) in [
            (params(1.0, 1.0, None), true, true),
            (params(1.0, 0.9, None), true, false),
            (params(0.7, 1.0, None), false, true),
            (params(0.7, 1.0, Some(20)), false, false),
            (params(0.0, 1.0, None), true, true),
        ] {
            let exact = [Raw, Processed, Temperature].map(|kind| kind.is_exact(&params));
            assert_eq!(exact, [raw, processed, true], "{params:?}");
        }
    }
}
