//! An OpenAI-compatible HTTP endpoint in front of any [`model::Model`].
//!
//! Knows HTTP and OpenAI's chat completions. Loads no model, reads no settings and runs no tool.
