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
            file("run.sh", &self.script()),
        ]
    }

    fn script(&self) -> String {
        let repository = shell_quoted(&self.repository.to_string_lossy());
        let marker = self.marker;
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
             tail -c {LOG_BYTES} {DIR}/log\n\
             printf '\\n%s %s\\n' '{marker} end' \"$code\"\n\
             }}\n\
             main; exit 0\n"
        )
    }
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
