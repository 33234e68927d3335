//! The hub over HTTPS: what a data set holds, and its files. Everything that comes is bounded, and checked where
//! the hub says what it should be.

use std::{fs, io::Write, net::IpAddr, path::Path, time::Duration};

use reqwest::{Client, Response, Url, header::ACCEPT_ENCODING, redirect::Policy};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{HubError, is_name, keep_error};
use crate::rows::LARGEST_FILE;

/// Machines without a network shall find out soon.
const CONNECT: Duration = Duration::from_secs(5);
/// A list of files may have this many bytes.
const LARGEST_LIST: u64 = 32 << 20;

/// A data set at one commit.
#[derive(Debug, Deserialize)]
pub(super) struct Listing {
    #[serde(rename = "sha")]
    pub(super) revision: String,
    #[serde(default)]
    siblings: Vec<File>,
}

/// A file, as the hub describes it.
#[derive(Debug, Deserialize)]
pub(super) struct File {
    #[serde(rename = "rfilename")]
    name: String,
    lfs: Option<Large>,
}

/// What is known of a large file.
#[derive(Debug, Deserialize)]
struct Large {
    sha256: Option<String>,
}

impl Listing {
    pub(super) fn names(&self) -> Vec<String> {
        self.siblings.iter().map(|file| file.name.clone()).collect()
    }

    pub(super) fn file(&self, name: &str) -> Option<&File> {
        self.siblings.iter().find(|file| file.name == name)
    }
}

/// A hub to ask.
pub(super) struct Site {
    http: Client,
    base: Url,
    host: String,
}

impl Site {
    pub(super) fn new(base: &str, stall: Duration) -> Result<Self, HubError> {
        let address = || HubError::Address { base: base.chars().take(200).collect() };
        let url = Url::parse(base).map_err(|_| address())?;
        let host = url.host_str().ok_or_else(address)?.to_owned();
        let local = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if url.scheme() != "https" && !(local && url.scheme() == "http") {
            return Err(address());
        }
        // Somebody may have chosen a provider before us; theirs is fine.
        #[cfg(not(target_os = "macos"))]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("llm-in-sandbox/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .read_timeout(stall)
            .redirect(Policy::limited(5))
            // Redirects included: nothing encrypted goes on in plain text.
            .https_only(!local);
        if local {
            builder = builder.no_proxy();
        }
        let what = "anything".to_owned();
        let http = builder.build().map_err(|source| HubError::Connect {
            what,
            host: host.clone(),
            source,
        })?;
        Ok(Self { http, base: url, host })
    }

    /// What the data set holds at a revision.
    pub(super) async fn list(&self, dataset: &str, revision: &str) -> Result<Listing, HubError> {
        let what = format!("the files of {dataset}");
        let path = format!("api/datasets/{dataset}/revision/{revision}?blobs=true");
        let mut response = self.get(&path, &what).await?;
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk(&mut response, &what).await? {
            if (body.len() + chunk.len()) as u64 > LARGEST_LIST {
                return Err(self.answer(&what, "it has no end".into()));
            }
            body.extend_from_slice(&chunk);
        }
        let listing: Listing =
            serde_json::from_slice(&body).map_err(|error| self.answer(&what, error.to_string()))?;
        match is_name(&listing.revision) {
            true => Ok(listing),
            false => Err(self.answer(&what, "it names no commit".into())),
        }
    }

    /// Fetches a file unless it is there. It appears whole and as the hub describes it, or not at all.
    pub(super) async fn download(
        &self,
        dataset: &str,
        revision: &str,
        name: &str,
        known: Option<&File>,
        to: &Path,
    ) -> Result<(), HubError> {
        if to.is_file() {
            return Ok(());
        }
        let dir = to.parent().unwrap_or(to);
        fs::create_dir_all(dir).map_err(keep_error(dir))?;
        let partial = to.with_extension(format!("{}.partial", std::process::id()));
        let fetched = self.receive(dataset, revision, name, &partial).await.and_then(|digest| {
            let wanted = known.and_then(|file| file.lfs.as_ref()?.sha256.as_deref());
            match wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(&digest)) {
                true => fs::rename(&partial, to).map_err(keep_error(to)),
                false => Err(self.answer(name, "its digest is another".into())),
            }
        });
        if fetched.is_err() {
            let _ = fs::remove_file(&partial);
        }
        fetched
    }

    /// Writes a file as it comes and returns its digest.
    async fn receive(
        &self,
        dataset: &str,
        revision: &str,
        name: &str,
        to: &Path,
    ) -> Result<String, HubError> {
        let path = format!("datasets/{dataset}/resolve/{revision}/{name}");
        let mut response = self.get(&path, name).await?;
        let announced = response.content_length();
        let mut file = fs::File::create(to).map_err(keep_error(to))?;
        let (mut digest, mut size) = (Sha256::new(), 0_u64);
        while let Some(chunk) = self.chunk(&mut response, name).await? {
            size += chunk.len() as u64;
            if size > LARGEST_FILE {
                return Err(self.answer(name, format!("it has more than {LARGEST_FILE} bytes")));
            }
            digest.update(&chunk);
            file.write_all(&chunk).map_err(keep_error(to))?;
        }
        if announced.is_some_and(|announced| announced != size) {
            return Err(self.answer(name, format!("it broke off after {size} bytes")));
        }
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    async fn get(&self, path: &str, what: &str) -> Result<Response, HubError> {
        let base = self.base.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{path}"))
            .map_err(|_| HubError::Address { base: base.chars().take(200).collect() })?;
        let request = self.http.get(url).header(ACCEPT_ENCODING, "identity");
        let response = request.send().await.map_err(|source| self.connect(what, source))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(HubError::Status {
                host: self.host.clone(),
                status: status.as_u16(),
                what: what.to_owned(),
            }),
        }
    }

    async fn chunk(
        &self,
        response: &mut Response,
        what: &str,
    ) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]>>, HubError> {
        response.chunk().await.map_err(|source| self.connect(what, source))
    }

    fn connect(&self, what: &str, source: reqwest::Error) -> HubError {
        // The address is long and says nothing new.
        let source = source.without_url();
        HubError::Connect { what: what.to_owned(), host: self.host.clone(), source }
    }

    fn answer(&self, what: &str, why: String) -> HubError {
        HubError::Answer { host: self.host.clone(), what: what.to_owned(), why }
    }
}
