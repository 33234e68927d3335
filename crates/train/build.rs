//! How this program finds libtorch: its libraries refer to CUDA libraries that a machine without a GPU lacks, and
//! nothing here calls into those. Knows only where the compiler was told that libtorch lies.

fn main() {
    println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
    if let Some(libtorch) = option_env!("LIBTORCH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
}
