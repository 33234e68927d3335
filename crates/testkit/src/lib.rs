//! A model that follows a script, and a server that speaks both vendors' protocols and fails on demand.
//!
//! For tests and measurements only: no crate of the product depends on it.
