//! Signed addresses of files: a hash over the path, the operation, the user and the sandbox's token.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use http_server::same_secret;
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

impl Signed<'_> {
    /// Whether the sandbox with this token signed it.
    pub(crate) fn is_by(&self, token: &str) -> bool {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
        };
        let Self { path, user, .. } = self;
        let text = match self.expires {
            None => format!("{path}:{operation}:{user}:{token}"),
            Some(expires) => format!("{path}:{operation}:{user}:{token}:{expires}"),
        };
        let expected = format!("v1_{}", BASE64_STANDARD_NO_PAD.encode(Sha256::digest(text)));
        same_secret(expected.as_bytes(), self.signature.as_bytes())
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
}
