//! Message authentication codes over what a run has recorded. Its settings decide where keys are sent, what is copied into a
//! sandbox and how strong it is, so settings from elsewhere must not be applied unasked. Its events have codes as well
//! (`signed_events`).
//!
//! The key is stored in the user's state directory and never leaves it.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use anyhow::Context;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::settings::Settings;

/// The field of the settings that holds the code.
const FIELD: &str = "seal";

/// Signs settings and events, and verifies its own signatures.
#[derive(Clone)]
pub(crate) struct Seal {
    key: [u8; 32],
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

impl Seal {
    /// The seal of a state directory; its key is generated on first use.
    pub(crate) fn of(home: &Path) -> io::Result<Self> {
        let path = home.join("record.key");
        let mut key = [0; 32];
        match File::open(&path) {
            Ok(mut file) => file.read_exact(&mut key).map(|()| Self { key }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                random_id::fill(&mut key)?;
                let mut partial =
                    tempfile::Builder::new().prefix(".record.key.").tempfile_in(home)?;
                partial.write_all(&key)?;
                // The first process wins, and no process sees a partial key.
                match partial.persist_noclobber(&path) {
                    Ok(_) => Ok(Self { key }),
                    Err(failed) if path.exists() => Self::of(home).map_err(|_| failed.error),
                    // Some file systems cannot do that. There, the last process wins.
                    Err(failed) => {
                        let placed = failed.file.persist(&path);
                        placed.map(|_| Self { key }).map_err(|failed| failed.error)
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Adds the code to the settings.
    pub(crate) fn sign(&self, settings: &mut Value) {
        let signature = self.signature(settings);
        if let Value::Object(map) = settings {
            map.insert(FIELD.into(), Value::String(signature));
        }
    }

    /// The code of settings that do not hold one.
    pub(crate) fn signature(&self, settings: &Value) -> String {
        hex(&self.code(settings).finalize().into_bytes())
    }

    /// Whether the settings carry this seal's code and were not changed since.
    pub(crate) fn verify(&self, settings: &Value) -> bool {
        let mut bare = settings.clone();
        let found = bare.as_object_mut().and_then(|map| map.remove(FIELD));
        let Some(found) = found.as_ref().and_then(Value::as_str) else { return false };
        let signed =
            from_hex(found).is_some_and(|code| self.code(&bare).verify_slice(&code).is_ok());
        signed || found == self.legacy(&bare)
    }

    /// The beginning of the names of images with saved files, of a run that started with these sealed settings. Nobody
    /// without the key can name an image of another run in their place.
    pub(crate) fn image_prefix(&self, settings: &Value) -> String {
        let code = self.signature(&json!({ "images": settings.get(FIELD) }));
        format!("run-{}-", &code[..16])
    }

    /// Settings without a code.
    pub(crate) fn unsigned(settings: &Value) -> Value {
        let mut bare = settings.clone();
        bare.as_object_mut().and_then(|map| map.remove(FIELD));
        bare
    }

    /// The code of a line of events, given that of the line before.
    pub(super) fn line_code(&self, before: &[u8; 32], line: &str) -> [u8; 32] {
        self.line(before, line).finalize().into_bytes().into()
    }

    /// Whether this is the code of a line of events.
    pub(super) fn verify_line(&self, before: &[u8; 32], line: &str, code: &[u8]) -> bool {
        self.line(before, line).verify_slice(code).is_ok()
    }

    fn line(&self, before: &[u8; 32], line: &str) -> Hmac<Sha256> {
        // No settings begin so.
        self.keyed().chain_update(b"event").chain_update(before).chain_update(line.as_bytes())
    }

    /// HMAC-SHA256 over the settings as compact JSON.
    fn code(&self, settings: &Value) -> Hmac<Sha256> {
        self.keyed().chain_update(settings.to_string().as_bytes())
    }

    fn keyed(&self) -> Hmac<Sha256> {
        // HMAC pads shorter keys with zeros to the block size.
        let mut block = [0; 64];
        block[..self.key.len()].copy_from_slice(&self.key);
        Hmac::<Sha256>::new(&block.into())
    }

    /// The code of earlier versions, SHA256(key, SHA256(key, text)), so that their runs can be resumed.
    fn legacy(&self, settings: &Value) -> String {
        let round =
            |text: &[u8]| Sha256::new().chain_update(self.key).chain_update(text).finalize();
        hex(&round(&round(settings.to_string().as_bytes())))
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// The seal of this user's records.
pub(crate) fn seal(settings: &Settings) -> anyhow::Result<Seal> {
    let home = settings.writable_home()?;
    Seal::of(home).with_context(|| format!("cannot use {}", home.join("record.key").display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_own_seals_count() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let seal = Seal::of(home.path()).unwrap();
        let mut settings = json!({"base_url": "http://here", "n": 1.5, "z": {"b": 1, "a": 2}});
        assert!(!seal.verify(&settings));
        seal.sign(&mut settings);
        // Settings are read back from a file, maybe by a later process.
        let again: Value = serde_json::from_str(&settings.to_string()).unwrap();
        assert!(Seal::of(home.path()).unwrap().verify(&again));
        assert!(!Seal::of(other.path()).unwrap().verify(&again));
        let mut changed = again.clone();
        changed["base_url"] = json!("http://elsewhere");
        assert!(!seal.verify(&changed));
        let names: Vec<_> = fs::read_dir(home.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1);
    }

    /// A process with the same number, perhaps in another container, was killed while it made the key.
    #[test]
    fn a_partial_key_of_another_process_is_not_in_the_way() {
        let home = tempfile::tempdir().unwrap();
        let partial = home.path().join(format!(".record.key.{}", std::process::id()));
        fs::write(&partial, "").unwrap();
        let seals: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| Seal::of(home.path()))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap().key).collect()
        });
        assert!(seals.iter().all(|key| *key == seals[0]));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }

    #[test]
    fn seals_of_earlier_versions_are_valid() {
        let seal = Seal { key: [7; 32] };
        let settings = |code: &str| json!({"base_url": "http://here", "n": 1.5, FIELD: code});
        let legacy = "1e483cb4f928b2705ebd3328cb298a941adeaec497697cd8ae3e497ade6eefba";
        assert!(seal.verify(&settings(legacy)));
        assert!(!seal.verify(&settings(&legacy.replace('0', "1"))));
        let mut current = json!({"base_url": "http://here", "n": 1.5});
        seal.sign(&mut current);
        assert_eq!(
            current[FIELD],
            "11f7289946119093273981291bae5fac295e4409df8a23cda345438d9ba7e8c6"
        );
        assert!(seal.verify(&current));
        assert!(!seal.verify(&settings("not hex")) && !seal.verify(&settings("")));
    }
}
