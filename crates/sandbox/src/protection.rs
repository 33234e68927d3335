//! The report of what a sandbox enforces, stored with everything that ran in it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which layers of protection hold for one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// The runtime that created the sandbox.
    pub runtime: String,
    /// Every layer, whether it holds or not.
    pub layers: Vec<LayerReport>,
}

/// The state of one layer of protection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerReport {
    /// Which layer.
    #[serde(rename = "name")]
    pub layer: Layer,
    /// Whether it holds.
    pub state: LayerState,
    /// How it is enforced, or why it is not and what would change that.
    pub detail: String,
}

macro_rules! layers {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// A layer of protection, or a part of the machine that one needs. Serialized as its label.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        #[non_exhaustive]
        pub enum Layer {
            $($(#[$doc])* $name,)*
            /// A label this version does not know, from a file of another version.
            Other(String),
        }

        impl Layer {
            /// The stable label, such as `memory limit`.
            pub fn label(&self) -> &str {
                match self {
                    $(Self::$name => $label,)*
                    Self::Other(label) => label,
                }
            }
        }

        impl From<String> for Layer {
            fn from(label: String) -> Self {
                match label.as_str() {
                    $($label => Self::$name,)*
                    _ => Self::Other(label),
                }
            }
        }
    };
}

layers! {
    /// Namespaces separate the sandbox from the machine.
    Namespaces = "namespaces",
    /// Users inside have no rights outside.
    Users = "users",
    /// The daemon maps users into a user namespace.
    UserNamespace = "user namespace",
    /// System calls are filtered and privileges dropped.
    SystemCalls = "system calls",
    /// Capabilities are dropped.
    Capabilities = "capabilities",
    /// No process can gain privileges.
    NoNewPrivileges = "no new privileges",
    /// A seccomp filter applies.
    Seccomp = "seccomp",
    /// Memory of all processes together is bounded.
    MemoryLimit = "memory limit",
    /// Processor time is bounded.
    CpuLimit = "cpu limit",
    /// The number of processes is bounded.
    ProcessLimit = "process limit",
    /// The process that serves the caller inside the sandbox cannot be starved or killed by commands.
    FirstProcess = "first process",
    /// A paused sandbox executes nothing.
    Pause = "pause",
    /// Bytes written are bounded.
    DiskLimit = "disk limit",
    /// The network is restricted.
    Network = "network",
    /// The kernel has overlayfs.
    Overlay = "overlay",
    /// The machine's control groups can be used.
    Cgroups = "cgroups",
    /// The user has a range of user ids.
    IdMaps = "id maps",
}

impl From<Layer> for String {
    fn from(layer: Layer) -> Self {
        layer.label().to_owned()
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Honours width and alignment.
        f.pad(self.label())
    }
}

/// Whether a layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerState {
    /// It holds.
    Enforced,
    /// It holds in part; the detail names which.
    Partial,
    /// It does not hold.
    Missing,
}

impl Protection {
    /// Creates an empty report.
    pub fn new(runtime: impl Into<String>) -> Self {
        Self { runtime: runtime.into(), layers: Vec::new() }
    }

    /// Adds a layer.
    pub fn push(&mut self, layer: Layer, state: LayerState, detail: impl Into<String>) {
        self.layers.push(LayerReport { layer, state, detail: detail.into() });
    }

    /// The state of a layer; one that was not reported is missing.
    pub fn state(&self, layer: &Layer) -> LayerState {
        let report = self.layers.iter().find(|report| report.layer == *layer);
        report.map_or(LayerState::Missing, |report| report.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_labels_and_unknown_ones_survive() {
        let text = r#"{"runtime":"native","layers":[
            {"name":"memory limit","state":"enforced","detail":"cgroup v2"},
            {"name":"of the future","state":"partial","detail":""}]}"#;
        let report: Protection = serde_json::from_str(text).unwrap();
        assert_eq!(report.state(&Layer::MemoryLimit), LayerState::Enforced);
        assert_eq!(report.layers[1].layer, Layer::Other("of the future".into()));
        assert_eq!(report.state(&Layer::Network), LayerState::Missing);
        let same: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&report).unwrap(), same);
    }
}
