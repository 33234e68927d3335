//! Linker arguments for libtorch: its path, and permission for symbols of CUDA libraries that are missing on machines
//! without a GPU and never called.

fn main() {
    println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
    if let Some(libtorch) = option_env!("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
}
