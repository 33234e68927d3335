//! The thread that owns llama.cpp's context: prompts come in, pieces of responses go out.
//!
//! Every step evaluates one batch: one token of each running response, and as much of new prompts as fits. Knows tokens;
//! prompts are rendered elsewhere.

use std::{collections::VecDeque, sync::mpsc::Receiver};

use llama_cpp_2::{
    context::LlamaContext, llama_batch::LlamaBatch, model::LlamaModel, token::LlamaToken,
};
use model::Sampling;
use sampling::SamplingParams;
use tokio::sync::mpsc::UnboundedSender;
use trajectory::{Stop, Usage};

use crate::{
    decode::{Decoded, TextDecoder},
    grammar::{ConstrainedSampler, Constraint},
    sampler,
    slots::{self, Fingerprint, SlotChoice, SlotView},
};

/// Tokens per batch.
pub(crate) const BATCH: u32 = 512;

/// Prompt tokens per batch while responses are generated, so that a long prompt does not delay their next token.
const PROMPT_TOKENS_BESIDE_RESPONSES: usize = 128;

/// A requested response.
pub(crate) struct Job {
    /// The prompt; never empty.
    pub(crate) prompt: Vec<LlamaToken>,
    /// Identifies the conversation in later turns.
    pub(crate) fingerprint: Fingerprint,
    /// Maximum output tokens. With the prompt they fit into the context.
    pub(crate) max_tokens: u64,
    /// What is generated.
    pub(crate) wanted: Wanted,
    /// Receives the response. Closed when the request was dropped.
    pub(crate) output: UnboundedSender<Output>,
}

/// What a job generates.
pub(crate) enum Wanted {
    /// Text.
    Text {
        /// How tokens are sampled.
        sampling: Box<Sampling>,
        /// What the response is constrained to, if anything.
        constraint: Option<Constraint>,
    },
    /// Tokens with their log-probabilities.
    Tokens {
        /// How tokens are sampled.
        params: SamplingParams,
        /// The tokens that end the response.
        stop: Vec<u32>,
    },
}

/// A part of a response.
#[derive(Debug)]
pub(crate) enum Output {
    /// The next piece of text.
    Text(String),
    /// The next token and its log-probability.
    Token(u32, f32),
    /// The response is complete.
    Done(Stop, Usage),
    /// llama.cpp failed.
    Failed(String),
}

/// The state of the thread.
pub(crate) struct Engine<'m> {
    model: &'m LlamaModel,
    context: LlamaContext<'m>,
    batch: LlamaBatch<'static>,
    slots: Vec<Slot>,
    waiting: VecDeque<Job>,
    clock: u64,
}

/// A part of llama.cpp's cache, for one conversation at a time.
#[derive(Default)]
struct Slot {
    /// The tokens in the cache: exactly those that were evaluated.
    tokens: Vec<LlamaToken>,
    fingerprint: Fingerprint,
    used: u64,
    running: Option<Running>,
}

struct Running {
    output: UnboundedSender<Output>,
    /// Tokens to evaluate: the rest of the prompt, then always the last sampled one.
    pending: VecDeque<LlamaToken>,
    sampler: ConstrainedSampler,
    form: Form,
    max_tokens: u64,
    usage: Usage,
}

/// The form of a response.
enum Form {
    Text(TextDecoder),
    Tokens { temperature: f64, stop: Vec<u32> },
}

/// A slot's part of a batch.
struct BatchShare {
    slot: usize,
    tokens: Vec<LlamaToken>,
    /// The batch position whose logits give the slot's next token.
    logits_at: Option<i32>,
}

impl<'m> Engine<'m> {
    /// An engine with this many sequences.
    pub(crate) fn new(model: &'m LlamaModel, context: LlamaContext<'m>, sequences: u32) -> Self {
        Self {
            model,
            context,
            batch: LlamaBatch::new(BATCH as usize, 1),
            slots: (0..sequences).map(|_| Slot::default()).collect(),
            waiting: VecDeque::new(),
            clock: 0,
        }
    }

    /// Works until every sender of jobs is dropped.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            if self.is_idle() {
                let Ok(job) = jobs.recv() else { return };
                self.waiting.push_back(job);
            }
            self.waiting.extend(jobs.try_iter());
            self.drop_cancelled();
            self.admit();
            self.step();
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| slot.running.is_none())
    }

    /// Frees the sequences of dropped requests. Their evaluated tokens stay cached.
    fn drop_cancelled(&mut self) {
        self.waiting.retain(|job| !job.output.is_closed());
        for slot in &mut self.slots {
            if slot.running.as_ref().is_some_and(|running| running.output.is_closed()) {
                slot.running = None;
            }
        }
    }

    /// Assigns free sequences to waiting jobs, in order. A job that waits for a prompt makes those behind it wait too: their
    /// prompts would be evaluated after that one.
    fn admit(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            let views: Vec<_> = self.slots.iter().map(Slot::view).collect();
            let Some(choice) = slots::choose(&job.prompt, &job.fingerprint, &views) else {
                self.waiting.push_front(job);
                return;
            };
            self.begin(job, choice);
        }
    }

    fn begin(&mut self, job: Job, choice: SlotChoice) {
        let common = self.reuse(choice);
        self.clock += 1;
        let Some(slot) = self.slots.get_mut(choice.slot) else { return };
        let (cached, new) = job.prompt.split_at(common.min(job.prompt.len()));
        slot.tokens = cached.to_vec();
        slot.fingerprint = job.fingerprint;
        slot.used = self.clock;
        let vocabulary = self.model.n_vocab();
        let (sampler, form) = match job.wanted {
            Wanted::Text { sampling, constraint } => {
                let chain = sampler::chain(&sampling, vocabulary, &job.prompt);
                let decoder = TextDecoder::new(&sampling.stop);
                (ConstrainedSampler::new(chain, constraint), Form::Text(decoder))
            }
            Wanted::Tokens { params, stop } => {
                let chain = sampler::token_chain(&params, vocabulary);
                let form = Form::Tokens { temperature: params.temperature, stop };
                (ConstrainedSampler::new(chain, None), form)
            }
        };
        slot.running = Some(Running {
            pending: new.iter().copied().collect(),
            sampler,
            form,
            max_tokens: job.max_tokens.max(1),
            usage: Usage {
                input: job.prompt.len() as u64,
                cached: common as u64,
                ..Usage::default()
            },
            output: job.output,
        });
    }

    /// Prepares the cache of a slot and returns the number of tokens it reuses.
    fn reuse(&mut self, choice: SlotChoice) -> usize {
        let slot = sequence(choice.slot);
        let copied = choice.copy_from.is_none_or(|from| {
            self.context.kv_cache_seq_cp(sequence(from), slot, None, None).is_ok()
        });
        let common = u32::try_from(choice.common).ok().filter(|common| copied && *common > 0);
        // Some architectures cannot remove a part of a sequence: they start over.
        let kept = common.filter(|_| self.context.kv_cache_seq_rm(slot, common, None).is_ok());
        if kept.is_none() {
            self.clear(choice.slot);
        }
        kept.map_or(0, |kept| kept as usize)
    }

    /// Empties a slot.
    fn clear(&mut self, slot: usize) {
        // A whole sequence can always be removed.
        let _ = self.context.kv_cache_seq_rm(sequence(slot), None, None);
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.tokens.clear();
            slot.fingerprint = Fingerprint::default();
        }
    }

    /// Evaluates one batch and samples the next token of every response in it.
    fn step(&mut self) {
        let shares = self.fill();
        if shares.is_empty() {
            return;
        }
        if let Err(error) = self.context.decode(&mut self.batch) {
            for share in shares {
                self.fail(share.slot, &error.to_string());
            }
            return;
        }
        for share in shares {
            let Some(slot) = self.slots.get_mut(share.slot) else { continue };
            slot.tokens.extend(share.tokens);
            if let (Some(at), Some(running)) = (share.logits_at, &mut slot.running) {
                let next = match running.sampler.sample(&self.context, at, self.model) {
                    Some(token) => match &running.form {
                        Form::Text(_) => running.push(token, self.model),
                        Form::Tokens { temperature, .. } => {
                            let logits = self.context.get_logits_ith(at);
                            let logprob = sampler::logprob(logits, *temperature, token);
                            running.push_token(token, logprob)
                        }
                    },
                    None => {
                        running.send(Output::Failed("no token satisfies the grammar".into()));
                        Next::Done
                    }
                };
                if next == Next::Done {
                    slot.running = None;
                }
            }
        }
    }

    /// Assembles a batch.
    fn fill(&mut self) -> Vec<BatchShare> {
        self.batch.clear();
        let writing = |slot: &Slot| slot.running.as_ref().map(|running| running.usage.output > 0);
        let mut order: Vec<_> = (0..self.slots.len())
            .filter_map(|at| {
                let slot = self.slots.get(at)?;
                let is_prompt = !writing(slot)?;
                Some((is_prompt, if is_prompt { slot.used } else { 0 }, at))
            })
            .collect();
        // Responses first, each with its one token, then prompts, the oldest first. llama.cpp evaluates sequences
        // together only if they are ordered by number in the batch.
        order.sort_unstable();
        let responses = order.iter().filter(|(prompt, ..)| !prompt).count();
        let prompts = if responses == 0 { BATCH as usize } else { PROMPT_TOKENS_BESIDE_RESPONSES };
        let mut room = (responses + prompts).min(BATCH as usize);
        let mut shares = Vec::new();
        for (_, _, at) in order {
            let Some(slot) = self.slots.get_mut(at).filter(|_| room > 0) else { continue };
            if let Some(share) = slot.share(at, room, &mut self.batch) {
                room -= share.tokens.len();
                shares.push(share);
            }
        }
        shares
    }

    fn fail(&mut self, slot: usize, why: &str) {
        self.clear(slot);
        let running = self.slots.get_mut(slot).and_then(|slot| slot.running.take());
        if let Some(running) = running {
            running.send(Output::Failed(format!("llama.cpp cannot evaluate the batch: {why}")));
        }
    }
}

impl Slot {
    fn view(&self) -> SlotView<'_, LlamaToken> {
        let (first, second) =
            self.running.as_ref().map(|it| it.pending.as_slices()).unwrap_or_default();
        SlotView {
            tokens: &self.tokens,
            next: [first, second],
            fingerprint: &self.fingerprint,
            busy: self.running.is_some(),
            used: self.used,
        }
    }

    /// Moves tokens into the batch, as many as there is room for.
    fn share(&mut self, at: usize, room: usize, batch: &mut LlamaBatch<'_>) -> Option<BatchShare> {
        let running = self.running.as_mut()?;
        let count = running.pending.len().min(room);
        let tokens: Vec<_> = running.pending.drain(..count).collect();
        let mut logits_at = None;
        for (token, position) in tokens.iter().zip(self.tokens.len()..) {
            let last = running.pending.is_empty() && position + 1 == self.tokens.len() + count;
            if last {
                logits_at = Some(batch.n_tokens());
            }
            // Bounded by the context, and the batch by its size: neither fails.
            let position = i32::try_from(position).ok()?;
            batch.add(*token, position, &[sequence(at)], last).ok()?;
        }
        Some(BatchShare { slot: at, tokens, logits_at })
    }
}

/// Whether a response continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Continue,
    Done,
}

impl Running {
    /// Appends a token to the response.
    fn push(&mut self, token: LlamaToken, model: &LlamaModel) -> Next {
        self.usage.output += 1;
        let vocabulary = model.vocab();
        if vocabulary.is_eog(token) {
            return self.end(Stop::End);
        }
        let Form::Text(decoder) = &mut self.form else { return Next::Done };
        match decoder.push(&vocabulary.token_to_piece(token, true, None)) {
            Decoded::Stopped(text) => {
                *decoder = TextDecoder::default();
                self.send_text(text);
                return self.end(Stop::End);
            }
            Decoded::More(text) => self.send_text(text),
        }
        if self.usage.output >= self.max_tokens {
            return self.end(Stop::Length);
        }
        self.pending.push_back(token);
        Next::Continue
    }

    /// Appends a token to a response of tokens.
    fn push_token(&mut self, token: LlamaToken, logprob: f32) -> Next {
        let Form::Tokens { stop, .. } = &self.form else { return Next::Done };
        let Some(id) = u32::try_from(token.0).ok().filter(|_| logprob.is_finite()) else {
            self.send(Output::Failed("the logits are not finite".into()));
            return Next::Done;
        };
        self.usage.output += 1;
        let is_end = stop.contains(&id);
        self.send(Output::Token(id, logprob));
        if is_end {
            return self.end(Stop::End);
        }
        if self.usage.output >= self.max_tokens {
            return self.end(Stop::Length);
        }
        self.pending.push_back(token);
        Next::Continue
    }

    fn end(&mut self, stop: Stop) -> Next {
        if let Form::Text(decoder) = &mut self.form {
            let rest = decoder.finish();
            self.send_text(rest);
        }
        self.send(Output::Done(stop, self.usage));
        Next::Done
    }

    fn send_text(&self, text: String) {
        if !text.is_empty() {
            self.send(Output::Text(text));
        }
    }

    fn send(&self, output: Output) {
        // A dropped request is noticed before the next step.
        let _ = self.output.send(output);
    }
}

/// llama.cpp's number of a slot.
fn sequence(slot: usize) -> i32 {
    i32::try_from(slot).unwrap_or(i32::MAX)
}
