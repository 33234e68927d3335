//! The input files of a task, as the prompt lists them: names and sizes, not contents.

use std::path::Path;

/// The most files that are named; more are counted.
const MAX_NAMED: usize = 20;

/// The longest name that is shown in full, in characters.
const MAX_NAME: usize = 120;

/// The input files of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// The first by name, each with its size in bytes. Names are relative to the input directory.
    named: Vec<(String, u64)>,
    all: usize,
}

impl Inputs {
    /// From names and sizes in bytes, in any order.
    pub fn new(files: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut named: Vec<(String, u64)> = files.into_iter().collect();
        let all = named.len();
        named.sort();
        named.truncate(MAX_NAMED);
        Self { named, all }
    }

    /// The list for the model.
    pub(super) fn describe(&self, dir: &Path) -> String {
        if self.all == 0 {
            return "There are no input files.".to_owned();
        }
        let mut text = format!("Input files in {}:", dir.display());
        for (name, size) in &self.named {
            let name: String = name.chars().take(MAX_NAME).map(printable).collect();
            text.push_str(&format!("\n- {name} ({})", human_size(*size)));
        }
        match self.all - self.named.len() {
            0 => {}
            more => text.push_str(&format!("\n- and {more} more")),
        }
        text
    }
}

/// Names are untrusted: a line break in one would look like another line of the prompt.
fn printable(c: char) -> char {
    if c.is_control() { '\u{fffd}' } else { c }
}

fn human_size(size: u64) -> String {
    match size {
        0..1000 => format!("{size} bytes"),
        1000..1_000_000 => format!("{:.1} kB", size as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", size as f64 / 1e6),
        _ => format!("{:.1} GB", size as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_by_name_and_size() {
        let dir = Path::new("/in");
        assert_eq!(Inputs::default().describe(dir), "There are no input files.");
        let two = Inputs::new([("b\n- x".to_owned(), 1_234_567), ("a.csv".to_owned(), 12)]);
        let text = "Input files in /in:\n- a.csv (12 bytes)\n- b\u{fffd}- x (1.2 MB)";
        assert_eq!(two.describe(dir), text);
        let many = Inputs::new((0..1000).map(|n| (format!("{n:04}"), 1500)));
        let text = many.describe(dir);
        assert!(text.contains("- 0019 (1.5 kB)\n- and 980 more"), "{text}");
    }
}
