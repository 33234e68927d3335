//! What a benchmark's results mean.
