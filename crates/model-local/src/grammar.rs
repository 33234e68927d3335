//! Constrained sampling: compiles a [`Shape`] to one of llama.cpp's grammars and samples only tokens that fit.
//!
//! The sampled token nearly always fits, so it is tried alone first; only where it does not is the whole vocabulary
//! checked.

use std::{collections::VecDeque, fmt::Write as _};

use llama_cpp_2::{
    context::LlamaContext,
    json_schema_to_grammar,
    model::LlamaModel,
    sampling::LlamaSampler,
    token::{LlamaToken, data::LlamaTokenData, data_array::LlamaTokenDataArray},
};
use model::{Before, Body, Shape, ToolSpec, think};
use serde_json::Value;

use crate::{
    schema,
    thinking::{ResponseStart, ThinkingTracker},
};

/// Samples the tokens of one response.
pub(crate) struct ConstrainedSampler {
    chain: LlamaSampler,
    constraint: Option<Constraint>,
}

/// A compiled [`Shape`] and its state.
pub(crate) struct Constraint {
    grammar: LlamaSampler,
    /// The mark that begins the call.
    opens: String,
    /// The opening mark on its own line, as tokens.
    opening: VecDeque<LlamaToken>,
    allowed: Before,
    /// The end of thinking, as tokens.
    think_end: VecDeque<LlamaToken>,
    thinking: ThinkingTracker,
    /// The text before the call; not extended once the call has begun.
    before: String,
    /// Tokens that are emitted regardless of the logits.
    forced: VecDeque<LlamaToken>,
}

impl ConstrainedSampler {
    /// A sampler, optionally constrained.
    pub(crate) fn new(chain: LlamaSampler, constraint: Option<Constraint>) -> Self {
        Self { chain, constraint }
    }

    /// Samples the next token; `None` where no token satisfies the constraint. `at` is the batch position of its logits.
    pub(crate) fn sample(
        &mut self,
        context: &LlamaContext<'_>,
        at: i32,
        model: &LlamaModel,
    ) -> Option<LlamaToken> {
        let Some(constraint) = &mut self.constraint else {
            return Some(self.chain.sample(context, at));
        };
        let choose = |chain: &mut LlamaSampler, candidates: &mut LlamaTokenDataArray| {
            chain.apply(candidates);
            candidates.selected_token()
        };
        let token = match constraint.forced.pop_front() {
            Some(token) => token,
            None => {
                let free = choose(&mut self.chain, &mut context.token_data_array_ith(at));
                let allowed = free.and_then(|token| constraint.allow(token, model));
                allowed.or_else(|| {
                    let mut candidates = context.token_data_array_ith(at);
                    constraint.grammar.apply(&mut candidates);
                    // Where nothing fits, a token is selected nevertheless, and accepting it would crash llama.cpp.
                    choose(&mut self.chain, &mut candidates)
                        .filter(|token| fits(&mut constraint.grammar, *token))
                })?
            }
        };
        constraint.accept(token, model)?;
        self.chain.accept(token);
        Some(token)
    }
}

impl Constraint {
    /// Compiles a shape for a model's vocabulary.
    pub(crate) fn compile(
        shape: &Shape,
        model: &LlamaModel,
        start: ResponseStart,
    ) -> Result<Self, String> {
        let grammar = LlamaSampler::grammar(model, &grammar_text(shape)?, "root");
        let tokens = |text: &str| model.vocab().tokenize(text.as_bytes(), false, true).into();
        Ok(Self {
            grammar: grammar.map_err(|error| error.to_string())?,
            opens: shape.opens.clone(),
            opening: tokens(&format!("\n{}{}", shape.opens, shape.then)),
            think_end: tokens(&format!("\n{}\n\n", think::CLOSE)),
            allowed: shape.before,
            thinking: ThinkingTracker::new(start),
            before: String::new(),
            forced: VecDeque::new(),
        })
    }

    /// The sampled token, if it fits. A model that would end its response must end its thinking, or begin its call,
    /// instead.
    fn allow(&mut self, token: LlamaToken, model: &LlamaModel) -> Option<LlamaToken> {
        let vocabulary = model.vocab();
        let ends = vocabulary.is_eog(token) || vocabulary.is_control(token);
        let replacement = match self.thinking.is_thinking() {
            true => &self.think_end,
            false => &self.opening,
        };
        if self.is_thought(token, model) && !vocabulary.is_eog(token) {
            return Some(token);
        }
        let now = self.allowed == Before::Nothing && !self.thinking.is_thinking();
        if (ends || now) && !self.has_begun() {
            self.forced.clone_from(replacement);
            return self.forced.pop_front();
        }
        fits(&mut self.grammar, token).then_some(token)
    }

    fn has_begun(&self) -> bool {
        self.before.contains(&self.opens)
    }

    /// Whether a token is part of the thinking, which is unconstrained.
    fn is_thought(&self, token: LlamaToken, model: &LlamaModel) -> bool {
        self.thinking.is_thinking() || self.thinking.would_open(&piece(token, model))
    }

    fn accept(&mut self, token: LlamaToken, model: &LlamaModel) -> Option<()> {
        let thought = self.is_thought(token, model);
        let piece = piece(token, model);
        self.thinking.push(&piece);
        if thought {
            self.before.clear();
            return Some(());
        }
        if !fits(&mut self.grammar, token) {
            return None;
        }
        if !self.has_begun() {
            self.before.push_str(&piece);
        }
        self.grammar.try_accept(token).ok()
    }
}

fn piece(token: LlamaToken, model: &LlamaModel) -> String {
    String::from_utf8_lossy(&model.vocab().token_to_piece(token, true, None)).into_owned()
}

fn fits(grammar: &mut LlamaSampler, token: LlamaToken) -> bool {
    let mut alone = LlamaTokenDataArray::new(vec![LlamaTokenData::new(token, 1.0, 0.0)], false);
    grammar.apply(&mut alone);
    alone.data.first().is_some_and(|left| left.logit().is_finite())
}

/// The shape in llama.cpp's grammar notation.
fn grammar_text(shape: &Shape) -> Result<String, String> {
    let mut rules = String::from("root ::= before-0\n");
    until(&mut rules, "before", &shape.opens, "call");
    let (then, closes) = (literal(&shape.then), literal(&shape.closes));
    match &shape.body {
        Body::Text => {
            // The opening's last line break may be the first character of the end mark.
            let known = usize::from(shape.then.ends_with('\n') && shape.closes.starts_with('\n'));
            let _ = writeln!(rules, "call ::= {then} inside-{known}");
            until(&mut rules, "inside", &shape.closes, "end");
            rules.push_str("end ::= \"\"\n");
        }
        Body::Call(tools) => {
            let _ = writeln!(rules, "call ::= {then} tool-call {closes}");
            rules.push_str(&calls(tools)?);
        }
    }
    Ok(rules)
}

/// Rules for any text up to and including the first `mark`: one rule per prefix of the mark, as an automaton.
fn until(rules: &mut String, name: &str, mark: &str, then: &str) {
    let mark: Vec<char> = mark.chars().collect();
    let mut letters = mark.clone();
    letters.sort_unstable();
    letters.dedup();
    for known in 0..mark.len() {
        let _ = write!(rules, "{name}-{known} ::= [^{}] {name}-0", class(&letters));
        for letter in &letters {
            match matched_prefix(&mark, known, *letter) {
                all if all == mark.len() => {
                    let _ = write!(rules, " | [{}] {then}", class(&[*letter]));
                }
                next => {
                    let _ = write!(rules, " | [{}] {name}-{next}", class(&[*letter]));
                }
            }
        }
        rules.push('\n');
    }
}

/// The length of the mark's prefix that is matched once `letter` follows its first `known` letters.
fn matched_prefix(mark: &[char], known: usize, letter: char) -> usize {
    let mut written: Vec<char> = mark.iter().take(known).copied().collect();
    written.push(letter);
    let fits = |length: &usize| {
        mark.get(..*length)
            .is_some_and(|start| written.get(written.len() - length..) == Some(start))
    };
    (0..=written.len().min(mark.len())).rev().find(fits).unwrap_or(0)
}

/// A character class.
fn class(letters: &[char]) -> String {
    letters.iter().map(|letter| format!("\\U{:08X}", u32::from(*letter))).collect()
}

fn literal(text: &str) -> String {
    let escaped: String = text.chars().map(|c| format!("\\U{:08X}", u32::from(c))).collect();
    format!("\"{escaped}\"")
}

/// Rules for `tool-call`, a JSON object with a tool's name and its arguments, in this order.
fn calls(tools: &[ToolSpec]) -> Result<String, String> {
    let one = |tool: &ToolSpec| {
        let name = Value::String(tool.name.clone());
        format!(
            "{{\"type\":\"object\",\"properties\":{{\"name\":{{\"const\":{name}}},\"arguments\":{}}},\
             \"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}}",
            schema::reduce(&tool.parameters)
        )
    };
    let schema = format!("{{\"oneOf\":[{}]}}", tools.iter().map(one).collect::<Vec<_>>().join(","));
    let grammar = json_schema_to_grammar(&schema).map_err(|error| error.to_string())?;
    let renamed = grammar.lines().map(|line| match line.strip_prefix("root ::=") {
        Some(rule) => format!("tool-call ::={rule}\n"),
        None => format!("{line}\n"),
    });
    Ok(renamed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_however_it_begins() {
        let mark: Vec<char> = "aab".chars().collect();
        assert_eq!(matched_prefix(&mark, 0, 'a'), 1);
        assert_eq!(matched_prefix(&mark, 2, 'a'), 2);
        assert_eq!(matched_prefix(&mark, 2, 'b'), 3);
        assert_eq!(matched_prefix(&mark, 1, 'b'), 0);
    }

    #[test]
    fn letters_are_written_by_number() {
        assert_eq!(literal("\n`"), "\"\\U0000000A\\U00000060\"");
        assert_eq!(class(&['<']), "\\U0000003C");
    }

    #[test]
    fn a_call_names_its_tool_first() {
        let parameters = serde_json::json!({
            "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]
        });
        let tool = ToolSpec { name: "run".into(), description: String::new(), parameters };
        let rules = calls(&[tool]).unwrap();
        assert!(rules.contains("tool-call ::=") && !rules.contains("root ::="), "{rules}");
        let call = rules.lines().find(|line| line.contains("::= \"{\" space ")).unwrap();
        let order = (call.find("-name-kv"), call.find("-arguments-kv"));
        assert!(matches!(order, (Some(name), Some(arguments)) if name < arguments), "{rules}");
    }
}
