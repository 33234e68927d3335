//! Text and token ids: the vocabulary of a model, its control tokens and its chat template.
//!
//! Knows no conversation and no weights.
