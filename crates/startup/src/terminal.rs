//! Raw mode of the user's terminal, which is always undone.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The terminal's settings before raw mode.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode: the terminal passes every key through, until this is dropped.
#[derive(Debug)]
pub struct RawMode(());

impl RawMode {
    /// Switches the terminal of standard input to raw mode.
    ///
    /// # Errors
    /// If standard input is not a terminal.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let mode = Self(());
        // A panic must leave a readable terminal.
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            previous(panic);
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

/// Ends raw mode, if the terminal is in it.
pub fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Whether the terminal is in raw mode.
pub fn is_raw() -> bool {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}
