//! A vocabulary as the model hub keeps it: `tokenizer.json`, and beside it what else is known.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Vocabulary, VocabularyError,
    vocabulary::{About, Begins},
};

const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";
const GENERATION: &str = "generation_config.json";

/// No such file is larger.
const LARGEST: u64 = 256 << 20;

/// The vocabulary in a directory.
pub(crate) fn load(dir: &Path) -> Result<Vocabulary, VocabularyError> {
    let Some(tokenizer) = text(dir, TOKENIZER)? else {
        return Err(VocabularyError::Missing { path: dir.to_owned() });
    };
    let mut files = vec![(TOKENIZER, tokenizer)];
    for name in [CONFIG, TEMPLATE, GENERATION] {
        files.extend(text(dir, name)?.map(|text| (name, text)));
    }
    let about = about(&files)?;
    Vocabulary::new(about, files)
}

/// What a vocabulary is written as besides its `tokenizer.json`.
pub(crate) fn about_files(about: &About, ends: &[u32]) -> Vec<(&'static str, String)> {
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
        "add_prefix_space": false,
        "add_bos_token": about.begins == Begins::WithBos,
        "add_eos_token": false,
        "model_max_length": 1_000_000,
    });
    for (key, value) in [
        ("bos_token", &about.bos),
        ("eos_token", &about.eos),
        ("pad_token", &about.eos),
        ("chat_template", &about.chat_template),
    ] {
        if let (Some(value), Value::Object(config)) = (value, &mut config) {
            config.insert(key.into(), value.as_str().into());
        }
    }
    let generation = json!({ "eos_token_id": ends });
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

/// A token by its text, or described.
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

/// One template, or several by name.
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

fn about(files: &[(&'static str, String)]) -> Result<About, VocabularyError> {
    let named = |name: &str| files.iter().find(|(file, _)| *file == name).map(|(_, text)| text);
    let config: Config = parsed(CONFIG, named(CONFIG))?;
    let generation: Generation = parsed(GENERATION, named(GENERATION))?;
    let inside = match config.chat_template {
        Templates::One(template) => Some(template),
        Templates::Many(all) => {
            let default = all.iter().position(|named| named.name == "default").unwrap_or(0);
            all.into_iter().nth(default).map(|named| named.template)
        }
        Templates::None => None,
    };
    let ends = match generation.eos_token_id {
        Ids::One(id) => vec![id],
        Ids::Many(ids) => ids,
        Ids::None => Vec::new(),
    };
    Ok(About {
        bos: config.bos_token.text(),
        eos: config.eos_token.text(),
        ends,
        begins: match config.add_bos_token {
            Some(true) => Begins::WithBos,
            _ => Begins::Anyhow,
        },
        chat_template: named(TEMPLATE).cloned().or(inside),
    })
}

fn parsed<T: Default + for<'a> Deserialize<'a>>(
    name: &str,
    text: Option<&String>,
) -> Result<T, VocabularyError> {
    let Some(text) = text else { return Ok(T::default()) };
    serde_json::from_str(text)
        .map_err(|error| VocabularyError::Malformed(format!("{name} cannot be read: {error}")))
}

/// A text file, if it is there.
fn text(dir: &Path, name: &str) -> Result<Option<String>, VocabularyError> {
    let path = dir.join(name);
    let failed = |source| VocabularyError::Io { path: path.clone(), source };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let size = fs::metadata(&path).map_err(failed)?.len();
    if size > LARGEST {
        return Err(VocabularyError::TooLarge { path: path.clone(), size, most: LARGEST });
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}
