//! Shell scripts for a repository: prepare it, collect the patch, run the tests.

use std::path::Path;

use crate::GraderFile;

/// Where [`diff_command`] writes the patch.
pub const DIFF_FILE: &str = "/tmp/llm-in-sandbox.diff";

/// Directory of the files of an evaluation.
const DIR: &str = "/tmp/llm-in-sandbox-check";
/// The last bytes of the test log that are printed. Many, because some runners report every test from the start.
const LOG_BYTES: u32 = 15 << 20;
/// The commit the model started from, below the repository.
const BASE: &str = ".git/llm-in-sandbox-base";
/// Git that accepts files of any owner, and without the hooks and helpers a repository may bring.
const GIT: &str = "g() { git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false \
     -c user.name=llm-in-sandbox -c user.email=llm-in-sandbox@localhost \"$@\"; }";

/// The encoding of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffForm {
    /// Text files line by line, in their own encoding.
    Text,
    /// ASCII, with every file as a binary patch.
    Ascii,
}

/// The script that writes all changes since the start, with new files and without ignored ones, to [`DIFF_FILE`].
/// Run it with `bash -c`, not in the model's shell, whose state is unknown.
pub fn diff_command(repository: &Path, form: DiffForm) -> String {
    let repository = shell_quoted(&repository.to_string_lossy());
    // These attributes override those of the repository.
    let attributes = match form {
        DiffForm::Text => "",
        DiffForm::Ascii => {
            "info=$(g rev-parse --git-path info) && mkdir -p \"$info\" && rm -rf \"$info/attributes\" && \
             echo '* -diff' > \"$info/attributes\" || exit 1\n"
        }
    };
    format!(
        "{GIT}\n\
         cd {repository} || exit 1\n\
         rm -rf {DIFF_FILE}\n\
         base=$(cat {BASE} 2>/dev/null || g rev-parse HEAD) || exit 1\n\
         index=$(mktemp -d) || exit 1\n\
         export GIT_INDEX_FILE=\"$index/index\"\n\
         g read-tree \"$base\" && g add -A . || exit 1\n\
         {attributes}\
         g diff --cached --binary --no-ext-diff --no-textconv --no-color \"$base\" > {DIFF_FILE}\n\
         code=$?\n\
         rm -rf \"$index\"\n\
         exit \"$code\"\n"
    )
}

/// Runs the row's own setup, makes the directory a repository unless it is one, and records the first commit.
pub(super) fn setup(repository: &Path, own: Option<&str>) -> String {
    let repository = shell_quoted(&repository.to_string_lossy());
    let own = own.unwrap_or("true");
    format!(
        "{GIT}\n\
         mkdir -p {repository} && cd {repository} || exit 1\n\
         (\n{own}\n) || exit 1\n\
         if ! g rev-parse --verify -q HEAD > /dev/null; then\n\
         g init -q . && g add -A . && g commit -q -m 'The repository as it was' || exit 1\n\
         fi\n\
         g rev-parse HEAD > {BASE}\n"
    )
}

/// The test of a patch in a new sandbox.
pub(super) struct Evaluation<'a> {
    pub(super) repository: &'a Path,
    pub(super) setup: &'a str,
    pub(super) command: &'a str,
    pub(super) marker: &'a str,
}

impl Evaluation<'_> {
    /// The command to run once the files are there.
    pub(super) const COMMAND: &'static str = "bash /tmp/llm-in-sandbox-check/run.sh";

    /// The files of the evaluation.
    pub(super) fn files(&self, diff: &str, test_patch: &str) -> Vec<GraderFile> {
        let file = |name: &str, text: &str| (Path::new(DIR).join(name), text.as_bytes().into());
        vec![
            file("change.diff", &ended(diff)),
            file("tests.diff", &ended(test_patch)),
            file("setup.sh", self.setup),
            file("tests.sh", self.command),
            file("run.sh", &self.script(diff)),
        ]
    }

    fn script(&self, diff: &str) -> String {
        let repository = shell_quoted(&self.repository.to_string_lossy());
        let marker = self.marker;
        // GNU patch takes what git finds a little wrong. Only a unified diff: others can have commands.
        let lenient = match may_enter_git(diff) {
            true => "false",
            false => "patch --batch --unified --fuzz=5 -p1 -i \"$change\"",
        };
        // The test patch is first applied without the model's, which also tells the names of its files: if it fails
        // afterwards, the model's patch is the reason. Git prints the names, old and new ones.
        // All is in a function, so that bash has read the whole script before tests can change the file.
        format!(
            "main() {{\n\
             {GIT}\n\
             exec 2>&1\n\
             bash {DIR}/setup.sh || exit 90\n\
             cd {repository} || exit 90\n\
             export GIT_INDEX_FILE={DIR}/index\n\
             g read-tree HEAD || exit 90\n\
             if [ -s {DIR}/tests.diff ]; then \
             g apply --cached --whitespace=nowarn {DIR}/tests.diff || exit 91; fi\n\
             g diff --cached --name-only --no-renames -z HEAD > {DIR}/names || exit 91\n\
             unset GIT_INDEX_FILE\n\
             change={DIR}/change.diff\n\
             if ! g apply --whitespace=nowarn \"$change\" && ! {lenient}; then\n\
             echo '{marker} unfit'; exit 0\n\
             fi\n\
             while IFS= read -r -d '' file; do\n\
             g checkout -q HEAD -- \":(literal)$file\" 2> /dev/null || rm -rf -- \"$file\"\n\
             done < {DIR}/names\n\
             if [ -s {DIR}/tests.diff ] && ! g apply --whitespace=nowarn {DIR}/tests.diff; then\n\
             echo '{marker} clash'; exit 0\n\
             fi\n\
             echo '{marker} start'\n\
             bash {DIR}/tests.sh > {DIR}/log 2>&1 < /dev/null\n\
             code=$?\n\
             tail -c {LOG_BYTES} {DIR}/log\n\
             printf '\\n%s %s\\n' '{marker} end' \"$code\"\n\
             }}\n\
             main; exit 0\n"
        )
    }
}

/// Whether GNU patch, unlike git, could write to the repository's own directory for this patch, where settings decide what
/// git runs: the patch names a path there, or makes a link that could lead there.
fn may_enter_git(diff: &str) -> bool {
    const NAMES: [&str; 7] = ["---", "+++", "***", "Index:", "diff", "rename", "copy"];
    diff.lines().any(|line| {
        // Headers may be indented, and quoted as in mails.
        let mut line = line.trim_start_matches([' ', '\t', 'X']);
        while let Some(quoted) = line.strip_prefix("- ") {
            line = quoted;
        }
        let names = |line: &str| {
            let words = line.split(['/', '"', '\'', ' ', '\t', '\r']);
            words.into_iter().any(|word| word.eq_ignore_ascii_case(".git"))
        };
        NAMES.iter().any(|name| line.starts_with(name)) && names(&without_escapes(line))
            || ["new ", "index "].iter().any(|mode| line.starts_with(mode))
                && line.contains("120000")
    })
}

/// A line with the octal escapes of quoted names resolved, as far as they are ASCII.
fn without_escapes(line: &str) -> String {
    let mut parts = line.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match digits {
            Some(code) => text.extend([char::from(code)].into_iter().chain(part[3..].chars())),
            None => text.extend(['\\'].into_iter().chain(part.chars())),
        }
    }
    text
}

/// Text as one literal shell word.
pub(super) fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A patch whose last line ends with a newline, as git requires.
fn ended(patch: &str) -> String {
    match patch {
        "" => String::new(),
        patch if patch.ends_with('\n') => patch.to_owned(),
        patch => format!("{patch}\n"),
    }
}
