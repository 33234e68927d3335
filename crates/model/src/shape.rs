//! What a reply can be forced to look like: some text, then one tool call in a certain form, then nothing.
//!
//! Says what is wanted. How a model is held to it is the model's business; servers cannot be.

use serde::{Deserialize, Serialize};

use crate::ToolSpec;

/// The form of a reply that ends with exactly one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// What may stand before the call.
    pub before: Before,
    /// What begins the call; it occurs nowhere before.
    pub opens: String,
    /// What must follow the opening at once.
    pub then: String,
    /// What the call is.
    pub body: Body,
    /// What ends the call, and the reply.
    pub closes: String,
}

/// What may stand before a call. Thinking may in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// Any text: most models call better after a word about it.
    Text,
    /// Nothing: nobody wants to hear it.
    Nothing,
}

/// What stands between a call's marks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// A JSON object with the name of one of these tools and arguments that fit it.
    Call(Vec<ToolSpec>),
    /// Any text in which the end mark does not occur.
    Text,
}
