//! Linker arguments for libtorch: its path, and permission for symbols of CUDA libraries that are missing on machines
//! without a GPU and never called. Also compiles the small library for CUDA graphs and packed attention, which the program
//! embeds and loads on machines with CUDA.

use std::{fs, path::Path, process::Command};

fn main() {
    println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
    if let Some(libtorch) = option_env!("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
    graphs(option_env!("LIBTORCH").map(Path::new));
}

/// Compiles the library; without suitable CUDA headers, it is an empty file.
fn graphs(libtorch: Option<&Path>) {
    const SOURCES: [&str; 2] = ["cuda/graph.cpp", "cuda/attention.cpp"];
    println!("cargo::rerun-if-changed=cuda");
    println!("cargo::rerun-if-changed=build.rs");
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo passes OUT_DIR to build scripts in the environment"
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
                .args(SOURCES)
                .arg("-o")
                .arg(&library);
            compiler.status().is_ok_and(|status| status.success())
        });
    if !compiled {
        println!(
            "cargo::warning=no CUDA headers beside libtorch: a GPU will do without CUDA graphs and packed attention"
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
