//! Raw mode of the user's terminal, which is always undone.

use std::{
    io::{self, IsTerminal},
    sync::{Mutex, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr},
};

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

/// Switches off what a program may have left on: reports of the mouse, the focus and pastes, which would be typed into the
/// user's own shell, the other screen, a hidden cursor, colors.
const RESET: &[u8] =
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?47l\x1b[!p\x1b[?25h\x1b[m";

/// Ends raw mode, if the terminal is in it. What the terminal sent and nobody has read was meant for the program inside,
/// or is an answer to it, and is discarded.
pub fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let stdout = io::stdout();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut writable = [PollFd::new(&stdout, PollFlags::OUT)];
        // Never waits: a program must end even if nobody reads from its terminal.
        if stdout.is_terminal() && poll(&mut writable, Some(&now)).is_ok_and(|ready| ready > 0) {
            let _ = rustix::io::write(&stdout, RESET);
        }
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// Whether the terminal is in raw mode.
pub fn is_raw() -> bool {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}
