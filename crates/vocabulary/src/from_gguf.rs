//! The vocabulary of a GGUF file, converted to the format of the model hub.
//!
//! Splits text into words as llama.cpp does for the same file, so that both produce the same tokens.

use std::{collections::HashMap, path::Path};

use gguf::File;
use serde_json::Value;

use crate::{
    Vocabulary, VocabularyError,
    directory::companion_files,
    tokenizer_json::{self, AddedToken, AddedTokenKind, Parts, WordLookup, split_pattern},
    vocabulary::{BosPolicy, MAX_TOKENS, TokenizerInfo},
};

/// What is supported, for messages.
const SUPPORTED_MODELS: &str = "byte-level vocabularies (`gpt2`)";
const SUPPORTED_SPLITS: &str =
    "qwen2, llama-bpe, smollm, gpt-2 and names that split text like one of these";

/// The words of GPT-2.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Token types of GGUF files.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// Loads the vocabulary of a file.
pub(crate) fn load(path: &Path) -> Result<Vocabulary, VocabularyError> {
    if !path.exists() {
        return Err(VocabularyError::Missing { path: path.to_owned() });
    }
    let damaged = |error: gguf::OpenError| VocabularyError::Gguf {
        path: path.to_owned(),
        source: Box::new(error),
    };
    convert(&File::open(path).map_err(damaged)?)
}

fn convert(file: &File) -> Result<Vocabulary, VocabularyError> {
    let kind = text(file, "tokenizer.ggml.model").unwrap_or_default();
    if kind != "gpt2" {
        let what = format!("a vocabulary of type {}", short(kind));
        return Err(VocabularyError::Unsupported { what, supported: SUPPORTED_MODELS });
    }
    let tokens = strings(file, "tokenizer.ggml.tokens")?;
    let merges = strings(file, "tokenizer.ggml.merges")?;
    check(tokens)?;
    let kinds = file.get("tokenizer.ggml.token_type").and_then(gguf::Value::as_integers);
    let added_tokens = added_tokens(tokens, &kinds.unwrap_or_default());
    let (pre_tokenizer, word_lookup) =
        pre_tokenizer(text(file, "tokenizer.ggml.pre").unwrap_or("default"))?;
    let info = info(file, tokens);
    let parts = Parts { tokens, merges, pre_tokenizer, word_lookup, added_tokens };
    let json = tokenizer_json::write(&parts)?;
    let mut files = vec![("tokenizer.json", json)];
    files.extend(companion_files(&info, &info.end_of_turn));
    Vocabulary::new(info, files)
}

/// How text is split into words, by llama.cpp's name for it.
fn pre_tokenizer(name: &str) -> Result<(Value, WordLookup), VocabularyError> {
    let modern = |numbers: &str| {
        let pattern = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        split_pattern(&[&pattern])
    };
    Ok(match name {
        "qwen2" | "deepseek-r1-qwen" => (modern(r"\p{N}"), WordLookup::Merged),
        "llama3" | "llama-v3" | "llama-bpe" => (modern(r"\p{N}{1,3}"), WordLookup::WholeWordFirst),
        "smollm" | "starcoder" | "refact" => (split_pattern(&[r"\p{N}", GPT2]), WordLookup::Merged),
        "gpt-2" | "phi-2" => (split_pattern(&[GPT2]), WordLookup::Merged),
        other => {
            let what = format!("splitting text into words as for {}", short(other));
            return Err(VocabularyError::Unsupported { what, supported: SUPPORTED_SPLITS });
        }
    })
}

fn info(file: &File, tokens: &[String]) -> TokenizerInfo {
    let id = |key: &str| {
        let id = file.get(&format!("tokenizer.ggml.{key}_token_id"))?.as_u64()?;
        u32::try_from(id).ok().filter(|id| (*id as usize) < tokens.len())
    };
    let named = |key: &str| id(key).and_then(|id| tokens.get(id as usize)).cloned();
    let add_bos = file.get("tokenizer.ggml.add_bos_token").and_then(gguf::Value::as_bool);
    TokenizerInfo {
        bos: named("bos"),
        eos: named("eos"),
        end_of_turn: ["eos", "eot", "eom"].into_iter().filter_map(id).collect(),
        bos_policy: if add_bos == Some(true) { BosPolicy::Add } else { BosPolicy::FromText },
        chat_template: text(file, "tokenizer.chat_template").map(str::to_owned),
    }
}

fn added_tokens(tokens: &[String], kinds: &[i64]) -> Vec<AddedToken> {
    let ids = (0..u32::MAX).zip(tokens).zip(kinds);
    ids.filter(|((_, token), _)| !token.is_empty())
        .filter_map(|((id, _), kind)| match *kind {
            CONTROL => Some(AddedToken { id, kind: AddedTokenKind::Control }),
            USER_DEFINED => Some(AddedToken { id, kind: AddedTokenKind::Text }),
            _ => None,
        })
        .collect()
}

/// Refuses duplicate tokens, which `tokenizer.json` cannot represent.
fn check(tokens: &[String]) -> Result<(), VocabularyError> {
    if tokens.len() > MAX_TOKENS {
        let why = format!("it has {} tokens, more than {MAX_TOKENS}", tokens.len());
        return Err(VocabularyError::Malformed(why));
    }
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        if let Some(first) = seen.insert(token, id) {
            let why = format!("tokens {first} and {id} are the same: {}", short(token));
            return Err(VocabularyError::Malformed(why));
        }
    }
    Ok(())
}

fn text<'f>(file: &'f File, key: &str) -> Option<&'f str> {
    file.get(key).and_then(gguf::Value::as_str)
}

fn strings<'f>(file: &'f File, key: &str) -> Result<&'f [String], VocabularyError> {
    let missing = || VocabularyError::Malformed(format!("the file has no strings `{key}`"));
    file.get(key).and_then(gguf::Value::as_strings).ok_or_else(missing)
}

/// Text of a file for messages: quoted, escaped, shortened.
fn short(text: &str) -> String {
    format!("{:?}", text.chars().take(40).collect::<String>())
}
