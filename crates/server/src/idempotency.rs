//! `Idempotency-Key`: a request to create a sandbox that is sent again is answered as before, and creates no second one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::HeaderMap;
use http_server::KeyHash;
use serde_json::Value;
use tokio::{sync::OnceCell, time::Instant};

use crate::error::{ApiError, Code};

/// The header.
pub(crate) const HEADER: &str = "idempotency-key";
/// Most bytes of a key.
const MAX_KEY: usize = 255;
/// Keys that are remembered for one owner; the oldest that is not being answered is forgotten first.
const MAX_EACH: usize = 1000;
/// How long a key is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// The key of a request, if it has one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=MAX_KEY).contains(&text.len()));
    let text = text.filter(|text| text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
    let message =
        format!("the header Idempotency-Key must have 1 to {MAX_KEY} characters of ASCII");
    text.map(|text| Some(text.to_owned())).ok_or_else(|| ApiError::invalid(message))
}

/// What was asked for with keys, by owner.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Mutex<HashMap<Arc<str>, Owned>>);

/// The keys of one owner.
#[derive(Debug, Default)]
struct Owned {
    by_key: HashMap<String, Arc<Repeat>>,
    /// The keys, the oldest first.
    order: VecDeque<String>,
}

/// A request with a key, and its answer once there is one.
#[derive(Debug)]
pub(crate) struct Repeat {
    request: KeyHash,
    since: Instant,
    answer: OnceCell<Value>,
}

impl Repeats {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Owned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request that this owner sent first with this key: this one, or an equal one.
    ///
    /// # Errors
    /// If it was another request, or as many as are remembered are being answered.
    pub(crate) fn of(
        &self,
        owner: &Arc<str>,
        key: String,
        request: KeyHash,
    ) -> Result<Arc<Repeat>, ApiError> {
        let mut all = self.lock();
        let owned = all.entry(Arc::clone(owner)).or_default();
        owned.forget(usize::MAX);
        if let Some(first) = owned.by_key.get(&key) {
            return match first.request.same(&request) {
                true => Ok(Arc::clone(first)),
                false => {
                    let message = "another request was sent with this Idempotency-Key";
                    Err(ApiError::new(Code::OtherRequest, message))
                }
            };
        }
        owned.forget(MAX_EACH - 1);
        if owned.order.len() >= MAX_EACH {
            let message = format!("{MAX_EACH} requests with an Idempotency-Key are being answered");
            return Err(ApiError::new(Code::TooMany, message));
        }
        let first = Repeat { request, since: Instant::now(), answer: OnceCell::new() };
        let first = Arc::new(first);
        owned.by_key.insert(key.clone(), Arc::clone(&first));
        owned.order.push_back(key);
        Ok(first)
    }

    /// Forgets the keys of owners that are gone.
    pub(crate) fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.lock().retain(|owner, _| is_kept(owner));
    }
}

impl Owned {
    /// Forgets what is old, and as many more that so many are left. What is being answered stays: sent again, it would be
    /// done twice.
    fn forget(&mut self, most: usize) {
        let (by_key, mut left) = (&mut self.by_key, self.order.len());
        self.order.retain(|key| {
            let is_kept = by_key.get(key).is_some_and(|repeat| {
                let is_old = repeat.since.elapsed() >= REMEMBERED;
                repeat.is_being_answered() || (left <= most && !is_old)
            });
            if !is_kept {
                by_key.remove(key);
                left -= 1;
            }
            is_kept
        });
    }
}

impl Repeat {
    /// Whether a request waits for its answer. Others cannot begin to meanwhile: that takes the lock of all.
    fn is_being_answered(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 && !self.answer.initialized()
    }

    /// The answer to the first request. One that fails is not remembered: the next equal request tries again.
    pub(crate) async fn answer(
        &self,
        create: impl Future<Output = Result<Value, ApiError>>,
    ) -> Result<Value, ApiError> {
        self.answer.get_or_try_init(|| create).await.cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    fn of(all: &Repeats, owner: &str, key: &str, body: &str) -> Result<Arc<Repeat>, ApiError> {
        all.of(&owner.into(), key.into(), KeyHash::of(body.as_bytes()))
    }

    #[tokio::test(start_paused = true)]
    async fn equal_requests_have_one_answer_and_others_are_refused() {
        let all = Repeats::default();
        let first = of(&all, "ann", "k", "a").unwrap();
        let failed = first.answer(async { Err(ApiError::invalid("full")) }).await;
        assert!(failed.is_err());
        assert_eq!(first.answer(async { Ok(json!(1)) }).await.unwrap(), 1);
        let again = of(&all, "ann", "k", "a").unwrap();
        assert_eq!(again.answer(async { Ok(json!(2)) }).await.unwrap(), 1);
        assert_eq!(of(&all, "ann", "k", "b").unwrap_err().code.status(), 422);
        // Keys of others, and other keys, have nothing to do with it.
        for (owner, key) in [("bob", "k"), ("ann", "l")] {
            let other = of(&all, owner, key, "b").unwrap();
            assert_eq!(other.answer(async { Ok(json!(3)) }).await.unwrap(), 3);
        }
        all.retain(|owner| owner == "ann");
        assert_eq!(all.lock().len(), 1);
        advance(REMEMBERED).await;
        assert!(of(&all, "ann", "k", "b").is_ok(), "it is forgotten after a day");
        assert_eq!(all.lock().values().next().unwrap().order.len(), 1);
    }

    #[test]
    fn an_owner_has_a_bounded_number() {
        let all = Repeats::default();
        for number in 0..MAX_EACH + 5 {
            of(&all, "ann", &number.to_string(), "a").unwrap();
        }
        let sizes = all.lock().values().map(|own| (own.by_key.len(), own.order.len())).next();
        assert_eq!(sizes, Some((MAX_EACH, MAX_EACH)));
        assert!(of(&all, "ann", "1004", "b").is_err() && of(&all, "ann", "0", "b").is_ok());
    }

    #[tokio::test]
    async fn what_is_being_answered_is_not_forgotten() {
        let all = Repeats::default();
        let mut waiting: Vec<_> = (0..MAX_EACH)
            .map(|number| of(&all, "ann", &number.to_string(), "a").unwrap())
            .collect();
        assert_eq!(of(&all, "ann", "more", "a").unwrap_err().code, Code::TooMany);
        assert!(of(&all, "ann", "0", "a").is_ok() && of(&all, "bob", "more", "a").is_ok());
        // One has its answer, and another has failed: the older one of them is forgotten.
        waiting[7].answer(async { Ok(json!(1)) }).await.unwrap();
        drop(waiting.remove(9));
        let _more = of(&all, "ann", "more", "a").unwrap();
        for (key, is_known) in [("0", true), ("9", true), ("7", false)] {
            assert_eq!(of(&all, "ann", key, "b").is_err(), is_known, "{key}");
        }
    }

    #[test]
    fn keys_are_short_and_printable() {
        let with = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, value.try_into().unwrap());
            key(&headers)
        };
        assert_eq!(key(&HeaderMap::new()), Ok(None));
        assert_eq!(with(b"\"8e03978e\""), Ok(Some("\"8e03978e\"".into())));
        for bad in [&b""[..], b"\xc3\xa4", &[b'x'; MAX_KEY + 1]] {
            assert!(with(bad).is_err(), "{bad:?}");
        }
    }
}
