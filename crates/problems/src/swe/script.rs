//! The shell scripts around a repository: how it is made, what changed in it, how it is tested.

use std::path::Path;

use crate::CarriedFile;

/// Where [`diff_command`] leaves the change.
pub const DIFF_FILE: &str = "/tmp/llm-in-sandbox.diff";

/// Where the files of an evaluation lie.
const DIR: &str = "/tmp/llm-in-sandbox-check";
/// So much of the log is shown, from its end: some runners report test by test, from the beginning on.
const SHOWN: u32 = 15 << 20;
/// The commit the model started from, below the repository.
const BASE: &str = ".git/llm-in-sandbox-base";
/// Git as we want it: whoever owns the files, and without the hooks and helpers a repository may bring.
const GIT: &str = "g() { git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false \
     -c user.name=llm-in-sandbox -c user.email=llm-in-sandbox@localhost \"$@\"; }";

/// How a change is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffForm {
    /// Line by line where files are text, in whatever encoding they are.
    Text,
    /// In ASCII whatever the files hold: every file as if it were no text.
    Ascii,
}

/// Writes what was changed since the beginning, new files included and ignored ones not, to [`DIFF_FILE`]. To be run
/// as a program of its own (`bash -c`), since the model may have left anything in its shell.
pub fn diff_command(repository: &Path, form: DiffForm) -> String {
    let repository = quoted(&repository.to_string_lossy());
    // The last word about attributes is had there.
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

/// Makes a repository of what lies there, unless it is one, after the row's own steps; notes where it starts.
pub(super) fn setup(repository: &Path, own: Option<&str>) -> String {
    let repository = quoted(&repository.to_string_lossy());
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

/// How a change is tested, in a new sandbox.
pub(super) struct Evaluation<'a> {
    pub(super) repository: &'a Path,
    pub(super) setup: &'a str,
    pub(super) command: &'a str,
    pub(super) marker: &'a str,
}

impl Evaluation<'_> {
    /// What to run once the files are there.
    pub(super) const COMMAND: &'static str = "bash /tmp/llm-in-sandbox-check/run.sh";

    /// The files of the evaluation.
    pub(super) fn files(&self, diff: &str, test_patch: &str) -> Vec<CarriedFile> {
        let file = |name: &str, text: &str| (Path::new(DIR).join(name), text.as_bytes().into());
        vec![
            file("change.diff", &ended(diff)),
            file("tests.diff", &ended(test_patch)),
            file("setup.sh", self.setup),
            file("tests.sh", self.command),
            file("run.sh", &self.script()),
        ]
    }

    fn script(&self) -> String {
        let repository = quoted(&self.repository.to_string_lossy());
        let marker = self.marker;
        // Whether the tests fit the repository is asked before the change is there, and which files they are: what
        // does not fit afterwards is the change's doing. Git itself says the names, old and new ones.
        // The script is read whole before tests run: bash would read on in a file that a test has changed.
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
             if ! g apply --whitespace=nowarn {DIR}/change.diff && \
             ! patch --batch --fuzz=5 -p1 -i {DIR}/change.diff; then\n\
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
             tail -c {SHOWN} {DIR}/log\n\
             printf '\\n%s %s\\n' '{marker} end' \"$code\"\n\
             }}\n\
             main; exit 0\n"
        )
    }
}

/// Text for a shell to take as it is.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A patch needs its last line to end.
fn ended(patch: &str) -> String {
    match patch {
        "" => String::new(),
        patch if patch.ends_with('\n') => patch.to_owned(),
        patch => format!("{patch}\n"),
    }
}
