//! `llm_in_sandbox._native`: the extension module below the Python package.
//!
//! Start with `Engine`, which a Python process creates once. The public classes are written in Python,
//! in `python/llm_in_sandbox`; this module has what they are made of, and no documentation for users. Methods return an
//! `Operation`, which either blocks with the interpreter's lock released, or reports to a queue that an event loop reads.
//! No thread but the caller's ever runs Python code.

mod completions;
mod engine;
mod episode;
mod episode_handle;
mod expose;
mod failure;
mod grading;
mod model;
mod operation;
mod owned;
mod pool;
mod reference;
mod renewed;
mod rollouts;
mod sandbox_handle;
mod spec;
mod value;

/// The extension module.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        completions::Completions,
        engine::Engine,
        episode_handle::EpisodeHandle,
        grading::{check_constraints, grade_line, trajectory_of},
        operation::Operation,
        pool::PoolHandle,
        reference::yaml_to_json,
        sandbox_handle::SandboxHandle,
    };
}
