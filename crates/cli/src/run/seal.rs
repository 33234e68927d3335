//! A seal on the settings of a record: they decide where keys are sent, what is copied into a sandbox and
//! how strong its walls are, so a record from elsewhere must not be obeyed unasked.
//!
//! The key lies in the user's state directory and never leaves it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Where the seal stands among the settings.
const FIELD: &str = "seal";

/// Seals settings and knows its own seals again.
pub(crate) struct Seal {
    key: [u8; 32],
}

impl Seal {
    /// The seal of this state directory; its key is made on first use.
    pub(crate) fn of(home: &Path) -> io::Result<Self> {
        let path = home.join("record.key");
        let mut key = [0; 32];
        match File::open(&path) {
            Ok(mut file) => file.read_exact(&mut key).map(|()| Self { key }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                File::open("/dev/urandom")?.read_exact(&mut key)?;
                // Whoever comes first wins; a half-written key is never seen.
                let partial = home.join(format!(".record.key.{}", std::process::id()));
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
                let placed = file.write_all(&key).and_then(|()| fs::hard_link(&partial, &path));
                fs::remove_file(&partial)?;
                match placed {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::of(home),
                    placed => placed.map(|()| Self { key }),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Seals settings.
    pub(crate) fn put_on(&self, settings: &mut Value) {
        let seal = self.over(settings);
        if let Value::Object(map) = settings {
            map.insert(FIELD.into(), Value::String(seal));
        }
    }

    /// Whether this seal is on the settings, and they are as they were.
    pub(crate) fn is_on(&self, settings: &Value) -> bool {
        let mut bare = settings.clone();
        let found = bare.as_object_mut().and_then(|map| map.remove(FIELD));
        found.as_ref().and_then(Value::as_str) == Some(&self.over(&bare))
    }

    /// Two rounds, so that nobody can go on where the first ended.
    fn over(&self, settings: &Value) -> String {
        let round =
            |text: &[u8]| Sha256::new().chain_update(self.key).chain_update(text).finalize();
        let inner = round(settings.to_string().as_bytes());
        round(&inner).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_own_seals_count() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let seal = Seal::of(home.path()).unwrap();
        let mut settings = json!({"base_url": "http://here", "n": 1.5, "z": {"b": 1, "a": 2}});
        assert!(!seal.is_on(&settings));
        seal.put_on(&mut settings);
        // A record is read back from a file, maybe by a later process.
        let again: Value = serde_json::from_str(&settings.to_string()).unwrap();
        assert!(Seal::of(home.path()).unwrap().is_on(&again));
        assert!(!Seal::of(other.path()).unwrap().is_on(&again));
        let mut changed = again.clone();
        changed["base_url"] = json!("http://elsewhere");
        assert!(!seal.is_on(&changed));
        let names: Vec<_> = fs::read_dir(home.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1);
    }
}
