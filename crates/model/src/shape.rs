//! A constraint on responses: some text, then one tool call in a given form, then nothing.
//!
//! Describes the constraint. Models enforce it in their own way; servers cannot.

use serde::{Deserialize, Serialize};

use crate::ToolSpec;

/// The form of a response that ends with exactly one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// What may precede the call.
    pub before: Before,
    /// The mark that begins the call; it does not occur before the call.
    pub opens: String,
    /// Text that follows the opening mark immediately.
    pub then: String,
    /// The call itself.
    pub body: Body,
    /// The mark that ends the call, and the response.
    pub closes: String,
}

/// What may precede a call, besides thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// Any text: most models write better calls after a sentence about it.
    Text,
    /// Nothing.
    Nothing,
}

/// What is between a call's marks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// A JSON object with the name of one of these tools and arguments that fit it.
    Call(Vec<ToolSpec>),
    /// Any text in which the end mark does not occur.
    Text,
}
