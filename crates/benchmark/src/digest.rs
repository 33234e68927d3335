//! Digests of a task besides its rows, so that a run is not resumed with another task of the same name.

use problems::{Grader, Problem, Task};
use sha2::{Digest, Sha256};

/// The digest of the prompts, the limits and the image. Built-in prompts count too: another version of the program may
/// have others.
pub(crate) fn prompts(task: &Task) -> String {
    let row = serde_json::json!({
        "id": "x", "problem_statement": "?", "ground_truth": "!", "input_files": {"name": "text"},
    });
    let plain = Problem::from_row(row)
        .map(|problem| [task.plain_prompt(&problem), task.with_documents_in_prompt(&problem)])
        .map_err(|error| error.to_string());
    let all = (&task.prompts, plain, task.turns, task.tokens, &task.image);
    // Plain data always serializes.
    hex(&Sha256::digest(serde_json::to_vec(&all).unwrap_or_default()))
}

/// The digest of the grader: its name, and its command and files where it is a command.
pub(crate) fn grader(task: &Task) -> String {
    let mut digest = Sha256::new().chain_update(task.grader.name());
    if let Grader::Command(command) = &task.grader {
        let settings = (&command.command, &command.image, command.timeout);
        digest.update(serde_json::to_vec(&settings).unwrap_or_default());
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
    fn every_part_of_a_task_changes_its_digest() {
        let task = Task::builtin("math").unwrap();
        let changes: [&dyn Fn(&mut Task); 5] = [
            &|task| task.prompts.system.push('x'),
            &|task| task.plain_prompt = problems::PlainPrompt::Statement,
            &|task| task.turns += 1,
            &|task| task.tokens += 1,
            &|task| task.image = Some("other".into()),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = task.clone();
            change(&mut other);
            assert_ne!(prompts(&other), prompts(&task), "{number}");
            assert_eq!(grader(&other), grader(&task), "{number}");
        }
        assert_eq!(prompts(&task.clone()), prompts(&task));
    }

    #[test]
    fn a_command_is_identified_by_its_text_and_files() {
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
