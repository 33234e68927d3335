//! The thread that owns llama.cpp's context: conversations come in, pieces of replies go out.
//!
//! Every step evaluates one batch: a token of each reply being written, and as much of new prompts as fits.
//! Knows tokens; what they are a text of is decided elsewhere.

use std::{collections::VecDeque, sync::mpsc::Receiver};

use llama_cpp_2::{
    context::LlamaContext, llama_batch::LlamaBatch, model::LlamaModel, token::LlamaToken,
};
use model::Sampling;
use tokio::sync::mpsc::UnboundedSender;
use trajectory::{Stop, Usage};

use crate::{
    grammar::{Form, Picker},
    sampler,
    slots::{self, Choice, Kept, Thread},
    words::{Said, Words},
};

/// Tokens of one batch.
pub(crate) const BATCH: u32 = 512;

/// Tokens of prompts in a batch while replies are being written: their writers wait for the batch.
const BESIDE_REPLIES: usize = 128;

/// A reply that somebody waits for.
pub(crate) struct Job {
    /// The conversation; never empty.
    pub(crate) prompt: Vec<LlamaToken>,
    /// What it is known by in its later turns.
    pub(crate) thread: Thread,
    /// Tokens of the reply. With the prompt they fit into the context.
    pub(crate) most: u64,
    /// How to choose them.
    pub(crate) sampling: Sampling,
    /// What it is held to, if anything.
    pub(crate) form: Option<Form>,
    /// Who waits. Nobody does any more where this is closed.
    pub(crate) to: UnboundedSender<News>,
}

/// What becomes of a reply.
#[derive(Debug)]
pub(crate) enum News {
    /// The next piece of it.
    Text(String),
    /// It is complete.
    Done(Stop, Usage),
    /// llama.cpp gave up on it.
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
    /// What it holds: exactly the tokens that were evaluated.
    tokens: Vec<LlamaToken>,
    thread: Thread,
    used: u64,
    running: Option<Running>,
}

struct Running {
    to: UnboundedSender<News>,
    /// Tokens to evaluate: the rest of the prompt, then always the one chosen last.
    pending: VecDeque<LlamaToken>,
    picker: Picker,
    words: Words,
    most: u64,
    usage: Usage,
}

/// A slot's part of a batch.
struct Share {
    slot: usize,
    tokens: Vec<LlamaToken>,
    /// Where in the batch the likelihoods of its next token are asked for.
    asked: Option<i32>,
}

impl<'m> Engine<'m> {
    /// An engine with room for so many conversations at once.
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

    /// Works until nobody can ask for anything any more.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            if self.is_idle() {
                let Ok(job) = jobs.recv() else { return };
                self.waiting.push_back(job);
            }
            self.waiting.extend(jobs.try_iter());
            self.forget_cancelled();
            self.admit();
            self.step();
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|slot| slot.running.is_none())
    }

    /// Frees the sequences of those who no longer wait. What was evaluated for them is kept.
    fn forget_cancelled(&mut self) {
        self.waiting.retain(|job| !job.to.is_closed());
        for slot in &mut self.slots {
            if slot.running.as_ref().is_some_and(|running| running.to.is_closed()) {
                slot.running = None;
            }
        }
    }

    /// Gives free sequences to those who wait, in order.
    fn admit(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            let kept: Vec<_> = self.slots.iter().map(Slot::kept).collect();
            let Some(choice) = slots::choose(&job.prompt, &job.thread, &kept) else {
                self.waiting.push_front(job);
                return;
            };
            self.begin(job, choice);
        }
    }

    fn begin(&mut self, job: Job, choice: Choice) {
        let common = self.reuse(choice);
        self.clock += 1;
        let Some(slot) = self.slots.get_mut(choice.slot) else { return };
        let (known, new) = job.prompt.split_at(common.min(job.prompt.len()));
        slot.tokens = known.to_vec();
        slot.thread = job.thread;
        slot.used = self.clock;
        slot.running = Some(Running {
            pending: new.iter().copied().collect(),
            picker: Picker::new(
                sampler::chain(&job.sampling, self.model.n_vocab(), &job.prompt),
                job.form,
            ),
            words: Words::new(&job.sampling.stop),
            most: job.most.max(1),
            usage: Usage {
                input: job.prompt.len() as u64,
                cached: common as u64,
                ..Usage::default()
            },
            to: job.to,
        });
    }

    /// Prepares the cache of a slot and gives the number of tokens it keeps.
    fn reuse(&mut self, choice: Choice) -> usize {
        let slot = sequence(choice.slot);
        let copied = choice.copy_from.is_none_or(|from| {
            self.context.kv_cache_seq_cp(sequence(from), slot, None, None).is_ok()
        });
        let common = u32::try_from(choice.common).ok().filter(|common| copied && *common > 0);
        // Some architectures cannot forget a part: they begin anew.
        let kept = common.filter(|_| self.context.kv_cache_seq_rm(slot, common, None).is_ok());
        if kept.is_none() {
            self.forget(choice.slot);
        }
        kept.map_or(0, |kept| kept as usize)
    }

    /// Empties a slot.
    fn forget(&mut self, slot: usize) {
        // A whole sequence can always be removed.
        let _ = self.context.kv_cache_seq_rm(sequence(slot), None, None);
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.tokens.clear();
            slot.thread = Thread::default();
        }
    }

    /// Evaluates one batch and chooses the next token of every reply in it.
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
            if let (Some(at), Some(running)) = (share.asked, &mut slot.running) {
                let next = match running.picker.pick(&self.context, at, self.model) {
                    Some(token) => running.take(token, self.model),
                    None => {
                        running.tell(News::Failed("no word fits the form it is held to".into()));
                        Next::Over
                    }
                };
                if next == Next::Over {
                    slot.running = None;
                }
            }
        }
    }

    /// Puts a batch together.
    fn fill(&mut self) -> Vec<Share> {
        self.batch.clear();
        let writing = |slot: &Slot| slot.running.as_ref().map(|running| running.usage.output > 0);
        let mut order: Vec<_> = (0..self.slots.len())
            .filter_map(|at| {
                let slot = self.slots.get(at)?;
                let is_prompt = !writing(slot)?;
                Some((is_prompt, if is_prompt { slot.used } else { 0 }, at))
            })
            .collect();
        // Replies first, each with its one token, then prompts, the oldest first. llama.cpp evaluates together only
        // sequences that follow one another in the batch by their numbers.
        order.sort_unstable();
        let replies = order.iter().filter(|(prompt, ..)| !prompt).count();
        let prompts = if replies == 0 { BATCH as usize } else { BESIDE_REPLIES };
        let mut room = (replies + prompts).min(BATCH as usize);
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
        self.forget(slot);
        let running = self.slots.get_mut(slot).and_then(|slot| slot.running.take());
        if let Some(running) = running {
            running.tell(News::Failed(format!("llama.cpp cannot evaluate it ({why})")));
        }
    }
}

impl Slot {
    fn kept(&self) -> Kept<'_, LlamaToken> {
        let busy = self.running.is_some();
        Kept { tokens: &self.tokens, thread: &self.thread, busy, used: self.used }
    }

    /// Moves tokens into the batch, as many as there is room for.
    fn share(&mut self, at: usize, room: usize, batch: &mut LlamaBatch<'_>) -> Option<Share> {
        let running = self.running.as_mut()?;
        let count = running.pending.len().min(room);
        let tokens: Vec<_> = running.pending.drain(..count).collect();
        let mut asked = None;
        for (token, position) in tokens.iter().zip(self.tokens.len()..) {
            let last = running.pending.is_empty() && position + 1 == self.tokens.len() + count;
            if last {
                asked = Some(batch.n_tokens());
            }
            // Both are bounded by the size of the batch and the context.
            let position = i32::try_from(position).ok()?;
            batch.add(*token, position, &[sequence(at)], last).ok()?;
        }
        Some(Share { slot: at, tokens, asked })
    }
}

/// Whether a reply goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Goes,
    Over,
}

impl Running {
    /// The next token of the reply.
    fn take(&mut self, token: LlamaToken, model: &LlamaModel) -> Next {
        self.usage.output += 1;
        let vocabulary = model.vocab();
        if vocabulary.is_eog(token) {
            return self.end(Stop::End);
        }
        match self.words.push(&vocabulary.token_to_piece(token, true, None)) {
            Said::Stopped(text) => {
                self.tell_text(text);
                self.words = Words::default();
                return self.end(Stop::End);
            }
            Said::More(text) => self.tell_text(text),
        }
        if self.usage.output >= self.most {
            return self.end(Stop::Length);
        }
        self.pending.push_back(token);
        Next::Goes
    }

    fn end(&mut self, stop: Stop) -> Next {
        let rest = self.words.finish();
        self.tell_text(rest);
        self.tell(News::Done(stop, self.usage));
        Next::Over
    }

    fn tell_text(&self, text: String) {
        if !text.is_empty() {
            self.tell(News::Text(text));
        }
    }

    fn tell(&self, news: News) {
        // Who no longer listens is found out before the next step.
        let _ = self.to.send(news);
    }
}

/// llama.cpp's number of a slot.
fn sequence(slot: usize) -> i32 {
    i32::try_from(slot).unwrap_or(i32::MAX)
}
