//! The index of an events file: where each line is, and what each turn used. Built in one pass on all processors; a file that has
//! grown is read from where it ended.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use memchr::memchr;
use trajectory::Usage;

use super::{
    light::{LightCalls, LightEvent},
    page::LONGEST_LINE,
    turns::Turn,
};
use crate::{
    ViewError,
    error::Code,
    import,
    row::{Format, State},
};

/// Bytes read at once.
const BLOCK: usize = 1 << 20;
/// Bytes for which another thread is worth its start.
const PART: u64 = 4 << 20;
/// Most lines of a file.
const MOST_LINES: usize = 20_000_000;

/// Where events are.
#[derive(Clone, Debug)]
pub(crate) enum EventStore {
    /// In a file below a directory; no link below it is followed.
    File { dir: PathBuf, file: PathBuf },
    /// In a file of another program, and which part of it.
    Converted { dir: PathBuf, file: PathBuf, format: Format, member: Option<String> },
}

impl EventStore {
    /// A file below a directory.
    pub(crate) fn file(dir: &Path, file: impl Into<PathBuf>) -> Self {
        Self::File { dir: dir.to_owned(), file: file.into() }
    }
}

#[derive(Clone, Debug)]
enum Bytes {
    File(Arc<File>),
    Memory(Arc<Vec<String>>),
}

/// A line of the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    length: u64,
}

/// The index.
#[derive(Clone, Debug)]
pub(crate) struct EventIndex {
    bytes: Bytes,
    /// Device and number of the file.
    identity: (u64, u64),
    /// Bytes of whole lines.
    size: u64,
    /// The size of the file when it was read.
    read_to: u64,
    places: Vec<Place>,
    turns: Vec<Turn>,
    /// Results of the last response so far.
    answered: usize,
    pub(crate) started: Option<u64>,
    pub(crate) reconfigured: Option<u64>,
    pub(crate) ended: Option<u64>,
    /// Time of the first and of the last event.
    pub(crate) times: Option<(u64, u64)>,
    pub(crate) calls: u64,
    /// Turns after which the files were saved.
    saved: Vec<u32>,
    /// Where the episode stands.
    pub(crate) state: State,
}

/// What is known of a line.
struct Seen {
    place: Place,
    at: u64,
    turn: Option<u32>,
    what: What,
}

enum What {
    Started,
    Responded(Box<Responded>),
    Observed { millis: u64, exit_code: Option<i32>, is_error: bool },
    Changed { files: u32 },
    Saved,
    Resumed,
    Reconfigured,
    Ended,
    Other,
}

struct Responded {
    usage: Usage,
    cost: Option<f64>,
    millis: u64,
    stop: Box<str>,
    calls: LightCalls,
}

impl EventIndex {
    /// Reads a file, or what was added to it since the index was built.
    pub(crate) fn read(store: &EventStore, before: Option<&Self>) -> Result<Self, ViewError> {
        match store {
            EventStore::Converted { dir, file, format, member } => {
                let about = dir.join(file).symlink_metadata();
                let about = about.map_err(|error| ViewError::read(&dir.join(file), &error))?;
                let identity = (about.ino(), about.mtime_nsec().unsigned_abs() ^ about.len());
                if let Some(before) = before.filter(|before| before.identity == identity) {
                    return Ok(before.clone());
                }
                let lines = import::convert(dir, file, *format, member.as_deref());
                let lines = lines.map_err(|why| {
                    let name = file.display();
                    ViewError::new(Code::Internal, format!("cannot read {name}: {why}"))
                })?;
                Ok(Self::of_memory(&Arc::new(lines), identity))
            }
            EventStore::File { dir, file } => {
                let failed = |error| ViewError::read(&dir.join(file), &error);
                let opened = results::open_below(dir, file).map_err(failed)?;
                Self::of_file(opened, before).map_err(failed)
            }
        }
    }

    fn empty(bytes: Bytes, identity: (u64, u64)) -> Self {
        Self {
            bytes,
            identity,
            size: 0,
            read_to: 0,
            places: Vec::new(),
            turns: Vec::new(),
            answered: 0,
            started: None,
            reconfigured: None,
            ended: None,
            times: None,
            calls: 0,
            saved: Vec::new(),
            state: State::Ended,
        }
    }

    fn of_memory(lines: &Arc<Vec<String>>, identity: (u64, u64)) -> Self {
        let mut index = Self::empty(Bytes::Memory(Arc::clone(lines)), identity);
        for (at, line) in lines.iter().enumerate() {
            let place = Place { offset: at as u64, length: line.len() as u64 };
            index.add(reduce(line.as_bytes(), place));
            index.size += line.len() as u64 + 1;
        }
        index
    }

    fn of_file(file: File, before: Option<&Self>) -> io::Result<Self> {
        let about = file.metadata()?;
        let identity = (about.dev(), about.ino());
        let file = Arc::new(file);
        let mut index = match before {
            Some(before) if before.identity == identity && before.size <= about.len() => {
                before.clone()
            }
            _ => Self::empty(Bytes::File(Arc::clone(&file)), identity),
        };
        for seen in scan_all(&file, index.size, about.len())? {
            index.size = seen.place.offset + seen.place.length + 1;
            index.add(seen);
        }
        index.read_to = about.len();
        Ok(index)
    }

    fn add(&mut self, seen: Seen) {
        if self.places.len() >= MOST_LINES {
            return;
        }
        self.places.push(seen.place);
        let n = self.places.len() as u64;
        if seen.at > 0 {
            let first = self.times.map_or(seen.at, |(first, _)| first);
            self.times = Some((first, seen.at));
        }
        match seen.what {
            What::Started => self.started = self.started.or(Some(n)),
            What::Reconfigured => self.reconfigured = Some(n),
            What::Ended => self.ended = Some(n),
            What::Resumed => {
                self.ended = None;
                let last = seen.turn.unwrap_or(0);
                self.turns.iter_mut().filter(|turn| turn.turn > last).for_each(Turn::drop_it);
                self.saved.retain(|turn| *turn <= last);
            }
            What::Responded(responded) => {
                self.answered = 0;
                self.calls += u64::from(responded.calls.total);
                let Responded { usage, cost, millis, stop, calls } = *responded;
                let number = seen.turn.unwrap_or(self.turns.len() as u32 + 1);
                let turn = Turn::new(number, n, seen.at, usage, cost, millis, stop, calls);
                self.turns.push(turn);
            }
            What::Observed { millis, exit_code, is_error } => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.observe(self.answered, millis, exit_code, is_error);
                    self.answered += 1;
                }
            }
            What::Changed { files } => {
                let turn = self.turns.last_mut().filter(|turn| Some(turn.turn) == seen.turn);
                if let Some(turn) = turn {
                    turn.change(n, files);
                }
            }
            What::Saved => self.saved.extend(seen.turn),
            What::Other => {}
        }
    }

    /// The turns after which the files were saved, in order.
    pub(crate) fn saved(&self) -> &[u32] {
        &self.saved
    }

    /// Whether a file has nothing that the index does not have.
    pub(crate) fn is_current(&self, about: &std::fs::Metadata) -> bool {
        self.identity == (about.dev(), about.ino()) && self.read_to == about.len()
    }

    /// Number of events.
    pub(crate) fn total(&self) -> u64 {
        self.places.len() as u64
    }

    /// Bytes of all events.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// All turns, in order.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Whether nothing will be added.
    pub(crate) fn is_complete(&self) -> bool {
        self.state != State::Running
    }

    pub(super) fn length(&self, n: u64) -> u64 {
        self.place(n).map_or(0, |place| place.length)
    }

    fn place(&self, n: u64) -> Option<Place> {
        let at = usize::try_from(n.checked_sub(1)?).ok()?;
        self.places.get(at).copied()
    }

    /// The bytes of a line, without its end.
    pub(super) fn line(&self, n: u64) -> Result<Vec<u8>, ViewError> {
        let place = self.place(n).ok_or_else(|| ViewError::not_found("event", &n.to_string()))?;
        match &self.bytes {
            Bytes::Memory(lines) => {
                let line = lines.get(place.offset as usize).map(|line| line.as_bytes().to_vec());
                line.ok_or_else(|| ViewError::not_found("event", &n.to_string()))
            }
            Bytes::File(file) => {
                let mut bytes = vec![0; place.length as usize];
                let read = file.read_exact_at(&mut bytes, place.offset);
                read.map_err(|error| ViewError::read(Path::new("the events"), &error))?;
                Ok(bytes)
            }
        }
    }
}

/// Reads all whole lines between two offsets, on several threads where there are many.
fn scan_all(file: &File, from: u64, end: u64) -> io::Result<Vec<Seen>> {
    let size = end.saturating_sub(from);
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let parts = (size / PART).clamp(1, threads.min(16));
    let bounds: Vec<u64> = (0..=parts).map(|part| from + size * part / parts).collect();
    let scan = |part: usize| scan(file, from, bounds[part], bounds[part + 1], end);
    let read = thread::scope(|scope| {
        let others: Vec<_> =
            (1..parts as usize).map(|part| scope.spawn(move || scan(part))).collect();
        let mut all = vec![scan(0)];
        all.extend(others.into_iter().map(|other| {
            other.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
        }));
        all
    });
    let mut lines = Vec::new();
    for part in read {
        lines.append(&mut part?);
    }
    Ok(lines)
}

/// Reads the whole lines that begin between `from` and `to`, of a file with lines from `base` to `end`.
fn scan(file: &File, base: u64, from: u64, to: u64, end: u64) -> io::Result<Vec<Seen>> {
    let mut block = vec![0; BLOCK];
    let mut at = if from > base { line_after(file, &mut block, from - 1, end)? } else { from };
    let mut lines = Vec::new();
    let mut start = at;
    let mut rest: Vec<u8> = Vec::new();
    while at < end && start < to {
        let wanted = block.len().min((end - at) as usize);
        let read = file.read_at(&mut block[..wanted], at)?;
        if read == 0 {
            break;
        }
        let mut used = 0;
        while let Some(length) = memchr(b'\n', &block[used..read]) {
            let line = &block[used..used + length];
            used += length + 1;
            let next = at + used as u64;
            let place = Place { offset: start, length: next - 1 - start };
            let seen = if place.length > LONGEST_LINE {
                Some(Seen { place, at: 0, turn: None, what: What::Other })
            } else if rest.is_empty() {
                seen(line, place)
            } else {
                rest.extend_from_slice(line);
                seen(&rest, place)
            };
            lines.extend(seen);
            rest.clear();
            start = next;
            if start >= to {
                return Ok(lines);
            }
        }
        // What is too long to be parsed is only measured.
        if (at + read as u64) - start <= LONGEST_LINE {
            rest.extend_from_slice(&block[used..read]);
        }
        at += read as u64;
    }
    Ok(lines)
}

/// The start of the first line after an offset.
fn line_after(file: &File, block: &mut [u8], mut at: u64, end: u64) -> io::Result<u64> {
    while at < end {
        let wanted = block.len().min((end - at) as usize);
        let read = file.read_at(&mut block[..wanted], at)?;
        if read == 0 {
            break;
        }
        if let Some(found) = memchr(b'\n', &block[..read]) {
            return Ok(at + found as u64 + 1);
        }
        at += read as u64;
    }
    Ok(end)
}

/// A line that is not blank.
fn seen(line: &[u8], place: Place) -> Option<Seen> {
    (!line.trim_ascii().is_empty()).then(|| reduce(line, place))
}

fn reduce(line: &[u8], place: Place) -> Seen {
    let Ok(event) = serde_json::from_slice::<LightEvent<'_>>(line) else {
        return Seen { place, at: 0, turn: None, what: What::Other };
    };
    let what = match &*event.kind {
        "started" => What::Started,
        "replied" => What::Responded(Box::new(Responded {
            usage: event.usage.unwrap_or_default(),
            cost: event.cost,
            millis: event.millis,
            stop: event.stop.map_or_else(|| "".into(), |stop| stop.0),
            calls: event.message.calls,
        })),
        "observed" => What::Observed {
            millis: event.millis,
            exit_code: event.exit_code,
            is_error: event.message.is_error,
        },
        "changed" => What::Changed { files: event.files.0 },
        "saved" => What::Saved,
        "resumed" => What::Resumed,
        "reconfigured" => What::Reconfigured,
        trajectory::ENDED => What::Ended,
        _ => What::Other,
    };
    Seen { place, at: event.at, turn: event.turn, what }
}
