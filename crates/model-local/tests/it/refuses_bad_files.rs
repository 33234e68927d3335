//! Files that are not models, damaged, incomplete or unknown: each gives a clear error.

use std::{fs, io::Read, num::NonZeroU32, path::Path};

use lis_model_local::{LoadError, LocalModel, Options};

use crate::support::file;

fn refused(path: &Path) -> LoadError {
    LocalModel::load("bad", path, &Options::default()).unwrap_err()
}

/// The first bytes of the real file.
fn head(path: &Path, bytes: u64) -> Vec<u8> {
    let mut head = Vec::new();
    fs::File::open(path).unwrap().take(bytes).read_to_end(&mut head).unwrap();
    head
}

#[test]
fn what_is_not_there_or_no_model() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(refused(&folder.path().join("none")), LoadError::Unreadable { .. }));
    assert!(matches!(refused(folder.path()), LoadError::Unreadable { .. }));
    let path = folder.path().join("other");
    for content in [&b""[..], b"GG", b"PK\x03\x04 and more"] {
        fs::write(&path, content).unwrap();
        assert!(matches!(refused(&path), LoadError::NotGguf { .. }), "{content:?}");
    }
}

#[test]
fn a_header_that_lies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lies.gguf");
    for (version, tensors, keys) in
        [(3, u64::MAX, 1), (3, 1, u64::MAX), (99, 0, 0), (3, 0, 0), (0, 1, 1)]
    {
        let mut content = b"GGUF".to_vec();
        content.extend(u32::to_le_bytes(version));
        content.extend(u64::to_le_bytes(tensors));
        content.extend(u64::to_le_bytes(keys));
        fs::write(&path, &content).unwrap();
        let error = refused(&path);
        assert!(matches!(error, LoadError::Refused { .. }), "{error}");
    }
}

#[test]
fn an_architecture_nobody_knows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unknown.gguf");
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut content = b"GGUF".to_vec();
    content.extend(3_u32.to_le_bytes());
    content.extend(0_u64.to_le_bytes());
    content.extend(1_u64.to_le_bytes());
    content.extend(text("general.architecture"));
    content.extend(8_u32.to_le_bytes());
    content.extend(text("daydreamer"));
    fs::write(&path, &content).unwrap();
    let error = refused(&path).to_string();
    assert!(error.contains("daydreamer"), "{error}");
}

#[test]
fn a_file_that_was_cut_off() {
    let Some(model) = file() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.gguf");
    for bytes in [24, 100, 5_000, 1_000_000, 5_900_000, 20_000_000] {
        fs::write(&path, head(&model, bytes)).unwrap();
        let error = refused(&path);
        assert!(matches!(&error, LoadError::Refused { why, .. } if !why.is_empty()), "{error}");
        eprintln!("{bytes}: {error}");
    }
}

#[test]
fn more_context_than_the_model_takes() {
    let Some(model) = file() else { return };
    let options = Options { context: NonZeroU32::new(1_000_000), ..Options::default() };
    let error = LocalModel::load("long", &model, &options).unwrap_err();
    let LoadError::ContextTooLong { requested: 1_000_000, most: 32_768 } = error else {
        panic!("{error}")
    };
}

#[test]
fn an_adapter_that_is_none() {
    let Some(model) = file() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    fs::write(&path, head(&model, 10_000)).unwrap();
    let options = Options { adapter: Some(path), ..Options::default() };
    let error = LocalModel::load("adapted", &model, &options).unwrap_err();
    assert!(matches!(error, LoadError::Adapter { .. }), "{error}");
}
