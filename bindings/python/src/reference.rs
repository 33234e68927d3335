//! What the interface of the reference package needs of the engine: its YAML parser.

use pyo3::{exceptions::PyValueError, prelude::*};
use serde_json::Value;

/// Most bytes of a YAML text.
const MAX_YAML: usize = 16 << 20;

/// A YAML text as JSON. Raises `ValueError` where it is not YAML; nesting, aliases and sizes are bounded.
#[pyfunction]
pub(crate) fn yaml_to_json(py: Python<'_>, text: &str) -> PyResult<String> {
    let invalid = |message: String| PyValueError::new_err(format!("invalid YAML: {message}"));
    if text.len() > MAX_YAML {
        return Err(invalid(format!("{} bytes are too many", text.len())));
    }
    let value = py.detach(|| parse(text)).map_err(invalid)?;
    serde_json::to_string(&value).map_err(|error| invalid(error.to_string()))
}

fn parse(text: &str) -> Result<Option<Value>, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_depth: 64,
            max_nodes: 1_000_000,
            max_events: 5_000_000,
            max_aliases: 1000,
            max_total_scalar_bytes: 2 * MAX_YAML,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}
