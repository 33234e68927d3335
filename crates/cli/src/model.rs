//! The model of a command: its settings, and the opened model.

mod adapter;
mod local;
mod open;
mod preflight;
mod settings;
pub(crate) mod store;

pub(crate) use self::{
    adapter::Adapter,
    local::{LocalSettings, ModelFile, token_model},
    open::AnyModel,
    preflight::{Effort, preflight},
    settings::{ModelLocation, ModelSettings, Secrets, strip_vendor},
};
