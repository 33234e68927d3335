//! Requests to one registry about one image, with whatever proof of identity it asks for.

use std::time::Duration;

use reqwest::{
    Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE},
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
    reference::{Reference, is_loopback},
};

/// Descriptions are small; a larger one is an attack or a mistake.
const MAX_DOCUMENT: u64 = 8 << 20;
/// How often a description is asked for.
const DOCUMENT_ATTEMPTS: u32 = 4;

/// A connection to a registry for one image.
pub(crate) struct Client {
    http: reqwest::Client,
    reference: Reference,
    scheme: &'static str,
    credentials: Option<Credentials>,
    /// What the registry accepted last.
    proof: Mutex<Option<HeaderValue>>,
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
        // Somebody may have chosen a provider before us; theirs is fine.
        #[cfg(not(target_os = "macos"))]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let local = reference.is_loopback();
        let plain = local || transport == Transport::Insecure;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("llm-in-sandbox/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(20))
            .read_timeout(stall)
            .redirect(reqwest::redirect::Policy::limited(5))
            // Redirects included: nothing encrypted goes on in plain text.
            .https_only(!plain);
        if local {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|source| RegistryError::Connect {
            registry: reference.registry().to_owned(),
            source,
        })?;
        let scheme = if plain { "http" } else { "https" };
        Ok(Self { http, reference, scheme, credentials, proof: Mutex::new(None) })
    }

    pub(crate) fn registry(&self) -> &str {
        self.reference.registry()
    }

    /// Finds out what the image consists of on a platform.
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
        Err(self.bad("its indexes refer to indexes without end"))
    }

    /// Asks for a layer from an offset on.
    pub(crate) async fn layer(
        &self,
        layer: &Descriptor,
        offset: u64,
    ) -> Result<Response, RegistryError> {
        let url = self.url(&format!("blobs/{}", layer.digest))?;
        let range = (offset > 0).then(|| format!("bytes={offset}-"));
        self.get(&url, &format!("layer {}", layer.digest), range.as_deref()).await
    }

    pub(crate) fn bad(&self, why: impl Into<String>) -> RegistryError {
        RegistryError::BadAnswer { registry: self.registry().to_owned(), why: why.into() }
    }

    fn url(&self, rest: &str) -> Result<Url, RegistryError> {
        let text = format!(
            "{}://{}/v2/{}/{rest}",
            self.scheme,
            self.reference.host(),
            self.reference.path()
        );
        Url::parse(&text).map_err(|_| self.bad("its name makes no address"))
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
                // A registry that is not there will not be there in a second either.
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
        // For a tag nothing is promised but what the registry itself says of its answer.
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

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, RegistryError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|source| self.exchange(source))? {
            if (bytes.len() + chunk.len()) as u64 > MAX_DOCUMENT {
                return Err(self.bad(format!("a description is longer than {MAX_DOCUMENT} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Sends a request, answers a challenge once, and turns refusals into errors.
    async fn get(
        &self,
        url: &Url,
        what: &str,
        range: Option<&str>,
    ) -> Result<Response, RegistryError> {
        let proof = self.proof.lock().await.clone();
        let response = self.send(url, range, proof.as_ref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.checked(response, what).await;
        }
        let Some(challenge) = Challenge::from_headers(response.headers()) else {
            return self.checked(response, what).await;
        };
        let Some(proof) = self.prove(&challenge, what).await? else {
            return self.checked(response, what).await;
        };
        *self.proof.lock().await = Some(proof.clone());
        let response = self.send(url, range, Some(&proof)).await?;
        self.checked(response, what).await
    }

    async fn send(
        &self,
        url: &Url,
        range: Option<&str>,
        proof: Option<&HeaderValue>,
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
        if let Some(proof) = proof {
            request = request.header(AUTHORIZATION, proof.clone());
        }
        request.send().await.map_err(|source| self.exchange(source))
    }

    /// What to show the registry, or nothing where we have nothing to show.
    async fn prove(
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
        let url = url.ok_or_else(|| self.bad("the place to get a token from is no address"))?;
        let local = url.host_str().is_some_and(is_loopback);
        if url.scheme() != "https"
            && !(local && self.reference.is_loopback())
            && self.scheme != "http"
        {
            return Err(self.bad("it wants a token fetched without encryption"));
        }
        let proof = self.credentials.as_ref().and_then(auth::basic);
        let mut request = self.http.get(url);
        if let Some(proof) = proof {
            request = request.header(AUTHORIZATION, proof);
        }
        let response = request.send().await.map_err(|source| self.exchange(source))?;
        let response = self.checked(response, what).await?;
        let bytes = self.body(response).await?;
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|_| self.bad("the token cannot be read"))?;
        token.header().map(Some).ok_or_else(|| self.bad("there is no token in its answer"))
    }

    async fn checked(&self, response: Response, what: &str) -> Result<Response, RegistryError> {
        let status = response.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(response);
        }
        let said = self.said(response).await;
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
                RegistryError::Unauthorized { registry, what, said, remedy }
            }
            StatusCode::NOT_FOUND => RegistryError::NotFound { registry, what, said },
            _ => RegistryError::Status { registry, status: status.as_u16(), what, said },
        })
    }

    /// The registry's own words about a refusal, shortened and on one line.
    async fn said(&self, response: Response) -> String {
        let bytes = self.body(response).await.unwrap_or_default();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = json.pointer("/errors/0/message").or_else(|| json.pointer("/details"));
        let text = message.and_then(serde_json::Value::as_str).unwrap_or_default();
        let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        if text.is_empty() { text } else { format!(" ({text})") }
    }

    pub(crate) fn exchange(&self, source: reqwest::Error) -> RegistryError {
        let registry = self.registry().to_owned();
        if source.is_connect() {
            RegistryError::Connect { registry, source }
        } else {
            RegistryError::Exchange { registry, source }
        }
    }
}

/// How long to wait before trying again: doubling, from a fifth of a second to six seconds.
pub(crate) fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(100 << attempt.clamp(1, 6))
}
