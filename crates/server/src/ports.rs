//! Connections to servers inside sandboxes: `PORT-ID.` in front of the server's name.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header},
};
use hyper_util::rt::TokioIo;
use sandbox::{Network, RemoteSandbox};

use crate::{
    error::{ApiError, Code},
    live::Live,
};

/// Passes a request to a port of a sandbox, and its answer back.
pub(crate) async fn forward<S: RemoteSandbox>(
    live: &Arc<Live<S>>,
    port: u16,
    mut request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    if request.headers().contains_key(header::UPGRADE) {
        let message =
            "connections that change their protocol, such as WebSockets, are not passed on";
        return Err(ApiError::new(Code::Unsupported, message));
    }
    if live.spec.network == Network::Full {
        let message = "a sandbox with the network of the host has no ports of its own";
        return Err(ApiError::new(Code::Unsupported, message));
    }
    let closed = |_| {
        let message = format!("no program in the sandbox {} answers at port {port}", live.id);
        ApiError::new(Code::SandboxGone, message)
    };
    let stream = live.unless_ended(live.sandbox.connect(port)).await.map_err(closed)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(closed_http)?;
    let mut end = live.end();
    tokio::spawn(async move {
        tokio::select! {
            _ = connection => {}
            () = end.wait() => {}
        }
    });
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri: Uri = path.parse().map_err(|_| ApiError::invalid("bad path"))?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    // The key of this server is not for programs in a sandbox.
    for secret in ["x-api-key", "x-access-token", "e2b-sandbox-id", "e2b-sandbox-port"] {
        headers.remove(secret);
    }
    remove_connection_headers(headers);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let mut response = sender.send_request(request).await.map_err(closed_http)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let message = "the program in the sandbox changed the protocol without being asked to";
        return Err(ApiError::new(Code::SandboxGone, message));
    }
    remove_connection_headers(response.headers_mut());
    Ok(response.map(Body::new))
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
