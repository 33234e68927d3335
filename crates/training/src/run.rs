//! The directory of a run: one process at a time, one configuration, what it wrote so far.
//!
//! Knows nothing of what is trained in it.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The file of the configuration in force.
const CONFIG: &str = "config.json";

/// No file about a run is longer.
const LONGEST: u64 = 1 << 20;

/// What may change when a run goes on, with all that lies below: how long it is, how it is saved, and what the machine
/// can do at once.
const FREE: [&str; 7] = [
    "steps",
    "checkpoints",
    "device",
    "optimiser.tokens_at_once",
    "optimiser.checkpointing",
    "rollout.slots",
    "rollout.sandboxes",
];

/// The directory of a run, held by this process.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Held as long as the run.
    _lock: File,
}

/// A directory cannot hold this run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A file or directory cannot be used.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What came of it.
        #[source]
        source: io::Error,
    },
    /// Somebody else is at it.
    #[error("another process trains in {}; wait for it, or name another `output`", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// It was begun otherwise.
    #[error(
        "the run in {} was begun with another configuration; {} differ: restore them, or name another `output`",
        path.display(), keys.join(", ")
    )]
    Differs {
        /// The directory.
        path: PathBuf,
        /// The keys whose values differ.
        keys: Vec<String>,
    },
    /// A file about it makes no sense.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// It holds no run.
    #[error("{} holds no configuration of a run", path.display())]
    Config {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

impl RunDirectory {
    /// Takes a directory for a run of this configuration. One that was begun with another is refused.
    pub fn open(path: &Path, config: &impl Serialize) -> Result<Self, RunError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| RunError::File { doing, path, source }
        };
        fs::create_dir_all(path).map_err(failed("make", path))?;
        only_plain(path).map_err(failed("use", path))?;
        let lock_path = path.join("lock");
        let lock = File::options().create(true).append(true).open(&lock_path);
        let lock = lock.map_err(failed("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RunError::Busy { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(failed("lock", &lock_path)(error)),
        }
        let broken = |source| RunError::Config { path: path.to_owned(), source };
        let wanted = serde_json::to_value(config).map_err(broken)?;
        let file = path.join(CONFIG);
        if file.exists() {
            let mut keys = Vec::new();
            differing("", &read::<Value>(path)?, &wanted, &mut keys);
            keys.retain(|key| !is_free(key));
            if !keys.is_empty() {
                return Err(RunError::Differs { path: path.to_owned(), keys });
            }
        }
        let text = serde_json::to_vec_pretty(&wanted).map_err(broken)?;
        write_whole(&file, &text).map_err(failed("write", &file))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps something about the run in a file of this name.
    pub(crate) fn keep(&self, name: &str, value: &impl Serialize) -> Result<(), RunError> {
        let path = self.path.join(name);
        let text = serde_json::to_vec_pretty(value)
            .map_err(|source| RunError::Damaged { path: path.clone(), source })?;
        write_whole(&path, &text).map_err(|source| RunError::File { doing: "write", path, source })
    }
}

/// The configuration a run was begun with.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, RunError> {
    let file = path.join(CONFIG);
    let text =
        text(&file).map_err(|source| RunError::File { doing: "read", path: file, source })?;
    serde_json::from_slice(&text)
        .map_err(|source| RunError::Config { path: path.to_owned(), source })
}

/// What a run keeps in a file of this name; nothing where there is none.
pub(crate) fn kept<T: DeserializeOwned>(run: &Path, name: &str) -> Result<Option<T>, RunError> {
    let path = run.join(name);
    match text(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RunError::File { doing: "read", path, source }),
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| RunError::Damaged { path, source }),
    }
}

fn text(path: &Path) -> io::Result<Vec<u8>> {
    plain_file(path)?;
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    Ok(text)
}

/// Refuses what is no file of its own: a link leads anywhere, and a pipe nowhere.
pub(crate) fn plain_file(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is no plain file")),
    }
}

/// Refuses a directory that has anything but files and directories in it. It may come from elsewhere, and files in it are
/// written, replaced and removed.
fn only_plain(dir: &Path) -> io::Result<()> {
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if !kind.is_file() {
                let name = entry.path();
                let why = format!("{} is neither a file nor a directory", name.display());
                return Err(io::Error::other(why));
            }
        }
    }
    Ok(())
}

/// Whether a dotted key may change.
fn is_free(key: &str) -> bool {
    FREE.iter().any(|free| {
        key.strip_prefix(free).is_some_and(|below| below.is_empty() || below.starts_with('.'))
    })
}

/// Writes a file that is there whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = PathBuf::from(format!("{}.new", path.display()));
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// The dotted keys under which two values differ.
fn differing(key: &str, one: &Value, other: &Value, keys: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names: std::collections::BTreeSet<&String> =
                one.keys().chain(other.keys()).collect();
            for name in names {
                let below = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                let of = |map: &serde_json::Map<String, Value>| {
                    map.get(name).cloned().unwrap_or_default()
                };
                differing(&below, &of(one), &of(other), keys);
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
            let RunError::File { doing: "use", source, .. } = error else { panic!("{error}") };
            assert!(source.to_string().contains(name), "{source}");
            assert!(!path.join("config.json").exists());
        }
        assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "precious");
    }

    #[test]
    fn a_run_goes_on_with_its_own_configuration_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/run");
        let config = json!({"steps": 3, "seed": 1, "optimiser": {"rate": 0.1}});
        drop(RunDirectory::open(&path, &config).unwrap());
        let longer = json!({"steps": 9, "seed": 1, "optimiser": {"rate": 0.1}});
        drop(RunDirectory::open(&path, &longer).unwrap());
        assert_eq!(read::<Value>(&path).unwrap(), longer);
        let other = json!({"steps": 9, "seed": 1, "optimiser": {"rate": 0.2}, "lora": {"rank": 4}});
        let error = RunDirectory::open(&path, &other).unwrap_err();
        assert!(
            matches!(&error, RunError::Differs { keys, .. } if *keys == ["lora", "optimiser.rate"]),
            "{error}"
        );
    }

    #[test]
    fn what_the_machine_can_do_may_change() {
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
        assert!(!is_free("stepsize") && !is_free("optimiser"));
    }

    #[test]
    fn what_is_kept_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDirectory::open(dir.path(), &json!({})).unwrap();
        assert_eq!(kept::<Value>(run.path(), "x.json").unwrap(), None);
        run.keep("x.json", &json!({"a": 1})).unwrap();
        assert_eq!(kept(run.path(), "x.json").unwrap(), Some(json!({"a": 1})));
        fs::write(dir.path().join("x.json"), "{").unwrap();
        let error = kept::<Value>(run.path(), "x.json").unwrap_err();
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
