//! One episode: the agent loop, whose model and tools may be Python functions.
//!
//! The loop runs on a thread of its own and calls no Python. What it needs of Python it puts into a queue, which the
//! caller reads: events, requests to the model, tool calls, the end. The caller answers by number.

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use agent::{
    Compaction, Episode, EpisodeSettings, Journal, Limits, Observation, Opening, Prompts, Tool,
    ToolFuture,
    tools::{ToolSet, Tools, Vision},
};
use model::{Delta, Formatted, Listener, Prices, Sampling, ToolFormat, ToolSpec};
use pyo3::prelude::*;
use runtimes::AnySandbox;
use sandbox::{Network, Sandbox};
use serde::Deserialize;
use serde_json::{Map, json};
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};
use tokio_util::sync::CancellationToken;
use trajectory::{Event, Line, Started};

use crate::{
    engine::Process,
    failure::Failure,
    model::{ModelChoice, PythonModel},
    operation::Operation,
    sandbox_handle::{SandboxHandle, Shared},
    value::Value,
};

/// An episode as Python describes it, in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EpisodeRequest {
    task: String,
    model: ModelChoice,
    /// The name of a built-in set of prompts.
    prompt: Option<String>,
    /// A prompt config, in place of a built-in set.
    prompt_config: Option<String>,
    /// A file or directory of this machine for the input directory.
    input: Option<PathBuf>,
    /// Where the output directory is copied to on this machine; must not exist.
    output: PathBuf,
    limits: Limits,
    sampling: Sampling,
    tool_format: Option<String>,
    /// Seconds.
    command_timeout: Option<f64>,
    builtin_tools: ToolSet,
    tools: Vec<ToolSpec>,
    compact: bool,
    images: bool,
    stream: bool,
    settings: serde_json::Value,
}

/// What the loop tells the caller.
enum Item {
    /// A line of the events file.
    Event(String),
    /// A piece of a response.
    Delta(String),
    /// A request to a Python function that is to be answered.
    Ask { kind: &'static str, number: u64, request: String },
    /// The end.
    Ended(String),
}

/// A reply to a request: JSON, or why there is none.
type Reply = Result<serde_json::Value, String>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The way to Python.
#[derive(Clone)]
pub(crate) struct Caller {
    items: mpsc::UnboundedSender<Result<Item, Failure>>,
    pending: Arc<Mutex<HashMap<u64, oneshot::Sender<Reply>>>>,
    next: Arc<AtomicU64>,
}

impl Caller {
    fn send(&self, item: Item) {
        // Nobody listens once the episode is dropped, and it is about to be cancelled.
        let _ = self.items.send(Ok(item));
    }

    /// Asks Python, and waits for the reply.
    pub(crate) async fn ask(&self, kind: &'static str, request: String) -> Reply {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = oneshot::channel();
        lock(&self.pending).insert(number, sender);
        self.send(Item::Ask { kind, number, request });
        let replied = reply.await.unwrap_or_else(|_| Err("the episode is gone".into()));
        lock(&self.pending).remove(&number);
        replied
    }
}

/// Sends every event to the caller.
struct EventSink {
    caller: Caller,
    stream: bool,
}

impl Listener for EventSink {
    fn on_delta(&self, delta: Delta<'_>) {
        let (kind, text) = match delta {
            _ if !self.stream => return,
            Delta::Reasoning(text) => ("reasoning", text),
            Delta::Text(text) => ("text", text),
            Delta::Call(name) => ("call", name),
            Delta::Arguments(text) => ("arguments", text),
            Delta::Retry { why, .. } => ("retry", why),
        };
        self.caller.send(Item::Delta(json!({ "kind": kind, "text": text }).to_string()));
    }
}

impl Journal<AnySandbox> for EventSink {
    fn record(&self, event: Event) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = Line::new(u64::try_from(now.as_millis()).unwrap_or_default(), event);
        self.caller.send(Item::Event(serde_json::to_string(&line)?));
        Ok(())
    }
}

/// A Python function as a tool.
struct PythonTool {
    spec: ToolSpec,
    caller: Caller,
}

impl Tool<AnySandbox> for PythonTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call<'a>(
        &'a self,
        arguments: &'a Map<String, serde_json::Value>,
        _: &'a AnySandbox,
    ) -> ToolFuture<'a> {
        Box::pin(async move {
            let request = json!({ "name": self.spec.name, "arguments": arguments });
            let observation = match self.caller.ask("tool", request.to_string()).await {
                Ok(serde_json::Value::String(text)) => Observation::text(text),
                Ok(other) => Observation::text(other.to_string()),
                Err(why) => Observation::error(why),
            };
            Ok(observation.into())
        })
    }
}

/// A checked request.
struct Play {
    request: EpisodeRequest,
    prompts: Prompts,
    model: Formatted<PythonModel>,
    network: Network,
    caller: Caller,
    cancel: CancellationToken,
}

impl Play {
    fn check(request: &str, network: Network, caller: Caller) -> Result<Self, Failure> {
        let request: EpisodeRequest = serde_json::from_str(request)
            .map_err(|error| Failure::usage(format!("the settings of the agent: {error}")))?;
        let prompts = match (&request.prompt_config, &request.prompt) {
            (Some(text), _) => Prompts::parse(text).map_err(|error| {
                Failure::usage(format!("prompt config: {}", error_text::chain(&error)))
            })?,
            (None, Some(name)) => Prompts::builtin(name).ok_or_else(|| {
                let known = agent::prompt::BUILTIN.join(", ");
                Failure::usage(format!("there is no set of prompts `{name}`; there are {known}"))
            })?,
            (None, None) => Prompts::default(),
        };
        let format = match &request.tool_format {
            Some(name) => name
                .parse()
                .map_err(|error: model::UnknownFormat| Failure::usage(error.to_string()))?,
            None => ToolFormat::suggested(request.model.name()),
        };
        let model = PythonModel::open(&request.model, caller.clone())?;
        let model = Formatted::new(model, format);
        let cancel = CancellationToken::new();
        Ok(Self { request, prompts, model, network, caller, cancel })
    }

    fn episode_settings(&self) -> EpisodeSettings {
        let request = &self.request;
        let prices = Prices::embedded();
        let name = request.model.name();
        let timeout = request.command_timeout.unwrap_or(120.0);
        let tools = Tools {
            set: request.builtin_tools,
            workdir: self.prompts.working_dir.clone(),
            timeout: Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(120)),
            vision: if request.images { Vision::Images } else { Vision::TextOnly },
            ..Tools::default()
        };
        let window = prices.context(name).unwrap_or(u64::MAX).min(request.limits.tokens);
        EpisodeSettings {
            limits: request.limits.clone(),
            tools,
            sampling: request.sampling.clone(),
            price: prices.price(name),
            compaction: request
                .compact
                .then(|| Compaction { window: Some(window), ..Compaction::default() }),
            output_dir: Some(self.prompts.output_dir.clone()),
            answer_file: None,
            ..EpisodeSettings::default()
        }
    }

    /// Plays the episode and collects its files.
    async fn run(&self, sandbox: &AnySandbox) -> Result<(), Failure> {
        let (request, prompts) = (&self.request, &self.prompts);
        attempt::create_directories(sandbox, prompts).await?;
        let mut inputs = agent::prompt::Inputs::default();
        if let Some(input) = &request.input {
            inputs = attempt::input_listing(input);
            attempt::copy_input(sandbox, prompts, input).await?;
        }
        let rendered = prompts
            .render_with(&request.task, &self.network, &inputs)
            .map_err(|error| Failure::usage(error_text::chain(&error)))?;
        let started = Started {
            problem_statement: request.task.clone(),
            messages: rendered.messages(),
            model: request.model.name().to_owned(),
            settings: request.settings.clone(),
            protection: serde_json::to_value(sandbox.protection()).unwrap_or_default(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let opening = Opening::Fresh(Box::new(started));
        let journal = EventSink { caller: self.caller.clone(), stream: request.stream };
        let tools: Vec<PythonTool> = request
            .tools
            .iter()
            .map(|spec| PythonTool { spec: spec.clone(), caller: self.caller.clone() })
            .collect();
        let tools: Vec<&dyn Tool<AnySandbox>> =
            tools.iter().map(|tool| tool as &dyn Tool<AnySandbox>).collect();
        let settings = self.episode_settings();
        let episode =
            Episode::new(&self.model, sandbox, &journal, &settings, opening, self.cancel.clone());
        let ended = agent::run(episode.with_tools(&tools)).await;
        let collected =
            attempt::collect_directory(sandbox, &prompts.output_dir, &request.output).await;
        let lost = collected.are_lost();
        let report = json!({
            "ended": ended,
            "answer": attempt::answer_of(&request.output.join("answer.txt")),
            "files_error": collected.error.filter(|_| lost).map(|error| error.chain()),
        });
        self.caller.send(Item::Ended(report.to_string()));
        Ok(())
    }
}

/// A running episode.
#[pyclass(frozen, module = "llm_in_sandbox._native")]
pub(crate) struct EpisodeHandle {
    process: Arc<Process>,
    items: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Result<Item, Failure>>>>,
    caller: Caller,
    cancel: CancellationToken,
    task: AbortHandle,
    /// Cancelled when the task is gone.
    gone: CancellationToken,
}

impl EpisodeHandle {
    fn start(shared: &Arc<Shared>, request: &str) -> Result<Self, Failure> {
        let process = Arc::clone(shared.process());
        process.check()?;
        let (sender, items) = mpsc::unbounded_channel();
        let caller =
            Caller { items: sender.clone(), pending: Arc::default(), next: Arc::default() };
        let play = Play::check(request, shared.network().clone(), caller.clone())?;
        let cancel = play.cancel.clone();
        let shared = Arc::clone(shared);
        let gone = CancellationToken::new();
        let ends = gone.clone().drop_guard();
        let task = process.handle().spawn(async move {
            let _ends = ends;
            let played =
                shared.using(move |sandbox| Box::pin(async move { play.run(sandbox).await })).await;
            if let Err(failure) = played {
                let _ = sender.send(Err(failure));
            }
        });
        let items = Arc::new(tokio::sync::Mutex::new(items));
        Ok(Self { process, items, caller, cancel, task: task.abort_handle(), gone })
    }
}

impl Drop for EpisodeHandle {
    fn drop(&mut self) {
        if self.process.is_own() {
            self.cancel.cancel();
        }
    }
}

#[pymethods]
impl EpisodeHandle {
    #[new]
    fn new(py: Python<'_>, sandbox: PyRef<'_, SandboxHandle>, request: &str) -> PyResult<Self> {
        Self::start(sandbox.shared(), request).map_err(|failure| failure.into_exception(py))
    }

    /// Waits for the next item: its kind, the number of a request, and JSON.
    fn next(&self) -> Operation {
        let items = Arc::clone(&self.items);
        let next = async move {
            let item = items.lock().await.recv().await;
            let gone = || Failure::infrastructure("the episode has ended without a result");
            Ok(match item.ok_or_else(gone)?? {
                Item::Event(line) => Value::Item("event", 0, line),
                Item::Delta(text) => Value::Item("delta", 0, text),
                Item::Ask { kind, number, request } => Value::Item(kind, number, request),
                Item::Ended(report) => Value::Item("ended", 0, report),
            })
        };
        Operation::new(&self.process, next)
    }

    /// Answers a request: with JSON, or with an error.
    fn reply(&self, number: u64, reply: Option<&str>, error: Option<String>) {
        let reply = match (reply.map(serde_json::from_str), error) {
            (Some(Ok(value)), None) => Ok(value),
            (Some(Err(error)), None) => Err(error.to_string()),
            (_, error) => Err(error.unwrap_or_default()),
        };
        if let Some(pending) = lock(&self.caller.pending).remove(&number) {
            // The episode may have been cancelled.
            let _ = pending.send(reply);
        }
    }

    /// Ends the episode as cancelled. Its files are collected, and its end is the last item.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Ends the episode, and waits until it uses nothing of its caller any more. Does nothing after its end.
    fn stop(&self) -> Operation {
        if !self.process.is_own() || self.process.closing().is_cancelled() {
            return Operation::nothing(&self.process);
        }
        self.cancel.cancel();
        self.task.abort();
        let gone = self.gone.clone();
        Operation::new(&self.process, async move {
            gone.cancelled().await;
            Ok(Value::None)
        })
    }
}
