//! Local models: which file, pulled if it is missing, and loaded into this process.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use anyhow::Context;
use catalogue::Catalogue;
#[cfg(feature = "local")]
use catalogue::Store;
use indicatif::HumanBytes;
use model_server::TokenModel;
use serde::{Deserialize, Serialize};

use super::{adapter::Adapter, store};
use crate::{args::model::LocalArgs, exit::UsageError, settings::Settings};

#[cfg(feature = "local")]
use super::adapter::OpenAdapter;
#[cfg(feature = "local")]
pub(crate) use model_local::LocalModel;

/// The prefix of a local model's name.
const PREFIX: &str = "local:";

/// Which local model, and how it is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalSettings {
    pub(crate) file: ModelFile,
    pub(crate) adapter: Option<Adapter>,
    pub(crate) context: Option<NonZeroU32>,
    pub(crate) threads: Option<NonZeroU32>,
    /// Concurrent conversations.
    pub(crate) sequences: NonZeroU32,
}

/// The weights of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ModelFile {
    /// A model of `model list`.
    Listed(String),
    /// A GGUF file.
    At(PathBuf),
}

impl ModelFile {
    /// The file that a model name means, or `None` for a model of a server.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::prefixed(name).or_else(|| is_path(name).then(|| Self::At(absolute(name))))
    }

    /// The same, only for names with the prefix: servers may name their models after files.
    pub(crate) fn prefixed(name: &str) -> Option<Self> {
        name.strip_prefix(PREFIX).map(|rest| match is_path(rest) {
            true => Self::At(absolute(rest)),
            false => Self::Listed(rest.to_owned()),
        })
    }

    /// The default model.
    pub(crate) fn default_model() -> anyhow::Result<Self> {
        let catalogue = store::catalogue()?;
        let model = catalogue.default_model().context("the list of models has no default")?;
        Ok(Self::Listed(model.name.clone()))
    }

    /// The model's name in recorded settings.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Listed(name) => name.clone(),
            Self::At(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}

/// Names of servers' models may have slashes, but not this extension.
fn is_path(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

impl LocalSettings {
    /// Combines a model with arguments. Without `--adapter`, the model's own is used.
    pub(crate) fn new(
        file: ModelFile,
        args: LocalArgs,
        sequences: NonZeroU32,
        catalogue: &Catalogue,
    ) -> Self {
        let adapter = Adapter::choose(args.adapter, &file, catalogue);
        Self { file, adapter, context: args.context_tokens, threads: args.threads, sequences }
    }

    /// The same for a command that runs local models only: without `--adapter`, the environment decides.
    pub(crate) fn of_command(
        file: ModelFile,
        mut args: LocalArgs,
        sequences: NonZeroU32,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        args.adapter = args.adapter.or_else(|| settings.model_variables().adapter.clone());
        Ok(Self::new(file, args, sequences, &store::catalogue()?))
    }

    /// Applies arguments to recorded settings. Without `--adapter`, the recorded one is used, or none.
    pub(crate) fn override_with(&mut self, args: LocalArgs, catalogue: &Catalogue) {
        if args.adapter.is_some() {
            self.adapter = Adapter::choose(args.adapter, &self.file, catalogue);
        }
        self.context = args.context_tokens.or(self.context);
        self.threads = args.threads.or(self.threads);
    }

    /// The model's name, and the adapter it is used with.
    pub(crate) fn title(&self) -> String {
        match &self.adapter {
            None => self.file.name(),
            Some(adapter) => format!("{} with the adapter {adapter}", self.file.name()),
        }
    }

    /// A line about what the user did not choose: the model, where it is the default, and its own adapter.
    pub(crate) fn hint(
        &self,
        is_default: bool,
        settings: &Settings,
    ) -> anyhow::Result<Option<String>> {
        let own = match &self.adapter {
            Some(Adapter::Bundled { name, .. }) => Some(name),
            Some(Adapter::File(_)) | None => None,
        };
        let name = self.file.name();
        if !is_default {
            let line = |adapter| {
                format!("{name} is used with its adapter {adapter}; --adapter none turns it off")
            };
            return Ok(own.map(line));
        }
        let (home, catalogue) = (settings.home()?, store::catalogue()?);
        let size = catalogue.get(&name).map_or(0, |model| model.size);
        let (with, without) = match own {
            Some(adapter) => (
                format!(" with its adapter {adapter}"),
                ", or use it without the adapter with --adapter none",
            ),
            None => (String::new(), ""),
        };
        Ok(Some(format!(
            "no model given: using the local model {name} ({}, stored in {}){with}; choose another with \
             --model local:NAME, FILE.gguf or the name of a server's model{without}",
            HumanBytes(size),
            home.join("models").display(),
        )))
    }

    /// Loads the model, after pulling it if it is missing.
    #[cfg(feature = "local")]
    pub(crate) async fn load(&self, settings: &Settings) -> anyhow::Result<LocalModel> {
        let path = match &self.file {
            ModelFile::At(path) => path.clone(),
            ModelFile::Listed(name) => pulled(name, settings).await?,
        };
        let store = || store::open(settings.home()?);
        self.load_file(path, store).await
    }

    /// Loads the model from a file, and its adapter from a store.
    #[cfg(feature = "local")]
    pub(super) async fn load_file(
        &self,
        path: PathBuf,
        store: impl FnOnce() -> anyhow::Result<Store>,
    ) -> anyhow::Result<LocalModel> {
        let adapter = match &self.adapter {
            Some(adapter) => Some(OpenAdapter::open(adapter, &self.file, store).await?),
            None => None,
        };
        let options = model_local::Options {
            threads: self.threads,
            context: self.context,
            sequences: self.sequences,
            adapter: adapter.as_ref().map(|adapter| adapter.path().to_owned()),
        };
        let name = self.file.name();
        let (mut waiting, done) = Waiting::new();
        let cancel = waiting.cancel.clone();
        let loading = tokio::task::spawn_blocking(move || {
            let loaded = LocalModel::load_cancellable(&name, &path, &options, &cancel);
            // llama.cpp has read it.
            drop(adapter);
            drop(done);
            loaded
        });
        let loaded = loading.await.context("the loading thread failed")?;
        waiting.done = None;
        loaded.map_err(|error| {
            let remedy = match error {
                model_local::LoadError::Adapter { .. } => {
                    "; give one that was made for this model with --adapter FILE, or use none with --adapter none"
                }
                // Another file or number helps against all of these.
                _ => "",
            };
            UsageError(crate::exit::describe(&error.into()) + remedy).into()
        })
    }
}

/// Waits for a model to be loaded. Dropping it cancels the loading and waits until it has ended: llama.cpp must not run
/// while the process exits.
#[cfg(feature = "local")]
struct Waiting {
    cancel: model_local::Cancel,
    done: Option<std::sync::mpsc::Receiver<()>>,
}

#[cfg(feature = "local")]
impl Waiting {
    fn new() -> (Self, std::sync::mpsc::Sender<()>) {
        let (done, receiver) = std::sync::mpsc::channel();
        (Self { cancel: model_local::Cancel::default(), done: Some(receiver) }, done)
    }
}

#[cfg(feature = "local")]
impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            self.cancel.cancel();
            // Returns once the sender is dropped.
            let _ = done.recv();
        }
    }
}

/// The file of a model of `model list`.
#[cfg(feature = "local")]
async fn pulled(name: &str, settings: &Settings) -> anyhow::Result<PathBuf> {
    let store = store::open(settings.home()?)?;
    if let Some(path) = stored(&store, name).await? {
        return Ok(path);
    }
    let store = store::open(settings.writable_home()?)?;
    let model = store::pull(&store, name, None).await?;
    Ok(model.path)
}

#[cfg(feature = "local")]
async fn stored(store: &Store, name: &str) -> anyhow::Result<Option<PathBuf>> {
    let (store, name) = (store.clone(), name.to_owned());
    let found = tokio::task::spawn_blocking(move || store.path(&name));
    match found.await.context("the search for the model failed")? {
        Ok(path) => Ok(Some(path)),
        Err(catalogue::Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A local model for clients that send token ids.
#[cfg(feature = "local")]
pub(crate) fn token_model(model: &LocalModel) -> TokenModel {
    struct Text(LocalModel);

    impl model_server::TokenText for Text {
        fn bytes(&self, token: u32) -> Vec<u8> {
            self.0.token_bytes(token)
        }

        fn ends(&self) -> Vec<u32> {
            self.0.end_tokens()
        }
    }

    TokenModel::new(model.clone(), Text(model.clone()))
}

#[cfg(not(feature = "local"))]
pub(crate) fn token_model(model: &LocalModel) -> TokenModel {
    match *model {}
}

/// This program was built without local models.
#[cfg(not(feature = "local"))]
pub(crate) enum LocalModel {}

#[cfg(not(feature = "local"))]
impl LocalSettings {
    /// Fails.
    pub(crate) async fn load(&self, _: &Settings) -> anyhow::Result<LocalModel> {
        let text = "this program was built without local models; build it with its default \
                    features, or use a server with --model and --base-url";
        Err(UsageError(text.into()).into())
    }
}

#[cfg(not(feature = "local"))]
impl LocalModel {
    /// Tokens of one conversation.
    pub(crate) fn context(&self) -> u32 {
        match *self {}
    }
}

#[cfg(not(feature = "local"))]
impl model::Model for LocalModel {
    fn name(&self) -> &str {
        match *self {}
    }

    async fn complete(
        &self,
        _: &model::Request<'_>,
        _: &dyn model::Listener,
    ) -> Result<model::Response, model::Error> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_files() {
        let listed = |name: &str| Some(ModelFile::Listed(name.into()));
        assert_eq!(ModelFile::named("local:qwen"), listed("qwen"));
        assert_eq!(ModelFile::named("gpt-4.1"), None);
        assert_eq!(ModelFile::named("Qwen/Qwen3-8B"), None);
        for path in ["./dir/m.gguf", "m.GGUF", "local:m.gguf"] {
            let Some(ModelFile::At(path)) = ModelFile::named(path) else { panic!("{path}") };
            assert!(path.is_absolute());
        }
        assert_eq!(ModelFile::At("/a/b-1.5b.q4.gguf".into()).name(), "b-1.5b.q4");
    }
}
