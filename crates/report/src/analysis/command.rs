//! Shell commands: name, arguments and redirections, built from the words of a line.

/// A command as the shell would run it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Command {
    /// Name without directories; prefixes such as `sudo` and `then` are dropped.
    pub(super) name: String,
    /// Arguments.
    pub(super) args: Vec<String>,
    /// Source of its standard input.
    pub(super) input: Input,
    /// Files its output is redirected to.
    pub(super) writes: Vec<String>,
}

/// Source of a command's standard input.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Input {
    /// Not redirected.
    #[default]
    Open,
    /// Another command.
    Pipe,
    /// A file.
    File,
    /// Inline text; the index of the here-document, where it is one.
    Text(Option<usize>),
}

/// Prefixes before the actual command.
const LEADS: [&str; 25] = [
    "if", "then", "else", "elif", "do", "!", "{", "}", "time", "sudo", "nohup", "exec", "command",
    "builtin", "env", "timeout", "nice", "ionice", "stdbuf", "xargs", "setsid", "eval", "function",
    "coproc", "doas",
];

/// Options of prefixes that take a separate value.
const VALUED: [(&str, &[&str]); 8] = [
    ("timeout", &["-s", "-k", "--signal", "--kill-after"]),
    ("sudo", &["-u", "-g", "-C", "-h", "-p", "-r", "-t", "-U", "-D", "-R", "--user", "--group"]),
    ("doas", &["-u", "-C"]),
    (
        "xargs",
        &["-I", "-n", "-P", "-d", "-L", "-s", "-E", "-a", "--replace", "--max-args", "--max-procs"],
    ),
    ("nice", &["-n", "--adjustment"]),
    ("ionice", &["-c", "-n", "--class", "--classdata"]),
    ("env", &["-u", "-C", "--unset", "--chdir"]),
    ("stdbuf", &["-i", "-o", "-e"]),
];

/// Words searched for the condition of a loop.
const CONDITION: usize = 12;

/// Builds commands from words: `sudo pip install x` is `pip`, and so is `python -m pip`.
pub(super) fn settle(
    words: Vec<String>,
    input: Input,
    writes: Vec<String>,
    commands: &mut Vec<Command>,
) {
    let mut led = None;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if matches!(word.as_str(), "while" | "until") {
            let args = words.iter().skip(at).take(CONDITION).cloned().collect();
            commands.push(Command { name: "while".into(), args, ..Command::default() });
        } else if LEADS.contains(&word.as_str()) {
            led = Some(word.as_str());
            at += usize::from(word == "function");
        } else if let Some(lead) = led.filter(|_| is_option(word)) {
            let valued = VALUED
                .iter()
                .any(|(name, options)| *name == lead && options.contains(&word.as_str()));
            at += usize::from(valued);
        } else if !is_assignment(word) {
            let name = word.rsplit('/').next().unwrap_or_default().to_owned();
            let (name, at) = module(name, &words, at);
            let args = words.into_iter().skip(at).collect();
            commands.push(Command { name, args, input, writes });
            return;
        }
    }
    if !writes.is_empty() {
        commands.push(Command { input, writes, ..Command::default() });
    }
}

/// Resolves a module run by an interpreter: `python -m pip` is `pip`.
fn module(name: String, words: &[String], at: usize) -> (String, usize) {
    let at = at + usize::from(is_python(&name) && words.get(at).is_some_and(|word| word == "-u"));
    match (words.get(at).map(String::as_str), words.get(at + 1)) {
        (Some("-m"), Some(module)) if is_python(&name) => (module.clone(), at + 2),
        (Some("pip"), _) if name == "uv" => ("pip".into(), at + 1),
        _ => (name, at),
    }
}

fn is_option(word: &str) -> bool {
    word.starts_with('-') || word.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a program runs Python.
pub(super) fn is_python(name: &str) -> bool {
    let rest = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    rest.is_some_and(|rest| rest.bytes().all(|b| b == b'.' || b.is_ascii_digit()))
        || name == "ipython"
        || name == "ipython3"
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
    })
}
