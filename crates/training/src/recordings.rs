//! Recorded episodes as conversations: event logs, and trajectories of this program or of the reference implementation.
//!
//! Reads files, bounded; knows no tokens. Files that cannot be read are reported and skipped.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use problems::Task;
use sandbox::Network;
use trajectory::{
    Arguments, Assistant, Content, Event, Line, Message, Outcome, Step, THEN_SUBMIT, ToolCall,
    ToolResult, Trajectory,
};

use crate::{
    file_error::FileError,
    scores::{self, ScoreIndex},
};

/// The maximum size of a file, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// The maximum depth of directories, and number of files below one.
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 1_000_000;

/// A submitted conversation, from the first message to the last response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conversation {
    /// The file it comes from.
    pub(crate) path: PathBuf,
    /// Its messages; the last one is a response of the model.
    pub(crate) messages: Vec<Message>,
    /// The score of its answer, where it is recorded.
    pub(crate) score: Option<f64>,
}

/// Conversations, and what was skipped.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recordings {
    /// The conversations, in the order of their files.
    pub(crate) conversations: Vec<Conversation>,
    /// The skipped files, each with the reason.
    pub(crate) skipped: Vec<String>,
}

/// Reads all recorded episodes at these paths. For trajectories without their first messages, the task's prompt is
/// rendered.
pub(crate) fn read(paths: &[PathBuf], task: &Task) -> Result<Recordings, FileError> {
    let mut files = Vec::new();
    for path in paths {
        collect_files(path, 0, &mut files).map_err(FileError::new("read", path))?;
    }
    let (mut recordings, mut scores) = (Recordings::default(), ScoreIndex::default());
    for path in files {
        match read_file(&path, task) {
            Err(why) => recordings.skipped.push(format!("{}: {why}", path.display())),
            Ok(RecordedFile { conversations, score }) => {
                // The score of a file with several episodes belongs to none of them.
                let only = conversations.len() == 1;
                let score = only.then(|| score.or_else(|| scores.score(&path))).flatten();
                for messages in conversations {
                    match messages.and_then(until_submit) {
                        Ok(messages) => {
                            let path = path.clone();
                            recordings.conversations.push(Conversation { path, messages, score });
                        }
                        Err(why) => recordings.skipped.push(format!("{}: {why}", path.display())),
                    }
                }
            }
        }
    }
    Ok(recordings)
}

/// Collects the recordings below a directory, sorted by name. Links to directories are not followed.
fn collect_files(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if depth == 0 && fs::metadata(path)?.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<fs::DirEntry> = fs::read_dir(path)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        // Held-out episodes of a training run must not be trained on.
        let held_out = entry.file_name().to_string_lossy().starts_with("validation-");
        if kind.is_dir() && depth < MAX_DEPTH && !held_out {
            collect_files(&path, depth + 1, files)?;
        } else if kind.is_file() && is_recording(&path) {
            if files.len() >= MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files")));
            }
            files.push(path);
        }
    }
    Ok(())
}

/// Run directories contain other JSON files as well; recordings have these names.
fn is_recording(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.ends_with(".jsonl") && name != scores::FILE
        || name == "trajectory.json"
        || name.ends_with(".trajectory.json")
}

/// A file of recorded episodes.
struct RecordedFile {
    /// The conversations, each with the reason if it is unusable.
    conversations: Vec<Result<Vec<Message>, String>>,
    /// The score in the file itself.
    score: Option<f64>,
}

fn read_file(path: &Path, task: &Task) -> Result<RecordedFile, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let size =
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if size as u64 > MAX_BYTES {
        return Err(format!("more than {MAX_BYTES} bytes"));
    }
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        let lines = trajectory::read(&text).map_err(|error| error.to_string())?;
        let conversations = split_episodes(&lines).into_iter().map(from_events).collect();
        return Ok(RecordedFile { conversations, score: None });
    }
    let record: Trajectory = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let score = ["score", "reward"].iter().find_map(|key| record.metadata.get(*key)?.as_f64());
    Ok(RecordedFile { conversations: vec![from_trajectory(&record, task)], score })
}

/// The lines of each episode of a file.
fn split_episodes(lines: &[Line]) -> Vec<&[Line]> {
    let is_start = |line: &Line| matches!(line.event, Event::Started(_));
    let starts: Vec<usize> = (0..lines.len()).filter(|at| is_start(&lines[*at])).collect();
    let ends = starts.iter().skip(1).copied().chain([lines.len()]);
    starts.iter().zip(ends).map(|(start, end)| &lines[*start..end]).collect()
}

/// The conversation of an episode that was submitted.
fn from_events(lines: &[Line]) -> Result<Vec<Message>, String> {
    let ended = lines.iter().rev().find_map(|line| match &line.event {
        Event::Ended(ended) => Some(&ended.outcome),
        _ => None,
    });
    match ended {
        Some(Outcome::Submitted) => {}
        Some(other) => {
            return Err(format!("the episode was not submitted: {}", other.name()));
        }
        None => return Err("the episode has no end".into()),
    }
    if trajectory::compacted(lines) > 0 {
        return Err("its context was compacted".into());
    }
    Ok(trajectory::history(lines).0)
}

fn from_trajectory(record: &Trajectory, task: &Task) -> Result<Vec<Message>, String> {
    match record.metadata.get("outcome").and_then(serde_json::Value::as_str) {
        None | Some("submitted") => {}
        Some(other) => return Err(format!("the episode was not submitted: {other}")),
    }
    let stored = record.metadata.get("messages").cloned();
    let stored: Option<Vec<Message>> =
        stored.and_then(|stored| serde_json::from_value(stored).ok());
    let mut messages = match stored {
        Some(messages) => messages,
        None => {
            let rendered = task.prompts.render(&record.problem_statement, &Network::None);
            rendered.map_err(|error| error.to_string())?.messages()
        }
    };
    for (step, number) in record.steps.iter().zip(1..) {
        messages.extend(turn(step, number));
    }
    Ok(messages)
}

/// A step as the response and its observation.
fn turn(step: &Step, number: usize) -> [Message; 2] {
    let id = format!("call_{number}");
    let name = step.action.function.clone();
    let arguments = match &step.action.parameters {
        serde_json::Value::Object(map) => Arguments::Object(map.clone()),
        _ => Arguments::Object(serde_json::Map::new()),
    };
    let called = !name.is_empty();
    let call = ToolCall { id: id.clone(), name: name.clone(), arguments };
    let response = Assistant {
        text: step.thought.clone(),
        reasoning: step.reasoning_content.clone(),
        calls: called.then_some(call).into_iter().collect(),
        then_submit: step.metadata.get(THEN_SUBMIT) == Some(&serde_json::Value::Bool(true)),
        ..Assistant::default()
    };
    let content = vec![Content::text(step.observation.clone())];
    let observation = match called {
        true => Message::Tool(ToolResult { call_id: id, name, content, is_error: false }),
        false => Message::User { content },
    };
    [Message::Assistant(response), observation]
}

/// The messages up to the last response, which has to submit.
fn until_submit(mut messages: Vec<Message>) -> Result<Vec<Message>, String> {
    while messages.last().is_some_and(|last| !matches!(last, Message::Assistant(_))) {
        messages.pop();
    }
    match messages.last() {
        Some(Message::Assistant(response))
            if response.then_submit || response.calls.iter().any(|call| call.name == "submit") =>
        {
            Ok(messages)
        }
        Some(_) => Err("its last response does not submit".into()),
        None => Err("it has no response".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task() -> Task {
        Task::builtin("instruct_pretrain").unwrap()
    }

    fn reference() -> serde_json::Value {
        json!({
            "problem_statement": "How many?",
            "steps": [
                {"thought": "I look.", "action": {"function": "execute_bash", "parameters": {"command": "ls"}},
                 "observation": "a b", "metadata": {"step": 1}},
                {"thought": "", "action": {"function": "submit", "parameters": {}}, "observation": "done"},
            ],
        })
    }

    #[test]
    fn trajectories_of_the_reference_implementation_become_conversations() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/trajectory.json"), reference().to_string()).unwrap();
        fs::write(dir.path().join("a/results.json"), "not a recording").unwrap();
        let recordings = read(&[dir.path().to_owned()], &task()).unwrap();
        assert_eq!((recordings.conversations.len(), recordings.skipped.len()), (1, 0));
        let messages = &recordings.conversations[0].messages;
        assert!(matches!(&messages[0], Message::System { .. }));
        assert!(
            matches!(messages.last(), Some(Message::Assistant(response)) if response.calls[0].name == "submit")
        );
        assert_eq!(messages.len(), 5, "the last observation is dropped");
        assert_eq!(recordings.conversations[0].score, None);
        let mut graded = reference();
        graded["metadata"] = json!({"score": 0.5});
        fs::write(dir.path().join("a/trajectory.json"), graded.to_string()).unwrap();
        let recordings = read(&[dir.path().to_owned()], &task()).unwrap();
        assert_eq!(recordings.conversations[0].score, Some(0.5));
    }

    #[test]
    fn a_block_that_ends_with_submit_is_a_submission() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = reference();
        let steps = record["steps"].as_array_mut().unwrap();
        steps.pop();
        steps[0]["metadata"][THEN_SUBMIT] = json!(true);
        fs::write(dir.path().join("trajectory.json"), record.to_string()).unwrap();
        let recordings = read(&[dir.path().to_owned()], &task()).unwrap();
        let last = recordings.conversations[0].messages.last();
        assert!(matches!(last, Some(Message::Assistant(response)) if response.then_submit));
    }

    #[test]
    fn unfinished_episodes_are_named_and_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let mut unfinished = reference();
        unfinished["steps"].as_array_mut().unwrap().pop();
        fs::write(dir.path().join("trajectory.json"), unfinished.to_string()).unwrap();
        fs::write(dir.path().join("x.jsonl"), "nonsense\n").unwrap();
        let recordings = read(&[dir.path().to_owned()], &task()).unwrap();
        assert!(recordings.conversations.is_empty());
        assert!(recordings.skipped[0].contains("does not submit"), "{recordings:?}");
        assert!(recordings.skipped[1].contains("line 1"), "{recordings:?}");
        assert!(read(&[dir.path().join("none")], &task()).is_err());
    }
}
