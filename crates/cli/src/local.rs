//! Models that run in this process, as the command line knows them: which file, fetched where it is
//! missing, and loaded.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use anyhow::Context;
#[cfg(feature = "local")]
use catalogue::Store;
use indicatif::HumanBytes;
use serde::{Deserialize, Serialize};

use crate::{agent_args::LocalArgs, exit::Usage, models, settings::Settings};

#[cfg(feature = "local")]
pub(crate) use model_local::LocalModel;

/// What marks a model of the catalogue.
const MARK: &str = "local:";

/// Which model, and how it is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalPlan {
    pub(crate) file: ModelFile,
    pub(crate) adapter: Option<PathBuf>,
    pub(crate) context: Option<NonZeroU32>,
    pub(crate) threads: Option<NonZeroU32>,
    /// Conversations at once.
    pub(crate) sequences: NonZeroU32,
}

/// Where a model's weights are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ModelFile {
    /// Under this name in the catalogue.
    Listed(String),
    /// In this file.
    At(PathBuf),
}

impl ModelFile {
    /// The file that a name of a model stands for, if it does not stand for one at a server.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::marked(name).or_else(|| is_path(name).then(|| Self::At(absolute(name))))
    }

    /// The same for a name that can stand for nothing else. Servers may call their models after files.
    pub(crate) fn marked(name: &str) -> Option<Self> {
        name.strip_prefix(MARK).map(|rest| match is_path(rest) {
            true => Self::At(absolute(rest)),
            false => Self::Listed(rest.to_owned()),
        })
    }

    /// The model of the catalogue that is used where the user names none, and a line that tells of it.
    pub(crate) fn usual(settings: &Settings) -> anyhow::Result<(Self, String)> {
        let home = settings.home()?;
        let store = models::store(home)?;
        let model =
            store.catalogue().default_model().context("the list of models has no default")?;
        let hint = format!(
            "no model is named: {} runs in this process ({}, kept in {}); --model local:NAME, FILE.gguf or a \
             server's NAME chooses another",
            model.name,
            HumanBytes(model.size),
            home.join("models").display(),
        );
        Ok((Self::Listed(model.name.clone()), hint))
    }

    /// What the model is called in records.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Listed(name) => name.clone(),
            Self::At(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}

/// Names of models at servers have slashes too, but no such ending.
fn is_path(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

impl LocalPlan {
    /// Puts together what the user says.
    pub(crate) fn new(file: ModelFile, args: LocalArgs, sequences: NonZeroU32) -> Self {
        let adapter = args.adapter.map(|path| std::path::absolute(&path).unwrap_or(path));
        Self { file, adapter, context: args.context, threads: args.threads, sequences }
    }

    /// What the user says anew about the model of an earlier process.
    pub(crate) fn override_with(&mut self, args: LocalArgs) {
        let said = Self::new(self.file.clone(), args, self.sequences);
        self.adapter = said.adapter.or_else(|| self.adapter.take());
        self.context = said.context.or(self.context);
        self.threads = said.threads.or(self.threads);
    }

    /// Loads the model, after fetching what is missing of it.
    #[cfg(feature = "local")]
    pub(crate) async fn load(&self, settings: &Settings) -> anyhow::Result<LocalModel> {
        let path = match &self.file {
            ModelFile::At(path) => path.clone(),
            ModelFile::Listed(name) => fetched(name, settings).await?,
        };
        let options = model_local::Options {
            threads: self.threads,
            context: self.context,
            sequences: self.sequences,
            adapter: self.adapter.clone(),
        };
        let name = self.file.name();
        let (mut waiting, done) = Waiting::new();
        let cancel = waiting.cancel.clone();
        let loading = tokio::task::spawn_blocking(move || {
            let loaded = LocalModel::load_unless(&name, &path, &options, &cancel);
            drop(done);
            loaded
        });
        let loaded = loading.await.context("loading the model broke off")?;
        waiting.done = None;
        loaded.map_err(|error| {
            // All of these are answered by another file or another number.
            Usage(crate::exit::line(&error.into())).into()
        })
    }
}

/// Somebody who waits for a model to be loaded. One who leaves gives it up, and stays until that has
/// happened: llama.cpp must not be at work while the process is being taken down.
#[cfg(feature = "local")]
struct Waiting {
    cancel: model_local::Cancel,
    done: Option<std::sync::mpsc::Receiver<()>>,
}

#[cfg(feature = "local")]
impl Waiting {
    fn new() -> (Self, std::sync::mpsc::Sender<()>) {
        let (done, hears) = std::sync::mpsc::channel();
        (Self { cancel: model_local::Cancel::default(), done: Some(hears) }, done)
    }
}

#[cfg(feature = "local")]
impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            self.cancel.cancel();
            // It ends without a word, once nobody is left who could say one.
            let _ = done.recv();
        }
    }
}

/// The file of a listed model.
#[cfg(feature = "local")]
async fn fetched(name: &str, settings: &Settings) -> anyhow::Result<PathBuf> {
    let store = models::store(settings.home()?)?;
    if let Some(path) = here(&store, name).await? {
        return Ok(path);
    }
    let store = models::store(settings.writable_home()?)?;
    let pulled = models::pull(&store, name, None).await?;
    Ok(pulled.path)
}

#[cfg(feature = "local")]
async fn here(store: &Store, name: &str) -> anyhow::Result<Option<PathBuf>> {
    let (store, name) = (store.clone(), name.to_owned());
    let found = tokio::task::spawn_blocking(move || store.path(&name));
    match found.await.context("looking for the model broke off")? {
        Ok(path) => Ok(Some(path)),
        Err(catalogue::Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A model this program was built without.
#[cfg(not(feature = "local"))]
pub(crate) enum LocalModel {}

#[cfg(not(feature = "local"))]
impl LocalPlan {
    /// Loads nothing.
    pub(crate) async fn load(&self, _: &Settings) -> anyhow::Result<LocalModel> {
        let text = "this program was built without models of its own; build it with its default \
                    features, or name a server's model with --model and --base-url";
        Err(Usage(text.into()).into())
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
    ) -> Result<model::Reply, model::Error> {
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
