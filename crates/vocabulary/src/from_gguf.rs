//! The vocabulary of a GGUF file, put into the form of the model hub.
//!
//! Cuts text into words as llama.cpp does for the same file, so that both make the same tokens of it.

use std::{collections::HashMap, path::Path};

use gguf::File;
use serde_json::Value;

use crate::{
    Vocabulary, VocabularyError,
    directory::about_files,
    vocabulary::{About, Begins, MOST_TOKENS},
    written::{self, Mark, MarkKind, Parts, Whole, cut_by},
};

/// What is supported, in words.
const KINDS: &str = "byte-level vocabularies (`gpt2`)";
const CUTS: &str = "qwen2, llama-bpe, smollm, gpt-2 and those that cut text as one of these";

/// Words as GPT-2 cuts them.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Kinds of tokens in GGUF files.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// The vocabulary of a file.
pub(crate) fn load(path: &Path) -> Result<Vocabulary, VocabularyError> {
    if !path.exists() {
        return Err(VocabularyError::Missing { path: path.to_owned() });
    }
    let damaged = |error: gguf::OpenError| VocabularyError::Gguf {
        path: path.to_owned(),
        source: Box::new(error),
    };
    of(&File::open(path).map_err(damaged)?)
}

fn of(file: &File) -> Result<Vocabulary, VocabularyError> {
    let kind = text(file, "tokenizer.ggml.model").unwrap_or_default();
    if kind != "gpt2" {
        let what = format!("a vocabulary of kind {}", short(kind));
        return Err(VocabularyError::Unsupported { what, supported: KINDS });
    }
    let tokens = texts(file, "tokenizer.ggml.tokens")?;
    let merges = texts(file, "tokenizer.ggml.merges")?;
    check(tokens)?;
    let kinds = file.get("tokenizer.ggml.token_type").and_then(gguf::Value::as_integers);
    let marks = marks(tokens, &kinds.unwrap_or_default());
    let (cut, whole) = cut(text(file, "tokenizer.ggml.pre").unwrap_or("default"))?;
    let about = about(file, tokens);
    let json = written::write(&Parts { tokens, merges, cut, whole, marks })?;
    let mut files = vec![("tokenizer.json", json)];
    files.extend(about_files(&about, &about.ends));
    Vocabulary::new(about, files)
}

/// How a file's text is cut into words, by the name llama.cpp has for it.
fn cut(name: &str) -> Result<(Value, Whole), VocabularyError> {
    let modern = |numbers: &str| {
        let pattern = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        cut_by(&[&pattern])
    };
    Ok(match name {
        "qwen2" | "deepseek-r1-qwen" => (modern(r"\p{N}"), Whole::Merged),
        "llama3" | "llama-v3" | "llama-bpe" => (modern(r"\p{N}{1,3}"), Whole::AsItIs),
        "smollm" | "starcoder" | "refact" => (cut_by(&[r"\p{N}", GPT2]), Whole::Merged),
        "gpt-2" | "phi-2" => (cut_by(&[GPT2]), Whole::Merged),
        other => {
            let what = format!("text that is cut into words as for {}", short(other));
            return Err(VocabularyError::Unsupported { what, supported: CUTS });
        }
    })
}

fn about(file: &File, tokens: &[String]) -> About {
    let id = |key: &str| {
        let id = file.get(&format!("tokenizer.ggml.{key}_token_id"))?.as_u64()?;
        u32::try_from(id).ok().filter(|id| (*id as usize) < tokens.len())
    };
    let named = |key: &str| id(key).and_then(|id| tokens.get(id as usize)).cloned();
    let begins = file.get("tokenizer.ggml.add_bos_token").and_then(gguf::Value::as_bool);
    About {
        bos: named("bos"),
        eos: named("eos"),
        ends: ["eos", "eot", "eom"].into_iter().filter_map(id).collect(),
        begins: if begins == Some(true) { Begins::WithBos } else { Begins::Anyhow },
        chat_template: text(file, "tokenizer.chat_template").map(str::to_owned),
    }
}

fn marks(tokens: &[String], kinds: &[i64]) -> Vec<Mark> {
    let ids = (0..u32::MAX).zip(tokens).zip(kinds);
    ids.filter(|((_, token), _)| !token.is_empty())
        .filter_map(|((id, _), kind)| match *kind {
            CONTROL => Some(Mark { id, kind: MarkKind::Control }),
            USER_DEFINED => Some(Mark { id, kind: MarkKind::Text }),
            _ => None,
        })
        .collect()
}

/// Two tokens that are written alike could not be told apart in the other form.
fn check(tokens: &[String]) -> Result<(), VocabularyError> {
    if tokens.len() > MOST_TOKENS {
        let why = format!("it has {} tokens, more than {MOST_TOKENS}", tokens.len());
        return Err(VocabularyError::Malformed(why));
    }
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        if let Some(first) = seen.insert(token, id) {
            let why = format!("tokens {first} and {id} are written alike: {}", short(token));
            return Err(VocabularyError::Malformed(why));
        }
    }
    Ok(())
}

fn text<'f>(file: &'f File, key: &str) -> Option<&'f str> {
    file.get(key).and_then(gguf::Value::as_str)
}

fn texts<'f>(file: &'f File, key: &str) -> Result<&'f [String], VocabularyError> {
    let missing = || VocabularyError::Malformed(format!("the file has no texts `{key}`"));
    file.get(key).and_then(gguf::Value::as_strings).ok_or_else(missing)
}

/// Text of a file for a message: quoted, escaped, cut.
fn short(text: &str) -> String {
    format!("{:?}", text.chars().take(40).collect::<String>())
}
