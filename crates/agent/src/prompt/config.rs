//! Parses a prompt config: YAML with the keys of the reference implementation.
//!
//! Nesting, aliases and sizes are bounded; values under unknown keys are skipped.

use std::{fmt, path::PathBuf};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::{MAX_CONFIG, PromptError, Prompts};

/// Parses a config. A key that is missing or empty has its default value.
pub(super) fn read(text: &str) -> Result<Prompts, PromptError> {
    if text.len() > MAX_CONFIG {
        return Err(PromptError::TooLong { size: text.len() });
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_depth: 32,
            max_nodes: 10_000,
            max_events: 50_000,
            max_aliases: 100,
            max_total_scalar_bytes: 2 * MAX_CONFIG,
        },
        with_snippet: false,
    };
    let config: Option<Config> = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| PromptError::Yaml(Box::new(error)))?;
    Ok(config.map(|config| config.0).unwrap_or_default())
}

struct Config(Prompts);

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys).map(Self)
    }
}

/// Not derived, because serde can ignore or refuse unknown keys, but not collect them.
struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a mapping with system_prompt, instance_prompt, working_dir, input_dir, output_dir",
        )
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Prompts, M::Error> {
        let mut prompts = Prompts::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "system_prompt" => set(&mut prompts.system, map.next_value()?),
                "instance_prompt" => set(&mut prompts.task, map.next_value()?),
                "working_dir" => set_dir(&mut prompts.working_dir, map.next_value()?),
                "input_dir" => set_dir(&mut prompts.input_dir, map.next_value()?),
                "output_dir" => set_dir(&mut prompts.output_dir, map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    prompts.unknown.push(key);
                }
            }
        }
        Ok(prompts)
    }
}

fn set(field: &mut String, value: Option<String>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn set_dir(field: &mut PathBuf, value: Option<String>) {
    if let Some(value) = value {
        *field = PathBuf::from(value);
    }
}
