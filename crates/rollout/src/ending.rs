//! Ends a reply where its format says that all is said: at the fence that closes its block of commands.
//!
//! Hears tokens; knows no sampler.

use std::sync::Arc;

use model::{ToolFormat, think};
use vocabulary::Decoder;

use crate::{Flow, Until, speech::Speech};

/// Looking for the end means reading all of the reply. One that has not ended after so many looks will not.
const MOST_LOOKS: u32 = 1000;

/// Where a reply begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// With itself.
    Afresh,
    /// In thinking that the prompt has opened.
    Inside,
}

/// What ends a reply of this format early, if anything does.
pub(crate) fn until(speech: &Arc<Speech>, format: ToolFormat, begins: Begins) -> Option<Until> {
    let mut hearing = Hearing::new(Arc::clone(speech), format, begins);
    (format == ToolFormat::Fenced).then(|| Box::new(move |token| hearing.hear(token)) as Until)
}

struct Hearing {
    speech: Arc<Speech>,
    format: ToolFormat,
    decoder: Decoder,
    text: String,
    /// Whether anything but fences came since the last look.
    news: bool,
    looks: u32,
}

impl Hearing {
    fn new(speech: Arc<Speech>, format: ToolFormat, begins: Begins) -> Self {
        let text = match begins {
            Begins::Afresh => String::new(),
            Begins::Inside => think::OPEN.to_owned(),
        };
        Self { speech, format, decoder: Decoder::default(), text, news: false, looks: 0 }
    }

    fn hear(&mut self, token: u32) -> Flow {
        let piece = self.decoder.push(self.speech.vocabulary().bytes_of(token));
        // A fence that grows may close what a shorter one did not.
        let grows = self.text.ends_with("```") && piece.starts_with('`');
        self.news |= grows || piece.contains(|c: char| c != '`' && !c.is_whitespace());
        self.text.push_str(&piece);
        // Only a fence can be the end.
        let fence = piece.contains('`') && self.text.trim_end().ends_with("```");
        if !fence || !self.news || self.looks == MOST_LOOKS {
            return Flow::Continue;
        }
        self.news = false;
        self.looks += 1;
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

    fn bytes() -> Arc<Speech> {
        Arc::new(Speech::new(Vocabulary::bytes().unwrap()).unwrap())
    }

    /// What is left of a reply once it was ended.
    fn ended(reply: &str) -> String {
        ended_from(Begins::Afresh, reply)
    }

    fn ended_from(begins: Begins, reply: &str) -> String {
        let speech = bytes();
        let mut until = until(&speech, ToolFormat::Fenced, begins).unwrap();
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
            ("````bash\nls\n````\nmore", "````bash\nls\n````"),
            ("```bash\nls```\nmore", "```bash\nls```"),
            ("```bash ls```\nmore", "```bash ls```"),
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
        assert!(until(&bytes(), ToolFormat::Hermes, Begins::Afresh).is_none());
    }

    #[test]
    fn a_fence_in_thinking_that_the_prompt_opened_does_not_end_it() {
        let thought = "I could say\n```bash\nls\n```\nor not.\n";
        assert_eq!(ended_from(Begins::Inside, thought), thought);
        let whole = format!("{thought}</think>\n```bash\nls\n```");
        assert_eq!(ended_from(Begins::Inside, &format!("{whole}\nmore")), whole);
    }

    #[test]
    fn a_reply_of_nothing_but_fences_is_not_read_again_and_again() {
        let looks = |reply: &str| {
            let mut hearing = Hearing::new(bytes(), ToolFormat::Fenced, Begins::Afresh);
            let tokens = hearing.speech.vocabulary().encode(reply).unwrap();
            assert!(tokens.iter().all(|token| hearing.hear(*token) == Flow::Continue));
            hearing.looks
        };
        assert_eq!(looks(&"```\n".repeat(5000)), 0);
        assert_eq!(looks(&"x\n```json\n```\n".repeat(5000)), MOST_LOOKS);
        assert_eq!(looks(&"`".repeat(5000)), MOST_LOOKS);
    }
}
