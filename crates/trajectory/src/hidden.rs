//! Recognizes invisible characters. Whoever displays a text decides how to show them.

/// Whether a character controls a terminal, or hides or reorders text: control characters, line and paragraph
/// separators, and Unicode format characters, such as direction marks, zero-width characters and tags.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\0'..='\x1f' | '\x7f'..='\u{9f}' => true,
        ' '..='~' => false,
        '\u{ad}'
        | '\u{600}'..='\u{605}'
        | '\u{61c}'
        | '\u{6dd}'
        | '\u{70f}'
        | '\u{890}'..='\u{891}'
        | '\u{8e2}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}'
        | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}
