//! The user's terminal: its size, and who is using it.

use std::{io, io::IsTerminal};

use rustix::termios::tcgetwinsize;
use sandbox::TerminalSize;

/// Whether standard input and output are a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The size of the terminal; 80 x 24 where it is unknown.
pub(crate) fn size() -> TerminalSize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TerminalSize { rows: size.ws_row, cols: size.ws_col }
        }
        _ => TerminalSize { rows: 24, cols: 80 },
    }
}

/// Whether this process is in the background of its terminal: reading from standard input would stop it.
pub(crate) fn is_in_background() -> bool {
    let foreground = rustix::termios::tcgetpgrp(io::stdin());
    io::stdin().is_terminal() && foreground.is_ok_and(|group| group != rustix::process::getpgrp())
}
