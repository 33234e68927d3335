//! A vocabulary in the format of the model hub: `tokenizer.json` and the files beside it.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Vocabulary, VocabularyError,
    vocabulary::{BosPolicy, TokenizerInfo},
};

const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";
const GENERATION: &str = "generation_config.json";

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// Loads the vocabulary in a directory.
pub(crate) fn load(dir: &Path) -> Result<Vocabulary, VocabularyError> {
    let Some(tokenizer) = read(dir, TOKENIZER)? else {
        return Err(VocabularyError::Missing { path: dir.to_owned() });
    };
    let mut files = vec![(TOKENIZER, tokenizer)];
    for name in [CONFIG, TEMPLATE, GENERATION] {
        files.extend(read(dir, name)?.map(|text| (name, text)));
    }
    Vocabulary::new(info(&files)?, files)
}

/// The files to write beside `tokenizer.json`.
pub(crate) fn companion_files(
    info: &TokenizerInfo,
    end_of_turn: &[u32],
) -> Vec<(&'static str, String)> {
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
        "add_prefix_space": false,
        "add_bos_token": info.bos_policy == BosPolicy::Add,
        "add_eos_token": false,
        "model_max_length": 1_000_000,
    });
    for (key, value) in [
        ("bos_token", &info.bos),
        ("eos_token", &info.eos),
        ("pad_token", &info.eos),
        ("chat_template", &info.chat_template),
    ] {
        if let (Some(value), Value::Object(config)) = (value, &mut config) {
            config.insert(key.into(), value.as_str().into());
        }
    }
    let generation = json!({ "eos_token_id": end_of_turn });
    vec![(CONFIG, format!("{config:#}\n")), (GENERATION, format!("{generation:#}\n"))]
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    bos_token: Token,
    eos_token: Token,
    add_bos_token: Option<bool>,
    chat_template: Templates,
}

/// A token as its text, or as an object.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Described {
        content: String,
    },
    #[default]
    None,
}

impl Token {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Described { content: text } => {
                Some(text).filter(|text| !text.is_empty())
            }
            Self::None => None,
        }
    }
}

/// One template, or several with names.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Many(Vec<Named>),
    #[default]
    None,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Generation {
    eos_token_id: Ids,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
    #[default]
    None,
}

fn info(files: &[(&'static str, String)]) -> Result<TokenizerInfo, VocabularyError> {
    let named = |name: &str| files.iter().find(|(file, _)| *file == name).map(|(_, text)| text);
    let config: Config = parse(CONFIG, named(CONFIG))?;
    let generation: Generation = parse(GENERATION, named(GENERATION))?;
    let inside = match config.chat_template {
        Templates::One(template) => Some(template),
        Templates::Many(all) => {
            let default = all.iter().position(|named| named.name == "default").unwrap_or(0);
            all.into_iter().nth(default).map(|named| named.template)
        }
        Templates::None => None,
    };
    let end_of_turn = match generation.eos_token_id {
        Ids::One(id) => vec![id],
        Ids::Many(ids) => ids,
        Ids::None => Vec::new(),
    };
    Ok(TokenizerInfo {
        bos: config.bos_token.text(),
        eos: config.eos_token.text(),
        end_of_turn,
        bos_policy: match config.add_bos_token {
            Some(true) => BosPolicy::Add,
            _ => BosPolicy::FromText,
        },
        chat_template: named(TEMPLATE).cloned().or(inside),
    })
}

fn parse<T: Default + for<'a> Deserialize<'a>>(
    name: &str,
    text: Option<&String>,
) -> Result<T, VocabularyError> {
    let Some(text) = text else { return Ok(T::default()) };
    serde_json::from_str(text)
        .map_err(|error| VocabularyError::Malformed(format!("{name} is malformed: {error}")))
}

/// Reads a text file; none if it does not exist.
fn read(dir: &Path, name: &str) -> Result<Option<String>, VocabularyError> {
    let path = dir.join(name);
    let failed = |source| VocabularyError::Io { path: path.clone(), source };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let size = fs::metadata(&path).map_err(failed)?.len();
    if size > MAX_FILE {
        return Err(VocabularyError::TooLarge { path: path.clone(), size, most: MAX_FILE });
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}
