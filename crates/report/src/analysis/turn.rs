//! Splits an episode into turns: text, tool calls and observations.

use serde_json::{Map, Value};
use trajectory::{Arguments, Content, Event, Line, Message, Trajectory};

/// One response of the model and its observations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn<'a> {
    /// Number, from 1.
    pub number: u32,
    /// Text besides its calls.
    pub said: &'a str,
    /// Well-formed tool calls; malformed ones were never executed.
    pub calls: Vec<Call<'a>>,
    /// Text of the observations.
    pub observed: Vec<&'a str>,
}

/// A tool call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    /// Name of the tool.
    pub tool: &'a str,
    /// Arguments.
    pub arguments: &'a Map<String, Value>,
}

impl<'a> Call<'a> {
    /// A string argument.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.arguments.get(name).and_then(Value::as_str)
    }
}

/// The turns of an episode from its events, without those rolled back after a crash.
pub fn turns(lines: &[Line]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for line in lines {
        match &line.event {
            Event::Started(_) => turns.clear(),
            Event::Responded(replied) => turns.push(Turn {
                number: replied.turn,
                said: &replied.message.text,
                calls: replied.message.calls.iter().filter_map(understood).collect(),
                observed: Vec::new(),
            }),
            Event::Observed(observed) => {
                if let Some(turn) = turns.last_mut() {
                    turn.observed.extend(texts(&observed.message));
                }
            }
            Event::Resumed { turn } => turns.retain(|kept| kept.number <= *turn),
            _ => {}
        }
    }
    turns
}

/// The text of the last response of an episode, as generated: of a plain call, the whole response, of which a task may
/// take only a part as the answer.
pub fn plain_response(lines: &[Line]) -> Option<&str> {
    lines.iter().rev().find_map(|line| match &line.event {
        Event::Responded(response) => {
            let message = &response.message;
            Some(message.raw.as_deref().unwrap_or(&message.text))
        }
        _ => None,
    })
}

/// The turns of a recorded episode. Steps with the same `turn` belong together; without `turn`, as in the reference's
/// files, each step is a turn.
pub fn recorded(record: &Trajectory) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    let mut last = None;
    for step in &record.steps {
        let named = step.metadata.get("turn").and_then(Value::as_u64);
        if named.is_none() || named != last {
            let next = turns.last().map_or(1, |turn| turn.number.saturating_add(1));
            let number = named.and_then(|named| u32::try_from(named).ok()).unwrap_or(next);
            turns.push(Turn { number, said: &step.thought, ..Turn::default() });
        }
        last = named;
        let Some(turn) = turns.last_mut() else { continue };
        if let (false, Some(arguments)) =
            (step.action.function.is_empty(), step.action.parameters.as_object())
        {
            turn.calls.push(Call { tool: &step.action.function, arguments });
        }
        turn.observed.push(&step.observation);
    }
    turns
}

fn understood(call: &trajectory::ToolCall) -> Option<Call<'_>> {
    match &call.arguments {
        Arguments::Object(arguments) => Some(Call { tool: &call.name, arguments }),
        Arguments::Malformed { .. } => None,
    }
}

fn texts(message: &Message) -> Vec<&str> {
    match message {
        Message::System { text } => vec![text],
        Message::User { content } => content.iter().filter_map(Content::as_text).collect(),
        Message::Assistant(said) => vec![&said.text],
        Message::Tool(result) => result.content.iter().filter_map(Content::as_text).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(values: &[Value]) -> Vec<Line> {
        let text: Vec<String> = values
            .iter()
            .map(|value| {
                let mut value = value.clone();
                value["v"] = json!(1);
                value["at"] = json!(0);
                value.to_string() + "\n"
            })
            .collect();
        trajectory::read(&text.concat()).unwrap()
    }

    fn replied(turn: u32, command: &str) -> Value {
        let call = json!({"id": "1", "name": "execute_bash", "arguments": {"command": command}});
        json!({"kind": "replied", "turn": turn, "message": {"text": "so", "calls": [call]},
               "stop": "tool_calls", "usage": {}, "millis": 1})
    }

    fn observed(turn: u32, text: &str) -> Value {
        let message = json!({"role": "user", "content": [{"type": "text", "text": text}]});
        json!({"kind": "observed", "turn": turn, "message": message, "millis": 1})
    }

    fn started() -> Value {
        json!({"kind": "started", "problem_statement": "p", "messages": [], "model": "m"})
    }

    #[test]
    fn events_and_their_record_tell_the_same_turns() {
        let lines = lines(&[started(), replied(1, "ls"), observed(1, "a"), replied(2, "cat a")]);
        let from_events = turns(&lines);
        assert_eq!(from_events.len(), 2);
        assert_eq!(from_events[0].calls[0].text("command"), Some("ls"));
        assert_eq!(from_events[0].observed, ["a"]);
        let record = Trajectory::from_events(&lines);
        let from_record = recorded(&record);
        assert_eq!(from_record.len(), 2);
        assert_eq!(from_record[0], from_events[0]);
        assert_eq!(from_record[1].number, 2);
    }

    #[test]
    fn forgotten_turns_are_left_out() {
        let resumed = json!({"kind": "resumed", "turn": 1});
        let lines = lines(&[started(), replied(1, "a"), replied(2, "b"), resumed, replied(2, "c")]);
        let commands: Vec<_> =
            turns(&lines).iter().map(|turn| turn.calls[0].text("command").unwrap()).collect();
        assert_eq!(commands, ["a", "c"]);
    }

    #[test]
    fn calls_of_one_reply_are_one_turn_and_unnamed_steps_are_turns() {
        let step = |turn: Option<u32>| {
            let metadata = turn.map_or(json!({}), |turn| json!({"turn": turn}));
            json!({"action": {"function": "f", "parameters": {}}, "metadata": metadata})
        };
        let record = |steps: Vec<Value>| -> Trajectory {
            serde_json::from_value(json!({"problem_statement": "", "steps": steps})).unwrap()
        };
        assert_eq!(recorded(&record(vec![step(Some(1)), step(Some(1)), step(Some(2))])).len(), 2);
        assert_eq!(recorded(&record(vec![step(None), step(None)])).len(), 2);
    }
}
