//! The open connections: a bounded number, of which the one that has kept the server waiting longest makes room for a new one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::phase::{Connection, Phase};

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<Open>,
    most: usize,
}

#[derive(Debug, Default)]
struct Open {
    connections: HashMap<u64, Arc<Connection>>,
    next: u64,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), most: most.max(1) })
    }

    /// Makes room for a connection, by evicting another if necessary; `None` if all are being answered.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.connections.len() >= self.most && !open.evict() {
            return None;
        }
        let (id, connection) = (open.next, Arc::new(Connection::new()));
        open.next += 1;
        open.connections.insert(id, connection.clone());
        Some(Place { connections: self.clone(), connection, id })
    }

    /// Evicts a connection that is not being answered, if there is one.
    pub(crate) fn evict(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).evict();
    }
}

impl Open {
    /// Whether one was evicted: the one that has been silent or dawdling with a head for longest, else with a body.
    fn evict(&mut self) -> bool {
        let rank = |connection: &Connection| match connection.phase() {
            Phase::Waiting(since) => Some((0, since)),
            Phase::Receiving(since) => Some((1, since)),
            Phase::Answering => None,
        };
        let ranked =
            self.connections.iter().filter_map(|(id, connection)| Some((rank(connection)?, *id)));
        let Some((_, id)) = ranked.min() else { return false };
        if let Some(connection) = self.connections.remove(&id) {
            connection.evicted.notify_one();
        }
        true
    }
}

/// The place of a connection, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    pub(crate) connection: Arc<Connection>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.connections.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tokio::time::{Duration, advance};

    use super::*;
    use crate::phase::Exchange;

    #[tokio::test(start_paused = true)]
    async fn the_longest_waiting_makes_room() {
        let connections = Connections::new(3);
        let mut places = Vec::new();
        for _ in 0..3 {
            places.push(connections.admit().unwrap());
            advance(Duration::from_secs(1)).await;
        }
        let is_open =
            |place: &Place| connections.open.lock().unwrap().connections.contains_key(&place.id);
        // The first is being answered, the second sends a body.
        let (answer, _) = Exchange::begin(&places[0].connection, Body::empty());
        let (upload, mut body) = Exchange::begin(&places[1].connection, Body::from("body"));
        for (evicted, left) in [(2, [true, true, false]), (1, [true, false, false])] {
            let place = connections.admit().unwrap();
            places[evicted].connection.evicted.notified().await;
            assert_eq!([0, 1, 2].map(|at| is_open(&places[at])), left);
            // The new one is being answered as well.
            std::mem::forget(Exchange::begin(&place.connection, Body::empty()));
            places.push(place);
        }
        assert!(connections.admit().is_none(), "all are being answered");
        // The end of an evicted connection's request changes nothing for the others.
        let _ = axum::body::HttpBody::poll_frame(
            std::pin::Pin::new(&mut body),
            &mut std::task::Context::from_waker(std::task::Waker::noop()),
        );
        drop(upload);
        assert!(connections.admit().is_none());
        drop(answer.respond(Body::empty()));
        assert!(connections.admit().is_some());
        drop(places);
    }

    #[tokio::test]
    async fn phases_follow_requests_and_responses() {
        let connection = Arc::new(Connection::new());
        let is =
            |expected: fn(Phase) -> bool| assert!(expected(connection.phase()), "{connection:?}");
        is(|phase| matches!(phase, Phase::Waiting(_)));
        let (exchange, body) = Exchange::begin(&connection, Body::from("text"));
        is(|phase| matches!(phase, Phase::Receiving(_)));
        let body = axum::body::to_bytes(body, 10).await.unwrap();
        assert_eq!(body, "text");
        is(|phase| phase == Phase::Answering);
        let response = exchange.respond(Body::from("answer"));
        is(|phase| phase == Phase::Answering);
        assert_eq!(axum::body::to_bytes(response, 10).await.unwrap(), "answer");
        is(|phase| matches!(phase, Phase::Waiting(_)));
        // Answered without reading the body, which is dropped later.
        let (exchange, unread) = Exchange::begin(&connection, Body::from("text"));
        drop(exchange.respond(Body::empty()));
        drop(unread);
        is(|phase| matches!(phase, Phase::Waiting(_)));
        // A handler that is cancelled.
        drop(Exchange::begin(&connection, Body::from("text")));
        is(|phase| matches!(phase, Phase::Waiting(_)));
    }
}
