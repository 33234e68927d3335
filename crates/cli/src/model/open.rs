//! Opens a model: the server or local model, wrapped in retries, tool-call format and cache.

use std::{sync::Arc, time::Duration};

use model::{
    Anthropic, Cached, Endpoint, Error, Formatted, Listener, Model, OpenAi, Request, Response,
    Retry, Retrying, ToolFormat, ToolSpec,
};
use serde_json::json;

use super::local::LocalModel;
use super::settings::{ModelLocation, ModelSettings, Secrets};
use crate::{
    args::model::{Forcing, Provider},
    settings::Settings,
};

/// The idle timeout where the user set none.
const MAX_IDLE: Duration = Duration::from_secs(24 * 3600);

/// A server of any vendor, or a local model.
pub(crate) enum AnyServer {
    /// OpenAI's chat completions.
    OpenAi(OpenAi),
    /// Anthropic's messages.
    Anthropic(Anthropic),
    /// A local model.
    InProcess(LocalModel),
    /// A model that is only named: every call fails.
    Unused(String),
}

/// A model as an episode sees it.
pub(crate) enum AnyModel {
    /// Called every time.
    Plain(Arc<Formatted<Retrying<AnyServer>>>),
    /// Identical requests are answered from the cache.
    Cached(Cached<Arc<Formatted<Retrying<AnyServer>>>>),
}

impl AnyModel {
    /// Opens a model; also returns its context window in tokens, if it is known. No request is sent yet, but a local
    /// model is loaded.
    pub(crate) async fn open(
        chosen: &ModelSettings,
        secrets: Secrets,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Option<u64>)> {
        let mut context = chosen.context;
        let server = match &chosen.location {
            ModelLocation::InProcess(local) => {
                let model = local.load(settings).await?;
                context = Some(u64::from(model.context()));
                AnyServer::InProcess(model)
            }
            ModelLocation::Server { provider, base_url } => {
                let silence = chosen.silence.unwrap_or(MAX_IDLE);
                AnyServer::connect(chosen, secrets, *provider, base_url, silence)?
            }
        };
        let retry = Retry { attempts: chosen.retries.saturating_add(1), ..Retry::default() };
        let model = Formatted::new(Retrying::new(server, retry), chosen.tool_format);
        let model = match chosen.forced {
            Forcing::Yes => model.forced(),
            Forcing::No => model,
        };
        let model = Arc::new(model);
        let Some(dir) = &chosen.cache else { return Ok((Self::Plain(model), context)) };
        let scope = json!({
            "place": chosen.location,
            "extra_body": chosen.extra_body,
            "tool_format": chosen.tool_format,
            "forced": chosen.forced,
        });
        Ok((Self::Cached(Cached::open(dir, scope, model)?), context))
    }

    /// A model that is named and never called, for commands that need none: a local one need not be loaded.
    pub(crate) fn unused(name: &str) -> Self {
        let retrying = Retrying::new(AnyServer::Unused(name.to_owned()), Retry::default());
        Self::Plain(Arc::new(Formatted::new(retrying, ToolFormat::Native)))
    }

    /// The same model without the cache, for callers that want several answers to one request.
    pub(crate) fn uncached(&self) -> Self {
        Self::Plain(Arc::clone(match self {
            Self::Plain(model) => model,
            Self::Cached(model) => model.inner(),
        }))
    }
}

impl AnyServer {
    /// A client of a model's server. No request is sent yet.
    pub(super) fn connect(
        chosen: &ModelSettings,
        secrets: Secrets,
        provider: Provider,
        base_url: &str,
        silence: Duration,
    ) -> Result<Self, Error> {
        let endpoint = Endpoint {
            api_key: secrets.api_key,
            headers: secrets.headers,
            extra_body: chosen.extra_body.clone(),
            silence,
            ..Endpoint::new(&chosen.name, base_url)
        };
        Ok(match provider {
            Provider::Openai => Self::OpenAi(OpenAi::new(endpoint)?),
            Provider::Anthropic => Self::Anthropic(Anthropic::new(endpoint)?),
        })
    }

    /// The names of the server's models; none for a local model.
    pub(super) async fn models(&self) -> Result<Vec<String>, Error> {
        match self {
            Self::OpenAi(server) => server.models().await,
            Self::Anthropic(server) => server.models().await,
            Self::InProcess(_) | Self::Unused(_) => Ok(Vec::new()),
        }
    }
}

impl Model for AnyServer {
    fn name(&self) -> &str {
        match self {
            Self::Unused(name) => name,
            Self::OpenAi(server) => server.name(),
            Self::Anthropic(server) => server.name(),
            Self::InProcess(model) => model.name(),
        }
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        match self {
            Self::OpenAi(server) => server.complete(request, listener).await,
            Self::Anthropic(server) => server.complete(request, listener).await,
            Self::InProcess(model) => model.complete(request, listener).await,
            Self::Unused(_) => {
                Err(Error::Settings("the model is not called by this command".into()))
            }
        }
    }
}

impl Model for AnyModel {
    fn name(&self) -> &str {
        match self {
            Self::Plain(model) => model.name(),
            Self::Cached(model) => model.name(),
        }
    }

    fn tool_call_hint(&self, tools: &[ToolSpec]) -> &'static str {
        match self {
            Self::Plain(model) => model.tool_call_hint(tools),
            Self::Cached(model) => model.tool_call_hint(tools),
        }
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        match self {
            Self::Plain(model) => model.complete(request, listener).await,
            Self::Cached(model) => model.complete(request, listener).await,
        }
    }
}
