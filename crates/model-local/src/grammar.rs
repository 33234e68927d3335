//! Holds replies to a form: turns it into one of llama.cpp's grammars and picks only tokens that fit.
//!
//! The likeliest token nearly always fits, so it is tried alone; only where it does not is the whole
//! vocabulary looked through.

use std::fmt::Write as _;

use llama_cpp_2::{
    context::LlamaContext,
    json_schema_to_grammar,
    model::LlamaModel,
    sampling::LlamaSampler,
    token::{LlamaToken, data::LlamaTokenData, data_array::LlamaTokenDataArray},
};
use model::{Body, Shape, ToolSpec};
use serde_json::Value;

use crate::schema;

/// Picks tokens for one reply.
pub(crate) struct Picker {
    chain: LlamaSampler,
    grammar: Option<LlamaSampler>,
}

impl Picker {
    /// A picker that may say anything, or only what the grammar allows.
    pub(crate) fn new(chain: LlamaSampler, grammar: Option<LlamaSampler>) -> Self {
        Self { chain, grammar }
    }

    /// The next token; none where the grammar leaves no way on. `at` is where in the batch its likelihoods
    /// were asked for.
    pub(crate) fn pick(&mut self, context: &LlamaContext<'_>, at: i32) -> Option<LlamaToken> {
        let Some(grammar) = &mut self.grammar else { return Some(self.chain.sample(context, at)) };
        let choose = |chain: &mut LlamaSampler, candidates: &mut LlamaTokenDataArray| {
            chain.apply(candidates);
            candidates.selected_token()
        };
        let free = choose(&mut self.chain, &mut context.token_data_array_ith(at));
        let token = free.filter(|token| fits(grammar, *token)).or_else(|| {
            let mut candidates = context.token_data_array_ith(at);
            grammar.apply(&mut candidates);
            // Where nothing fits something is chosen all the same, and llama.cpp does not survive that.
            choose(&mut self.chain, &mut candidates).filter(|token| fits(grammar, *token))
        })?;
        grammar.try_accept(token).ok()?;
        self.chain.accept(token);
        Some(token)
    }
}

fn fits(grammar: &mut LlamaSampler, token: LlamaToken) -> bool {
    let mut alone = LlamaTokenDataArray::new(vec![LlamaTokenData::new(token, 1.0, 0.0)], false);
    grammar.apply(&mut alone);
    alone.data.first().is_some_and(|left| left.logit().is_finite())
}

/// The grammar of a form, made for a model's vocabulary.
pub(crate) fn compile(shape: &Shape, model: &LlamaModel) -> Result<LlamaSampler, String> {
    let text = text(shape)?;
    LlamaSampler::grammar(model, &text, "root").map_err(|error| error.to_string())
}

/// A form as llama.cpp writes grammars.
fn text(shape: &Shape) -> Result<String, String> {
    let mut rules = String::from("root ::= before-0\n");
    until(&mut rules, "before", &shape.opens, "call");
    let (then, closes) = (literal(&shape.then), literal(&shape.closes));
    match &shape.body {
        Body::Text => {
            // The opening's last line break may be the first of the end mark.
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

/// Rules for any text up to and including the first `mark`: one for each part of it that may just have been
/// written.
fn until(rules: &mut String, name: &str, mark: &str, then: &str) {
    let mark: Vec<char> = mark.chars().collect();
    let mut letters = mark.clone();
    letters.sort_unstable();
    letters.dedup();
    for known in 0..mark.len() {
        let _ = write!(rules, "{name}-{known} ::= [^{}] {name}-0", class(&letters));
        for letter in &letters {
            match longest(&mark, known, *letter) {
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

/// How much of the mark is written once `letter` follows the first `known` of its letters.
fn longest(mark: &[char], known: usize, letter: char) -> usize {
    let mut written: Vec<char> = mark.iter().take(known).copied().collect();
    written.push(letter);
    let fits = |length: &usize| {
        mark.get(..*length)
            .is_some_and(|start| written.get(written.len() - length..) == Some(start))
    };
    (0..=written.len().min(mark.len())).rev().find(fits).unwrap_or(0)
}

/// Letters inside brackets.
fn class(letters: &[char]) -> String {
    letters.iter().map(|letter| format!("\\U{:08X}", u32::from(*letter))).collect()
}

fn literal(text: &str) -> String {
    let escaped: String = text.chars().map(|c| format!("\\U{:08X}", u32::from(c))).collect();
    format!("\"{escaped}\"")
}

/// Rules for `tool-call`, a JSON object that names a tool and holds its arguments, in this order.
fn calls(tools: &[ToolSpec]) -> Result<String, String> {
    let one = |tool: &ToolSpec| {
        let name = Value::String(tool.name.clone());
        format!(
            "{{\"type\":\"object\",\"properties\":{{\"name\":{{\"const\":{name}}},\"arguments\":{}}},\
             \"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}}",
            schema::plain(&tool.parameters)
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
        assert_eq!(longest(&mark, 0, 'a'), 1);
        assert_eq!(longest(&mark, 2, 'a'), 2);
        assert_eq!(longest(&mark, 2, 'b'), 3);
        assert_eq!(longest(&mark, 1, 'b'), 0);
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
