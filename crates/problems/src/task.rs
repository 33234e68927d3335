//! A task: prompts, limits and a grader for a set of problems; built in or from a folder of the user.
//!
//! Turns a problem into text and an answer into a grading. Does not fetch rows.

mod builtin;

#[cfg(test)]
#[path = "task/task_tests.rs"]
mod tests;

use std::path::{Path, PathBuf};

use agent::Prompts;

use crate::{
    AnswerLocation, Grader, Problem, Rows, RowsError, TaskError, folder,
    hub::Source,
    rows::read_files,
    swe::{self, DiffForm},
};

/// A benchmark task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// How answers are graded.
    pub grader: Grader,
    /// The turn limit of an episode.
    pub turns: u32,
    /// The token limit of an episode.
    pub tokens: u64,
    /// Public names of the benchmark. Reports search for them to detect that a model looked the answers up.
    pub known_as: Vec<String>,
    /// Prompts for a model with a sandbox.
    pub prompts: Prompts,
    /// The form of the prompt for a model without one; see [`Self::plain_prompt`].
    pub plain_prompt: PlainPrompt,
    /// What introduces the answer in a response without a sandbox; see [`Self::plain_answer`].
    pub answer_marker: Option<String>,
    /// The data file of a task folder.
    pub data: Option<PathBuf>,
    /// The data set on the hub.
    pub hub: Option<Source>,
    /// The image of its sandboxes. `None`: the default image.
    pub image: Option<String>,
    /// Warnings for the user: parts of a task folder that have no effect.
    pub notes: Vec<String>,
}

/// The form of the prompt for a model without a sandbox, which answers in one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainPrompt {
    /// The statement alone.
    Statement,
    /// Asks for the final answer in `\\boxed{}`.
    Boxed,
    /// Asks for the letter of a multiple choice in the last line.
    Letter,
    /// Asks for the short answer alone.
    Brief,
    /// Asks for a patch in a `diff` block.
    Diff,
    /// A template with `{problem_statement}` and optionally `{documents}`.
    Template(String),
}

impl Task {
    /// The names of the built-in tasks.
    pub const BUILTIN: [&str; 8] = [
        "math",
        "physics",
        "chem",
        "biomed",
        "long_context",
        "instruct_follow",
        "instruct_pretrain",
        "swe",
    ];

    /// The built-in task of that name, one of [`Self::BUILTIN`].
    pub fn builtin(name: &str) -> Option<Self> {
        builtin::task(name)
    }

    /// Loads a task folder: one with a `task.toml`, or one of the reference implementation with `config.yaml` and
    /// `reward.py`.
    pub fn load(dir: &Path) -> Result<Self, TaskError> {
        folder::load(dir)
    }

    /// Reads the rows of this task from `.jsonl`, `.json` or `.parquet` files. Rows the grader cannot grade are bad
    /// rows.
    pub fn read_files(&self, paths: &[impl AsRef<Path>]) -> Result<Rows, RowsError> {
        read_files(paths, &|problem| self.grader.check(problem))
    }

    /// The prompt for a model without a sandbox: one user message, with the documents.
    pub fn plain_prompt(&self, problem: &Problem) -> String {
        let statement = &problem.statement;
        let question = match &self.plain_prompt {
            PlainPrompt::Template(template) => return filled(template, problem),
            PlainPrompt::Statement => statement.clone(),
            PlainPrompt::Boxed => {
                format!(
                    "{statement}\n\nReason step by step and give the final answer in \\boxed{{}}."
                )
            }
            PlainPrompt::Letter => format!(
                "{statement}\n\nReason step by step, then end with one line of the form \"Answer: X\", where X is \
                 the letter of the right option."
            ),
            PlainPrompt::Brief => format!(
                "{statement}\n\nReply with the answer alone. For a choice that is its letter, for several their \
                 letters with commas between them; otherwise it is a short text."
            ),
            PlainPrompt::Diff => format!(
                "Somebody reports about a repository:\n\n{statement}\n\nReply with the change that settles it: one \
                 unified diff, as git writes it, in a block that begins with ```diff and ends with ```."
            ),
        };
        with_documents(problem, &question)
    }

    /// The answer in a response to [`Self::plain_prompt`]: what follows the last marker on its line, or the whole
    /// response where the task has no marker or the response none.
    pub fn plain_answer<'a>(&self, response: &'a str) -> &'a str {
        let marked = self.answer_marker.as_deref().and_then(|marker| {
            let begin = response.rfind(marker)? + marker.len();
            response[begin..].lines().next()
        });
        marked.map_or(response, |line| line.trim().trim_matches('*').trim())
    }

    /// The statement for a model with a sandbox that gets the documents in its prompt instead of as files.
    pub fn with_documents_in_prompt(&self, problem: &Problem) -> String {
        if problem.files.is_empty() {
            return problem.statement.clone();
        }
        let statement = with_documents(problem, &problem.statement);
        let dir = self.prompts.input_dir.display();
        format!(
            "{statement}\n\nThe documents stand above in full; they are not files, and {dir} is empty."
        )
    }

    /// The image of the problem's sandbox. `None`: the default image.
    pub fn image(&self, problem: &Problem) -> Option<String> {
        let own = (self.grader == Grader::Tests).then(|| swe::image_of(problem)).flatten();
        own.or_else(|| self.image.clone())
    }

    /// The script that prepares a new sandbox once the problem's files are there, before the episode. Run it with
    /// `bash -c`; it has to succeed.
    pub fn setup(&self, problem: &Problem) -> Option<String> {
        (self.grader == Grader::Tests).then(|| swe::setup(problem, &self.prompts.working_dir))
    }

    /// Where the answer is after the episode.
    pub fn answer_location(&self) -> AnswerLocation {
        match self.grader {
            Grader::Tests => AnswerLocation::Diff,
            _ => AnswerLocation::File("answer.txt".to_owned()),
        }
    }

    /// The script that writes the model's changes to [`swe::DIFF_FILE`], where [`Self::answer_location`] is
    /// [`AnswerLocation::Diff`]. Run it with `bash -c`.
    pub fn diff_command(&self, form: DiffForm) -> String {
        swe::diff_command(&self.prompts.working_dir, form)
    }
}

fn with_documents(problem: &Problem, question: &str) -> String {
    match problem.files.is_empty() {
        true => question.to_owned(),
        false => format!(
            "{}\n\nThe question, to be answered from these documents:\n\n{question}",
            documents(problem)
        ),
    }
}

/// All documents with their names, sorted by name.
fn documents(problem: &Problem) -> String {
    let count = problem.files.len();
    let blocks = problem.files.iter().zip(1..).map(|((name, text), number)| {
        format!(
            "--- document {number} of {count}: {name} ---\n{text}\n--- end of document {number} ---"
        )
    });
    blocks.collect::<Vec<_>>().join("\n\n")
}

/// Fills a template that [`check_template`] accepts. Documents it has no placeholder for come first.
fn filled(template: &str, problem: &Problem) -> String {
    let documents = documents(problem);
    let values = [("problem_statement", problem.statement.as_str()), ("documents", &documents)];
    let text = fill(template, &values).unwrap_or_else(|_| problem.statement.clone());
    // Doubled braces are not a placeholder.
    let has_documents = template.replace("{{", "").contains("{documents}");
    match problem.files.is_empty() || has_documents {
        true => text,
        false => format!("{documents}\n\n{text}"),
    }
}

/// Whether a template can be filled; the error says why not.
pub(crate) fn check_template(template: &str) -> Result<(), String> {
    fill(template, &[("problem_statement", ""), ("documents", "")]).map(|_| ())
}

/// Replaces names in braces by their values, and doubled braces by single ones.
fn fill(template: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            text.push_str(&rest[..1]);
            rest = after;
            continue;
        }
        let inside = rest.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let Some((name, after)) = inside else {
            return Err("unmatched brace; write {{ or }} for a literal brace".into());
        };
        let Some((_, value)) = values.iter().find(|(known, _)| *known == name) else {
            let name: String = name.chars().take(40).collect();
            return Err(format!(
                "unknown placeholder {{{name}}}; known are {{problem_statement}} and {{documents}}"
            ));
        };
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}
