//! Ctrl-C and SIGTERM: the first asks the running command to clean up, the second ends the program at once.
//!
//! SIGHUP keeps its default action, so that `nohup` works.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{Exit, terminal};

/// Reports the first signal to everyone who waits for it.
#[derive(Clone, Debug)]
pub struct Signals {
    first: watch::Receiver<Option<i32>>,
}

impl Signals {
    /// Starts listening. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn listen() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (sender, first) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let number = tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
                    _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
                };
                if sender.borrow().is_some() {
                    terminal::restore();
                    std::process::exit(i32::from(Exit::Cancelled(number).code()));
                }
                let _ = sender.send(Some(number));
            }
        });
        Ok(Self { first })
    }

    /// Waits for the first signal; returns how the program should end.
    pub async fn cancelled(&mut self) -> Exit {
        match self.first.wait_for(Option::is_some).await.map(|number| *number) {
            Ok(Some(number)) => Exit::Cancelled(number),
            _ => std::future::pending().await,
        }
    }

    /// How the program should end if it was stopped: by the signal that came, or by SIGTERM if none did.
    pub fn stopped(&self) -> Exit {
        let terminate = SignalKind::terminate().as_raw_value();
        Exit::Cancelled(self.first.borrow().unwrap_or(terminate))
    }
}
