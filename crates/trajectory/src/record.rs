//! The trajectory of an episode, `trajectory.json`: thought, action and observation step by step.
//!
//! A superset of the reference implementation's format, whose files can be read as well.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Arguments, Assistant, Content, Event, Line, Message, Observed, Responded, Stop, ToolCall,
};

/// Marks, in a step's metadata, a block of commands that ends with `submit`: see [`Assistant::then_submit`].
pub const THEN_SUBMIT: &str = "then_submit";

/// An episode as a list of steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// The task.
    pub problem_statement: String,
    /// The steps, one for each tool call.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// `total_steps`, and in addition: `outcome`, `spent`, `model`, `settings`, `protection`.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The model's text.
    #[serde(default)]
    pub thought: String,
    /// The model's thinking.
    #[serde(default)]
    pub reasoning_content: String,
    /// The tool call.
    #[serde(default)]
    pub action: Action,
    /// The tool result, as the model saw it.
    #[serde(default)]
    pub observation: String,
    /// `step` from 1, `exec_time` (seconds spent waiting for the model), and more.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// A tool call, or none when the function is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The tool's name.
    #[serde(default)]
    pub function: String,
    /// The arguments.
    #[serde(default)]
    pub parameters: Value,
}

impl Trajectory {
    /// Builds the trajectory of an episode, ended or not, from its events.
    pub fn from_events(lines: &[Line]) -> Self {
        let mut record = Self::default();
        let mut response: Option<&Responded> = None;
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
                Event::Responded(replied) => {
                    record.unanswered(response, answered);
                    (response, answered) = (Some(replied.as_ref()), 0);
                }
                Event::Observed(observed) => {
                    record.observed(response, answered, observed);
                    answered += 1;
                }
                Event::Resumed { turn } => {
                    record.remove_after(*turn);
                    (response, answered) = (None, 0);
                    for end in ["outcome", "cause", "spent", "ended"] {
                        set.remove(end);
                    }
                }
                Event::Reconfigured { settings } => {
                    set.insert("settings".into(), settings.clone());
                }
                Event::Ended(ended) => {
                    set.insert("outcome".into(), json!(ended.outcome.name()));
                    if let crate::Outcome::Infrastructure { cause, .. } = &ended.outcome {
                        set.insert("cause".into(), json!(cause));
                    }
                    set.insert("spent".into(), json!(ended.spent));
                    set.insert("ended".into(), json!(line.at));
                }
                _ => {}
            }
        }
        record.unanswered(response, answered);
        record.metadata.insert("total_steps".into(), json!(record.steps.len()));
        record.metadata.append(&mut set);
        record
    }

    /// The actions in order, as tool calls.
    pub fn calls(&self) -> impl Iterator<Item = ToolCall> + '_ {
        self.steps.iter().enumerate().filter(|(_, step)| !step.action.function.is_empty()).map(
            |(at, step)| ToolCall {
                id: format!("replay_{}", at + 1),
                name: step.action.function.clone(),
                arguments: arguments(&step.action.parameters),
            },
        )
    }

    /// Adds a step for an observation: the calls of a response are executed in order.
    fn observed(&mut self, response: Option<&Responded>, answered: usize, observed: &Observed) {
        let mut step = response.map_or_else(Step::default, |response| step(response, answered));
        step.observation = observation(&observed.message);
        let metadata = &mut step.metadata;
        metadata.insert("tool_time".into(), json!(observed.millis as f64 / 1000.0));
        if let Some(code) = observed.exit_code {
            metadata.insert("exit_code".into(), json!(code));
        }
        self.push(step);
    }

    /// Adds steps for calls without a result, because the episode ended first.
    fn unanswered(&mut self, response: Option<&Responded>, answered: usize) {
        let Some(response) = response else { return };
        let from = answered..response.message.calls.len().max(1);
        from.for_each(|at| self.push(step(response, at)));
    }

    fn remove_after(&mut self, turn: u32) {
        let later = |step: &Step| step.metadata.get("turn").and_then(Value::as_u64);
        self.steps.retain(|step| later(step).is_none_or(|at| at <= u64::from(turn)));
    }

    fn push(&mut self, mut step: Step) {
        step.metadata.insert("step".into(), json!(self.steps.len() + 1));
        self.steps.push(step);
    }
}

/// The step of one call of a response. Thought and cost belong to the first.
fn step(response: &Responded, at: usize) -> Step {
    let Assistant { text, reasoning, calls, then_submit, .. } = &response.message;
    let mut metadata = Map::new();
    metadata.insert("turn".into(), json!(response.turn));
    if *then_submit && at + 1 == calls.len() {
        metadata.insert(THEN_SUBMIT.into(), json!(true));
    }
    let mut exec_time = 0.0;
    let (mut thought, mut reasoning_content) = (String::new(), String::new());
    if at == 0 {
        exec_time = response.millis as f64 / 1000.0;
        metadata.insert("usage".into(), json!(response.usage));
        if let Some(cost) = response.cost {
            metadata.insert("cost".into(), json!(cost));
        }
        if response.from_cache {
            metadata.insert("from_cache".into(), json!(true));
        }
        if response.stop == Stop::Length {
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
        Value::String(text) => not_an_object(text.clone()),
        other => not_an_object(other.to_string()),
    }
}

fn not_an_object(malformed: String) -> Arguments {
    Arguments::Malformed { malformed, why: "the arguments are no JSON object".into() }
}

/// The text of a message.
fn observation(message: &Message) -> String {
    let content = match message {
        Message::Tool(result) => &result.content,
        Message::User { content } => content,
        Message::System { text } => return text.clone(),
        Message::Assistant(message) => return message.text.clone(),
    };
    let shown = content.iter().map(|part| match part {
        Content::Text { text } => text.clone(),
        Content::Image { media_type, .. } => format!("[a picture: {media_type}]"),
    });
    shown.collect::<Vec<_>>().join("\n")
}
