//! Access for one user of this machine: a token in the address that the command prints, after which a cookie is enough.
//!
//! The token is in the fragment, which browsers do not send: it is in no log and no `Referer`. The page sends it once and gets a
//! cookie that no script can read and no other site makes a browser send.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header},
    middleware::{self, Next},
    response::IntoResponse,
    routing::post,
};
use http_server::{BodyLimits, Gate, KeyHash, MemoryBudget};
use serde::Deserialize;

use super::reply::Refused;
use crate::{Code, Library, PageOptions, ViewError};

/// Sessions at once; the oldest ends for a further one.
const MAX_SESSIONS: usize = 100;
/// Largest body of a login, in bytes.
const MAX_BODY: usize = 4096;

/// Who may use the page: whoever has the token.
#[derive(Debug)]
pub struct Access {
    token: String,
    key: KeyHash,
    gate: Gate,
    /// Cookies of one host are sent to all its ports, so their names have the port.
    cookie: String,
    sessions: Mutex<VecDeque<KeyHash>>,
    memory: MemoryBudget,
}

impl Access {
    /// Access to a server at this address, with a new token.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        let token = random()?;
        Ok(Self {
            key: KeyHash::of(token.as_bytes()),
            token,
            gate: Gate::new(None, address.ip(), "/health"),
            cookie: format!("lis_view_{}", address.port()),
            sessions: Mutex::default(),
            memory: MemoryBudget::new(1 << 20),
        })
    }

    /// The token, for the address that is printed.
    pub fn token(&self) -> &str {
        &self.token
    }

    fn start(&self) -> io::Result<String> {
        let session = random()?;
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.push_back(KeyHash::of(session.as_bytes()));
        if sessions.len() > MAX_SESSIONS {
            sessions.pop_front();
        }
        Ok(session)
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';'));
        let mut values = pairs.filter_map(|pair| pair.trim().split_once('='));
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        values.any(|(name, value)| {
            let sent = KeyHash::of(value.as_bytes());
            name == self.cookie && sessions.iter().any(|known| known.same(&sent))
        })
    }
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The page for whoever has the token.
pub fn app(library: Arc<Library>, options: PageOptions, access: Arc<Access>) -> Router {
    super::routes(library, options)
        .route("/page/api/login", post(login))
        .route("/page/api/logout", post(logout))
        .layer(middleware::from_fn_with_state(Arc::clone(&access), check))
        .layer(axum::Extension(access))
}

/// What anybody may load: the page without its data.
fn is_public(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    path == "/" || path.starts_with("/page/assets/")
}

async fn check(
    State(access): State<Arc<Access>>,
    request: Request<Body>,
    next: Next,
) -> Response<Body> {
    let refused = match access.gate.check_own_page(&request) {
        // A link on another site may lead to the page, which then asks for its data itself.
        Err(http_server::Refusal::WebPage)
            if is_public(&request) && request.method() == Method::GET =>
        {
            None
        }
        Err(refusal) => Some(ViewError::new(Code::Forbidden, refusal.to_string())),
        Ok(()) => None,
    };
    if let Some(error) = refused {
        return Refused::from(error).into_response();
    }
    let is_login = request.uri().path() == "/page/api/login";
    if !is_public(&request) && !is_login && !access.has_session(request.headers()) {
        let message = "open the address that the command printed, with its token";
        return Refused::from(ViewError::new(Code::Unauthenticated, message)).into_response();
    }
    next.run(request).await
}

#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    token: String,
}

async fn login(
    axum::Extension(access): axum::Extension<Arc<Access>>,
    request: Request<Body>,
) -> Result<Response<Body>, Refused> {
    let limits = BodyLimits { max_bytes: MAX_BODY, timeout: Duration::from_secs(10) };
    let received = http_server::receive(request, limits, &access.memory).await;
    let (body, _memory) = received.map_err(|error| ViewError::invalid(error.to_string()))?;
    let login: Login = serde_json::from_slice(&body)
        .map_err(|error| ViewError::invalid(format!("bad body: {error}")))?;
    if !KeyHash::of(login.token.as_bytes()).same(&access.key) {
        return Err(ViewError::new(Code::Unauthenticated, "this is not the token").into());
    }
    let session = access.start().map_err(|error| {
        ViewError::new(Code::Internal, format!("cannot start a session: {error}"))
    })?;
    Ok(with_cookie(&format!("{}={session}; Path=/; HttpOnly; SameSite=Strict", access.cookie)))
}

async fn logout(
    axum::Extension(access): axum::Extension<Arc<Access>>,
) -> Result<Response<Body>, Refused> {
    let gone = "; Path=/; HttpOnly; SameSite=Strict; Max-Age=0";
    Ok(with_cookie(&format!("{}={gone}", access.cookie)))
}

fn with_cookie(cookie: &str) -> Response<Body> {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
