//! Signed addresses of files: a hash over the path, the operation, the user and the sandbox's token.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use http_server::KeyHash;
use sha2::{Digest, Sha256};

use crate::error::{ApiError, Code};

/// What a signed address permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
}

/// The parts of a signed address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) path: &'a str,
    pub(crate) operation: Operation,
    pub(crate) user: &'a str,
    pub(crate) expires: Option<i64>,
    pub(crate) signature: &'a str,
}

/// Most bytes of a path, and of a user's name.
const MAX_PATH: usize = 4096;

/// A signature that is compared with those of sandboxes. All that needs no token is done.
pub(crate) struct Prepared {
    /// Of all before the token.
    hash: Sha256,
    /// All after it.
    tail: String,
    signature: KeyHash,
}

impl Prepared {
    /// Whether the sandbox with this token signed it.
    pub(crate) fn is_by(&self, token: &str) -> bool {
        let hash = self.hash.clone().chain_update(token).chain_update(&self.tail);
        KeyHash::of(&hash.finalize()).same(&self.signature)
    }
}

impl Signed<'_> {
    /// `None` if no sandbox can have signed it.
    pub(crate) fn prepare(&self) -> Option<Prepared> {
        let Self { path, user, .. } = self;
        // Without padding or other bits after the last byte: one signature has one spelling.
        let mut signature = [0; 33];
        let text = self.signature.strip_prefix("v1_").filter(|text| text.len() == 43)?;
        let length = BASE64_STANDARD_NO_PAD.decode_slice(text, &mut signature).ok()?;
        let signature = signature.get(..length).filter(|bytes| bytes.len() == 32)?;
        if path.len() > MAX_PATH || user.len() > MAX_PATH {
            return None;
        }
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
        };
        let hash = Sha256::new_with_prefix(format!("{path}:{operation}:{user}:"));
        let tail = self.expires.map(|expires| format!(":{expires}")).unwrap_or_default();
        Some(Prepared { hash, tail, signature: KeyHash::of(signature) })
    }

    /// Whether the sandbox with this token signed it.
    pub(crate) fn is_by(&self, token: &str) -> bool {
        self.prepare().is_some_and(|prepared| prepared.is_by(token))
    }

    /// That it has not expired.
    pub(crate) fn check_time(&self) -> Result<(), ApiError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        match self.expires {
            Some(expires) if expires < now.cast_signed() => {
                Err(ApiError::new(Code::Unauthenticated, "signature is already expired"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_fits_one_address_of_one_sandbox() {
        // As computed by PyPI e2b 2.63: get_signature("a.txt", "read", "user", "token", ...) at a fixed time.
        let signed = Signed {
            path: "a.txt",
            operation: Operation::Read,
            user: "user",
            expires: None,
            signature: "v1_Crwo9/OpRRyAnoMnEAETcIqiQq+UGSr7WlKLdxIMx8c",
        };
        assert!(!signed.is_by("other"));
        assert!(!Signed { operation: Operation::Write, ..signed }.is_by("token"));
        assert!(!Signed { expires: Some(1), ..signed }.is_by("token"));
        assert!(Signed { expires: Some(1), ..signed }.check_time().is_err());
        assert!(signed.check_time().is_ok() && signed.is_by("token"));
    }

    #[test]
    fn what_cannot_be_a_signature_is_not_compared() {
        let signature = format!("v1_{}", BASE64_STANDARD_NO_PAD.encode([0; 32]));
        let long = "x".repeat(MAX_PATH + 1);
        let signed = Signed {
            path: "a.txt",
            operation: Operation::Read,
            user: "user",
            expires: Some(7),
            signature: &signature,
        };
        assert!(signed.prepare().is_some());
        assert!(Signed { path: &long, ..signed }.prepare().is_none());
        assert!(Signed { user: &long, ..signed }.prepare().is_none());
        let padded = format!("{signature}=");
        // The last one has bits after the last byte.
        let other = format!("{}B", &signature[..45]);
        for signature in ["", "v1_", "v1_x", &signature[3..], &padded, &long, &other] {
            assert!(Signed { signature, ..signed }.prepare().is_none(), "{signature}");
        }
        // As one text.
        let text = BASE64_STANDARD_NO_PAD.encode(Sha256::digest("a.txt:read:user:token:7"));
        assert!(Signed { signature: &format!("v1_{text}"), ..signed }.is_by("token"));
    }
}
