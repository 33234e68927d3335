//! The record of a finished episode, `trajectory.json`: thought, action and observation step by step.
//!
//! A superset of the format of the method's first implementation, whose files load here as well.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Arguments, Assistant, Content, Event, Line, Message, Observed, Replied, Stop, ToolCall,
};

/// A finished episode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// What the user asked for.
    pub problem_statement: String,
    /// What happened, one entry for each tool call.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// `total_steps`, and what we know besides: `outcome`, `spent`, `model`, `settings`, `protection`.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What the model said.
    #[serde(default)]
    pub thought: String,
    /// What it thought before.
    #[serde(default)]
    pub reasoning_content: String,
    /// What it did.
    #[serde(default)]
    pub action: Action,
    /// What it got to see.
    #[serde(default)]
    pub observation: String,
    /// `step` from 1, `exec_time` (seconds spent waiting for the model), and what we know besides.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// A tool call, or none when the function is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The tool.
    #[serde(default)]
    pub function: String,
    /// What it got.
    #[serde(default)]
    pub parameters: Value,
}

impl Trajectory {
    /// The record of an episode, ended or not, from its events.
    pub fn from_events(lines: &[Line]) -> Self {
        let mut record = Self::default();
        let mut reply: Option<&Replied> = None;
        let mut answered = 0;
        let mut set = Map::new();
        for line in lines {
            match &line.event {
                Event::Started(started) => {
                    record.problem_statement.clone_from(&started.problem_statement);
                    set.insert("model".into(), json!(started.model));
                    set.insert("program".into(), json!(started.program));
                    set.insert("started".into(), json!(line.at));
                    set.insert("settings".into(), started.settings.clone());
                    set.insert("protection".into(), started.protection.clone());
                    set.insert("messages".into(), json!(started.messages));
                }
                Event::Replied(replied) => {
                    record.unanswered(reply, answered);
                    (reply, answered) = (Some(replied.as_ref()), 0);
                }
                Event::Observed(observed) => {
                    record.observed(reply, answered, observed);
                    answered += 1;
                }
                Event::Resumed { turn } => {
                    record.forget_after(*turn);
                    (reply, answered) = (None, 0);
                    for end in ["outcome", "cause", "spent", "ended"] {
                        set.remove(end);
                    }
                }
                Event::Ended(ended) => {
                    set.insert("outcome".into(), json!(ended.outcome.name()));
                    if let crate::Outcome::Infrastructure { cause } = &ended.outcome {
                        set.insert("cause".into(), json!(cause));
                    }
                    set.insert("spent".into(), json!(ended.spent));
                    set.insert("ended".into(), json!(line.at));
                }
                _ => {}
            }
        }
        record.unanswered(reply, answered);
        record.metadata.insert("total_steps".into(), json!(record.steps.len()));
        record.metadata.append(&mut set);
        record
    }

    /// The actions, in order, as calls.
    pub fn calls(&self) -> impl Iterator<Item = ToolCall> + '_ {
        self.steps.iter().enumerate().filter(|(_, step)| !step.action.function.is_empty()).map(
            |(at, step)| ToolCall {
                id: format!("replay_{}", at + 1),
                name: step.action.function.clone(),
                arguments: arguments(&step.action.parameters),
            },
        )
    }

    /// A step for each observation: the calls of a reply are answered in order.
    fn observed(&mut self, reply: Option<&Replied>, answered: usize, observed: &Observed) {
        let mut step = reply.map_or_else(Step::default, |reply| step(reply, answered));
        step.observation = observation(&observed.message);
        let metadata = &mut step.metadata;
        metadata.insert("tool_time".into(), json!(observed.millis as f64 / 1000.0));
        if let Some(code) = observed.exit_code {
            metadata.insert("exit_code".into(), json!(code));
        }
        self.push(step);
    }

    /// Steps for calls nobody answered, because the episode ended first.
    fn unanswered(&mut self, reply: Option<&Replied>, answered: usize) {
        let Some(reply) = reply else { return };
        let from = answered..reply.message.calls.len().max(1);
        from.for_each(|at| self.push(step(reply, at)));
    }

    fn forget_after(&mut self, turn: u32) {
        let later = |step: &Step| step.metadata.get("turn").and_then(Value::as_u64);
        self.steps.retain(|step| later(step).is_none_or(|at| at <= u64::from(turn)));
    }

    fn push(&mut self, mut step: Step) {
        step.metadata.insert("step".into(), json!(self.steps.len() + 1));
        self.steps.push(step);
    }
}

/// The step of one call of a reply. Thought and cost are told with the first.
fn step(reply: &Replied, at: usize) -> Step {
    let Assistant { text, reasoning, calls, .. } = &reply.message;
    let mut metadata = Map::new();
    metadata.insert("turn".into(), json!(reply.turn));
    let mut exec_time = 0.0;
    let (mut thought, mut reasoning_content) = (String::new(), String::new());
    if at == 0 {
        exec_time = reply.millis as f64 / 1000.0;
        metadata.insert("usage".into(), json!(reply.usage));
        if let Some(cost) = reply.cost {
            metadata.insert("cost".into(), json!(cost));
        }
        if reply.from_cache {
            metadata.insert("from_cache".into(), json!(true));
        }
        if reply.stop == Stop::Length {
            metadata.insert("cut_off".into(), json!(true));
        }
        thought.clone_from(text);
        reasoning_content.clone_from(reasoning);
    }
    metadata.insert("exec_time".into(), json!(exec_time));
    let action = calls.get(at).map_or_else(Action::none, |call| Action {
        function: call.name.clone(),
        parameters: match &call.arguments {
            Arguments::Object(map) => Value::Object(map.clone()),
            Arguments::Malformed { malformed, .. } => Value::String(malformed.clone()),
        },
    });
    Step { thought, reasoning_content, action, observation: String::new(), metadata }
}

impl Action {
    fn none() -> Self {
        Self { function: String::new(), parameters: json!({}) }
    }
}

fn arguments(parameters: &Value) -> Arguments {
    match parameters {
        Value::Object(map) => Arguments::Object(map.clone()),
        Value::Null => Arguments::Object(Map::new()),
        Value::String(text) => no_object(text.clone()),
        other => no_object(other.to_string()),
    }
}

fn no_object(malformed: String) -> Arguments {
    Arguments::Malformed { malformed, why: "the arguments are no JSON object".into() }
}

/// What a message shows, as text.
fn observation(message: &Message) -> String {
    let content = match message {
        Message::Tool(result) => &result.content,
        Message::User { content } => content,
        Message::System { text } => return text.clone(),
        Message::Assistant(said) => return said.text.clone(),
    };
    let shown = content.iter().map(|part| match part {
        Content::Text { text } => text.clone(),
        Content::Image { media_type, .. } => format!("[a picture: {media_type}]"),
    });
    shown.collect::<Vec<_>>().join("\n")
}
