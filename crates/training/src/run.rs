//! The run directory: used by one process at a time, bound to one configuration.
//!
//! Knows nothing of what is trained in it.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::file_error::FileError;

/// The file of the current configuration.
const CONFIG: &str = "config.json";

/// The maximum size of a JSON file of a run, in bytes.
const MAX_JSON_BYTES: u64 = 1 << 20;

/// The configuration keys that may change when a run resumes, with all keys below them: its length, its checkpoints,
/// and what depends on the machine.
const CHANGEABLE: [&str; 13] = [
    "steps",
    "checkpoints",
    "device",
    "optimiser.tokens_at_once",
    "optimiser.checkpointing",
    "rollout.slots",
    "rollout.sandboxes",
    "rollout.overlap",
    // Where and how a server is reached, not what it samples.
    "sampler.url",
    "sampler.concurrency",
    "sampler.timeout",
    "sampler.attempts",
    "sampler.api_key_env",
];

/// A run directory, locked by this process.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Held until drop.
    _lock: File,
}

/// A directory cannot be used for a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A file or directory cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process uses the directory.
    #[error("another process trains in {}; wait for it, or choose another `output`", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The run was started with another configuration.
    #[error(
        "the run in {} was started with another configuration; {} differ: restore them, or choose another `output`",
        path.display(), keys.join(", ")
    )]
    Differs {
        /// The directory.
        path: PathBuf,
        /// The keys whose values differ.
        keys: Vec<String>,
    },
    /// A file of the run cannot be parsed.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// The directory has no valid configuration.
    #[error("{} is not a run directory", path.display())]
    Config {
        /// The directory.
        path: PathBuf,
        /// The parse error of its configuration.
        #[source]
        source: serde_json::Error,
    },
}

impl RunDirectory {
    /// Creates or opens a run directory, locks it and writes the configuration. Fails where the directory belongs to a
    /// run of another configuration.
    pub fn open(path: &Path, config: &impl Serialize) -> Result<Self, RunError> {
        fs::create_dir_all(path).map_err(FileError::new("create", path))?;
        check_no_links(path).map_err(FileError::new("use", path))?;
        let lock = lock(path)?;
        let invalid = |source| RunError::Config { path: path.to_owned(), source };
        let wanted = serde_json::to_value(config).map_err(invalid)?;
        let file = path.join(CONFIG);
        if file.exists() {
            let mut keys = Vec::new();
            differing_keys("", &read_config::<Value>(path)?, &wanted, &mut keys);
            keys.retain(|key| !is_changeable(key));
            if !keys.is_empty() {
                return Err(RunError::Differs { path: path.to_owned(), keys });
            }
        }
        let text = serde_json::to_vec_pretty(&wanted).map_err(invalid)?;
        atomic_file::write_durable(&file, &text).map_err(FileError::new("write", &file))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a value to the JSON file of this name.
    pub(crate) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), RunError> {
        let path = self.path.join(name);
        let text = serde_json::to_vec_pretty(value)
            .map_err(|source| RunError::Damaged { path: path.clone(), source })?;
        Ok(atomic_file::write_durable(&path, &text).map_err(FileError::new("write", &path))?)
    }
}

/// The configuration of the run in a directory.
pub fn read_config<T: DeserializeOwned>(run: &Path) -> Result<T, RunError> {
    let file = run.join(CONFIG);
    let text = read_bounded(&file).map_err(FileError::new("read", &file))?;
    serde_json::from_slice(&text)
        .map_err(|source| RunError::Config { path: run.to_owned(), source })
}

/// The value in the JSON file of this name; `None` where there is no such file.
pub(crate) fn read_json<T: DeserializeOwned>(
    run: &Path,
    name: &str,
) -> Result<Option<T>, RunError> {
    let path = run.join(name);
    match read_bounded(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::new("read", &path)(error).into()),
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| RunError::Damaged { path, source }),
    }
}

fn lock(dir: &Path) -> Result<File, RunError> {
    let path = dir.join("lock");
    let lock = File::options().create(true).append(true).open(&path);
    let lock = lock.map_err(FileError::new("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(RunError::Busy { path: dir.to_owned() }),
        // Storage of clusters may have no locks at all.
        Err(TryLockError::Error(error)) if has_no_locks(&error) => Ok(lock),
        Err(TryLockError::Error(error)) => Err(FileError::new("lock", &path)(error).into()),
    }
}

/// Whether the file system has no locks: `ENOSYS`, `EOPNOTSUPP` or `ENOLCK` of Linux.
fn has_no_locks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(37 | 38 | 95))
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    check_regular_file(path)?;
    let mut text = Vec::new();
    File::open(path)?.take(MAX_JSON_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// Rejects links, which lead anywhere, and pipes, which block.
pub(crate) fn check_regular_file(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Rejects a directory that contains anything but files and directories. It may come from elsewhere, and files in it
/// are written, replaced and removed.
fn check_no_links(dir: &Path) -> io::Result<()> {
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if !kind.is_file() {
                let path = entry.path();
                let why = format!("{} is neither a file nor a directory", path.display());
                return Err(io::Error::other(why));
            }
        }
    }
    Ok(())
}

/// Whether a dotted key may change when a run resumes.
fn is_changeable(key: &str) -> bool {
    CHANGEABLE.iter().any(|changeable| {
        key.strip_prefix(changeable).is_some_and(|below| below.is_empty() || below.starts_with('.'))
    })
}

/// Collects the dotted keys whose values differ.
fn differing_keys(key: &str, one: &Value, other: &Value, keys: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names: std::collections::BTreeSet<&String> =
                one.keys().chain(other.keys()).collect();
            for name in names {
                let below = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                let get = |map: &serde_json::Map<String, Value>| {
                    map.get(name).cloned().unwrap_or_default()
                };
                differing_keys(&below, &get(one), &get(other), keys);
            }
        }
        _ if one != other => keys.push(key.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_in_a_directory_are_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("file"), "precious").unwrap();
        let config = json!({"steps": 3});
        for (number, name) in
            ["lock", "config.json.new", "origin.json", "checkpoints", "episodes/step/0.jsonl"]
                .into_iter()
                .enumerate()
        {
            let path = dir.path().join(number.to_string());
            let link = path.join(name);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            let to = if name == "checkpoints" { victim.clone() } else { victim.join("file") };
            std::os::unix::fs::symlink(to, &link).unwrap();
            let error = RunDirectory::open(&path, &config).unwrap_err();
            let RunError::File(FileError { action: "use", source, .. }) = error else {
                panic!("{error}")
            };
            assert!(source.to_string().contains(name), "{source}");
            assert!(!path.join("config.json").exists());
        }
        assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "precious");
    }

    #[test]
    fn a_run_resumes_with_its_own_configuration_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/run");
        let config = json!({"steps": 3, "seed": 1, "optimiser": {"rate": 0.1}});
        drop(RunDirectory::open(&path, &config).unwrap());
        let longer = json!({"steps": 9, "seed": 1, "optimiser": {"rate": 0.1}});
        drop(RunDirectory::open(&path, &longer).unwrap());
        assert_eq!(read_config::<Value>(&path).unwrap(), longer);
        let other = json!({"steps": 9, "seed": 1, "optimiser": {"rate": 0.2}, "lora": {"rank": 4}});
        let error = RunDirectory::open(&path, &other).unwrap_err();
        assert!(
            matches!(&error, RunError::Differs { keys, .. } if *keys == ["lora", "optimiser.rate"]),
            "{error}"
        );
    }

    #[test]
    fn machine_settings_may_change() {
        let dir = tempfile::tempdir().unwrap();
        let config = |device: &str, at_once: u64, slots: u64, tokens: u64| {
            json!({
                "device": device,
                "optimiser": {"tokens_at_once": at_once, "checkpointing": at_once < 9},
                "rollout": {"slots": slots, "sandboxes": slots, "tokens": tokens},
                "checkpoints": {"every": at_once},
            })
        };
        drop(RunDirectory::open(dir.path(), &config("cuda", 9, 4, 99)).unwrap());
        drop(RunDirectory::open(dir.path(), &config("cpu", 8, 2, 99)).unwrap());
        let error = RunDirectory::open(dir.path(), &config("cpu", 8, 2, 98)).unwrap_err();
        assert!(
            matches!(&error, RunError::Differs { keys, .. } if *keys == ["rollout.tokens"]),
            "{error}"
        );
        assert!(!is_changeable("stepsize") && !is_changeable("optimiser"));
    }

    #[test]
    fn json_files_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(dir.path(), &json!({})).unwrap();
        assert_eq!(read_json::<Value>(run.path(), "x.json").unwrap(), None);
        run.write_json("x.json", &json!({"a": 1})).unwrap();
        assert_eq!(read_json(run.path(), "x.json").unwrap(), Some(json!({"a": 1})));
        fs::write(dir.path().join("x.json"), "{").unwrap();
        let error = read_json::<Value>(run.path(), "x.json").unwrap_err();
        assert!(error.to_string().contains("x.json is damaged"), "{error}");
    }

    #[test]
    fn one_process_trains_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = RunDirectory::open(dir.path(), &json!({})).unwrap();
        assert!(matches!(RunDirectory::open(dir.path(), &json!({})), Err(RunError::Busy { .. })));
        drop(held);
        assert!(RunDirectory::open(dir.path(), &json!({})).is_ok());
    }
}
