//! Passes requests on to a model's server, and records the tokens of its answers. They are passed on byte for byte, but that
//! streams are asked for their usage, which the client is charged for.
//!
//! The client's key stays here: the model's server gets the operator's.

use std::{fmt, path::PathBuf, sync::Arc};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, Request, Response, StatusCode},
};
use futures_util::stream;
use http_server::MemoryPermit;
use model::{Endpoint, PassThrough, Passed, Price};
use openai_wire::{ApiError, Fields, ValueBudget};
use sandbox::RemoteRuntime;
use serde_json::{Map, Value, json};

use super::{
    Answer, Chat, MAX_BODY, Shared,
    token_log::{Exchange, TokenLog},
    usage_filter::UsageFilter,
};
use crate::{meter::ModelMeter, tokens::Caller};

/// Whether the gateway asks for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRequest {
    /// Requests are passed on as they are; tokens are recorded where the client asked for them.
    AsSent,
    /// `return_token_ids` and `logprobs` are added to requests without them.
    Added,
}

/// A model's server to which requests are passed on.
pub struct Gateway {
    chat: PassThrough,
    completions: PassThrough,
    /// The model: the only one that clients may name.
    model: String,
    price: Option<Price>,
    tokens: TokenRequest,
    log: Arc<TokenLog>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("log", &self.log).finish_non_exhaustive()
    }
}

/// Headers of the model's server that clients need.
const PASSED_HEADERS: [&str; 4] =
    ["content-type", "retry-after", "x-request-id", "openai-processing-ms"];

impl Gateway {
    /// Passes requests on to this server, with its credentials. Tokens are recorded in the file `log`, one JSON object a
    /// line; when it exceeds `log_bytes`, it becomes `log` with `.1` appended, in place of an earlier one.
    ///
    /// # Errors
    /// If the address or a credential cannot be used.
    pub fn new(
        endpoint: Endpoint,
        tokens: TokenRequest,
        log: PathBuf,
        log_bytes: u64,
    ) -> Result<Self, model::Error> {
        let client = |path| PassThrough::new(endpoint.clone(), path);
        Ok(Self {
            chat: client("chat/completions")?,
            completions: client("completions")?,
            log: Arc::new(TokenLog::new(log, log_bytes)),
            model: endpoint.model.clone(),
            price: None,
            tokens,
        })
    }

    /// Charges clients these prices. Without them, a client with a quota in dollars is refused.
    #[must_use]
    pub fn with_price(self, price: Option<Price>) -> Self {
        Self { price, ..self }
    }

    /// The served model, as its server lists it.
    pub(super) async fn models(&self) -> Result<Vec<Value>, ApiError> {
        let mut list = self.chat.models().await?;
        match list["data"].take() {
            Value::Array(mut models) => {
                models.retain(|model| model["id"] == *self.model);
                Ok(models)
            }
            _ => Err(ApiError::new(StatusCode::BAD_GATEWAY, "the model's server lists no models")),
        }
    }

    async fn pass(&self, to: Kind, caller: Caller, body: Vec<u8>, permit: MemoryPermit) -> Answer {
        let meter = ModelMeter::new(&caller, &self.model, self.price);
        meter.allow().map_err(super::not_allowed)?;
        let (body, exchange, filter) = self.read(to, &caller, body)?;
        let client = match to {
            Kind::Chat => &self.chat,
            Kind::Completions => &self.completions,
        };
        let log = Arc::clone(&self.log);
        // Before the request: a client that goes away while the model works is charged too.
        let mut sending = Sending {
            passed: None,
            exchange: Some(exchange),
            filter,
            log,
            caller,
            price: self.price,
        };
        let passed = match client.post(Bytes::from(body)).await {
            Ok(passed) => passed,
            Err(error) => {
                // One that was silent may have worked; others were not reached.
                if !matches!(error, model::Error::Silence(_)) {
                    sending.exchange = None;
                }
                return Err(error.into());
            }
        };
        drop(permit);
        if let Some(exchange) = &mut sending.exchange {
            exchange.begin(passed.status(), passed.header("content-type").unwrap_or_default());
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() =
            StatusCode::from_u16(passed.status()).unwrap_or(StatusCode::BAD_GATEWAY);
        for name in PASSED_HEADERS {
            let value = passed.header(name).and_then(|value| HeaderValue::from_bytes(value).ok());
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
        // The operator's key was refused, not the client's.
        if response.status() == StatusCode::UNAUTHORIZED {
            let message = "the model's server refuses this server's key";
            return Err(ApiError::new(StatusCode::BAD_GATEWAY, message));
        }
        if !passed.header("content-type").unwrap_or_default().starts_with(b"text/event-stream") {
            sending.filter = None;
        }
        sending.passed = Some(passed);
        let pieces = stream::unfold(Some(sending), |sending| async move {
            let mut sending = sending?;
            match sending.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(sending))),
                Ok(None) => None,
                // Cut, so that it cannot be taken for a complete answer.
                Err(error) => Some((Err(std::io::Error::other(error.chain())), None)),
            }
        });
        *response.body_mut() = Body::from_stream(pieces);
        Ok(response)
    }

    /// The body to send, and what is recorded of it.
    fn read(
        &self,
        to: Kind,
        caller: &Caller,
        body: Vec<u8>,
    ) -> Result<(Vec<u8>, Exchange, Option<UsageFilter>), ApiError> {
        ValueBudget::of(MAX_VALUES).spend(&body)?;
        let value: Value = serde_json::from_slice(&body)
            .map_err(|error| ApiError::request(format_args!("is not JSON: {error}")))?;
        let fields = Fields::of(&value, "")?;
        let model = fields.text("model")?.unwrap_or_default().to_owned();
        if !model.is_empty() && model != self.model {
            return Err(super::unknown(&model));
        }
        let exchange = Exchange::new(&caller.name, to.path(), &model, body.len());
        let hides_usage =
            value["stream"] == true && value["stream_options"]["include_usage"] != true;
        let changes = self.tokens == TokenRequest::Added || model.is_empty() || hides_usage;
        let (Value::Object(mut map), true) = (value, changes) else {
            return Ok((body, exchange, None));
        };
        self.complete(to, &mut map);
        if hides_usage {
            let options = map.entry("stream_options").or_insert(Value::Null);
            match options {
                Value::Object(options) => drop(options.insert("include_usage".into(), json!(true))),
                options => *options = json!({ "include_usage": true }),
            }
        }
        let filter = hides_usage.then(UsageFilter::default);
        Ok((Value::Object(map).to_string().into_bytes(), exchange, filter))
    }

    /// Adds what the client left out.
    fn complete(&self, to: Kind, body: &mut Map<String, Value>) {
        let absent =
            |body: &Map<String, Value>, key: &str| body.get(key).is_none_or(Value::is_null);
        if body.get("model").and_then(Value::as_str).is_none_or(str::is_empty) {
            body.insert("model".into(), json!(self.model));
        }
        if self.tokens == TokenRequest::AsSent {
            return;
        }
        for (key, value) in [
            ("return_token_ids", json!(true)),
            // A flag for conversations, a number of alternatives for completions.
            ("logprobs", if to == Kind::Chat { json!(true) } else { json!(0) }),
        ] {
            if absent(body, key) {
                body.insert(key.into(), value);
            }
        }
    }
}

/// More values than the longest prompt has tokens.
const MAX_VALUES: usize = 4 << 20;

/// The protocols that are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chat,
    Completions,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }
}

/// An answer on its way to the client. Dropped when the client disconnects, which ends the request to the model's server.
struct Sending {
    /// Absent before the answer begins and after its end.
    passed: Option<Passed>,
    /// Taken when it is recorded.
    exchange: Option<Exchange>,
    filter: Option<UsageFilter>,
    log: Arc<TokenLog>,
    caller: Caller,
    price: Option<Price>,
}

impl Sending {
    async fn next(&mut self) -> Result<Option<Bytes>, model::Error> {
        loop {
            let Some(passed) = &mut self.passed else { return Ok(None) };
            let next = passed.chunk().await;
            if let Some(exchange) = &mut self.exchange {
                match &next {
                    Ok(Some(piece)) => exchange.push(piece),
                    Ok(None) => exchange.complete(),
                    Err(_) => {}
                }
            }
            let Some(piece) = next.inspect_err(|_| self.record())? else {
                self.record();
                self.passed = None;
                let rest = self.filter.as_mut().map(UsageFilter::rest).unwrap_or_default();
                return Ok(Some(Bytes::from(rest)).filter(|rest| !rest.is_empty()));
            };
            let Some(filter) = &mut self.filter else { return Ok(Some(piece)) };
            let shown = filter.push(&piece);
            if !shown.is_empty() {
                return Ok(Some(shown.into()));
            }
        }
    }

    fn record(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        let used = exchange.used();
        let dollars = self.price.map_or(0.0, |price| price.cost(&used));
        self.caller.charge_model(used.total(), dollars);
        let log = Arc::clone(&self.log);
        // Without a runtime the process is ending.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || log.append(&exchange.line()));
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.record();
    }
}

/// Receives a body and passes it on.
async fn forward<R: RemoteRuntime>(
    chat: &Chat<R>,
    gateway: &Gateway,
    to: Kind,
    caller: Caller,
    request: Request<Body>,
) -> Answer {
    let (body, permit) = chat.server.body(MAX_BODY, request).await?;
    gateway.pass(to, caller, body, permit).await
}

/// `POST /v1/completions`, which exists only where requests are passed on.
pub(super) async fn completions<R: RemoteRuntime>(
    State(chat): Shared<R>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Answer {
    let Some(gateway) = &chat.options.gateway else {
        let message = "completions of plain prompts are not served; use /v1/chat/completions";
        return Err(ApiError::new(StatusCode::NOT_FOUND, message));
    };
    forward(&chat, gateway, Kind::Completions, caller, request).await
}

/// `POST /v1/chat/completions`, passed on.
pub(super) async fn chat<R: RemoteRuntime>(
    chat: &Chat<R>,
    gateway: &Gateway,
    caller: Caller,
    request: Request<Body>,
) -> Answer {
    forward(chat, gateway, Kind::Chat, caller, request).await
}
