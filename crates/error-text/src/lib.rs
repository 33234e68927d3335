//! An error and all its causes as text, for logs, progress messages and recorded failures. Start with [`one_line`].
//!
//! ```
//! use std::io;
//!
//! #[derive(Debug)]
//! struct ReadConfig(io::Error);
//! impl std::fmt::Display for ReadConfig {
//!     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
//!         f.write_str("cannot read the configuration")
//!     }
//! }
//! impl std::error::Error for ReadConfig {
//!     fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
//!         Some(&self.0)
//!     }
//! }
//!
//! let error = ReadConfig(io::Error::other("disk failure"));
//! assert_eq!(lis_error_text::one_line(&error), "cannot read the configuration: disk failure");
//! ```

use std::{error::Error, iter};

/// Returns the messages of an error and its causes, outermost first, joined with `": "`.
///
/// A cause that the text before it already ends with is left out: some libraries repeat their source in their own
/// message.
pub fn chain(error: &dyn Error) -> String {
    join(error, |message| message)
}

/// Like [`chain`], with runs of white space as one space.
pub fn one_line(error: &dyn Error) -> String {
    one_line_with(error, |message| message)
}

/// Like [`one_line`], with every message shortened by `clean` first.
pub fn one_line_with(error: &dyn Error, clean: impl Fn(&str) -> &str) -> String {
    join(error, |message| clean(&message).split_whitespace().collect::<Vec<_>>().join(" "))
}

fn join(error: &dyn Error, format: impl Fn(String) -> String) -> String {
    let mut text = format(error.to_string());
    for cause in iter::successors(error.source(), |&cause| cause.source()) {
        let message = format(cause.to_string());
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Failure(&'static str, Option<Box<Failure>>);

    impl fmt::Display for Failure {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Failure {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn failure(messages: &[&'static str]) -> Failure {
        let (first, rest) = messages.split_first().unwrap();
        Failure(first, (!rest.is_empty()).then(|| Box::new(failure(rest))))
    }

    #[test]
    fn causes_are_joined_on_one_line_without_repetition() {
        assert_eq!(one_line(&failure(&["a"])), "a");
        assert_eq!(one_line(&failure(&["a", "b\n  c", "d"])), "a: b c: d");
        assert_eq!(one_line(&failure(&["a: b c", "b\n c", "d"])), "a: b c: d");
        assert_eq!(one_line_with(&failure(&["a#1", "b#2"]), |text| &text[..1]), "a: b");
    }

    #[test]
    fn a_chain_names_every_cause_once() {
        assert_eq!(chain(&failure(&["a"])), "a");
        assert_eq!(chain(&failure(&["a", "b\n  c", "d"])), "a: b\n  c: d");
        assert_eq!(chain(&failure(&["a: b", "b", "c"])), "a: b: c");
    }
}
