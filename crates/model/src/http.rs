//! HTTP to a model's server: one connection pool per server, bounded waits, bounded responses, and failures as
//! [`Error`] values without secrets.
//!
//! Knows HTTP, not the protocol on top of it.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use lis_http::{
    ClientSettings, Response, Transport, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use serde_json::Value;
use tokio::time::timeout;
use trajectory::{count_values, error_chain};

use crate::{
    Endpoint, Error, Secret,
    exchange::MAX_VALUES,
    refusal::{Refusal, one_line},
};

/// Connect timeout: connecting takes milliseconds, or is hopeless.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a response.
const MAX_RESPONSE: usize = 64 << 20;
/// Bytes of a refusal that are read.
const MAX_REFUSAL: usize = 64 << 10;
/// How long to wait for the body of a refusal whose status is known.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the end of a stream after its last event.
const LINGER: Duration = Duration::from_millis(100);

/// How a vendor expects the API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStyle {
    /// `authorization: Bearer ...`
    Bearer,
    /// `x-api-key: ...`
    XApiKey,
}

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Http {
    client: lis_http::Client,
    endpoint: Endpoint,
    url: Url,
    /// The list of the server's models.
    models_url: Url,
    headers: HeaderMap,
}

impl Http {
    /// Prepares requests to `{base_url}/{path}`. Sends nothing.
    pub(crate) fn new(endpoint: Endpoint, path: &str, style: KeyStyle) -> Result<Self, Error> {
        let url = join_url(&endpoint.base_url, path).ok_or_else(|| {
            Error::Settings("the base URL is not an http or https address".into())
        })?;
        let mut models_url = url.clone();
        let base = url.path().strip_suffix(path).unwrap_or_default();
        models_url.set_path(&format!("{base}models"));
        let headers = headers(&endpoint, style)?;
        let settings = ClientSettings {
            connect_timeout: CONNECT_TIMEOUT,
            // Requests bound every wait themselves.
            read_timeout: None,
            // A redirect would send the conversation, and perhaps the key, to another host.
            redirects: 0,
            transport: if is_local(&url) { Transport::Loopback } else { Transport::AnyHttp },
        };
        let client = settings.build().map_err(|source| {
            Error::Settings(format!("cannot set up an HTTP client: {}", error_chain(&source)))
        })?;
        Ok(Self { client, endpoint, url, models_url, headers })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sets a header of the protocol, unless the user set it.
    pub(crate) fn default_header(&mut self, name: &'static str, value: &'static str) {
        if !self.headers.contains_key(name) {
            self.headers.insert(name, HeaderValue::from_static(value));
        }
    }

    /// Sends a request. The status of the answer is not checked yet.
    pub(crate) async fn post(&self, body: &Value) -> Result<Answer<'_>, Error> {
        let response = self.send(body.to_string().into()).await?;
        Ok(Answer { http: self, response, read: 0 })
    }

    /// Sends a body as it is.
    pub(crate) async fn send(&self, body: Bytes) -> Result<Response, Error> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let sent = timeout(self.endpoint.silence, request.send()).await;
        let response = sent.map_err(|_| Error::Silence(self.endpoint.silence))?;
        response.map_err(|source| self.transport_error(source))
    }

    /// The server's list of models, as it sent it. Servers may list fewer than they have, or have no list.
    pub(crate) async fn list(&self) -> Result<Value, Error> {
        // In total: a list is short.
        let listed = timeout(self.endpoint.silence, self.fetch_list()).await;
        listed.map_err(|_| Error::Silence(self.endpoint.silence))?
    }

    async fn fetch_list(&self) -> Result<Value, Error> {
        let request = self.client.get(self.models_url.clone()).headers(self.headers.clone());
        let response = request.send().await.map_err(|source| self.transport_error(source))?;
        let answer = Answer { http: self, response, read: 0 };
        let mut answer = answer.check_status().await.map_err(|refusal| {
            self.error(&Refusal { path: self.models_url.path().to_owned(), ..refusal })
        })?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk(self.endpoint.silence).await? {
            body.extend_from_slice(&chunk);
        }
        if count_values(&body, MAX_VALUES) > MAX_VALUES {
            return Err(self.protocol_error("the list of models is too long"));
        }
        serde_json::from_slice(&body)
            .map_err(|_| self.protocol_error("the list of models is not JSON"))
    }

    /// The names of the server's models.
    pub(crate) async fn models(&self) -> Result<Vec<String>, Error> {
        let list = self.list().await?;
        let names = list["data"].as_array().into_iter().flatten();
        let names = names.filter_map(|model| model["id"].as_str());
        Ok(names.map(|name| self.shown(name)).collect())
    }

    /// A text of the server in a form fit to be shown: one line, bounded, without secrets.
    pub(crate) fn shown(&self, text: &str) -> String {
        one_line(&self.endpoint.hide(text))
    }

    /// The error a refusal means, without secrets.
    pub(crate) fn error(&self, refusal: &Refusal) -> Error {
        refusal.error(&self.endpoint)
    }

    /// An answer that is not a response; `why` may quote it.
    pub(crate) fn protocol_error(&self, why: &str) -> Error {
        Error::Protocol(one_line(&self.endpoint.hide(why)))
    }

    pub(crate) fn transport_error(&self, source: lis_http::Error) -> Error {
        let source = source.without_url();
        if source.is_connect() {
            let url = self.endpoint.hide(&redacted(&self.url));
            return Error::Unreachable { url, source: Box::new(source) };
        }
        if source.is_builder() {
            return Error::Settings(self.endpoint.hide(&error_chain(&source)));
        }
        Error::Cut(self.endpoint.hide(&error_chain(&source)))
    }
}

/// An HTTP answer while it is received.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    http: &'a Http,
    response: Response,
    read: usize,
}

impl Answer<'_> {
    /// The next bytes, or `None` at the end. Waits at most this long.
    pub(crate) async fn chunk(&mut self, wait: Duration) -> Result<Option<Bytes>, Error> {
        let next = timeout(wait, self.response.chunk()).await;
        let chunk = next.map_err(|_| Error::Silence(self.http.endpoint.silence))?;
        let chunk = chunk.map_err(|source| self.http.transport_error(source))?;
        self.read += chunk.as_ref().map_or(0, Bytes::len);
        if self.read > MAX_RESPONSE {
            return Err(Error::Protocol(format!("it is longer than {MAX_RESPONSE} bytes")));
        }
        Ok(chunk)
    }

    /// Drains the answer, so that the connection can be reused, but hardly waits for it.
    pub(crate) async fn finish(mut self) {
        let rest = async { while let Ok(Some(_)) = self.chunk(LINGER).await {} };
        let _ = timeout(LINGER, rest).await;
    }

    /// The answer, if its status is a success; the refusal otherwise.
    pub(crate) async fn check_status(mut self) -> Result<Self, Refusal> {
        let status = self.response.status();
        if status.is_success() {
            return Ok(self);
        }
        let headers = self.response.headers();
        let retry_after = Refusal::retry_after(headers, std::time::SystemTime::now());
        let location = headers.get(LOCATION).and_then(|to| to.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        let reading = async {
            while body.len() < MAX_REFUSAL {
                let Ok(Some(chunk)) = self.chunk(REFUSAL_TIMEOUT).await else { break };
                body.extend_from_slice(&chunk);
            }
        };
        // Half a refusal is still a refusal.
        let _ = timeout(REFUSAL_TIMEOUT, reading).await;
        body.truncate(MAX_REFUSAL);
        let body = String::from_utf8_lossy(&body).into_owned();
        Err(Refusal {
            status: status.as_u16(),
            retry_after,
            location,
            path: self.http.url.path().to_owned(),
            body,
        })
    }
}

/// The base URL with the path appended; its query stays.
fn join_url(base_url: &str, path: &str) -> Option<Url> {
    let mut url = Url::parse(base_url.trim()).ok()?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return None;
    }
    let base = url.path().trim_end_matches('/');
    // Users also paste the full address from a vendor's page.
    let base = base.strip_suffix(path).map_or(base, |base| base.trim_end_matches('/'));
    let path = format!("{base}/{path}");
    url.set_path(&path);
    Some(url)
}

/// An address that may be shown: without user name, password or query.
fn redacted(url: &Url) -> String {
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
    fn addresses_are_built_from_what_users_write() {
        let made = |base: &str| join_url(base, "chat/completions").map(|url| url.to_string());
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
    fn the_list_of_models_is_beside_the_conversations() {
        let listed = |base: &str, path: &str| {
            let http = Http::new(Endpoint::new("m", base), path, KeyStyle::Bearer).unwrap();
            http.models_url.to_string()
        };
        let models = "http://localhost:8000/v1/models";
        for base in ["http://localhost:8000/v1", "http://localhost:8000/v1/chat/completions"] {
            assert_eq!(listed(base, "chat/completions"), models);
        }
        assert_eq!(listed("http://localhost:8000/v1/", "messages"), models);
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        let url = Url::parse("https://me:secret@x.example:8443/v1?key=secret").unwrap();
        assert_eq!(redacted(&url), "https://x.example:8443/v1");
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
