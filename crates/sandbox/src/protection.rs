//! The honest report of what a sandbox enforces, stored with everything that ran in it.

use serde::{Deserialize, Serialize};

/// Which layers of protection hold for one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// The runtime that made the sandbox.
    pub runtime: String,
    /// Every layer, whether it holds or not.
    pub layers: Vec<Layer>,
}

/// One layer of protection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// A short stable name, such as `memory limit`.
    pub name: String,
    /// Whether it holds.
    pub state: LayerState,
    /// How it is done, or why not and what would change that.
    pub detail: String,
}

/// Whether a layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerState {
    /// It holds.
    Enforced,
    /// It holds in part; the detail says which.
    Partial,
    /// It does not hold.
    Missing,
}

impl Protection {
    /// An empty report.
    pub fn new(runtime: impl Into<String>) -> Self {
        Self { runtime: runtime.into(), layers: Vec::new() }
    }

    /// Adds a layer.
    pub fn push(&mut self, name: &str, state: LayerState, detail: impl Into<String>) {
        self.layers.push(Layer { name: name.into(), state, detail: detail.into() });
    }

    /// The state of a layer by name; a layer nobody reported is missing.
    pub fn state(&self, name: &str) -> LayerState {
        self.layers.iter().find(|l| l.name == name).map_or(LayerState::Missing, |l| l.state)
    }
}
