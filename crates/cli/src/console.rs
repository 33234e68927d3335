//! Shows an episode on standard error while it happens: streamed on a terminal, in plain blocks elsewhere.
//!
//! A thread of its own draws, so that a terminal that takes nothing, or is gone, never holds the episode
//! up. Decides nothing and keeps nothing.

mod action;
mod figures;
mod ink;
mod sanitize;
mod status;
mod view;

use std::{
    io::{self, Write},
    ops::ControlFlow::{self, Break, Continue},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use model::{Delta, Listener};
use serde_json::Value;
use trajectory::{Event, Started};

pub(crate) use self::sanitize::sanitize;
use self::{
    status::BEAT,
    view::{Piece, Retry, View},
};
use crate::settings::Color;

/// So long may a stuck terminal hold up the end of an episode.
const PATIENCE: Duration = Duration::from_secs(2);

/// How an episode is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As it streams, with a line at the bottom: for a terminal.
    Live,
    /// A block for each event, without control sequences.
    Plain,
    /// Not at all.
    Quiet,
}

/// Shows an episode. What it has not shown when it is dropped, it shows then.
#[derive(Debug)]
pub(crate) struct Console {
    mode: Mode,
    heard: Option<Sender<Heard>>,
}

/// What the drawing thread is told.
#[derive(Debug)]
enum Heard {
    Started(String),
    Event(Box<Event>),
    Piece(Piece),
    /// Show everything, then answer.
    Flush(Sender<()>),
    /// The same, and then be done.
    Close(Sender<()>),
}

impl Console {
    /// Shows on standard error.
    pub(crate) fn new(mode: Mode, color: Color, max_turns: u32) -> Self {
        Self::onto(io::stderr(), mode, color, max_turns)
    }

    fn onto(out: impl Write + Send + 'static, mode: Mode, color: Color, max_turns: u32) -> Self {
        let (sender, heard) = channel();
        if mode == Mode::Quiet {
            return Self { mode, heard: None };
        }
        let view = View::new(mode, color, max_turns, Instant::now());
        let drawer = thread::Builder::new().name("console".into());
        // An episode nobody can watch is better than none.
        let drawn = drawer.spawn(move || draw(&heard, view, out));
        Self { mode, heard: drawn.is_ok().then_some(sender) }
    }

    /// Shows what happened. Does not wait for it to be seen, but at the end.
    pub(crate) fn event(&self, event: &Event) {
        match event {
            Event::Saved { .. } | Event::Unknown => {}
            // The first messages may be long, and are not shown.
            Event::Started(started) => self.tell(Heard::Started(introduced(started))),
            event => self.tell(Heard::Event(Box::new(event.clone()))),
        }
        if matches!(event, Event::Ended(_)) {
            self.wait(Heard::Flush);
        }
    }

    fn tell(&self, heard: Heard) {
        if let Some(sender) = &self.heard {
            let _ = sender.send(heard);
        }
    }

    fn wait(&self, ask: impl FnOnce(Sender<()>) -> Heard) {
        if let Some(sender) = &self.heard {
            let (done, answer) = channel();
            if sender.send(ask(done)).is_ok() {
                let _ = answer.recv_timeout(PATIENCE);
            }
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.wait(Heard::Close);
    }
}

impl Listener for Console {
    fn hear(&self, delta: Delta<'_>) {
        let piece = match (self.mode, delta) {
            (Mode::Quiet, _) => return,
            (_, Delta::Retry { attempt, wait, why }) => {
                Piece::Retry(Retry { attempt, wait, why: why.to_owned() })
            }
            (Mode::Plain, _) | (_, Delta::Arguments(_)) => return,
            (Mode::Live, Delta::Reasoning(text)) => Piece::Reasoning(text.to_owned()),
            (Mode::Live, Delta::Text(text)) => Piece::Text(text.to_owned()),
            (Mode::Live, Delta::Call(tool)) => Piece::Call(tool.to_owned()),
        };
        self.tell(Heard::Piece(piece));
    }
}

/// Draws what is heard, and the line at the bottom in between, until it is told to stop.
fn draw(heard: &Receiver<Heard>, mut view: View, mut out: impl Write) {
    loop {
        let next = match view.is_waiting() {
            true => heard.recv_timeout(BEAT),
            false => heard.recv().map_err(RecvTimeoutError::from),
        };
        let now = Instant::now();
        // Whoever waits for an answer notices when it is dropped, which is after everything is shown.
        let answer = take_in(&mut view, next, now);
        view.tick(columns(), now);
        // A closed standard error is no reason to fail.
        let _ = out.write_all(view.take().as_bytes()).and_then(|()| out.flush());
        if answer.is_break() {
            return;
        }
    }
}

type Answer = Option<Sender<()>>;

fn take_in(
    view: &mut View,
    next: Result<Heard, RecvTimeoutError>,
    now: Instant,
) -> ControlFlow<Answer, Answer> {
    match next {
        Ok(Heard::Started(model)) => view.started(&model, now),
        Ok(Heard::Event(event)) => view.event(&event, now),
        Ok(Heard::Piece(piece)) => view.piece(&piece, now),
        Ok(Heard::Flush(answer)) => return Continue(Some(answer)),
        Ok(Heard::Close(answer)) => {
            view.close();
            return Break(Some(answer));
        }
        Err(RecvTimeoutError::Disconnected) => {
            view.close();
            return Break(None);
        }
        Err(RecvTimeoutError::Timeout) => {}
    }
    Continue(None)
}

/// How wide the terminal is; the usual width where it does not say.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    }
}

/// The model, and how it writes calls if that is out of the ordinary.
fn introduced(started: &Started) -> String {
    let format = started.settings.pointer("/model/tool_format").and_then(Value::as_str);
    match format {
        None | Some("auto" | "native") => started.model.clone(),
        Some(format) => format!("{}, tool calls {format}", started.model),
    }
}

#[cfg(test)]
mod tests;
