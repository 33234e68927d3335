//! A response that somebody else sampled, such as the client of an environment: checked like the answer of a server.

use trajectory::{Assistant, Stop, Usage};

use crate::{
    Request, Response,
    repair::Ending,
    wire::{self, MAX_CALLS, PartialCall},
};

/// A response from elsewhere. Untrusted: calls are bounded, get unique ids, and arguments that cannot be parsed are not
/// executed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Given {
    /// The text. Calls may be written in it.
    pub text: String,
    /// Thinking, where it is apart from the text.
    pub reasoning: String,
    /// The tool calls, in order.
    pub calls: Vec<GivenCall>,
    /// Whether the response was cut off by a token limit. What is cut off is not executed.
    pub cut_off: bool,
    /// Input and output tokens. `None`: estimated from the length of the texts.
    pub tokens: Option<(u64, u64)>,
}

/// A tool call of such a response.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GivenCall {
    /// Links the result to the call; replaced where it is empty, too long or taken.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as JSON.
    pub arguments: String,
}

impl Given {
    /// The response to this request.
    pub fn into_response(mut self, request: &Request<'_>) -> Response {
        self.calls.truncate(MAX_CALLS);
        let (ending, stop) = match (self.cut_off, self.calls.is_empty()) {
            (true, _) => (Ending::CutOff, Stop::Length),
            (false, true) => (Ending::Finished, Stop::End),
            (false, false) => (Ending::Finished, Stop::ToolCalls),
        };
        let partial = |GivenCall { id, name, arguments }| PartialCall { id, name, arguments };
        let calls = self.calls.into_iter().map(partial).collect();
        let message = Assistant {
            text: self.text,
            reasoning: self.reasoning,
            calls: wire::calls(calls, request, ending),
            ..Assistant::default()
        };
        let usage = match self.tokens {
            Some((input, output)) => {
                let bounded = |count: u64| count.min(wire::MAX_COUNT);
                Usage { input: bounded(input), output: bounded(output), ..Usage::default() }
            }
            None => wire::estimate(request, &message),
        };
        Response { message, stop, usage, from_cache: false }
    }
}

#[cfg(test)]
mod tests {
    use trajectory::{Arguments, Message};

    use super::*;
    use crate::Sampling;

    fn call(id: &str, arguments: &str) -> GivenCall {
        GivenCall { id: id.into(), name: "run".into(), arguments: arguments.into() }
    }

    fn response(given: Given) -> Response {
        let messages = [Message::user("task")];
        let sampling = Sampling::default();
        let request =
            Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 9 };
        given.into_response(&request)
    }

    #[test]
    fn calls_are_checked_as_those_of_a_server() {
        let given = Given {
            text: "I look.".into(),
            reasoning: String::new(),
            calls: vec![call("a", r#"{"x": 1}"#), call("a", ""), call("", "[broken")],
            cut_off: false,
            tokens: None,
        };
        let Response { message, stop, usage, .. } = response(given.clone());
        assert_eq!(stop, Stop::ToolCalls);
        assert!(usage.estimated && usage.output > 0);
        let ids: std::collections::BTreeSet<_> =
            message.calls.iter().map(|call| &call.id).collect();
        assert_eq!(ids.len(), 3, "{ids:?}");
        assert!(matches!(&message.calls[1].arguments, Arguments::Object(map) if map.is_empty()));
        assert!(matches!(message.calls[2].arguments, Arguments::Malformed { .. }));
        let many = vec![call("", "{}"); MAX_CALLS + 1];
        let cut =
            response(Given { calls: many, cut_off: true, tokens: Some((7, u64::MAX)), ..given });
        assert_eq!((cut.stop, cut.message.calls.len()), (Stop::Length, MAX_CALLS));
        assert_eq!((cut.usage.input, cut.usage.output), (7, wire::MAX_COUNT));
    }
}
