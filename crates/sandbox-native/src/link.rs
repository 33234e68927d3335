//! The caller's end of a socket to the spawner or to a PID 1: sends numbered requests and dispatches their replies.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc,
    task::JoinHandle,
};

use crate::{diagnostics::LogTail, sys, wire};

/// A message that may answer a request.
pub(crate) trait Numbered: DeserializeOwned + Send + 'static {
    /// The number of the request it answers; `None` for an unsolicited message.
    fn number(&self) -> Option<u32>;

    /// Why the other side stops by its own decision.
    fn stop_reason(&self) -> Option<&str> {
        None
    }

    /// The text of an unsolicited diagnostic message.
    fn diagnostic(&self) -> Option<&str> {
        None
    }
}

/// How long a message that nobody waits for is tried to be sent.
const SEND_LATER: Duration = Duration::from_secs(30);

/// A reply with the descriptors it carried.
pub(crate) type Arrival<M> = (M, Vec<OwnedFd>);

/// Where replies are delivered, by request number; `None` once no more can arrive.
type Waiting<M> = Mutex<Option<HashMap<u32, mpsc::UnboundedSender<Arrival<M>>>>>;

/// One end of a socket, shared by any number of concurrent requests.
pub(crate) struct Link<M: Numbered> {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Waiting<M>>,
    next: AtomicU32,
    /// How many messages have arrived.
    arrived: Arc<AtomicU64>,
    /// What the other side reported about itself.
    log: LogTail,
    /// Why it has stopped, if it said so.
    stopped: Arc<OnceLock<String>>,
    reader: JoinHandle<()>,
}

impl<M: Numbered> Link<M> {
    /// Takes over a socket.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let socket = Arc::new(sys::watch(socket)?);
        let waiting: Arc<Waiting<M>> = Arc::new(Mutex::new(Some(HashMap::new())));
        let log = LogTail::default();
        let stopped = Arc::new(OnceLock::new());
        let arrived = Arc::new(AtomicU64::new(0));
        let noted = (log.clone(), Arc::clone(&stopped), Arc::clone(&arrived));
        let reader = tokio::spawn(read_all(Arc::clone(&socket), Arc::clone(&waiting), noted));
        Ok(Self { socket, waiting, next: AtomicU32::new(1), arrived, log, stopped, reader })
    }

    /// How many messages have arrived, whoever waited for them.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// What the other side reported about itself.
    pub(crate) fn log(&self) -> &LogTail {
        &self.log
    }

    /// Why the other side has stopped, if it did so by its own decision.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Registers a new request.
    pub(crate) fn call(&self) -> Call<'_, M> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, replies) = mpsc::unbounded_channel();
        // Once the reader has ended the sender is dropped, and `reply` returns `None` at once.
        if let Some(waiting) = lock(&self.waiting).as_mut() {
            waiting.insert(id, sender);
        }
        Call { id, replies, link: self }
    }

    /// Sends a message.
    pub(crate) async fn send<T: Serialize>(
        &self,
        message: &T,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.socket
            .async_io(Interest::WRITABLE, |socket| wire::send(socket.as_fd(), message, fds))
            .await
    }

    /// Sends a message without waiting: at once, or as soon as the socket takes it, as long as the other side reads at all.
    pub(crate) fn send_later<T: Serialize + Send + Sync + 'static>(&self, message: T) {
        match wire::send(self.socket.get_ref().as_fd(), &message, &[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return,
        }
        let socket = Arc::clone(&self.socket);
        let send = async move {
            let sent = socket
                .async_io(Interest::WRITABLE, |socket| wire::send(socket.as_fd(), &message, &[]));
            // The socket must not stay open much longer than its link.
            let _ = tokio::time::timeout(SEND_LATER, sent).await;
        };
        // Without one the program ends, and with it everything that it could ask for.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(send);
        }
    }
}

impl<M: Numbered> Drop for Link<M> {
    fn drop(&mut self) {
        // The reader holds the socket open; the other side acts on its closing.
        self.reader.abort();
    }
}

/// A request in progress.
pub(crate) struct Call<'a, M: Numbered> {
    /// Its number.
    pub(crate) id: u32,
    replies: mpsc::UnboundedReceiver<Arrival<M>>,
    link: &'a Link<M>,
}

impl<M: Numbered> Call<'_, M> {
    /// Waits for the next reply; `None` when the other side is gone.
    pub(crate) async fn reply(&mut self) -> Option<Arrival<M>> {
        self.replies.recv().await
    }
}

impl<M: Numbered> Drop for Call<'_, M> {
    fn drop(&mut self) {
        if let Some(waiting) = lock(&self.link.waiting).as_mut() {
            waiting.remove(&self.id);
        }
    }
}

async fn read_all<M: Numbered>(
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Waiting<M>>,
    (log, stopped, arrived): (LogTail, Arc<OnceLock<String>>, Arc<AtomicU64>),
) {
    loop {
        let received =
            socket.async_io(Interest::READABLE, |socket| wire::receive::<M>(socket.as_fd())).await;
        let Ok(Some((message, fds))) = received else { break };
        arrived.fetch_add(1, Ordering::Relaxed);
        if let Some(text) = message.diagnostic() {
            log.push(text);
            tracing::warn!("PID 1: {text}");
        }
        if let Some(why) = message.stop_reason() {
            let _ = stopped.set(why.to_owned());
        }
        let sender = message.number().and_then(|id| lock(&waiting).as_ref()?.get(&id).cloned());
        if let Some(sender) = sender {
            let _ = sender.send((message, fds));
        }
    }
    // Pending calls see the end of their channel.
    lock(&waiting).take();
    let _ = rustix::net::shutdown(socket.get_ref(), rustix::net::Shutdown::Both);
}

/// Locks, ignoring poison: nothing here panics while holding the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, serde::Serialize)]
    struct Message(u32);

    impl Numbered for Message {
        fn number(&self) -> Option<u32> {
            None
        }
    }

    /// What nobody waits for, such as the order to destroy a sandbox, arrives although the socket was full.
    #[tokio::test]
    async fn a_full_socket_loses_no_message() {
        let (ours, theirs) = wire::pair().unwrap();
        let link = Link::<Message>::new(ours).unwrap();
        let full = loop {
            match wire::send(link.socket.get_ref().as_fd(), &Message(0), &[]) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        link.send_later(Message(7));
        let read = tokio::task::spawn_blocking(move || {
            while let Ok(Some((Message(number), _))) = wire::receive::<Message>(theirs.as_fd()) {
                if number != 0 {
                    return number;
                }
            }
            0
        });
        let read = tokio::time::timeout(Duration::from_secs(20), read);
        assert_eq!(read.await.unwrap().unwrap(), 7);
    }
}
