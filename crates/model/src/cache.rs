//! Replies kept on disk, so that a run can be repeated without asking anybody.
//!
//! A reply is found again under everything that decided it. Knows no server and no key, and never looks
//! into a conversation.

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

use crate::{Delta, Error, Listener, Model, Reply, Request, Sampling, ToolSpec, cache::disk::Dir};

mod disk;

/// The version of the files and of what their names are made from. Files of another one are not used.
const VERSION: u32 = 1;

/// A model whose replies are kept, and given again to the same request.
///
/// When one process makes the same request several times, each of them has a reply of its own: the first
/// finds the first again, the second the second. Requests made at the same time may take turns differently
/// in another run. Failures are not kept.
#[derive(Debug)]
pub struct Cached<M> {
    dir: Arc<Dir>,
    scope: Value,
    model: M,
    taken: Mutex<HashMap<Key, Taken>>,
}

impl<M: Model> Cached<M> {
    /// Keeps the replies of `model` in a directory, which is made if it is missing.
    ///
    /// `scope` is what decides about replies besides the request: the provider, its address, what is added
    /// to the body. It must hold no secrets, and neither do the files.
    pub fn open(dir: &Path, scope: Value, model: M) -> Result<Self, Error> {
        let dir = Dir::open(dir).map_err(|source| failed(dir, source))?;
        Ok(Self { dir: Arc::new(dir), scope, model, taken: Mutex::default() })
    }

    /// The model itself, which is asked each time.
    pub fn inner(&self) -> &M {
        &self.model
    }

    fn key(&self, request: &Request<'_>) -> Result<Key, Error> {
        let said = Said {
            version: VERSION,
            model: self.model.name(),
            scope: &self.scope,
            messages: request.messages,
            tools: request.tools,
            sampling: request.sampling,
            max_tokens: request.max_tokens,
        };
        let text = serde_json::to_value(said).and_then(|mut value| {
            // The order of an object's keys says nothing, and not every build keeps it.
            value.sort_all_objects();
            serde_json::to_vec(&value)
        });
        match text {
            Ok(text) => Ok(Key(Sha256::digest(text).into())),
            Err(error) => Err(failed(self.dir.path(), error.into())),
        }
    }

    async fn load(&self, file: &Path, slot: &Slot<'_>) -> Result<Option<Reply>, Error> {
        let (dir, path) = (Arc::clone(&self.dir), file.to_owned());
        let bytes = blocking(move || dir.read(&path)).await;
        let bytes = bytes.map_err(|source| failed(file, source))?;
        let kept = bytes.and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        Ok(kept.and_then(|kept| kept.reply_to(slot)))
    }

    async fn keep(&self, file: &Path, slot: &Slot<'_>, reply: &Reply) -> Result<(), Error> {
        let kept = Kept {
            v: VERSION,
            key: slot.key.hex(),
            n: slot.n,
            model: self.model.name().to_owned(),
            reply: reply.clone(),
        };
        let (dir, path) = (Arc::clone(&self.dir), file.to_owned());
        let wrote = blocking(move || dir.write(&path, &serde_json::to_vec(&kept)?)).await;
        wrote.map_err(|source| failed(file, source))
    }

    /// The place of the next request of its kind.
    fn take(&self, key: Key) -> Slot<'_> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let n = taken.entry(key).or_default().next();
        Slot { taken: &self.taken, key, n, done: false }
    }
}

impl<M: Model> Model for Cached<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn how_to_call(&self, tools: &[ToolSpec]) -> &'static str {
        self.model.how_to_call(tools)
    }

    fn can_be_held(&self) -> bool {
        self.model.can_be_held()
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        let mut slot = self.take(self.key(request)?);
        let file = self.dir.file(&slot.key.hex(), slot.n);
        let reply = match self.load(&file, &slot).await? {
            Some(reply) => {
                tell(&reply, listener);
                reply
            }
            None => {
                let reply = self.model.complete(request, listener).await?;
                self.keep(&file, &slot, &reply).await?;
                reply
            }
        };
        slot.done = true;
        Ok(reply)
    }
}

/// Everything that decides about a reply.
#[derive(Serialize)]
struct Said<'a> {
    version: u32,
    model: &'a str,
    scope: &'a Value,
    messages: &'a [Message],
    tools: &'a [ToolSpec],
    sampling: &'a Sampling,
    max_tokens: u64,
}

/// What a file holds. The key is repeated in it, so that a file that was moved or cut is not believed.
#[derive(Serialize, Deserialize)]
struct Kept {
    v: u32,
    key: String,
    n: u64,
    /// For those who look into the file.
    model: String,
    reply: Reply,
}

impl Kept {
    fn reply_to(self, slot: &Slot<'_>) -> Option<Reply> {
        let ours = self.v == VERSION && self.n == slot.n && self.key == slot.key.hex();
        ours.then_some(Reply { from_cache: true, ..self.reply })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key([u8; 32]);

impl Key {
    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The places that requests of one kind have taken.
#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Places whose requests came to nothing. The next one of the kind gets the first of them.
    free: BTreeSet<u64>,
}

impl Taken {
    fn next(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// A place, given back when its request fails or is abandoned.
struct Slot<'a> {
    taken: &'a Mutex<HashMap<Key, Taken>>,
    key: Key,
    n: u64,
    done: bool,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.entry(self.key).or_default().free.insert(self.n);
    }
}

/// Lets a listener hear a reply that is already complete.
fn tell(reply: &Reply, listener: &dyn Listener) {
    let message = &reply.message;
    if !message.reasoning.is_empty() {
        listener.hear(Delta::Reasoning(&message.reasoning));
    }
    if !message.text.is_empty() {
        listener.hear(Delta::Text(&message.text));
    }
    for call in &message.calls {
        listener.hear(Delta::Call(&call.name));
        match &call.arguments {
            Arguments::Malformed { malformed, .. } => listener.hear(Delta::Arguments(malformed)),
            Arguments::Object(map) => {
                let text = serde_json::to_string(map).unwrap_or_default();
                listener.hear(Delta::Arguments(&text));
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
