//! `grade`: lines of answers in, lines of grades out, in the same order, on all processors.
//!
//! Never holds more than a few batches of lines, however long the input is. It knows no grader; what a line must
//! hold is the crate `grade`'s business.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use anyhow::{Context, Result};
use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser};
use grade::lines::{Kind, LineError, grade_line};
use serde::Serialize;

use crate::{
    exit::{self, Exit, Usage},
    output,
};

/// The longest line: an answer of a megabyte in every field, even with each character escaped, is shorter.
const LONGEST: usize = 16 << 20;

/// Lines that travel together, and about how many bytes.
const BATCH: (usize, usize) = (64, 64 << 10);

/// Options of `grade`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  llm-in-sandbox grade math --input answers.jsonl > grades.jsonl
  echo '{\"id\": 1, \"gold\": \"3/4\", \"pred\": \"\\\\boxed{0.75}\"}' | llm-in-sandbox grade math --input -
  llm-in-sandbox grade ifbench --input responses.jsonl | jq -c 'select(.loose | not)'

Fields of a line, by kind; an `id` comes back with the grade:
  math           gold, pred                                   -> score
  choice         agent_answer, ground_truth                   -> score
  ifbench        instruction_id, kwargs, response             -> strict, loose, loose8
  rouge          reference, prediction                        -> fmeasure
  context        domain, qa_type, ground_truth, agent_answer  -> score
  judge-verdict  response                                     -> verdict

A line that cannot be graded becomes {\"line\": N, \"error\": ...} in its place. The others are graded,
and the exit code is 2.")]
pub(crate) struct GradeArgs {
    /// How to grade
    #[arg(value_parser = kinds())]
    kind: Kind,
    /// The answers, one JSON object a line; `-` is standard input
    #[arg(long, value_name = "FILE.jsonl")]
    input: PathBuf,
    /// Say nothing about how many lines there were and their mean score
    #[arg(long, short)]
    quiet: bool,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name)).try_map(|name| name.parse::<Kind>())
}

/// Grades line by line until the input ends.
pub(crate) async fn run(args: GradeArgs) -> Result<Exit> {
    let input = open(&args.input)?;
    // Waiting for input that never comes must not keep Ctrl-C from working.
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
        Some(first) => Err(Usage(format!(
            "{} of {} lines cannot be graded, the first of them is line {}: {}",
            summary.bad, summary.lines, first.line, first.error
        ))
        .into()),
    }
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>, Usage> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let refuse = |why: String| Usage(format!("--input: cannot read {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| refuse(error.to_string()))?;
    match file.metadata().is_ok_and(|data| data.is_dir()) {
        true => Err(refuse("it is a directory".into())),
        false => Ok(Box::new(file)),
    }
}

/// A batch's grades, on their way.
type Reply = Receiver<Vec<Result<grade::lines::Graded, Bad>>>;

/// Some lines with their numbers, and where their grades go.
struct Batch {
    lines: Vec<(u64, Line)>,
    reply: SyncSender<Vec<Result<grade::lines::Graded, Bad>>>,
}

/// A line of the input.
enum Line {
    Text(Vec<u8>),
    TooLong,
}

/// A line that cannot be graded, as it is written.
#[derive(Clone, Debug, Serialize)]
struct Bad {
    line: u64,
    error: String,
}

/// Starts a thread that reads and one for each processor that grades. What comes out are the batches' replies
/// in the order of the lines; all threads end when it is dropped, the reader with its next line.
fn start(kind: Kind, input: Box<dyn Read + Send>) -> io::Result<Receiver<io::Result<Reply>>> {
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
    in_order: &SyncSender<io::Result<Reply>>,
) {
    let mut read = 0;
    loop {
        let lines = match next_batch(&mut input, &mut read) {
            Ok(lines) if lines.is_empty() => return,
            Ok(lines) => lines,
            Err(error) => {
                // Nobody listens any more: then nobody needs to know.
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

/// The lines that are there already, at least one while there are any. `read` counts them, blank ones too, though these
/// are left out.
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
        // Another line may be long in coming: who writes one and waits for its grade must not wait in vain.
        let full = lines.len() >= BATCH.0 || bytes >= BATCH.1 || !input.buffer().contains(&b'\n');
        if full && !lines.is_empty() {
            break;
        }
    }
    Ok(lines)
}

fn next_line(input: &mut BufReader<impl Read>) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let most = LONGEST as u64 + 1;
    if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_none() && line.len() > LONGEST {
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
        // The writer has left: the next batch will not come.
        let _ = reply.send(grades);
    }
}

fn grade_one(kind: Kind, number: u64, line: &Line) -> Result<grade::lines::Graded, Bad> {
    let bad = |error| Bad { line: number, error };
    match line {
        Line::TooLong => Err(bad(format!("longer than {} MiB", LONGEST >> 20))),
        Line::Text(bytes) => grade_line(kind, &String::from_utf8_lossy(bytes))
            .map_err(|error: LineError| bad(exit::line(&error.into()))),
    }
}

/// What was graded.
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

/// Writes the grades as they come, each batch at once.
fn write(replies: Receiver<io::Result<Reply>>) -> Result<Summary> {
    let mut summary = Summary::default();
    for reply in replies {
        let grades = reply.context("cannot read on")?.recv().context("a grader ended early")?;
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
        output::print(&text)?;
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
    fn blank_lines_are_counted_and_left_out() {
        assert_eq!(lines(b"\xef\xbb\xbfa\n \r\n\nb\n\n"), [vec!["1a", "4b"]]);
        assert!(lines(b"\n\n").is_empty());
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let mut text = vec![b'x'; LONGEST];
        text.extend(b"\n");
        text.extend(vec![b'x'; LONGEST + 1]);
        text.extend(b"\nz");
        let lines = lines(&text).concat();
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [LONGEST, 8, 2]);
    }
}
