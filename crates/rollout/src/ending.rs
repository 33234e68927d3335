//! Ends a reply where its format says that all is said: at the fence that closes its block of commands.
//!
//! Hears tokens; knows no sampler.

use std::sync::Arc;

use model::ToolFormat;
use vocabulary::Decoder;

use crate::{Flow, Until, speech::Speech};

/// What ends a reply of this format early, if anything does.
pub(crate) fn until(speech: &Arc<Speech>, format: ToolFormat) -> Option<Until> {
    let mut hearing = Hearing::new(Arc::clone(speech), format);
    (format == ToolFormat::Fenced).then(|| Box::new(move |token| hearing.hear(token)) as Until)
}

struct Hearing {
    speech: Arc<Speech>,
    format: ToolFormat,
    decoder: Decoder,
    text: String,
}

impl Hearing {
    fn new(speech: Arc<Speech>, format: ToolFormat) -> Self {
        Self { speech, format, decoder: Decoder::default(), text: String::new() }
    }

    fn hear(&mut self, token: u32) -> Flow {
        let piece = self.decoder.push(self.speech.vocabulary().bytes_of(token));
        self.text.push_str(&piece);
        // Only a fence can be the end, and looking for it means reading all of the reply.
        let fence = piece.contains('`') && self.text.trim_end().ends_with("```");
        match fence && self.format.is_settled(&self.text) {
            true => Flow::Stop,
            false => Flow::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::Vocabulary;

    use super::*;

    /// What is left of a reply once it was ended.
    fn ended(reply: &str) -> String {
        let speech = Arc::new(Speech::new(Vocabulary::bytes().unwrap()).unwrap());
        let mut until = until(&speech, ToolFormat::Fenced).unwrap();
        let tokens = speech.vocabulary().encode(reply).unwrap();
        let last = tokens.iter().position(|token| until(*token) == Flow::Stop);
        let kept = last.map_or(tokens.len(), |last| last + 1);
        speech.vocabulary().decode(&tokens[..kept])
    }

    #[test]
    fn a_reply_ends_at_the_fence_that_closes_its_block() {
        for (reply, kept) in [
            ("I look.\n```bash\nls\n```\nfile.txt\n", "I look.\n```bash\nls\n```"),
            ("```bash\nsubmit\n``` done", "```bash\nsubmit\n```"),
            ("```json\n{}\n```\n```bash\nls\n```x", "```json\n{}\n```\n```bash\nls\n```"),
            ("```python\nprint(1)\n```\nmore", "```python\nprint(1)\n```"),
        ] {
            assert_eq!(ended(reply), kept);
        }
    }

    #[test]
    fn fences_that_close_nothing_do_not_end_it() {
        for reply in [
            "```bash\ncat > a.md <<'E'\n```\nx\n```\nE\n",
            "<think>\n```bash\nls\n```\nor not",
            "no block at all",
            "a ``` in the text",
            "```\n```",
            "```bash\n```",
        ] {
            assert_eq!(ended(reply), reply);
        }
        let whole = "```bash\ncat > a.md <<'E'\n```\nx\n```\nE\n```";
        assert_eq!(ended(&format!("{whole}\nmore")), whole);
    }

    #[test]
    fn only_fenced_replies_end_early() {
        let speech = Arc::new(Speech::new(Vocabulary::bytes().unwrap()).unwrap());
        assert!(until(&speech, ToolFormat::Hermes).is_none());
    }
}
