//! The file with tokens: who may use the server, and how much of it.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use sandbox::ByteSize;
use serde::{Deserialize, Deserializer};
use server::{EachSandbox, KeyHash, Quotas, Token};

/// Longest accepted file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Shortest accepted key, in bytes: one that is read from a file need not be remembered.
const MIN_KEY: usize = 16;

/// Why a file with tokens cannot be used. Never quotes the file: it has keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokensError {
    #[error("cannot read the tokens in {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    #[error("others may read {0} (mode {1:o}), which has keys; run: chmod 600 {0}")]
    Mode(String, u32),
    #[error("{} is longer than {MAX_FILE} bytes", .0.display())]
    TooLong(PathBuf),
    #[error("{path}:{line}: {message}")]
    Syntax { path: String, line: usize, message: String },
    #[error("{path}: the token `{name}` {problem}")]
    Token { path: String, name: String, problem: &'static str },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFormat {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    key: Option<String>,
    sha256: Option<String>,
    sandboxes: Option<usize>,
    cpus: Option<f64>,
    #[serde(default, deserialize_with = "size")]
    memory: Option<ByteSize>,
    #[serde(default, deserialize_with = "size")]
    disk: Option<ByteSize>,
    #[serde(default, deserialize_with = "size")]
    storage: Option<ByteSize>,
    requests_per_minute: Option<u32>,
    model_tokens_per_day: Option<u64>,
    model_cost_per_day: Option<f64>,
    #[serde(default)]
    each_sandbox: Each,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Each {
    cpus: Option<f64>,
    #[serde(default, deserialize_with = "size")]
    memory: Option<ByteSize>,
    #[serde(default, deserialize_with = "size")]
    disk: Option<ByteSize>,
}

/// A size such as `"4G"`.
fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Reads the tokens of a file that nobody else may read.
pub(crate) fn read(path: &Path) -> Result<Vec<Token>, TokensError> {
    let failed = |error| TokensError::Read(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    // Of the opened file: the path may lead to another one a moment later.
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(TokensError::Mode(path.display().to_string(), mode));
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(TokensError::TooLong(path.to_owned()));
    }
    parse(&text, &path.display().to_string())
}

fn parse(text: &str, path: &str) -> Result<Vec<Token>, TokensError> {
    let parsed: FileFormat = toml::from_str(text).map_err(|error| {
        // The error's own text quotes the line.
        let start = error.span().map_or(0, |span| span.start);
        let line = text.as_bytes().iter().take(start).filter(|byte| **byte == b'\n').count() + 1;
        TokensError::Syntax { path: path.into(), line, message: first_line(error.message()) }
    })?;
    parsed.token.into_iter().map(|entry| entry.token(path)).collect()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl Entry {
    fn token(self, path: &str) -> Result<Token, TokensError> {
        let problem = |problem| TokensError::Token {
            path: path.to_owned(),
            name: self.name.clone(),
            problem,
        };
        let key = match (&self.key, &self.sha256) {
            (Some(key), None) if key.len() < MIN_KEY => {
                return Err(problem("has a key of fewer than 16 characters"));
            }
            (Some(key), None) => KeyHash::of(key.as_bytes()),
            (None, Some(hash)) => KeyHash::parse(hash)
                .ok_or_else(|| problem("has a `sha256` that is not 64 hexadecimal digits"))?,
            _ => return Err(problem("needs either `key` or `sha256`")),
        };
        let amounts = [self.cpus, self.each_sandbox.cpus, self.model_cost_per_day];
        if amounts.into_iter().flatten().any(|amount| !amount.is_finite() || amount < 0.0) {
            return Err(problem("has a quota that is not a number of at least 0"));
        }
        let each = EachSandbox {
            cpus: self.each_sandbox.cpus,
            memory: self.each_sandbox.memory,
            disk: self.each_sandbox.disk,
        };
        let quotas = Quotas {
            sandboxes: self.sandboxes,
            cpus: self.cpus,
            memory: self.memory,
            disk: self.disk,
            storage: self.storage,
            requests_per_minute: self.requests_per_minute,
            model_tokens_per_day: self.model_tokens_per_day,
            model_cost_per_day: self.model_cost_per_day,
            each,
        };
        Ok(Token { name: self.name, key, quotas })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const FILE: &str = r#"
        [[token]]
        name = "alice"
        key = "0123456789abcdef"
        sandboxes = 10
        cpus = 8
        memory = "16G"
        disk = "40G"
        requests_per_minute = 600
        model_tokens_per_day = 1_000_000
        model_cost_per_day = 2.5
        [token.each_sandbox]
        memory = "2G"

        [[token]]
        name = "ci"
        sha256 = "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f"
    "#;

    #[test]
    fn a_file_has_tokens_with_quotas() {
        let tokens = parse(FILE, "tokens.toml").unwrap();
        let [alice, ci] = tokens.as_slice() else { panic!("{tokens:?}") };
        assert_eq!((alice.name.as_str(), ci.name.as_str()), ("alice", "ci"));
        assert!(alice.key.same(&ci.key), "one has the key, the other its hash");
        assert_eq!(alice.quotas.memory, Some(ByteSize::gib(16)));
        assert_eq!(alice.quotas.each.memory, Some(ByteSize::gib(2)));
        assert_eq!(alice.quotas.model_cost_per_day, Some(2.5));
        assert_eq!(ci.quotas, Quotas::default());
    }

    /// The file in the documentation, whose key is cut there so that nobody uses it.
    #[test]
    fn the_file_in_the_documentation_has_every_quota() {
        let page = include_str!("../../../../../docs/server.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        assert!(text.contains("[[token]]"), "{text}");
        parse(text, "tokens.toml").unwrap_err();
        let tokens = parse(&text.replace("5f0c...", &"0".repeat(40)), "tokens.toml").unwrap();
        let [token] = tokens.as_slice() else { panic!("{tokens:?}") };
        // Without `..`: a new quota is documented.
        let Quotas {
            sandboxes: Some(10),
            cpus: Some(_),
            memory: Some(_),
            disk: Some(_),
            storage: Some(_),
            requests_per_minute: Some(600),
            model_tokens_per_day: Some(1_000_000),
            model_cost_per_day: Some(_),
            each: EachSandbox { memory: Some(_), cpus: _, disk: _ },
        } = token.quotas
        else {
            panic!("{:?}", token.quotas)
        };
    }

    #[test]
    fn errors_say_where_and_never_quote_a_key() {
        let secret = "hunter2hunter2hunter2";
        let cases = [
            (format!("[[token]]\nname = \"a\"\nkey = {secret}"), ":3:"),
            (format!("[[token]]\nname = \"a\"\nkye = \"{secret}\""), ":3:"),
            (format!("[[token]]\nname = \"a\"\nkey = \"{secret}\"\nmemory = \"much\""), ":4:"),
            (format!("[[token]]\nname = \"a\"\nkey = \"{secret}\"\ncpus = -1"), "`a`"),
            (format!("[[token]]\nname = \"a\"\nkey = \"{secret}\"\nsha256 = \"x\""), "`a`"),
            (format!("[[token]]\nname = \"a\"\nsha256 = \"{secret}\""), "`a`"),
            ("[[token]]\nname = \"a\"".to_owned(), "`a`"),
            ("[[token]]\nname = \"a\"\nkey = \"hunter2\"".to_owned(), "`a`"),
        ];
        for (text, place) in cases {
            let error = parse(&text, "tokens.toml").unwrap_err().to_string();
            assert!(error.contains(place) && error.contains("tokens.toml"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        fs::write(&path, FILE).unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("chmod 600"), "{mode:o}: {error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
    }
}
