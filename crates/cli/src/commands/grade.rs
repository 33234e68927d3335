//! `grade`: reads lines of answers and writes lines of grades, in the same order, on all CPUs.
//!
//! Holds only a few batches of lines in memory, however long the input is.

mod args;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use anyhow::{Context, Result};
use grade::lines::{Kind, LineError, grade_line, id_of};
use serde::Serialize;
use serde_json::value::RawValue;

pub(crate) use self::args::GradeArgs;
use crate::{
    console::output,
    exit::{self, Exit, UsageError},
};

/// The longest line in bytes: enough for a megabyte in every field with each character escaped.
const MAX_LINE: usize = 16 << 20;

/// Lines per batch, and bytes after which a batch is full.
const BATCH: (usize, usize) = (64, 64 << 10);

/// Grades until the input ends.
pub(crate) async fn run(args: GradeArgs) -> Result<Exit> {
    let input = open(&args.input)?;
    // On another thread, so that Ctrl-C works while input is awaited.
    let summary = tokio::task::spawn_blocking(move || {
        let replies = start(args.kind, input).context("cannot start threads")?;
        write(replies).with_context(|| format!("grading {}", args.input.display()))
    });
    let summary = summary.await??;
    if !args.quiet {
        output::note(&summary.to_string());
    }
    match summary.first_bad {
        None => Ok(Exit::Done),
        Some(first) => Err(UsageError(format!(
            "{} of {} lines cannot be graded; the first is line {}{}: {}",
            summary.bad,
            summary.lines,
            first.line,
            first.id.map(|id| format!(" (id {})", id.get())).unwrap_or_default(),
            first.error
        ))
        .into()),
    }
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>, UsageError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let invalid =
        |why: String| UsageError(format!("--input: cannot read {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| invalid(error.to_string()))?;
    match file.metadata().is_ok_and(|data| data.is_dir()) {
        true => Err(invalid("it is a directory".into())),
        false => Ok(Box::new(file)),
    }
}

/// The grades of a batch, once they are there.
type Grades = Receiver<Vec<Result<grade::lines::Graded, Bad>>>;

/// Lines with their numbers, and where to send their grades.
struct Batch {
    lines: Vec<(u64, Line)>,
    reply: SyncSender<Vec<Result<grade::lines::Graded, Bad>>>,
}

/// A line of the input.
enum Line {
    Text(Vec<u8>),
    TooLong,
}

/// A line that cannot be graded, as JSON.
#[derive(Clone, Debug, Serialize)]
struct Bad {
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Box<RawValue>>,
    error: String,
}

/// Starts one reading thread and one grading thread per CPU. The result yields the grades of batches in the order of
/// the lines; all threads end when it is dropped, the reader after its next line.
fn start(kind: Kind, input: Box<dyn Read + Send>) -> io::Result<Receiver<io::Result<Grades>>> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let (hand_out, work) = sync_channel::<Batch>(workers);
    let (in_order, replies) = sync_channel(2 * workers);
    let work = Arc::new(Mutex::new(work));
    for _ in 0..workers {
        let work = Arc::clone(&work);
        thread::Builder::new().name("grade".into()).spawn(move || grade_batches(kind, &work))?;
    }
    thread::Builder::new().name("read".into()).spawn(move || {
        read_batches(BufReader::with_capacity(BATCH.1, input), &hand_out, &in_order)
    })?;
    Ok(replies)
}

fn read_batches(
    mut input: BufReader<Box<dyn Read + Send>>,
    hand_out: &SyncSender<Batch>,
    in_order: &SyncSender<io::Result<Grades>>,
) {
    let mut read = 0;
    loop {
        let lines = match next_batch(&mut input, &mut read) {
            Ok(lines) if lines.is_empty() => return,
            Ok(lines) => lines,
            Err(error) => {
                // The writer may have ended.
                let _ = in_order.send(Err(error));
                return;
            }
        };
        let (reply, replied) = sync_channel(1);
        if in_order.send(Ok(replied)).is_err() || hand_out.send(Batch { lines, reply }).is_err() {
            return;
        }
    }
}

/// The lines that are available already, at least one until the end of input. `read` counts all lines; blank ones are
/// skipped.
fn next_batch(input: &mut BufReader<impl Read>, read: &mut u64) -> io::Result<Vec<(u64, Line)>> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while let Some(mut line) = next_line(input)? {
        *read += 1;
        if let Line::Text(text) = &mut line {
            if *read == 1 && text.starts_with(b"\xef\xbb\xbf") {
                text.drain(..3);
            }
            bytes += text.len();
        }
        if !matches!(&line, Line::Text(text) if text.trim_ascii().is_empty()) {
            lines.push((*read, line));
        }
        // Do not wait for more: a client may send one line and wait for its grade.
        let full = lines.len() >= BATCH.0 || bytes >= BATCH.1 || !input.buffer().contains(&b'\n');
        if full && !lines.is_empty() {
            break;
        }
    }
    Ok(lines)
}

fn next_line(input: &mut BufReader<impl Read>) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let limit = MAX_LINE as u64 + 1;
    if input.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_none() && line.len() > MAX_LINE {
        input.skip_until(b'\n')?;
        return Ok(Some(Line::TooLong));
    }
    Ok(Some(Line::Text(line)))
}

fn grade_batches(kind: Kind, work: &Mutex<Receiver<Batch>>) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Batch { lines, reply }) = next else { return };
        let grades = lines.iter().map(|(number, line)| grade_one(kind, *number, line)).collect();
        // The writer may have ended.
        let _ = reply.send(grades);
    }
}

fn grade_one(kind: Kind, number: u64, line: &Line) -> Result<grade::lines::Graded, Bad> {
    let bad = |id, error| Bad { line: number, id, error };
    match line {
        Line::TooLong => Err(bad(None, format!("longer than {} MiB", MAX_LINE >> 20))),
        Line::Text(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            grade_line(kind, &text)
                .map_err(|error: LineError| bad(id_of(&text), exit::describe(&error.into())))
        }
    }
}

/// Counts and the total score.
#[derive(Debug, Default)]
struct Summary {
    lines: u64,
    bad: u64,
    first_bad: Option<Bad>,
    total: f64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let graded = self.lines - self.bad;
        write!(f, "{graded} graded")?;
        if graded > 0 {
            write!(f, ", mean score {:.4}", self.total / graded as f64)?;
        }
        if self.bad > 0 {
            write!(f, ", {} bad", self.bad)?;
        }
        Ok(())
    }
}

/// Writes the grades batch by batch.
fn write(replies: Receiver<io::Result<Grades>>) -> Result<Summary> {
    let mut summary = Summary::default();
    for reply in replies {
        let grades = reply
            .context("cannot read the input")?
            .recv()
            .context("a grading thread ended early")?;
        let mut text = String::new();
        for grade in grades {
            summary.lines += 1;
            match grade {
                Ok(grade) => {
                    summary.total += grade.score;
                    text.push_str(&grade.json);
                }
                Err(bad) => {
                    summary.bad += 1;
                    text.push_str(&serde_json::to_string(&bad)?);
                    summary.first_bad.get_or_insert(bad);
                }
            }
            text.push('\n');
        }
        output::print_raw(&trajectory::escape_hidden(&text))?;
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<Vec<String>> {
        let mut input = BufReader::with_capacity(BATCH.1, text);
        let (mut batches, mut read) = (Vec::new(), 0);
        loop {
            let batch = next_batch(&mut input, &mut read).unwrap();
            if batch.is_empty() {
                return batches;
            }
            let shown = batch.into_iter().map(|(number, line)| match line {
                Line::Text(bytes) if bytes.len() > 9 => "x".repeat(bytes.len()),
                Line::Text(bytes) => format!("{number}{}", String::from_utf8(bytes).unwrap()),
                Line::TooLong => "too long".into(),
            });
            batches.push(shown.collect());
        }
    }

    #[test]
    fn lines_come_in_batches() {
        assert_eq!(lines(b"a\nb\nc"), [vec!["1a", "2b"], vec!["3c"]]);
        assert_eq!(lines(b"a\n"), [["1a"]]);
        assert!(lines(b"").is_empty());
        let many = lines(&b"x\n".repeat(BATCH.0 + 1));
        assert_eq!(many.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH.0, 1]);
    }

    #[test]
    fn blank_lines_are_counted_and_skipped() {
        assert_eq!(lines(b"\xef\xbb\xbfa\n \r\n\nb\n\n"), [vec!["1a", "4b"]]);
        assert!(lines(b"\n\n").is_empty());
    }

    #[test]
    fn a_line_without_end_is_not_stored() {
        let mut text = vec![b'x'; MAX_LINE];
        text.extend(b"\n");
        text.extend(vec![b'x'; MAX_LINE + 1]);
        text.extend(b"\nz");
        let lines = lines(&text).concat();
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [MAX_LINE, 8, 2]);
    }
}
