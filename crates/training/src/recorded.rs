//! Recorded episodes as conversations: our events, and trajectories of ours or of the method's first implementation.
//!
//! Reads files, bounded; knows no tokens. What cannot be read is named and left out.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use problems::Task;
use sandbox::Network;
use trajectory::{
    Arguments, Assistant, Content, Event, Line, Message, Outcome, Step, ToolCall, ToolResult,
    Trajectory,
};

/// No file is longer.
const LONGEST: u64 = 256 << 20;

/// No directory is deeper, and none holds more.
const DEEPEST: usize = 8;
const MOST_FILES: usize = 1_000_000;

/// A conversation that ended well, from the first message to the last reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conversation {
    /// The file it comes from.
    pub(crate) path: PathBuf,
    /// Its messages; the last one is a reply.
    pub(crate) messages: Vec<Message>,
}

/// What was read, and what could not be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recorded {
    /// The conversations, in the order of their files.
    pub(crate) conversations: Vec<Conversation>,
    /// What was left out, and why.
    pub(crate) left_out: Vec<String>,
}

/// A place cannot be looked into at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct RecordedError {
    /// The place.
    pub path: PathBuf,
    /// What the system says.
    #[source]
    pub source: io::Error,
}

/// Reads all records at these places. Trajectories without their first messages are put as the task puts problems.
pub(crate) fn read(paths: &[PathBuf], task: &Task) -> Result<Recorded, RecordedError> {
    let mut files = Vec::new();
    for path in paths {
        gather(path, 0, &mut files)
            .map_err(|source| RecordedError { path: path.clone(), source })?;
    }
    let mut recorded = Recorded::default();
    for path in files {
        match of_file(&path, task) {
            Err(why) => recorded.left_out.push(format!("{}: {why}", path.display())),
            Ok(found) => {
                for messages in found {
                    match messages.and_then(finished) {
                        Ok(messages) => {
                            let path = path.clone();
                            recorded.conversations.push(Conversation { path, messages });
                        }
                        Err(why) => recorded.left_out.push(format!("{}: {why}", path.display())),
                    }
                }
            }
        }
    }
    Ok(recorded)
}

/// Files with records below a place, in the order of their names. Links are not followed into directories.
fn gather(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if depth == 0 && fs::metadata(path)?.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<fs::DirEntry> = fs::read_dir(path)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && depth < DEEPEST {
            gather(&path, depth + 1, files)?;
        } else if kind.is_file() && is_record(&path) {
            if files.len() >= MOST_FILES {
                return Err(io::Error::other(format!("more than {MOST_FILES} files")));
            }
            files.push(path);
        }
    }
    Ok(())
}

/// Directories of runs hold other files of these kinds as well; records have these names.
fn is_record(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.ends_with(".jsonl") || name == "trajectory.json" || name.ends_with(".trajectory.json")
}

/// The conversations of a file, each of them or why it is none.
type Found = Vec<Result<Vec<Message>, String>>;

fn of_file(path: &Path, task: &Task) -> Result<Found, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let size =
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if size as u64 > LONGEST {
        return Err(format!("it has more than {LONGEST} bytes"));
    }
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        let lines = trajectory::read(&text).map_err(|error| error.to_string())?;
        return Ok(episodes(&lines).into_iter().map(of_events).collect());
    }
    let record: Trajectory = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(vec![of_trajectory(&record, task)])
}

/// The lines of each episode of a file.
fn episodes(lines: &[Line]) -> Vec<&[Line]> {
    let is_start = |line: &Line| matches!(line.event, Event::Started(_));
    let starts: Vec<usize> = (0..lines.len()).filter(|at| is_start(&lines[*at])).collect();
    let ends = starts.iter().skip(1).copied().chain([lines.len()]);
    starts.iter().zip(ends).map(|(start, end)| &lines[*start..end]).collect()
}

/// The conversation of an episode that was submitted.
fn of_events(lines: &[Line]) -> Result<Vec<Message>, String> {
    let ended = lines.iter().rev().find_map(|line| match &line.event {
        Event::Ended(ended) => Some(&ended.outcome),
        _ => None,
    });
    match ended {
        Some(Outcome::Submitted) => {}
        Some(other) => {
            return Err(format!(
                "the episode ended otherwise than by submitting: {}",
                other.name()
            ));
        }
        None => return Err("the episode did not end".into()),
    }
    if trajectory::compacted(lines) > 0 {
        return Err("its results were shortened on the way".into());
    }
    Ok(trajectory::history(lines).0)
}

fn of_trajectory(record: &Trajectory, task: &Task) -> Result<Vec<Message>, String> {
    let kept = record.metadata.get("messages").cloned();
    let kept: Option<Vec<Message>> = kept.and_then(|kept| serde_json::from_value(kept).ok());
    let mut messages = match kept {
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

/// A step as the reply and what came of it.
fn turn(step: &Step, number: usize) -> [Message; 2] {
    let id = format!("call_{number}");
    let name = step.action.function.clone();
    let arguments = match &step.action.parameters {
        serde_json::Value::Object(map) => Arguments::Object(map.clone()),
        _ => Arguments::Object(serde_json::Map::new()),
    };
    let called = !name.is_empty();
    let call = ToolCall { id: id.clone(), name: name.clone(), arguments };
    let said = Assistant {
        text: step.thought.clone(),
        reasoning: step.reasoning_content.clone(),
        calls: called.then_some(call).into_iter().collect(),
        ..Assistant::default()
    };
    let content = vec![Content::text(step.observation.clone())];
    let seen = match called {
        true => Message::Tool(ToolResult { call_id: id, name, content, is_error: false }),
        false => Message::User { content },
    };
    [Message::Assistant(said), seen]
}

/// The messages up to the last reply, which has to be a call that ends the work.
fn finished(mut messages: Vec<Message>) -> Result<Vec<Message>, String> {
    while messages.last().is_some_and(|last| !matches!(last, Message::Assistant(_))) {
        messages.pop();
    }
    match messages.last() {
        Some(Message::Assistant(said)) if said.calls.iter().any(|call| call.name == "submit") => {
            Ok(messages)
        }
        Some(_) => Err("its last reply does not submit".into()),
        None => Err("it holds no reply".into()),
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
    fn trajectories_of_the_first_implementation_become_conversations() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/trajectory.json"), reference().to_string()).unwrap();
        fs::write(dir.path().join("a/results.json"), "no record").unwrap();
        let recorded = read(&[dir.path().to_owned()], &task()).unwrap();
        assert_eq!((recorded.conversations.len(), recorded.left_out.len()), (1, 0));
        let messages = &recorded.conversations[0].messages;
        assert!(matches!(&messages[0], Message::System { .. }));
        assert!(
            matches!(messages.last(), Some(Message::Assistant(said)) if said.calls[0].name == "submit")
        );
        assert_eq!(messages.len(), 5, "the last observation is nobody's to learn");
    }

    #[test]
    fn what_did_not_end_well_is_named_and_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut unfinished = reference();
        unfinished["steps"].as_array_mut().unwrap().pop();
        fs::write(dir.path().join("trajectory.json"), unfinished.to_string()).unwrap();
        fs::write(dir.path().join("x.jsonl"), "nonsense\n").unwrap();
        let recorded = read(&[dir.path().to_owned()], &task()).unwrap();
        assert!(recorded.conversations.is_empty());
        assert!(recorded.left_out[0].contains("does not submit"), "{recorded:?}");
        assert!(recorded.left_out[1].contains("line 1"), "{recorded:?}");
        assert!(read(&[dir.path().join("none")], &task()).is_err());
    }
}
