//! A conversation as the text a model was trained on: its chat template, and a guard for the text of others in it.
//!
//! Knows no tokens and no file; whoever loads a model brings the template's text.

mod date;
mod guard;
mod template;

pub use guard::{Guard, SPLIT};
pub use template::{Template, TemplateError};
