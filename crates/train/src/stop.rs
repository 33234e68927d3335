//! Ctrl-C and SIGTERM: the first stops the run where it can go on, the second ends us at once.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering},
};

use agent::{Stopper, Watch};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::note;

/// The signal that came, if one did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signalled(Arc<AtomicI32>);

impl Signalled {
    /// Its number; that of SIGTERM where none came.
    pub(crate) fn number(&self) -> i32 {
        match self.0.load(Ordering::Relaxed) {
            0 => SignalKind::terminate().as_raw_value(),
            number => number,
        }
    }
}

/// Listens, within a runtime.
pub(crate) fn listen() -> std::io::Result<(Watch, Signalled)> {
    let (stopper, watch): (Stopper, Watch) = agent::stopper();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let signalled = Signalled::default();
    let seen = signalled.clone();
    tokio::spawn(async move {
        loop {
            let number = tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
            };
            if seen.0.swap(number, Ordering::Relaxed) != 0 {
                std::process::exit(128 + number);
            }
            note("stopping where the run can go on, which may take a step; once more ends at once");
            stopper.stop();
        }
    });
    Ok((watch, signalled))
}
