//! Whole episodes, groups of them and demonstrations, with a scripted sampler in real sandboxes.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(target_os = "linux")]

mod fails_well;
mod keeps_tokens;
mod leaves_groups_open;
mod plays_groups;
mod plays_plainly;
mod script;
mod support;
mod teaches;
