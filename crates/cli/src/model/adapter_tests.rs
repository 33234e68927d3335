//! Adapters of local models: those of this program, how they are recorded, and a tiny model with and without one.

use serde_json::{Value, json};

use super::*;
use crate::{
    args::model::LocalArgs,
    model::{LocalSettings, store},
};

#[cfg(feature = "local")]
#[test]
fn every_adapter_of_the_list_is_part_of_the_program() {
    let catalogue = store::catalogue().unwrap();
    let listed = catalogue.models().iter().filter_map(|model| model.adapter.as_ref());
    let listed: Vec<_> = listed.collect();
    for (name, packed) in adapters::ADAPTERS {
        assert!(packed.len() <= 10_000_000, "{name} is too large for the repository");
        let bytes = catalogue::unpack_adapter(packed, 100_000_000).unwrap();
        assert!(bytes.starts_with(b"GGUF"), "{name} is not a GGUF file");
        let (size, sha256) = (bytes.len() as u64, Sha256Hex::of_bytes(&bytes));
        let found = listed.iter().find(|adapter| adapter.name == *name);
        let is_right = found.is_some_and(|found| found.size == size && found.sha256 == sha256);
        assert!(
            is_right,
            "write into crates/catalogue/src/models.json, as \"adapter\" of its model: \
             {{\"name\": \"{name}\", \"size\": {size}, \"sha256\": \"{sha256}\", \"licence\": …, \"origin\": …}}"
        );
    }
    for adapter in listed {
        let is_there = adapters::ADAPTERS.iter().any(|(name, _)| *name == adapter.name);
        assert!(is_there, "{} is missing in crates/adapters/src/lib.rs", adapter.name);
    }
}

#[test]
fn an_adapter_is_listed_as_included_only_where_it_is() {
    let catalogue = store::catalogue().unwrap();
    let mut listed = catalogue.models().iter().filter_map(|model| model.adapter.as_ref());
    assert!(listed.all(|own| store::includes_adapter(&own.name) == cfg!(feature = "local")));
    assert!(!store::includes_adapter("of-another-version"));
}

#[test]
fn commands_for_local_models_take_the_adapter_of_the_environment() {
    let chosen = |given: Option<&str>, variable: Option<&str>| {
        let argument = |text: &str| AdapterArg::from(PathBuf::from(text));
        let mut environment = crate::settings::environment::Environment::default();
        environment.model.adapter = variable.map(argument);
        let settings = crate::settings::Settings::new(environment, false);
        let args = LocalArgs { adapter: given.map(argument), ..LocalArgs::default() };
        let (file, one) = (ModelFile::default_model().unwrap(), std::num::NonZeroU32::MIN);
        LocalSettings::of_command(file, args, one, &settings).unwrap().adapter
    };
    let file = |path: &str| Some(Adapter::File(path.into()));
    let catalogue = store::catalogue().unwrap();
    let own = Adapter::choose(None, &ModelFile::default_model().unwrap(), &catalogue);
    assert_eq!(chosen(None, None), own);
    assert_eq!(chosen(None, Some("none")), None);
    assert_eq!(chosen(None, Some("/m/a.gguf")), file("/m/a.gguf"));
    assert_eq!(chosen(Some("/m/b.gguf"), Some("none")), file("/m/b.gguf"));
}

/// A list with one model, which has an adapter with this content.
fn list(adapter: &[u8]) -> Catalogue {
    let list = json!({"models": [{
        "name": "tiny", "file": "tiny.gguf", "size": 1, "sha256": "0".repeat(64), "licence": "MIT",
        "description": "Small.", "sources": [],
        "adapter": {
            "name": "tiny-tuned", "size": adapter.len(), "sha256": Sha256Hex::of_bytes(adapter),
            "licence": "MIT", "origin": "Synthetic.",
        },
    }]});
    Catalogue::parse(&list.to_string()).unwrap()
}

fn settings(given: Option<&str>, catalogue: &Catalogue) -> LocalSettings {
    let args = LocalArgs {
        adapter: given.map(|text| AdapterArg::from(PathBuf::from(text))),
        context_tokens: std::num::NonZeroU32::new(512),
        // Several would wait for each other where other tests run.
        threads: std::num::NonZeroU32::new(1),
    };
    let one = std::num::NonZeroU32::MIN;
    LocalSettings::new(ModelFile::Listed("tiny".into()), args, one, catalogue)
}

#[test]
fn records_are_those_of_earlier_versions_where_there_is_no_adapter_of_the_program() {
    let catalogue = list(b"content");
    let record = |given| serde_json::to_value(settings(given, &catalogue)).unwrap();
    assert_eq!(record(Some("none"))["adapter"], Value::Null);
    assert_eq!(record(Some("/m/a.gguf"))["adapter"], "/m/a.gguf");
    let sha256 = Sha256Hex::of_bytes(b"content");
    let own = json!({"name": "tiny-tuned", "sha256": sha256});
    assert_eq!(record(None)["adapter"], own);
    for given in [None, Some("none"), Some("/m/a.gguf")] {
        let read: LocalSettings = serde_json::from_value(record(given)).unwrap();
        assert_eq!(read, settings(given, &catalogue));
    }
    let earlier = json!({"file": {"listed": "tiny"}, "adapter": null, "context": null, "threads": null, "sequences": 1});
    let read: LocalSettings = serde_json::from_value(earlier).unwrap();
    assert_eq!((read.adapter, read.file), (None, ModelFile::Listed("tiny".into())));
}

#[test]
fn an_adapter_is_named_where_its_model_is() {
    let catalogue = list(b"content");
    let title = |given| settings(given, &catalogue).title();
    assert_eq!(title(None), "tiny with the adapter tiny-tuned");
    assert_eq!(title(Some("none")), "tiny");
    assert_eq!(title(Some("/m/a.gguf")), "tiny with the adapter /m/a.gguf");
    let state = crate::settings::environment::Environment {
        home: Some("/h".into()),
        ..crate::settings::environment::Environment::default()
    };
    let home = crate::settings::Settings::new(state, false);
    let hint = |given, is_default| settings(given, &catalogue).hint(is_default, &home).unwrap();
    let named = hint(None, false).unwrap();
    assert!(named.contains("its adapter tiny-tuned; --adapter none"), "{named}");
    assert_eq!((hint(Some("none"), false), hint(Some("/m/a.gguf"), false)), (None, None));
    let default = hint(None, true).unwrap();
    assert!(
        default.contains("its adapter tiny-tuned") && default.contains("/h/models"),
        "{default}"
    );
    let default = hint(Some("none"), true).unwrap();
    assert!(!default.contains("adapter") && default.contains("--model"), "{default}");
    // Two versions of an adapter are different settings.
    let id = |content: &[u8]| settings(None, &list(content)).adapter.unwrap().id();
    assert_ne!(id(b"one"), id(b"two"));
}

#[cfg(feature = "local")]
mod with_llama {
    use std::{fs, path::Path};

    use catalogue::{AdapterContent, Store};
    use gguf::{NewTensor, TensorData};
    use model::{Model, Request, Sampling, Silent};
    use trajectory::Message;

    use super::*;
    use crate::settings::environment::variable;

    /// An adapter of the first layer's queries, which SmolLM2-135M has 576 by 576 of.
    fn adapter(width: u64) -> Vec<u8> {
        let metadata = [
            ("general.architecture", gguf::Value::from("llama")),
            ("general.type", gguf::Value::from("adapter")),
            ("adapter.type", gguf::Value::from("lora")),
            ("adapter.lora.alpha", gguf::Value::F32(1.0)),
        ];
        let factor = |name: &str, dimensions: [u64; 2], value: f32| NewTensor {
            name: format!("blk.0.attn_q.weight.{name}"),
            dimensions: dimensions.to_vec(),
            data: TensorData::F32(vec![value; usize::try_from(width).unwrap()]),
        };
        let tensors = [factor("lora_a", [width, 1], 10.0), factor("lora_b", [1, width], 1.0)];
        let mut bytes = Vec::new();
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value));
        gguf::write(&mut bytes, &metadata, &tensors).unwrap();
        bytes
    }

    async fn say(settings: &LocalSettings, model: &Path, store: &Store) -> anyhow::Result<String> {
        let model = settings.load_file(model.to_owned(), || Ok(store.clone())).await?;
        let messages = [Message::user("Name three colors.")];
        let sampling = Sampling { temperature: Some(0.0), ..Sampling::default() };
        let request =
            Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 8 };
        Ok(model.complete(&request, &Silent).await?.message.text)
    }

    #[tokio::test]
    async fn a_local_model_answers_with_its_own_adapter_with_none_and_with_a_file() {
        let Some(model) = variable("LIS_TEST_TINY_GGUF") else {
            let required = variable("LIS_REQUIRE").unwrap_or_default();
            let is_required = required.to_string_lossy().split(',').any(|name| name == "gguf");
            assert!(!is_required, "LIS_REQUIRE names gguf, and LIS_TEST_TINY_GGUF is not set");
            println!("skip: LIS_TEST_TINY_GGUF is not set");
            return;
        };
        let model = Path::new(&model);
        let dir = tempfile::tempdir().unwrap();
        let content: &'static [u8] = adapter(576).leak();
        let catalogue = list(content);
        let contents: &'static [AdapterContent] =
            vec![("tiny-tuned", &*catalogue::pack_adapter(content).unwrap().leak())].leak();
        let store =
            Store::with(dir.path().join("models"), catalogue.clone()).with_adapters(contents);
        let path = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path.to_str().unwrap().to_owned()
        };

        let own = settings(None, &catalogue);
        let tuned = say(&own, model, &store).await.unwrap();
        let plain = say(&settings(Some("none"), &catalogue), model, &store).await.unwrap();
        assert_ne!(tuned, plain, "the adapter is not applied");
        let file = path("mine.gguf", content);
        assert_eq!(say(&settings(Some(&file), &catalogue), model, &store).await.unwrap(), tuned);

        // As recorded and resumed, with a damaged copy in the store.
        let copy = store.adapter("tiny", &Sha256Hex::of_bytes(content)).unwrap().path().to_owned();
        fs::write(&copy, &content[..content.len() / 2]).unwrap();
        let record = serde_json::to_value(&own).unwrap();
        let resumed: LocalSettings = serde_json::from_value(record).unwrap();
        assert_eq!(say(&resumed, model, &store).await.unwrap(), tuned);
        assert!(fs::read(&copy).unwrap() == content);

        // Where nothing can be stored.
        fs::remove_file(&copy).unwrap();
        fs::create_dir(&copy).unwrap();
        assert_eq!(say(&own, model, &store).await.unwrap(), tuned);

        let foreign = path("foreign.gguf", &adapter(320));
        let error = say(&settings(Some(&foreign), &catalogue), model, &store).await.unwrap_err();
        let error = error.to_string();
        for part in ["foreign.gguf", "wrong base model", "--adapter none"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
