//! What the operator decides for all episodes.

use std::{fmt, sync::Arc, time::Duration};

use agent::{
    Compaction, EpisodeSettings, FileChanges, Limits, Prompts,
    tools::{Tools, Vision},
};
use model::{Price, Sampling, SharedModel};
use sandbox::Spec;

use crate::Store;

/// What the operator decides for all episodes.
#[derive(Clone)]
pub struct EpisodeOptions {
    /// Where episodes are kept.
    pub store: Arc<Store>,
    /// The served models. The first one is used where a request names none. Without any, what was recorded can be read, and
    /// nothing can be played.
    pub models: Vec<ServedModel>,
    /// Specification of sandboxes. The working directory is that of the prompts.
    pub spec: Spec,
    /// The prompts.
    pub prompts: Prompts,
    /// The limits of an episode that asks for none, and the highest it may ask for.
    pub limits: Limits,
    /// Time limit of a command.
    pub command_timeout: Duration,
    /// Whether old tool results are shortened near the token limit.
    pub compact: bool,
    /// Most episodes that are kept; 100,000 by default.
    pub max_episodes: usize,
    /// The version of the program, for the record.
    pub program: String,
}

/// A model that plays episodes.
#[derive(Clone, Debug)]
pub struct ServedModel {
    /// The name by which clients choose it.
    pub name: String,
    /// The model.
    pub model: SharedModel,
    /// How it is sampled.
    pub sampling: Sampling,
    /// What it costs.
    pub price: Option<Price>,
    /// Its context window in tokens.
    pub context: Option<u64>,
    /// Whether it accepts images.
    pub vision: Vision,
}

impl EpisodeOptions {
    /// Serves these models from a store, with defaults for the rest.
    pub fn new(store: Arc<Store>, models: Vec<ServedModel>) -> Self {
        Self {
            store,
            models,
            spec: Spec::default(),
            prompts: Prompts::builtin("general").unwrap_or_default(),
            limits: Limits::default(),
            command_timeout: Tools::default().timeout,
            compact: false,
            max_episodes: 100_000,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The settings of an episode with these limits.
    pub(crate) fn settings(&self, model: &ServedModel, limits: &Limits) -> EpisodeSettings {
        let tools = Tools {
            workdir: self.prompts.working_dir.clone(),
            timeout: self.command_timeout,
            vision: model.vision,
            ..Tools::default()
        };
        let window = model.context.unwrap_or(u64::MAX).min(limits.tokens);
        EpisodeSettings {
            limits: limits.clone(),
            tools,
            sampling: model.sampling.clone(),
            price: model.price,
            compaction: self
                .compact
                .then(|| Compaction { window: Some(window), ..Compaction::default() }),
            output_dir: Some(self.prompts.output_dir.clone()),
            answer_file: None,
            changes: FileChanges::Recorded,
        }
    }
}

impl ServedModel {
    /// A model with default settings, under its own name.
    pub fn new(model: SharedModel) -> Self {
        Self {
            name: model::Model::name(&model).to_owned(),
            model,
            sampling: Sampling::default(),
            price: None,
            context: None,
            vision: Vision::TextOnly,
        }
    }
}

impl fmt::Debug for EpisodeOptions {
    /// Without the variables of sandboxes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpisodeOptions")
            .field("models", &self.models)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
