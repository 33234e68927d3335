//! [`Exchange`]: a session whose messages come one by one, each with its own way back, as requests of HTTP do.

use std::{convert::Infallible, sync::Arc};

use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    service::serve_server_with_ct,
    transport::Transport,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    SandboxSource, Session,
    handler::Handler,
    pending::{Full, Pending},
};

/// Messages on their way to the session's service.
const QUEUE: usize = 16;
/// Messages that wait for the client of one request: progress, and the answer.
const ANSWERS: usize = 4;

/// The way into a session that runs in its own task.
#[derive(Debug)]
pub struct Exchange {
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    pending: Pending<mpsc::Sender<ServerJsonRpcMessage>>,
    ended: CancellationToken,
}

/// Why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
    /// The id is that of a request under way.
    #[error("a request with this id is under way")]
    DuplicateId,
    /// There are too many requests.
    #[error("too many requests of this session are under way")]
    TooMany,
}

impl Exchange {
    /// Starts a session. It ends when `stop` is cancelled or the client's first request fails. `ended` runs once the sandbox
    /// is gone.
    pub fn start<P: SandboxSource>(
        session: Session<P>,
        stop: CancellationToken,
        ended: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (messages, receiver) = mpsc::channel(QUEUE);
        let pending = Pending::new();
        let transport = Channel { messages: receiver, pending: pending.clone() };
        let (stopped, requests) = (stop.clone(), pending.clone());
        tokio::spawn(async move {
            let session = Arc::new(session);
            let handler = Handler(Arc::clone(&session));
            let serving = async {
                match serve_server_with_ct(handler, transport, stopped.clone()).await {
                    Ok(running) => drop(running.waiting().await),
                    Err(error) => tracing::debug!("a session did not start: {error}"),
                }
            };
            tokio::select! {
                () = serving => {}
                () = stopped.cancelled() => {}
            }
            stopped.cancel();
            // Clients that wait for an answer get none.
            requests.clear();
            session.end().await;
            ended();
        });
        Self { messages, pending, ended: stop }
    }

    /// Passes a request on. Its progress and its answer come from the receiver, which ends without an answer if the request is
    /// cancelled or the session ends.
    ///
    /// # Errors
    /// If it is not accepted.
    pub async fn request(
        &self,
        message: ClientJsonRpcMessage,
    ) -> Result<mpsc::Receiver<ServerJsonRpcMessage>, Refusal> {
        let (answers, receiver) = mpsc::channel(ANSWERS);
        let place = self.place().await?;
        // Without a wait from here on: a client that disconnects leaves no request behind that was not passed on.
        self.pending.add(&message, answers).map_err(|full| match full {
            Full::DuplicateId => Refusal::DuplicateId,
            Full::Requests => Refusal::TooMany,
        })?;
        place.send(message);
        if self.ended.is_cancelled() {
            // It may have been registered after the others were forgotten.
            self.pending.clear();
            return Err(Refusal::Ended);
        }
        Ok(receiver)
    }

    /// Passes a notification or a response on.
    ///
    /// # Errors
    /// If the session has ended.
    pub async fn notify(&self, message: ClientJsonRpcMessage) -> Result<(), Refusal> {
        let place = self.place().await?;
        self.pending.cancel(&message);
        place.send(message);
        Ok(())
    }

    async fn place(&self) -> Result<mpsc::Permit<'_, ClientJsonRpcMessage>, Refusal> {
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(Refusal::Ended),
            place = self.messages.reserve() => place.map_err(|_| Refusal::Ended),
        }
    }
}

/// The service's end of an exchange.
struct Channel {
    messages: mpsc::Receiver<ClientJsonRpcMessage>,
    pending: Pending<mpsc::Sender<ServerJsonRpcMessage>>,
}

impl Transport<RoleServer> for Channel {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let waiting = self.pending.take(&message);
        async move {
            let Some(waiting) = waiting else { return Ok(()) };
            match &message {
                // Progress that the client does not read is not kept.
                ServerJsonRpcMessage::Notification(_) => drop(waiting.try_send(message)),
                _ => drop(waiting.send(message).await),
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.messages.close();
        Ok(())
    }
}
