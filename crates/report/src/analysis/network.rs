//! Commands that contact other machines, and for what. Knows program names only, not replies.

use super::command::Command;

/// What a command requests from other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Pages, files, repositories, answers.
    Data,
    /// Programs and packages.
    Packages,
}

/// What a command requests from other machines, if anything.
pub(super) fn wanted(command: &Command) -> Option<Wanted> {
    let said = |words: &[&str]| command.args.iter().any(|arg| words.contains(&arg.as_str()));
    let first = |words: &[&str]| verb(command).is_some_and(|verb| words.contains(&verb));
    match command.name.as_str() {
        "curl" | "wget" | "aria2c" | "http" | "https" | "lynx" | "w3m" | "links" | "ftp"
        | "sftp" | "telnet" | "nc" | "ncat" | "ping" => {
            asks_elsewhere(command).then_some(Wanted::Data)
        }
        "dig" | "nslookup" | "whois" | "traceroute" | "ssh" | "gdown" | "yt-dlp" | "kaggle"
        | "lynx-cur" => (!command.args.is_empty()).then_some(Wanted::Data),
        "scp" | "rsync" => command.args.iter().any(|arg| arg.contains(':')).then_some(Wanted::Data),
        "git" => first(&["clone", "fetch", "pull", "ls-remote"]).then_some(Wanted::Data),
        "hf" | "huggingface-cli" => first(&["download", "repo", "api"]).then_some(Wanted::Data),
        "gh" => first(&["api", "repo", "search", "release", "gist"]).then_some(Wanted::Data),
        name if is_pip(name) => {
            first(&["install", "download", "search", "index", "wheel"]).then_some(Wanted::Packages)
        }
        "uv" | "poetry" | "pipenv" | "pdm" => {
            first(&["add", "install", "sync"]).then_some(Wanted::Packages)
        }
        "conda" | "mamba" | "micromamba" => {
            first(&["install", "create", "update", "search"]).then_some(Wanted::Packages)
        }
        "apt" | "apt-get" | "aptitude" | "apt-cache" | "apk" | "dnf" | "yum" | "zypper"
        | "brew" | "snap" => {
            let verbs = ["install", "add", "update", "upgrade", "search", "download", "source"];
            said(&verbs).then_some(Wanted::Packages)
        }
        "pacman" => said(&["-S", "-Sy", "-Syu", "-Ss"]).then_some(Wanted::Packages),
        "npm" | "yarn" | "pnpm" | "bun" | "gem" | "cargo" | "go" | "cpan" | "cpanm"
        | "luarocks" => {
            first(&["install", "i", "add", "get", "ci", "fetch"]).then_some(Wanted::Packages)
        }
        "npx" | "pipx" | "uvx" => (!command.args.is_empty()).then_some(Wanted::Packages),
        _ => None,
    }
}

/// Options before a subcommand that take a separate value.
const VALUED: [&str; 20] = [
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--proxy",
    "--python",
    "--cache-dir",
    "--log",
    "--timeout",
    "--retries",
    "--cert",
    "--trusted-host",
    "--prefix",
    "--registry",
    "--directory",
    "--project",
    "--config",
    "--color",
    "--toolchain",
];

/// The first argument that is neither an option nor the value of one.
pub(super) fn verb(command: &Command) -> Option<&str> {
    let mut args = command.args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if VALUED.contains(&arg) {
            args.next();
        } else if !arg.starts_with('-') {
            return Some(arg);
        }
    }
    None
}

fn is_pip(name: &str) -> bool {
    let rest = name.strip_prefix("pip");
    rest.is_some_and(|rest| rest.bytes().all(|b| b == b'.' || b.is_ascii_digit()))
}

/// Whether a command contacts other machines: not with a local address or only to print a version. The address may be
/// missing, as a program that starts another adds it later; a local proxy may serve remote addresses.
fn asks_elsewhere(command: &Command) -> bool {
    let about = |arg: &str| matches!(arg, "--version" | "-V" | "--help" | "-h");
    let is_proxy = |at: usize| at > 0 && matches!(command.args[at - 1].as_str(), "-x" | "--proxy");
    let here = |(at, arg): (usize, &String)| {
        about(arg) || is_here(arg) && !arg.starts_with('-') && !is_proxy(at)
    };
    !command.args.is_empty() && !command.args.iter().enumerate().any(here)
}

fn is_here(target: &str) -> bool {
    let host = target.split_once("://").map_or(target, |(_, rest)| rest);
    let host = host.split(['/', ':', '?']).next().unwrap_or_default();
    matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0" | "[")
}

#[cfg(test)]
mod tests {
    use super::{super::shell, *};

    #[test]
    fn commands_that_ask_other_machines() {
        for (text, expected) in [
            ("curl -s https://example.org/a", Some(Wanted::Data)),
            ("curl -s localhost:8000/a", None),
            ("curl http://127.0.0.1/", None),
            ("curl -x http://127.0.0.1:3128 https://example.org/a", Some(Wanted::Data)),
            ("curl --proxy=http://127.0.0.1:3128 https://example.org/a", Some(Wanted::Data)),
            ("curl -x http://127.0.0.1:3128 http://localhost/a", None),
            ("timeout -s KILL 60 curl https://example.org", Some(Wanted::Data)),
            ("sudo -u nobody curl https://example.org", Some(Wanted::Data)),
            ("cat urls | xargs -n 1 -I {} curl {}", None),
            ("xargs -n 1 -I {} curl {}", Some(Wanted::Data)),
            ("nice -n 5 wget https://example.org", Some(Wanted::Data)),
            ("curl --version", None),
            ("wget --help", None),
            ("which curl", None),
            ("git clone https://example.org/r", Some(Wanted::Data)),
            ("git -C /tmp clone https://example.org/r", Some(Wanted::Data)),
            ("git -c http.proxy=x fetch", Some(Wanted::Data)),
            ("git -C clone log", None),
            ("git log", None),
            ("git diff clone", None),
            ("pip install x", Some(Wanted::Packages)),
            ("pip3.11 download x", Some(Wanted::Packages)),
            ("pip --proxy http://127.0.0.1 install x", Some(Wanted::Packages)),
            ("pip list", None),
            ("pip show install", None),
            ("python -m pip install -q x", Some(Wanted::Packages)),
            ("uv pip install x", Some(Wanted::Packages)),
            ("apt-get -y install x", Some(Wanted::Packages)),
            ("apt list --installed", None),
            ("apt-cache search x", Some(Wanted::Packages)),
            ("cargo build", None),
            ("go get x", Some(Wanted::Packages)),
            ("rsync a b", None),
            ("rsync h:a b", Some(Wanted::Data)),
            ("echo curl wget", None),
        ] {
            let shell = shell::read(text);
            assert_eq!(shell.commands.first().and_then(wanted), expected, "{text}");
        }
    }
}
