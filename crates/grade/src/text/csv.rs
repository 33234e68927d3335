//! Python's `csv.reader` in its default dialect, over lines that end with a line feed.
//!
//! Splits a text into fields, or returns Python's error.

/// Python's default limit on the length of a field, in characters.
const FIELD_LIMIT: usize = 131_072;

/// Errors of Python's reader.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Error {
    /// A carriage return within a line.
    #[error(
        "new-line character seen in unquoted field - do you need to open the file in universal-newline mode?"
    )]
    NewLine,
    /// A field past the limit.
    #[error("field larger than field limit ({FIELD_LIMIT})")]
    FieldLimit,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    RecordStart,
    FieldStart,
    Field,
    Quoted,
    QuoteInQuoted,
    AfterNewLine,
}

struct Reader {
    delimiter: char,
    state: State,
    field: String,
    length: usize,
    row: Vec<String>,
}

/// The rows of a text; an empty line is a row without fields.
pub(crate) fn rows(text: &str, delimiter: char) -> Result<Vec<Vec<String>>, Error> {
    let mut reader = Reader {
        delimiter,
        state: State::RecordStart,
        field: String::new(),
        length: 0,
        row: Vec::new(),
    };
    let mut rows = Vec::new();
    for line in text.split_inclusive('\n') {
        for char in line.chars() {
            reader.take(char)?;
        }
        reader.end_line();
        if reader.state == State::RecordStart {
            rows.push(std::mem::take(&mut reader.row));
        }
    }
    if reader.length != 0 || reader.state == State::Quoted {
        reader.save();
        rows.push(reader.row);
    }
    Ok(rows)
}

impl Reader {
    fn take(&mut self, char: char) -> Result<(), Error> {
        let ends = matches!(char, '\n' | '\r');
        match self.state {
            State::RecordStart if ends => self.state = State::AfterNewLine,
            State::FieldStart | State::Field | State::QuoteInQuoted if ends => {
                self.save();
                self.state = State::AfterNewLine;
            }
            State::RecordStart | State::FieldStart if char == '"' => self.state = State::Quoted,
            State::RecordStart | State::FieldStart | State::Field | State::QuoteInQuoted
                if char == self.delimiter =>
            {
                self.save();
                self.state = State::FieldStart;
            }
            State::RecordStart | State::FieldStart | State::Field => {
                self.add(char, State::Field)?
            }
            State::Quoted if char == '"' => self.state = State::QuoteInQuoted,
            State::Quoted => self.add(char, State::Quoted)?,
            State::QuoteInQuoted if char == '"' => self.add(char, State::Quoted)?,
            State::QuoteInQuoted => self.add(char, State::Field)?,
            State::AfterNewLine if ends => {}
            State::AfterNewLine => return Err(Error::NewLine),
        }
        Ok(())
    }

    fn end_line(&mut self) {
        match self.state {
            State::RecordStart | State::Quoted => {}
            State::AfterNewLine => self.state = State::RecordStart,
            State::FieldStart | State::Field | State::QuoteInQuoted => {
                self.save();
                self.state = State::RecordStart;
            }
        }
    }

    fn add(&mut self, char: char, state: State) -> Result<(), Error> {
        if self.length >= FIELD_LIMIT {
            return Err(Error::FieldLimit);
        }
        self.length += 1;
        self.field.push(char);
        self.state = state;
        Ok(())
    }

    fn save(&mut self) {
        self.length = 0;
        self.row.push(std::mem::take(&mut self.field));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Vec<String>> {
        rows(text, ',').unwrap()
    }

    #[test]
    fn fields_and_quotes() {
        assert_eq!(read("a,b\n\"c,\"\"d\",e\n"), [["a", "b"], ["c,\"d", "e"]]);
        assert_eq!(read("\"a\"b,c"), [["ab", "c"]]);
        assert_eq!(read("a\"b\",\n"), [["a\"b\"", ""]]);
        assert_eq!(read("\"two\nlines\",x\r\n"), [["two\nlines", "x"]]);
    }

    #[test]
    fn empty_lines_are_rows() {
        assert_eq!(read("a\n\nb"), [vec!["a"], vec![], vec!["b"]]);
        assert_eq!(read(""), Vec::<Vec<String>>::new());
        assert_eq!(read("\n"), [Vec::<String>::new()]);
    }

    #[test]
    fn an_open_quote_ends_with_the_text() {
        assert_eq!(read("a,\"b\n"), [["a", "b\n"]]);
        assert_eq!(read("a,\""), [["a", ""]]);
    }

    #[test]
    fn failures_are_python_s() {
        assert_eq!(rows("a\rb", ','), Err(Error::NewLine));
        assert_eq!(rows(&"x".repeat(FIELD_LIMIT + 1), ','), Err(Error::FieldLimit));
        assert!(rows(&"x".repeat(FIELD_LIMIT), ',').is_ok());
    }
}
