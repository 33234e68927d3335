//! The thread that owns the cache: takes questions in, and makes steps as long as somebody waits. New text of many
//! conversations is read together and not after every step, since replies wait meanwhile. Refuses to know how a step
//! is computed.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
};

use tch::{Device, TchError, Tensor};

use crate::{
    error::Fallible,
    graph::{Cuda, CudaError},
    shape::Shape,
};

use super::{
    Ask, EngineError, SampleError, Settings, Shared, Sharing,
    pick::{Narrowed, pick, pick_narrowed},
    plan::{self, Row},
    recorded::{Recorded, Replay},
    seat::{self, Place, Seat, To},
    share,
    steps::{self, Steps, readable},
    weights::Weights,
};

/// Steps between two readings of new text while replies are being written.
const PATIENCE: usize = 8;

/// What the thread is told.
pub(super) enum Message {
    /// Somebody wants a reply.
    Ask(Ask, To),
    /// A conversation is over.
    Forget(u64),
    /// The weights have other values, and may lie elsewhere.
    Refresh(Option<Weights>, Sender<Result<(), TchError>>),
}

/// Works until nobody can ask for anything any more. Says first whether it could start.
pub(super) fn run(
    shape: &Shape,
    weights: Weights,
    settings: &Settings,
    inbox: &Receiver<Message>,
    ready: &Sender<Result<(), EngineError>>,
    shared: &Arc<Shared>,
) {
    let _no_gradients = tch::no_grad_guard();
    let worker = Worker::new(shape, weights, settings, shared);
    // Whoever started this thread waits for the answer.
    match worker {
        Ok(mut worker) => {
            let _ = ready.send(Ok(()));
            worker.work(inbox);
        }
        Err(error) => drop(ready.send(Err(error))),
    }
}

struct Worker<'a> {
    steps: Steps,
    recorded: Recorded,
    seats: Vec<Seat>,
    waiting: VecDeque<(Ask, To)>,
    shared: &'a Shared,
    shape: Shape,
    context: usize,
    sharing: Sharing,
    clock: u64,
    /// Steps since new text was last read.
    unread: usize,
}

impl<'a> Worker<'a> {
    fn new(
        shape: &Shape,
        weights: Weights,
        settings: &Settings,
        shared: &'a Shared,
    ) -> Result<Self, EngineError> {
        let (device, kind) = (weights.embedding.device(), weights.embedding.kind());
        let cuda = match device {
            Device::Cuda(index) => {
                Cuda::load().and_then(|cuda| cuda.own_stream(index).map(|()| cuda))
            }
            _ => Err(CudaError::Refused("the net is not on a CUDA device".to_owned())),
        };
        let needed = steps::memory(shape, kind, settings.slots, settings.length);
        let left = match (&cuda, device) {
            // What cannot be asked is tried.
            (Ok(cuda), Device::Cuda(index)) => cuda.free_memory(index).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        let there = left.min(settings.most_memory.unwrap_or(u64::MAX));
        let Settings { slots, length, .. } = *settings;
        if needed > there {
            return Err(EngineError::Memory { slots, length, needed, there });
        }
        let recorded = Recorded::new(cuda, settings.recording);
        let worker = Self {
            steps: Steps::new(shape, weights, slots, length)?,
            recorded,
            seats: (0..slots).map(|_| Seat::default()).collect(),
            waiting: VecDeque::new(),
            shared,
            shape: shape.clone(),
            context: length,
            sharing: settings.sharing,
            clock: 0,
            unread: 0,
        };
        worker.tell_recording();
        Ok(worker)
    }

    fn work(&mut self, inbox: &Receiver<Message>) {
        loop {
            if self.is_idle() {
                let Ok(message) = inbox.recv() else { return };
                self.hear(message);
            }
            loop {
                match inbox.try_recv() {
                    Ok(message) => self.hear(message),
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                }
            }
            self.seats.iter_mut().for_each(Seat::leave_if_unwanted);
            self.waiting.retain(|(_, to)| !to.is_closed());
            self.admit();
            if let Err(error) = self.step() {
                self.fail(&error);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.seats.iter().all(|seat| seat.running.is_none())
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Ask(ask, to) => self.waiting.push_back((ask, to)),
            Message::Forget(conversation) => {
                let of_it =
                    self.seats.iter_mut().filter(|seat| seat.conversation == Some(conversation));
                of_it.for_each(Seat::forget);
            }
            Message::Refresh(weights, done) => {
                self.seats.iter_mut().for_each(Seat::start_over);
                self.recorded.hope();
                if let Some(weights) = weights {
                    self.recorded.forget();
                    self.steps.weights = weights;
                }
                let cleared = self.steps.clear().and_then(|()| self.recorded.wait());
                // Whoever refreshed waits for the answer.
                let _ = done.send(cleared);
            }
        }
    }

    /// Gives slots to those who wait, in order; who must wait for a slot of their own does not keep others waiting.
    fn admit(&mut self) {
        let mut later = VecDeque::new();
        while let Some((ask, to)) = self.waiting.pop_front() {
            let Place::Seat(index) = seat::place(ask.conversation, &self.seats) else {
                later.push_back((ask, to));
                continue;
            };
            self.clock += 1;
            let Some(seat) = self.seats.get_mut(index) else { continue };
            seat.used = self.clock;
            let read = seat.begin(ask, to, self.context, self.sharing == Sharing::On);
            self.shared.read.fetch_add(read as u64, Ordering::Relaxed);
        }
        self.waiting = later;
        let remembered = self.seats.iter().filter(|seat| seat.conversation.is_some()).count();
        self.shared.remembered.store(remembered as u64, Ordering::Relaxed);
    }

    fn step(&mut self) -> Fallible<()> {
        let reading = self.seats.iter().filter(|seat| plan::reads(seat)).count();
        let writing = self.seats.iter().filter(|seat| plan::writes(seat)).count();
        if reading > 0
            && (writing == 0 || self.unread >= PATIENCE || reading * 4 >= self.seats.len())
        {
            self.read()?;
            self.unread = 0;
        }
        if writing > 0 {
            self.write()?;
            self.unread += 1;
        }
        Ok(())
    }

    /// Adds one token to every sequence that has only a few to evaluate.
    fn write(&mut self) -> Fallible<()> {
        let writing = plan::writing(&mut self.seats, self.steps.nowhere);
        let numbers = Tensor::f_from_slice(&writing.numbers)?;
        self.steps.input.f_copy_(&numbers.f_view_as(&self.steps.input)?)?;
        let made = self.recorded.step(&mut self.steps, writing.looked)?;
        self.shared.replayed.fetch_add(u64::from(made == Replay::Yes), Ordering::Relaxed);
        self.shared.steps.fetch_add(1, Ordering::Relaxed);
        self.tell_recording();
        let (output, scores) =
            (self.steps.output.shallow_clone(), self.steps.scores.shallow_clone());
        self.conclude(&output, &scores, &writing.rows)
    }

    /// Evaluates new text of some sequences, after what others have of it was copied.
    fn read(&mut self) -> Fallible<()> {
        if self.sharing == Sharing::On {
            for (part, to) in share::share(&mut self.seats) {
                self.steps.copy(&part, &to)?;
                let copied = (part.end - part.begin) * to.len();
                self.shared.read.fetch_sub(copied as u64, Ordering::Relaxed);
            }
        }
        let device = self.steps.device();
        let most = |width, looked| readable(device, &self.shape, width, looked);
        let sharing = self.sharing == Sharing::On;
        let waits = |to| sharing && share::waits(&self.seats, to);
        let waiting: Vec<bool> = (0..self.seats.len()).map(waits).collect();
        let (reading, rows) = plan::reading(&mut self.seats, &waiting, self.steps.nowhere, most);
        if rows.is_empty() {
            return Ok(());
        }
        let scores = self.steps.read(&reading)?;
        if rows.iter().all(|row| !row.wanted) {
            return Ok(());
        }
        let draws: Vec<f64> =
            (0..3).flat_map(|field| rows.iter().map(move |row| row.draw.fields()[field])).collect();
        let draws = Tensor::f_from_slice(&draws)?.f_view([3, rows.len() as i64])?;
        let output = pick(&scores, &draws.f_to_device(device)?)?;
        self.conclude(&output, &scores, &rows)
    }

    /// Hands the chosen tokens to the replies that wait for one.
    fn conclude(&mut self, output: &Tensor, scores: &Tensor, rows: &[Row]) -> Fallible<()> {
        let mut narrowed = Vec::new();
        for row in rows.iter().filter(|row| row.wanted) {
            let Some(running) = self.seats.get(row.seat).and_then(|seat| seat.running.as_ref())
            else {
                continue;
            };
            narrowed.extend(narrow(running, row, self.shape.vocabulary));
        }
        let mut picked = Picked::read(output)?;
        if !narrowed.is_empty() {
            let replaced = Picked::read(&pick_narrowed(scores, &narrowed)?)?;
            for (place, narrowed) in narrowed.iter().enumerate() {
                picked.replace(usize::try_from(narrowed.row).unwrap_or_default(), &replaced, place);
            }
        }
        for row in rows.iter().filter(|row| row.wanted) {
            let (token, logprob) = picked.get(row.index);
            self.clock += 1;
            let Some(seat) = self.seats.get_mut(row.seat) else { continue };
            seat.used = self.clock;
            // Counted first: whoever gets the answer may ask how many there were.
            self.shared.sampled.fetch_add(1, Ordering::Relaxed);
            seat.chosen(token, logprob);
        }
        Ok(())
    }

    /// Tells everybody who waits for a reply that there will be none.
    fn fail(&mut self, error: &TchError) {
        let text: Arc<str> = error.to_string().lines().next().unwrap_or_default().into();
        for seat in &mut self.seats {
            seat.fail(SampleError::Torch(Arc::clone(&text)));
        }
    }

    fn tell_recording(&self) {
        if let Ok(mut told) = self.shared.unrecorded.lock()
            && told.as_deref() != self.recorded.reason()
        {
            *told = self.recorded.reason().map(str::to_owned);
        }
    }
}

/// What the device chose.
struct Picked {
    tokens: Vec<f64>,
    logprobs: Vec<f64>,
}

impl Picked {
    fn read(output: &Tensor) -> Fallible<Self> {
        let mut numbers = Vec::<f64>::try_from(&output.f_reshape([-1])?)?;
        let logprobs = numbers.split_off(numbers.len() / 2);
        Ok(Self { tokens: numbers, logprobs })
    }

    fn get(&self, row: usize) -> (u32, f32) {
        let token = self.tokens.get(row).copied().unwrap_or_default();
        (token as u32, self.logprobs.get(row).copied().unwrap_or(f64::NAN) as f32)
    }

    fn replace(&mut self, row: usize, other: &Self, from: usize) {
        let pairs = [(&mut self.tokens, &other.tokens), (&mut self.logprobs, &other.logprobs)];
        for (mine, others) in pairs {
            if let (Some(place), Some(&value)) = (mine.get_mut(row), others.get(from)) {
                *place = value;
            }
        }
    }
}

/// How a row chooses among its likeliest tokens, if it does.
fn narrow(running: &seat::Running, row: &Row, vocabulary: i64) -> Option<Narrowed> {
    let choice = &running.choice;
    let most = choice
        .top_k
        .and_then(|most| i64::try_from(most).ok())
        .unwrap_or(vocabulary)
        .min(vocabulary);
    let narrows = choice.temperature > 0.0 && (choice.top_p < 1.0 || most < vocabulary);
    narrows.then_some(Narrowed {
        row: row.index as i64,
        draw: row.draw,
        top_k: most,
        top_p: choice.top_p,
    })
}
