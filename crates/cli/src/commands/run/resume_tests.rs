//! Records of earlier processes, and what a resumed run makes of them.

use model::Response;
use trajectory::{Arguments, Assistant, Message, Observed, Responded, Started, Stop, Usage};

use super::*;

fn started() -> Event {
    Event::Started(Box::new(Started {
        problem_statement: "p".into(),
        messages: vec![Message::user("p")],
        model: "m".into(),
        settings: Value::Null,
        protection: Value::Null,
        program: String::new(),
    }))
}

fn replied(turn: u32, tool: &str, tokens: u64) -> Event {
    let arguments = Arguments::Object(serde_json::Map::new());
    let call = ToolCall { id: "1".into(), name: tool.into(), arguments };
    let usage = Usage { input: tokens, ..Usage::default() };
    let message = Assistant { calls: vec![call], ..Assistant::default() };
    let Response { message, stop, usage, from_cache } =
        Response { message, stop: Stop::ToolCalls, usage, from_cache: false };
    let cost = Some(1.0);
    let millis = u64::MAX;
    Event::Responded(Box::new(Responded { turn, message, stop, usage, cost, millis, from_cache }))
}

fn observed(turn: u32) -> Event {
    let message = Message::user("seen");
    Event::Observed(Box::new(Observed { turn, message, exit_code: None, millis: u64::MAX }))
}

fn saved(turn: u32) -> Event {
    Event::Saved { turn, image: format!("{SAVED}i{turn}") }
}

fn past(events: impl IntoIterator<Item = Event>) -> EarlierProcess {
    let lines = events.into_iter().map(|event| Line::new(0, event)).collect();
    EarlierProcess::read(lines, Results::Missing).unwrap().0
}

#[test]
fn the_conversation_goes_back_to_the_saved_files() {
    let bash = |turn, tokens| [replied(turn, "execute_bash", tokens), observed(turn)];
    let events = [started()].into_iter().chain(bash(1, 10)).chain([saved(1)]);
    let past = past(events.chain(bash(2, 20)).chain([replied(3, "execute_bash", 900)]));
    assert_eq!((past.turns(), past.saved()), (2, Some((1, "run-i1"))));
    let calls: Vec<u32> = past.calls().iter().map(|(turn, _)| *turn).collect();
    assert_eq!(calls, [1, 2]);
    for (turn, messages, context) in [(1, 3, 10), (2, 5, 20)] {
        let files = RestoredFiles::Saved;
        let Opening::Resumed { history, spent, .. } = past.opening(turn, files) else { panic!() };
        assert_eq!((history.len(), spent.turns, spent.context), (messages, turn, context));
        assert_eq!((spent.cost, spent.usage.input), (Some(3.0), 930));
    }
}

#[test]
fn results_come_from_the_last_files_alone() {
    let ended = || Event::Ended(Ended { outcome: Outcome::Submitted, spent: Spent::default() });
    let first = || [started(), replied(1, "execute_bash", 1), observed(1), saved(1)];
    let submitted = || [replied(2, "submit", 1), observed(2), ended()];
    let done = past(first().into_iter().chain(submitted()));
    assert_eq!(done.saved(), Some((1, "run-i1")));
    let more = [replied(2, "execute_bash", 1), observed(2), ended()];
    let done = past(first().into_iter().chain(more));
    assert_eq!((done.saved(), done.image()), (None, Some("run-i1")));
    let lines = first().into_iter().chain(submitted()).map(|event| Line::new(0, event));
    assert!(EarlierProcess::read(lines.collect(), Results::Saved).is_err());
}

/// The record of an episode that a limit ended.
fn limited(outcome: Outcome, limits: &Limits, results: Results) -> EarlierProcess {
    let mut started = started();
    if let Event::Started(started) = &mut started {
        started.settings = serde_json::json!({ "limits": limits });
    }
    let spent = Spent { model_ms: 900, tool_ms: 200, ..Spent::default() };
    let ended = Event::Ended(Ended { outcome, spent });
    let reply = match replied(1, "execute_bash", 50) {
        Event::Responded(mut replied) => {
            replied.millis = 10;
            Event::Responded(replied)
        }
        other => other,
    };
    let seen = Event::Observed(Box::new(Observed {
        turn: 1,
        message: Message::user("seen"),
        exit_code: None,
        millis: 10,
    }));
    let lines = [started, reply, seen, ended].map(|event| Line::new(0, event)).to_vec();
    EarlierProcess::read(lines, results).unwrap().0
}

#[test]
fn a_limit_that_is_raised_lets_the_episode_continue() {
    let time = |ms| Some(Duration::from_millis(ms));
    let before =
        Limits { turns: 1, tokens: 50, time: time(1000), cost: Some(1.0), ..Limits::default() };
    // The other limits are not reached.
    let free = Limits { turns: 9, tokens: 999, time: None, cost: None, ..before.clone() };
    for (outcome, same, higher) in [
        (
            Outcome::MaxTurns,
            Limits { turns: 1, ..free.clone() },
            Limits { turns: 2, ..free.clone() },
        ),
        (
            Outcome::MaxTokens,
            Limits { tokens: 50, ..free.clone() },
            Limits { tokens: 51, ..free.clone() },
        ),
        (
            Outcome::Deadline,
            Limits { time: time(1000), ..free.clone() },
            Limits { time: time(1200), ..free.clone() },
        ),
        (
            Outcome::Cost,
            Limits { cost: Some(1.0), ..free.clone() },
            Limits { cost: Some(1.1), ..free.clone() },
        ),
    ] {
        let option = limits::option_of(&outcome).unwrap();
        let past = || limited(outcome.clone(), &before, Results::Saved);
        let error = past().apply_limits(&same, true).unwrap_err().to_string();
        assert!(error.contains(&format!("higher {option}")), "{error}");
        let mut raised = past();
        raised.apply_limits(&higher, true).unwrap();
        assert!(raised.ended.is_none(), "{option}");
        // Another limit that is reached is named.
        let other = match outcome {
            Outcome::MaxTurns => Limits { tokens: 50, ..higher },
            _ => Limits { turns: 1, ..higher },
        };
        let error = past().apply_limits(&other, true).unwrap_err().to_string();
        assert!(error.contains("higher --max-t"), "{error}");
        // Without its results they are collected, as before.
        let mut lost = limited(outcome.clone(), &before, Results::Missing);
        lost.apply_limits(&before, false).unwrap();
        assert!(lost.ended.is_some());
    }
}

#[test]
fn a_killed_episode_is_not_held_up_by_its_own_limit() {
    let killed = || past([started(), replied(1, "execute_bash", 1), observed(1)]);
    let limits = Limits { turns: 1, ..Limits::default() };
    killed().apply_limits(&limits, false).unwrap();
    assert!(killed().apply_limits(&limits, true).is_err());
}

#[test]
fn images_that_the_run_did_not_save_are_not_used() {
    let home = tempfile::tempdir().unwrap();
    let seal = Seal::of(home.path()).unwrap();
    let mut settings = serde_json::json!({ "task": "t" });
    seal.sign(&mut settings);
    let own = format!("{}mine-1-1", seal.image_prefix(&settings));
    let found = |settings: &Value, image: &str| {
        let mut first = started();
        if let Event::Started(started) = &mut first {
            started.settings = settings.clone();
        }
        let saved = Event::Saved { turn: 1, image: image.to_owned() };
        let mut past = past([first, replied(1, "execute_bash", 1), observed(1), saved]);
        past.authenticate_images(&seal);
        past.saved().map(|(_, image)| image.to_owned())
    };
    assert_eq!(found(&settings, &own), Some(own.clone()));
    assert_eq!(found(&settings, "run-tests"), None);
    let mut other = serde_json::json!({ "task": "other" });
    seal.sign(&mut other);
    assert_eq!(found(&other, &own), None, "an image of another run");
    // Whoever copies the seal of another run along does not have the settings it was made for.
    let mut forged = serde_json::json!({ "task": "mine" });
    forged["seal"] = settings["seal"].clone();
    assert_eq!(found(&forged, &own), None);
}
