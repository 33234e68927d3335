//! The wheel of the Python package: the program, the extension and the Python files, packed by maturin.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    machine,
    paths::Paths,
    python,
    run::{output, run},
    test::cargo,
    torch,
};

/// The most bytes of a wheel for users.
const LARGEST: u64 = 40_000_000;

/// How a wheel is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quickly, for tests.
    Dev,
    /// For users.
    Dist,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Dist => "dist",
        }
    }

    /// Its directory below cargo's build directory.
    fn directory(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Dist => "dist",
        }
    }
}

/// `wheel [--profile dev|dist] [--out DIR]`: builds a wheel, and prints its path and size.
pub(crate) fn wheel(paths: &Paths, arguments: &[&str]) -> Result<()> {
    let mut profile = Profile::Dist;
    let mut out = paths.target.join("wheels");
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match (*word, words.next()) {
            ("--profile", Some(&"dev")) => profile = Profile::Dev,
            ("--profile", Some(&"dist")) => profile = Profile::Dist,
            ("--out", Some(dir)) => out = std::path::absolute(dir)?,
            _ => bail!("usage: cargo xtask wheel [--profile dev|dist] [--out DIR]"),
        }
    }
    let wheel = build(paths, profile, &out)?;
    let size = fs::metadata(&wheel)?.len() as f64 / 1e6;
    eprintln!("{} ({size:.1} MB)", wheel.display());
    Ok(())
}

/// Builds a wheel into a directory; returns its path. One for users that is too large is an error.
pub(crate) fn build(paths: &Paths, profile: Profile, out: &Path) -> Result<PathBuf> {
    python::fetch_maturin(paths)?;
    run(cargo(paths, "build").args(["--package", "llm-in-sandbox", "--profile", profile.name()]))?;
    let package = paths.root.join("bindings/python");
    let scripts = package.join("data/scripts");
    fs::create_dir_all(&scripts).with_context(|| format!("creating {}", scripts.display()))?;
    let program = scripts.join("llm-in-sandbox");
    let built = paths.target.join(profile.directory()).join("llm-in-sandbox");
    // Not over the old file: it may be running.
    let _ = fs::remove_file(&program);
    // Debug information would be most of the wheel.
    run(Command::new("strip").arg("-o").arg(&program).arg(&built))?;
    let glibc = newest_glibc(&program)?;
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    for old in wheels(out)? {
        fs::remove_file(&old).with_context(|| format!("removing {}", old.display()))?;
    }
    let mut maturin = Command::new(python::maturin(paths));
    maturin
        .args(["build", "--quiet", "--strip", "--profile", profile.name(), "--compatibility"])
        .arg(format!("manylinux_2_{glibc}"))
        .arg("--out")
        .arg(out)
        .env("CARGO_TARGET_DIR", &paths.target)
        .current_dir(&package);
    run(&mut maturin)?;
    let wheel = wheels(out)?.pop().context("maturin built no wheel")?;
    let size = fs::metadata(&wheel)?.len();
    if profile == Profile::Dist && size > LARGEST {
        bail!("{} has {size} bytes, more than {LARGEST}", wheel.display());
    }
    Ok(wheel)
}

/// Packs a wheel for tests from what the build of all crates with their tests has made: only the extension is new.
pub(crate) fn pack(paths: &Paths, out: &Path) -> Result<PathBuf> {
    run(cargo(paths, "build")
        .args(torch::every_crate(paths))
        .args(["--lib", "--bins", "--tests", "--quiet"]))?;
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let debug = paths.target.join(Profile::Dev.directory());
    let mut stripped = Vec::new();
    for name in ["llm-in-sandbox", "liblis_python.so"] {
        let to = out.join(name);
        run(Command::new("strip").arg("-o").arg(&to).arg(debug.join(name)))?;
        stripped.push(to);
    }
    let python = machine::program("python3").context("there is no python3")?;
    let path = output(
        Command::new(python)
            .arg(paths.root.join("bindings/python/pack.py"))
            .args(&stripped)
            .arg(env!("CARGO_PKG_VERSION"))
            .arg(out),
    )?;
    Ok(PathBuf::from(path.trim()))
}

fn wheels(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|ext| ext == "whl")).collect())
}

/// The newest version of glibc that a program needs, without its leading 2. The program counts as well as the extension,
/// which is all that maturin examines.
fn newest_glibc(program: &Path) -> Result<u32> {
    let symbols = output(Command::new("objdump").arg("-T").arg(program))?;
    let versions = symbols.split("GLIBC_2.").skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    versions.max().context("the program needs no glibc")
}
