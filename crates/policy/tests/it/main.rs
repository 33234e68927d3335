//! Networks as a trainer uses them: loaded, scored, adapted, saved, sampled.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests start programs and are told by the environment what the machine has"
)]

mod agrees_with_llama_cpp;
mod agrees_with_transformers;
mod continues_across_updates;
mod needs;
mod packs_on_a_gpu;
mod refuses_bad_weights;
mod samples;
mod saves_what_it_loads;
mod trains_adapters_on_a_gpu;
