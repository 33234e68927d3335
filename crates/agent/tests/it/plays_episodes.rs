//! The loop with a scripted model in a real sandbox: what ends an episode, and which events it records.
//!
//! Knows no server and no command line.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use lis_agent::{
    CancellationToken, Episode, EpisodeSettings, Journal, Limits, Opening, RestoredFiles,
};
use model::{Delta, Listener, Model, Permit, Request, Response, Sampling};
use sandbox::Spec;
use sandbox_native::NativeSandbox;
use serde_json::{Value, json};
use testkit::{Call, ScriptedModel, Step, bash, calls, say, submit};
use trajectory::{Ended, Event, Fault, Message, Outcome, Spent, Started};

use crate::sandboxes::{Hand, with_sandbox};

/// A journal in memory. Has room for a number of events, and may cancel the episode at the first response.
pub(crate) struct Memory {
    events: Mutex<Vec<Event>>,
    room: usize,
    cancel: Option<CancellationToken>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { events: Mutex::default(), room: usize::MAX, cancel: None }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Listener for Memory {
    fn on_delta(&self, _: Delta<'_>) {}
}

impl Journal<NativeSandbox> for Memory {
    fn record(&self, event: Event) -> io::Result<()> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let (Event::Responded(_), Some(cancel)) = (&event, &self.cancel) {
            cancel.cancel();
        }
        events.push(event);
        Ok(())
    }
}

pub(crate) fn fresh() -> Opening {
    Opening::Fresh(Box::new(Started {
        problem_statement: "Do it".into(),
        messages: vec![Message::user("Do it")],
        model: "scripted".into(),
        settings: Value::Null,
        protection: Value::Null,
        program: String::new(),
    }))
}

async fn play(
    hand: &Hand,
    model: &ScriptedModel,
    journal: &Memory,
    limits: Limits,
    opening: Opening,
) -> Ended {
    let settings = EpisodeSettings { limits, ..EpisodeSettings::default() };
    let cancel = CancellationToken::new();
    lis_agent::run(Episode::new(model, &hand.sandbox, journal, &settings, opening, cancel)).await
}

pub(crate) fn texts(message: &Message) -> String {
    let content = match message {
        Message::User { content } => content,
        Message::Tool(result) => &result.content,
        _ => return String::new(),
    };
    content.iter().filter_map(|part| part.as_text()).collect()
}

#[test]
fn unusable_calls_end_an_episode_like_no_calls() {
    with_sandbox(&Spec::default(), async |hand| {
        let unknown = || Step::from(calls([Call::new("python", json!({"code": "1"}))]));
        let missing = || Step::from(calls([Call::new("execute_bash", json!({"cmd": "ls"}))]));
        let model = ScriptedModel::new([unknown(), missing(), bash("true").into()])
            .then(unknown())
            .then(missing())
            .then(say("Hm."));
        let journal = Memory::new();
        let limits = Limits { misses: 3, ..Limits::default() };
        let ended = play(&hand, &model, &journal, limits, fresh()).await;
        assert_eq!((ended.outcome, ended.spent.turns), (Outcome::NoToolCalls, 6));
        // A file that is not there is no such call.
        let edit = json!({"command": "view", "path": "/nowhere"});
        let edit = move || Step::from(calls([Call::new("str_replace_editor", edit.clone())]));
        let model = ScriptedModel::new([edit(), edit(), edit(), submit().into()]);
        let limits = Limits { misses: 3, ..Limits::default() };
        let ended = play(&hand, &model, &Memory::new(), limits, fresh()).await;
        assert_eq!(ended.outcome, Outcome::Submitted);
    });
}

#[test]
fn an_empty_submission_is_sent_back_once() {
    with_sandbox(&Spec::default(), async |hand| {
        let settings = EpisodeSettings {
            output_dir: Some("/testbed/out".into()),
            ..EpisodeSettings::default()
        };
        let outcome = async |script: Vec<_>| {
            let (model, journal) = (ScriptedModel::new(script), Memory::new());
            let cancel = CancellationToken::new();
            let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), cancel);
            let ended = lis_agent::run(episode).await;
            let events = journal.events();
            let doubts = events.iter().filter(|event| match event {
                Event::Observed(observed) => texts(&observed.message).contains("/testbed/out,"),
                _ => false,
            });
            (ended.outcome, ended.spent.turns, doubts.count())
        };
        // Neither a missing directory nor an empty one nor an empty file is a result.
        let stubborn = vec![submit(), bash("mkdir out; touch out/answer.txt"), submit()];
        assert_eq!(outcome(stubborn).await, (Outcome::Submitted, 3, 1));
        assert_eq!(outcome(vec![submit(), submit()]).await, (Outcome::Submitted, 2, 1));
        let mended = vec![submit(), bash("echo 7 > out/answer.txt"), submit()];
        assert_eq!(outcome(mended).await, (Outcome::Submitted, 3, 1));
        assert_eq!(outcome(vec![submit()]).await, (Outcome::Submitted, 1, 0));
    });
}

#[test]
fn a_repeated_call_gets_a_note_and_a_higher_temperature() {
    with_sandbox(&Spec::default(), async |hand| {
        // The last is too long to be shown, and is kept in files of different names.
        let script = [
            bash("cat none"),
            bash("cat none"),
            bash("date +%N"),
            bash("date +%N"),
            bash("seq 20001"),
            bash("seq 20001"),
            submit(),
        ];
        let model = ScriptedModel::new(script);
        let sampling = Sampling { temperature: Some(0.1), ..Sampling::default() };
        let settings = EpisodeSettings { sampling, ..EpisodeSettings::default() };
        let journal = Memory::new();
        let cancel = CancellationToken::new();
        let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), cancel);
        assert_eq!(lis_agent::run(episode).await.outcome, Outcome::Submitted);
        let events = journal.events();
        let noted = events.iter().filter_map(|event| match event {
            Event::Observed(observed) => Some(texts(&observed.message).contains("the same call")),
            _ => None,
        });
        // Only what was done again and looked the same again.
        assert_eq!(noted.collect::<Vec<_>>(), [false, true, false, false, false, true, false]);
        let temperatures: Vec<_> =
            model.requests().iter().map(|asked| asked.sampling.temperature.unwrap()).collect();
        assert_eq!(temperatures, [0.1, 0.1, 0.8, 0.1, 0.1, 0.1, 0.8]);
    });
}

#[test]
fn an_episode_ends_when_its_journal_fails() {
    with_sandbox(&Spec::default(), async |hand| {
        let model = ScriptedModel::answering(|_| bash("true"));
        let journal = Memory { room: 4, ..Memory::new() };
        let ended = play(&hand, &model, &journal, Limits::default(), fresh()).await;
        let Outcome::Infrastructure { cause, fault } = ended.outcome else { panic!("{ended:?}") };
        assert_eq!(fault, Fault::Storage, "{cause}");
        assert_eq!(journal.events().len(), 4);
    });
}

#[test]
fn cancelling_and_the_deadline_interrupt_a_command() {
    with_sandbox(&Spec::default(), async |hand| {
        let settings = EpisodeSettings::default();
        let cancel = CancellationToken::new();
        let journal = Memory { cancel: Some(cancel.clone()), ..Memory::new() };
        let model = ScriptedModel::new([bash("sleep 1000")]);
        let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), cancel);
        assert_eq!(lis_agent::run(episode).await.outcome, Outcome::Cancelled);
        assert!(matches!(journal.events().last(), Some(Event::Ended(_))));

        let model = ScriptedModel::new([bash("sleep 1000")]);
        let limits = Limits { time: Some(Duration::from_millis(300)), ..Limits::default() };
        let ended = play(&hand, &model, &Memory::new(), limits.clone(), fresh()).await;
        assert_eq!(ended.outcome, Outcome::Deadline);
        // An interrupted call takes time as well.
        assert!(ended.spent.tool_ms >= 100, "{:?}", ended.spent);
        let ended =
            play(&hand, &ScriptedModel::new([Step::Hang]), &Memory::new(), limits, fresh()).await;
        assert_eq!(ended.outcome, Outcome::Deadline);
        assert!(ended.spent.model_ms >= 300, "{:?}", ended.spent);
        // The sandbox still works.
        assert_eq!(hand.bash("pgrep -c sleep; true").await, "[exit code 0]\n[stdout]\n0");
    });
}

/// A model whose permits take long.
struct Busy(ScriptedModel);

impl Model for Busy {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn permit(&self) -> Permit {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Permit::default()
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, model::Error> {
        self.0.complete(request, listener).await
    }
}

#[test]
fn waiting_for_a_permit_does_not_count_as_time() {
    with_sandbox(&Spec::default(), async |hand| {
        let limits = Limits { time: Some(Duration::from_millis(1500)), ..Limits::default() };
        let settings = EpisodeSettings { limits, ..EpisodeSettings::default() };
        let (model, journal) = (Busy(ScriptedModel::new([bash("true"), submit()])), Memory::new());
        let cancel = CancellationToken::new();
        let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), cancel);
        let Ended { outcome, spent } = lis_agent::run(episode).await;
        assert_eq!(outcome, Outcome::Submitted);
        assert!(spent.model_ms < 1500, "{spent:?}");
    });
}

#[test]
fn a_resumed_episode_continues_its_counts() {
    with_sandbox(&Spec::default(), async |hand| {
        let journal = Memory::new();
        let model = ScriptedModel::new([bash("seq 20000"), bash("seq 20000"), say("Hm.")]);
        let limits = Limits { turns: 2, ..Limits::default() };
        let first = play(&hand, &model, &journal, limits, fresh()).await;
        assert_eq!(first.outcome, Outcome::MaxTurns);
        let lines: Vec<_> =
            journal.events().into_iter().map(|event| trajectory::Line::new(0, event)).collect();
        let (history, turns) = trajectory::history(&lines);
        assert_eq!(turns, 2);
        let spent = Spent { model_ms: u64::MAX, tool_ms: u64::MAX, ..first.spent };
        let files = RestoredFiles::Saved;
        let opening = Opening::Resumed { history, spent, compacted: 0, files };
        let model = ScriptedModel::new([bash("seq 20000"), submit()]);
        let ended = play(&hand, &model, &Memory::new(), Limits::default(), opening).await;
        assert_eq!((ended.outcome, ended.spent.turns), (Outcome::Submitted, 4));
        let asked = model.requests();
        let message = texts(asked[0].messages.last().unwrap());
        assert!(message.contains("restarted"), "{message}");
        assert!(message.contains("[98 steps remaining]"), "{message}");
        // New long outputs do not overwrite the files of earlier ones.
        let message = texts(asked[1].messages.last().unwrap());
        assert!(message.contains("/tmp/outputs/3.stdout.txt"), "{message}");
    });
}
