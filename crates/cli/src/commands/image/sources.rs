//! Where this machine gets packages from: proxies, certificates and the configuration of pip.
//!
//! Steps of a build get these settings for as long as they run; none of them becomes part of an image. Those of pip, which
//! may hold credentials, are for the steps that run pip alone.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::step::{CERTIFICATES, Step};
use crate::settings::{Settings, environment};

/// Variables with proxies, in both spellings that programs read.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
/// Settings of pip that say where packages come from. Others, such as a target directory, do not fit a sandbox.
const PIP_SETTINGS: [&str; 11] = [
    "index_url",
    "extra_index_url",
    "find_links",
    "no_index",
    "trusted_host",
    "proxy",
    "timeout",
    "default_timeout",
    "retries",
    "prefer_binary",
    "only_binary",
];
/// Variables with a file of certificates, the most specific first.
const CERTIFICATE_VARIABLES: [&str; 4] =
    ["PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"];
/// Files of certificates on usual systems.
const CERTIFICATE_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// The longest file of certificates.
const MAX_CERTIFICATES: u64 = 16 << 20;

/// What the steps of a build need to reach the package sources of this machine.
#[derive(Debug)]
pub(crate) struct PackageSources {
    /// Environment variables of every step.
    env: BTreeMap<String, String>,
    /// Further ones of the steps that install Python packages.
    pip: BTreeMap<String, String>,
    /// The certificates this machine trusts, for [`CERTIFICATES`].
    pub(crate) certificates: Option<Vec<u8>>,
}

impl PackageSources {
    /// Reads the settings of this machine.
    pub(crate) fn read(settings: &Settings) -> Self {
        let variable = |name: &str| environment::variable(name)?.into_string().ok();
        let (mut env, mut pip) = (BTreeMap::new(), BTreeMap::new());
        for name in PROXIES.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]) {
            if let Some(value) = variable(&name) {
                env.insert(name, value);
            }
        }
        for file in pip_files(settings, variable("PIP_CONFIG_FILE")) {
            let text = fs::read_to_string(file).unwrap_or_default();
            pip.extend(pip_settings(&text));
        }
        for name in PIP_SETTINGS.map(pip_variable) {
            if let Some(value) = variable(&name) {
                pip.insert(name, value);
            }
        }
        let named = CERTIFICATE_VARIABLES.iter().filter_map(|name| variable(name));
        let usual = CERTIFICATE_FILES.iter().map(|file| (*file).to_owned());
        let certificates = named.chain(usual).find_map(|file| read_bounded(Path::new(&file)));
        if certificates.is_some() {
            for name in CERTIFICATE_VARIABLES {
                env.insert(name.to_owned(), CERTIFICATES.to_owned());
            }
        }
        Self { env, pip, certificates }
    }

    /// The environment variables of a step.
    pub(crate) fn env(&self, step: &Step) -> Vec<(String, String)> {
        let pip = matches!(step, Step::Pip(_)).then_some(&self.pip).into_iter().flatten();
        let all = self.env.iter().chain(pip);
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

fn read_bounded(file: &Path) -> Option<Vec<u8>> {
    let meta = fs::metadata(file).ok()?;
    (meta.is_file() && meta.len() <= MAX_CERTIFICATES).then(|| fs::read(file).ok())?
}

/// The configuration files of pip, the most specific last.
fn pip_files(settings: &Settings, named: Option<String>) -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("/etc/pip.conf")];
    if let Some(home) = settings.user_home() {
        files.extend([".pip/pip.conf", ".config/pip/pip.conf"].map(|file| home.join(file)));
    }
    files.extend(named.map(PathBuf::from));
    files
}

fn pip_variable(setting: &str) -> String {
    format!("PIP_{}", setting.to_uppercase())
}

/// The settings of a configuration file that matter, as variables of pip.
fn pip_settings(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let (mut applies, mut continues) = (false, false);
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = content.strip_prefix('[') {
            applies = matches!(section.trim_end_matches(']').trim(), "global" | "install");
            continues = false;
        } else if line.starts_with([' ', '\t']) {
            // A value of several lines is a list, which variables separate by spaces.
            if let (true, Some((_, value))) = (continues, found.last_mut()) {
                value.push(' ');
                value.push_str(content);
            }
        } else if let Some((name, value)) = content.split_once(['=', ':']) {
            let name = name.trim().to_lowercase().replace('-', "_");
            continues = applies && PIP_SETTINGS.contains(&name.as_str());
            if continues {
                found.push((pip_variable(&name), value.trim().to_owned()));
            }
        }
    }
    for (_, value) in &mut found {
        *value = value.trim().to_owned();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_about_sources_are_read_and_others_are_not() {
        let text = "[global]\nindex-url = https://a.example/simple\n# extra\nextra-index-url =\n  https://b.example\n\thttps://c.example\ntarget = /x\n  y\n[freeze]\ntimeout = 3\n[install]\nno_index: true\n";
        let expected = [
            ("PIP_INDEX_URL", "https://a.example/simple"),
            ("PIP_EXTRA_INDEX_URL", "https://b.example https://c.example"),
            ("PIP_NO_INDEX", "true"),
        ];
        let found = pip_settings(text);
        let found: Vec<_> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn settings_of_pip_are_for_pip_alone() {
        let one = |name: &str| BTreeMap::from([(name.to_owned(), "x".to_owned())]);
        let (env, pip) = (one("http_proxy"), one("PIP_INDEX_URL"));
        let sources = PackageSources { env, pip, certificates: None };
        let names = |step: Step| -> Vec<_> {
            sources.env(&step).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(Step::Run("a".into())), ["http_proxy"]);
        assert_eq!(names(Step::Add(vec!["a".into()])), ["http_proxy"]);
        assert_eq!(names(Step::Pip(vec!["a".into()])), ["http_proxy", "PIP_INDEX_URL"]);
    }
}
