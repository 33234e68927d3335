//! Tells the requests apart: to the control plane, to one sandbox, to a port of one.

use std::{io, net::IpAddr, sync::Arc};

use ::episodes::Episodes;
use axum::{
    Router,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header},
    response::IntoResponse,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use environment::Environments;
use http_server::{BodyError, BodyLimits, Gate, KeyHash, MemoryBudget, MemoryPermit, same_secret};
use sandbox::{RemoteRuntime, Runtime};
use serde::Deserialize;
use tower_service::Service as _;

use crate::{
    DEFAULT_TOKEN, EnvironmentOptions, Quotas, ServeOptions, Token,
    audit::Audit,
    chat, control, environments, episodes,
    error::{ApiError, Code},
    filesystem,
    live::Live,
    mcp,
    memory::SharedMemory,
    metrics::RouteClass,
    observe::{Facts, observe},
    operation,
    page::{self, Page},
    places::Places,
    ports, process,
    refusal::refuse,
    registry::Registry,
    signature::{Operation, Signed},
    tokens::{Caller, KeyError},
    transfer, tunnel,
};

/// The port by which clients name the data plane in host names.
const DATA_PORT: u16 = 49983;
/// Names a sandbox where the host name does not.
const SANDBOX_ID: &str = "e2b-sandbox-id";
/// Most bytes of a JSON body.
const MAX_BODY: usize = 8 << 20;
/// Most connections of OpenEnv's clients.
const MAX_OPENENV: usize = 1024;
/// Most terminals of the page.
const MAX_TERMINALS: usize = 1024;

/// What all requests share.
pub(crate) struct Server<R: Runtime> {
    pub(crate) registry: Arc<Registry<R>>,
    pub(crate) mcp: mcp::Sessions,
    /// Absent where the server plays no episodes.
    pub(crate) episodes: Option<Arc<Episodes<R>>>,
    pub(crate) environments: Option<Arc<Environments<R>>>,
    /// Places for connections of OpenEnv, which are no longer those of the HTTP server.
    pub(crate) openenv: Places,
    /// Places for terminals of the page, which are not those of the HTTP server either.
    pub(crate) terminals: Places,
    /// Places for connections to programs that have changed their protocol.
    tunnels: Places,
    /// Places for requests that are being answered, of several callers.
    answering: Places,
    pub(crate) gate: Gate,
    /// Absent where there is no page.
    page: Option<Page>,
    /// For bodies of requests.
    memory: SharedMemory,
    pub(crate) audit: Option<Audit>,
}

/// A request to one sandbox.
pub(crate) struct DataRequest<S> {
    pub(crate) live: Arc<Live<S>>,
    /// The user it names.
    pub(crate) user: Option<String>,
}

/// The query of a request for a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FileQuery {
    pub(crate) path: Option<String>,
    pub(crate) username: Option<String>,
    signature: Option<String>,
    signature_expiration: Option<i64>,
}

impl<R: RemoteRuntime> Server<R> {
    /// # Errors
    /// If the API key and the tokens contradict each other, or the audit log or the server's directory cannot be used.
    pub(crate) fn new(
        runtime: Arc<R>,
        mut options: ServeOptions,
        address: IpAddr,
    ) -> io::Result<Self> {
        let audit = options.operation.open_audit()?;
        if let Some(key) = options.api_key.take() {
            let added = options.tokens.add(Token {
                name: DEFAULT_TOKEN.into(),
                key: KeyHash::of(key.as_bytes()),
                quotas: Quotas::default(),
            });
            added.map_err(io::Error::other)?;
        }
        let (episodes, environments) = (options.episodes.take(), options.environments.take());
        let secure = options.tls.is_some();
        let page = options.page.take().map(|page| Page::new(page, secure));
        let episodes =
            episodes.map(|options| Arc::new(Episodes::new(Arc::clone(&runtime), options)));
        let body_memory = options.body_memory;
        let registry = Arc::new(Registry::new(runtime, options)?);
        let start = |environments: EnvironmentOptions| {
            environments.start(registry.runtime(), registry.places())
        };
        Ok(Self {
            episodes,
            environments: environments.map(start),
            openenv: Places::new(MAX_OPENENV),
            terminals: Places::new(MAX_TERMINALS),
            tunnels: Places::new(tunnel::MOST),
            answering: Places::new(registry.options.connections.max_connections),
            registry,
            mcp: mcp::Sessions::default(),
            gate: Gate::new(None, address, "/health"),
            page,
            memory: SharedMemory::new(body_memory),
            audit,
        })
    }

    /// Forgets what is known of tokens that were taken away, and ends their sandboxes.
    pub(crate) fn end_orphans(&self) {
        self.memory.forget_gone(&self.registry.options.tokens);
        self.registry.end_orphans();
    }
}

impl<R: Runtime> Server<R> {
    /// The page, where a request is one of it.
    fn page_for(&self, request: &Request<Body>) -> Option<&Page> {
        self.page.as_ref().filter(|page| page.is_asked(request))
    }

    /// Takes a place for a request of a caller until it is answered: one of several does not keep all connections busy.
    pub(crate) fn take_place(&self, caller: &Caller, facts: &Facts) -> Result<(), ApiError> {
        let tokens = &self.registry.options.tokens;
        if !tokens.are_several() {
            return Ok(());
        }
        let place = self.answering.take(&caller.name, tokens).ok_or_else(|| {
            let most = tokens.share_of(self.registry.options.connections.max_connections);
            let message = format!("this server answers at most {most} requests of a token at once");
            ApiError::new(Code::TooMany, message)
        })?;
        let _ = facts.place.set(place);
        Ok(())
    }

    /// Memory for bodies of a caller, or of somebody who is not known yet.
    pub(crate) fn body_memory(&self, caller: Option<&Caller>) -> MemoryBudget {
        match caller {
            Some(caller) => self.memory.of(caller, &self.registry.options.tokens),
            None => self.memory.all().clone(),
        }
    }

    /// Limits of a body of at most so many bytes.
    pub(crate) fn body_limits(&self, max_bytes: usize) -> BodyLimits {
        BodyLimits { max_bytes, timeout: self.registry.options.body_timeout }
    }

    /// The JSON body of a request.
    pub(crate) async fn receive(
        &self,
        request: Request<Body>,
    ) -> Result<(Vec<u8>, MemoryPermit), ApiError> {
        self.receive_at_most(MAX_BODY, request).await
    }

    /// The JSON body of a request, which has at most so many bytes.
    pub(crate) async fn receive_at_most(
        &self,
        max_bytes: usize,
        request: Request<Body>,
    ) -> Result<(Vec<u8>, MemoryPermit), ApiError> {
        Ok(self.body(max_bytes, request).await?)
    }

    /// The same, for routes with errors of their own.
    pub(crate) async fn body(
        &self,
        max_bytes: usize,
        request: Request<Body>,
    ) -> Result<(Vec<u8>, MemoryPermit), BodyError> {
        let memory = self.body_memory(request.extensions().get());
        http_server::receive(request, self.body_limits(max_bytes), &memory).await
    }

    /// The body of a request for a stream, whose type is not plain JSON.
    pub(crate) async fn receive_any(
        &self,
        mut request: Request<Body>,
    ) -> Result<(Vec<u8>, MemoryPermit), ApiError> {
        request.headers_mut().remove(header::CONTENT_TYPE);
        self.receive(request).await
    }
}

/// Everything that is served.
pub(crate) fn app<R: RemoteRuntime>(server: Arc<Server<R>>) -> Router {
    let control = control::routes(Arc::clone(&server))
        .merge(episodes::routes(Arc::clone(&server)))
        .merge(chat::routes(Arc::clone(&server)))
        .merge(environments::routes(Arc::clone(&server)))
        .merge(mcp::routes(Arc::clone(&server)));
    Router::new()
        .fallback(move |State(server): State<Arc<Server<R>>>, request: Request<Body>| {
            let control = control.clone();
            async move {
                let metrics = Arc::clone(&server.registry.metrics);
                let answer = async |request, facts: Arc<Facts>| {
                    answer(&server, control, request, &facts).await
                };
                observe(&metrics, server.audit.as_ref(), request, answer).await
            }
        })
        .with_state(server)
}

async fn answer<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    control: Router,
    request: Request<Body>,
    facts: &Facts,
) -> Response<Body> {
    let target = Target::of(&request);
    if let (Ok(Target::Control), Some(page)) = (&target, server.page_for(&request)) {
        return page::answer(server, page, control, request, facts).await;
    }
    let passed = match &target {
        // A program's page may use its own port, and nothing else.
        Ok(Target::Sandbox { port, .. })
            if *port != DATA_PORT && !request.headers().contains_key(SANDBOX_ID) =>
        {
            server.gate.check_own_page(&request)
        }
        _ => server.gate.check(&request),
    };
    if let Err(refusal) = passed {
        let code = match refusal.status() {
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            _ => Code::PermissionDenied,
        };
        return refuse(request.uri().path(), ApiError::new(code, refusal.to_string()));
    }
    match target {
        Ok(Target::Control) => control_plane(server, control, request, facts).await,
        Ok(Target::Sandbox { id, port }) => match server.registry.find(&id) {
            None => server.registry.gone(&id).into_response(),
            Some(live) => {
                facts.concern(&live.id);
                let answering = async {
                    match port {
                        DATA_PORT => data(server, &live, request, facts).await,
                        port => program(server, &live, port, request, facts).await,
                    }
                };
                unless_ended(&live, answering).await
            }
        },
        Err(error) => error.into_response(),
    }
}

/// A request that is about no sandbox by its address.
async fn control_plane<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    mut control: Router,
    mut request: Request<Body>,
    facts: &Facts,
) -> Response<Body> {
    let path = request.uri().path();
    if matches!(path, "/health" | "/ready") {
        return match *request.method() {
            Method::GET | Method::HEAD if path == "/ready" => operation::ready(server),
            Method::GET | Method::HEAD => operation::health(),
            ref other => wrong_method(other, path, "GET, HEAD"),
        };
    }
    if let Some(answer) = signed(server, request.uri()) {
        return match answer {
            Ok(live) => {
                facts.concern(&live.id);
                unless_ended(&live, data(server, &live, request, facts)).await
            }
            Err(error) => error.into_response(),
        };
    }
    let caller = match check_key(server, request.headers()) {
        Ok(caller) => caller,
        Err(error) => return refuse(path, error),
    };
    let _ = facts.token.set(Arc::clone(&caller.name));
    if let Err(error) = server.take_place(&caller, facts) {
        return refuse(path, error);
    }
    // After the check of the key.
    if path == "/metrics" {
        return match *request.method() {
            Method::GET | Method::HEAD => operation::metrics(server),
            ref other => wrong_method(other, "/metrics", "GET, HEAD"),
        };
    }
    request.extensions_mut().insert(caller);
    match control.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// A request to a port of a sandbox's program.
async fn program<R: RemoteRuntime>(
    server: &Server<R>,
    live: &Arc<Live<R::Sandbox>>,
    port: u16,
    mut request: Request<Body>,
    facts: &Facts,
) -> Response<Body> {
    let _ = facts.class.set(RouteClass::Port);
    if let Err(error) = server.take_place(&live.owner, facts) {
        return error.into_response();
    }
    let tokens = &server.registry.options.tokens;
    ports::remove_key(tokens, request.headers_mut());
    let tunnel = || server.tunnels.take(&live.owner.name, tokens).ok_or_else(tunnel::too_many);
    let answer = ports::forward(live, port, request, tunnel).await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

/// Refuses a method, and says which there are.
fn wrong_method(method: &Method, path: &str, allowed: &'static str) -> Response<Body> {
    ([(header::ALLOW, allowed)], ApiError::wrong_method(method, path)).into_response()
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Control,
    Sandbox { id: String, port: u16 },
}

impl Target {
    fn of(request: &Request<Body>) -> Result<Self, ApiError> {
        let headers = request.headers();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(id) = text(SANDBOX_ID) {
            let port = match text("e2b-sandbox-port") {
                None => DATA_PORT,
                Some(port) => {
                    let message = "the header E2b-Sandbox-Port has no port";
                    port.parse().map_err(|_| ApiError::invalid(message))?
                }
            };
            return Ok(Self::Sandbox { id: id.to_owned(), port });
        }
        let host = text("host").or(request.uri().host()).unwrap_or_default();
        Ok(Self::of_host(host).unwrap_or(Self::Control))
    }

    /// `PORT-ID.` and any name.
    fn of_host(host: &str) -> Option<Self> {
        let (first, _) = host.split_once('.')?;
        let (port, id) = first.split_once('-')?;
        let is_id = id.len() >= 8 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let port = port.parse().ok()?;
        is_id.then(|| Self::Sandbox { id: id.to_owned(), port })
    }
}

/// Whose key a request to the control plane has, and whether it may ask now.
fn check_key<R: RemoteRuntime>(
    server: &Server<R>,
    headers: &HeaderMap,
) -> Result<Caller, ApiError> {
    let own = headers.get("x-api-key").map(HeaderValue::as_bytes);
    let sent = own.or_else(|| bearer(headers.get(header::AUTHORIZATION)?));
    let caller = server.registry.options.tokens.caller(sent).map_err(|error| {
        let message = match error {
            KeyError::Missing => "missing API key; send the header X-API-Key",
            KeyError::Wrong => "invalid API key",
        };
        ApiError::new(Code::Unauthenticated, message)
    })?;
    caller.account().count_request()?;
    Ok(caller)
}

const BEARER: &[u8] = b"Bearer ";

/// The key in a value of the header `Authorization`.
pub(crate) fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, key) = value.as_bytes().split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| key.trim_ascii())
}

/// The sandbox of a signed address: the one whose token fits, as such an address need not name it.
fn signed<R: RemoteRuntime>(
    server: &Server<R>,
    uri: &axum::http::Uri,
) -> Option<Result<Arc<Live<R::Sandbox>>, ApiError>> {
    if uri.path() != "/files" {
        return None;
    }
    let query: Query<FileQuery> = Query::try_from_uri(uri).ok()?;
    let wrong = || ApiError::new(Code::Unauthenticated, "invalid signature");
    query.signature.as_ref()?;
    let prepared = [Operation::Read, Operation::Write].map(|operation| {
        // Anybody may ask: what no sandbox can have signed costs nothing.
        query.signed(operation)?.prepare()
    });
    if prepared.iter().all(Option::is_none) {
        return Some(Err(wrong()));
    }
    let all = server.registry.all();
    for signed in prepared.iter().flatten() {
        if let Some(live) = all.iter().find(|live| signed.is_by(&live.access_token)) {
            return Some(Ok(Arc::clone(live)));
        }
    }
    Some(Err(wrong()))
}

impl FileQuery {
    fn signed(&self, operation: Operation) -> Option<Signed<'_>> {
        Some(Signed {
            path: self.path.as_deref().unwrap_or_default(),
            operation,
            user: self.username.as_deref().unwrap_or_default(),
            expires: self.signature_expiration,
            signature: self.signature.as_deref()?,
        })
    }
}

/// Waits for an answer or the sandbox's end: no request, however slow its client, keeps a killed sandbox.
async fn unless_ended<S>(
    live: &Live<S>,
    answering: impl Future<Output = Response<Body>>,
) -> Response<Body> {
    tokio::select! {
        biased;
        response = answering => response,
        () = live.ended() => live.gone().into_response(),
    }
}

/// Answers a request to one sandbox.
async fn data<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    live: &Arc<Live<R::Sandbox>>,
    mut request: Request<Body>,
    facts: &Facts,
) -> Response<Body> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if path == "/health" {
        // Whether it runs: to ask does not let it continue.
        return match live.is_paused() {
            false => StatusCode::NO_CONTENT.into_response(),
            true => live.paused().into_response(),
        };
    }
    let query: FileQuery = match Query::try_from_uri(request.uri()) {
        Ok(Query(query)) => query,
        Err(error) => return ApiError::invalid(format!("bad query: {error}")).into_response(),
    };
    // A signature is for one user; the header, which it does not cover, must not name another.
    let is_signed = path == "/files" && query.signature.is_some();
    let user = if is_signed { None } else { basic_user(request.headers()) };
    let to = DataRequest { user, live: Arc::clone(live) };
    let checked = check_token(&to, &method, &path, &query, request.headers());
    // Only those who may use the sandbox use up its owner's quota.
    let counted = checked.and_then(|()| {
        let _ = facts.token.set(Arc::clone(&live.owner.name));
        live.owner.account().count_request()?;
        server.take_place(&live.owner, facts)
    });
    if let Err(error) = counted {
        return error.into_response();
    }
    request.extensions_mut().insert(live.owner.clone());
    if let Err(error) = live.awake().await {
        return error.into_response();
    }
    let is_procedure =
        path.starts_with("/process.Process/") || path.starts_with("/filesystem.Filesystem/");
    if is_procedure && method != Method::POST {
        return wrong_method(&method, &path, "POST");
    }
    if let Some(procedure) = path.strip_prefix("/process.Process/") {
        return process::call(server, to, procedure, request).await;
    }
    if let Some(procedure) = path.strip_prefix("/filesystem.Filesystem/") {
        return filesystem::call(server, to, procedure, request).await;
    }
    let answer = match (&method, path.as_str()) {
        (&Method::GET | &Method::HEAD, "/files") => {
            transfer::download(&to, &query, request.headers()).await
        }
        (&Method::POST, "/files") => {
            let pause = server.registry.options.body_timeout;
            transfer::upload(&to, &query, request, pause).await
        }
        (&Method::GET, "/envs") => {
            let env = serde_json::json!(*to.live.env);
            Ok(crate::error::respond(StatusCode::OK, &env))
        }
        (_, "/files") => return wrong_method(&method, &path, "GET, HEAD, POST"),
        (_, "/envs") => return wrong_method(&method, &path, "GET"),
        _ => {
            let message = format!("this server has no {method} {path} for a sandbox");
            Err(ApiError::new(Code::Unsupported, message))
        }
    };
    answer.unwrap_or_else(IntoResponse::into_response)
}

/// Checks that a request may use the sandbox: by its token, or for a file by a signature.
fn check_token<S>(
    to: &DataRequest<S>,
    method: &Method,
    path: &str,
    query: &FileQuery,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let token = &to.live.access_token;
    let refuse = |message: &str| Err(ApiError::new(Code::Unauthenticated, message));
    if path == "/files" && query.signature.is_some() {
        let operation = if method == Method::POST { Operation::Write } else { Operation::Read };
        let Some(signed) = query.signed(operation) else { return refuse("invalid signature") };
        if !signed.is_by(token) {
            return refuse("invalid signature");
        }
        return signed.check_time();
    }
    match headers.get("x-access-token") {
        Some(sent) if same_secret(sent.as_bytes(), token.as_bytes()) => Ok(()),
        Some(_) => refuse("invalid access token"),
        None => refuse("missing access token; send the header X-Access-Token"),
    }
}

/// The user named by basic authentication, which has no password here.
fn basic_user(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let decoded = BASE64_STANDARD.decode(value.strip_prefix("Basic ")?.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, _) = text.split_once(':')?;
    Some(user.to_owned()).filter(|user| !user.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_name_a_port_of_a_sandbox() {
        let sandbox = |id: &str, port| Some(Target::Sandbox { id: id.into(), port });
        assert_eq!(Target::of_host("80-abcdefgh12.localhost:7777"), sandbox("abcdefgh12", 80));
        for host in
            ["localhost", "80.localhost", "80-.localhost", "x-abcdefgh.a", "99999-abcdefgh.a"]
        {
            assert_eq!(Target::of_host(host), None, "{host}");
        }
    }
}
