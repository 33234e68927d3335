//! The loop with a scripted model in a real sandbox: what ends an episode, and what is written down of it.
//!
//! Knows no server and no command line.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use agent::{Episode, Journal, Limits, Opening, Settings, Stopper};
use model::{Delta, Listener, Model, Place, Reply, Request, Sampling};
use sandbox::Spec;
use sandbox_native::NativeSandbox;
use serde_json::{Value, json};
use testkit::{Call, Line, Scripted, bash, calls, say, submit};
use trajectory::{Ended, Event, Message, Outcome, Spent, Started};

use crate::sandboxes::{Hand, with_sandbox};

/// Keeps events in memory. Has room for so many, and may stop the episode at the first reply.
struct Memory {
    events: Mutex<Vec<Event>>,
    room: usize,
    stopper: Option<Stopper>,
}

impl Memory {
    fn new() -> Self {
        Self { events: Mutex::default(), room: usize::MAX, stopper: None }
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Listener for Memory {
    fn hear(&self, _: Delta<'_>) {}
}

impl Journal<NativeSandbox> for Memory {
    fn record(&self, event: Event) -> io::Result<()> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let (Event::Replied(_), Some(stopper)) = (&event, &self.stopper) {
            stopper.stop();
        }
        events.push(event);
        Ok(())
    }
}

fn fresh() -> Opening {
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
    model: &Scripted,
    journal: &Memory,
    limits: Limits,
    opening: Opening,
) -> Ended {
    let settings = Settings { limits, ..Settings::default() };
    let (_stopper, watch) = agent::stopper();
    agent::run(Episode::new(model, &hand.sandbox, journal, &settings, opening, watch)).await
}

fn texts(message: &Message) -> String {
    let content = match message {
        Message::User { content } => content,
        Message::Tool(result) => &result.content,
        _ => return String::new(),
    };
    content.iter().filter_map(|part| part.as_text()).collect()
}

#[test]
fn calls_that_make_no_sense_end_an_episode_like_talk() {
    with_sandbox(&Spec::default(), async |hand| {
        let unknown = || Line::from(calls([Call::new("python", json!({"code": "1"}))]));
        let missing = || Line::from(calls([Call::new("execute_bash", json!({"cmd": "ls"}))]));
        let model = Scripted::new([unknown(), missing(), bash("true").into()])
            .then(unknown())
            .then(missing())
            .then(say("Hm."));
        let journal = Memory::new();
        let limits = Limits { misses: 3, ..Limits::default() };
        let ended = play(&hand, &model, &journal, limits, fresh()).await;
        assert_eq!((ended.outcome, ended.spent.turns), (Outcome::NoToolCalls, 6));
        // A file that is not there is no such call.
        let edit = json!({"command": "view", "path": "/nowhere"});
        let edit = move || Line::from(calls([Call::new("str_replace_editor", edit.clone())]));
        let model = Scripted::new([edit(), edit(), edit(), submit().into()]);
        let limits = Limits { misses: 3, ..Limits::default() };
        let ended = play(&hand, &model, &Memory::new(), limits, fresh()).await;
        assert_eq!(ended.outcome, Outcome::Submitted);
    });
}

#[test]
fn a_model_that_submits_nothing_is_asked_once() {
    with_sandbox(&Spec::default(), async |hand| {
        let settings = Settings { deliver_to: Some("/testbed/out".into()), ..Settings::default() };
        let outcome = async |script: Vec<_>| {
            let (model, journal) = (Scripted::new(script), Memory::new());
            let (_stopper, watch) = agent::stopper();
            let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), watch);
            let ended = agent::run(episode).await;
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
fn a_model_that_repeats_itself_is_told_and_stirred() {
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
        let model = Scripted::new(script);
        let sampling = Sampling { temperature: Some(0.1), ..Sampling::default() };
        let settings = Settings { sampling, ..Settings::default() };
        let journal = Memory::new();
        let (_stopper, watch) = agent::stopper();
        let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), watch);
        assert_eq!(agent::run(episode).await.outcome, Outcome::Submitted);
        let events = journal.events();
        let told = events.iter().filter_map(|event| match event {
            Event::Observed(observed) => Some(texts(&observed.message).contains("the same call")),
            _ => None,
        });
        // Only what was done again and looked the same again.
        assert_eq!(told.collect::<Vec<_>>(), [false, true, false, false, false, true, false]);
        let temperatures: Vec<_> =
            model.asked().iter().map(|asked| asked.sampling.temperature.unwrap()).collect();
        assert_eq!(temperatures, [0.1, 0.1, 0.8, 0.1, 0.1, 0.1, 0.8]);
    });
}

#[test]
fn an_episode_without_a_record_ends() {
    with_sandbox(&Spec::default(), async |hand| {
        let model = Scripted::answering(|_| bash("true"));
        let journal = Memory { room: 4, ..Memory::new() };
        let ended = play(&hand, &model, &journal, Limits::default(), fresh()).await;
        let Outcome::Infrastructure { cause } = ended.outcome else { panic!("{ended:?}") };
        assert!(cause.contains("record"), "{cause}");
        assert_eq!(journal.events().len(), 4);
    });
}

#[test]
fn stopping_and_time_break_off_a_command() {
    with_sandbox(&Spec::default(), async |hand| {
        let settings = Settings::default();
        let (stopper, watch) = agent::stopper();
        let journal = Memory { stopper: Some(stopper), ..Memory::new() };
        let model = Scripted::new([bash("sleep 1000")]);
        let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), watch);
        assert_eq!(agent::run(episode).await.outcome, Outcome::Cancelled);
        assert!(matches!(journal.events().last(), Some(Event::Ended(_))));

        let model = Scripted::new([bash("sleep 1000")]);
        let limits = Limits { time: Some(Duration::from_millis(300)), ..Limits::default() };
        let ended = play(&hand, &model, &Memory::new(), limits.clone(), fresh()).await;
        assert_eq!(ended.outcome, Outcome::Deadline);
        // What was cut short took its time as well.
        assert!(ended.spent.tool_ms >= 100, "{:?}", ended.spent);
        let ended =
            play(&hand, &Scripted::new([Line::Hangs]), &Memory::new(), limits, fresh()).await;
        assert_eq!(ended.outcome, Outcome::Deadline);
        assert!(ended.spent.model_ms >= 300, "{:?}", ended.spent);
        // The sandbox goes on.
        assert_eq!(hand.bash("pgrep -c sleep; true").await, "[exit code 0]\n[stdout]\n0");
    });
}

/// A model with a long queue before it.
struct Busy(Scripted);

impl Model for Busy {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn place(&self) -> Place {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Place::default()
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, model::Error> {
        self.0.complete(request, listener).await
    }
}

#[test]
fn waiting_for_a_place_is_not_the_time_of_an_episode() {
    with_sandbox(&Spec::default(), async |hand| {
        let limits = Limits { time: Some(Duration::from_millis(1500)), ..Limits::default() };
        let settings = Settings { limits, ..Settings::default() };
        let (model, journal) = (Busy(Scripted::new([bash("true"), submit()])), Memory::new());
        let (_stopper, watch) = agent::stopper();
        let episode = Episode::new(&model, &hand.sandbox, &journal, &settings, fresh(), watch);
        let Ended { outcome, spent } = agent::run(episode).await;
        assert_eq!(outcome, Outcome::Submitted);
        assert!(spent.model_ms < 1500, "{spent:?}");
    });
}

#[test]
fn a_resumed_episode_keeps_its_count() {
    with_sandbox(&Spec::default(), async |hand| {
        let journal = Memory::new();
        let model = Scripted::new([bash("seq 20000"), bash("seq 20000"), say("Hm.")]);
        let limits = Limits { turns: 2, ..Limits::default() };
        let first = play(&hand, &model, &journal, limits, fresh()).await;
        assert_eq!(first.outcome, Outcome::MaxTurns);
        let lines: Vec<_> =
            journal.events().into_iter().map(|event| trajectory::Line::new(0, event)).collect();
        let (history, turns) = trajectory::history(&lines);
        assert_eq!(turns, 2);
        let spent = Spent { model_ms: u64::MAX, tool_ms: u64::MAX, ..first.spent };
        let opening = Opening::Resumed { history, spent, compacted: 0 };
        let model = Scripted::new([bash("seq 20000"), submit()]);
        let ended = play(&hand, &model, &Memory::new(), Limits::default(), opening).await;
        assert_eq!((ended.outcome, ended.spent.turns), (Outcome::Submitted, 4));
        let asked = model.asked();
        let told = texts(asked[0].messages.last().unwrap());
        assert!(told.contains("restarted") && told.contains("[98 steps remaining]"), "{told}");
        // Its long outputs do not replace those it was told of before.
        let told = texts(asked[1].messages.last().unwrap());
        assert!(told.contains("/tmp/outputs/3.stdout.txt"), "{told}");
    });
}
