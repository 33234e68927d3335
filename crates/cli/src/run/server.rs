//! The one place where a model is chosen and dressed: server, retries, tool-call format, cache.

use std::{sync::Arc, time::Duration};

use model::{
    Anthropic, Cached, Endpoint, Error, Formatted, Listener, Model, OpenAi, Reply, Request, Retry,
    Retrying, ToolSpec,
};
use serde_json::json;

use super::model_plan::{ModelPlan, Place, Secrets};
use crate::{
    agent_args::{Forcing, Provider},
    local::LocalModel,
    settings::Settings,
};

/// A server that never says anything is given up after this long even without a limit.
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3600);

/// Some vendor's server.
pub(crate) enum AnyServer {
    /// Chat completions.
    OpenAi(OpenAi),
    /// Messages.
    Anthropic(Anthropic),
    /// None: the model is in this process.
    Here(LocalModel),
}

/// A model as an episode sees it.
pub(crate) enum AnyModel {
    /// Asked each time.
    Plain(Arc<Formatted<Retrying<AnyServer>>>),
    /// Asked once.
    Cached(Cached<Arc<Formatted<Retrying<AnyServer>>>>),
}

impl AnyModel {
    /// Makes the model of a plan, and says how many tokens it takes, where that is known. Nobody is asked
    /// yet, but a model in this process is loaded.
    pub(crate) async fn open(
        plan: &ModelPlan,
        secrets: Secrets,
        settings: &Settings,
    ) -> anyhow::Result<(Self, Option<u64>)> {
        let mut context = plan.context;
        let server = match &plan.place {
            Place::Here(local) => {
                let model = local.load(settings).await?;
                context = Some(u64::from(model.context()));
                AnyServer::Here(model)
            }
            Place::Server { provider, base_url } => {
                let endpoint = Endpoint {
                    api_key: secrets.api_key,
                    headers: secrets.headers,
                    extra_body: plan.extra_body.clone(),
                    silence: plan.silence.unwrap_or(LONGEST_SILENCE),
                    ..Endpoint::new(&plan.name, base_url)
                };
                match provider {
                    Provider::Openai => AnyServer::OpenAi(OpenAi::new(endpoint)?),
                    Provider::Anthropic => AnyServer::Anthropic(Anthropic::new(endpoint)?),
                }
            }
        };
        let retry = Retry { attempts: plan.retries.saturating_add(1), ..Retry::default() };
        let model = Formatted::new(Retrying::new(server, retry), plan.tool_format);
        let model = match plan.forced {
            Forcing::Yes => model.forced(),
            Forcing::No => model,
        };
        let model = Arc::new(model);
        let Some(dir) = &plan.cache else { return Ok((Self::Plain(model), context)) };
        let scope = json!({
            "place": plan.place,
            "extra_body": plan.extra_body,
            "tool_format": plan.tool_format,
            "forced": plan.forced,
        });
        Ok((Self::Cached(Cached::open(dir, scope, model)?), context))
    }

    /// The same model, asked each time: whoever asks one question several times wants several answers.
    pub(crate) fn uncached(&self) -> Self {
        Self::Plain(Arc::clone(match self {
            Self::Plain(model) => model,
            Self::Cached(model) => model.inner(),
        }))
    }
}

impl Model for AnyServer {
    fn name(&self) -> &str {
        match self {
            Self::OpenAi(server) => server.name(),
            Self::Anthropic(server) => server.name(),
            Self::Here(model) => model.name(),
        }
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        match self {
            Self::OpenAi(server) => server.complete(request, listener).await,
            Self::Anthropic(server) => server.complete(request, listener).await,
            Self::Here(model) => model.complete(request, listener).await,
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

    fn how_to_call(&self, tools: &[ToolSpec]) -> &'static str {
        match self {
            Self::Plain(model) => model.how_to_call(tools),
            Self::Cached(model) => model.how_to_call(tools),
        }
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        match self {
            Self::Plain(model) => model.complete(request, listener).await,
            Self::Cached(model) => model.complete(request, listener).await,
        }
    }
}
