//! The measurements of a server, and the targets they are compared with.

use serde::Serialize;

use super::model::{ChatFigures, EpisodeFigures};
use crate::{Machine, round, sandbox::Spread};

/// The measurements. What was not measured yet is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct ServeReport {
    /// The machine.
    pub machine: Machine,
    /// Whether everything was measured.
    pub complete: bool,
    /// Sandboxes created by one client.
    pub create: Option<CreateRate>,
    /// The server's memory; `None` also where the system does not tell it.
    pub memory: Option<ServerMemory>,
    /// Most descriptors that the server had open, as far as it was looked at.
    pub descriptors: Option<usize>,
    /// The same sandboxes in this process, without a server.
    pub in_process_create: Option<CreateRate>,
    /// By how much creating all took longer over HTTP.
    pub create_ratio: Option<f64>,
    /// Running `echo hi` over HTTP: a new `bash`, and its output as a stream.
    pub exec_ms: Option<Spread>,
    /// The same in this process, without a server.
    pub in_process_exec_ms: Option<Spread>,
    /// What HTTP adds to the median, in milliseconds.
    pub http_adds_ms: Option<f64>,
    /// By how much the median over HTTP is longer.
    pub exec_ratio: Option<f64>,
    /// Streams open at once, each with the output of a running program.
    pub streams: Option<StreamFigures>,
    /// Concurrent chats, each answered by an episode in a sandbox.
    pub chats: Option<ChatFigures>,
    /// Streams of events of running episodes, open at once.
    pub events: Option<StreamFigures>,
    /// Episodes that are kept, and the server's memory meanwhile.
    pub episodes: Option<EpisodeFigures>,
}

/// Sandboxes created as fast as they are requested.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CreateRate {
    /// Number of sandboxes, all alive at the end.
    pub count: usize,
    /// Concurrent requests.
    pub concurrency: usize,
    /// Time for all.
    pub seconds: f64,
    /// Sandboxes created in a second.
    pub per_second: f64,
    /// Requests that failed, in all rounds.
    pub errors: usize,
}

/// Streams open at once.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StreamFigures {
    /// Number of streams requested.
    pub count: usize,
    /// Time until each had its first message.
    pub open_s: f64,
    /// Streams that failed.
    pub errors: usize,
}

/// Resident memory of the server's process without sandboxes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerMemory {
    /// After the first sandboxes or episodes were created and ended, in KiB.
    pub before_kib: u64,
    /// After all were, in KiB.
    pub after_kib: u64,
    /// `after_kib` by `before_kib`.
    pub ratio: f64,
    /// How many were created and ended in all.
    pub count: usize,
}

impl ServerMemory {
    pub(super) fn new(before_kib: u64, after_kib: u64, count: usize) -> Self {
        let ratio = round(after_kib as f64 / before_kib.max(1) as f64);
        Self { before_kib, after_kib, ratio, count }
    }
}

/// Sandboxes created per second, at least.
const MIN_CREATES: f64 = 200.0;
/// What HTTP may add to the median of a command, in milliseconds.
const MAX_HTTP_ADDS_MS: f64 = 3.0;
/// By how much the server's memory may grow.
const MAX_GROWTH: f64 = 1.05;

impl Default for ServeReport {
    fn default() -> Self {
        Self {
            machine: Machine::current(),
            complete: false,
            create: None,
            memory: None,
            descriptors: None,
            in_process_create: None,
            create_ratio: None,
            exec_ms: None,
            in_process_exec_ms: None,
            http_adds_ms: None,
            exec_ratio: None,
            streams: None,
            chats: None,
            events: None,
            episodes: None,
        }
    }
}

impl ServeReport {
    /// The targets that were missed: 200 sandboxes created per second, commands over HTTP within 3 ms of those in this
    /// process, no errors, and the server's memory flat within 5%. What was not measured is missed.
    pub fn missed_targets(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let mut check =
            |what: &str, value: Option<f64>, unit: &str, met: fn(f64) -> bool| match value {
                Some(value) if met(value) => {}
                Some(value) => missed.push(format!("{what}: {value}{unit}")),
                None => missed.push(format!("{what}: not measured")),
            };
        let rate = self.create.map(|create| create.per_second);
        check("sandboxes created per second, at least 200", rate, "", |rate| rate >= MIN_CREATES);
        check("HTTP adds to a command, at most 3 ms", self.http_adds_ms, " ms", |time| {
            time <= MAX_HTTP_ADDS_MS
        });
        let kept = self.episodes.and_then(|episodes| episodes.memory);
        for (what, memory) in [("sandboxes", self.memory), ("episodes", kept)] {
            let what = format!("memory over {what}, at most 1.05 times as much");
            check(&what, memory.map(|memory| memory.ratio), "", |ratio| ratio <= MAX_GROWTH);
        }
        let errors = [
            ("creating sandboxes", self.create.map(|part| part.errors)),
            ("streams", self.streams.map(|part| part.errors)),
            ("chats", self.chats.map(|part| part.errors)),
            ("streams of events", self.events.map(|part| part.errors)),
            ("episodes", self.episodes.map(|part| part.errors)),
        ];
        for (what, errors) in errors {
            let what = format!("errors of {what}, at most 0");
            check(&what, errors.map(|errors| errors as f64), "", |errors| errors == 0.0);
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ServeReport {
        let memory = Some(ServerMemory::new(1000, 1050, 10));
        let streams = Some(StreamFigures { count: 9, open_s: 1.0, errors: 0 });
        let create =
            CreateRate { count: 500, concurrency: 16, seconds: 2.5, per_second: 200.0, errors: 0 };
        ServeReport {
            create: Some(create),
            memory,
            http_adds_ms: Some(3.0),
            streams,
            events: streams,
            chats: Some(ChatFigures { count: 9, seconds: 1.0, per_second: 9.0, errors: 0 }),
            episodes: Some(EpisodeFigures {
                count: 9,
                seconds: 1.0,
                per_second: 9.0,
                errors: 0,
                memory,
            }),
            ..ServeReport::default()
        }
    }

    #[test]
    fn missed_targets_are_named() {
        assert_eq!(good().missed_targets(), [""; 0]);
        assert_eq!(ServeReport::default().missed_targets().len(), 9);
        let slow = CreateRate { per_second: 199.9, errors: 2, ..good().create.unwrap() };
        let grown = ServerMemory::new(1000, 1051, 10);
        let report = ServeReport {
            create: Some(slow),
            http_adds_ms: Some(3.01),
            memory: Some(grown),
            ..good()
        };
        let missed = report.missed_targets();
        assert_eq!(missed.len(), 4, "{missed:?}");
        assert!(missed[0].contains("199.9") && missed[1].ends_with("3.01 ms"), "{missed:?}");
        let cut = StreamFigures { errors: 1, ..good().events.unwrap() };
        assert_eq!(ServeReport { events: Some(cut), ..good() }.missed_targets().len(), 1);
    }
}
