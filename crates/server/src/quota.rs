//! What one token may use: sandboxes with their resources, requests, and model calls.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sandbox::{ByteSize, Limits};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

/// Quotas of a token. `None`: as much as the server has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quotas {
    /// Sandboxes at once.
    pub sandboxes: Option<usize>,
    /// Processor cores of all its sandboxes together, by their limits.
    pub cpus: Option<f64>,
    /// Memory of all its sandboxes together, by their limits.
    pub memory: Option<ByteSize>,
    /// Disk of all its sandboxes together, by their limits.
    pub disk: Option<ByteSize>,
    /// Disk of its files and snapshots together.
    pub storage: Option<ByteSize>,
    /// Requests in a minute. As many may come at once after a pause.
    pub requests_per_minute: Option<u32>,
    /// Tokens of model calls in a day, prompt and response.
    pub model_tokens_per_day: Option<u64>,
    /// Cost of model calls in a day, in US dollars.
    pub model_cost_per_day: Option<f64>,
    /// Limits of each of its sandboxes, where they are below the server's.
    pub each: EachSandbox,
}

/// Limits of each sandbox of a token. `None`: the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EachSandbox {
    /// Processor time, in cores.
    pub cpus: Option<f64>,
    /// Memory.
    pub memory: Option<ByteSize>,
    /// Disk.
    pub disk: Option<ByteSize>,
}

/// A request that is refused because its token has used what it may use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("over quota: the token `{token}` may use {most}")]
pub struct OverQuota {
    /// The name of the token.
    pub token: Arc<str>,
    /// The quota, such as `sandboxes`.
    pub quota: &'static str,
    /// The quota with its value, such as `2 sandboxes at once`.
    pub most: String,
    /// After which time it makes sense to try again.
    pub retry_after: Duration,
}

impl OverQuota {
    /// Whether it is enough to wait for a short time: requests come back by themselves, sandboxes do not.
    pub(crate) fn passes_with_time(&self) -> bool {
        self.quota == REQUESTS
    }
}

/// The name of the quota of requests.
const REQUESTS: &str = "requests_per_minute";
/// When to try again what depends on other requests.
pub(crate) const RETRY: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

/// The quotas of a token and what it uses of them.
pub(crate) struct Account {
    name: Arc<str>,
    state: Mutex<State>,
}

struct State {
    quotas: Quotas,
    used: Resources,
    sandboxes: usize,
    requests: Option<Bucket>,
    model: ModelUse,
}

/// Requests that may still come, as of some time.
#[derive(Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

/// Model calls since some time.
#[derive(Clone, Copy, Default)]
struct ModelUse {
    since: Option<Instant>,
    tokens: u64,
    cost: f64,
}

/// What sandboxes may use by their limits, in units that add up exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Resources {
    millicores: u64,
    memory: u64,
    disk: u64,
}

fn millicores(cpus: f64) -> u64 {
    // Saturates, and limits are checked to be positive.
    (cpus * 1000.0).round() as u64
}

impl Resources {
    /// Without a limit a sandbox may use everything.
    fn of(limits: &Limits) -> Self {
        Self {
            millicores: limits.cpus.map_or(u64::MAX, millicores),
            memory: limits.memory.map_or(u64::MAX, ByteSize::bytes),
            disk: limits.disk.map_or(u64::MAX, ByteSize::bytes),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            millicores: self.millicores.saturating_add(other.millicores),
            memory: self.memory.saturating_add(other.memory),
            disk: self.disk.saturating_add(other.disk),
        }
    }
}

impl Account {
    pub(crate) fn new(name: Arc<str>, quotas: Quotas) -> Self {
        let state = State {
            quotas,
            used: Resources::default(),
            sandboxes: 0,
            requests: None,
            model: ModelUse::default(),
        };
        Self { name, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other quotas from now on; what was used stays used.
    pub(crate) fn set_quotas(&self, quotas: Quotas) {
        self.lock().quotas = quotas;
    }

    pub(crate) fn quotas(&self) -> Quotas {
        self.lock().quotas.clone()
    }

    fn over(&self, quota: &'static str, most: String, retry_after: Duration) -> OverQuota {
        OverQuota { token: Arc::clone(&self.name), quota, most, retry_after }
    }

    /// The limits of a new sandbox: the server's, or lower ones.
    pub(crate) fn limits(&self, server: Limits) -> Limits {
        let each = self.lock().quotas.each;
        let lower = |a: Option<ByteSize>, b: Option<ByteSize>| a.into_iter().chain(b).min();
        Limits {
            cpus: server.cpus.into_iter().chain(each.cpus).reduce(f64::min),
            memory: lower(server.memory, each.memory),
            disk: lower(server.disk, each.disk),
            ..server
        }
    }

    /// Counts one request.
    pub(crate) fn count_request(&self) -> Result<(), OverQuota> {
        let mut state = self.lock();
        let Some(most) = state.quotas.requests_per_minute else { return Ok(()) };
        let (rate, now) = (f64::from(most), Instant::now());
        let bucket = state.requests.get_or_insert(Bucket { left: rate, at: now });
        let gained = now.duration_since(bucket.at).as_secs_f64() / MINUTE.as_secs_f64() * rate;
        *bucket = Bucket { left: (bucket.left + gained).min(rate), at: now };
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let wait = match most {
            0 => DAY,
            _ => MINUTE.mul_f64((1.0 - bucket.left) / rate),
        };
        Err(self.over(REQUESTS, format!("{most} requests per minute"), wait))
    }

    /// Takes a share for one more sandbox with these limits.
    pub(crate) fn take_sandbox(self: &Arc<Self>, limits: &Limits) -> Result<Share, OverQuota> {
        let mut state = self.lock();
        let taken = Resources::of(limits);
        let after = state.used.plus(taken);
        let quotas = &state.quotas;
        let together = "of all its sandboxes together";
        if let Some(most) = quotas.sandboxes.filter(|most| state.sandboxes >= *most) {
            return Err(self.over("sandboxes", format!("{most} sandboxes at once"), RETRY));
        }
        if let Some(most) = quotas.cpus.filter(|most| after.millicores > millicores(*most)) {
            return Err(self.over("cpus", format!("{most} cores {together}"), RETRY));
        }
        if let Some(most) = quotas.memory.filter(|most| after.memory > most.bytes()) {
            return Err(self.over("memory", format!("{most} of memory {together}"), RETRY));
        }
        if let Some(most) = quotas.disk.filter(|most| after.disk > most.bytes()) {
            return Err(self.over("disk", format!("{most} of disk {together}"), RETRY));
        }
        state.used = after;
        state.sandboxes += 1;
        Ok(Share { account: Arc::clone(self), taken })
    }

    /// Whether a model may be called now.
    pub(crate) fn check_model(&self) -> Result<(), OverQuota> {
        let mut state = self.lock();
        let now = Instant::now();
        let since = *state.model.since.get_or_insert(now);
        let past = now.duration_since(since);
        if past >= DAY {
            state.model = ModelUse { since: Some(now), ..ModelUse::default() };
            return Ok(());
        }
        let (quotas, model) = (&state.quotas, &state.model);
        if let Some(most) = quotas.model_tokens_per_day.filter(|most| model.tokens >= *most) {
            let most = format!("{most} model tokens per day");
            return Err(self.over("model_tokens_per_day", most, DAY - past));
        }
        if let Some(most) = quotas.model_cost_per_day.filter(|most| model.cost >= *most) {
            let most = format!("{most} dollars of model calls per day");
            return Err(self.over("model_cost_per_day", most, DAY - past));
        }
        Ok(())
    }

    /// Whether there is a quota of dollars.
    pub(crate) fn has_cost_quota(&self) -> bool {
        self.lock().quotas.model_cost_per_day.is_some()
    }

    /// Counts what a model call used.
    pub(crate) fn charge_model(&self, tokens: u64, dollars: f64) {
        let mut state = self.lock();
        state.model.since.get_or_insert_with(Instant::now);
        state.model.tokens = state.model.tokens.saturating_add(tokens);
        // A price that is not a number must not turn the quota off.
        if dollars.is_finite() && dollars > 0.0 {
            state.model.cost += dollars;
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a sandbox takes of its token's quotas, given back on drop.
#[derive(Debug)]
pub(crate) struct Share {
    account: Arc<Account>,
    taken: Resources,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.account.lock();
        state.sandboxes = state.sandboxes.saturating_sub(1);
        state.used.millicores = state.used.millicores.saturating_sub(self.taken.millicores);
        state.used.memory = state.used.memory.saturating_sub(self.taken.memory);
        state.used.disk = state.used.disk.saturating_sub(self.taken.disk);
    }
}

/// Permission for one sandbox, of its token and of the server; given back on drop.
#[derive(Debug)]
pub(crate) struct SandboxPermit {
    _share: Share,
    _place: OwnedSemaphorePermit,
}

impl SandboxPermit {
    pub(crate) fn new(share: Share, place: OwnedSemaphorePermit) -> Self {
        Self { _share: share, _place: place }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn account(quotas: Quotas) -> Arc<Account> {
        Arc::new(Account::new("alice".into(), quotas))
    }

    #[test]
    fn sandboxes_count_by_number_and_by_their_limits() {
        let cases = [
            (Quotas { sandboxes: Some(2), ..Quotas::default() }, "sandboxes"),
            (Quotas { cpus: Some(2.5), ..Quotas::default() }, "cpus"),
            (Quotas { memory: Some(ByteSize::gib(2)), ..Quotas::default() }, "memory"),
            (Quotas { disk: Some(ByteSize::gib(5)), ..Quotas::default() }, "disk"),
        ];
        for (quotas, quota) in cases {
            let account = account(quotas);
            let limits = Limits::default();
            let one = account.take_sandbox(&limits).unwrap();
            let _two = account.take_sandbox(&limits).unwrap();
            let refused = account.take_sandbox(&limits).unwrap_err();
            assert_eq!(refused.quota, quota);
            assert!(refused.to_string().contains("alice"), "{refused}");
            drop(one);
            let _three = account.take_sandbox(&limits).unwrap();
            assert!(account.take_sandbox(&limits).is_err());
        }
    }

    #[test]
    fn a_sandbox_without_a_limit_does_not_fit_into_a_quota() {
        let account = account(Quotas { memory: Some(ByteSize::gib(64)), ..Quotas::default() });
        let limits = Limits { memory: None, ..Limits::default() };
        assert_eq!(account.take_sandbox(&limits).unwrap_err().quota, "memory");
    }

    #[test]
    fn limits_of_each_sandbox_are_only_lowered() {
        let each = EachSandbox {
            cpus: Some(4.0),
            memory: Some(ByteSize::mib(512)),
            ..EachSandbox::default()
        };
        let limits = account(Quotas { each, ..Quotas::default() }).limits(Limits::default());
        assert_eq!((limits.cpus, limits.memory), (Some(1.0), Some(ByteSize::mib(512))));
        assert_eq!(limits.disk, Limits::default().disk);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_come_back_with_time() {
        let account = account(Quotas { requests_per_minute: Some(6), ..Quotas::default() });
        for _ in 0..6 {
            account.count_request().unwrap();
        }
        let refused = account.count_request().unwrap_err();
        assert_eq!(refused.retry_after.as_secs_f64().ceil(), 10.0);
        advance(refused.retry_after + Duration::from_millis(1)).await;
        account.count_request().unwrap();
        account.count_request().unwrap_err();
        advance(Duration::from_secs(3600)).await;
        assert_eq!((0..20).filter(|_| account.count_request().is_ok()).count(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn model_calls_are_counted_by_the_day() {
        let quotas = Quotas {
            model_tokens_per_day: Some(100),
            model_cost_per_day: Some(1.0),
            ..Quotas::default()
        };
        let account = account(quotas);
        account.check_model().unwrap();
        account.charge_model(100, f64::NAN);
        let refused = account.check_model().unwrap_err();
        assert_eq!((refused.quota, refused.retry_after), ("model_tokens_per_day", DAY));
        advance(DAY).await;
        account.check_model().unwrap();
        account.charge_model(1, 1.5);
        assert_eq!(account.check_model().unwrap_err().quota, "model_cost_per_day");
    }

    #[test]
    fn new_quotas_keep_what_was_used() {
        let account = account(Quotas::default());
        let _one = account.take_sandbox(&Limits::default()).unwrap();
        account.set_quotas(Quotas { sandboxes: Some(1), ..Quotas::default() });
        account.take_sandbox(&Limits::default()).unwrap_err();
    }
}
