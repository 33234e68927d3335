//! Which built-in tools a model has, the note it gets where one is missing, and the answer it gives to `submit`.
//!
//! A missing tool cannot be called, nothing more: to prevent writing, the sandbox itself has to be read-only.

use serde::{Deserialize, Serialize};
use trajectory::{Arguments, Content, Event, Line, Message, Outcome, Responded, ToolCall};

use super::{EDIT, EXECUTE, SUBMIT, arguments::ToolArguments};

/// The argument of [`SUBMIT`] with the answer, where there are no files for it.
pub(crate) const ANSWER: &str = "answer";

/// The longest answer given to [`SUBMIT`], in bytes.
pub const MAX_ANSWER: usize = 1 << 20;

/// The built-in tools of an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSet {
    /// All: run commands, edit files, submit.
    #[default]
    All,
    /// Edit files and submit; no commands.
    WithoutExecution,
    /// Run commands and submit an answer as text; no files. Meant for a read-only sandbox.
    WithoutFiles,
}

impl ToolSet {
    /// The names of the tools.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::All => &[EXECUTE, EDIT, SUBMIT],
            Self::WithoutExecution => &[EDIT, SUBMIT],
            Self::WithoutFiles => &[EXECUTE, SUBMIT],
        }
    }

    /// A note for the model after the task, because prompts assume all tools.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::WithoutExecution => Some(
                "On this computer no command can be run: there is no execute_bash, whatever else is said of it. \
                 Read and write files with str_replace_editor, work the rest out yourself, and submit when \
                 the result is in its file.",
            ),
            Self::WithoutFiles => Some(
                "On this computer no file can be made or changed, in any directory, and there is no \
                 str_replace_editor. Whatever else is said of files to write, give the answer itself to submit, \
                 as its argument `answer`: exactly what the answer file would have held. Programs are run \
                 without a file, for instance with python3 - <<'END'.",
            ),
        }
    }

    /// Whether the answer is an argument of [`SUBMIT`] rather than a file.
    pub(crate) fn submits_answer(self) -> bool {
        self == Self::WithoutFiles
    }

    /// Appends the note to the task.
    pub(crate) fn append_note(self, task: &mut Message) {
        let (Some(note), Message::User { content }) = (self.note(), task) else { return };
        match content.last_mut() {
            Some(Content::Text { text }) => {
                text.truncate(text.trim_end().len());
                text.push_str("\n\n");
                text.push_str(note);
            }
            _ => content.push(Content::text(note)),
        }
    }
}

/// The answer in the accepted submission of an episode. `None` if it was not submitted, or without an answer.
pub fn submitted_answer(lines: &[Line]) -> Option<String> {
    let mut response: Option<&Responded> = None;
    let mut answer = None;
    for line in lines {
        match &line.event {
            Event::Responded(replied) => response = Some(replied),
            Event::Resumed { .. } => (response, answer) = (None, None),
            Event::Ended(ended) if ended.outcome == Outcome::Submitted => {
                // The first acceptable submission ended the episode.
                let calls = response.into_iter().flat_map(|response| &response.message.calls);
                answer = calls.filter_map(answer_of).next();
            }
            _ => {}
        }
    }
    answer.map(str::to_owned)
}

fn answer_of(call: &ToolCall) -> Option<&str> {
    match &call.arguments {
        Arguments::Object(map) if call.name == SUBMIT => {
            answer(ToolArguments { tool: SUBMIT, map }).ok()
        }
        _ => None,
    }
}

/// The answer among the arguments; the error is for the model.
pub(crate) fn answer(given: ToolArguments<'_>) -> Result<&str, String> {
    let answer = given.text(ANSWER)?;
    if answer.trim().is_empty() {
        return Err(format!("{SUBMIT}: the argument `{ANSWER}` is empty: nothing was submitted"));
    }
    if answer.len() > MAX_ANSWER {
        let size = answer.len();
        return Err(format!(
            "{SUBMIT}: the answer has {size} bytes, and at most {MAX_ANSWER} are taken: nothing was submitted"
        ));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trajectory::{Assistant, Ended, Spent, Stop, Usage};

    use super::*;

    fn replied(calls: &[(&str, Value)]) -> Line {
        let calls = calls.iter().map(|(name, arguments)| ToolCall {
            id: "1".into(),
            name: (*name).into(),
            arguments: match arguments {
                Value::Object(map) => Arguments::Object(map.clone()),
                _ => Arguments::Malformed { malformed: "{".into(), why: "cut off".into() },
            },
        });
        let message = Assistant { calls: calls.collect(), ..Assistant::default() };
        let (stop, usage) = (Stop::ToolCalls, Usage::default());
        let replied =
            Responded { turn: 1, message, stop, usage, cost: None, millis: 0, from_cache: false };
        Line::new(0, Event::Responded(Box::new(replied)))
    }

    fn ended(outcome: Outcome) -> Line {
        Line::new(0, Event::Ended(Ended { outcome, spent: Spent::default() }))
    }

    #[test]
    fn the_answer_is_the_first_that_was_accepted() {
        let submit = |answer: Value| ("submit", json!({ "answer": answer }));
        let huge = "x".repeat(MAX_ANSWER + 1);
        let calls = [
            ("execute_bash", json!({"command": "true", "answer": "no"})),
            ("submit", json!({})),
            submit(json!(42)),
            submit(json!(["a"])),
            submit(json!(" \n")),
            submit(json!(huge)),
            ("submit", Value::Null),
            submit(json!("one")),
            submit(json!("two")),
        ];
        let lines = [replied(&[submit(json!("early"))]), replied(&calls)];
        let with = |end: Line| submitted_answer(&[&lines[..], &[end]].concat());
        assert_eq!(with(ended(Outcome::Submitted)).as_deref(), Some("one"));
        assert_eq!(with(ended(Outcome::MaxTurns)), None);
        assert_eq!(submitted_answer(&lines), None, "it has not ended");
        let resumed = Line::new(0, Event::Resumed { turn: 1 });
        let again = [&lines[..], &[ended(Outcome::Submitted), resumed]].concat();
        assert_eq!(submitted_answer(&again), None, "it is resumed");
        assert_eq!(submitted_answer(&[replied(&calls[..7]), ended(Outcome::Submitted)]), None);
        assert_eq!(submitted_answer(&[]), None);
    }

    #[test]
    fn bad_answers_are_explained_in_few_words() {
        let read = |value: Value| {
            let map = json!({ "answer": value }).as_object().cloned().unwrap_or_default();
            answer(ToolArguments { tool: SUBMIT, map: &map }).map(str::to_owned)
        };
        assert_eq!(read(json!("x".repeat(MAX_ANSWER))).map(|answer| answer.len()), Ok(MAX_ANSWER));
        for (bad, why) in [
            (Value::Null, "missing"),
            (json!(7), "must be a string, not a number"),
            (json!({"a": "b"}), "must be a string, not an object"),
            (json!(""), "empty"),
            (json!("x".repeat(10_000_000)), "has 10000000 bytes"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(why) && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn the_note_follows_the_task() {
        let mut task = Message::user("Do it.\n");
        ToolSet::All.append_note(&mut task);
        assert_eq!(task, Message::user("Do it.\n"));
        for set in [ToolSet::WithoutExecution, ToolSet::WithoutFiles] {
            let mut task = Message::user("Do it.\n");
            set.append_note(&mut task);
            let note = set.note().unwrap();
            assert_eq!(task, Message::user(format!("Do it.\n\n{note}")));
            // The tool that is missing is named, and so are those the note asks for.
            for tool in [EXECUTE, EDIT].iter().filter(|tool| !set.names().contains(tool)) {
                assert!(note.contains(&format!("there is no {tool}")), "{note}");
            }
        }
    }
}
