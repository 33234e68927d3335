//! Tests of the agent with a scripted model and a real sandbox; nothing between them is mocked.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[cfg(target_os = "linux")]
mod adds_tools;
#[cfg(target_os = "linux")]
mod plays_episodes;
mod prompts_examples;
#[cfg(target_os = "linux")]
mod sandboxes;
#[cfg(target_os = "linux")]
mod submits_after_commands;
#[cfg(target_os = "linux")]
mod tools_answer_calls;
#[cfg(target_os = "linux")]
mod tools_edit_files;
#[cfg(target_os = "linux")]
mod tools_run_commands;
#[cfg(target_os = "linux")]
mod tools_taken_away;
