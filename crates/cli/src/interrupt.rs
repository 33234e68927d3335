//! Ctrl-C and SIGTERM: the first asks the running command to clean up, the second ends us at once.
//!
//! Hanging up is left to the kernel: whoever detached us with `nohup` meant it.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{exit::Exit, terminal};

/// Tells when the user wants us to stop.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts {
    first: watch::Receiver<Option<i32>>,
}

impl Interrupts {
    /// Starts listening, within a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut ctrl_c = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (sender, first) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let number = tokio::select! {
                    _ = ctrl_c.recv() => SignalKind::interrupt().as_raw_value(),
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

    /// Waits for the first signal; answers how to end.
    pub(crate) async fn cancelled(&mut self) -> Exit {
        match self.first.wait_for(Option::is_some).await.map(|number| *number) {
            Ok(Some(number)) => Exit::Cancelled(number),
            _ => std::future::pending().await,
        }
    }
}
