//! Models behind OpenAI's chat completions, as OpenAI, vLLM, SGLang, llama.cpp, LiteLLM and Ollama implement it.
//!
//! Differences between servers are handled by lenient parsing and by learning from refusals, not by detecting the
//! server.

mod request;
mod stream;

use crate::{
    Endpoint, Error, Listener, Model, Request, Response,
    exchange::Client,
    http::{Http, KeyStyle},
    quirks::{Field, Quirks, Replacement},
};

/// A model behind an OpenAI-compatible chat completions server.
#[derive(Debug)]
pub struct OpenAi(Client);

/// Fields a server may refuse, and what is sent instead.
const FIELDS: &[Field] = &[
    ("max_tokens", Replacement::Name("max_completion_tokens")),
    ("max_completion_tokens", Replacement::Name("max_tokens")),
    ("temperature", Replacement::Nothing),
    ("top_p", Replacement::Nothing),
    ("top_k", Replacement::Nothing),
    ("min_p", Replacement::Nothing),
    ("repetition_penalty", Replacement::Nothing),
    ("seed", Replacement::Nothing),
    ("stop", Replacement::Nothing),
    ("stream_options", Replacement::Nothing),
    (REASONING[0], Replacement::NothingInMessages),
    (REASONING[1], Replacement::NothingInMessages),
];

/// Field names under which servers send thinking.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

impl OpenAi {
    /// A client of this server. Share one between episodes: they then share its connections.
    pub fn new(endpoint: Endpoint) -> Result<Self, Error> {
        let http = Http::new(endpoint, "chat/completions", KeyStyle::Bearer)?;
        Ok(Self(Client::new(http, Quirks::new(FIELDS))))
    }

    /// The names of the server's models, as it lists them. Costs no tokens. Servers may list fewer than they have, or have
    /// no list.
    pub async fn models(&self) -> Result<Vec<String>, Error> {
        self.0.models().await
    }
}

impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.0.endpoint().model
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let body = || request::body(self.0.endpoint(), request);
        self.0.complete(request, body, stream::ChunkAssembler::new(listener), listener).await
    }
}
