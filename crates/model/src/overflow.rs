//! A conversation too long for the model: the numbers in the servers' many wordings.

/// What a server said about the lengths. Each wording tells some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    /// Tokens the model takes in all.
    pub context: Option<u64>,
    /// Tokens of the conversation.
    pub prompt: Option<u64>,
    /// Tokens the model writes at most in one reply, whatever the context.
    pub output: Option<u64>,
}
