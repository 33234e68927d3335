//! A step of a build: what it runs in its sandbox, and how it is named on the screen and in the build cache.

use std::time::Duration;

use sandbox::Process;

/// One step, which becomes one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Installs Debian packages.
    Add(Vec<String>),
    /// Installs Python packages.
    Pip(Vec<String>),
    /// Runs a command of the shell.
    Run(String),
}

/// Characters of a step that are shown.
const MAX_TITLE: usize = 100;

/// Where a step finds the certificates of this machine. Not part of the image: this is a file in memory.
pub(crate) const CERTIFICATES: &str = "/dev/shm/.certificates.crt";

/// The package lists are used once: they would only make the layer larger.
const ADD: &str = r#"
if ! command -v apt-get >/dev/null || ! [ -e /var/lib/dpkg/status ]; then
    echo 'the image has no Debian packages to add to; install what you need with --run' >&2
    exit 127
fi
set -e
export DEBIAN_FRONTEND=noninteractive
apt() {
    apt-get -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io ${SSL_CERT_FILE:+-o Acquire::https::CAInfo=$SSL_CERT_FILE} "$@"
}
apt update
apt install --yes --no-install-recommends -- "$@"
apt clean
rm -f /var/lib/apt/lists/*_* /var/cache/apt/*.bin
"#;

const PIP: &str = r#"
if ! python3 -m pip --version >/dev/null 2>&1; then
    echo 'the image has no pip; put --add python3-pip first' >&2
    exit 127
fi
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
exec python3 -m pip install --no-input --no-cache-dir --progress-bar off -- "$@"
"#;

impl Step {
    /// The program that runs in the sandbox.
    pub(crate) fn process(&self) -> Process {
        Process::new(self.argv())
    }

    /// What the step does, in at most [`MAX_TITLE`] characters.
    pub(crate) fn title(&self) -> String {
        let text = match self {
            Self::Add(packages) => format!("apt-get install {}", packages.join(" ")),
            Self::Pip(packages) => format!("pip install {}", packages.join(" ")),
            Self::Run(command) => command.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        match text.char_indices().nth(MAX_TITLE) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// What the step does, for the build cache.
    pub(crate) fn key(&self) -> String {
        serde_json::json!({ "argv": self.argv() }).to_string()
    }

    /// A rough duration of a step that never ran; `None` where nobody can know.
    pub(crate) fn rough_duration(&self) -> Option<Duration> {
        match self {
            Self::Add(packages) => Some(Duration::from_secs(30 + 5 * packages.len() as u64)),
            Self::Pip(packages) => Some(Duration::from_secs(15 + 10 * packages.len() as u64)),
            Self::Run(_) => None,
        }
    }

    fn argv(&self) -> Vec<String> {
        let (script, arguments) = match self {
            Self::Add(packages) => (ADD, &packages[..]),
            Self::Pip(packages) => (PIP, &packages[..]),
            Self::Run(command) => (command.as_str(), &[][..]),
        };
        let words = ["sh", "-c", script, "sh"].into_iter().map(str::to_owned);
        words.chain(arguments.iter().cloned()).collect()
    }
}

/// Parses the name of a Debian package, with a version or a release.
pub(crate) fn debian_package(text: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"+-.:=~/_".contains(&b);
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is not a Debian package; write a name such as ffmpeg, or name=version"))
}

/// Parses a requirement of pip.
pub(crate) fn requirement(text: &str) -> Result<String, String> {
    let shape = !text.is_empty() && !text.starts_with('-') && !text.chars().any(char::is_control);
    shape.then(|| text.to_owned()).ok_or_else(|| {
        format!("`{text}` is not a requirement of pip; write it as name or name==version")
    })
}

/// Parses a command of the shell.
pub(crate) fn command(text: &str) -> Result<String, String> {
    match text.trim().is_empty() || text.contains('\0') {
        true => Err("the command is empty or has a NUL byte".into()),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_be_options_or_paths_are_refused() {
        for bad in ["", "-o", "--allow-downgrades", "./x.deb", "/x.deb", "a b", "$(x)"] {
            assert!(debian_package(bad).is_err(), "{bad}");
        }
        for good in ["ffmpeg", "g++", "libc6:i386", "jq=1.6-2", "jq/stable"] {
            assert!(debian_package(good).is_ok(), "{good}");
        }
        assert!(requirement("-r").is_err() && requirement("").is_err());
        assert!(requirement("numpy>=1,<3").is_ok() && requirement("x[y]==1").is_ok());
        assert!(command("  ").is_err() && command("echo hi").is_ok());
    }

    #[test]
    fn steps_that_do_different_things_have_different_keys() {
        let steps = [
            Step::Add(vec!["a".into(), "b".into()]),
            Step::Add(vec!["a b".into()]),
            Step::Pip(vec!["a".into(), "b".into()]),
            Step::Run("a b".into()),
        ];
        let keys: std::collections::BTreeSet<_> = steps.iter().map(Step::key).collect();
        assert_eq!(keys.len(), steps.len());
    }
}
