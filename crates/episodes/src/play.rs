//! Plays one episode: its sandbox, the loop, what it leaves, its result.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use agent::{EpisodeSettings, Opening, RestoredFiles, tools::SUBMIT};
use attempt::Collected;
use futures_util::FutureExt;
use model::Permit;
use sandbox::{ImageRef, Process, RemoteRuntime, Sandbox, Spec, Streams};
use serde_json::json;
use trajectory::{Content, Ended, Event, Fault, Line, Message, Outcome, Spent, Started};

use crate::{
    EpisodeOptions, EpisodeResult, Error, Keep, Meter, Record, ServedModel, State, Task, earlier,
    files,
    images::{Hold, Images},
    journal::EpisodeJournal,
    live::{Entry, Live, Standing},
    metered::Metered,
};

/// The file with the answer, in the output directory.
const ANSWER: &str = "answer.txt";

/// How long the files of a cancelled episode are collected: enough for a few.
const LAST_FILES: Duration = Duration::from_millis(500);
/// How long creating and filling a sandbox may take. Images may have to be unpacked first.
const PREPARATION: Duration = Duration::from_secs(600);

/// How long a sandbox that is being prepared is waited for when its episode is cancelled.
const MAKING: Duration = Duration::from_secs(5);

/// One episode that is to be played.
pub(crate) struct Play<R: RemoteRuntime> {
    pub(crate) runtime: Arc<R>,
    pub(crate) options: Arc<EpisodeOptions>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) live: Arc<Live>,
    pub(crate) record: Record,
    pub(crate) model: ServedModel,
    /// The events so far.
    pub(crate) lines: Vec<Line>,
    pub(crate) meter: Option<Arc<dyn Meter>>,
    pub(crate) images: Arc<Images<R>>,
    /// The image its sandbox is based on, where another episode owns it.
    pub(crate) _base: Option<Hold<R>>,
    /// The limits of its sandbox, where they are not the operator's.
    pub(crate) sandbox: Option<sandbox::Limits>,
}

/// A sandbox and what the episode does in it.
struct Prepared<R: RemoteRuntime> {
    sandbox: R::Sandbox,
    /// The saved files it is based on.
    base: Option<Hold<R>>,
    then: Then,
}

enum Then {
    Play(Opening),
    /// The episode has ended; only its results are missing.
    Collect(Ended),
}

impl<R: RemoteRuntime> Play<R> {
    /// Plays the episode and stores its result. A panic is a failure of the infrastructure.
    pub(crate) async fn run(self, permit: Permit) {
        let (entry, options) = (Arc::clone(&self.entry), Arc::clone(&self.options));
        let id = self.record.id.clone();
        let result = match AssertUnwindSafe(self.play()).catch_unwind().await {
            Ok(result) => result,
            Err(_) => Some(failed(Fault::Unknown, "the server failed".into())),
        };
        drop(permit);
        let Some(result) = result else {
            // Who waits for the end may open the directory again.
            drop(options);
            entry.end(Standing::INTERRUPTED);
            return;
        };
        let written = options.store.write_result(&id, &result);
        drop(options);
        if let Err(error) = written {
            // What happened is in the events; after a restart the episode can be resumed, to store its result.
            tracing::error!(id, "storing the result of an episode: {}", error.chain());
            let cause = format!("the result could not be stored: {}", error.chain());
            let unstored = EpisodeResult { spent: result.spent, ..failed(Fault::Storage, cause) };
            entry.end_unstored(unstored);
            return;
        }
        entry.end(Standing::of(&result));
    }

    /// Plays the episode; no result where it was parked.
    async fn play(self) -> Option<EpisodeResult> {
        let journal = match self.journal() {
            Ok(journal) => journal,
            Err(error) => return Some(failed(Fault::Storage, error.chain())),
        };
        let Prepared { sandbox, base, then } = match self.prepared().await {
            Ok(prepared) => prepared,
            Err(outcome) => return self.not_started(&journal, outcome),
        };
        let ended = match then {
            Then::Collect(ended) => ended,
            Then::Play(opening) => self.episode(&journal, &sandbox, opening).await,
        };
        let parked = ended.outcome == Outcome::Cancelled && self.live.parks();
        let result = match parked {
            true => None,
            false => Some(self.collect(&journal, &sandbox, ended).await),
        };
        if let Err(error) = sandbox.destroy().await {
            tracing::error!("removing the sandbox of an episode: {}", error.chain());
        }
        drop(base);
        let is_finished = result.as_ref().is_some_and(|result| result.state() == State::Finished);
        if is_finished && self.record.keep != Keep::EveryTurn {
            journal.remove_spare(None).await;
        }
        result
    }

    /// The sandbox, unless the episode is cancelled meanwhile.
    async fn prepared(&self) -> Result<Prepared<R>, Outcome> {
        let mut preparing = std::pin::pin!(tokio::time::timeout(PREPARATION, self.prepare()));
        let prepared = tokio::select! {
            biased;
            () = self.live.cancel.cancelled() => {
                // Dropped, a sandbox that is just being made would be gone only some time after this episode.
                let made = tokio::time::timeout(MAKING, preparing).await;
                if let Ok(Ok(Ok(made))) = made
                    && let Err(error) = made.sandbox.destroy().await
                {
                    tracing::error!("removing the sandbox of an episode: {}", error.chain());
                }
                return Err(Outcome::Cancelled);
            }
            prepared = &mut preparing => prepared,
        };
        match prepared {
            Ok(Ok(prepared)) => Ok(prepared),
            Ok(Err(error)) => Err(Outcome::infrastructure(Fault::Sandbox, &error)),
            Err(_) => Err(Outcome::Infrastructure {
                cause: "preparing the sandbox took too long".into(),
                fault: Fault::Sandbox,
            }),
        }
    }

    fn journal(&self) -> Result<EpisodeJournal<R>, Error> {
        let file = self.options.store.append_events(&self.record.id)?;
        let own = earlier::image_after(&self.record.id, 0);
        let own = own.trim_end_matches('0');
        let saved = self.lines.iter().filter_map(|line| match &line.event {
            Event::Saved { image, .. } if image.starts_with(own) => Some(image.clone()),
            _ => None,
        });
        let spare = match self.record.keep {
            Keep::EveryTurn => Vec::new(),
            Keep::ForResume | Keep::End => saved.collect(),
        };
        let (live, images) = (Arc::clone(&self.live), Arc::clone(&self.images));
        let about = (self.record.id.as_str(), self.record.keep);
        EpisodeJournal::new(file, live, images, about, self.meter.clone(), spare)
            .map_err(Error::storage("cannot write the events"))
    }

    /// The result of an episode whose sandbox was never ready; none where it was parked.
    fn not_started(&self, journal: &EpisodeJournal<R>, outcome: Outcome) -> Option<EpisodeResult> {
        if outcome == Outcome::Cancelled && self.live.parks() {
            return None;
        }
        let (_, turns) = trajectory::history(&self.lines);
        let spent = Spent { turns, ..agent::recorded_usage(&self.lines) };
        let ended = Ended { outcome, spent };
        // The result says the same.
        let _ = journal.append(Event::Ended(ended.clone()));
        Some(EpisodeResult::new(ended, attempt::now_ms()))
    }

    /// Creates the sandbox with the files the episode starts from.
    async fn prepare(&self) -> Result<Prepared<R>, sandbox::Error> {
        if !earlier::is_started(&self.lines) {
            let sandbox = self.create().await?;
            let then = Then::Play(Opening::Fresh(Box::new(self.started(&sandbox)?)));
            return Ok(Prepared { sandbox, base: None, then });
        }
        let (_, turns) = trajectory::history(&self.lines);
        let ended = earlier::ended(&self.lines);
        let calls = agent::recorded_calls(&self.lines, u32::MAX);
        let saved = earlier::last_saved(&self.lines, turns).filter(|(saved, _)| {
            // The results of an episode that ended need its last files.
            let mut later = calls.iter().filter(|(turn, _)| turn > saved);
            ended.is_none() || later.all(|(_, call)| call.name == SUBMIT)
        });
        if let Some((turn, image)) = saved {
            let base = self.images.hold(&image).await;
            match self.runtime.create(&self.spec(ImageRef::Name(image))).await {
                Ok(sandbox) => {
                    let then = self.then(ended, turn, RestoredFiles::Saved);
                    return Ok(Prepared { sandbox, base, then });
                }
                Err(sandbox::Error::UnknownImage { .. }) => {
                    tracing::warn!(
                        "the saved files of an episode are missing; its commands are run again"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        let sandbox = self.create().await?;
        let last = if ended.is_some() { u32::MAX } else { turns };
        let calls = agent::recorded_calls(&self.lines, last);
        let tools = self.settings().tools;
        let mut files = RestoredFiles::Saved;
        for (number, (_, call)) in (1..).zip(calls) {
            tools.call(call, number, &sandbox).await?;
            files = RestoredFiles::Repeated;
        }
        let then = self.then(ended, turns, files);
        Ok(Prepared { sandbox, base: None, then })
    }

    fn then(&self, ended: Option<&Ended>, turn: u32, files: RestoredFiles) -> Then {
        match ended {
            Some(ended) => Then::Collect(ended.clone()),
            None => Then::Play(Opening::after(&self.lines, turn, files)),
        }
    }

    fn spec(&self, image: ImageRef) -> Spec {
        let workdir = self.options.prompts.working_dir.clone();
        let usual = self.options.spec.clone();
        let limits = self.sandbox.clone().unwrap_or_else(|| usual.limits.clone());
        Spec { image, workdir, limits, ..usual }
    }

    /// Creates a sandbox with the input files.
    async fn create(&self) -> Result<R::Sandbox, sandbox::Error> {
        let image = match &self.record.image {
            Some(image) => ImageRef::Name(image.clone()),
            None => self.options.spec.image.clone(),
        };
        let sandbox = self.runtime.create(&self.spec(image)).await?;
        let prompts = &self.options.prompts;
        attempt::create_directories(&sandbox, prompts).await?;
        if self.record.image.is_some() {
            // The answer of the episode before is not the answer of this one.
            let answer = prompts.output_dir.join(ANSWER).to_string_lossy().into_owned();
            let remove = Process::new(["rm", "-rf", "--", &answer]);
            sandbox.process(&remove, Streams::discard()).await?;
        }
        if let Some(input) = self.options.store.input_dir(&self.record.id) {
            attempt::copy_input(&sandbox, prompts, &input).await?;
        }
        Ok(sandbox)
    }

    fn settings(&self) -> EpisodeSettings {
        self.options.settings(&self.model, &self.record.limits)
    }

    /// The first event of a new episode.
    fn started(&self, sandbox: &R::Sandbox) -> Result<Started, sandbox::Error> {
        let input = self.options.store.input_dir(&self.record.id);
        let inputs = input.as_deref().map(attempt::input_listing).unwrap_or_default();
        let text = self.record.task.text();
        let prompts = &self.options.prompts;
        let rendered = prompts.render_with(&text, &self.options.spec.network, &inputs);
        let rendered = rendered.map_err(|error| sandbox::Error::Io {
            what: "rendering the prompts".into(),
            source: std::io::Error::other(error),
        })?;
        let record = &self.record;
        Ok(Started {
            messages: messages(&record.task, record.system_prompt.as_deref(), rendered),
            problem_statement: text,
            model: record.model.clone(),
            settings: json!({
                "limits": record.limits,
                "keep": record.keep,
                "sampling": self.model.sampling,
                "command_timeout": self.options.command_timeout,
                "compact": self.options.compact,
            }),
            protection: serde_json::to_value(sandbox.protection()).unwrap_or_default(),
            program: self.options.program.clone(),
        })
    }

    async fn episode(
        &self,
        journal: &EpisodeJournal<R>,
        sandbox: &R::Sandbox,
        opening: Opening,
    ) -> Ended {
        let settings = self.settings();
        let cancel = self.live.cancel.clone();
        let model = Metered {
            model: self.model.model.clone(),
            meter: self.meter.clone(),
            price: self.model.price,
        };
        agent::run(agent::Episode::new(&model, sandbox, journal, &settings, opening, cancel)).await
    }

    /// Collects what the model left.
    async fn collect(
        &self,
        journal: &EpisodeJournal<R>,
        sandbox: &R::Sandbox,
        ended: Ended,
    ) -> EpisodeResult {
        let dir = self.options.store.files_dir(&self.record.id);
        let collecting =
            attempt::collect_directory(sandbox, &self.options.prompts.output_dir, &dir);
        let collected = match ended.outcome {
            Outcome::Cancelled => {
                let collected = tokio::time::timeout(LAST_FILES, collecting).await;
                collected.unwrap_or_else(|_| Collected {
                    error: Some(sandbox::Error::Io {
                        what: "collecting the files".into(),
                        source: std::io::Error::other("the episode was cancelled"),
                    }),
                    ..Collected::default()
                })
            }
            _ => collecting.await,
        };
        let error = collected.error.as_ref().map(sandbox::Error::chain);
        let ended = match &error {
            Some(error) if collected.are_lost() && ended.outcome.is_answered() => Ended {
                outcome: Outcome::Infrastructure {
                    cause: format!("the files were not collected: {error}"),
                    fault: Fault::Storage,
                },
                ..ended
            },
            _ => ended,
        };
        let mut result = EpisodeResult::new(ended, attempt::now_ms());
        match error {
            Some(error) => {
                result.files_error = Some(error);
                // What lies there is of an earlier play.
                let _ = std::fs::remove_dir_all(&dir);
            }
            None => {
                result.answer = attempt::answer_of(&dir.join(ANSWER));
                result.files = files::list(&dir);
            }
        }
        result.kept = journal.save_end(sandbox).await;
        result
    }
}

/// The result of an episode that failed without usage.
fn failed(fault: Fault, cause: String) -> EpisodeResult {
    let outcome = Outcome::Infrastructure { cause, fault };
    EpisodeResult::new(Ended { outcome, spent: Spent::default() }, attempt::now_ms())
}

/// The first messages: the prompts around the last message of the task.
fn messages(task: &Task, system: Option<&str>, rendered: agent::prompt::Rendered) -> Vec<Message> {
    let mut rendered = rendered;
    if let Some(system) = system {
        rendered.system = system.to_owned();
    }
    let Task::Messages(conversation) = task else { return rendered.messages() };
    let mut earlier = conversation.clone();
    let last = earlier.pop();
    if let Some(Message::System { .. }) = earlier.first() {
        let Message::System { text } = earlier.remove(0) else { return earlier };
        if system.is_none() {
            rendered.system = text;
        }
    }
    let mut messages = rendered.messages();
    let mut user = messages.pop();
    // Pictures of the last message stay beside its text.
    if let (Some(Message::User { content }), Some(Message::User { content: sent })) =
        (&mut user, last)
    {
        content.extend(sent.into_iter().filter(|part| matches!(part, Content::Image { .. })));
    }
    messages.extend(earlier);
    messages.extend(user);
    messages
}
