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
    time::Duration,
};

use agent::{
    Compaction, Episode, EpisodeSettings, Journal, Limits, Observation, Opening, Prompts, Tool,
    ToolFuture,
    tools::{ToolSet, Tools, Vision},
};
use attempt::Collected;
use model::{Delta, Formatted, Listener, Prices, Sampling, ToolFormat, ToolSpec};
use runtimes::AnySandbox;
use sandbox::{Network, Sandbox};
use serde::Deserialize;
use serde_json::{Map, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use trajectory::{Ended, Event, Fault, Line, Outcome, Started};

use crate::{
    failure::Failure,
    model::{ModelChoice, PythonModel},
    spec::duration,
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
    command_timeout: f64,
    builtin_tools: ToolSet,
    tools: Vec<ToolSpec>,
    compact: bool,
    images: bool,
    stream: bool,
    settings: serde_json::Value,
}

/// What the loop sends to the caller.
pub(crate) enum Item {
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
pub(crate) type Reply = Result<serde_json::Value, String>;

/// The items of an episode, or why it failed.
pub(crate) type Items = mpsc::UnboundedReceiver<Result<Item, Failure>>;

/// The requests that Python has not answered, by number.
#[derive(Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<HashMap<u64, oneshot::Sender<Reply>>>>);

impl Pending {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Reply>>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request.
    pub(crate) fn answer(&self, number: u64, reply: Reply) {
        if let Some(sender) = self.lock().remove(&number) {
            // The episode may have been cancelled.
            let _ = sender.send(reply);
        }
    }
}

/// The way to Python. Only the task of the episode has it: when that is gone, the caller sees the end of the queue.
#[derive(Clone)]
pub(crate) struct Caller {
    items: mpsc::UnboundedSender<Result<Item, Failure>>,
    pending: Pending,
    next: Arc<AtomicU64>,
}

impl Caller {
    /// The two ends of the way.
    pub(crate) fn new() -> (Self, Items, Pending) {
        let (items, receiver) = mpsc::unbounded_channel();
        let pending = Pending::default();
        let caller = Self { items, pending: pending.clone(), next: Arc::default() };
        (caller, receiver, pending)
    }

    /// Ends the queue with a failure.
    pub(crate) fn fail(&self, failure: Failure) {
        let _ = self.items.send(Err(failure));
    }

    fn send(&self, item: Item) {
        // Nobody listens once the episode is dropped, and it is about to be cancelled.
        let _ = self.items.send(Ok(item));
    }

    /// Asks Python, and waits for the reply.
    pub(crate) async fn ask(&self, kind: &'static str, request: String) -> Reply {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = oneshot::channel();
        self.pending.lock().insert(number, sender);
        self.send(Item::Ask { kind, number, request });
        let replied = reply.await.unwrap_or_else(|_| Err("the episode is gone".into()));
        self.pending.lock().remove(&number);
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

impl EventSink {
    fn send(&self, event: Event) -> io::Result<()> {
        let line = Line::new(attempt::now_ms(), event);
        self.caller.send(Item::Event(serde_json::to_string(&line)?));
        Ok(())
    }
}

impl Journal<AnySandbox> for EventSink {
    fn record(&self, event: Event) -> io::Result<()> {
        match event {
            // Sent once the files are collected, as losing them is a failure.
            Event::Ended(_) => Ok(()),
            event => self.send(event),
        }
    }
}

/// The end of an episode whose files are collected: without those that may exist there is no result.
fn end(ended: Ended, collected: &Collected) -> Ended {
    let failed = matches!(ended.outcome, Outcome::Infrastructure { .. });
    let Some(error) = collected.error.as_ref().filter(|_| !failed && collected.are_lost()) else {
        return ended;
    };
    let cause = format!("the files were not collected: {}", error.chain());
    Ended { outcome: Outcome::Infrastructure { cause, fault: Fault::Storage }, ..ended }
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
pub(crate) struct Run {
    request: EpisodeRequest,
    prompts: Prompts,
    model: Formatted<PythonModel>,
    network: Network,
    command_timeout: Duration,
    caller: Caller,
    /// Ends the episode as cancelled.
    pub(crate) cancel: CancellationToken,
}

impl Run {
    /// Checks a request.
    pub(crate) fn check(request: &str, network: Network, caller: Caller) -> Result<Self, Failure> {
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
        let command_timeout = duration("command_timeout", request.command_timeout)?;
        let model = PythonModel::open(&request.model, caller.clone())?;
        let model = Formatted::new(model, format);
        let cancel = CancellationToken::new();
        Ok(Self { request, prompts, model, network, command_timeout, caller, cancel })
    }

    fn episode_settings(&self) -> EpisodeSettings {
        let request = &self.request;
        let prices = Prices::embedded();
        let name = request.model.name();
        let tools = Tools {
            set: request.builtin_tools,
            workdir: self.prompts.working_dir.clone(),
            timeout: self.command_timeout,
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

    /// Runs the episode and collects its files.
    pub(crate) async fn run(&self, sandbox: &AnySandbox) -> Result<(), Failure> {
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
        let ended = end(ended, &collected);
        let answer = attempt::answer_of(&request.output.join("answer.txt"));
        let report = json!({ "ended": ended, "answer": answer });
        journal
            .send(Event::Ended(ended))
            .map_err(|error| Failure::infrastructure(format!("recording the end: {error}")))?;
        self.caller.send(Item::Ended(report.to_string()));
        Ok(())
    }
}
