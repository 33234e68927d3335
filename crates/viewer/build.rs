//! Lists the files of the built page, which are part of the program: each as it is, compressed, and with a tag of its content.

use std::{env, fs, io::Write, path::Path};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells build scripts where they are by variables"
)]
fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let out = env::var("OUT_DIR").unwrap_or_default();
    if let Err(error) = list(&Path::new(&here).join("../../web/dist"), Path::new(&out)) {
        println!("cargo::error=cannot list the files of the page: {error}");
    }
}

fn list(dist: &Path, out: &Path) -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", dist.display());
    let entries = fs::read_dir(dist).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = entries
        .filter(|path| path.is_file())
        .filter(|path| path.extension().is_none_or(|extension| extension != "map"))
        .collect();
    paths.sort();
    let mut files = Vec::new();
    let mut all = Sha256::new();
    for path in paths {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(path)?;
        all.update(&name);
        all.update(Sha256::digest(&bytes));
        files.push((name, bytes));
    }
    // The address of every file but the first changes with any of them.
    let hash = hex(&all.finalize()[..8]);
    let mut list = format!("(\n    {hash:?},\n    &[\n");
    for (name, bytes) in files {
        let bytes = match name.as_str() {
            "index.html" => String::from_utf8_lossy(&bytes)
                .replace("page/assets/", &format!("page/assets/{hash}/"))
                .into_bytes(),
            _ => bytes,
        };
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes)?;
        let tag = hex(&Sha256::digest(&bytes)[..12]);
        let (plain, compressed) = (out.join(&name), out.join(format!("{name}.gz")));
        fs::write(&plain, bytes)?;
        fs::write(&compressed, encoder.finish()?)?;
        list.push_str(&format!(
            "        ({name:?}, include_bytes!({:?}), include_bytes!({:?}), {:?}),\n",
            plain.display().to_string(),
            compressed.display().to_string(),
            format!("\"{tag}\"")
        ));
    }
    list.push_str("    ],\n)\n");
    fs::write(out.join("assets.rs"), list)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
