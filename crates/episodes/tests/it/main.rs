//! Episodes with a scripted model in real sandboxes: played, followed, cancelled, forked, interrupted and resumed.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed expectation must fail the test")]

mod forks_a_turn;
mod plays_episodes;
mod resumes_what_stopped;
mod support;
