//! The file from the hub of models, over HTTPS, going on where an earlier attempt stopped.
//!
//! Only sizes are checked here; whether the bytes are the right ones is found out when all are there.

use std::{net::IpAddr, time::Duration};

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT_ENCODING, CONTENT_RANGE, RANGE},
};

use crate::{
    entry::HubFile,
    error::chain,
    partial::{Partial, PartialError},
    progress::{Progress, Stage},
    pull::Hub,
};

/// Machines without a network shall find out soon.
const CONNECT: Duration = Duration::from_secs(5);
/// Attempts in a row that bring next to nothing.
const ATTEMPTS: u32 = 4;
/// An attempt that brought this much was worth it.
const WORTH: u64 = 64 << 10;

/// Why the hub did not give the file.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Its address cannot be used.
    #[error("`{base}` is no https address of a hub")]
    Address {
        /// What was given.
        base: String,
    },
    /// No connection.
    #[error("cannot reach {host}; check the network and the proxy settings")]
    Connect {
        /// The hub's host.
        host: String,
        /// What happened.
        #[source]
        source: reqwest::Error,
    },
    /// The connection broke.
    #[error("{host} broke off; what has come is kept")]
    Cut {
        /// The hub's host.
        host: String,
        /// What happened.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// It answers with something else than the file.
    #[error("{host} answered {status} when asked for {file}")]
    Status {
        /// The hub's host.
        host: String,
        /// Its answer.
        status: StatusCode,
        /// The file.
        file: String,
    },
    /// It has another file.
    #[error("{host} offers {offered} bytes where the file has {size}")]
    OtherSize {
        /// The hub's host.
        host: String,
        /// Bytes it would send.
        offered: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// The file cannot be written, or more came than there should be.
    #[error(transparent)]
    Partial(#[from] PartialError),
}

impl HubError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Cut { .. } => true,
            Self::Status { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            _ => false,
        }
    }
}

/// Completes the file.
pub(crate) async fn fetch(
    hub: &Hub,
    file: &HubFile,
    partial: &mut Partial,
    progress: &dyn Progress,
) -> Result<(), HubError> {
    let asked = Asked::new(hub, file)?;
    progress.message(&format!("from {}", asked.host));
    begin(partial, progress);
    let start = partial.have();
    let (mut best, mut failures) = (start, 0);
    while partial.have() < partial.size() {
        let Err(error) = asked.attempt(partial, progress).await else { continue };
        // With no connection at all there is no point in insisting.
        let hopeless = matches!(error, HubError::Connect { .. }) && best == start && failures == 0;
        if hopeless || !error.is_passing() {
            return Err(error);
        }
        failures = if partial.have() >= best.saturating_add(WORTH) { 1 } else { failures + 1 };
        best = best.max(partial.have());
        if failures >= ATTEMPTS {
            return Err(error);
        }
        progress.message(&format!("{}; going on", chain(&error)));
        tokio::time::sleep(Duration::from_millis(250 << failures)).await;
    }
    Ok(())
}

/// Tells a watcher where the file stands.
pub(crate) fn begin(partial: &Partial, progress: &dyn Progress) {
    progress.stage(Stage::Fetching, partial.size());
    progress.advance(partial.have());
}

/// A file to ask for.
struct Asked {
    http: Client,
    url: Url,
    host: String,
    file: String,
}

impl Asked {
    fn new(hub: &Hub, file: &HubFile) -> Result<Self, HubError> {
        let address = || HubError::Address { base: hub.base.chars().take(200).collect() };
        let base = hub.base.trim_end_matches('/');
        let HubFile { repo, file, revision } = file;
        let url = Url::parse(&format!("{base}/{repo}/resolve/{revision}/{file}"));
        let url = url.map_err(|_| address())?;
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
            .read_timeout(hub.stall)
            .redirect(reqwest::redirect::Policy::limited(5))
            // Redirects included: nothing encrypted goes on in plain text.
            .https_only(!local);
        if local {
            builder = builder.no_proxy();
        }
        let http =
            builder.build().map_err(|source| HubError::Connect { host: host.clone(), source })?;
        Ok(Self { http, url, host, file: file.clone() })
    }

    async fn get(&self, from: u64) -> Result<Response, HubError> {
        // Compression on the way would make positions meaningless.
        let mut request = self.http.get(self.url.clone()).header(ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        let host = self.host.clone();
        // The address is long and says nothing new.
        let sent = request.send().await.map_err(reqwest::Error::without_url);
        sent.map_err(|source| match source.is_connect() {
            true => HubError::Connect { host, source },
            false => HubError::Cut { host, source: Some(source) },
        })
    }

    async fn attempt(
        &self,
        partial: &mut Partial,
        progress: &dyn Progress,
    ) -> Result<(), HubError> {
        let mut response = self.get(partial.have()).await?;
        let goes_on = response.status() == StatusCode::PARTIAL_CONTENT
            && starts_at(&response) == Some(partial.have());
        let refuses_ranges = response.status().is_success()
            || response.status() == StatusCode::RANGE_NOT_SATISFIABLE;
        if partial.have() > 0 && !goes_on && refuses_ranges {
            partial.clear()?;
            begin(partial, progress);
            if response.status() != StatusCode::OK {
                response = self.get(0).await?;
            }
        }
        let status = response.status();
        if !(goes_on || status == StatusCode::OK) {
            let (host, file) = (self.host.clone(), self.file.clone());
            return Err(HubError::Status { host, status, file });
        }
        let size = partial.size();
        let offered = response.content_length().map(|rest| rest.saturating_add(partial.have()));
        if let Some(offered) = offered.filter(|offered| *offered != size) {
            return Err(HubError::OtherSize { host: self.host.clone(), offered, size });
        }
        self.receive(response, partial, progress).await
    }

    async fn receive(
        &self,
        mut response: Response,
        partial: &mut Partial,
        progress: &dyn Progress,
    ) -> Result<(), HubError> {
        let cut = |source| HubError::Cut { host: self.host.clone(), source };
        while let Some(chunk) = response.chunk().await.map_err(|source| cut(Some(source)))? {
            partial.write(&chunk)?;
            progress.advance(chunk.len() as u64);
        }
        if partial.have() < partial.size() { Err(cut(None)) } else { Ok(()) }
    }
}

fn starts_at(response: &Response) -> Option<u64> {
    let text = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    text.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}
