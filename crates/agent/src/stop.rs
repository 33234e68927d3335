//! A way to stop episodes from outside: one side stops, any number of others notice.

use tokio::sync::watch;

/// Stops what watches it.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Notices when it is time to stop.
#[derive(Clone, Debug)]
pub struct Watch(watch::Receiver<bool>);

/// A pair of both.
pub fn stopper() -> (Stopper, Watch) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Watch(receiver))
}

impl Stopper {
    /// Stops everybody who watches, now and later.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Watch {
    /// Waits until it is time to stop: for ever, if nobody can say so any more.
    pub async fn stopped(&mut self) {
        if self.0.wait_for(|stopped| *stopped).await.is_err() {
            std::future::pending().await
        }
    }

    /// Whether it is time to stop.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }
}
