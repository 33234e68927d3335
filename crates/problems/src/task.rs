//! A task: prompts, limits and a grader around a set of problems, built in or somebody's own.
//!
//! Turns a problem into text and an answer into a grading; where rows come from is another's business.

mod builtin;

#[cfg(test)]
#[path = "task/task_tests.rs"]
mod tests;

use std::path::{Path, PathBuf};

use agent::Prompts;

use crate::{
    Answer, Grader, Grading, Problem, Rows, RowsError, TaskError, folder,
    hub::Source,
    rows::read_files,
    swe::{self, DiffForm, Place},
};

/// A benchmark task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// What decides about answers.
    pub grader: Grader,
    /// The most turns of an episode.
    pub turns: u32,
    /// The most tokens of an episode.
    pub tokens: u64,
    /// The names its benchmark has in public, for the check of leaks.
    pub known_as: Vec<String>,
    /// What a model with a computer is told.
    pub prompts: Prompts,
    /// What a model without one is told.
    pub plain_form: PlainForm,
    /// The rows that come with it, where it is a folder.
    pub data: Option<PathBuf>,
    /// Where the rows lie on the hub.
    pub hub: Option<Source>,
    /// The image its sandboxes are made of, where it is not the usual one.
    pub image: Option<String>,
    /// What should be known before it is used: parts of a folder that have no effect here.
    pub notes: Vec<String>,
}

/// How a problem is put to a model that has only one reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainForm {
    /// As it stands.
    Statement,
    /// With the final answer in a box.
    Boxed,
    /// With the letter of a choice at the end.
    Letter,
    /// With nothing but a short answer, or letters.
    Brief,
    /// With a change to a repository that the model cannot see.
    Diff,
    /// A template with `{problem_statement}` and, if it likes, `{documents}`.
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

    /// The task in a folder: one with a `task.toml`, or one of the reference with `config.yaml` and `reward.py`.
    pub fn load(dir: &Path) -> Result<Self, TaskError> {
        folder::load(dir)
    }

    /// Reads rows for this task, several files as if they were one: `.jsonl`, `.json` or `.parquet`. Rows it cannot grade
    /// are bad ones.
    pub fn read_files(&self, paths: &[impl AsRef<Path>]) -> Result<Rows, RowsError> {
        read_files(paths, &|problem| self.grader.fits(problem))
    }

    /// The one user message for a model without a computer, documents included.
    pub fn plain(&self, problem: &Problem) -> String {
        let statement = &problem.statement;
        let question = match &self.plain_form {
            PlainForm::Template(template) => return filled(template, problem),
            PlainForm::Statement => statement.clone(),
            PlainForm::Boxed => {
                format!(
                    "{statement}\n\nReason step by step and give the final answer in \\boxed{{}}."
                )
            }
            PlainForm::Letter => format!(
                "{statement}\n\nReason step by step, then end with one line of the form \"Answer: X\", where X is \
                 the letter of the right option."
            ),
            PlainForm::Brief => format!(
                "{statement}\n\nReply with the answer alone. For a choice that is its letter, for several their \
                 letters with commas between them; otherwise it is a short text."
            ),
            PlainForm::Diff => format!(
                "Somebody reports about a repository:\n\n{statement}\n\nReply with the change that settles it: one \
                 unified diff, as git writes it, in a block that begins with ```diff and ends with ```."
            ),
        };
        with_documents(problem, &question)
    }

    /// The statement for a model with a computer that gets the documents in its prompt instead of as files.
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

    /// The image the problem's sandbox is made of, where it is not the usual one.
    pub fn image(&self, problem: &Problem) -> Option<String> {
        let own = (self.grader == Grader::Tests).then(|| swe::image_of(problem)).flatten();
        own.or_else(|| self.image.clone())
    }

    /// What to run in a new sandbox once the problem's files are there, before the model begins; it has to end well.
    /// To be run as a program of its own (`bash -c`).
    pub fn setup(&self, problem: &Problem) -> Option<String> {
        (self.grader == Grader::Tests).then(|| swe::setup(problem, &self.prompts.working_dir))
    }

    /// Where the answer is when the model has finished.
    pub fn answer_of(&self) -> Answer {
        match self.grader {
            Grader::Tests => Answer::Diff,
            _ => Answer::File("answer.txt".to_owned()),
        }
    }

    /// What writes the model's change to [`swe::DIFF_FILE`], where [`Self::answer_of`] is a change. To be run as a
    /// program of its own (`bash -c`).
    pub fn diff_command(&self, form: DiffForm) -> String {
        swe::diff_command(&self.prompts.working_dir, form)
    }

    /// The grade of an answer, or what has to be done for one.
    pub fn grading(&self, problem: &Problem, answer: &str) -> Grading {
        let place = Place {
            repository: &self.prompts.working_dir,
            input_dir: &self.prompts.input_dir,
            image: self.image.as_deref(),
        };
        self.grader.grading(problem, answer, place)
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

/// All documents with their names, in the order of these.
fn documents(problem: &Problem) -> String {
    let count = problem.files.len();
    let blocks = problem.files.iter().zip(1..).map(|((name, text), number)| {
        format!(
            "--- document {number} of {count}: {name} ---\n{text}\n--- end of document {number} ---"
        )
    });
    blocks.collect::<Vec<_>>().join("\n\n")
}

/// Fills a template that [`check_template`] has seen. Documents it does not ask for come first.
fn filled(template: &str, problem: &Problem) -> String {
    let documents = documents(problem);
    let values = [("problem_statement", problem.statement.as_str()), ("documents", &documents)];
    let text = fill(template, &values).unwrap_or_else(|_| problem.statement.clone());
    // Doubled braces are no name.
    let asked_for = template.replace("{{", "").contains("{documents}");
    match problem.files.is_empty() || asked_for {
        true => text,
        false => format!("{documents}\n\n{text}"),
    }
}

/// Whether a template can be filled, and if not, why.
pub(crate) fn check_template(template: &str) -> Result<(), String> {
    fill(template, &[("problem_statement", ""), ("documents", "")]).map(|_| ())
}

/// Puts values in for names in braces; doubled braces stand for themselves.
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
            return Err("a lone brace; double it where a brace is meant: {{ or }}".into());
        };
        let Some((_, value)) = values.iter().find(|(known, _)| *known == name) else {
            let name: String = name.chars().take(40).collect();
            return Err(format!(
                "nothing is known to put in for {{{name}}}; known are {{problem_statement}} and {{documents}}"
            ));
        };
        text.push_str(value);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}
