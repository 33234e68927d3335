//! `tokenizer.json`: whether one is of the kind that is known here, and how one is put together.

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use crate::VocabularyError;

/// What is supported, in words.
const SUPPORTED: &str = "byte-level BPE vocabularies, as Llama 3, Qwen and SmolLM have them";

/// The parts that tell the kind.
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

/// Refuses what is no byte-level BPE vocabulary.
pub(crate) fn check(json: &str) -> Result<(), VocabularyError> {
    let malformed = |error: serde_json::Error| {
        VocabularyError::Malformed(format!("tokenizer.json cannot be read: {error}"))
    };
    let Kind { model, decoder, normalizer } = serde_json::from_str(json).map_err(malformed)?;
    let unsupported =
        |what: String| Err(VocabularyError::Unsupported { what, supported: SUPPORTED });
    match model.kind.as_deref() {
        None | Some("BPE") => {}
        Some(other) => return unsupported(format!("a vocabulary of type {other:.40}")),
    }
    if model.byte_fallback {
        return unsupported("a vocabulary that falls back to bytes".into());
    }
    if !keeps_text(&normalizer) {
        let kind = normalizer["type"].as_str().unwrap_or("no known type");
        return unsupported(format!("a vocabulary that rewrites text ({kind:.40})"));
    }
    match is_byte_level(&decoder) {
        true => Ok(()),
        false => unsupported("a vocabulary whose letters are no bytes".into()),
    }
}

/// Whether text is at most composed before it is cut. Other changes could turn text that holds no mark into one that does,
/// or a little text into a great deal.
fn keeps_text(normalizer: &Value) -> bool {
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

/// What a `tokenizer.json` is made of.
pub(crate) struct Parts<'a> {
    /// Every token, marks included, by its id.
    pub(crate) tokens: &'a [String],
    /// Pairs of tokens that become one, the most urgent first.
    pub(crate) merges: &'a [String],
    /// How text is cut before that.
    pub(crate) cut: Value,
    /// Whether a word that is a token need not be put together.
    pub(crate) whole: Whole,
    /// The tokens that are written in text as such.
    pub(crate) marks: Vec<Mark>,
}

/// Whether a word that is a token is taken as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// Even where no merges lead to it.
    AsItIs,
    /// Only by its merges.
    Merged,
}

/// A token that is written in text as such.
pub(crate) struct Mark {
    pub(crate) id: u32,
    pub(crate) kind: MarkKind,
}

/// What a mark is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// It steers the model.
    Control,
    /// It is text.
    Text,
}

/// The text of a `tokenizer.json`.
pub(crate) fn write(parts: &Parts<'_>) -> Result<String, VocabularyError> {
    let marks: Vec<Value> = parts
        .marks
        .iter()
        .map(|mark| {
            json!({
                "id": mark.id,
                "content": parts.tokens.get(mark.id as usize),
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": mark.kind == MarkKind::Control,
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
        added_tokens: marks,
        normalizer: None,
        pre_tokenizer: parts.cut.clone(),
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
            ignore_merges: parts.whole == Whole::AsItIs,
            vocab: Numbered(parts.tokens),
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
    vocab: Numbered<'a>,
    merges: &'a [String],
}

/// Tokens with their ids, in the order of these.
struct Numbered<'a>(&'a [String]);

impl Serialize for Numbered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (id, token) in self.0.iter().enumerate() {
            map.serialize_entry(token, &id)?;
        }
        map.end()
    }
}

/// How text is cut into words before they are put together: a pattern, and the letters of bytes.
pub(crate) fn cut_by(patterns: &[&str]) -> Value {
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
