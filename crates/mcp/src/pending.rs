//! Requests that were received and not yet answered: how many there may be, and which ids are in use.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetMeta, ProgressToken, RequestId,
    ServerJsonRpcMessage, ServerNotification,
};
use tokio::sync::Notify;

/// Most requests of a session that are not yet answered. More than tool calls: those are refused one by one, so that a
/// cancellation is still received.
pub(crate) const MAX_PENDING: usize = 64;

/// Requests under way, each with what its transport keeps for it.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    requests: Arc<Mutex<HashMap<RequestId, Request<T>>>>,
    freed: Arc<Notify>,
}

#[derive(Debug)]
struct Request<T> {
    progress: Option<ProgressToken>,
    kept: T,
}

impl<T> Clone for Pending<T> {
    fn clone(&self) -> Self {
        Self { requests: Arc::clone(&self.requests), freed: Arc::clone(&self.freed) }
    }
}

/// Why a request is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// There are too many.
    Requests,
    /// Its id is that of one under way.
    DuplicateId,
}

impl<T> Pending<T> {
    pub(crate) fn new() -> Self {
        Self { requests: Arc::default(), freed: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Request<T>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request; other messages are not counted.
    pub(crate) fn add(&self, message: &ClientJsonRpcMessage, kept: T) -> Result<(), Full> {
        let ClientJsonRpcMessage::Request(request) = message else { return Ok(()) };
        let progress = request.request.get_meta().get_progress_token();
        let mut requests = self.lock();
        if requests.contains_key(&request.id) {
            return Err(Full::DuplicateId);
        }
        if requests.len() >= MAX_PENDING {
            return Err(Full::Requests);
        }
        requests.insert(request.id.clone(), Request { progress, kept });
        Ok(())
    }

    /// Waits until a request can be registered.
    pub(crate) async fn free(&self) {
        loop {
            let freed = self.freed.notified();
            if self.lock().len() < MAX_PENDING {
                return;
            }
            freed.await;
        }
    }

    /// Forgets a request, because it was answered or will not be.
    pub(crate) fn remove(&self, id: &RequestId) -> Option<T> {
        let removed = self.lock().remove(id).map(|request| request.kept);
        self.freed.notify_waiters();
        removed
    }

    /// Forgets the request that a notification cancels: it gets no answer.
    pub(crate) fn cancel(&self, message: &ClientJsonRpcMessage) {
        if let ClientJsonRpcMessage::Notification(notification) = message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
        {
            self.remove(id);
        }
    }
}

impl<T: Clone> Pending<T> {
    /// What is kept for the request that an outgoing message belongs to. Answered requests are forgotten.
    pub(crate) fn take(&self, message: &ServerJsonRpcMessage) -> Option<T> {
        match message {
            ServerJsonRpcMessage::Response(response) => self.remove(&response.id),
            ServerJsonRpcMessage::Error(error) => self.remove(error.id.as_ref()?),
            ServerJsonRpcMessage::Notification(notification) => {
                let ServerNotification::ProgressNotification(progress) = &notification.notification
                else {
                    return None;
                };
                let token = Some(&progress.params.progress_token);
                let requests = self.lock();
                let mut all = requests.values();
                all.find(|known| known.progress.as_ref() == token).map(|known| known.kept.clone())
            }
            ServerJsonRpcMessage::Request(_) => None,
        }
    }
}

impl<T> Pending<T> {
    /// Forgets all requests.
    pub(crate) fn clear(&self) {
        self.lock().clear();
        self.freed.notify_waiters();
    }
}
