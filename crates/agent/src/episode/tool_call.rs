//! One tool call: its execution, and the result that goes into the conversation.

use std::{
    ops::ControlFlow::{self, Break, Continue},
    time::Instant,
};

use model::Model;
use sandbox::{EntryKind, Error, Sandbox};
use tracing::{debug, instrument};
use trajectory::{Content, Fault, Message, Outcome, ToolCall, ToolResult};

use super::{Episode, millis_since, until_stopped};
use crate::{
    Journal, text,
    tools::{Observation, ToolOutcome, short_name},
};

/// The most tool calls of one response that are executed.
const MAX_TOOL_CALLS: usize = 32;

impl<M: Model, S: Sandbox, J: Journal<S>> Episode<'_, M, S, J> {
    /// Executes a tool call and adds its result to the conversation.
    #[instrument(name = "tool_call", level = "debug", skip_all, fields(tool = short_name(&call.name)))]
    pub(crate) async fn run_tool(&mut self, call: &ToolCall) -> ControlFlow<Outcome> {
        self.tool_calls = self.tool_calls.saturating_add(1);
        self.turn.calls += 1;
        if self.turn.calls > MAX_TOOL_CALLS {
            let refused = Observation::error(text::too_many_calls(MAX_TOOL_CALLS));
            return self.observe_result(call, refused, 0);
        }
        let began = Instant::now();
        let execution = self.tools.call(call, self.tool_calls, self.sandbox);
        let result = until_stopped(execution, &self.cancel, self.deadline).await;
        let millis = millis_since(began);
        self.spent.tool_ms = self.spent.tool_ms.saturating_add(millis);
        let outcome = match result? {
            Ok(outcome) => outcome,
            Err(error) => return Break(Outcome::infrastructure(Fault::Sandbox, &error)),
        };
        let mut observation = match outcome {
            ToolOutcome::Observed(observation) => {
                self.turn.usable_calls += 1;
                observation
            }
            ToolOutcome::Refused(observation) => observation,
            ToolOutcome::Submitted => match self.objection_to_submit().await? {
                Some(objection) => {
                    self.turn.usable_calls += 1;
                    Observation::error(objection)
                }
                None => {
                    self.observe_result(call, Observation::text(text::SUBMITTED), millis)?;
                    return Break(Outcome::Submitted);
                }
            },
        };
        let comparable = self.without_call_number(&observation.content);
        if self.repetition.is_repeated(call, comparable) {
            debug!("the call and its result repeat the ones before");
            observation.content.push(Content::text(text::REPEATED));
        }
        self.observe_result(call, observation, millis)
    }

    /// What to answer instead of accepting a submission: once per episode, when the output directory holds nothing
    /// and the model can still change that.
    async fn objection_to_submit(&mut self) -> ControlFlow<Outcome, Option<String>> {
        let Some(dir) = &self.settings.output_dir else { return Continue(None) };
        let last_turn = self.spent.turns >= self.settings.limits.turns;
        if self.settings.tools.set.submits_answer() || self.objected || last_turn {
            return Continue(None);
        }
        let listing = self.sandbox.list(dir);
        let is_empty = match until_stopped(listing, &self.cancel, self.deadline).await? {
            Ok(entries) => !entries.iter().any(|entry| match entry.kind {
                EntryKind::File => entry.size > 0,
                EntryKind::Link => true,
                EntryKind::Directory | EntryKind::Other => false,
            }),
            Err(Error::Path { .. }) => true,
            // Collecting the results will report it.
            Err(_) => false,
        };
        if !is_empty {
            return Continue(None);
        }
        debug!("the model submits without a result");
        self.objected = true;
        Continue(Some(text::nothing_to_submit(dir)))
    }

    /// A result with the same name for the file of its long output, whatever the number of the call.
    fn without_call_number(&self, content: &[Content]) -> Vec<Content> {
        let dir = self.settings.tools.spill.to_string_lossy();
        let (file, any) = (format!("{dir}/{}.std", self.tool_calls), format!("{dir}/N.std"));
        let renamed = |part: &Content| match part {
            Content::Text { text } => Content::text(text.replace(&file, &any)),
            Content::Image { .. } => part.clone(),
        };
        content.iter().map(renamed).collect()
    }

    fn observe_result(
        &mut self,
        call: &ToolCall,
        observation: Observation,
        millis: u64,
    ) -> ControlFlow<Outcome> {
        let Observation { content, is_error, exit_code } = observation;
        let (call_id, name) = (call.id.clone(), call.name.clone());
        let result = Message::Tool(ToolResult { call_id, name, content, is_error });
        self.observe(result, exit_code, millis)
    }
}
