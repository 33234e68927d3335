//! The episode of a chat completions request: started, followed, and its result as an answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use ::episodes::{
    Episode, EpisodeRequest, EpisodeResult, Episodes, FilesFrom, InputContent, InputFile, Keep,
    ServedModel, Task,
};
use agent::{Limits, tools::Vision};
use axum::http::StatusCode;
use base64::{Engine, prelude::BASE64_STANDARD};
use model::Permit;
use openai_wire::{
    ApiError, CompletionHeader,
    parameters::{Delivery, with_defaults},
};
use sandbox::{RemoteRuntime, Spec};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use trajectory::{Content, Fault, Message, Outcome, Usage};

use super::{
    Chat,
    files::{OUTPUT, new_id, no_file, plain},
    kept::Lease,
    request::{ChatRequest, FileContent, SandboxChoice},
    steps::{self, Step},
    store::{About, FileStore, Room},
};
use crate::{meter::ModelMeter, tokens::Caller};

/// Most files of an episode that become links.
const MAX_LINKS: usize = 100;
/// Most bytes of the end of a name, after its last dot.
const MAX_KIND: usize = 16;
/// Most bytes of a name before that: with a number it is still a name of a file.
const MAX_STEM: usize = 200;
/// The file with the answer, which is no link.
const ANSWER: &str = "answer.txt";

/// An episode that is being played. Dropped before its end, it is cancelled, and its sandbox is freed.
pub(super) struct Playing<R: RemoteRuntime> {
    chat: Arc<Chat<R>>,
    episodes: Arc<Episodes<R>>,
    episode: Episode,
    caller: Caller,
    lease: Option<Lease>,
    steps: mpsc::Receiver<Step>,
    /// What the model last wrote besides tool calls.
    said: String,
    pub(super) header: CompletionHeader,
    ended: bool,
    is_kept: bool,
}

/// The answer of an episode.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) content: String,
    pub(super) finish_reason: &'static str,
    pub(super) usage: Usage,
    /// What OpenAI's format has no place for.
    pub(super) extension: Value,
}

impl<R: RemoteRuntime> Playing<R> {
    /// Starts the episode of a request.
    pub(super) async fn start(
        chat: Arc<Chat<R>>,
        caller: Caller,
        request: ChatRequest,
    ) -> Result<Self, ApiError> {
        let episodes = chat.episodes()?;
        let model = served(&episodes, &request.model)?;
        if request.has_images && model.vision == Vision::TextOnly {
            return Err(ApiError::field("messages", "this model does not accept images"));
        }
        let meter = ModelMeter::new(&caller, &model.name, model.price);
        meter.allow().map_err(super::not_allowed)?;
        let registry = &chat.server.registry;
        let usual = &episodes.options().spec;
        let sandbox = caller.limits(usual.limits.clone());
        let spec = Spec { limits: sandbox.clone(), ..usual.clone() };
        let permit = registry.permit(&caller, &spec).map_err(super::refused)?;
        let lease = match &request.sandbox {
            None => None,
            Some(SandboxChoice::New) => Some(chat.kept.begin(&caller.name, new_id()?)?),
            Some(SandboxChoice::Kept(id)) => Some(chat.kept.resume(&caller.name, id)?),
        };
        let previous = lease.as_ref().and_then(|lease| lease.episode.clone());
        let is_stream = matches!(request.delivery, Delivery::Stream(_));
        let limits = &episodes.options().limits;
        let (files, owner) = (Arc::clone(chat.files()), caller.clone());
        // Images are decoded, which takes time.
        let reading = tokio::task::spawn_blocking(move || {
            let input = input(&files, &owner, &request);
            (input, request)
        });
        let (input, request) = reading.await.map_err(|_| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the files could not be read")
        })?;
        let episode = EpisodeRequest {
            input: input?,
            task: Task::Messages(request.messages),
            model: Some(model.name.clone()),
            limits: request.max_tokens.map(|most| Limits {
                tokens_per_call: most.min(limits.tokens_per_call),
                ..limits.clone()
            }),
            sampling: Some(with_defaults(request.sampling, &model.sampling)),
            system_prompt: None,
            files: previous.map_or(FilesFrom::Image, FilesFrom::EndOf),
            keep: if lease.is_some() { Keep::End } else { Keep::ForResume },
            metadata: request.metadata,
            owner: caller.name.to_string(),
            sandbox: Some(sandbox),
            permit: Permit::new(permit),
            meter: Some(Arc::new(meter)),
        };
        let episode = match episodes.start(episode).await {
            Ok(episode) => episode,
            Err(error) => {
                use ::episodes::Error;
                let is_gone = matches!(error, Error::NotFound(_) | Error::State { .. });
                let Some(lease) = lease.filter(|_| is_gone) else { return Err(not_started(error)) };
                let message = format!("the kept sandbox {:?} is gone", lease.id());
                lease.forget();
                let gone = ApiError::new(StatusCode::NOT_FOUND, message).param("sandbox");
                return Err(gone.code("sandbox_not_found"));
            }
        };
        // From here on, dropping this ends the episode.
        let mut playing = Self {
            chat,
            episodes,
            episode,
            caller,
            lease,
            steps: mpsc::channel(1).1,
            said: String::new(),
            header: CompletionHeader::new(&model.name),
            ended: false,
            is_kept: false,
        };
        // Before the model begins, and only for those who read them.
        let deltas = if is_stream { playing.episode.deltas() } else { None };
        let events = playing.episode.events_from(0).await.map_err(not_started)?;
        playing.steps = steps::follow(events, deltas);
        Ok(playing)
    }

    /// The episode's id.
    pub(super) fn id(&self) -> &str {
        self.episode.id()
    }

    /// The id of the kept sandbox.
    pub(super) fn sandbox(&self) -> Option<&str> {
        self.lease.as_ref().map(Lease::id)
    }

    /// Whether its sandbox is kept, once it has ended.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// What the model did next, as text; `None` when the episode has ended.
    pub(super) async fn next(&mut self) -> Option<String> {
        let step = self.steps.recv().await?;
        if let Some(said) = step.said {
            self.said = said;
        }
        Some(step.shown)
    }

    /// Waits for the end, and answers.
    pub(super) async fn answer(&mut self) -> Result<Answered, ApiError> {
        while self.next().await.is_some() {}
        let info = self.episode.wait().await.map_err(not_started)?;
        self.ended = true;
        let Some(result) = info.result else {
            let message = "the server is shutting down; the episode can be resumed later";
            return Err(self.unanswered(StatusCode::SERVICE_UNAVAILABLE, message));
        };
        let finish_reason = match &result.outcome {
            Outcome::Submitted | Outcome::NoToolCalls => "stop",
            Outcome::MaxTurns
            | Outcome::MaxTokens
            | Outcome::ContextFull
            | Outcome::Deadline
            | Outcome::Cost => "length",
            Outcome::Cancelled => {
                let message = "the episode was cancelled";
                return Err(self.unanswered(StatusCode::CONFLICT, message));
            }
            Outcome::Infrastructure { cause, fault } => {
                let (status, code) = failure(*fault);
                return Err(self.unanswered(status, cause).code(code));
            }
        };
        let sandbox = self.keep(&result);
        let files = self.links(&result).await?;
        let answer = result.answer.clone().filter(|answer| !answer.trim().is_empty());
        let content = content(answer.as_deref().unwrap_or(&self.said), &files);
        let extension = json!({
            "id": self.id(),
            "outcome": result.outcome.name(),
            "turns": result.spent.turns,
            "answer": answer,
            "files": files,
            "files_error": result.files_error,
            "sandbox": sandbox,
        });
        Ok(Answered { content, finish_reason, usage: result.spent.usage, extension })
    }

    /// The error of an episode without an answer. Its files are not kept.
    fn unanswered(&mut self, status: StatusCode, message: &str) -> ApiError {
        if self.lease.take().is_some() {
            self.forget_end(self.episode.id().to_owned());
        }
        ApiError::new(status, format!("{message} (episode {})", self.episode.id()))
    }

    /// Forgets the files an episode ended with, even if the client does not wait for it.
    fn forget_end(&self, id: String) {
        let episodes = Arc::clone(&self.episodes);
        tokio::spawn(async move { episodes.forget_end(&id).await });
    }

    /// Keeps the sandbox of a conversation.
    fn keep(&mut self, result: &EpisodeResult) -> Value {
        let Some(lease) = self.lease.take() else { return Value::Null };
        if !result.kept {
            // Older files under the same name would be taken for those of this episode.
            if let Some(previous) = lease.forget() {
                self.forget_end(previous);
            }
            return Value::Null;
        }
        self.is_kept = true;
        let kept = json!({
            "id": lease.id(),
            "expires_at": openai_wire::now() + self.chat.kept.lifetime().as_secs(),
        });
        let previous = lease.finish(self.episode.id());
        if let Some(previous) = previous {
            self.forget_end(previous);
        }
        kept
    }

    /// The files of the episode, stored so that the caller can read them.
    async fn links(&self, result: &EpisodeResult) -> Result<Vec<Value>, ApiError> {
        let made = result.files.iter().filter(|file| file.path != ANSWER).take(MAX_LINKS);
        let made: Vec<String> = made.map(|file| file.path.clone()).collect();
        if made.is_empty() {
            return Ok(Vec::new());
        }
        let (episodes, id) = (Arc::clone(&self.episodes), self.id().to_owned());
        let (files, room) = (Arc::clone(self.chat.files()), self.chat.room(&self.caller));
        let storing = tokio::task::spawn_blocking(move || {
            made.iter().map(|path| link(&episodes, &id, path, &files, &room)).collect()
        });
        storing.await.map_err(|_| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the files could not be stored")
        })
    }
}

impl<R: RemoteRuntime> Drop for Playing<R> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // An error means that it has just ended.
        let _ = self.episode.cancel();
        if self.lease.take().is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (episodes, episode) = (Arc::clone(&self.episodes), self.episode.clone());
            runtime.spawn(async move {
                let _ = episode.wait().await;
                episodes.forget_end(episode.id()).await;
            });
        }
    }
}

/// The model of this name.
fn served<R: RemoteRuntime>(episodes: &Episodes<R>, name: &str) -> Result<ServedModel, ApiError> {
    let mut models = episodes.options().models.iter();
    let found = match name {
        "" => models.next(),
        name => models.find(|model| model.name == name),
    };
    found.cloned().ok_or_else(|| super::unknown(name))
}

/// The files of a request, for the sandbox's input directory.
fn input(
    store: &FileStore,
    caller: &Caller,
    request: &ChatRequest,
) -> Result<Vec<InputFile>, ApiError> {
    let mut names = Names::default();
    let mut files = Vec::new();
    for part in &request.files {
        let (name, content) = match &part.content {
            FileContent::Bytes(bytes) => (None, InputContent::Bytes(bytes.clone())),
            FileContent::Stored(id) => {
                let file = store.find(&caller.name, id);
                let file =
                    file.ok_or_else(|| no_file(id).param(&format!("{}.file_id", part.path)))?;
                let path = store.path(&file);
                (Some(file.name), InputContent::Stored(path))
            }
        };
        let name = part.name.clone().or(name).unwrap_or_default();
        files.push(InputFile { path: names.unique(&plain(&name)), content });
    }
    let images = request.messages.iter().flat_map(|message| match message {
        Message::User { content } => content.as_slice(),
        _ => &[],
    });
    for part in images {
        let Content::Image { media_type, data } = part else { continue };
        let kind = media_type.trim_start_matches("image/");
        let kind = kind.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let bytes = BASE64_STANDARD
            .decode(data)
            .map_err(|_| ApiError::field("messages", "an image is not base64"))?;
        let path = names.unique(&format!("image.{kind}"));
        files.push(InputFile { path, content: InputContent::Bytes(bytes) });
    }
    Ok(files)
}

/// Names of files that differ.
#[derive(Debug, Default)]
struct Names {
    used: BTreeSet<String>,
    /// The last number that was added to a name.
    last: BTreeMap<String, usize>,
}

impl Names {
    /// A name that no other file has.
    fn unique(&mut self, name: &str) -> PathBuf {
        let (stem, kind) = match name.rsplit_once('.') {
            Some((stem, kind)) if !stem.is_empty() && kind.len() <= MAX_KIND => {
                (stem, format!(".{kind}"))
            }
            _ => (name, String::new()),
        };
        let stem = &stem[..stem.floor_char_boundary(MAX_STEM)];
        let mut free = format!("{stem}{kind}");
        let last = self.last.entry(free.clone()).or_insert(1);
        while self.used.contains(&free) {
            *last += 1;
            free = format!("{stem}-{last}{kind}");
        }
        self.used.insert(free.clone());
        free.into()
    }
}

/// Stores a file of an episode; what cannot be stored is named with the reason.
fn link<R: RemoteRuntime>(
    episodes: &Episodes<R>,
    episode: &str,
    path: &str,
    files: &Arc<FileStore>,
    room: &Room,
) -> Value {
    let about = About { name: plain(path), purpose: OUTPUT.to_owned(), lifetime: None };
    let stored = episodes.file(episode, path).map_err(|error| error.chain());
    let stored = stored.and_then(|mut file| {
        let id = new_id().map_err(|error| error.message().to_owned())?;
        files.import(&id, &mut file, room.clone(), about).map_err(|error| error.to_string())
    });
    match stored {
        Ok(file) => json!({
            "path": path,
            "id": file.id,
            "filename": file.name,
            "bytes": file.bytes,
            "url": format!("/v1/files/{}/content", file.id),
        }),
        Err(error) => json!({ "path": path, "error": error }),
    }
}

/// The answer with links to the files, as Markdown.
fn content(answer: &str, files: &[Value]) -> String {
    let mut content = answer.trim_end().to_owned();
    for file in files {
        let (Some(path), Some(url)) = (file["path"].as_str(), file["url"].as_str()) else {
            continue;
        };
        if !content.is_empty() {
            content.push_str(if content.ends_with(')') && content.contains("](/v1/files/") {
                "\n"
            } else {
                "\n\n"
            });
        }
        content.push_str(&format!("[{}]({url})", label(path)));
    }
    content
}

/// A path as the text of a link.
fn label(path: &str) -> String {
    let mut label = String::new();
    for c in path.chars().filter(|c| !c.is_control()) {
        if matches!(c, '[' | ']' | '\\' | '`' | '<' | '>' | '*' | '_') {
            label.push('\\');
        }
        label.push(c);
    }
    label
}

/// The status and code of a failure that says nothing about the model's work.
fn failure(fault: Fault) -> (StatusCode, &'static str) {
    match fault {
        Fault::ModelServer => (StatusCode::BAD_GATEWAY, "model_unavailable"),
        Fault::ModelRequest => (StatusCode::BAD_GATEWAY, "model_refused"),
        Fault::Sandbox | Fault::Problem => (StatusCode::SERVICE_UNAVAILABLE, "sandbox_failed"),
        Fault::Storage | Fault::Grader | Fault::Unknown => {
            (StatusCode::INTERNAL_SERVER_ERROR, "server_failed")
        }
    }
}

/// The error of an episode that was not started.
fn not_started(error: ::episodes::Error) -> ApiError {
    use ::episodes::Error;
    let status = match &error {
        Error::Invalid(_) => StatusCode::BAD_REQUEST,
        Error::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
        Error::Closing => StatusCode::SERVICE_UNAVAILABLE,
        Error::Storage { .. } if error.is_full() => StatusCode::INSUFFICIENT_STORAGE,
        _ => {
            tracing::error!("starting an episode: {}", error.chain());
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    ApiError::new(status, error.chain())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_name_do_not_replace_each_other() {
        let mut names = Names::default();
        let made: Vec<PathBuf> = ["a.txt", "a.txt", "a-2.txt", "b", "b", ".x", ".x"]
            .map(|name| names.unique(name))
            .to_vec();
        let expected =
            ["a.txt", "a-2.txt", "a-2-2.txt", "b", "b-2", ".x", ".x-2"].map(PathBuf::from);
        assert_eq!(made, expected);
    }

    #[test]
    fn names_stay_short_however_many_there_are() {
        let mut names = Names::default();
        let long = format!("{}.{}", "\u{e4}".repeat(300), "y".repeat(100));
        let made: BTreeSet<PathBuf> = (0..2000).map(|_| names.unique(&long)).collect();
        assert_eq!(made.len(), 2000);
        assert!(made.iter().all(|name| name.as_os_str().len() <= 255));
    }

    #[test]
    fn links_follow_the_answer() {
        let file = |path: &str| json!({ "path": path, "url": "/v1/files/file-1/content" });
        assert_eq!(content("42\n", &[]), "42");
        let two = content("42", &[file("a.png"), file("b](x) c")]);
        let links = "[a.png](/v1/files/file-1/content)\n[b\\](x) c](/v1/files/file-1/content)";
        assert_eq!(two, format!("42\n\n{links}"));
        assert_eq!(content("", &[file("a")]), "[a](/v1/files/file-1/content)");
        assert_eq!(content("x", &[json!({ "path": "a", "error": "full" })]), "x");
    }
}
