//! Responses cached on disk, so that a run can be repeated without calling the model.
//!
//! The key of a response is everything that determines it. Knows no server and no API key, and does not interpret
//! conversations.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use trajectory::{Arguments, Message};

use crate::{
    Delta, Error, Listener, Model, Request, Response, Sampling, ToolSpec, cache::disk::Dir,
    request::forward_to_inner,
};

mod disk;

/// Version of the files and of their keys. Files of other versions are ignored.
const VERSION: u32 = 1;

/// A model whose responses are cached and returned for identical requests.
///
/// When one process makes the same request several times, each occurrence has its own response: the first finds the
/// first again, the second the second. Concurrent identical requests may be numbered differently in another run.
/// Failures are not cached.
#[derive(Debug)]
pub struct Cached<M> {
    dir: Arc<Dir>,
    scope: Value,
    model: M,
    taken: Mutex<HashMap<Key, Occurrences>>,
}

impl<M: Model> Cached<M> {
    /// Caches the responses of `model` in a directory, which is created if it is missing.
    ///
    /// `scope` is whatever determines responses besides the request: the provider, its address, extra fields of the
    /// body. It must not contain secrets.
    pub fn open(dir: &Path, scope: Value, model: M) -> Result<Self, Error> {
        let dir = Dir::open(dir).map_err(|source| failed(dir, source))?;
        Ok(Self { dir: Arc::new(dir), scope, model, taken: Mutex::default() })
    }

    /// The wrapped model.
    pub fn inner(&self) -> &M {
        &self.model
    }

    fn key(&self, request: &Request<'_>) -> Result<Key, Error> {
        let parts = KeyParts {
            version: VERSION,
            model: self.model.name(),
            scope: &self.scope,
            messages: request.messages,
            tools: request.tools,
            sampling: request.sampling,
            max_tokens: request.max_tokens,
        };
        let text = serde_json::to_value(parts).and_then(|mut value| {
            // The order of an object's keys is irrelevant, and not every build preserves it.
            value.sort_all_objects();
            serde_json::to_vec(&value)
        });
        match text {
            Ok(text) => Ok(Key(Sha256::digest(text).into())),
            Err(error) => Err(failed(self.dir.path(), error.into())),
        }
    }

    async fn load(
        &self,
        file: &Path,
        occurrence: &Occurrence<'_>,
    ) -> Result<Option<Response>, Error> {
        let (dir, path) = (Arc::clone(&self.dir), file.to_owned());
        let bytes = blocking(move || dir.read(&path)).await;
        let bytes = bytes.map_err(|source| failed(file, source))?;
        let cached = bytes.and_then(|bytes| serde_json::from_slice::<CachedResponse>(&bytes).ok());
        Ok(cached.and_then(|cached| cached.response_to(occurrence)))
    }

    async fn store(
        &self,
        file: &Path,
        occurrence: &Occurrence<'_>,
        response: &Response,
    ) -> Result<(), Error> {
        let cached = CachedResponse {
            v: VERSION,
            key: occurrence.key.hex(),
            n: occurrence.n,
            model: self.model.name().to_owned(),
            response: response.clone(),
        };
        let (dir, path) = (Arc::clone(&self.dir), file.to_owned());
        let wrote = blocking(move || dir.write(&path, &serde_json::to_vec(&cached)?)).await;
        wrote.map_err(|source| failed(file, source))
    }

    /// Numbers the next occurrence of a request.
    fn next_occurrence(&self, key: Key) -> Occurrence<'_> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let n = taken.entry(key).or_default().next();
        Occurrence { taken: &self.taken, key, n, done: false }
    }
}

impl<M: Model> Model for Cached<M> {
    forward_to_inner!(|cached| cached.model);

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let mut occurrence = self.next_occurrence(self.key(request)?);
        let file = self.dir.file(&occurrence.key.hex(), occurrence.n);
        let response = match self.load(&file, &occurrence).await? {
            Some(response) => {
                tracing::debug!(model = self.name(), "response from cache");
                replay(&response, listener);
                response
            }
            None => {
                let response = self.model.complete(request, listener).await?;
                self.store(&file, &occurrence, &response).await?;
                response
            }
        };
        occurrence.done = true;
        Ok(response)
    }
}

/// Everything that determines a response.
#[derive(Serialize)]
struct KeyParts<'a> {
    version: u32,
    model: &'a str,
    scope: &'a Value,
    messages: &'a [Message],
    tools: &'a [ToolSpec],
    sampling: &'a Sampling,
    max_tokens: u64,
}

/// The content of a file. It repeats the key, so that a file that was moved or truncated is not used.
#[derive(Serialize, Deserialize)]
struct CachedResponse {
    v: u32,
    key: String,
    n: u64,
    /// For human readers.
    model: String,
    #[serde(rename = "reply")]
    response: Response,
}

impl CachedResponse {
    fn response_to(self, occurrence: &Occurrence<'_>) -> Option<Response> {
        let matches =
            self.v == VERSION && self.n == occurrence.n && self.key == occurrence.key.hex();
        matches.then_some(Response { from_cache: true, ..self.response })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key([u8; 32]);

impl Key {
    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The numbers that occurrences of one request have taken.
#[derive(Debug, Default)]
struct Occurrences {
    next: u64,
    /// Numbers whose requests failed; reused first.
    free: BTreeSet<u64>,
}

impl Occurrences {
    fn next(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// One occurrence of a request; its number is released if the request fails or is dropped.
struct Occurrence<'a> {
    taken: &'a Mutex<HashMap<Key, Occurrences>>,
    key: Key,
    n: u64,
    done: bool,
}

impl Drop for Occurrence<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.entry(self.key).or_default().free.insert(self.n);
    }
}

/// Passes a complete response to a listener.
fn replay(response: &Response, listener: &dyn Listener) {
    let message = &response.message;
    if !message.reasoning.is_empty() {
        listener.on_delta(Delta::Reasoning(&message.reasoning));
    }
    if !message.text.is_empty() {
        listener.on_delta(Delta::Text(&message.text));
    }
    for call in &message.calls {
        listener.on_delta(Delta::Call(&call.name));
        match &call.arguments {
            Arguments::Malformed { malformed, .. } => {
                listener.on_delta(Delta::Arguments(malformed))
            }
            Arguments::Object(map) => {
                let text = serde_json::to_string(map).unwrap_or_default();
                listener.on_delta(Delta::Arguments(&text));
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Cache { path: path.to_owned(), source }
}

#[cfg(test)]
#[path = "cache/cache_tests.rs"]
mod tests;
