//! Failures that pass, failures that do not, and conversations that do not fit.

use std::{collections::VecDeque, sync::Mutex};

use tokio::time::Instant;
use trajectory::{Assistant, Message, Stop, Usage};

use super::*;
use crate::Sampling;

/// Fails with the given errors, then responds, and records its requests.
struct Failing {
    errors: Mutex<VecDeque<Error>>,
    asked: Mutex<Vec<u64>>,
    input: u64,
}

impl Model for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    async fn complete(&self, request: &Request<'_>, _: &dyn Listener) -> Result<Response, Error> {
        self.asked.lock().unwrap().push(request.max_tokens);
        match self.errors.lock().unwrap().pop_front() {
            Some(error) => Err(error),
            None => Ok(Response {
                message: Assistant::default(),
                stop: Stop::End,
                usage: Usage { input: self.input, output: 1, ..Usage::default() },
                from_cache: false,
            }),
        }
    }
}

/// Writes down the waits.
#[derive(Default)]
struct Recorder(Mutex<Vec<(u32, Duration, String)>>);

impl Listener for Recorder {
    fn on_delta(&self, delta: Delta<'_>) {
        if let Delta::Retry { attempt, wait, why } = delta {
            self.0.lock().unwrap().push((attempt, wait, why.into()));
        }
    }
}

fn failing(errors: impl IntoIterator<Item = Error>) -> Retrying<Failing> {
    let errors = Mutex::new(errors.into_iter().collect());
    let model = Failing { errors, asked: Mutex::default(), input: 100 };
    Retrying::new(model, Retry::default())
}

impl Retrying<Failing> {
    fn asked(&self) -> Vec<u64> {
        self.model.asked.lock().unwrap().clone()
    }
}

/// Asks with a conversation of 400 bytes for at most `max_tokens`.
async fn ask(
    model: &Retrying<Failing>,
    max_tokens: u64,
    recorder: &Recorder,
) -> Result<Response, Error> {
    let messages = [Message::user("x".repeat(400))];
    let sampling = Sampling::default();
    let request = Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens };
    model.complete(&request, recorder).await
}

fn busy(retry_after: Option<Duration>) -> Error {
    Error::Busy { status: 429, message: "slow down".into(), retry_after }
}

fn overflow(context: Option<u64>, prompt: Option<u64>, output: Option<u64>) -> Error {
    let numbers = Overflow { context, prompt, output };
    Error::Overflow { numbers, message: "too long".into() }
}

#[tokio::test(start_paused = true)]
async fn passing_failures_are_waited_out_with_growing_waits() {
    let cut = || Error::Cut("x".into());
    let silence = Error::Silence(Duration::from_secs(1));
    let model = failing([cut(), busy(None), silence, cut(), Error::Protocol("x".into())]);
    let (recorder, begun) = (Recorder::default(), Instant::now());
    ask(&model, 100, &recorder).await.unwrap();
    let heard = recorder.0.lock().unwrap().clone();
    let attempts: Vec<_> = heard.iter().map(|(attempt, ..)| *attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    for (at, (_, wait, _)) in heard.iter().enumerate() {
        let full = Duration::from_secs(1 << at);
        assert!(*wait >= full / 2 && *wait <= full, "{wait:?} of {full:?}");
    }
    let waited: Duration = heard.iter().map(|(_, wait, _)| *wait).sum();
    assert!(begun.elapsed() >= waited && begun.elapsed() < waited + Duration::from_millis(50));
    assert_eq!(heard[1].2, "the server answered 429: slow down");
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_in_the_end() {
    let model = failing((0..9).map(|_| busy(None)));
    let error = ask(&model, 100, &Recorder::default()).await.unwrap_err();
    assert!(matches!(error, Error::GaveUp { attempts: 6, last } if last.is_transient()));
    assert_eq!(model.asked().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn waits_are_bounded_and_retry_after_is_respected() {
    let wait = async |error: Error| {
        let (model, recorder) = (failing([error]), Recorder::default());
        ask(&model, 100, &recorder).await.unwrap();
        let heard = recorder.0.lock().unwrap();
        heard[0].1
    };
    let asked = wait(busy(Some(Duration::from_secs(20)))).await;
    assert!(asked >= Duration::from_secs(20) && asked <= Duration::from_secs(22), "{asked:?}");
    let asked = wait(busy(Some(Duration::from_secs(86_400)))).await;
    assert!(asked >= Duration::from_secs(300) && asked <= Duration::from_secs(330), "{asked:?}");
    let model = failing([]);
    let later: std::collections::HashSet<_> =
        (0..20).map(|_| model.policy.wait(1, &busy(Some(Duration::from_secs(9))))).collect();
    assert!(later.len() > 1, "all who were sent away come back at once");
    let at_once = busy(Some(Duration::ZERO));
    assert!(
        model.policy.wait(5, &at_once) >= Duration::from_secs(8),
        "waits grow whatever is asked"
    );
    assert!(
        (1..90).all(|attempt| model.policy.wait(attempt, &busy(None)) <= Duration::from_secs(60))
    );
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_returned_at_once() {
    let key = Error::Key { status: 401, message: "who?".into() };
    let refused = Error::Refused { status: 400, message: "what?".into() };
    for error in [key, refused, Error::Settings("x".into())] {
        let (model, recorder) = (failing([error]), Recorder::default());
        assert!(!ask(&model, 100, &recorder).await.unwrap_err().is_transient());
        assert_eq!((model.asked().len(), recorder.0.lock().unwrap().len()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_servers_numbers_are_used_and_remembered() {
    let model = failing([overflow(Some(8192), Some(200), None)]);
    let recorder = Recorder::default();
    ask(&model, 8000, &recorder).await.unwrap();
    assert_eq!(model.asked(), [8000, 8192 - 200 - MARGIN]);
    assert_eq!(recorder.0.lock().unwrap()[0].1, Duration::ZERO);
    // The response counted 100 tokens in the same 400 bytes: the next call is right at once.
    ask(&model, 9000, &recorder).await.unwrap();
    assert_eq!(model.asked()[2], 8192 - 100 - MARGIN);
    ask(&model, 300, &recorder).await.unwrap();
    assert_eq!(model.asked()[3], 300);
}

#[tokio::test(start_paused = true)]
async fn an_output_limit_is_respected_from_then_on() {
    let model = failing([overflow(None, None, Some(4096))]);
    ask(&model, 32_000, &Recorder::default()).await.unwrap();
    ask(&model, 32_000, &Recorder::default()).await.unwrap();
    assert_eq!(model.asked(), [32_000, 4096, 4096]);
}

#[tokio::test(start_paused = true)]
async fn without_numbers_it_is_halved_down_to_a_floor() {
    let unknown = || overflow(None, None, None);
    let model = failing((0..9).map(|_| unknown()));
    let error = ask(&model, 1200, &Recorder::default()).await.unwrap_err();
    assert!(matches!(error, Error::Overflow { .. }));
    assert_eq!(model.asked(), [1200, 600, 300]);
    let model = failing((0..9).map(|_| unknown()));
    assert!(ask(&model, 1 << 30, &Recorder::default()).await.is_err());
    assert_eq!(model.asked().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_full_context_ends_it() {
    for numbers in [overflow(Some(1000), Some(1200), None), overflow(Some(1000), Some(800), None)] {
        let model = failing([numbers]);
        let error = ask(&model, 500, &Recorder::default()).await.unwrap_err();
        assert!(matches!(error, Error::Overflow { .. }));
        assert_eq!(model.asked().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_numbers_still_lead_to_fewer_tokens() {
    // Refused although the numbers leave enough room.
    let wrong = || overflow(Some(100_000), Some(10), None);
    let model = failing([wrong(), wrong()]);
    ask(&model, 4000, &Recorder::default()).await.unwrap();
    assert_eq!(model.asked(), [4000, 2000, 1000]);
    let absurd = overflow(Some(u64::MAX), Some(u64::MAX), Some(u64::MAX));
    let model = failing([absurd]);
    assert!(ask(&model, 4000, &Recorder::default()).await.is_err());
}
