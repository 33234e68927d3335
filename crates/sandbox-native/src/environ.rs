//! The environment of commands. Nothing of the host's environment is included.

use std::ffi::CString;

/// `PATH` of an image that sets none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Merges the defaults, the image's variables and the caller's; a later value replaces an earlier one.
pub(crate) fn merged(
    image: &[(String, String)],
    caller: &[(String, String)],
) -> Vec<(String, String)> {
    let defaults = [
        ("PATH", PATH),
        ("HOME", "/root"),
        ("USER", "root"),
        ("LOGNAME", "root"),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
    ];
    let mut all: Vec<(String, String)> = Vec::new();
    let defaults = defaults.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
    for (name, value) in defaults.chain(image.iter().cloned()).chain(caller.iter().cloned()) {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => all.push((name, value)),
        }
    }
    all
}

/// Formats the variables for `exec`.
pub(crate) fn as_c_strings(env: &[(String, String)]) -> Vec<CString> {
    env.iter().filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok()).collect()
}

/// The `PATH` of this environment.
pub(crate) fn path(env: &[(String, String)]) -> &str {
    env.iter().find(|(name, _)| name == "PATH").map_or(PATH, |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_variables_replace_earlier_ones() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let all = merged(&[pair("PATH", "/image"), pair("A", "1")], &[pair("A", "2")]);
        assert_eq!(path(&all), "/image");
        assert_eq!(all.iter().filter(|(k, _)| k == "A").count(), 1);
        assert!(all.contains(&pair("A", "2")) && all.contains(&pair("HOME", "/root")));
    }
}
