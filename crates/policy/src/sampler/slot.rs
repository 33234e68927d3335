//! The slots of the cache: each caches one conversation and may have a response in progress. Assigns requests to slots,
//! and applies the stop conditions to new tokens. Knows no tensors and no device.

use std::{
    collections::VecDeque,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use sampling::{
    Flow, OnToken, SampleEnd, SampleError, SampleRequest, Sampled, SamplingParams, Until,
};
use tokio::sync::oneshot;

/// The channel of a response; closed where the request was cancelled.
pub(super) type ReplyTo = oneshot::Sender<Result<Sampled, SampleError>>;

/// A slot of the cache.
#[derive(Default)]
pub(super) struct Slot {
    /// The conversation that owns it; `None` where it is free.
    pub(super) conversation: Option<u64>,
    /// The tokens in the cache: exactly those that were evaluated.
    pub(super) tokens: Vec<u32>,
    /// The logical time of its last use.
    pub(super) last_used: u64,
    /// The logical time at which its last response began.
    pub(super) begun: u64,
    /// The response in progress.
    pub(super) running: Option<Running>,
    /// Evaluated prompt tokens that are not in the statistics yet.
    evaluated: u64,
}

/// A response in progress.
pub(super) struct Running {
    to: ReplyTo,
    /// Tokens to evaluate: the rest of the prompt, then always the token sampled last.
    pub(super) pending: VecDeque<u32>,
    /// The positions of the prompt that were neither evaluated nor copied before: from the first of these to its end.
    unread: Range<usize>,
    response: Sampled,
    max_tokens: usize,
    pub(super) params: SamplingParams,
    stop_tokens: Vec<u32>,
    until: Option<Until>,
    on_token: Option<OnToken>,
}

/// The slot of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    /// This slot.
    Slot(usize),
    /// None until another response ends.
    Wait,
}

/// Finds a slot: that of the conversation, else a free one, else the least recently used idle one.
pub(super) fn assign(conversation: u64, slots: &[Slot]) -> Assignment {
    if let Some(own) = slots.iter().position(|slot| slot.conversation == Some(conversation)) {
        return match slots.get(own).is_some_and(|slot| slot.running.is_none()) {
            true => Assignment::Slot(own),
            false => Assignment::Wait,
        };
    }
    let idle = slots.iter().enumerate().filter(|(_, slot)| slot.running.is_none());
    let best = idle.min_by_key(|(_, slot)| (slot.conversation.is_some(), slot.last_used));
    best.map_or(Assignment::Wait, |(index, _)| Assignment::Slot(index))
}

impl Slot {
    /// Starts a request, and returns how many of its tokens have to be evaluated: those beyond the cached prefix, and at
    /// least the last one, whose logits are needed. The `context` limits the response. The cache of another
    /// conversation is reused only where prefixes are `shared`.
    pub(super) fn begin(
        &mut self,
        request: SampleRequest,
        to: ReplyTo,
        context: usize,
        shared: bool,
    ) -> usize {
        let common = self
            .tokens
            .iter()
            .zip(request.tokens.iter())
            .take_while(|(cached, requested)| cached == requested)
            .count();
        let common = match shared || self.conversation == Some(request.conversation) {
            true => common.min(request.tokens.len().saturating_sub(1)),
            false => 0,
        };
        self.tokens.truncate(common);
        self.conversation = Some(request.conversation);
        let pending: VecDeque<u32> = request.tokens.iter().skip(common).copied().collect();
        let evaluated = pending.len();
        self.running = Some(Running {
            to,
            pending,
            unread: common..request.tokens.len(),
            response: Sampled {
                tokens: Vec::new(),
                logprobs: Vec::new(),
                versions: Vec::new(),
                end: SampleEnd::Length,
            },
            max_tokens: request.max_tokens.min(context.saturating_sub(request.tokens.len())),
            params: request.params,
            stop_tokens: request.stop_tokens,
            until: request.until,
            on_token: None,
        });
        evaluated
    }

    /// Reports the tokens of the response in progress as they are sampled.
    pub(super) fn report_to(&mut self, on_token: Option<OnToken>) {
        if let Some(running) = &mut self.running {
            running.on_token = on_token;
        }
    }

    /// Ends a response whose request was cancelled. Its tokens stay cached.
    pub(super) fn cancel_if_dropped(&mut self) {
        if self.running.as_ref().is_some_and(|running| running.to.is_closed()) {
            self.running = None;
        }
    }

    /// Frees the slot. Its tokens may still serve as a shared prefix.
    pub(super) fn release(&mut self) {
        self.conversation = None;
    }

    /// Drops the cache, as after a change of weights: all tokens of a response in progress have to be evaluated again.
    pub(super) fn invalidate(&mut self) {
        let cached = std::mem::take(&mut self.tokens);
        let Some(running) = &mut self.running else { return };
        for token in cached.into_iter().rev() {
            running.pending.push_front(token);
        }
    }

    /// The cached and the pending tokens.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        let pending = self.running.iter().flat_map(|running| &running.pending);
        self.tokens.iter().chain(pending).copied()
    }

    /// The cached or pending token at an index.
    pub(super) fn token(&self, at: usize) -> Option<u32> {
        let pending = self.running.as_ref().map(|running| &running.pending);
        self.tokens.get(at).or_else(|| pending?.get(at.checked_sub(self.tokens.len())?)).copied()
    }

    /// The number of pending tokens.
    pub(super) fn pending(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.pending.len())
    }

    /// Moves up to `limit` pending tokens to the cache, and returns them for evaluation.
    pub(super) fn take_pending(&mut self, limit: usize) -> Vec<u32> {
        let taken = self.move_pending(limit);
        let end = self.tokens.len();
        if let Some(running) = &mut self.running {
            // What was evicted and is evaluated again is not counted twice.
            let read = end.min(running.unread.end).saturating_sub(running.unread.start);
            running.unread.start += read;
            self.evaluated += read as u64;
        }
        taken
    }

    /// Moves up to `limit` pending tokens to the cache, which are copied there instead of evaluated.
    pub(super) fn skip_pending(&mut self, limit: usize) {
        self.move_pending(limit);
        let end = self.tokens.len();
        if let Some(running) = &mut self.running {
            running.unread.start = end.clamp(running.unread.start, running.unread.end);
        }
    }

    /// The prompt tokens that were evaluated since the last call, each once however often it is evaluated.
    pub(super) fn take_evaluated(&mut self) -> u64 {
        std::mem::take(&mut self.evaluated)
    }

    fn move_pending(&mut self, limit: usize) -> Vec<u32> {
        let Some(running) = &mut self.running else { return Vec::new() };
        let taken: Vec<u32> = running.pending.drain(..limit.min(running.pending.len())).collect();
        self.tokens.extend(&taken);
        taken
    }

    /// Appends a token, sampled with weights of this version, to the response, and sends it where that ends it.
    pub(super) fn push_token(&mut self, token: u32, logprob: f32, version: u32) {
        let Some(mut running) = self.running.take() else { return };
        match running.add(token, logprob, version) {
            Ok(None) => self.running = Some(running),
            Ok(Some(end)) => {
                let response = Sampled { end, ..running.response };
                self.send(running.to, Ok(response));
            }
            Err(error) => self.send(running.to, Err(error)),
        }
    }

    /// Fails the response in progress. The cache is not reliable any more.
    pub(super) fn fail(&mut self, error: SampleError) {
        self.tokens.clear();
        if let Some(running) = self.running.take() {
            self.send(running.to, Err(error));
        }
    }

    fn send(&mut self, to: ReplyTo, result: Result<Sampled, SampleError>) {
        // A cancelled request has no receiver.
        let _ = to.send(result);
    }
}

impl Running {
    fn add(
        &mut self,
        token: u32,
        logprob: f32,
        version: u32,
    ) -> Result<Option<SampleEnd>, SampleError> {
        if !logprob.is_finite() {
            return Err(SampleError::NotFinite);
        }
        self.response.tokens.push(token);
        self.response.logprobs.push(logprob);
        self.response.versions.push(version);
        if let Some(on_token) = &mut self.on_token {
            catch_unwind(AssertUnwindSafe(|| on_token(token, logprob)))
                .map_err(|_| SampleError::Panicked)?;
        }
        let flow = match &mut self.until {
            Some(until) => catch_unwind(AssertUnwindSafe(|| until(token)))
                .map_err(|_| SampleError::Panicked)?,
            None => Flow::Continue,
        };
        if self.stop_tokens.contains(&token) {
            return Ok(Some(SampleEnd::Token));
        }
        if flow == Flow::Stop {
            return Ok(Some(SampleEnd::Until));
        }
        if self.response.tokens.len() >= self.max_tokens {
            return Ok(Some(SampleEnd::Length));
        }
        self.pending.push_back(token);
        Ok(None)
    }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
