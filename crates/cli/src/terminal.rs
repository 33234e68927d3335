//! The user's own terminal: its size, and raw mode, which is always undone.

use std::{
    io,
    io::IsTerminal,
    sync::{Mutex, PoisonError},
};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandbox::TerminalSize;

/// What the terminal was like before we changed it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal passes every key on as it is, until this is dropped.
pub(crate) struct RawMode(());

impl RawMode {
    /// Switches over.
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let mode = Self(());
        // From here on a panic anywhere must find its way to a readable terminal.
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(mode)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// Makes the terminal what it was, if we changed it.
pub(crate) fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Whether we changed the terminal.
pub(crate) fn is_raw() -> bool {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Whether someone sits at a terminal and sees what we write.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// How large the terminal is; the usual size where it does not say.
pub(crate) fn size() -> TerminalSize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TerminalSize { rows: size.ws_row, cols: size.ws_col }
        }
        _ => TerminalSize { rows: 24, cols: 80 },
    }
}

/// Whether reading from standard input would stop us: another program has the terminal.
pub(crate) fn is_in_background() -> bool {
    let foreground = rustix::termios::tcgetpgrp(io::stdin());
    io::stdin().is_terminal() && foreground.is_ok_and(|group| group != rustix::process::getpgrp())
}
