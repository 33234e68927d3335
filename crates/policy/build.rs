//! How tests and binaries of this crate find libtorch: its libraries refer to CUDA libraries that a machine without
//! a GPU lacks, and nothing here calls into those. Also compiles the small library of CUDA graphs, which the program
//! carries and loads on machines with CUDA. Knows only where the compiler was told that libtorch lies.

use std::{fs, path::Path, process::Command};

fn main() {
    println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
    if let Some(libtorch) = option_env!("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
    graphs(option_env!("LIBTORCH").map(Path::new));
}

/// Without CUDA's headers, or where they do not fit, an empty file stands for the library.
fn graphs(libtorch: Option<&Path>) {
    const SOURCE: &str = "cuda/graph.cpp";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=build.rs");
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo tells a build script by the environment where to write"
    )]
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    let library = Path::new(&out).join("graph.so");
    let compiled = libtorch
        .and_then(|libtorch| Some((libtorch, cuda_headers(libtorch)?)))
        .is_some_and(|(libtorch, headers)| {
            let mut compiler: Command =
                cc::Build::new().cpp(true).opt_level(1).get_compiler().to_command();
            let include = libtorch.join("include");
            compiler
                .args([
                    "-std=c++17",
                    "-shared",
                    "-fPIC",
                    "-w",
                    "-g0",
                    "-D_GLIBCXX_USE_CXX11_ABI=1",
                    "-I",
                ])
                .arg(&include)
                .arg("-I")
                .arg(include.join("torch/csrc/api/include"))
                .arg("-I")
                .arg(headers)
                .args([SOURCE, "-o"])
                .arg(&library);
            compiler.status().is_ok_and(|status| status.success())
        });
    if !compiled {
        println!(
            "cargo::warning=no CUDA headers beside libtorch: sampling on a GPU will do without CUDA graphs"
        );
        if let Err(error) = fs::write(&library, []) {
            println!("cargo::error=cannot write {}: {error}", library.display());
        }
    }
}

/// CUDA's headers: of the package beside PyTorch's, or the system's.
fn cuda_headers(libtorch: &Path) -> Option<std::path::PathBuf> {
    let packages = libtorch.parent()?.join("nvidia");
    let places = [
        packages.join("cu13/include"),
        packages.join("cuda_runtime/include"),
        "/usr/local/cuda/include".into(),
    ];
    places.into_iter().find(|place| place.join("crt/host_config.h").is_file())
}
