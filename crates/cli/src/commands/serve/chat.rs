//! OpenAI's protocol behind `serve`: its files, and the gateway to the model's server.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use clap::Args;
use model::Endpoint;
use server::{ChatOptions, FileLimits, FileStore, Gateway, TokenRequest};

use crate::{
    args::model::Provider,
    exit::UsageError,
    model::{ModelLocation, ModelSettings, Secrets},
};

/// Most bytes of the recorded tokens.
const LOG_BYTES: u64 = 1 << 30;

/// Options of OpenAI's protocol.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(super) struct ChatArgs {
    /// Pass /v1/chat/completions on to the model's server, without a sandbox, and record the tokens of its answers
    #[arg(long, requires = "model")]
    gateway: bool,
    /// Like --gateway, and add return_token_ids and logprobs to requests without them
    #[arg(long, requires = "model")]
    gateway_tokens: bool,
}

impl ChatArgs {
    /// The gateway to this model, if there is one.
    pub(super) fn gateway(
        &self,
        chosen: &ModelSettings,
        secrets: &Secrets,
        data: &Path,
    ) -> anyhow::Result<Option<Gateway>> {
        if !self.gateway && !self.gateway_tokens {
            return Ok(None);
        }
        let ModelLocation::Server { provider: Provider::Openai, base_url } = &chosen.location
        else {
            let text = format!(
                "--gateway: `{}` is not at a server of OpenAI's protocol; choose one with \
                 --base-url, or omit --gateway",
                chosen.name
            );
            return Err(UsageError(text).into());
        };
        if !chosen.extra_body.is_empty() {
            let text = "--gateway: requests are passed on as they are; omit --extra-body";
            return Err(UsageError(text.into()).into());
        }
        let mut endpoint = Endpoint {
            api_key: secrets.api_key.clone(),
            headers: secrets.headers.clone(),
            ..Endpoint::new(&chosen.name, base_url)
        };
        if let Some(silence) = chosen.silence {
            endpoint.silence = silence;
        }
        let tokens = match self.gateway_tokens {
            true => TokenRequest::Added,
            false => TokenRequest::AsSent,
        };
        let gateway = Gateway::new(endpoint, tokens, data.join("tokens.jsonl"), LOG_BYTES)?;
        Ok(Some(gateway.with_price(chosen.price)))
    }
}

/// Opens the directory of files.
pub(super) fn open(data: &Path, gateway: Option<Gateway>) -> anyhow::Result<ChatOptions> {
    let dir = data.join("files");
    let files = FileStore::open(&dir, FileLimits::default()).with_context(|| {
        format!("cannot keep files in {}; choose another --data-dir", dir.display())
    })?;
    Ok(ChatOptions { gateway: gateway.map(Arc::new), ..ChatOptions::new(Arc::new(files)) })
}
