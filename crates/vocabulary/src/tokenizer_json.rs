//! `tokenizer.json`: whether one is of the supported kind, and writing one.

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use crate::VocabularyError;

/// What is supported, for messages.
const SUPPORTED: &str = "byte-level BPE vocabularies, as Llama 3, Qwen and SmolLM have them";

/// The parts that determine the kind.
#[derive(Deserialize)]
struct Kind {
    model: ModelKind,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    normalizer: Value,
}

#[derive(Deserialize)]
struct ModelKind {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
}

/// Refuses everything but byte-level BPE.
pub(crate) fn check(json: &str) -> Result<(), VocabularyError> {
    let malformed = |error: serde_json::Error| {
        VocabularyError::Malformed(format!("tokenizer.json is malformed: {error}"))
    };
    let Kind { model, decoder, normalizer } = serde_json::from_str(json).map_err(malformed)?;
    let unsupported =
        |what: String| Err(VocabularyError::Unsupported { what, supported: SUPPORTED });
    match model.kind.as_deref() {
        None | Some("BPE") => {}
        Some(other) => return unsupported(format!("a vocabulary of type {other:.40}")),
    }
    if model.byte_fallback {
        return unsupported("a vocabulary with byte fallback".into());
    }
    if !preserves_text(&normalizer) {
        let kind = normalizer["type"].as_str().unwrap_or("no known type");
        return unsupported(format!("a vocabulary that rewrites text ({kind:.40})"));
    }
    match is_byte_level(&decoder) {
        true => Ok(()),
        false => unsupported("a vocabulary that is not byte-level".into()),
    }
}

/// Whether a normalizer does no more than compose characters. Others could turn text without control tokens into text
/// with some, or a little text into a lot.
fn preserves_text(normalizer: &Value) -> bool {
    match normalizer["type"].as_str() {
        None => normalizer.is_null(),
        Some("NFC") => true,
        Some("Sequence") => normalizer["normalizers"]
            .as_array()
            .is_some_and(|inner| inner.iter().all(|one| one["type"] == "NFC")),
        Some(_) => false,
    }
}

fn is_byte_level(decoder: &Value) -> bool {
    let inner = decoder["decoders"].as_array();
    decoder["type"] == "ByteLevel"
        || inner.is_some_and(|inner| inner.iter().any(|decoder| decoder["type"] == "ByteLevel"))
}

/// The parts of a `tokenizer.json`.
pub(crate) struct Parts<'a> {
    /// Every token by its id, added ones included.
    pub(crate) tokens: &'a [String],
    /// Pairs of tokens that become one, by decreasing priority.
    pub(crate) merges: &'a [String],
    /// How text is split into words before that.
    pub(crate) pre_tokenizer: Value,
    /// Whether a word that is a token needs no merges.
    pub(crate) word_lookup: WordLookup,
    /// The tokens that are matched in text before it is split.
    pub(crate) added_tokens: Vec<AddedToken>,
}

/// How a word that is itself a token is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordLookup {
    /// As that token, even if no merges lead to it.
    WholeWordFirst,
    /// By its merges only.
    Merged,
}

/// A token that is matched in text before it is split.
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) kind: AddedTokenKind,
}

/// What an added token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddedTokenKind {
    /// A control token.
    Control,
    /// Ordinary text.
    Text,
}

/// Writes a `tokenizer.json`.
pub(crate) fn write(parts: &Parts<'_>) -> Result<String, VocabularyError> {
    let added_tokens: Vec<Value> = parts
        .added_tokens
        .iter()
        .map(|token| {
            json!({
                "id": token.id,
                "content": parts.tokens.get(token.id as usize),
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": token.kind == AddedTokenKind::Control,
            })
        })
        .collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    });
    let file = File {
        version: "1.0",
        truncation: None,
        padding: None,
        added_tokens,
        normalizer: None,
        pre_tokenizer: parts.pre_tokenizer.clone(),
        post_processor: byte_level.clone(),
        decoder: byte_level,
        model: Bpe {
            kind: "BPE",
            dropout: None,
            unk_token: None,
            continuing_subword_prefix: None,
            end_of_word_suffix: None,
            fuse_unk: false,
            byte_fallback: false,
            ignore_merges: parts.word_lookup == WordLookup::WholeWordFirst,
            vocab: Vocab(parts.tokens),
            merges: parts.merges,
        },
    };
    serde_json::to_string(&file).map_err(|error| VocabularyError::Malformed(error.to_string()))
}

#[derive(Serialize)]
struct File<'a> {
    version: &'static str,
    truncation: Option<()>,
    padding: Option<()>,
    added_tokens: Vec<Value>,
    normalizer: Option<()>,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Bpe<'a>,
}

#[derive(Serialize)]
struct Bpe<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    dropout: Option<()>,
    unk_token: Option<()>,
    continuing_subword_prefix: Option<()>,
    end_of_word_suffix: Option<()>,
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    vocab: Vocab<'a>,
    merges: &'a [String],
}

/// Tokens with their ids, ordered by id.
struct Vocab<'a>(&'a [String]);

impl Serialize for Vocab<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (id, token) in self.0.iter().enumerate() {
            map.serialize_entry(token, &id)?;
        }
        map.end()
    }
}

/// A pre-tokenizer that splits text by patterns, then maps bytes to the byte-level alphabet.
pub(crate) fn split_pattern(patterns: &[&str]) -> Value {
    let mut steps: Vec<Value> = patterns
        .iter()
        .map(|pattern| {
            json!({
                "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false,
            })
        })
        .collect();
    steps.push(json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
    }));
    json!({ "type": "Sequence", "pretokenizers": steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_byte_level_vocabularies_are_taken() {
        let file =
            |model: &str, decoder: &str| format!(r#"{{"model":{model},"decoder":{decoder}}}"#);
        let level = r#"{"type":"ByteLevel"}"#;
        assert!(check(&file(r#"{"type":"BPE","vocab":{},"merges":[]}"#, level)).is_ok());
        let sequence = format!(r#"{{"type":"Sequence","decoders":[{level}]}}"#);
        assert!(check(&file(r#"{"vocab":{}}"#, &sequence)).is_ok());
        for (model, decoder) in [
            (r#"{"type":"Unigram"}"#, level),
            (r#"{"type":"BPE","byte_fallback":true}"#, level),
            (r#"{"type":"BPE"}"#, r#"{"type":"Metaspace"}"#),
            (r#"{"type":"BPE"}"#, "null"),
        ] {
            let refused = check(&file(model, decoder));
            assert!(
                matches!(refused, Err(VocabularyError::Unsupported { .. })),
                "{model} {decoder}"
            );
        }
        let normalised = |normalizer: &str| {
            check(&format!(r#"{{"model":{{}},"decoder":{level},"normalizer":{normalizer}}}"#))
        };
        let nfc = r#"{"type":"NFC"}"#;
        for fine in ["null", nfc, &format!(r#"{{"type":"Sequence","normalizers":[{nfc}]}}"#)] {
            assert!(normalised(fine).is_ok(), "{fine}");
        }
        let replace = r#"{"type":"Replace","pattern":{"String":"e"},"content":"ee"}"#;
        let hidden = format!(r#"{{"type":"Sequence","normalizers":[{nfc},{replace}]}}"#);
        for bad in [replace, &hidden, r#"{"type":"NFKC"}"#, r#"{"type":"Lowercase"}"#, "{}", "3"] {
            let refused = normalised(bad);
            assert!(matches!(refused, Err(VocabularyError::Unsupported { .. })), "{bad}");
        }
        for broken in ["", "{", "[]", r#"{"model":3}"#, "null"] {
            assert!(matches!(check(broken), Err(VocabularyError::Malformed(_))), "{broken}");
        }
    }
}
