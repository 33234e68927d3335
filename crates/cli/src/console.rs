//! Shows an episode on standard error as it runs: streamed on a terminal, in plain blocks elsewhere.
//!
//! A thread of its own draws, so that a blocked or closed terminal never delays the episode.

mod action;
pub(crate) mod build;
mod format;
pub(crate) mod output;
pub(crate) mod progress;
mod status;
mod styled;
pub(crate) mod terminal;
mod view;

use std::{
    io::{self, Write},
    ops::ControlFlow::{self, Break, Continue},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use agent::Limits;
use model::{Delta, Listener, ToolFormat};
pub(crate) use startup::sanitize;

pub(crate) use self::format::counted;
use trajectory::{Event, Started};

use self::{
    status::INTERVAL,
    view::{Retry, StreamItem, View},
};
use crate::settings::{Color, recorded::RecordedSettings};

/// How long a blocked terminal may delay the end of an episode.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// How an episode is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Streamed, with a status line at the bottom: for a terminal.
    Live,
    /// Streamed without a status line, which could not be redrawn.
    Stream,
    /// One block per event, without control sequences.
    Plain,
    /// Not at all.
    Quiet,
}

/// What is known about an episode before it starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpisodeInfo {
    /// Its limits.
    pub(crate) limits: Limits,
    /// Time that earlier processes spent in calls to the model and to tools, for a resumed one.
    pub(crate) time_before: Duration,
    /// The turns of the recorded steps, for a resumed one; 0 for a step outside any turn.
    pub(crate) steps_before: Vec<u32>,
}

/// Shows an episode. Dropping it shows the rest.
#[derive(Debug)]
pub(crate) struct Console {
    mode: Mode,
    sender: Option<Sender<ViewMessage>>,
}

/// A message to the drawing thread.
#[derive(Debug)]
enum ViewMessage {
    Started(String),
    Event(Box<Event>),
    StreamItem(StreamItem),
    /// Show everything, then drop the sender.
    Flush(Sender<()>),
    /// The same, then end the thread.
    Close(Sender<()>),
}

impl Console {
    /// Shows on standard error.
    pub(crate) fn new(mode: Mode, color: Color, info: &EpisodeInfo) -> Self {
        Self::onto(io::stderr(), mode, color, info)
    }

    fn onto(
        out: impl Write + Send + 'static,
        mode: Mode,
        color: Color,
        info: &EpisodeInfo,
    ) -> Self {
        let (sender, messages) = channel();
        if mode == Mode::Quiet {
            return Self { mode, sender: None };
        }
        let view = View::new(mode, color, info, Instant::now());
        let drawer = thread::Builder::new().name("console".into());
        // Without the thread, the episode runs unseen.
        let drawn = drawer.spawn(move || draw(&messages, view, out));
        Self { mode, sender: drawn.is_ok().then_some(sender) }
    }

    /// Shows an event. Waits until it is drawn only at the end of the episode.
    pub(crate) fn event(&self, event: &Event) {
        match event {
            Event::Changed(_)
            | Event::Saved { .. }
            | Event::Reconfigured { .. }
            | Event::Unknown => {}
            // The first messages may be long and are not shown.
            Event::Started(started) => self.send(ViewMessage::Started(model_title(started))),
            event => self.send(ViewMessage::Event(Box::new(event.clone()))),
        }
        if matches!(event, Event::Ended(_)) {
            self.wait(ViewMessage::Flush);
        }
    }

    fn send(&self, message: ViewMessage) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(message);
        }
    }

    fn wait(&self, ask: impl FnOnce(Sender<()>) -> ViewMessage) {
        if let Some(sender) = &self.sender {
            let (done, answer) = channel();
            if sender.send(ask(done)).is_ok() {
                let _ = answer.recv_timeout(FLUSH_TIMEOUT);
            }
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.wait(ViewMessage::Close);
    }
}

impl Listener for Console {
    fn on_delta(&self, delta: Delta<'_>) {
        let piece = match (self.mode, delta) {
            (Mode::Quiet, _) => return,
            (_, Delta::Retry { attempt, wait, why }) => {
                StreamItem::Retry(Retry { attempt, wait, why: why.to_owned() })
            }
            (Mode::Plain, _) | (_, Delta::Arguments(_)) => return,
            (_, Delta::Reasoning(text)) => StreamItem::Reasoning(text.to_owned()),
            (_, Delta::Text(text)) => StreamItem::Text(text.to_owned()),
            (_, Delta::Call(tool)) => StreamItem::Call(tool.to_owned()),
        };
        self.send(ViewMessage::StreamItem(piece));
    }
}

/// Draws messages, and the status line in between, until the view is closed.
fn draw(messages: &Receiver<ViewMessage>, mut view: View, mut out: impl Write) {
    loop {
        let next = match view.is_waiting() {
            true => messages.recv_timeout(INTERVAL),
            false => messages.recv().map_err(RecvTimeoutError::from),
        };
        let now = Instant::now();
        // The caller waits until the sender is dropped, after everything is shown.
        let answer = apply(&mut view, next, now);
        view.tick(columns(), now);
        // A closed standard error is ignored.
        let _ = out.write_all(view.take().as_bytes()).and_then(|()| out.flush());
        if answer.is_break() {
            return;
        }
    }
}

type Answer = Option<Sender<()>>;

fn apply(
    view: &mut View,
    next: Result<ViewMessage, RecvTimeoutError>,
    now: Instant,
) -> ControlFlow<Answer, Answer> {
    match next {
        Ok(ViewMessage::Started(model)) => view.started(&model, now),
        Ok(ViewMessage::Event(event)) => view.event(&event, now),
        Ok(ViewMessage::StreamItem(piece)) => view.piece(&piece, now),
        Ok(ViewMessage::Flush(answer)) => return Continue(Some(answer)),
        Ok(ViewMessage::Close(answer)) => {
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

/// The width of the terminal; 80 where it is unknown.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    }
}

/// The model, and its tool-call format if it is not the native one.
fn model_title(started: &Started) -> String {
    let format = RecordedSettings::read(&started.settings).and_then(|it| it.model.tool_format);
    match format {
        None | Some(ToolFormat::Auto | ToolFormat::Native) => started.model.clone(),
        Some(format) => format!("{}, tool calls {format}", started.model),
    }
}

#[cfg(test)]
mod tests;
