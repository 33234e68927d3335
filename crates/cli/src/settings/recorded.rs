//! Recorded settings as `replay` and the console read them.

use std::{path::PathBuf, time::Duration};

use agent::Prompts;
use model::ToolFormat;
use sandbox::Spec;
use serde::Deserialize;
use serde_json::Value;

use crate::args::model::Images;

/// The part of recorded settings that can be shown or repeated. Trajectories of benchmarks, of other versions and of the
/// reference hold other settings, so every field may be absent.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordedSettings {
    #[serde(default)]
    pub(crate) prompts: Prompts,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) input: Option<PathBuf>,
    #[serde(default)]
    pub(crate) model: RecordedModel,
    #[serde(default, rename = "computer")]
    pub(crate) sandbox: RecordedSandbox,
}

/// The recorded model.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RecordedModel {
    pub(crate) images: Option<Images>,
    pub(crate) tool_format: Option<ToolFormat>,
}

/// The recorded sandbox.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RecordedSandbox {
    pub(crate) spec: Option<Spec>,
}

impl RecordedSettings {
    /// Reads recorded settings; none where there are none, or they are unreadable.
    pub(crate) fn read(settings: &Value) -> Option<Self> {
        serde_json::from_value(settings.clone()).ok()
    }
}
