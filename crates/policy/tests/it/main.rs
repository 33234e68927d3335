//! Networks as a trainer uses them: loaded, scored, adapted, saved, sampled.

mod agrees_with_llama_cpp;
mod agrees_with_transformers;
mod needs;
mod refuses_bad_weights;
mod samples;
mod saves_what_it_loads;
