//! Lists the files of the built page, which are part of the program.

use std::{env, fs, path::Path};

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells build scripts where they are by variables"
)]
fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let out = env::var("OUT_DIR").unwrap_or_default();
    let dist = Path::new(&here).join("../../web/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files: Vec<_> = fs::read_dir(&dist)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .filter(|path| path.extension().is_none_or(|extension| extension != "map"))
        .collect();
    files.sort();
    let mut list = String::from("&[\n");
    for path in files {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        list.push_str(&format!(
            "    ({name:?}, include_bytes!({:?})),\n",
            path.display().to_string()
        ));
    }
    list.push_str("]\n");
    if let Err(error) = fs::write(Path::new(&out).join("assets.rs"), list) {
        println!("cargo::error=cannot list the files of the page: {error}");
    }
}
