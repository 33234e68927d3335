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
const INTERVAL: Duration = Duration::from_secs(2);

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
        let files = |paths: &[&Option<PathBuf>]| -> Vec<Option<Version>> {
            paths.iter().copied().flatten().map(|path| version(path)).collect()
        };
        let of_tokens = || files(&[&args.tokens]);
        let of_tls = || files(&[&args.tls_cert, &args.tls_key]);
        let (mut known_tokens, mut known_tls) = (of_tokens(), of_tls());
        loop {
            tokio::time::sleep(INTERVAL).await;
            let now = of_tokens();
            if now != known_tokens {
                known_tokens = now;
                let new = args.read_tokens().and_then(|new| Ok(tokens.replace(new)?));
                report("the tokens", new);
            }
            let now = of_tls();
            if now != known_tls {
                known_tls = now;
                if let Some(tls) = &tls {
                    let new = args.read_tls().and_then(|files| {
                        files.map_or(Ok(()), |(cert, key)| Ok(tls.replace(&cert, &key)?))
                    });
                    report("the certificate", new);
                }
            }
        }
    }
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
        let mut tokens = match &self.tokens {
            Some(path) => tokens::read(path).map_err(anyhow::Error::new).context("--tokens")?,
            None => Vec::new(),
        };
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
            (token("carol"), vec!["carol"]),
        ] {
            write(&path, &text);
            tokio::time::sleep(INTERVAL * 2).await;
            assert_eq!(names(), expected);
        }
        following.abort();
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
