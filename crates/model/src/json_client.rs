//! A client for a server's other protocols: JSON in, events or one document out, with the connections, limits and errors
//! of the chat clients.
//!
//! Knows no protocol: the caller writes the body and an [`EventSink`] reads the answer.

use serde_json::{Map, Value};

use crate::{
    Endpoint, Error,
    exchange::{self, EventSink},
    http::{Http, KeyStyle},
    wire,
};

/// A client of one path of a server.
#[derive(Debug)]
pub struct JsonClient {
    http: Http,
}

impl JsonClient {
    /// A client of `{base_url}/{path}`. Connects to nothing.
    pub fn new(endpoint: Endpoint, path: &str) -> Result<Self, Error> {
        Ok(Self { http: Http::new(endpoint, path, KeyStyle::Bearer)? })
    }

    /// The server.
    pub fn endpoint(&self) -> &Endpoint {
        self.http.endpoint()
    }

    /// Sends a body and passes the answer to `events`, streamed or as one document, whichever the server sends.
    pub async fn post(
        &self,
        mut body: Map<String, Value>,
        events: &mut impl EventSink,
    ) -> Result<(), Error> {
        wire::merge(&mut body, &self.endpoint().extra_body);
        let answer = self.http.post(&Value::Object(body)).await?.check_status().await;
        let answer = answer.map_err(|refusal| self.http.error(&refusal))?;
        exchange::receive(&self.http, answer, events).await
    }

    /// The server's list of models (`{base_url}/models`) as it sent it.
    pub async fn models(&self) -> Result<Value, Error> {
        self.http.list().await
    }

    /// A text of the server in a form fit to be shown: one line, bounded, without secrets.
    pub fn shown(&self, text: &str) -> String {
        self.http.shown(text)
    }
}
