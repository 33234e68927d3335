//! A client that passes bodies on: bytes in, bytes out, with the connections, credentials, limits and errors of the other
//! clients.

use std::sync::Arc;

use bytes::Bytes;
use lis_http::Response;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    Endpoint, Error,
    http::{Http, KeyStyle},
};

/// A client of one path of a server, for bodies that it does not interpret.
#[derive(Clone, Debug)]
pub struct PassThrough {
    http: Arc<Http>,
}

impl PassThrough {
    /// A client of `{base_url}/{path}`. Connects to nothing.
    ///
    /// # Errors
    /// If the address or a credential cannot be used.
    pub fn new(endpoint: Endpoint, path: &str) -> Result<Self, Error> {
        Ok(Self { http: Arc::new(Http::new(endpoint, path, KeyStyle::Bearer)?) })
    }

    /// Sends a JSON body. The answer may have any status.
    ///
    /// # Errors
    /// If the server cannot be reached, or does not answer in time.
    pub async fn post(&self, body: Bytes) -> Result<Passed, Error> {
        let response = self.http.send(body).await?;
        Ok(Passed { http: Arc::clone(&self.http), response })
    }

    /// The server's list of models (`{base_url}/models`) as it sent it.
    ///
    /// # Errors
    /// If there is none.
    pub async fn models(&self) -> Result<Value, Error> {
        self.http.list().await
    }
}

/// An answer while it is received.
#[derive(Debug)]
pub struct Passed {
    http: Arc<Http>,
    response: Response,
}

impl Passed {
    /// Its status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.response.headers().get(name).map(|value| value.as_bytes())
    }

    /// The next bytes, or `None` at the end.
    ///
    /// # Errors
    /// If the server is silent for too long, or the connection breaks.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let silence = self.http.endpoint().silence;
        let next = timeout(silence, self.response.chunk()).await;
        let chunk = next.map_err(|_| Error::Silence(silence))?;
        chunk.map_err(|source| self.http.transport_error(source))
    }
}
