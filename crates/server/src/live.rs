//! A sandbox of a client, with everything the server knows about it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use http_server::{MemoryBudget, MemoryPermit};
use sandbox::{FileEvent, FileOperation, Identity, Input, Paused, RemoteSandbox};
use tokio::{
    io::AsyncReadExt,
    sync::{mpsc, watch},
    time::Instant as TokioInstant,
};

use crate::{
    error::{ApiError, Code},
    network::NetworkRequest,
    ports::PortPlaces,
    running::Programs,
    samples::Samples,
    sandbox_log::{Level, SandboxLog},
    tokens::Caller,
    users::{User, Users},
};

/// A sandbox that a client created.
pub(crate) struct Live<S> {
    pub(crate) id: String,
    pub(crate) template: String,
    /// Who created it.
    pub(crate) owner: Caller,
    /// Shared with its copies, as are the variables.
    pub(crate) metadata: Arc<BTreeMap<String, String>>,
    pub(crate) env: Arc<BTreeMap<String, String>>,
    /// What requests to it have to send.
    pub(crate) access_token: String,
    pub(crate) spec: sandbox::Spec,
    pub(crate) started: SystemTime,
    /// The same on the clock that is never set.
    pub(crate) begun: Instant,
    /// When its time is over.
    pub(crate) lifetime: watch::Sender<Lifetime>,
    pub(crate) sandbox: S,
    pub(crate) programs: Programs,
    pub(crate) watchers: Mutex<Watchers>,
    pub(crate) kept_output: usize,
    /// For what is kept for clients of all sandboxes.
    pub(crate) memory: MemoryBudget,
    /// It is paused when its time is over, and not ended.
    pub(crate) auto_pause: bool,
    /// A request to it while it is paused lets it continue.
    pub(crate) auto_resume: bool,
    /// How long it then lives.
    time: Duration,
    /// How long it stays paused before it is removed.
    max_paused: Duration,
    /// The policy its creator asked for.
    pub(crate) network: NetworkRequest,
    pub(crate) ports: Ports,
    pub(crate) port_places: PortPlaces,
    pub(crate) samples: Samples,
    pub(crate) sampling: tokio::sync::Mutex<()>,
    pub(crate) log: SandboxLog,
    /// Locked while the files are read, so that many requests read them once.
    users: tokio::sync::Mutex<Option<(Instant, Arc<Users>)>>,
    pausing: tokio::sync::Mutex<()>,
    /// The user of requests that name none.
    default_user: &'static str,
}

impl<S> fmt::Debug for Live<S> {
    /// Without the token and the variables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A directory whose changes a client asks for now and then.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) top: std::path::PathBuf,
    pub(crate) user: User,
    pub(crate) include_entry: bool,
    pub(crate) events: mpsc::Receiver<FileEvent>,
    /// Events that no client has got yet: one may leave while its answer is made.
    pub(crate) pending: Vec<FileEvent>,
    /// For those.
    pub(crate) permit: MemoryPermit,
}

/// Watchers by id. Each is locked while it is polled: an event goes to one poll only.
pub(crate) type Watchers = BTreeMap<String, Arc<tokio::sync::Mutex<Watcher>>>;

/// How long a sandbox lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    /// When its time is over, unless it is paused. Not a time of day: the clock may be set.
    ends: TokioInstant,
    /// When its time is over although it is paused; `None` while it is not.
    paused_until: Option<TokioInstant>,
    /// It was ended before its time.
    pub(crate) killed: bool,
    /// It ends because the server does.
    pub(crate) shutdown: bool,
}

impl Lifetime {
    fn new(time: Duration) -> Self {
        Self { ends: after(time), paused_until: None, killed: false, shutdown: false }
    }

    /// Whether it is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// The time that is left: of its life, or of its pause.
    pub(crate) fn left(&self) -> Duration {
        let ends = self.paused_until.unwrap_or(self.ends);
        ends.saturating_duration_since(TokioInstant::now())
    }

    /// When its time is over, as a time of day.
    pub(crate) fn ends_at(&self) -> SystemTime {
        let now = SystemTime::now();
        now.checked_add(self.left()).unwrap_or(now)
    }
}

/// What a client wants.
pub(crate) struct NewLive<S> {
    pub(crate) id: String,
    pub(crate) template: String,
    /// Who created it.
    pub(crate) owner: Caller,
    /// Shared with its copies, as are the variables.
    pub(crate) metadata: Arc<BTreeMap<String, String>>,
    pub(crate) env: Arc<BTreeMap<String, String>>,
    pub(crate) access_token: String,
    pub(crate) spec: sandbox::Spec,
    pub(crate) lifetime: Duration,
    pub(crate) max_paused: Duration,
    pub(crate) kept_output: usize,
    pub(crate) memory: MemoryBudget,
    pub(crate) auto_pause: bool,
    pub(crate) auto_resume: bool,
    pub(crate) network: NetworkRequest,
    pub(crate) ports: Ports,
    pub(crate) sandbox: S,
}

/// How requests reach the ports of a sandbox.
#[derive(Clone, Default)]
pub(crate) struct Ports {
    /// What they have to send; `None`: nothing.
    pub(crate) token: Option<String>,
    /// The `Host` that programs see.
    pub(crate) host_mask: Option<String>,
}

/// How long the list of users is trusted: commands may change it.
const USERS_AGE: Duration = Duration::from_secs(1);
/// Most bytes read of a file with users.
const MAX_USERS_FILE: u64 = 1 << 20;
/// The user that the protocol's clients expect.
const DEFAULT_USER: &str = "user";

impl<S: RemoteSandbox> Live<S> {
    /// Takes over a sandbox and gives it the user that clients expect, where it can have more than one.
    pub(crate) async fn new(new: NewLive<S>) -> Result<Self, ApiError> {
        let started = SystemTime::now();
        let lifetime = Lifetime::new(new.lifetime);
        let mut live = Self {
            id: new.id,
            template: new.template,
            owner: new.owner,
            metadata: new.metadata,
            env: new.env,
            access_token: new.access_token,
            spec: new.spec,
            started,
            begun: Instant::now(),
            lifetime: watch::Sender::new(lifetime),
            sandbox: new.sandbox,
            programs: Programs::default(),
            watchers: Mutex::default(),
            kept_output: new.kept_output,
            memory: new.memory,
            auto_pause: new.auto_pause,
            auto_resume: new.auto_resume,
            time: new.lifetime,
            max_paused: new.max_paused,
            network: new.network,
            ports: new.ports,
            port_places: PortPlaces::default(),
            samples: Samples::default(),
            sampling: tokio::sync::Mutex::default(),
            log: SandboxLog::default(),
            users: tokio::sync::Mutex::default(),
            pausing: tokio::sync::Mutex::default(),
            default_user: "root",
        };
        if live.has_users() {
            live.add_default_user().await?;
            live.default_user = DEFAULT_USER;
        }
        Ok(live)
    }

    /// Whether processes inside can have users other than root.
    fn has_users(&self) -> bool {
        let state = self.sandbox.protection().state(&sandbox::Layer::Users);
        state == sandbox::LayerState::Enforced
    }

    /// Adds the user that clients expect, unless the image has it.
    async fn add_default_user(&self) -> Result<(), ApiError> {
        let (name, home) = (DEFAULT_USER.to_owned(), HOME.into());
        let operation = FileOperation::AddUser { name, uid: 1000, home };
        self.sandbox.file_operation(&Identity::default(), &operation).await?;
        Ok(())
    }

    async fn read_text(&self, path: &str) -> String {
        let mut bytes = Vec::new();
        if let Ok(file) = self.unless_ended(self.sandbox.read_file(path.as_ref())).await {
            let _ = file.take(MAX_USERS_FILE).read_to_end(&mut bytes).await;
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Users and groups, read again where they may have changed.
    pub(crate) async fn users(&self) -> Arc<Users> {
        self.users_since(Instant::now().checked_sub(USERS_AGE)).await
    }

    /// Users and groups as they were after this time.
    async fn users_since(&self, oldest: Option<Instant>) -> Arc<Users> {
        let mut known = self.users.lock().await;
        if let Some((when, users)) = known.as_ref()
            && oldest.is_none_or(|oldest| *when > oldest)
        {
            return Arc::clone(users);
        }
        let when = Instant::now();
        let passwd = self.read_text("/etc/passwd").await;
        let group = self.read_text("/etc/group").await;
        // The files are the sandbox's, and may be as large as they are allowed to be.
        let parsing = tokio::task::spawn_blocking(move || Users::parse(&passwd, &group));
        let users = Arc::new(parsing.await.unwrap_or_default());
        *known = Some((when, Arc::clone(&users)));
        users
    }

    /// The user a request names, or the default one.
    pub(crate) async fn user(&self, name: Option<&str>) -> Result<User, ApiError> {
        let name = name.filter(|name| !name.is_empty()).unwrap_or(self.default_user);
        let asked = Instant::now();
        let mut users = self.users().await;
        if users.named(name).is_none() {
            // It may have been added a moment ago.
            users = self.users_since(Some(asked)).await;
        }
        match users.named(name) {
            Some(user) => Ok(user.clone()),
            None if name == "root" => Ok(User::root()),
            None => {
                let message = format!("error looking up user '{name}': unknown user {name}");
                Err(ApiError::new(Code::Unauthenticated, message))
            }
        }
    }

    /// Performs an operation on files, unless the sandbox ends first.
    pub(crate) async fn file_operation(
        &self,
        user: &Identity,
        operation: &FileOperation,
    ) -> Result<Vec<sandbox::FileInfo>, ApiError> {
        self.unless_ended(self.sandbox.file_operation(user, operation)).await
    }

    /// Opens a file, unless the sandbox ends first.
    pub(crate) async fn read_file(
        &self,
        user: &Identity,
        path: &std::path::Path,
    ) -> Result<Input, ApiError> {
        self.unless_ended(self.sandbox.read_file_as(user, path)).await
    }

    /// Stops its processes, or lets them continue. Whether that was a change. Completes also if the caller is dropped, such
    /// as a request whose client disconnects: the recorded state is always that of the processes.
    pub(crate) async fn set_paused(self: &Arc<Self>, paused: Paused) -> Result<bool, ApiError> {
        let live = Arc::clone(self);
        tokio::spawn(async move { live.change_paused(paused).await }).await?
    }

    async fn change_paused(&self, paused: Paused) -> Result<bool, ApiError> {
        let _one_at_a_time = self.pausing.lock().await;
        let wanted = paused == Paused::Yes;
        if self.is_paused() == wanted {
            return Ok(false);
        }
        self.unless_ended(self.sandbox.set_paused(paused)).await?;
        let until = wanted.then(|| after(self.max_paused));
        self.lifetime.send_modify(|lifetime| lifetime.paused_until = until);
        self.log.add(Level::Info, if wanted { "sandbox paused" } else { "sandbox resumed" }, []);
        Ok(true)
    }

    /// Lets it continue for a request, if it is paused and its creator wants that.
    pub(crate) async fn awake(self: &Arc<Self>) -> Result<(), ApiError> {
        if !self.is_paused() {
            return Ok(());
        }
        if !self.auto_resume {
            return Err(self.paused());
        }
        // Before it continues: its time may be over.
        self.extend(self.time, Extend::AtLeast);
        self.set_paused(Paused::No).await?;
        Ok(())
    }

    /// Waits for an answer of the sandbox or its end.
    pub(crate) async fn unless_ended<T>(
        &self,
        answer: impl Future<Output = Result<T, sandbox::Error>>,
    ) -> Result<T, ApiError> {
        tokio::select! {
            answer = answer => self.checked(answer),
            () = self.ended() => Err(self.gone()),
        }
    }
}

/// The longest lifetime: longer ones, such as the largest number, could not be added to the time.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

fn after(time: Duration) -> TokioInstant {
    TokioInstant::now() + time.min(LONGEST)
}

/// The home of the default user.
const HOME: &str = "/home/user";

impl<S> Live<S> {
    /// An answer of the sandbox. One that says the sandbox does not work any more ends it.
    pub(crate) fn checked<T>(&self, answer: Result<T, sandbox::Error>) -> Result<T, ApiError> {
        if answer.as_ref().is_err_and(sandbox::Error::is_gone) {
            self.lifetime.send_modify(|lifetime| lifetime.killed = true);
        }
        Ok(answer?)
    }

    /// Returns once the sandbox was killed.
    pub(crate) async fn ended(&self) {
        self.end().wait().await;
    }

    /// Its end, for those who must not keep it.
    pub(crate) fn end(&self) -> LiveEnd {
        LiveEnd(self.lifetime.subscribe())
    }

    /// Whether its processes are stopped.
    pub(crate) fn is_paused(&self) -> bool {
        self.lifetime.borrow().is_paused()
    }

    /// The error of requests to a sandbox that is paused.
    pub(crate) fn paused(&self) -> ApiError {
        ApiError::new(Code::SandboxGone, format!("the sandbox {} is paused", self.id))
    }

    /// The error of requests to a sandbox that is gone.
    pub(crate) fn gone(&self) -> ApiError {
        self.end().why().unwrap_or_else(|| {
            ApiError::new(Code::SandboxGone, format!("the sandbox {} was not found", self.id))
        })
    }

    /// Lets it live at least, or exactly, this long from now.
    pub(crate) fn extend(&self, time: Duration, how: Extend) {
        let ends = after(time);
        self.lifetime.send_if_modified(|lifetime| {
            let change = how == Extend::Exactly || ends > lifetime.ends;
            if change {
                lifetime.ends = ends;
            }
            change
        });
    }
}

/// The end of a sandbox.
#[derive(Clone, Debug)]
pub(crate) struct LiveEnd(watch::Receiver<Lifetime>);

impl LiveEnd {
    /// Returns once the sandbox was killed.
    pub(crate) async fn wait(&mut self) {
        let _ = self.0.wait_for(|lifetime| lifetime.killed).await;
    }

    /// The error for its clients, if it is the server that ends.
    pub(crate) fn why(&self) -> Option<ApiError> {
        let message = "the server is shutting down";
        self.0.borrow().shutdown.then(|| ApiError::new(Code::SandboxGone, message))
    }

    /// Whether it was killed.
    pub(crate) fn has_come(&self) -> bool {
        self.0.borrow().killed
    }
}

/// How a new lifetime relates to the present one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extend {
    Exactly,
    AtLeast,
}

impl<S> Live<S> {
    /// Waits for something that only the sandbox's end makes pointless.
    pub(crate) async fn unless_closed<T>(
        &self,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        tokio::select! {
            done = work => done,
            () = self.ended() => Err(self.gone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// The clock of tokio is the monotonic one, and stands still here but for `advance`: a time of day is not asked.
    #[tokio::test(start_paused = true)]
    async fn a_lifetime_passes_with_the_monotonic_clock() {
        let lifetime = Lifetime::new(Duration::from_secs(60));
        assert_eq!(lifetime.left(), Duration::from_secs(60));
        let shown = lifetime.ends_at().duration_since(SystemTime::now()).unwrap();
        assert!(shown > Duration::from_secs(59) && shown <= Duration::from_secs(60), "{shown:?}");
        advance(Duration::from_secs(59)).await;
        assert_eq!(lifetime.left(), Duration::from_secs(1));
        advance(Duration::from_secs(2)).await;
        assert!(lifetime.left().is_zero() && lifetime.ends_at() <= SystemTime::now());
        assert!(Lifetime::new(Duration::MAX).left() <= LONGEST);
        // A pause has a time of its own.
        let paused = Lifetime { paused_until: Some(after(Duration::from_secs(5))), ..lifetime };
        assert_eq!((paused.is_paused(), paused.left()), (true, Duration::from_secs(5)));
    }
}
