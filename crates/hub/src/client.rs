//! The hub's API: addresses of files, and listings of repositories.

use std::time::Duration;

use lis_http::{
    BodyError, Client, ClientSettings, Response, Transport, Url,
    header::{ACCEPT_ENCODING, RANGE},
    is_loopback, read_body,
};
use serde::Deserialize;

use crate::{Error, Sha256Hex};

/// Short, so that machines without a network find out soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest listing, in bytes.
const MAX_LISTING: u64 = 32 << 20;

/// Where a hub is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address; HTTPS, or plain HTTP on the loopback interface.
    pub base: String,
    /// The longest silence of the hub before a connection is given up; 30 seconds by default.
    pub read_timeout: Duration,
}

impl Default for Endpoint {
    fn default() -> Self {
        Self { base: "https://huggingface.co".into(), read_timeout: Duration::from_secs(30) }
    }
}

/// A repository of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repo {
    /// What it holds.
    pub kind: RepoKind,
    /// `OWNER/NAME`.
    pub name: String,
}

/// What a repository holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepoKind {
    /// A model.
    Model,
    /// A data set.
    Dataset,
}

/// A file of a repository at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFile {
    /// The repository.
    pub repo: Repo,
    /// A branch, tag or commit.
    pub revision: String,
    /// The path within the repository.
    pub path: String,
}

impl Repo {
    /// A repository with a model.
    pub fn model(name: impl Into<String>) -> Self {
        Self { kind: RepoKind::Model, name: name.into() }
    }

    /// A repository with a data set.
    pub fn dataset(name: impl Into<String>) -> Self {
        Self { kind: RepoKind::Dataset, name: name.into() }
    }

    /// A file of this repository.
    pub fn file(&self, revision: impl Into<String>, path: impl Into<String>) -> RepoFile {
        RepoFile { repo: self.clone(), revision: revision.into(), path: path.into() }
    }
}

/// A repository at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The commit, in hexadecimal digits.
    pub revision: String,
    /// Its files.
    pub files: Vec<ListedFile>,
}

/// A file as a listing describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The path within the repository. Chosen by its owner: check it before it becomes a path on this machine.
    pub path: String,
    /// The hash of its content, which the hub reports for large files only.
    pub sha256: Option<Sha256Hex>,
}

/// A client of one hub.
#[derive(Clone, Debug)]
pub struct Hub {
    http: Client,
    base: Url,
    host: String,
}

impl Hub {
    /// Prepares a client. Connects to nothing.
    pub fn new(endpoint: &Endpoint) -> Result<Self, Error> {
        let invalid = || Error::Address { base: endpoint.base.chars().take(200).collect() };
        let base = Url::parse(&endpoint.base).map_err(|_| invalid())?;
        let host = base.host_str().ok_or_else(invalid)?.to_owned();
        let transport = match (base.scheme(), is_loopback(&host)) {
            ("http" | "https", true) => Transport::Loopback,
            ("https", false) => Transport::Https,
            _ => return Err(invalid()),
        };
        let settings = ClientSettings {
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: Some(endpoint.read_timeout),
            transport,
            ..ClientSettings::default()
        };
        let http = settings.build();
        let http = http.map_err(|source| Error::Connect { host: host.clone(), source })?;
        Ok(Self { http, base, host })
    }

    /// The hub's host name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Lists the files of a repository at a branch, tag or commit.
    pub async fn list(&self, repo: &Repo, revision: &str) -> Result<Listing, Error> {
        let kind = match repo.kind {
            RepoKind::Model => "models",
            RepoKind::Dataset => "datasets",
        };
        let parts = ["api", kind, &repo.name, "revision", revision];
        let mut url = self.url(&parts)?;
        url.set_query(Some("blobs=true"));
        let response = self.get(url, 0).await?;
        let (host, name) = (|| self.host.clone(), || repo.name.clone());
        if !response.status().is_success() {
            let what = format!("the files of {}", repo.name);
            return Err(Error::Status { host: host(), status: response.status(), what });
        }
        let body = read_body(response, MAX_LISTING).await.map_err(|error| match error {
            BodyError::Transfer(source) => Error::Cut { host: host(), source: Some(source) },
            BodyError::TooLong { limit } => {
                Error::ListingTooLong { host: host(), repo: name(), limit }
            }
        })?;
        let listing: RawListing = serde_json::from_slice(&body)
            .map_err(|source| Error::Listing { host: host(), repo: name(), source })?;
        let commit = (1..=64).contains(&listing.sha.len())
            && listing.sha.bytes().all(|byte| byte.is_ascii_hexdigit());
        match commit {
            true => Ok(listing.into()),
            false => Err(Error::NoCommit { host: host(), repo: name() }),
        }
    }

    /// Requests a file from an offset on. The status is not checked.
    pub(crate) async fn get_file(&self, file: &RepoFile, offset: u64) -> Result<Response, Error> {
        let RepoFile { repo, revision, path } = file;
        let parts = [&repo.name, "resolve", revision, path];
        let url = match repo.kind {
            RepoKind::Model => self.url(&parts)?,
            RepoKind::Dataset => self.url(&[&["datasets"][..], &parts].concat())?,
        };
        self.get(url, offset).await
    }

    /// The address made of these paths; what is special in an address is escaped.
    fn url(&self, paths: &[&str]) -> Result<Url, Error> {
        let mut url = self.base.clone();
        let parts = paths.iter().flat_map(|path| path.split('/'));
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(parts),
            Err(()) => return Err(Error::Address { base: self.base.to_string() }),
        };
        Ok(url)
    }

    async fn get(&self, url: Url, offset: u64) -> Result<Response, Error> {
        // With compression, offsets would not be those of the file.
        let mut request = self.http.get(url).header(ACCEPT_ENCODING, "identity");
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        let host = self.host.clone();
        // The error names the host; the whole address would only be longer.
        let sent = request.send().await.map_err(lis_http::Error::without_url);
        sent.map_err(|source| match source.is_connect() {
            true => Error::Connect { host, source },
            false => Error::Cut { host, source: Some(source) },
        })
    }
}

/// A listing as the hub sends it.
#[derive(Deserialize)]
struct RawListing {
    sha: String,
    #[serde(default)]
    siblings: Vec<RawFile>,
}

#[derive(Deserialize)]
struct RawFile {
    rfilename: String,
    lfs: Option<RawLfs>,
}

#[derive(Deserialize)]
struct RawLfs {
    sha256: Option<String>,
}

impl From<RawListing> for Listing {
    fn from(raw: RawListing) -> Self {
        let file = |raw: RawFile| {
            let sha256 = raw.lfs.and_then(|lfs| lfs.sha256);
            let sha256 = sha256.map(|hash| hash.to_ascii_lowercase());
            // A hash that is none cannot be compared with.
            let sha256 = sha256.and_then(|hash| Sha256Hex::try_from(hash).ok());
            ListedFile { path: raw.rfilename, sha256 }
        };
        Self { revision: raw.sha, files: raw.siblings.into_iter().map(file).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(base: &str) -> Result<Hub, Error> {
        Hub::new(&Endpoint { base: base.into(), ..Endpoint::default() })
    }

    #[test]
    fn plain_http_is_for_this_machine_only() {
        for base in ["http://192.0.2.1", "ftp://localhost", "nonsense", "http://"] {
            assert!(matches!(hub(base), Err(Error::Address { .. })), "{base}");
        }
        for base in ["https://hub.example", "http://localhost:1", "http://[::1]:1/mirror/"] {
            assert!(hub(base).is_ok(), "{base}");
        }
    }

    #[test]
    fn names_cannot_leave_their_place_in_an_address() {
        let url = |parts: &[&str]| hub("https://hub.example/m/").unwrap().url(parts).unwrap();
        assert_eq!(url(&["o/d", "resolve"]).as_str(), "https://hub.example/m/o/d/resolve");
        assert_eq!(url(&["../d?a#b", "x"]).as_str(), "https://hub.example/m/d%3Fa%23b/x");
    }
}
