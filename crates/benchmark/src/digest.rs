//! Digests of what a task is besides its rows, so that a run is not taken up with another of the same name.

use problems::{Grader, Problem, Task};
use sha2::{Digest, Sha256};

/// Of the words around problems, the limits and the image. Words that are built in count too: another version of the
/// program may have others.
pub(crate) fn words(task: &Task) -> String {
    let row = serde_json::json!({
        "id": "x", "problem_statement": "?", "ground_truth": "!", "input_files": {"name": "text"},
    });
    let put = Problem::from_row(row)
        .map(|problem| [task.plain(&problem), task.with_documents_in_prompt(&problem)]);
    let all = (&task.prompts, put, task.turns, task.tokens, &task.image);
    // Plain data: there is nothing in it that could not be written.
    hex(&Sha256::digest(serde_json::to_vec(&all).unwrap_or_default()))
}

/// Of the grader: its name, and everything a command comes with.
pub(crate) fn grader(task: &Task) -> String {
    let mut digest = Sha256::new().chain_update(task.grader.name());
    if let Grader::Command(command) = &task.grader {
        let said = (&command.command, &command.image, command.timeout);
        digest.update(serde_json::to_vec(&said).unwrap_or_default());
        for (path, bytes) in &command.files {
            digest.update(path.as_os_str().as_encoded_bytes());
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        }
    }
    hex(&digest.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_task_says_tells_it_apart() {
        let task = Task::builtin("math").unwrap();
        let changes: [&dyn Fn(&mut Task); 5] = [
            &|task| task.prompts.system.push('x'),
            &|task| task.plain_form = problems::PlainForm::Statement,
            &|task| task.turns += 1,
            &|task| task.tokens += 1,
            &|task| task.image = Some("other".into()),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = task.clone();
            change(&mut other);
            assert_ne!(words(&other), words(&task), "{number}");
            assert_eq!(grader(&other), grader(&task), "{number}");
        }
        assert_eq!(words(&task.clone()), words(&task));
    }

    #[test]
    fn a_command_is_told_by_its_words_and_files() {
        let with = |command: &str, file: &str| {
            let mut task = Task::builtin("math").unwrap();
            task.grader = Grader::Command(problems::Command {
                command: command.into(),
                files: vec![("grade.sh".into(), file.as_bytes().into())],
                image: None,
                timeout: std::time::Duration::from_secs(1),
            });
            grader(&task)
        };
        let all = [with("sh grade.sh", "a"), with("sh grade.sh", "b"), with("bash grade.sh", "a")];
        assert!(all[0] != all[1] && all[0] != all[2]);
        assert_eq!(all[0], with("sh grade.sh", "a"));
    }
}
