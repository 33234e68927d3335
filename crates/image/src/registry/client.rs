//! Requests to one registry for one image, authenticated as the registry requires.

use std::time::Duration;

use lis_http::{
    BodyError, ClientSettings, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE},
    is_loopback, read_body,
};
use tokio::sync::Mutex;

use super::{
    Credentials, RegistryError, Transport,
    auth::{self, Challenge, Token},
};
use crate::{
    digest::Digest,
    limits::Limits,
    oci::{Descriptor, Document, ImageConfig, MEDIA_TYPES, Manifest, Platform},
    reference::Reference,
};

/// The largest manifest or configuration, in bytes.
const MAX_DOCUMENT: u64 = 8 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a manifest or configuration is requested.
const DOCUMENT_ATTEMPTS: u32 = 4;

/// A connection to a registry for one image.
pub(crate) struct Client {
    http: lis_http::Client,
    reference: Reference,
    scheme: &'static str,
    credentials: Option<Credentials>,
    /// The `Authorization` header that the registry accepted last.
    authorization: Mutex<Option<HeaderValue>>,
}

/// Everything about an image but its layers.
pub(crate) struct Resolved {
    pub(crate) manifest: Manifest,
    pub(crate) config: ImageConfig,
    pub(crate) id: Digest,
}

impl Client {
    pub(crate) fn new(
        reference: Reference,
        transport: Transport,
        credentials: Option<Credentials>,
        stall: Duration,
    ) -> Result<Self, RegistryError> {
        let (transport, scheme) = match transport {
            _ if reference.is_loopback() => (lis_http::Transport::Loopback, "http"),
            Transport::Insecure => (lis_http::Transport::AnyHttp, "http"),
            Transport::Secure => (lis_http::Transport::Https, "https"),
        };
        let settings = ClientSettings {
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: Some(stall),
            transport,
            ..ClientSettings::default()
        };
        let http = settings.build().map_err(|source| RegistryError::Connect {
            registry: reference.registry().to_owned(),
            source,
        })?;
        Ok(Self { http, reference, scheme, credentials, authorization: Mutex::new(None) })
    }

    pub(crate) fn registry(&self) -> &str {
        self.reference.registry()
    }

    /// Resolves the image to its manifest and configuration for a platform.
    pub(crate) async fn resolve(
        &self,
        platform: &Platform,
        limits: &Limits,
    ) -> Result<Resolved, RegistryError> {
        let mut version = self.reference.version();
        let mut promised = self.reference.digest();
        for _ in 0..3 {
            let what = format!("image {}:{version}", self.reference.path());
            let url = self.url(&format!("manifests/{version}"))?;
            let bytes = self.document(&url, &what, promised).await?;
            match Document::parse(&bytes).map_err(RegistryError::Description)? {
                Document::Index(index) => {
                    let chosen = index.choose(platform).map_err(RegistryError::Description)?;
                    version = chosen.digest.to_string();
                    promised = Some(chosen.digest);
                }
                Document::Manifest(manifest) => {
                    manifest.check(limits).map_err(RegistryError::Description)?;
                    let id = manifest.config.digest;
                    let url = self.url(&format!("blobs/{id}"))?;
                    let bytes = self.document(&url, "image configuration", Some(id)).await?;
                    let config = ImageConfig::parse(&bytes).map_err(RegistryError::Description)?;
                    config
                        .check(manifest.layers.len(), platform)
                        .map_err(RegistryError::Description)?;
                    return Ok(Resolved { manifest, config, id });
                }
            }
        }
        Err(self.invalid("its indexes are nested too deep"))
    }

    /// Requests a layer from an offset on.
    pub(crate) async fn layer(
        &self,
        layer: &Descriptor,
        offset: u64,
    ) -> Result<Response, RegistryError> {
        let url = self.url(&format!("blobs/{}", layer.digest))?;
        let range = (offset > 0).then(|| format!("bytes={offset}-"));
        self.get(&url, &format!("layer {}", layer.digest), range.as_deref()).await
    }

    pub(crate) fn invalid(&self, why: impl Into<String>) -> RegistryError {
        RegistryError::BadAnswer { registry: self.registry().to_owned(), why: why.into() }
    }

    fn url(&self, rest: &str) -> Result<Url, RegistryError> {
        let text = format!(
            "{}://{}/v2/{}/{rest}",
            self.scheme,
            self.reference.host(),
            self.reference.path()
        );
        Url::parse(&text).map_err(|_| self.invalid("its name is not part of a valid address"))
    }

    /// A small blob or manifest, checked against the digest it must have.
    async fn document(
        &self,
        url: &Url,
        what: &str,
        promised: Option<Digest>,
    ) -> Result<Vec<u8>, RegistryError> {
        let mut attempt = 1;
        loop {
            match self.document_once(url, what, promised).await {
                // A registry that cannot be reached is not asked again.
                Err(error)
                    if error.is_transient()
                        && !matches!(error, RegistryError::Connect { .. })
                        && attempt < DOCUMENT_ATTEMPTS =>
                {
                    tokio::time::sleep(backoff(attempt)).await;
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn document_once(
        &self,
        url: &Url,
        what: &str,
        promised: Option<Digest>,
    ) -> Result<Vec<u8>, RegistryError> {
        let response = self.get(url, what, None).await?;
        // For a tag, only the registry's own header promises a digest.
        let header =
            response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        let promised = promised.or_else(|| header.and_then(|text| text.parse().ok()));
        let bytes = self.body(response).await?;
        let found = Digest::of(&bytes);
        match promised {
            Some(expected) if expected != found => {
                Err(RegistryError::WrongDigest { what: what.to_owned(), expected, found })
            }
            _ => Ok(bytes),
        }
    }

    async fn body(&self, response: Response) -> Result<Vec<u8>, RegistryError> {
        read_body(response, MAX_DOCUMENT).await.map_err(|error| match error {
            BodyError::Transfer(source) => self.request_failed(source),
            BodyError::TooLong { limit } => {
                self.invalid(format!("a manifest or configuration is longer than {limit} bytes"))
            }
        })
    }

    /// Sends a request, authenticates once if required, and turns refusals into errors.
    async fn get(
        &self,
        url: &Url,
        what: &str,
        range: Option<&str>,
    ) -> Result<Response, RegistryError> {
        let known = self.authorization.lock().await.clone();
        let response = self.send(url, range, known.as_ref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.checked(response, what).await;
        }
        let Some(challenge) = Challenge::from_headers(response.headers()) else {
            return self.checked(response, what).await;
        };
        let Some(authorization) = self.authorize(&challenge, what).await? else {
            return self.checked(response, what).await;
        };
        *self.authorization.lock().await = Some(authorization.clone());
        let response = self.send(url, range, Some(&authorization)).await?;
        self.checked(response, what).await
    }

    async fn send(
        &self,
        url: &Url,
        range: Option<&str>,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response, RegistryError> {
        let mut request = self.http.get(url.clone());
        for media_type in MEDIA_TYPES {
            request = request.header(ACCEPT, media_type);
        }
        // Blobs have types of their own.
        request = request.header(ACCEPT, "*/*");
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        request.send().await.map_err(|source| self.request_failed(source))
    }

    /// The `Authorization` header for a challenge; none without credentials for it.
    async fn authorize(
        &self,
        challenge: &Challenge,
        what: &str,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let (realm, service, scope) = match challenge {
            Challenge::Basic => return Ok(self.credentials.as_ref().and_then(auth::basic)),
            Challenge::Bearer { realm, service, scope } => (realm, service, scope),
        };
        let own_scope = format!("repository:{}:pull", self.reference.path());
        let scope = scope.as_deref().unwrap_or(&own_scope);
        let url = Challenge::token_url(realm, service.as_deref(), scope);
        let url = url.ok_or_else(|| self.invalid("the address of its token server is invalid"))?;
        let local = url.host_str().is_some_and(is_loopback);
        if url.scheme() != "https"
            && !(local && self.reference.is_loopback())
            && self.scheme != "http"
        {
            return Err(self.invalid("its token server does not use encryption"));
        }
        let basic = self.credentials.as_ref().and_then(auth::basic);
        let mut request = self.http.get(url);
        if let Some(basic) = basic {
            request = request.header(AUTHORIZATION, basic);
        }
        let response = request.send().await.map_err(|source| self.request_failed(source))?;
        let response = self.checked(response, what).await?;
        let bytes = self.body(response).await?;
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|_| self.invalid("its token is malformed"))?;
        token.header().map(Some).ok_or_else(|| self.invalid("its answer contains no token"))
    }

    async fn checked(&self, response: Response, what: &str) -> Result<Response, RegistryError> {
        let status = response.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(response);
        }
        let message = self.message(response).await;
        let (registry, what) = (self.registry().to_owned(), what.to_owned());
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let remedy = match self.credentials {
                    Some(_) => {
                        "check the user name and the password, and that this user may read the image"
                    }
                    None => {
                        "give a user name and a password, or check the spelling: \
                             registries also answer this way for images that do not exist"
                    }
                };
                RegistryError::Unauthorized { registry, what, message, remedy }
            }
            StatusCode::NOT_FOUND => RegistryError::NotFound { registry, what, message },
            _ => RegistryError::Status { registry, status: status.as_u16(), what, message },
        })
    }

    /// The registry's own message about a refusal, shortened to one line.
    async fn message(&self, response: Response) -> String {
        let bytes = self.body(response).await.unwrap_or_default();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = json.pointer("/errors/0/message").or_else(|| json.pointer("/details"));
        let text = message.and_then(serde_json::Value::as_str).unwrap_or_default();
        let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        if text.is_empty() { text } else { format!(" ({text})") }
    }

    pub(crate) fn request_failed(&self, source: lis_http::Error) -> RegistryError {
        let registry = self.registry().to_owned();
        if source.is_connect() {
            RegistryError::Connect { registry, source }
        } else {
            RegistryError::Exchange { registry, source }
        }
    }
}

/// The pause before an attempt: doubling, from a fifth of a second to six seconds.
pub(crate) fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(100 << attempt.clamp(1, 6))
}
