//! Packs an adapter for the repository:
//!
//! ```sh
//! cargo run -p lis-catalogue --example pack_adapter -- rounded.gguf adapters/NAME.gguf.packed
//! ```

use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [from, to] = &args[..] else { return Err("usage: pack_adapter FROM.gguf TO".into()) };
    fs::write(to, lis_catalogue::pack_adapter(&fs::read(from)?)?)?;
    Ok(())
}
