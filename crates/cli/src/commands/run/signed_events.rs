//! The events of a run. The code of each line depends on all lines before it: commands of a record are run again, and a
//! conversation is continued, so events from elsewhere are not used without `--trust`.
//!
//! A line is written with its code in one step, so a process that is killed at any moment leaves signed lines, and at most a
//! partial one after them, which is dropped. The beginning of a run is a run that was killed earlier.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    sync::{Mutex, PoisonError},
};

use attempt::now_ms;
use trajectory::{Event, Line, escape_hidden};

use super::seal::{Seal, from_hex, hex};

/// How the code of a line follows its object's last field.
const FIELD: &str = ",\"seal\":\"";

/// The codes of the lines so far.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    seal: Seal,
    last: [u8; 32],
}

impl Chain {
    /// The chain of a run without events.
    pub(crate) fn new(seal: Seal) -> Self {
        Self { seal, last: [0; 32] }
    }

    /// The chain after all whole lines of a file; `None` if one of them was not written by this user at its place.
    pub(crate) fn verify(seal: Seal, text: &str) -> Option<Self> {
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut chain = Self::new(seal);
        for line in whole.split_terminator('\n') {
            let (object, code) = line.strip_suffix("\"}")?.rsplit_once(FIELD)?;
            let object = format!("{object}}}");
            if !chain.seal.verify_line(&chain.last, &object, &from_hex(code)?) {
                return None;
            }
            chain = chain.after(&object);
        }
        Some(chain)
    }

    /// The chain with this line.
    fn after(&self, object: &str) -> Self {
        Self { last: self.seal.line_code(&self.last, object), ..self.clone() }
    }

    /// The object with the code of the last line, whose text it is.
    fn signed(&self, object: &str) -> String {
        let fields = object.strip_suffix('}').unwrap_or(object);
        format!("{fields}{FIELD}{}\"}}", hex(&self.last))
    }
}

/// The file with the events of a run, which only grows.
#[derive(Debug)]
pub(crate) struct SignedEvents {
    file: File,
    end: Mutex<End>,
}

/// The end of the last whole line.
#[derive(Debug)]
struct End {
    length: u64,
    /// None in a file with lines from elsewhere: what follows them is not signed either.
    chain: Option<Chain>,
}

impl SignedEvents {
    /// Appends to a file that ends with a whole line, the last of this chain.
    pub(crate) fn new(file: File, chain: Option<Chain>) -> io::Result<Self> {
        let end = End { length: file.metadata()?.len(), chain };
        Ok(Self { file, end: Mutex::new(end) })
    }

    /// Writes an event and returns its line. A line that cannot be written whole is cut off again: half of one would spoil
    /// all that follow.
    pub(crate) fn append(&self, event: Event) -> io::Result<Line> {
        let line = Line::new(now_ms(), event);
        let object = serde_json::to_string(&line)?;
        let object = escape_hidden(&object);
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let chain = end.chain.as_ref().map(|chain| chain.after(&object));
        let text = match &chain {
            Some(chain) => chain.signed(&object),
            None => object.into_owned(),
        } + "\n";
        let mut file = &self.file;
        if let Err(error) = file.write_all(text.as_bytes()) {
            // The write that failed says more than that the file cannot be cut either.
            let _ = file.set_len(end.length).and_then(|()| file.seek(SeekFrom::Start(end.length)));
            return Err(error);
        }
        *end = End { length: end.length + text.len() as u64, chain };
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Instant};

    use super::*;

    fn seal() -> Seal {
        Seal::of(tempfile::tempdir().unwrap().path()).unwrap()
    }

    /// A file with an event for each of these turns.
    fn written(seal: &Seal, turns: std::ops::Range<u32>) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let chain = Some(Chain::new(seal.clone()));
        let log = SignedEvents::new(file.reopen().unwrap(), chain).unwrap();
        for turn in turns {
            let image = format!("an \"}} image,\"seal\":\"{turn}");
            log.append(Event::Saved { turn, image }).unwrap();
        }
        fs::read_to_string(file.path()).unwrap()
    }

    fn is_ours(seal: &Seal, text: &str) -> bool {
        Chain::verify(seal.clone(), text).is_some()
    }

    #[test]
    fn a_beginning_of_a_run_is_accepted_and_continued() {
        let seal = seal();
        let text = written(&seal, 0..3);
        assert_eq!(trajectory::read(&text).unwrap().len(), 3);
        // Killed at any moment: what is there of the last line does not count.
        for length in 0..=text.len() {
            let begun = &text[..length];
            assert!(is_ours(&seal, begun), "{begun}");
            let whole = &begun[..begun.rfind('\n').map_or(0, |end| end + 1)];
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), whole).unwrap();
            let open = fs::OpenOptions::new().append(true).open(file.path()).unwrap();
            let log = SignedEvents::new(open, Chain::verify(seal.clone(), begun)).unwrap();
            log.append(Event::Resumed { turn: 1 }).unwrap();
            let more = fs::read_to_string(file.path()).unwrap();
            assert!(more.starts_with(whole) && is_ours(&seal, &more), "{more}");
        }
    }

    #[test]
    fn lines_from_elsewhere_are_noticed() {
        let seal = seal();
        let (text, other) = (written(&seal, 0..4), written(&seal, 4..8));
        let lines: Vec<&str> = text.lines().collect();
        let forged: [(&str, Vec<&str>); 9] = [
            ("one is missing", vec![lines[0], lines[2], lines[3]]),
            ("the first is missing", lines[1..].to_vec()),
            ("two have changed places", vec![lines[0], lines[2], lines[1], lines[3]]),
            ("one is there twice", vec![lines[0], lines[0], lines[1]]),
            ("one is not signed", vec![lines[0], r#"{"v":1,"at":1,"kind":"resumed","turn":1}"#]),
            ("a code is empty", vec![r#"{"v":1,"at":1,"kind":"resumed","turn":1,"seal":""}"#]),
            ("it is empty", vec![lines[0], "", lines[1]]),
            ("one of another key", vec![lines[0], lines[1]]),
            ("of two runs", vec![lines[0], other.lines().nth(1).unwrap()]),
        ];
        for (what, lines) in forged {
            let reader = if what.contains("key") { self::seal() } else { seal.clone() };
            assert!(!is_ours(&reader, &(lines.join("\n") + "\n")), "{what}");
        }
        for at in (0..text.len()).filter(|at| text.as_bytes()[*at] != b'\n') {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            assert!(!is_ours(&seal, &String::from_utf8(bytes).unwrap()), "byte {at}");
        }
    }

    #[test]
    fn what_follows_lines_from_elsewhere_is_not_signed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = SignedEvents::new(file.reopen().unwrap(), None).unwrap();
        log.append(Event::Resumed { turn: 1 }).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(!text.contains("seal") && trajectory::read(&text).unwrap().len() == 1);
    }

    #[test]
    fn codes_take_little_time() {
        let (seal, object) = (seal(), "x".repeat(4000));
        let mut chain = Chain::new(seal);
        let begun = Instant::now();
        for _ in 0..1000 {
            chain = chain.after(&object);
        }
        println!("{:?} for a line of 4,000 bytes", begun.elapsed() / 1000);
        assert!(begun.elapsed().as_secs() < 10);
    }
}
