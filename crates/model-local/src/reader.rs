//! Conversations become tokens here, on threads of their own: that takes long for long ones, and those who
//! wait for others' replies must not wait for it.
//!
//! Renders, tokenises and compiles. Evaluates nothing.

use std::{sync::Arc, thread, time::Duration};

use chat_template::{Guard, SPLIT, Template};
use llama_cpp_2::{model::LlamaModel, token::LlamaToken};
use model::{
    Error, Overflow, Request, Shape, ToolSpec,
    think::{self, Splitter},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use trajectory::{Content, Message};

use crate::{grammar::Form, lead::Begins, local::written, slots::Thread};

/// Conversations that are read at the same time.
const AT_ONCE: usize = 4;

/// Some tokenizers of llama.cpp call themselves once for each character of a word.
const STACK: usize = 64 << 20;

/// So many bytes a tokenizer gets at once: with less than a kibibyte for each it stays on its stack.
const MOST_AT_ONCE: usize = 64 << 10;

/// No token stands for more bytes, on the whole.
const MOST_BYTES: u64 = 32;

/// A reply cut off after fewer tokens helps nobody: the conversation has to be made shorter.
const LEAST: u64 = 64;

/// What reads conversations for one model.
pub(crate) struct Reader {
    pub(crate) model: Arc<LlamaModel>,
    pub(crate) template: Template,
    pub(crate) guard: Guard,
    /// Tokens of a conversation.
    pub(crate) context: u32,
    pub(crate) turns: Turns,
}

/// Who may read now.
pub(crate) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Turns {
    async fn next(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }

    /// Waits for those that are reading. Nobody may begin any more.
    pub(crate) fn close(&self) {
        self.0.close();
        while self.0.available_permits() < AT_ONCE {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A conversation as the engine takes it.
pub(crate) struct Conversation {
    pub(crate) tokens: Vec<LlamaToken>,
    pub(crate) thread: Thread,
    /// Tokens of the reply.
    pub(crate) most: u64,
    pub(crate) form: Option<Form>,
    /// How the reply begins.
    pub(crate) splitter: Splitter,
}

/// What is read.
struct Asked {
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
    shape: Option<Shape>,
    max_tokens: u64,
}

impl Reader {
    /// Reads a conversation.
    pub(crate) async fn read(
        self: &Arc<Self>,
        request: &Request<'_>,
    ) -> Result<Conversation, Error> {
        self.fits(written_in(request.messages))?;
        let failed = |why: String| Error::Refused { status: 500, message: why };
        let turn = self.turns.next().await;
        let turn = turn.ok_or_else(|| failed("the model is being put away".into()))?;
        let asked = Asked {
            messages: request.messages.to_vec(),
            tools: request.tools.to_vec(),
            shape: request.sampling.shape.clone(),
            max_tokens: request.max_tokens,
        };
        let (to, read) = oneshot::channel();
        let reader = Arc::clone(self);
        let reading = move || {
            let read = reader.conversation(&asked);
            drop((reader, turn));
            // Nobody hears it where the request was given up.
            let _ = to.send(read);
        };
        let thread = thread::Builder::new().name("prompt".into()).stack_size(STACK);
        thread
            .spawn(reading)
            .map_err(|error| failed(format!("no thread to read the conversation: {error}")))?;
        read.await.unwrap_or_else(|_| Err(failed("the conversation could not be read".into())))
    }

    fn conversation(&self, asked: &Asked) -> Result<Conversation, Error> {
        let (tokens, begins) = self.prompt(asked)?;
        let most = self.room(tokens.len(), asked.max_tokens)?;
        let compile = |shape| Form::compile(shape, &self.model, begins);
        let form = asked.shape.as_ref().map(compile).transpose().map_err(refused)?;
        let splitter = match begins {
            Begins::Thinking => Splitter::inside(),
            Begins::Anew => Splitter::default(),
        };
        Ok(Conversation { tokens, thread: Thread::of(&asked.messages), most, form, splitter })
    }

    /// The tokens of a conversation, and how its reply begins.
    fn prompt(&self, asked: &Asked) -> Result<(Vec<LlamaToken>, Begins), Error> {
        let text = self
            .template
            .render(&asked.messages, &asked.tools, &self.guard)
            .map_err(|error| refused(error.to_string()))?;
        self.fits(text.len())?;
        let vocabulary = self.model.vocab();
        let bos = written(&self.model, vocabulary.bos());
        // Most templates write the first token themselves; a second one confuses models.
        let mut add_first = bos.is_empty() || !text.starts_with(&bos);
        let mut tokens = Vec::new();
        for piece in text.split(SPLIT).flat_map(pieces) {
            tokens.extend(vocabulary.tokenize(piece.as_bytes(), add_first, true));
            add_first = false;
        }
        if tokens.is_empty() {
            return Err(refused("the conversation is empty".into()));
        }
        // Templates of models that always think may open the thinking themselves.
        let thinks = text.trim_end().ends_with(think::OPEN);
        Ok((tokens, if thinks { Begins::Thinking } else { Begins::Anew }))
    }

    /// Refuses what cannot fit before its tokens are counted: that takes long and much memory.
    fn fits(&self, bytes: usize) -> Result<(), Error> {
        let context = u64::from(self.context);
        if bytes as u64 <= context.saturating_mul(MOST_BYTES) {
            return Ok(());
        }
        let numbers = Overflow { context: Some(context), prompt: None, output: None };
        let message = format!("it has {bytes} bytes, and the context is {context} tokens");
        Err(Error::Overflow { numbers, message })
    }

    /// How many tokens a reply may have.
    fn room(&self, prompt: usize, most: u64) -> Result<u64, Error> {
        let (context, prompt) = (u64::from(self.context), prompt as u64);
        let room = context.saturating_sub(prompt);
        if room < most.min(LEAST) || room == 0 {
            let message = format!("it has {prompt} tokens, and the context is {context}");
            let numbers = Overflow { context: Some(context), prompt: Some(prompt), output: None };
            return Err(Error::Overflow { numbers, message });
        }
        Ok(room.min(most))
    }
}

/// Bytes of text in a conversation. Templates may leave out what a model said or thought.
fn written_in(messages: &[Message]) -> usize {
    let text = |content: &[Content]| {
        content.iter().filter_map(Content::as_text).map(str::len).sum::<usize>()
    };
    let written = messages.iter().map(|message| match message {
        Message::System { text } => text.len(),
        Message::User { content } => text(content),
        Message::Tool(result) => text(&result.content),
        Message::Assistant(_) => 0,
    });
    written.sum()
}

fn refused(message: String) -> Error {
    Error::Refused { status: 400, message }
}

/// The text in parts a tokenizer can take, cut before a blank or a mark where there is one. Where it is cut
/// depends on what stands before alone, so that a longer conversation still begins with the same tokens.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        if text.len() <= MOST_AT_ONCE {
            return rest.take();
        }
        let end = text.floor_char_boundary(MOST_AT_ONCE);
        let half = text.floor_char_boundary(MOST_AT_ONCE / 2);
        let blank = text.get(half..end)?.rfind([' ', '\n', '<']);
        let (piece, after) = text.split_at(blank.map_or(end, |at| half + at));
        rest = Some(after);
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_before_blanks_and_nothing_is_lost() {
        for word in ["word ", "é", "x", "<tag>", "a b\n"] {
            let text = word.repeat(300_000 / word.len());
            let parts: Vec<_> = pieces(&text).collect();
            assert_eq!(parts.concat(), text);
            assert!(parts.iter().all(|part| part.len() <= MOST_AT_ONCE && !part.is_empty()));
            let longer = text.clone() + "and more";
            let again: Vec<_> = pieces(&longer).take(parts.len() - 1).collect();
            assert_eq!(parts[..parts.len() - 1], again);
        }
        let words: Vec<_> = "some words ".repeat(20_000).chars().collect();
        let text: String = words.iter().collect();
        assert!(pieces(&text).skip(1).all(|part| part.starts_with(' ')));
        assert_eq!(pieces("").collect::<Vec<_>>(), [""]);
        assert_eq!(pieces("short").collect::<Vec<_>>(), ["short"]);
    }
}
