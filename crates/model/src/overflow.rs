//! Recognizes that a conversation is too long for the model, and reads the numbers from the servers' many wordings.
//!
//! Parses text only: how to react is decided elsewhere.

use Number::{Context, Other, Output, Prompt};

/// The lengths a server reported. Each wording contains some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    /// The context length in tokens.
    pub context: Option<u64>,
    /// Tokens of the conversation.
    pub prompt: Option<u64>,
    /// The maximum output tokens of one response, whatever the context.
    pub output: Option<u64>,
}

/// The numbers in a refusal; `None` where it is about something else.
pub(crate) fn recognize(status: u16, body: &str) -> Option<Overflow> {
    // Authentication and rate limit errors mention tokens as well.
    if matches!(status, 401 | 403 | 429) {
        return None;
    }
    let text = plain(body);
    let numbers = WORDINGS.iter().find_map(|wording| wording.read(&text));
    let mut numbers = match numbers {
        Some(numbers) => numbers,
        None if SIGNS.iter().any(|sign| text.contains(sign)) => Overflow::default(),
        None => return None,
    };
    // llama.cpp sends the numbers in separate fields.
    numbers.context = numbers.context.or_else(|| field(&text, "n_ctx"));
    numbers.prompt = numbers.prompt.or_else(|| field(&text, "n_prompt_tokens"));
    Some(numbers)
}

/// Texts that mean an overflow even where no number is recognized.
const SIGNS: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "contextwindowexceedederror",
    "exceeds the available context size",
    "exceeds the context window",
    "exceed context limit",
    "exceeds context length",
    "exceeds the context length",
    "exceeded model token limit",
    "maximum context length",
    "maximum model length",
    "prompt is too long",
    "prompt too long",
    "input is too long for requested model",
    "please reduce the length of the messages",
    "context length of only",
];

/// A wording: fixed text with numbers in between.
struct Wording {
    /// `#` matches a number, `*` anything up to the text that follows.
    pattern: &'static str,
    /// The meaning of each number.
    numbers: &'static [Number],
}

#[derive(Clone, Copy, PartialEq)]
enum Number {
    Context,
    Prompt,
    Output,
    /// Not used, such as the requested tokens or a sum.
    Other,
}

impl Wording {
    fn read(&self, text: &str) -> Option<Overflow> {
        let found = matched(self.pattern, text)?;
        let mut numbers = Overflow::default();
        for (number, kind) in found.into_iter().zip(self.numbers) {
            match kind {
                Context => numbers.context = Some(number),
                Prompt => numbers.prompt = Some(number),
                Output => numbers.output = Some(number),
                Other => {}
            }
        }
        Some(numbers)
    }
}

/// The first match wins, so the more specific of two comes first.
const WORDINGS: &[Wording] = &[
    // Older OpenAI, DeepSeek, vLLM up to 0.9.
    Wording {
        pattern: "maximum context length is # tokens*you requested # tokens (# in the messages, # in the completion",
        numbers: &[Context, Other, Prompt, Other],
    },
    Wording {
        pattern: "maximum context length is # tokens*you requested # tokens (# in the messages, # in the functions, # in the completion",
        numbers: &[Context, Other, Other, Other, Other],
    },
    // OpenRouter.
    Wording {
        pattern: "maximum context length is # tokens*you requested about # tokens (# of text input, # in the output",
        numbers: &[Context, Other, Prompt, Other],
    },
    Wording {
        pattern: "maximum context length is # tokens*you requested about # tokens",
        numbers: &[Context, Other],
    },
    // vLLM 0.10 and later. It stops counting at the limit: "at least" is not a length.
    Wording {
        pattern: "maximum context length is # tokens and your request has # input tokens",
        numbers: &[Context, Prompt],
    },
    Wording {
        pattern: "maximum context length is # tokens*you requested # output tokens and your prompt contains at least # input tokens",
        numbers: &[Context, Other, Other],
    },
    Wording {
        pattern: "maximum context length is # tokens*you requested # output tokens and your prompt contains # input tokens",
        numbers: &[Context, Other, Prompt],
    },
    Wording {
        pattern: "maximum context length is # tokens*your request has # input tokens",
        numbers: &[Context, Prompt],
    },
    // OpenAI, where the conversation alone is too long.
    Wording {
        pattern: "maximum context length is # tokens*resulted in # tokens",
        numbers: &[Context, Prompt],
    },
    Wording {
        pattern: "input tokens exceed the configured limit of # tokens*resulted in # tokens",
        numbers: &[Context, Prompt],
    },
    Wording {
        pattern: "max_tokens is too large: #. this model supports at most # completion tokens",
        numbers: &[Other, Output],
    },
    Wording {
        pattern: "max_completion_tokens is too large: #. this model supports at most # completion tokens",
        numbers: &[Other, Output],
    },
    Wording {
        pattern: "(length #) is longer than the maximum model length of #",
        numbers: &[Prompt, Context],
    },
    // SGLang.
    Wording {
        pattern: "maximum context length of # tokens*you requested a total of # tokens: # tokens from the input messages",
        numbers: &[Context, Other, Prompt],
    },
    Wording {
        pattern: "the input (# tokens) is longer than the model's context length (# tokens)",
        numbers: &[Prompt, Context],
    },
    Wording {
        pattern: "input length (# tokens) exceeds the maximum allowed length (# tokens)",
        numbers: &[Prompt, Context],
    },
    // Anthropic.
    Wording { pattern: "prompt is too long: # tokens > # maximum", numbers: &[Prompt, Context] },
    Wording { pattern: "exceed context limit: # + # > #", numbers: &[Prompt, Other, Context] },
    Wording {
        pattern: "max_tokens: # > #, which is the maximum allowed number of output tokens",
        numbers: &[Other, Output],
    },
    // llama.cpp and its Python server.
    Wording {
        pattern: "request (# tokens) exceeds the available context size (# tokens)",
        numbers: &[Prompt, Context],
    },
    Wording {
        pattern: "requested tokens (#) exceed context window of #",
        numbers: &[Prompt, Context],
    },
    Wording {
        pattern: "maximum context length is # tokens, however you requested # tokens (# in your prompt; # for the completion",
        numbers: &[Context, Other, Prompt, Other],
    },
    // LM Studio.
    Wording {
        pattern: "trying to keep the first # tokens*context length of only # tokens",
        numbers: &[Prompt, Context],
    },
    // DeepSeek, Groq, Gemini, Mistral, text-generation-inference.
    Wording { pattern: "valid range of max_tokens is [#, #]", numbers: &[Other, Output] },
    Wording { pattern: "max_tokens must be less than or equal to #", numbers: &[Output] },
    Wording {
        pattern: "input token count (#) exceeds the maximum number of tokens allowed (#)",
        numbers: &[Prompt, Context],
    },
    Wording {
        pattern: "prompt contains # tokens*too large for model with # maximum context length",
        numbers: &[Prompt, Context],
    },
    Wording {
        pattern: "inputs tokens + max_new_tokens must be <= #. given: # inputs tokens",
        numbers: &[Context, Prompt],
    },
    Wording { pattern: "maximum context length is #", numbers: &[Context] },
];

/// The text normalized over servers: no capitals, quotes, escapes or line breaks.
fn plain(body: &str) -> String {
    // A nested message keeps its text, with more backslashes.
    let text: String = body.chars().take(8000).filter(|c| !matches!(c, '\\' | '`' | '"')).collect();
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A number after a JSON field's name, quotes already removed.
fn field(text: &str, name: &str) -> Option<u64> {
    let after = text.split_once(name)?.1.trim_start_matches([':', ' ', '\'']);
    number(after).map(|(number, _)| number)
}

/// The numbers of a pattern, wherever it matches in the text.
fn matched(pattern: &str, text: &str) -> Option<Vec<u64>> {
    let first = pattern.split(['#', '*']).next().unwrap_or_default();
    let mut from = 0;
    // The text before the first number is rare: many occurrences are hostile.
    for _ in 0..8 {
        let at = from + text[from..].find(first)?;
        if let Some(numbers) = matched_here(&pattern[first.len()..], &text[at + first.len()..]) {
            return Some(numbers);
        }
        from = at + first.len();
    }
    None
}

fn matched_here(pattern: &str, mut text: &str) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut pattern = pattern;
    while let Some(kind) = pattern.chars().next() {
        let fixed = pattern[1..].split(['#', '*']).next().unwrap_or_default();
        if kind == '#' {
            let (number, rest) = number(text)?;
            numbers.push(number);
            text = rest.strip_prefix(fixed)?;
        } else {
            text = text.split_once(fixed)?.1;
        }
        pattern = &pattern[1 + fixed.len()..];
    }
    Some(numbers)
}

/// A number at the start of a text, thousands separators allowed, and the rest.
fn number(text: &str) -> Option<(u64, &str)> {
    let mut digits = String::new();
    let mut end = 0;
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(end) {
        let grouped = *byte == b','
            && !digits.is_empty()
            && bytes.len() > end + 3
            && bytes[end + 1..end + 4].iter().all(u8::is_ascii_digit);
        if byte.is_ascii_digit() {
            digits.push(char::from(*byte));
        } else if !grouped {
            break;
        }
        end += 1;
    }
    // Longer numbers are not token counts, and could overflow.
    if digits.len() > 12 {
        return None;
    }
    Some((digits.parse().ok()?, &text[end..]))
}

#[cfg(test)]
#[path = "overflow_tests.rs"]
mod tests;
