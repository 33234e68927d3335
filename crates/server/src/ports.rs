//! Connections to servers inside sandboxes: `PORT-ID.` in front of the server's name.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header},
};
use http_server::same_secret;
use hyper_util::rt::TokioIo;
use sandbox::{Network, RemoteSandbox};

use crate::{
    error::{ApiError, Code},
    live::Live,
    tunnel::{self, Tunnels},
};

/// Passes a request to a port of a sandbox, and its answer back.
pub(crate) async fn forward<S: RemoteSandbox>(
    live: &Arc<Live<S>>,
    port: u16,
    mut request: Request<Body>,
    tunnels: &Tunnels,
) -> Result<Response<Body>, ApiError> {
    check_traffic(live, request.headers())?;
    live.awake().await?;
    if live.spec.network == Network::Full {
        let message = "a sandbox with the network of the host has no ports of its own";
        return Err(ApiError::new(Code::Unsupported, message));
    }
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
        Some(_) => Some((tunnels.permit()?, hyper::upgrade::on(&mut request))),
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
        _ => Ok(response.map(Body::new)),
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
    use super::*;

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
