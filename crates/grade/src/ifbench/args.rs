//! Arguments of a constraint, with the exceptions that Python would raise.
//!
//! Where the official code draws an absent or negative argument at random, the result cannot be reproduced and the
//! constraint fails.

use std::fmt;

use serde_json::{Map, Value};

/// An exception of the official code.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{kind}: {message}")]
pub(super) struct Raised {
    kind: &'static str,
    message: String,
}

impl Raised {
    pub(super) fn new(kind: &'static str, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    pub(super) fn index(of: &str) -> Self {
        Self::new("IndexError", format_args!("{of} index out of range"))
    }

    fn random(name: &str) -> Self {
        Self::new(
            "ValueError",
            format_args!("{name} is absent, and drawn at random by the original"),
        )
    }
}

/// The arguments of one constraint, without nulls.
pub(super) struct Args<'a>(&'a Map<String, Value>);

impl<'a> Args<'a> {
    /// Arguments of these names only.
    pub(super) fn new(kwargs: &'a Map<String, Value>, names: &[&str]) -> Result<Self, Raised> {
        let given = kwargs.iter().filter(|(_, value)| !value.is_null());
        match given.map(|(name, _)| name).find(|name| !names.contains(&name.as_str())) {
            None => Ok(Self(kwargs)),
            Some(name) => {
                let message =
                    format_args!("build_description() got an unexpected keyword argument '{name}'");
                Err(Raised::new("TypeError", message))
            }
        }
    }

    /// A number that is not negative.
    pub(super) fn number(&self, name: &str) -> Result<f64, Raised> {
        let number = match self.get(name)? {
            Value::Number(number) => number.as_f64().unwrap_or(f64::MAX),
            Value::Bool(flag) => f64::from(u8::from(*flag)),
            other => return Err(unordered(other)),
        };
        if number < 0.0 { Err(Raised::random(name)) } else { Ok(number) }
    }

    /// A position that is not zero; it may count from the end.
    pub(super) fn position(&self, name: &str) -> Result<Position, Raised> {
        let position = self.place(name)?;
        if position.value == 0.0 { Err(Raised::random(name)) } else { Ok(position) }
    }

    /// A position of any sign.
    pub(super) fn place(&self, name: &str) -> Result<Position, Raised> {
        match self.get(name)? {
            Value::Number(number) => {
                Ok(Position { value: number.as_f64().unwrap_or(f64::MAX), whole: number.as_i64() })
            }
            other => Err(unordered(other)),
        }
    }

    /// A text, empty or not.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, Raised> {
        match self.get(name)? {
            Value::String(text) => Ok(text),
            other => Err(Raised::new("TypeError", format_args!("{name} is not text but {other}"))),
        }
    }

    /// A text that is not empty.
    pub(super) fn some_text(&self, name: &str) -> Result<&'a str, Raised> {
        let text = self.text(name)?;
        if text.is_empty() { Err(Raised::random(name)) } else { Ok(text) }
    }

    fn get(&self, name: &str) -> Result<&'a Value, Raised> {
        self.0.get(name).filter(|value| !value.is_null()).ok_or_else(|| Raised::random(name))
    }
}

/// A position in a list, counted from one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    value: f64,
    whole: Option<i64>,
}

impl Position {
    /// Whether it is written without a fraction.
    pub(super) fn is_whole(self) -> bool {
        self.whole.is_some()
    }

    /// Whether a list is too short to have this position.
    pub(super) fn is_past(self, length: usize) -> bool {
        (length as f64) < self.value
    }

    /// The item at this position of a list: Python's index `position - 1`.
    pub(super) fn of<T>(self, list: &[T]) -> Result<&T, Raised> {
        let index =
            self.whole_or("list indices must be integers or slices, not float")?.saturating_sub(1);
        let index = if index < 0 { index.saturating_add(list.len() as i64) } else { index };
        usize::try_from(index)
            .ok()
            .and_then(|index| list.get(index))
            .ok_or_else(|| Raised::index("list"))
    }

    /// A bound of a slice of a text, counted from zero; clamped to its end.
    pub(super) fn bound(self, plus: i64, length: usize) -> Result<usize, Raised> {
        let message = "slice indices must be integers or None or have an __index__ method";
        let bound = self.whole_or(message)?.saturating_add(plus);
        let bound = if bound < 0 { bound.saturating_add(length as i64).max(0) } else { bound };
        Ok(usize::try_from(bound).unwrap_or(usize::MAX).min(length))
    }

    fn whole_or(self, message: &str) -> Result<i64, Raised> {
        self.whole.ok_or_else(|| Raised::new("TypeError", message))
    }
}

fn unordered(value: &Value) -> Raised {
    Raised::new("TypeError", format_args!("{value} cannot be compared with a number"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with<T>(kwargs: Value, read: impl Fn(&Args) -> T) -> T {
        let Value::Object(kwargs) = kwargs else { panic!("arguments are an object") };
        read(&Args::new(&kwargs, &["n"]).unwrap())
    }

    #[test]
    fn numbers_may_be_fractions_but_positions_not() {
        assert_eq!(with(json!({"n": 3.0, "m": null}), |args| args.number("n")), Ok(3.0));
        let position = |n: Value| with(json!({"n": n}), |args| args.position("n").unwrap());
        assert_eq!(position(json!(2)).of(&["a", "b"]), Ok(&"b"));
        assert_eq!(position(json!(-1)).of(&["a", "b"]), Ok(&"a"));
        assert!(position(json!(-2)).of(&["a", "b"]).is_err());
        assert!(position(json!(2.0)).of(&["a", "b"]).is_err());
        assert!(position(json!(2.5)).is_past(2) && !position(json!(2)).is_past(2));
    }

    #[test]
    fn absent_and_negative_are_refused() {
        for n in [json!(null), json!(-1), json!("x"), json!([])] {
            assert!(with(json!({"n": n}), |args| args.number("n")).is_err(), "{n}");
        }
        assert!(with(json!({"n": 0}), |args| args.position("n").map(|_| ())).is_err());
        assert!(with(json!({"n": ""}), |args| args.some_text("n").map(|_| ())).is_err());
    }

    #[test]
    fn bounds_are_python_s() {
        let bound = |n: i64, plus| {
            with(json!({"n": n}), |args| args.place("n").unwrap().bound(plus, 5).unwrap())
        };
        assert_eq!(
            [bound(2, 1), bound(9, 0), bound(-2, 0), bound(-9, 0), bound(-1, 1)],
            [3, 5, 3, 0, 0]
        );
    }
}
