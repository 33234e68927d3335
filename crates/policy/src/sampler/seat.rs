//! Who sits where: each slot of the cache remembers one conversation and may be writing a reply of it. Decides which slot
//! a question gets and what becomes of a new token. Refuses to know tensors and the device.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tokio::sync::oneshot;

use super::{Ask, Choice, Flow, SampleEnd, SampleError, Sampled, Until};

/// Where an answer goes. Nobody waits any more where it is closed.
pub(super) type To = oneshot::Sender<Result<Sampled, SampleError>>;

/// A slot of the cache.
#[derive(Default)]
pub(super) struct Seat {
    /// Whose it is; none: nobody's.
    pub(super) conversation: Option<u64>,
    /// What it holds: exactly the tokens that were evaluated.
    pub(super) tokens: Vec<u32>,
    /// When it was last used.
    pub(super) used: u64,
    /// The reply that is being written.
    pub(super) running: Option<Running>,
}

/// A reply that is being written.
pub(super) struct Running {
    to: To,
    /// Tokens to evaluate: the rest of the question, then always the one that was chosen last.
    pub(super) pending: VecDeque<u32>,
    reply: Sampled,
    most: usize,
    pub(super) choice: Choice,
    ends: Vec<u32>,
    until: Option<Until>,
}

/// Which slot a question gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This one.
    Seat(usize),
    /// None as long as others are being answered.
    Later,
}

/// Finds a slot: the conversation's own, else nobody's, else the one that was idle longest.
pub(super) fn place(conversation: u64, seats: &[Seat]) -> Place {
    if let Some(own) = seats.iter().position(|seat| seat.conversation == Some(conversation)) {
        return match seats.get(own).is_some_and(|seat| seat.running.is_none()) {
            true => Place::Seat(own),
            false => Place::Later,
        };
    }
    let idle = seats.iter().enumerate().filter(|(_, seat)| seat.running.is_none());
    let best = idle.min_by_key(|(_, seat)| (seat.conversation.is_some(), seat.used));
    best.map_or(Place::Later, |(index, _)| Place::Seat(index))
}

impl Seat {
    /// Takes a question in, and returns how many of its tokens must be evaluated: those beyond what is remembered, and
    /// at least the last, whose scores are wanted. A context of so many tokens bounds the reply. What the slot holds of
    /// another conversation counts only where text is `shared`.
    pub(super) fn begin(&mut self, ask: Ask, to: To, context: usize, shared: bool) -> usize {
        let common = self
            .tokens
            .iter()
            .zip(ask.tokens.iter())
            .take_while(|(kept, asked)| kept == asked)
            .count();
        let common = match shared || self.conversation == Some(ask.conversation) {
            true => common.min(ask.tokens.len().saturating_sub(1)),
            false => 0,
        };
        self.tokens.truncate(common);
        self.conversation = Some(ask.conversation);
        let pending: VecDeque<u32> = ask.tokens.iter().skip(common).copied().collect();
        let read = pending.len();
        self.running = Some(Running {
            to,
            pending,
            reply: Sampled { tokens: Vec::new(), logprobs: Vec::new(), end: SampleEnd::Length },
            most: ask.most.min(context.saturating_sub(ask.tokens.len())),
            choice: ask.choice,
            ends: ask.ends,
            until: ask.until,
        });
        read
    }

    /// Frees the slot of somebody who no longer waits. What was evaluated for them stays remembered.
    pub(super) fn leave_if_unwanted(&mut self) {
        if self.running.as_ref().is_some_and(|running| running.to.is_closed()) {
            self.running = None;
        }
    }

    /// Makes the slot nobody's. What it holds may still serve others.
    pub(super) fn forget(&mut self) {
        self.conversation = None;
    }

    /// Everything must be evaluated again: the weights are others.
    pub(super) fn start_over(&mut self) {
        let held = std::mem::take(&mut self.tokens);
        if let Some(running) = &mut self.running {
            for token in held.into_iter().rev() {
                running.pending.push_front(token);
            }
        }
    }

    /// What it holds, and what waits for its evaluation.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        let pending = self.running.iter().flat_map(|running| &running.pending);
        self.tokens.iter().chain(pending).copied()
    }

    /// One of these.
    pub(super) fn token(&self, at: usize) -> Option<u32> {
        let pending = self.running.as_ref().map(|running| &running.pending);
        self.tokens.get(at).or_else(|| pending?.get(at.checked_sub(self.tokens.len())?)).copied()
    }

    /// Tokens that wait for their evaluation.
    pub(super) fn pending(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.pending.len())
    }

    /// The next so many tokens to evaluate, which the slot will then hold.
    pub(super) fn feed(&mut self, most: usize) -> Vec<u32> {
        let Some(running) = &mut self.running else { return Vec::new() };
        let fed: Vec<u32> = running.pending.drain(..most.min(running.pending.len())).collect();
        self.tokens.extend(&fed);
        fed
    }

    /// A token was chosen after the last one that was fed. Answers where that ends the reply.
    pub(super) fn chosen(&mut self, token: u32, logprob: f32) {
        let Some(mut running) = self.running.take() else { return };
        match running.add(token, logprob) {
            Ok(None) => self.running = Some(running),
            Ok(Some(end)) => {
                let reply = Sampled { end, ..running.reply };
                self.answer(running.to, Ok(reply));
            }
            Err(error) => self.answer(running.to, Err(error)),
        }
    }

    /// The reply cannot be written. Nothing the slot holds can be relied upon any more.
    pub(super) fn fail(&mut self, error: SampleError) {
        self.tokens.clear();
        if let Some(running) = self.running.take() {
            self.answer(running.to, Err(error));
        }
    }

    fn answer(&mut self, to: To, answer: Result<Sampled, SampleError>) {
        // Whoever left meanwhile does not want it.
        let _ = to.send(answer);
    }
}

impl Running {
    fn add(&mut self, token: u32, logprob: f32) -> Result<Option<SampleEnd>, SampleError> {
        if !logprob.is_finite() {
            return Err(SampleError::NotFinite);
        }
        self.reply.tokens.push(token);
        self.reply.logprobs.push(logprob);
        let heard = match &mut self.until {
            Some(until) => catch_unwind(AssertUnwindSafe(|| until(token)))
                .map_err(|_| SampleError::Panicked)?,
            None => Flow::Continue,
        };
        if self.ends.contains(&token) {
            return Ok(Some(SampleEnd::Token));
        }
        if heard == Flow::Stop {
            return Ok(Some(SampleEnd::Until));
        }
        if self.reply.tokens.len() >= self.most {
            return Ok(Some(SampleEnd::Length));
        }
        self.pending.push_back(token);
        Ok(None)
    }
}

#[cfg(test)]
#[path = "seat_tests.rs"]
mod tests;
