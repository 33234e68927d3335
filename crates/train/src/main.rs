//! Trains models in the sandbox: the command line.

fn main() {}
