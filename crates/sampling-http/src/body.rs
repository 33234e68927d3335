//! The bodies of requests, in both protocols.
//!
//! Every parameter is sent: what is left out, a server takes from the model's `generation_config.json`.

use sampling::SamplingParams;
use serde_json::{Map, Value, json};

/// What is requested of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) model: &'a str,
    pub(crate) prompt: &'a [u32],
    pub(crate) max_tokens: usize,
    pub(crate) params: SamplingParams,
    pub(crate) stop_tokens: &'a [u32],
}

impl Wanted<'_> {
    /// `/v1/completions`.
    pub(crate) fn completions(&self) -> Map<String, Value> {
        let mut body = self.sampling();
        body.insert("model".into(), json!(self.model));
        body.insert("prompt".into(), json!(self.prompt));
        body.insert("max_tokens".into(), json!(self.max_tokens));
        body.insert("seed".into(), json!(self.seed()));
        body.insert("stream".into(), json!(true));
        body.insert("return_token_ids".into(), json!(true));
        // The sampled token's, and that of the most likely one: 0 means none to some servers.
        body.insert("logprobs".into(), json!(1));
        // vLLM then writes the ids into the log-probabilities too, which shows that they belong together.
        body.insert("return_tokens_as_token_ids".into(), json!(true));
        body
    }

    /// SGLang's `/generate`.
    pub(crate) fn generate(&self) -> Map<String, Value> {
        let mut params = self.sampling();
        params.insert("max_new_tokens".into(), json!(self.max_tokens));
        params.insert("sampling_seed".into(), json!(self.seed()));
        params.insert("no_stop_trim".into(), json!(true));
        let mut body = Map::new();
        body.insert("input_ids".into(), json!(self.prompt));
        body.insert("sampling_params".into(), Value::Object(params));
        body.insert("return_logprob".into(), json!(true));
        // Each event of a stream would repeat all log-probabilities before it.
        body.insert("stream".into(), json!(false));
        body
    }

    fn sampling(&self) -> Map<String, Value> {
        let SamplingParams { temperature, top_p, top_k, .. } = self.params;
        // -1 is no limit to every server.
        let top_k = top_k.and_then(|top_k| i64::try_from(top_k).ok()).unwrap_or(-1);
        let fields = [
            ("temperature", json!(temperature)),
            ("top_p", json!(top_p)),
            ("top_k", json!(top_k)),
            ("min_p", json!(0.0)),
            ("repetition_penalty", json!(1.0)),
            ("presence_penalty", json!(0.0)),
            ("frequency_penalty", json!(0.0)),
            ("stop_token_ids", json!(self.stop_tokens)),
            ("skip_special_tokens", json!(false)),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Servers take a signed number.
    fn seed(&self) -> u64 {
        self.params.seed & i64::MAX.unsigned_abs()
    }
}
