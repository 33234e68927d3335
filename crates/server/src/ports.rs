//! Connections to servers inside sandboxes: `PORT-ID.` in front of the server's name.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header},
};
use http_server::same_secret;
use hyper::body::{Frame, SizeHint};
use hyper_util::rt::TokioIo;
use sandbox::{Network, RemoteSandbox};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    Tokens,
    app::bearer,
    error::{ApiError, Code},
    live::Live,
    places::Place,
    tunnel,
};

/// Passes a request to a port of a sandbox, and its answer back.
pub(crate) async fn forward<S: RemoteSandbox>(
    live: &Arc<Live<S>>,
    port: u16,
    mut request: Request<Body>,
    take_place: impl FnOnce() -> Result<Place, ApiError>,
) -> Result<Response<Body>, ApiError> {
    check_traffic(live, request.headers())?;
    live.awake().await?;
    if live.spec.network == Network::Full {
        let message = "a sandbox with the network of the host has no ports of its own";
        return Err(ApiError::new(Code::Unsupported, message));
    }
    let place = live.port_places.request()?;
    let closed = |_| {
        let message = format!("no program in the sandbox {} answers at port {port}", live.id);
        ApiError::new(Code::SandboxGone, message)
    };
    let stream = live.unless_ended(live.sandbox.connect(port)).await.map_err(closed)?;
    // Programs see the names of headers as the client wrote them.
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.preserve_header_case(true).title_case_headers(true);
    let connected = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(closed_http)?;
    let mut end = live.end();
    tokio::spawn(async move {
        tokio::select! {
            _ = connection.with_upgrades() => {}
            () = end.wait() => {}
        }
    });
    let protocol = new_protocol(request.headers());
    // Before anything is sent inside: what is refused must not have begun.
    let tunnel = match &protocol {
        Some(_) => {
            Some(((live.port_places.tunnel()?, take_place()?), hyper::upgrade::on(&mut request)))
        }
        None => None,
    };
    prepare(live, port, &mut request, protocol)?;
    let mut response = sender.send_request(request).await.map_err(closed_http)?;
    let protocol = new_protocol(response.headers());
    remove_connection_headers(response.headers_mut());
    match (response.status(), tunnel, protocol) {
        (StatusCode::SWITCHING_PROTOCOLS, Some((permit, outside)), Some(protocol)) => {
            let inside = hyper::upgrade::on(&mut response);
            tunnel::start(permit, outside, inside, live.end());
            ask_for(response.headers_mut(), protocol);
            Ok(response.map(|_| Body::empty()))
        }
        (StatusCode::SWITCHING_PROTOCOLS, ..) => {
            let message = "the program in the sandbox changed the protocol without being asked to";
            Err(ApiError::new(Code::SandboxGone, message))
        }
        _ => Ok(response.map(|body| Body::new(Held { body: Body::new(body), _place: place }))),
    }
}

/// Most requests that one sandbox's programs answer at once, and most connections of one sandbox that have changed their
/// protocol: no sandbox takes all descriptors.
const MOST_REQUESTS: usize = 128;
const MOST_TUNNELS: usize = tunnel::MOST / 8;

/// The places for requests to the ports of one sandbox.
pub(crate) struct PortPlaces {
    requests: Arc<Semaphore>,
    tunnels: Arc<Semaphore>,
}

impl Default for PortPlaces {
    fn default() -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        Self { requests: places(MOST_REQUESTS), tunnels: places(MOST_TUNNELS) }
    }
}

impl PortPlaces {
    fn request(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let what = format!("answers at most {MOST_REQUESTS} requests to its ports at once");
        place(&self.requests, &what)
    }

    fn tunnel(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        place(&self.tunnels, &format!("has at most {MOST_TUNNELS} such connections at once"))
    }
}

fn place(places: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, ApiError> {
    let full = |_| ApiError::new(Code::TooMany, format!("a sandbox {what}"));
    Arc::clone(places).try_acquire_owned().map_err(full)
}

/// The body of an answer, which holds the place of its request.
struct Held {
    body: Body,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Removes a key of this server, which is not for programs in a sandbox. They may have keys of their own.
pub(crate) fn remove_key(tokens: &Tokens, headers: &mut HeaderMap) {
    let mut sent = headers.get_all(header::AUTHORIZATION).iter().filter_map(bearer);
    if sent.any(|key| tokens.has_key(key)) {
        headers.remove(header::AUTHORIZATION);
    }
}

/// Checks the token of a sandbox whose ports are not for everyone.
fn check_traffic<S>(live: &Live<S>, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(token) = &live.ports.token else { return Ok(()) };
    match headers.get(TRAFFIC_TOKEN) {
        Some(sent) if same_secret(sent.as_bytes(), token.as_bytes()) => Ok(()),
        Some(_) => Err(ApiError::new(Code::PermissionDenied, "invalid traffic access token")),
        None => {
            let message = format!("missing traffic access token; send the header {TRAFFIC_TOKEN}");
            Err(ApiError::new(Code::PermissionDenied, message))
        }
    }
}

/// What requests to ports of such a sandbox send.
const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";

/// The protocol to which a message wants to change the connection.
fn new_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = headers.get_all(header::CONNECTION).iter().any(|value| {
        let names = value.to_str().unwrap_or_default().split(',');
        names.map(str::trim).any(|name| name.eq_ignore_ascii_case("upgrade"))
    });
    headers.get(header::UPGRADE).filter(|_| asks).cloned()
}

fn ask_for(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Makes a request to the server one to a program.
fn prepare<S>(
    live: &Live<S>,
    port: u16,
    request: &mut Request<Body>,
    protocol: Option<HeaderValue>,
) -> Result<(), ApiError> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri: Uri = path.parse().map_err(|_| ApiError::invalid("bad path"))?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    // The key of this server is not for programs in a sandbox.
    let ours = ["x-api-key", "x-access-token", "e2b-sandbox-id", "e2b-sandbox-port", TRAFFIC_TOKEN];
    for secret in ours {
        headers.remove(secret);
    }
    remove_connection_headers(headers);
    match protocol {
        Some(protocol) => ask_for(headers, protocol),
        None => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
    if let Some(mask) = &live.ports.host_mask {
        let host = mask.replace(crate::network::PORT, &port.to_string());
        let bad = |_| ApiError::invalid("`network.maskRequestHost` is not a host name");
        headers.insert(header::HOST, HeaderValue::from_str(&host).map_err(bad)?);
    }
    Ok(())
}

/// Removes what concerns one connection only, and is not passed on to the next.
fn remove_connection_headers(headers: &mut HeaderMap) {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|names| names.split(',')).map(|name| name.trim().to_owned());
    let proxy = headers.keys().filter(|name| name.as_str().starts_with("proxy-"));
    let proxy = proxy.map(|name| name.as_str().to_owned());
    let fixed = ["connection", "keep-alive", "upgrade", "te"].map(str::to_owned);
    let all: Vec<String> = named.chain(proxy).chain(fixed).collect();
    for name in all {
        // These say where the message ends; the two libraries see to them.
        if !["content-length", "transfer-encoding"].contains(&name.to_ascii_lowercase().as_str()) {
            headers.remove(name.as_str());
        }
    }
}

fn closed_http(error: hyper::Error) -> ApiError {
    ApiError::new(Code::SandboxGone, format!("the program in the sandbox failed: {error}"))
}

#[cfg(test)]
mod tests {
    use http_server::KeyHash;

    use super::*;
    use crate::{Quotas, Token};

    #[test]
    fn keys_of_the_server_are_not_passed_on() {
        let key = KeyHash::of(b"ours");
        let tokens = vec![Token { name: "alice".into(), key, quotas: Quotas::default() }];
        let tokens = Tokens::new(tokens).unwrap();
        let left = |tokens: &Tokens, values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            remove_key(tokens, &mut headers);
            headers.get_all(header::AUTHORIZATION).iter().count()
        };
        assert_eq!(left(&tokens, &["Bearer ours"]), 0);
        assert_eq!(left(&tokens, &["Basic x", "bearer  ours "]), 0);
        assert_eq!(left(&tokens, &["Bearer theirs"]), 1);
        assert_eq!(left(&tokens, &["Basic ours"]), 1);
        assert_eq!(left(&Tokens::default(), &["Bearer any"]), 1, "there is no key");
    }

    #[test]
    fn one_sandbox_does_not_take_all_places() {
        let places = PortPlaces::default();
        let held: Vec<_> = (0..MOST_REQUESTS).map(|_| places.request().unwrap()).collect();
        assert_eq!(places.request().unwrap_err().code, Code::TooMany);
        let tunnels: Vec<_> = (0..MOST_TUNNELS).map(|_| places.tunnel().unwrap()).collect();
        assert_eq!(places.tunnel().unwrap_err().code, Code::TooMany);
        drop((held, tunnels));
        // The answer holds its place to its end.
        let held = Held { body: Body::empty(), _place: places.request().unwrap() };
        assert_eq!(places.requests.available_permits(), MOST_REQUESTS - 1);
        drop(Body::new(held));
        assert_eq!(places.requests.available_permits(), MOST_REQUESTS);
    }

    #[test]
    fn headers_of_one_connection_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine ,content-length"),
            ("connection", "x-other"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic x"),
            ("x-mine", "1"),
            ("x-other", "1"),
            ("x-kept", "1"),
            ("content-length", "5"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        remove_connection_headers(&mut headers);
        let mut left: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "x-kept"]);
    }
}
