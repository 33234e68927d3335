//! Ends a response early where its format is complete: at the fence that closes its block of commands.
//!
//! Works on tokens; knows no sampler.

use std::sync::Arc;

use model::{ToolFormat, think};
use vocabulary::Decoder;

use crate::{ChatCodec, Flow, Until};

/// Checking for the end parses the whole response, so the number of checks is bounded.
const MAX_CHECKS: u32 = 1000;

/// Where a response starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseStart {
    /// As text.
    Text,
    /// Inside a thinking block that the prompt opened.
    Thinking,
}

/// The callback that ends a response of this format early, if there is one.
pub(crate) fn until(
    codec: &Arc<ChatCodec>,
    format: ToolFormat,
    start: ResponseStart,
) -> Option<Until> {
    let mut detector = EndDetector::new(Arc::clone(codec), format, start);
    (format == ToolFormat::Fenced).then(|| Box::new(move |token| detector.on_token(token)) as Until)
}

struct EndDetector {
    codec: Arc<ChatCodec>,
    format: ToolFormat,
    decoder: Decoder,
    text: String,
    /// Whether anything but fences arrived since the last check.
    changed: bool,
    checks: u32,
}

impl EndDetector {
    fn new(codec: Arc<ChatCodec>, format: ToolFormat, start: ResponseStart) -> Self {
        let text = match start {
            ResponseStart::Text => String::new(),
            ResponseStart::Thinking => think::OPEN.to_owned(),
        };
        Self { codec, format, decoder: Decoder::default(), text, changed: false, checks: 0 }
    }

    fn on_token(&mut self, token: u32) -> Flow {
        let piece = self.decoder.push(self.codec.vocabulary().bytes_of(token));
        // A fence that grows may close what a shorter one did not.
        let grows = self.text.ends_with("```") && piece.starts_with('`');
        self.changed |= grows || piece.contains(|c: char| c != '`' && !c.is_whitespace());
        self.text.push_str(&piece);
        // Only a fence can be the end.
        let fence = piece.contains('`') && self.text.trim_end().ends_with("```");
        if !fence || !self.changed || self.checks == MAX_CHECKS {
            return Flow::Continue;
        }
        self.changed = false;
        self.checks += 1;
        match self.format.is_settled(&self.text) {
            true => Flow::Stop,
            false => Flow::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::Vocabulary;

    use super::*;

    fn bytes() -> Arc<ChatCodec> {
        Arc::new(ChatCodec::new(Vocabulary::bytes().unwrap()).unwrap())
    }

    /// The part of a response before its early end.
    fn ended(response: &str) -> String {
        ended_from(ResponseStart::Text, response)
    }

    fn ended_from(start: ResponseStart, response: &str) -> String {
        let codec = bytes();
        let mut until = until(&codec, ToolFormat::Fenced, start).unwrap();
        let tokens = codec.vocabulary().encode(response).unwrap();
        let last = tokens.iter().position(|token| until(*token) == Flow::Stop);
        let kept = last.map_or(tokens.len(), |last| last + 1);
        codec.vocabulary().decode(&tokens[..kept])
    }

    #[test]
    fn a_response_ends_at_the_fence_that_closes_its_block() {
        for (response, kept) in [
            ("I look.\n```bash\nls\n```\nfile.txt\n", "I look.\n```bash\nls\n```"),
            ("```bash\nsubmit\n``` done", "```bash\nsubmit\n```"),
            ("```json\n{}\n```\n```bash\nls\n```x", "```json\n{}\n```\n```bash\nls\n```"),
            ("```python\nprint(1)\n```\nmore", "```python\nprint(1)\n```"),
            ("````bash\nls\n````\nmore", "````bash\nls\n````"),
            ("```bash\nls```\nmore", "```bash\nls```"),
            ("```bash ls```\nmore", "```bash ls```"),
        ] {
            assert_eq!(ended(response), kept);
        }
    }

    #[test]
    fn fences_that_close_nothing_do_not_end_it() {
        for response in [
            "```bash\ncat > a.md <<'E'\n```\nx\n```\nE\n",
            "<think>\n```bash\nls\n```\nor not",
            "no block at all",
            "a ``` in the text",
            "```\n```",
            "```bash\n```",
        ] {
            assert_eq!(ended(response), response);
        }
        let whole = "```bash\ncat > a.md <<'E'\n```\nx\n```\nE\n```";
        assert_eq!(ended(&format!("{whole}\nmore")), whole);
    }

    #[test]
    fn only_fenced_responses_end_early() {
        assert!(until(&bytes(), ToolFormat::Hermes, ResponseStart::Text).is_none());
    }

    #[test]
    fn a_fence_in_thinking_that_the_prompt_opened_does_not_end_it() {
        let thought = "I could say\n```bash\nls\n```\nor not.\n";
        assert_eq!(ended_from(ResponseStart::Thinking, thought), thought);
        let whole = format!("{thought}</think>\n```bash\nls\n```");
        assert_eq!(ended_from(ResponseStart::Thinking, &format!("{whole}\nmore")), whole);
    }

    #[test]
    fn a_response_of_nothing_but_fences_is_checked_a_bounded_number_of_times() {
        let checks = |response: &str| {
            let mut detector = EndDetector::new(bytes(), ToolFormat::Fenced, ResponseStart::Text);
            let tokens = detector.codec.vocabulary().encode(response).unwrap();
            assert!(tokens.iter().all(|token| detector.on_token(*token) == Flow::Continue));
            detector.checks
        };
        assert_eq!(checks(&"```\n".repeat(5000)), 0);
        assert_eq!(checks(&"x\n```json\n```\n".repeat(5000)), MAX_CHECKS);
        assert_eq!(checks(&"`".repeat(5000)), MAX_CHECKS);
    }
}
