//! Whole episodes, as they are seen.

use std::{
    io,
    io::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use model::{Delta, Listener};
use proptest::prelude::*;
use serde_json::{Value, json};
use trajectory::{
    Arguments, Assistant, Content, Ended, Event, Message, Observed, Outcome, Responded, Spent,
    Started, Stop, ToolCall, ToolResult, Usage,
};

use super::{
    Console, EpisodeInfo, Mode,
    styled::StyledBuffer,
    view::{Retry, StreamItem, View},
};
use crate::settings::Color;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn started(model: &str) -> Event {
    Event::Started(Box::new(Started {
        problem_statement: "a problem".into(),
        messages: vec![Message::user("a problem")],
        model: model.into(),
        settings: Value::Null,
        protection: Value::Null,
        program: String::new(),
    }))
}

fn call(name: &str, arguments: Value) -> ToolCall {
    let arguments = serde_json::from_value(arguments).unwrap();
    ToolCall { id: "1".into(), name: name.into(), arguments: Arguments::Object(arguments) }
}

fn bash(command: &str) -> ToolCall {
    call("execute_bash", json!({ "command": command }))
}

fn replied(turn: u32, message: Assistant) -> Event {
    Event::Responded(Box::new(Responded {
        turn,
        message,
        stop: Stop::ToolCalls,
        usage: Usage { input: 1200, output: 30, ..Usage::default() },
        cost: Some(0.01),
        millis: 1500,
        from_cache: false,
    }))
}

fn observed(turn: u32, name: &str, text: &str, exit_code: Option<i32>) -> Event {
    let result = ToolResult {
        call_id: "1".into(),
        name: name.into(),
        content: vec![Content::text(text)],
        is_error: false,
    };
    Event::Observed(Box::new(Observed {
        turn,
        message: Message::Tool(result),
        exit_code,
        millis: 300,
    }))
}

fn nine_turns() -> EpisodeInfo {
    let limits = agent::Limits { turns: 9, ..agent::Limits::default() };
    EpisodeInfo { limits, ..EpisodeInfo::default() }
}

fn ended(outcome: Outcome) -> Event {
    let usage = Usage { input: 2400, output: 60, ..Usage::default() };
    let spent =
        Spent { turns: 2, usage, context: 1230, cost: Some(0.02), model_ms: 3000, tool_ms: 600 };
    Event::Ended(Ended { outcome, spent })
}

fn retry(attempt: u32, why: &str) -> Retry {
    Retry { attempt, wait: Duration::from_secs(4), why: why.into() }
}

/// A view whose clock stands still, and what it shows.
struct Still {
    view: View,
    now: Instant,
}

impl Still {
    fn new(mode: Mode, color: Color) -> Self {
        let now = Instant::now();
        Self { view: View::new(mode, color, &EpisodeInfo::default(), now), now }
    }

    fn event(&mut self, event: &Event) -> String {
        self.view.event(event, self.now);
        self.view.take()
    }

    fn reasoning(&mut self, text: &str) -> String {
        self.piece(&StreamItem::Reasoning(text.into()))
    }

    fn text(&mut self, text: &str) -> String {
        self.piece(&StreamItem::Text(text.into()))
    }

    fn piece(&mut self, piece: &StreamItem) -> String {
        self.view.piece(piece, self.now);
        self.view.take()
    }

    /// The line at the bottom, a second later.
    fn later(&mut self) -> String {
        self.now += Duration::from_secs(1);
        self.view.tick(80, self.now);
        self.view.take()
    }
}

#[test]
fn a_turn_is_shown_as_it_streams() {
    let mut live = Still::new(Mode::Live, Color::OnTerminals);
    live.view.started("m", live.now);
    assert_eq!(live.view.take(), "\x1b[2mmodel m\x1b[0m\n");
    assert_eq!(live.later(), "\r\x1b[2m⣽ model 1 s · turn 1/100 · 1 s\x1b[0m\x1b[K");
    // The line makes way for the first word, and is not there while words stream.
    let heading = "\r\x1b[K\x1b[1;36m── step 1 (turn 1/100) ──\x1b[0m\n";
    assert_eq!(live.reasoning("\n\n"), "");
    assert_eq!(live.reasoning("let"), format!("{heading}\x1b[2;3mlet\x1b[0m"));
    assert_eq!(live.later(), "");
    assert_eq!(live.reasoning(" me\n\n"), "\x1b[2;3m me\x1b[0m");
    assert_eq!(live.reasoning("see\n"), "\x1b[2;3m\n\nsee\x1b[0m");
    assert_eq!(live.text("\nI look."), "\nI look.");
    assert_eq!(live.piece(&StreamItem::Call("execute_bash".into())), "\n");
    let writing = live.later();
    assert!(writing.contains("⣻ model writes execute_bash 1 s · turn 1/100"), "{writing:?}");
    let said = Assistant {
        reasoning: "let me\n\nsee".into(),
        text: "I look.".into(),
        calls: vec![bash("ls \\\n  -l"), call("submit", json!({}))],
        ..Assistant::default()
    };
    let shown = live.event(&replied(1, said));
    assert_eq!(shown, "\r\x1b[K\x1b[1;36m$ \x1b[0mls \\\n\x1b[1;36m  \x1b[0m  -l\n");
    assert!(
        live.later().contains("execute_bash 1 s · turn 1/100 · 4 s · 1.2k in, 30 out · $0.0100")
    );
    let shown = live.event(&observed(1, "execute_bash", "no such file\n", Some(2)));
    let result =
        "\r\x1b[K\x1b[2m│ no such file\x1b[0m\n\x1b[31mexit 2\x1b[0m\x1b[2m · 0.3 s\x1b[0m\n";
    assert_eq!(shown, format!("{result}\x1b[1;36msubmit\x1b[0m\n"));
    assert_eq!(live.event(&observed(1, "submit", "submitted", None)), "");
    let shown = live.event(&ended(Outcome::Submitted));
    let figures = "2 turns · 2.4k in, 60 out · $0.0200 · 4.0 s (model 3.0 s, tools 0.6 s)";
    assert_eq!(shown, format!("\x1b[32msubmitted\x1b[0m\x1b[2m · {figures}\x1b[0m\n"));
    assert_eq!(live.later(), "");
}

#[test]
fn a_call_that_stood_in_the_text_is_only_marked() {
    let said = |text: &str| Assistant {
        text: text.into(),
        calls: vec![bash("seq 3\nseq 4")],
        raw: Some("I count.\n```bash\nseq 3\nseq 4\n```".into()),
        ..Assistant::default()
    };
    let mut live = Still::new(Mode::Live, Color::Never);
    live.text("I count.\n```bash\nseq 3\nseq 4\n```\n");
    assert_eq!(live.event(&replied(1, said("I count."))), "\n→ $ seq 3 seq 4\n");
    live.event(&observed(1, "execute_bash", "1", Some(0)));
    // Nothing streamed, so nothing was seen yet.
    let shown = live.event(&replied(2, said("I count.")));
    assert_eq!(shown, "── step 2 (turn 2/100) ──\nI count.\n$ seq 3\n  seq 4\n");
}

#[test]
fn a_failed_attempt_is_told_once_whoever_tells_first() {
    let event =
        |attempt| Event::Retried { turn: 1, attempt, wait_ms: 4000, why: "busy\nserver".into() };
    let piece = |attempt| StreamItem::Retry(retry(attempt, "busy\nserver"));
    let mut live = Still::new(Mode::Live, Color::OnTerminals);
    assert!(live.text("half a repl").ends_with("half a repl"));
    let told = "\n\x1b[33mrequest 1 failed: busy server; its output is discarded; retrying in 4.0 s\x1b[0m\n";
    assert_eq!(live.event(&event(1)), told);
    assert_eq!(live.piece(&piece(1)), "");
    assert!(live.later().contains("retrying in 3 s"));
    let told = "\r\x1b[K\x1b[33mrequest 2 failed: busy server; retrying in 4.0 s\x1b[0m\n";
    assert_eq!(live.piece(&piece(2)), told);
    assert_eq!(live.event(&event(2)), "");
    // The whole text is shown now: what streamed before belonged to a failed attempt.
    let said = Assistant { text: "done".into(), ..Assistant::default() };
    assert_eq!(live.event(&replied(1, said)), "done\n");
    let mut plain = Still::new(Mode::Plain, Color::Never);
    let told = plain.piece(&piece(1)) + &plain.event(&event(1));
    assert_eq!(
        told,
        "── step 1 (turn 1/100) ──\nrequest 1 failed: busy server; retrying in 4.0 s\n"
    );
}

#[test]
fn a_file_gets_blocks_and_no_control_sequences() {
    let out = Shared::default();
    let console = Console::onto(out.clone(), Mode::Plain, Color::OnTerminals, &nine_turns());
    console.event(&started("m"));
    console.on_delta(Delta::Text("streamed"));
    console.on_delta(Delta::Call("execute_bash"));
    let said = Assistant {
        reasoning: "hm".into(),
        text: "I count.\n".into(),
        calls: vec![bash("seq 30")],
        ..Assistant::default()
    };
    console.event(&replied(1, said));
    let numbers: Vec<String> = (1..=30).map(|n| n.to_string()).collect();
    console.event(&observed(1, "execute_bash", &numbers.join("\n"), Some(0)));
    console.event(&ended(Outcome::MaxTurns));
    // All is there once the end was told, before the console is gone.
    let text = out.text();
    let head: String = (1..=8).map(|n| format!("│ {n}\n")).collect();
    let tail: String = (24..=30).map(|n| format!("│ {n}\n")).collect();
    let expected = format!(
        "model m\n── step 1 (turn 1/9) ──\nhm\nI count.\nmodel took 1.5 s, 1.2k in, 30 out\n$ seq 30\n{head}│ … 15 lines \
         more …\n{tail}exit 0 · 0.3 s\nout of turns (--max-turns 9) · 2 turns · 2.4k in, 60 out · $0.0200 · "
    );
    let end = text.strip_prefix(&expected);
    assert!(end.is_some_and(|end| end.ends_with(" s (model 3.0 s, tools 0.6 s)\n")), "{text}");
}

#[test]
fn a_watched_pipe_gets_the_stream_without_a_status_line() {
    let mut pipe = Still::new(Mode::Stream, Color::Never);
    pipe.view.started("m", pipe.now);
    assert_eq!((pipe.view.take().as_str(), pipe.later().as_str()), ("model m\n", ""));
    assert_eq!(pipe.text("I lo"), "── step 1 (turn 1/100) ──\nI lo");
    assert_eq!(pipe.text("ok."), "ok.");
    assert_eq!(pipe.piece(&StreamItem::Call("execute_bash".into())), "\n");
    assert_eq!(pipe.later(), "");
    let said =
        Assistant { text: "I look.".into(), calls: vec![bash("ls")], ..Assistant::default() };
    assert_eq!(pipe.event(&replied(1, said)), "$ ls\n");
    assert_eq!(pipe.later(), "");
    let shown = pipe.event(&observed(1, "execute_bash", "x\n", Some(0)));
    assert_eq!(shown, "│ x\nexit 0 · 0.3 s\n");
}

#[test]
fn the_elapsed_time_is_never_below_its_parts() {
    // A resumed episode: most of the time was spent by an earlier process.
    let info = EpisodeInfo {
        time_before: Duration::from_millis(3000),
        steps_before: vec![1, 1, 0, 2],
        ..EpisodeInfo::default()
    };
    let now = Instant::now();
    let mut view = View::new(Mode::Plain, Color::Never, &info, now);
    view.event(&Event::Resumed { turn: 1 }, now);
    view.take();
    // Steps are numbered on, as in the trajectory.
    view.event(&replied(2, Assistant { text: "on".into(), ..Assistant::default() }), now);
    assert!(view.take().starts_with("── step 4 (turn 2/100) ──\non\n"));
    view.event(&ended(Outcome::Submitted), now + Duration::from_millis(710));
    let shown = view.take();
    assert!(shown.ends_with(" · 3.8 s (model 3.0 s, tools 0.6 s)\n"), "{shown}");
    let mut view = View::new(Mode::Plain, Color::Never, &EpisodeInfo::default(), now);
    view.event(&ended(Outcome::Submitted), now);
    assert!(view.take().contains(" · 3.6 s (model 3.0 s, tools 0.6 s)"));
}

#[test]
fn nobody_asked_and_nothing_is_shown() {
    let out = Shared::default();
    let console = Console::onto(out.clone(), Mode::Quiet, Color::OnTerminals, &nine_turns());
    console.event(&started("m"));
    console.on_delta(Delta::Text("x"));
    console.event(&ended(Outcome::Submitted));
    drop(console);
    assert_eq!(out.text(), "");
}

#[test]
fn dropping_ends_the_line_of_words() {
    let out = Shared::default();
    let console = Console::onto(out.clone(), Mode::Live, Color::Never, &nine_turns());
    std::thread::scope(|scope| {
        scope.spawn(|| console.on_delta(Delta::Text("half a wo")));
    });
    drop(console);
    assert_eq!(out.text(), "── step 1 (turn 1/9) ──\nhalf a wo\n");
}

#[test]
fn the_line_at_the_bottom_moves_by_itself_and_goes() {
    let out = Shared::default();
    let console = Console::onto(out.clone(), Mode::Live, Color::Never, &nine_turns());
    console.event(&started("m"));
    let until = Instant::now() + Duration::from_secs(20);
    let beats = |text: &str| text.matches(" model ").count();
    while beats(&out.text()) < 3 {
        assert!(Instant::now() < until, "{:?}", out.text());
        std::thread::yield_now();
    }
    drop(console);
    assert!(out.text().ends_with("\r\x1b[K"), "{:?}", out.text());
}

#[test]
fn a_closed_or_stuck_terminal_holds_nothing_up() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let console = Console::onto(Closed, Mode::Live, Color::Never, &nine_turns());
    console.event(&started("m"));
    console.event(&ended(Outcome::Submitted));
    drop(console);

    struct Stuck(std::sync::mpsc::Receiver<()>);
    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (release, stuck) = std::sync::mpsc::channel();
    let console = Console::onto(Stuck(stuck), Mode::Live, Color::Never, &nine_turns());
    let began = Instant::now();
    for _ in 0..10_000 {
        console.on_delta(Delta::Text("word "));
    }
    assert!(began.elapsed() < super::FLUSH_TIMEOUT);
    drop(console);
    drop(release);
}

#[test]
fn a_resumed_episode_goes_on_with_its_next_turn() {
    let mut live = Still::new(Mode::Live, Color::Never);
    assert_eq!(live.event(&Event::Resumed { turn: 3 }), "resumed after turn 3\n");
    assert!(live.later().contains("model 1 s · turn 4/100 · 1 s"));
    assert_eq!(live.text("on"), "\r\x1b[K── step 1 (turn 4/100) ──\non");
    let shown = live.event(&Event::Compacted { turn: 4, messages: 6 });
    assert_eq!(shown, "\nshortened the first 6 messages\n");
}

#[test]
fn a_reminder_is_shown_and_each_call_has_its_own_time() {
    let mut live = Still::new(Mode::Live, Color::Never);
    let said = Assistant { text: "Hello.".into(), ..Assistant::default() };
    assert_eq!(live.event(&replied(1, said)), "── step 1 (turn 1/100) ──\nHello.\n");
    assert_eq!(live.later(), "");
    let message = Message::user("call a tool");
    let reminder = Observed { turn: 1, message, exit_code: None, millis: 0 };
    assert_eq!(live.event(&Event::Observed(Box::new(reminder))), "│ call a tool\n");
    assert!(live.later().contains("model 1 s · turn 2/100"));
    let said = Assistant { calls: vec![bash("true"), bash("false")], ..Assistant::default() };
    live.event(&replied(2, said));
    assert!(live.later().contains("execute_bash 1 s"));
    let shown = live.event(&observed(2, "execute_bash", "", Some(0)));
    assert_eq!(shown, "\r\x1b[Kexit 0 · 0.3 s\n$ false\n");
    assert!(live.later().contains("execute_bash 1 s"));
}

#[test]
fn editor_calls_and_odd_ones_are_readable() {
    let shown = |call: ToolCall| {
        let mut out = StyledBuffer::new(Color::Never);
        super::action::call(&mut out, &call);
        super::action::mark(&mut out, &call);
        out.take()
    };
    let edit = |arguments| shown(call("str_replace_editor", arguments));
    let text: String = (1..=12).map(|n| format!("{n}\n")).collect();
    assert_eq!(
        edit(json!({"command": "create", "path": "/a b", "file_text": text})),
        "edit create /a b (12 lines)\n  1\n  2\n  3\n  4\n  … 7 lines more …\n  12\n→ edit create /a b (12 lines)\n"
    );
    assert_eq!(
        edit(json!({"command": "str_replace", "path": "/f", "old_str": "x", "new_str": "y\nz"})),
        "edit str_replace /f (2 lines for 1 line)\n- x\n+ y\n+ z\n→ edit str_replace /f (2 lines for 1 line)\n"
    );
    assert_eq!(
        edit(json!({"command": "insert", "path": "/f", "insert_line": 3, "new_str": "y"})),
        "edit insert /f (1 line after line 3)\n+ y\n→ edit insert /f (1 line after line 3)\n"
    );
    assert_eq!(
        edit(json!({"command": "view", "path": "/f", "view_range": [1, -1]})),
        "edit view /f lines 1 to -1\n→ edit view /f lines 1 to -1\n"
    );
    assert_eq!(shown(call("fly", json!({"to": [1]}))), "fly {\"to\":[1]}\n→ fly\n");
    assert_eq!(
        shown(call("execute_bash", json!({"command": 7}))),
        "execute_bash {\"command\":7}\n→ execute_bash\n"
    );
    assert_eq!(shown(bash("")), "$\n→ $ \n");
    let arguments = Arguments::Malformed { malformed: "{\"com".into(), why: "cut\noff".into() };
    let broken = ToolCall { id: "1".into(), name: "execute_bash".into(), arguments };
    let told = "execute_bash (malformed: cut off)\n";
    assert_eq!(shown(broken), format!("{told}  {{\"com\n→ {told}"));
}

#[test]
fn endings_have_their_colours() {
    let shown = |outcome| Still::new(Mode::Live, Color::OnTerminals).event(&ended(outcome));
    assert!(shown(Outcome::Submitted).starts_with("\x1b[32msubmitted\x1b[0m"));
    assert!(shown(Outcome::Deadline).starts_with("\x1b[33mout of time (--deadline)\x1b[0m"));
    let failed = shown(Outcome::Infrastructure {
        cause: "disk\nfull".into(),
        fault: trajectory::Fault::Unknown,
    });
    assert!(failed.starts_with("\x1b[31mfailed: disk full\x1b[0m"), "{failed:?}");
}

/// Everything hostile parties have a say in, said by them.
fn hostile(text: &str, mode: Mode) -> String {
    let mut still = Still::new(mode, Color::OnTerminals);
    let owned = || text.to_owned();
    still.view.started(text, still.now);
    let mut shown = still.later() + &still.reasoning(text) + &still.text(text);
    shown += &still.piece(&StreamItem::Call(owned()));
    shown += &still.later();
    shown += &still.piece(&StreamItem::Retry(retry(1, text)));
    let editor = json!({"command": "create", "path": text, "file_text": text, text: text});
    let malformed = Arguments::Malformed { malformed: owned(), why: owned() };
    let calls = vec![
        bash(text),
        call("str_replace_editor", editor),
        call("str_replace_editor", json!({"command": text, "path": text})),
        call(text, json!({text: [text, {text: text}]})),
        ToolCall { id: owned(), name: owned(), arguments: malformed },
    ];
    for said in [None, Some(owned())] {
        shown += &still.text(text);
        let message = Assistant {
            text: owned(),
            reasoning: owned(),
            calls: calls.clone(),
            raw: said,
            ..Assistant::default()
        };
        shown += &still.event(&replied(1, message));
        for _ in &calls {
            shown += &still.later();
            shown += &still.event(&observed(1, text, text, Some(1)));
        }
    }
    shown
        + &still.event(&ended(Outcome::Infrastructure {
            cause: owned(),
            fault: trajectory::Fault::Unknown,
        }))
}

#[test]
fn hostile_text_stays_text() {
    let text = "\x1b]0;title\x07\x1b[2J\r\u{9b}31m\u{202e}\u{2028}x";
    for mode in [Mode::Live, Mode::Plain] {
        let shown = StyledBuffer::strip(&hostile(text, mode));
        assert!(
            shown.contains("$ \\x1b]0;title\\x07\\x1b[2J\\r\\u{9b}31m\\u{202e}\\u{2028}x"),
            "{shown:?}"
        );
    }
}

proptest! {
    #[test]
    fn the_only_control_sequences_are_ours(text in "[\\x00-\\x1f\\x7f-\\u{9f}\\u{200b}-\\u{206f}\\[K0-9;ma日\n]{0,40}") {
        let live = StyledBuffer::strip(&hostile(&text, Mode::Live));
        let raw = |c: char| c.is_control() && c != '\n' && c != '\t';
        prop_assert!(!live.contains(raw), "{live:?}");
        let plain = hostile(&text, Mode::Plain);
        prop_assert!(!plain.contains(raw), "{plain:?}");
    }
}
