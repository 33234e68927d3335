//! Models behind OpenAI's chat completions, as OpenAI, vLLM, SGLang, llama.cpp, LiteLLM and Ollama speak it.
//!
//! Differences between servers are met by reading leniently and by learning from refusals, never by asking
//! which server it is.

mod request;
mod stream;

use crate::{
    Endpoint, Error, Listener, Model, Reply, Request,
    http::{Http, KeyStyle},
    quirks::{Field, Instead, Quirks},
    talk,
};

/// A model behind a chat completions server.
#[derive(Debug)]
pub struct OpenAi {
    http: Http,
    quirks: Quirks,
}

/// What a server may refuse without the request losing its sense.
const FIELDS: &[Field] = &[
    ("max_tokens", Instead::Name("max_completion_tokens")),
    ("max_completion_tokens", Instead::Name("max_tokens")),
    ("temperature", Instead::Nothing),
    ("top_p", Instead::Nothing),
    ("top_k", Instead::Nothing),
    ("min_p", Instead::Nothing),
    ("repetition_penalty", Instead::Nothing),
    ("seed", Instead::Nothing),
    ("stop", Instead::Nothing),
    ("stream_options", Instead::Nothing),
    (REASONING[0], Instead::NothingInMessages),
    (REASONING[1], Instead::NothingInMessages),
];

/// The names under which servers tell thinking apart from text.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

impl OpenAi {
    /// A client of this server. One is enough for any number of episodes: they share its connections.
    pub fn new(endpoint: Endpoint) -> Result<Self, Error> {
        let http = Http::new(endpoint, "chat/completions", KeyStyle::Bearer)?;
        Ok(Self { http, quirks: Quirks::new(FIELDS) })
    }
}

impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.http.endpoint().model
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        talk::unforced(request)?;
        let build = || request::body(self.http.endpoint(), request);
        let answer = talk::ask(&self.http, &self.quirks, build, listener).await?;
        let mut gathering = stream::Gathering::new(listener);
        talk::read(&self.http, answer, &mut gathering).await?;
        Ok(gathering.reply(request))
    }
}
