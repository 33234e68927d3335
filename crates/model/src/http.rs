//! The way to a model's server and back: one pool of connections per server, bounded waits, bounded
//! replies, and failures as [`Error`] values without secrets.
//!
//! Knows HTTP, not what is said over it.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use reqwest::{
    Response, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    Endpoint, Error, Secret,
    failure::{Failure, tidy},
};

/// Connecting takes milliseconds, or is hopeless.
const CONNECT: Duration = Duration::from_secs(10);
/// No reply of a model is longer.
const MAX_REPLY: usize = 64 << 20;
/// What is read of a refusal.
const MAX_REFUSAL: usize = 64 << 10;
/// How long to wait for the words of a refusal whose status is known.
const REASONS: Duration = Duration::from_secs(5);
/// How long to wait for the end of a stream whose last event has come.
const LINGER: Duration = Duration::from_millis(100);

/// How a vendor wants the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStyle {
    /// `authorization: Bearer ...`
    Bearer,
    /// `x-api-key: ...`
    XApiKey,
}

/// A server.
#[derive(Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    endpoint: Endpoint,
    url: Url,
    headers: HeaderMap,
}

impl Http {
    /// Gets ready to talk to `{base_url}/{path}`. Sends nothing.
    pub(crate) fn new(endpoint: Endpoint, path: &str, style: KeyStyle) -> Result<Self, Error> {
        // Somebody may have chosen a provider before us; theirs is fine.
        #[cfg(not(target_os = "macos"))]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = address(&endpoint.base_url, path)
            .ok_or_else(|| Error::Settings("the base URL is no http or https address".into()))?;
        let headers = headers(&endpoint, style)?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("llm-in-sandbox/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .tcp_keepalive(Duration::from_secs(30))
            // A redirect would carry the conversation, and perhaps the key, to somebody else.
            .redirect(reqwest::redirect::Policy::none());
        if is_local(&url) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|source| {
            Error::Settings(format!("no connection can be set up: {}", chain(&source)))
        })?;
        Ok(Self { client, endpoint, url, headers })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sets a header the protocol asks for, unless the user set it.
    pub(crate) fn default_header(&mut self, name: &'static str, value: &'static str) {
        if !self.headers.contains_key(name) {
            self.headers.insert(name, HeaderValue::from_static(value));
        }
    }

    /// Sends a request. The answer's status is not yet looked at.
    pub(crate) async fn post(&self, body: &Value) -> Result<Answer<'_>, Error> {
        let body = body.to_string();
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let sent = timeout(self.endpoint.silence, request.send()).await;
        let response = sent.map_err(|_| Error::Silence(self.endpoint.silence))?;
        let response = response.map_err(|source| self.broken(source))?;
        Ok(Answer { http: self, response, read: 0 })
    }

    /// A failure in words without secrets.
    pub(crate) fn error(&self, failure: &Failure) -> Error {
        failure.error(&self.endpoint)
    }

    /// An answer that is no reply, with some of its words.
    pub(crate) fn nonsense(&self, why: &str) -> Error {
        Error::Protocol(tidy(&self.endpoint.hide(why)))
    }

    fn broken(&self, source: reqwest::Error) -> Error {
        let source = source.without_url();
        if source.is_connect() {
            let url = self.endpoint.hide(&shown(&self.url));
            return Error::Unreachable { url, source: Box::new(source) };
        }
        if source.is_builder() {
            return Error::Settings(self.endpoint.hide(&chain(&source)));
        }
        Error::Cut(self.endpoint.hide(&chain(&source)))
    }
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    http: &'a Http,
    response: Response,
    read: usize,
}

impl Answer<'_> {
    /// The next bytes, or nothing at the end. Waits no longer than this.
    pub(crate) async fn chunk(&mut self, wait: Duration) -> Result<Option<Bytes>, Error> {
        let next = timeout(wait, self.response.chunk()).await;
        let chunk = next.map_err(|_| Error::Silence(self.http.endpoint.silence))?;
        let chunk = chunk.map_err(|source| self.http.broken(source))?;
        self.read += chunk.as_ref().map_or(0, Bytes::len);
        if self.read > MAX_REPLY {
            return Err(Error::Protocol(format!("it is longer than {MAX_REPLY} bytes")));
        }
        Ok(chunk)
    }

    /// Reads up to the end, so that the connection can be used again, but waits for nothing.
    pub(crate) async fn finish(mut self) {
        let rest = async { while let Ok(Some(_)) = self.chunk(LINGER).await {} };
        let _ = timeout(LINGER, rest).await;
    }

    /// The refusal, if it is one.
    pub(crate) async fn refusal(mut self) -> Result<Self, Failure> {
        let status = self.response.status();
        if status.is_success() {
            return Ok(self);
        }
        let headers = self.response.headers();
        let retry_after = Failure::retry_after(headers, std::time::SystemTime::now());
        let location = headers.get(LOCATION).and_then(|to| to.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        let reading = async {
            while body.len() < MAX_REFUSAL {
                let Ok(Some(chunk)) = self.chunk(REASONS).await else { break };
                body.extend_from_slice(&chunk);
            }
        };
        // Half a refusal is still a refusal.
        let _ = timeout(REASONS, reading).await;
        body.truncate(MAX_REFUSAL);
        let body = String::from_utf8_lossy(&body).into_owned();
        Err(Failure {
            status: status.as_u16(),
            retry_after,
            location,
            path: self.http.url.path().to_owned(),
            body,
        })
    }
}

/// An error and all its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The base URL with the path behind it; its query stays.
fn address(base_url: &str, path: &str) -> Option<Url> {
    let mut url = Url::parse(base_url.trim()).ok()?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return None;
    }
    let base = url.path().trim_end_matches('/');
    // People also paste the whole address from a vendor's page.
    let base = base.strip_suffix(path).map_or(base, |base| base.trim_end_matches('/'));
    let whole = format!("{base}/{path}");
    url.set_path(&whole);
    Some(url)
}

/// An address as users may see it: without a name, a password or a query.
fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_some_and(|address| address.is_loopback() || address.is_unspecified())
}

fn headers(endpoint: &Endpoint, style: KeyStyle) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    if let Some(key) = endpoint.api_key.as_ref().filter(|key| !key.reveal().is_empty()) {
        let (name, text) = match style {
            KeyStyle::Bearer => (AUTHORIZATION, Secret::new(&format!("Bearer {}", key.reveal()))),
            KeyStyle::XApiKey => (HeaderName::from_static("x-api-key"), key.clone()),
        };
        headers.insert(name, value(&text).ok_or_else(|| unusable("the key"))?);
    }
    for (name, text) in &endpoint.headers {
        let parsed = HeaderName::from_bytes(name.trim().as_bytes());
        let parsed = parsed.map_err(|_| unusable("a header's name"))?;
        let what = format!("the value of the header {parsed}");
        headers.insert(parsed, value(text).ok_or_else(|| unusable(&what))?);
    }
    Ok(headers)
}

fn value(secret: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(secret.reveal()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn unusable(what: &str) -> Error {
    Error::Settings(format!("{what} contains characters HTTP does not allow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_made_of_what_people_write() {
        let made = |base: &str| address(base, "chat/completions").map(|url| url.to_string());
        let local = "http://localhost:8000/v1/chat/completions";
        for base in ["http://localhost:8000/v1", " http://localhost:8000/v1/ ", local] {
            assert_eq!(made(base).as_deref(), Some(local), "{base}");
        }
        let azure = made("https://x.example/openai/deployments/y?api-version=1").unwrap();
        assert_eq!(azure, "https://x.example/openai/deployments/y/chat/completions?api-version=1");
        for bad in ["localhost:8000/v1", "ftp://x/v1", "", "http://", "v1"] {
            assert_eq!(made(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        let url = Url::parse("https://me:secret@x.example:8443/v1?key=secret").unwrap();
        assert_eq!(shown(&url), "https://x.example:8443/v1");
    }

    #[test]
    fn local_servers_are_known() {
        let local = |url: &str| is_local(&Url::parse(url).unwrap());
        for url in ["http://localhost:1", "http://127.0.0.9", "http://[::1]:8", "http://0.0.0.0:80"]
        {
            assert!(local(url), "{url}");
        }
        assert!(!local("http://localhost.example") && !local("https://10.0.0.1"));
    }

    #[test]
    fn bad_keys_and_headers_are_refused_without_being_shown() {
        let endpoint = |key: &str, name: &str, text: &str| Endpoint {
            api_key: Some(Secret::new(key)),
            headers: vec![(name.into(), Secret::new(text))],
            ..Endpoint::new("m", "http://localhost/v1")
        };
        for (key, name, text) in
            [("sec\nret", "x", "y"), ("k", "secret name", "y"), ("k", "x", "sec\nret")]
        {
            let error = Http::new(endpoint(key, name, text), "x", KeyStyle::Bearer).unwrap_err();
            assert!(matches!(error, Error::Settings(_)));
            assert!(!format!("{error} {error:?}").contains("sec"), "{error}");
        }
        let fine = Http::new(endpoint("key-1234", "X-Api-Key", "other"), "x", KeyStyle::XApiKey);
        let fine = fine.unwrap();
        assert_eq!(fine.headers["x-api-key"], "other");
        assert!(!format!("{fine:?}").contains("key-1234"));
    }
}
