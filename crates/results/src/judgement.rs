//! The votes of a judge on an attempt, stored so that no vote is requested twice.

use serde::{Deserialize, Serialize};

/// The replies of a judge to one prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The version of this file.
    pub v: u32,
    /// Who judged.
    pub judge: String,
    /// What it was asked.
    pub prompt: String,
    /// What it replied, one for each vote so far.
    pub replies: Vec<String>,
}
