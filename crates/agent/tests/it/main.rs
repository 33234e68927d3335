//! What the agent does, story by story: a scripted model, a real sandbox, nothing mocked between them.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod prompts_examples;
