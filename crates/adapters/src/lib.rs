//! The adapters that are part of the program, as bytes. The list of models says which model each belongs to.
//!
//! Knows neither models nor formats: files of the directory `adapters` of the repository, embedded unchanged. An entry is
//! `("NAME", include_bytes!("../../../adapters/NAME.gguf.packed"))`.

/// Every adapter: its name in the list of models, and the content of its file, packed.
pub const ADAPTERS: &[(&str, &[u8])] = &[(
    "qwen2.5-coder-1.5b-rl",
    include_bytes!("../../../adapters/qwen2.5-coder-1.5b-rl.gguf.packed"),
)];
