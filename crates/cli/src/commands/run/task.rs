//! The text of the task: from the command line, a file or standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use crate::{console::output::shell_quoted, exit::UsageError};

/// The longest task text, in bytes; documents belong into files.
const MAX_TASK: u64 = 16 << 20;

/// Reads the task from where the user gave it. A task that is the name of a file is rejected: it is the file's text that
/// was meant.
pub(crate) fn text(
    task: Option<String>,
    query: Option<String>,
    file: Option<&Path>,
) -> Result<String, UsageError> {
    let text = match (task.as_deref().or(query.as_deref()), file) {
        (Some("-"), _) => read(io::stdin(), "standard input")?,
        (Some(name), _) if task.is_some() && Path::new(name).is_file() => {
            let name = shell_quoted(name);
            return Err(UsageError(format!(
                "the task is the name of a file; to use the text in it, write --task-file {name}"
            )));
        }
        (Some(text), _) => text.to_owned(),
        (None, Some(path)) if path == Path::new("-") => read(io::stdin(), "standard input")?,
        (None, Some(path)) => {
            let name = path.display().to_string();
            let file = File::open(path)
                .map_err(|error| UsageError(format!("--task-file: cannot read {name}: {error}")))?;
            read(file, &name)?
        }
        (None, None) => String::new(),
    };
    match text.trim().is_empty() {
        true => Err(UsageError("the task is empty; describe what the model should do".into())),
        false => Ok(text),
    }
}

fn read(from: impl Read, name: &str) -> Result<String, UsageError> {
    let mut text = String::new();
    match from.take(MAX_TASK + 1).read_to_string(&mut text) {
        Ok(length) if length as u64 > MAX_TASK => {
            Err(UsageError("the task is too long; put documents into --input DIR".into()))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(UsageError(format!("cannot read the task from {name}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_read_or_pointed_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("my task.md");
        fs::write(&file, "Count\n").unwrap();
        let name = file.to_str().unwrap().to_owned();
        assert_eq!(text(None, None, Some(&file)).unwrap(), "Count\n");
        let error = text(Some(name.clone()), None, None).unwrap_err().to_string();
        assert!(error.contains(&format!("--task-file '{name}'")), "{error}");
        // Programs that pass a task as it is are not second-guessed.
        assert_eq!(text(None, Some(name.clone()), None).unwrap(), name);
        assert_eq!(text(Some("Do it".into()), None, None).unwrap(), "Do it");
        fs::write(&file, b"\xff").unwrap();
        assert!(text(None, None, Some(&file)).is_err());
        assert!(text(None, None, Some(dir.path())).is_err());
        assert!(text(None, None, None).is_err() && text(Some(" \n".into()), None, None).is_err());
    }
}
