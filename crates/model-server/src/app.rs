//! The routes.

use std::{net::IpAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header},
    middleware::{self, Next},
    response::IntoResponse,
    routing::{get, post},
};
use http_server::{BodyLimits, Gate, MemoryPermit};
use model::Model;
use openai_wire::ApiError;
use serde_json::{Value, json};

use crate::{ServeOptions, Served, admission::Admission, chat, completions, generation::broken};

/// The health check, which needs no key.
const HEALTH: &str = "/health";

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct App<M> {
    pub(crate) models: Arc<Vec<Served<M>>>,
    pub(crate) options: ServeOptions,
    pub(crate) admission: Admission,
    /// When the server started; reported as the models' creation time.
    created: u64,
}

impl<M: Model> App<M> {
    /// The parsed body of a request, with the permit for its memory. Parsing a long body takes time and must not block
    /// the runtime. The permit is held for as long as the body exists, even if the client disconnects.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        request: Request<Body>,
        parse: fn(&[u8]) -> Result<T, ApiError>,
    ) -> Result<(T, MemoryPermit), ApiError> {
        let limits =
            BodyLimits { max_bytes: self.options.max_body, timeout: self.options.body_timeout };
        let (body, permit) = http_server::receive(request, limits, &self.admission.memory).await?;
        let reading = tokio::task::spawn_blocking(move || (parse(&body), permit));
        let (parsed, permit) = reading.await.map_err(|_| broken())?;
        Ok((parsed?, permit))
    }

    /// The index of the model with this name; the first one where the client names none.
    pub(crate) fn find(&self, name: &str) -> Result<usize, ApiError> {
        if name.is_empty() {
            return Ok(0);
        }
        let mut models = self.models.iter();
        let found = models.position(|served| served.names.iter().any(|known| known == name));
        found.ok_or_else(|| chat::unknown(name))
    }

    fn listed(&self, name: &str, served: &Served<M>) -> Value {
        let mut listed = json!({
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "llm-in-sandbox",
        });
        if let Some(tokens) = &served.tokens {
            listed["max_model_len"] = json!(tokens.context());
        }
        listed
    }
}

/// The service at this address.
pub(crate) fn app<M: Model>(
    models: Vec<Served<M>>,
    options: ServeOptions,
    address: IpAddr,
) -> Router {
    let key = options.api_key.as_ref().map(|key| key.reveal().as_bytes());
    let gate = Arc::new(Gate::new(key, address, HEALTH));
    let admission = Admission::new(&options);
    let models = Arc::new(models);
    let app = App { models, options, admission, created: openai_wire::now() };
    Router::new()
        .route(HEALTH, get(health))
        .route("/v1/models", get(list::<M>))
        // Names may contain slashes.
        .route("/v1/models/{*name}", get(one::<M>))
        .route("/v1/chat/completions", post(chat::complete::<M>))
        .route("/v1/completions", post(completions::complete::<M>))
        .fallback(nothing)
        .method_not_allowed_fallback(other_method)
        .with_state(Arc::new(app))
        .layer(middleware::from_fn_with_state(gate, pass))
}

/// The access checks as middleware.
async fn pass(State(gate): State<Arc<Gate>>, request: Request<Body>, next: Next) -> Response<Body> {
    match gate.check(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => ApiError::from(refusal).into_response(),
    }
}

/// A JSON response.
pub(crate) fn json(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn health() -> Response<Body> {
    json(&json!({ "status": "ok" }))
}

async fn list<M: Model>(State(app): State<Arc<App<M>>>) -> Response<Body> {
    let data: Vec<Value> = app
        .models
        .iter()
        .flat_map(|served| served.names.iter().map(|name| app.listed(name, served)))
        .collect();
    json(&json!({ "object": "list", "data": data }))
}

async fn one<M: Model>(
    State(app): State<Arc<App<M>>>,
    Path(name): Path<String>,
) -> Result<Response<Body>, ApiError> {
    let served = app.models.get(app.find(&name)?).ok_or_else(|| chat::unknown(&name))?;
    Ok(json(&app.listed(&name, served)))
}

async fn nothing(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("unknown path {}", uri.path()))
}

async fn other_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}
