//! The server's own page in the browser: its routes come from the program, this is how a browser gets to them. A key is sent once;
//! after that a cookie stands for it, which no script can read and no other site makes a browser send.

mod terminal;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    fs::File,
    io::{self, Read},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Body,
    http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header},
    response::IntoResponse,
};
use http_server::{KeyHash, Refusal};
use sandbox::RemoteRuntime;
use serde::Deserialize;
use tokio::time::{Duration, Instant};
use tower_service::Service as _;

use crate::{
    app::Server,
    error::{ApiError, Code, respond},
    observe::Facts,
    tokens::Caller,
};

/// Sessions at once; for a further one the oldest ends of the caller that has most.
const MAX_SESSIONS: usize = 1000;
/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most bytes of a body: anybody may send one, before any key is checked.
const MAX_BODY: usize = 4 << 10;

/// The page that a server shows.
#[derive(Clone)]
pub struct PageRoutes {
    /// `/` and all below `/page`. They check nobody's rights.
    pub routes: Router,
    /// Tells the routes of a request whose it is.
    pub for_caller: fn(&mut Extensions, &str),
}

impl fmt::Debug for PageRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageRoutes(..)")
    }
}

/// The page and who is logged in.
#[derive(Debug)]
pub(crate) struct Page {
    page: PageRoutes,
    sessions: Mutex<VecDeque<Session>>,
    /// Whether cookies travel over TLS only.
    secure: bool,
}

#[derive(Debug)]
struct Session {
    id: KeyHash,
    /// The key it stands for: one that is no longer accepted ends the session.
    key: Key,
    /// The caller whose key it is.
    owner: Arc<str>,
    begun: Instant,
}

impl Session {
    fn is_over(&self) -> bool {
        self.begun.elapsed() >= SESSION
    }
}

#[derive(Clone)]
struct Key(Arc<str>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    token: String,
}

/// What anybody may load: the page without its data.
fn is_public(path: &str) -> bool {
    path == "/" || path.starts_with("/page/assets/")
}

impl Page {
    pub(crate) fn new(page: PageRoutes, secure: bool) -> Self {
        Self { page, sessions: Mutex::default(), secure }
    }

    /// Whether a request is one of the page: for it, or by it for episodes.
    pub(crate) fn is_asked(&self, request: &Request<Body>) -> bool {
        let path = request.uri().path();
        let is_key = |name: &str| request.headers().contains_key(name);
        is_public(path)
            || path.starts_with("/page/")
            || ((path == "/v1/episodes" || path.starts_with("/v1/episodes/"))
                && !is_key("x-api-key")
                && !is_key("authorization")
                && self.session(request.headers()).is_some())
    }

    /// Cookies of one host are sent to all its ports, so their names have the port.
    fn cookie(headers: &HeaderMap) -> String {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let port = host.and_then(|host| host.rsplit_once(':')).map_or("", |(_, port)| port);
        let digits: String = port.chars().filter(char::is_ascii_digit).take(5).collect();
        format!("lis_page_{digits}")
    }

    fn sessions(&self) -> MutexGuard<'_, VecDeque<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sessions that a request may belong to, by the hashes of their ids.
    fn named(headers: &HeaderMap) -> impl Iterator<Item = KeyHash> {
        let cookie = Self::cookie(headers);
        let sent = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        let pairs = sent.flat_map(|it| it.split(';')).filter_map(|it| it.trim().split_once('='));
        pairs.filter(move |(name, _)| *name == cookie).map(|(_, id)| KeyHash::of(id.as_bytes()))
    }

    /// The key of the session that a request belongs to.
    fn session(&self, headers: &HeaderMap) -> Option<Key> {
        let sessions = self.sessions();
        Self::named(headers).find_map(|id| {
            let known = sessions.iter().find(|known| known.id.same(&id) && !known.is_over())?;
            Some(known.key.clone())
        })
    }

    /// Begins a session of a caller, and returns its id.
    fn begin(&self, owner: &Arc<str>, key: &str) -> io::Result<String> {
        let mut bytes = [0; 24];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut sessions = self.sessions();
        sessions.retain(|session| !session.is_over());
        if sessions.len() >= MAX_SESSIONS {
            end_one(&mut sessions);
        }
        sessions.push_back(Session {
            id: KeyHash::of(id.as_bytes()),
            key: Key(key.into()),
            owner: Arc::clone(owner),
            begun: Instant::now(),
        });
        Ok(id)
    }

    /// Ends the sessions that a request belongs to.
    fn end(&self, headers: &HeaderMap) {
        let ids: Vec<KeyHash> = Self::named(headers).collect();
        self.sessions().retain(|known| !ids.iter().any(|id| known.id.same(id)));
    }

    fn with_cookie(&self, headers: &HeaderMap, value: &str, more: &str) -> Response<Body> {
        let (name, secure) = (Self::cookie(headers), if self.secure { "; Secure" } else { "" });
        let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
        let mut response = StatusCode::NO_CONTENT.into_response();
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// Ends the oldest session of the caller that has most, so that nobody ends those of others by logging in.
fn end_one(sessions: &mut VecDeque<Session>) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for session in sessions.iter() {
        *counts.entry(&*session.owner).or_default() += 1;
    }
    let most = counts.values().max().copied();
    let oldest = sessions.iter().position(|session| counts.get(&*session.owner).copied() == most);
    if let Some(oldest) = oldest {
        sessions.remove(oldest);
    }
}

fn refused(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    respond(status, &serde_json::json!({ "error": { "code": code, "message": message } }))
}

/// Answers a request of the page.
pub(crate) async fn answer<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    page: &Page,
    mut control: Router,
    mut request: Request<Body>,
    facts: &Facts,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match server.gate.check_own_page(&request) {
        // A link on another site may lead to the page, which then asks for its data itself.
        Err(Refusal::WebPage) if is_public(&path) && request.method() == Method::GET => {}
        Err(refusal) => return refused(StatusCode::FORBIDDEN, "forbidden", &refusal.to_string()),
        Ok(()) => {}
    }
    let mut routes = page.page.routes.clone();
    if is_public(&path) {
        return call(&mut routes, request).await;
    }
    match (request.method(), path.as_str()) {
        (&Method::POST, "/page/api/login") => return login(server, page, request).await,
        (&Method::POST, "/page/api/logout") => {
            page.end(request.headers());
            return page.with_cookie(request.headers(), "", "; Max-Age=0");
        }
        _ => {}
    }
    let caller = match caller(server, page, request.headers()) {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    let _ = facts.token.set(Arc::clone(&caller.name));
    if let Err(error) = server.take_place(&caller, facts) {
        return error.into_response();
    }
    if path.starts_with("/page/api/sandboxes") {
        request.extensions_mut().insert(caller);
        return call(&mut terminal::routes(Arc::clone(server)), request).await;
    }
    if path.starts_with("/page/") {
        (page.page.for_caller)(request.extensions_mut(), &caller.name);
        return call(&mut routes, request).await;
    }
    request.extensions_mut().insert(caller);
    call(&mut control, request).await
}

async fn call(routes: &mut Router, request: Request<Body>) -> Response<Body> {
    match routes.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn caller<R: RemoteRuntime>(
    server: &Server<R>,
    page: &Page,
    headers: &HeaderMap,
) -> Result<Caller, Box<Response<Body>>> {
    let login = || Box::new(refused(StatusCode::UNAUTHORIZED, "unauthenticated", "log in first"));
    let Key(key) = page.session(headers).ok_or_else(login)?;
    let tokens = &server.registry.options.tokens;
    let caller = tokens.caller(Some(key.as_bytes())).map_err(|_| login())?;
    caller
        .account()
        .count_request()
        .map_err(|over| Box::new(ApiError::from(over).into_response()))?;
    Ok(caller)
}

async fn login<R: RemoteRuntime>(
    server: &Server<R>,
    page: &Page,
    request: Request<Body>,
) -> Response<Body> {
    let headers = request.headers().clone();
    let received = server.receive_at_most(MAX_BODY, request).await;
    let login = received.and_then(|(bytes, _memory)| {
        serde_json::from_slice::<Login>(&bytes)
            .map_err(|error| ApiError::invalid(format!("bad body: {error}")))
    });
    let login = match login {
        Ok(login) => login,
        Err(error) => return error.into_response(),
    };
    let key = Some(login.token.as_bytes()).filter(|key| !key.is_empty());
    let Ok(caller) = server.registry.options.tokens.caller(key) else {
        return refused(StatusCode::UNAUTHORIZED, "unauthenticated", "this is not a valid key");
    };
    match page.begin(&caller.name, &login.token) {
        Ok(id) => page.with_cookie(&headers, &id, ""),
        Err(error) => {
            let message = format!("cannot start a session: {error}");
            ApiError::new(Code::Internal, message).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn page() -> Page {
        Page::new(PageRoutes { routes: Router::new(), for_caller: |_, _| {} }, false)
    }

    fn with(id: &str) -> HeaderMap {
        let cookie = format!("other=1; lis_page_7777={id}").parse().unwrap();
        HeaderMap::from_iter([
            (header::HOST, HeaderValue::from_static("localhost:7777")),
            (header::COOKIE, cookie),
        ])
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_with_its_time_or_by_logging_out() {
        let (page, alice) = (page(), "alice".into());
        let (one, other) = (page.begin(&alice, "key").unwrap(), page.begin(&alice, "key").unwrap());
        page.end(&with(&one));
        assert!(page.session(&with(&one)).is_none(), "the cookie alone is not enough");
        advance(SESSION - Duration::from_secs(1)).await;
        assert_eq!(page.session(&with(&other)).map(|Key(key)| key).as_deref(), Some("key"));
        advance(Duration::from_secs(1)).await;
        assert!(page.session(&with(&other)).is_none());
        page.begin(&alice, "key").unwrap();
        assert_eq!(page.sessions().len(), 1, "what is over is forgotten");
    }

    #[test]
    fn nobody_ends_the_sessions_of_others_by_logging_in() {
        let page = page();
        let bobs = page.begin(&"bob".into(), "b").unwrap();
        let alices: Vec<String> =
            (0..MAX_SESSIONS + 5).map(|_| page.begin(&"alice".into(), "a").unwrap()).collect();
        assert_eq!(page.sessions().len(), MAX_SESSIONS);
        assert!(page.session(&with(&bobs)).is_some());
        let is_open = |id: &String| page.session(&with(id)).is_some();
        assert_eq!(alices.iter().position(is_open), Some(6), "the oldest ones ended");
    }
}
