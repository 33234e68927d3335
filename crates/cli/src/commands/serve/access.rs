//! Who reaches the server and how: keys, tokens, certificates. Files are read again when they change.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use server::{DEFAULT_TOKEN, KeyHash, Quotas, Tls, Token, Tokens};

use super::tokens;
use crate::{console::output, exit::UsageError, settings::environment};

/// Options about access.
#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    /// Environment variable with the API key that clients must send
    #[arg(long, value_name = "VAR")]
    api_key_env: Option<String>,
    /// TOML file with named tokens and their quotas; read again when it changes
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Certificate chain in PEM, to serve HTTPS; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Who may use the server.
pub(crate) struct Access {
    pub(crate) tokens: Tokens,
    pub(crate) tls: Option<Tls>,
    needs_key: bool,
    args: AccessArgs,
}

impl Access {
    /// Reads the key, the tokens and the certificate.
    pub(crate) fn read(args: AccessArgs) -> anyhow::Result<Self> {
        let needs_key = args.api_key_env.is_some() || args.tokens.is_some();
        let tokens = match needs_key {
            true => Tokens::new(args.read_tokens()?)?,
            false => Tokens::default(),
        };
        let tls = args.read_tls()?.map(|(cert, key)| Tls::new(&cert, &key)).transpose();
        let tls =
            tls.map_err(|error| anyhow::Error::new(error).context("--tls-cert, --tls-key"))?;
        Ok(Self { tokens, tls, needs_key, args })
    }

    /// Whether clients have to send a key.
    pub(crate) fn needs_key(&self) -> bool {
        self.needs_key
    }

    /// Refuses or warns about an address that others reach.
    pub(crate) fn check_address(&self, address: SocketAddr) -> Result<(), UsageError> {
        if address.ip().is_loopback() {
            return Ok(());
        }
        if !self.needs_key {
            return Err(UsageError(format!(
                "--addr {address}: everyone who reaches this address could run programs; require a key with \
                 --api-key-env or --tokens"
            )));
        }
        if self.tls.is_none() {
            output::note(&format!(
                "warning: keys and data travel unencrypted to {address}; give --tls-cert and --tls-key, or put a proxy \
                 with TLS in front"
            ));
        }
        Ok(())
    }

    /// Follows changes of the files, until it is dropped.
    pub(crate) async fn follow(self) {
        let Self { tokens, tls, args, .. } = self;
        let mut of_tokens = Followed::new([&args.tokens]);
        let mut of_tls = Followed::new([&args.tls_cert, &args.tls_key]);
        loop {
            tokio::time::sleep(INTERVAL).await;
            if let Some(read) = of_tokens.changed(|| args.read_tokens_again()) {
                report("the tokens", read.and_then(|new| Ok(tokens.replace(new)?)));
            }
            if let Some(read) = of_tls.changed(|| args.read_tls())
                && let Some(tls) = &tls
            {
                let new = read.and_then(|files| {
                    files.map_or(Ok(()), |(cert, key)| Ok(tls.replace(&cert, &key)?))
                });
                report("the certificate", new);
            }
        }
    }
}

/// Files that are read again once they have changed and are no longer being written.
struct Followed {
    paths: Vec<PathBuf>,
    /// As they were read.
    known: Vec<Option<Version>>,
    /// As they were at the last look.
    seen: Vec<Option<Version>>,
}

impl Followed {
    fn new<const N: usize>(paths: [&Option<PathBuf>; N]) -> Self {
        let paths: Vec<_> = paths.into_iter().flatten().cloned().collect();
        let known = versions(&paths);
        Self { paths, seen: known.clone(), known }
    }

    /// Looks at the files, and reads them if they differ from what is known and are as they were at the last look. One that
    /// is written in place is empty, then whole in part: neither must be taken for what its author wants.
    fn changed<T>(
        &mut self,
        read: impl FnOnce() -> anyhow::Result<T>,
    ) -> Option<anyhow::Result<T>> {
        let now = versions(&self.paths);
        let is_settled = now == self.seen;
        self.seen.clone_from(&now);
        if !is_settled || now == self.known {
            return None;
        }
        let new = read();
        let after = versions(&self.paths);
        if after != now {
            // It changed while it was read.
            self.seen = after;
            return None;
        }
        self.known = now;
        Some(new)
    }
}

fn versions(paths: &[PathBuf]) -> Vec<Option<Version>> {
    paths.iter().map(|path| version(path)).collect()
}

fn report(what: &str, changed: anyhow::Result<()>) {
    match changed {
        Ok(()) => output::note(&format!("read {what} again")),
        Err(error) => output::note(&format!("warning: {what} stay as before: {error:#}")),
    }
}

/// What changes when a file does: its number, its length and the time of its last change.
type Version = (u64, u64, i64, i64);

fn version(path: &Path) -> Option<Version> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl AccessArgs {
    fn read_tokens(&self) -> anyhow::Result<Vec<Token>> {
        let tokens = match &self.tokens {
            Some(path) => tokens::read(path).map_err(anyhow::Error::new).context("--tokens")?,
            None => Vec::new(),
        };
        self.with_key(tokens)
    }

    /// For a server that runs: a file without any token would end all sandboxes, and is more likely a mistake.
    fn read_tokens_again(&self) -> anyhow::Result<Vec<Token>> {
        let path = self.tokens.as_ref().context("--tokens")?;
        let tokens = tokens::read(path).map_err(anyhow::Error::new).context("--tokens")?;
        if tokens.is_empty() {
            let path = path.display();
            anyhow::bail!("--tokens: {path} has no tokens; to let nobody in, stop the server");
        }
        self.with_key(tokens)
    }

    /// And the key of the environment.
    fn with_key(&self, mut tokens: Vec<Token>) -> anyhow::Result<Vec<Token>> {
        if let Some(name) = &self.api_key_env {
            let key = environment::api_key(name)?;
            let key = KeyHash::of(key.reveal().as_bytes());
            tokens.push(Token { name: DEFAULT_TOKEN.into(), key, quotas: Quotas::default() });
        }
        Ok(tokens)
    }

    fn read_tls(&self) -> anyhow::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let read = |option: &str, path: &Path| {
            fs::read(path).with_context(|| format!("{option}: cannot read {}", path.display()))
        };
        let found = (read("--tls-cert", cert)?, read("--tls-key", key)?);
        // The group may have a reason, such as a service's; everybody has none.
        if fs::metadata(key).is_ok_and(|found| found.mode() & 0o007 != 0) {
            let path = key.display();
            output::note(&format!("warning: everybody may read {path}; run: chmod o= {path}"));
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    fn write(path: &Path, text: &str) {
        use std::io::Write;
        let mut options = fs::OpenOptions::new();
        let file = options.create(true).write(true).truncate(true).mode(0o600).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn token(name: &str) -> String {
        format!("[[token]]\nname = \"{name}\"\nkey = \"0123456789abcdef-{name}\"\n")
    }

    fn access(path: &Path) -> Access {
        let tokens = Some(path.to_owned());
        let args = AccessArgs { api_key_env: None, tokens, tls_cert: None, tls_key: None };
        Access::read(args).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_read_again_and_a_mistake_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        write(&path, &token("alice"));
        let access = access(&path);
        let tokens = access.tokens.clone();
        let names = || tokens.names().iter().map(ToString::to_string).collect::<Vec<_>>();
        let following = tokio::spawn(access.follow());
        // The first look is at what was read.
        tokio::time::sleep(INTERVAL / 2).await;
        for (text, expected) in [
            (token("alice") + &token("bob"), vec!["alice", "bob"]),
            ("[[token]]\nname = \"carol\"".to_owned(), vec!["alice", "bob"]),
            (String::new(), vec!["alice", "bob"]),
            (token("carol"), vec!["carol"]),
        ] {
            write(&path, &text);
            tokio::time::sleep(INTERVAL * 3).await;
            assert_eq!(names(), expected);
        }
        following.abort();
    }

    #[test]
    fn a_file_is_read_once_it_is_no_longer_being_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        write(&path, "one");
        let mut followed = Followed::new([&Some(path.clone())]);
        let mut read = || followed.changed(|| Ok(fs::read_to_string(&path)?)).map(Result::unwrap);
        assert_eq!(read(), None, "it is known");
        for part in ["", "tw"] {
            write(&path, part);
            assert_eq!(read(), None, "it has just changed");
        }
        write(&path, "two and more");
        assert_eq!(read(), None);
        assert_eq!(read().as_deref(), Some("two and more"));
        assert_eq!(read(), None, "it is known");
        // One that changes while it is read is read again later.
        write(&path, "three");
        let mut torn = || {
            followed.changed(|| {
                write(&path, "three and more");
                Ok(())
            })
        };
        assert!(torn().is_none() && torn().is_none());
        let last = followed.changed(|| Ok(fs::read_to_string(&path)?));
        assert_eq!(last.unwrap().unwrap(), "three and more");
    }

    #[test]
    fn other_addresses_need_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        write(&path, &token("alice"));
        let args = AccessArgs { api_key_env: None, tokens: None, tls_cert: None, tls_key: None };
        let open = Access::read(args).unwrap();
        let (local, any) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        assert!(open.check_address(local).is_ok() && open.check_address(any).is_err());
        assert!(access(&path).check_address(any).is_ok());
    }
}
