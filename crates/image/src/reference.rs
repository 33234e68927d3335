//! References to images in a registry: `python`, `python:3.12`, `host:5000/team/tool@sha256:…`.
//!
//! Missing parts default as in Docker. Makes no requests.

use std::{fmt, str::FromStr};

use crate::digest::Digest;

/// The registry when none is named.
const DEFAULT_REGISTRY: &str = "docker.io";
/// The host of the default registry's API.
const DEFAULT_REGISTRY_HOST: &str = "registry-1.docker.io";

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    path: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// A text that is not a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: {why}; write for instance python:3.12 or host:5000/team/tool:1")]
pub struct ReferenceError {
    /// The text, shortened.
    text: String,
    /// What is wrong with it.
    why: &'static str,
}

impl Reference {
    /// The registry as named: host and optional port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The image's path in the registry.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The host and port to connect to.
    pub(crate) fn host(&self) -> &str {
        if self.registry == DEFAULT_REGISTRY { DEFAULT_REGISTRY_HOST } else { &self.registry }
    }

    /// Whether the registry is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.registry.rsplit_once(':').map_or(self.registry.as_str(), |(host, _)| host);
        lis_http::is_loopback(host)
    }

    /// The pinned digest.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The tag or digest to request.
    pub(crate) fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".into(),
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |why| ReferenceError { text: text.chars().take(120).collect(), why };
        if text.len() > 400 {
            return Err(refuse("it is too long"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = digest.parse().map_err(|_| {
                    refuse("after @ there must be sha256: and 64 hexadecimal digits")
                })?;
                (rest, Some(digest))
            }
            None => (text, None),
        };
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, rest)
            }
            _ => (DEFAULT_REGISTRY, rest),
        };
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) => (path, Some(tag.to_owned())),
            None => (rest, None),
        };
        if !is_host(registry) {
            return Err(refuse("the registry is not a host name with an optional port"));
        }
        if !path.split('/').all(is_component) {
            return Err(refuse(
                "the path is made of lower-case letters, digits and . _ - between them",
            ));
        }
        if !tag.as_deref().is_none_or(is_tag) {
            return Err(refuse("the tag is made of letters, digits and . _ -"));
        }
        let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
        let official = registry == DEFAULT_REGISTRY && !path.contains('/');
        let path = if official { format!("library/{path}") } else { path.to_owned() };
        Ok(Self { registry: registry.to_owned(), path, tag, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)?;
        match (&self.tag, &self.digest) {
            (tag, Some(digest)) => {
                tag.as_ref().map_or(Ok(()), |tag| write!(f, ":{tag}"))?;
                write!(f, "@{digest}")
            }
            (tag, None) => write!(f, ":{}", tag.as_deref().unwrap_or("latest")),
        }
    }
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().is_ok_and(|port| port != 0)),
        None => (text, true),
    };
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
    };
    port && host.split('.').all(label)
}

fn is_component(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let outer = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    outer(bytes.first())
        && outer(bytes.last())
        && bytes.iter().copied().all(inner)
        && !text.contains("..")
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = text.as_bytes();
    (1..=128).contains(&bytes.len())
        && word(bytes[0])
        && bytes.iter().all(|&b| word(b) || b == b'.' || b == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_left_out_is_filled_in() {
        let pinned = format!("sha256:{}", "0".repeat(64));
        for (typed, meant) in [
            ("python", "docker.io/library/python:latest"),
            ("python:3.12", "docker.io/library/python:3.12"),
            ("team/tool", "docker.io/team/tool:latest"),
            ("localhost/tool", "localhost/tool:latest"),
            ("localhost:5000/a/b:tag", "localhost:5000/a/b:tag"),
            ("example.org/x", "example.org/x:latest"),
            (&format!("x@{pinned}"), &format!("docker.io/library/x@{pinned}")),
            (&format!("x:1@{pinned}"), &format!("docker.io/library/x:1@{pinned}")),
        ] {
            assert_eq!(typed.parse::<Reference>().unwrap().to_string(), meant);
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (text, is) in [
            ("localhost:5000/x", true),
            ("127.0.0.1:5000/x", true),
            ("127.9.9.9:1/x", true),
            ("localhost.example.org/x", false),
            ("127.0.0.1.example.org/x", false),
            ("10.0.0.1:5000/x", false),
            ("x", false),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().is_loopback(), is, "{text}");
        }
    }

    #[test]
    fn what_names_no_image_is_refused() {
        for bad in [
            "",
            ":",
            "a:",
            "A",
            "a/B",
            "a b",
            "a..b",
            "-a",
            "a/",
            "/a",
            "a//b",
            "../a",
            "host:0/a",
            "host:x/a",
            "a@sha256:12",
            "a:b:c",
            "a:-x",
            "ho_st.x/a",
            "user@host.x/a",
            "a?b",
            "a%2f",
        ] {
            assert!(bad.parse::<Reference>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_reference_reads_back_as_itself(text in "[a-z.:/@0-9-]{0,30}") {
            if let Ok(reference) = text.parse::<Reference>() {
                let again: Reference = reference.to_string().parse().unwrap();
                prop_assert_eq!(again.to_string(), reference.to_string());
                prop_assert!(!reference.path().contains(".."));
            }
        }
    }
}
