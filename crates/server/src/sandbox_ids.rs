//! [`SandboxIds`]: ids that tell their server, and later servers with the same directory, that a server issued them.
//!
//! A client of a server that was killed is told that its sandbox is gone with it, without a record of every sandbox: the
//! end of an id is an authentication code of its beginning, which names the server's run.

use std::{io, path::Path};

use http_server::same_secret;
use sha2::{Digest, Sha256};

/// Letters that name the server's run.
const RUN: usize = 4;
/// Random letters that tell its sandboxes apart.
const RANDOM: usize = 12;
/// Letters of the code.
const CODE: usize = 8;
/// The file with the key.
const FILE: &str = "sandbox-ids.key";

/// The ids of one run of a server.
#[derive(Debug)]
pub(crate) struct SandboxIds {
    key: [u8; 32],
    run: String,
}

/// Who issued an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Issuer {
    /// This run of the server.
    ThisRun,
    /// An earlier one, whose sandboxes ended with it.
    EarlierRun,
}

impl SandboxIds {
    /// With the key of this directory, which is made where it is missing; without a directory, with one for this run.
    pub(crate) fn open(directory: Option<&Path>) -> io::Result<Self> {
        let key = match directory {
            Some(directory) => stored_key(&directory.join(FILE))?,
            None => new_key()?,
        };
        Ok(Self { key, run: random_id::letters(RUN)? })
    }

    /// An id for a new sandbox.
    pub(crate) fn issue(&self) -> io::Result<String> {
        let start = format!("{}{}", self.run, random_id::letters(RANDOM)?);
        Ok(format!("{start}{}", self.code(&start)))
    }

    /// Who issued this id, if it was a server with this key.
    pub(crate) fn issuer(&self, id: &str) -> Option<Issuer> {
        let (start, code) = id.split_at_checked(RUN + RANDOM)?;
        if !same_secret(code.as_bytes(), self.code(start).as_bytes()) {
            return None;
        }
        Some(if start.starts_with(&self.run) { Issuer::ThisRun } else { Issuer::EarlierRun })
    }

    fn code(&self, start: &str) -> String {
        // Of a fixed length, and only in part: nobody can extend it.
        let digest = Sha256::new().chain_update(self.key).chain_update(start).finalize();
        digest.iter().take(CODE).map(|byte| random_id::letter(u64::from(*byte))).collect()
    }
}

fn new_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    random_id::fill(&mut key)?;
    Ok(key)
}

fn stored_key(file: &Path) -> io::Result<[u8; 32]> {
    let failed = |error: io::Error| {
        let message = format!("cannot keep the key of sandbox ids in {}: {error}", file.display());
        io::Error::new(error.kind(), message)
    };
    match std::fs::read(file) {
        Ok(bytes) => bytes.try_into().map_err(|_| {
            let message = format!("{} does not have 32 bytes; remove it", file.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = new_key()?;
            atomic_file::write_durable(file, key).map_err(failed)?;
            Ok(key)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_knows_the_ids_of_an_earlier_one() {
        let directory = tempfile::tempdir().unwrap();
        let open = || SandboxIds::open(Some(directory.path())).unwrap();
        let (first, later, other) = (open(), open(), SandboxIds::open(None).unwrap());
        let id = first.issue().unwrap();
        assert_ne!(id, first.issue().unwrap());
        assert!(id.len() == RUN + RANDOM + CODE && id.bytes().all(|b| b.is_ascii_alphanumeric()));
        assert_eq!(first.issuer(&id), Some(Issuer::ThisRun));
        assert_eq!(later.issuer(&id), Some(Issuer::EarlierRun));
        assert_eq!(other.issuer(&id), None);
        let (last, rest) = (id.chars().last().unwrap(), &id[..id.len() - 1]);
        let forged = format!("{rest}{}", if last == '0' { '1' } else { '0' });
        for unknown in ["", "x", rest, &forged, &format!("{id}0"), "äääääääääääääääääääääää"]
        {
            assert_eq!(first.issuer(unknown), None, "{unknown}");
        }
        std::fs::write(directory.path().join(FILE), "short").unwrap();
        assert!(SandboxIds::open(Some(directory.path())).is_err());
    }
}
