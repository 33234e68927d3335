//! Servers that are busy, break off, stall or die.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lis_sampling_http::{ConnectError, HttpSampler, ServerError};
use sampling::{Flow, SampleEnd, SampleError, Sampler};
use testkit::{Answer, Received, UnusedPort};
use tokio::time::timeout;

use crate::vllm::{
    END, answer, answering, chunks, continuation, described, request, sampler, server, settings,
    stream, unfinished,
};

fn server_error(error: SampleError) -> ServerError {
    let SampleError::Failed(source) = error else { panic!("{error}") };
    *source.downcast::<ServerError>().unwrap()
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let server = server(2);
    for refusal in [Answer::busy(0), Answer::error(503, "loading the model")] {
        server.push(refusal);
    }
    let sampled = sampler(&server).await.sample(request(20, None)).await.unwrap();
    assert_eq!((sampled.tokens, server.count()), (vec![13, 14, END], 3));
}

#[tokio::test]
async fn a_response_that_breaks_off_is_continued() {
    // Every answer but the last dies after three tokens.
    fn respond(received: &Received) -> Answer {
        let prompt = received.body["prompt"].as_array().unwrap().len();
        if prompt >= 9 {
            return answer(received, 1);
        }
        let tokens: Vec<u32> = continuation(received).take(3).collect();
        Answer::events(unfinished(&chunks(received, &tokens, "")).replace("\"\"", "null"))
    }
    let server = answering(respond);
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let until = Box::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Flow::Continue
    });
    let sampled = sampler(&server).await.sample(request(20, Some(until))).await.unwrap();
    assert_eq!(sampled.tokens, [13, 14, 15, 16, 17, 18, 19, END]);
    assert_eq!((sampled.end, seen.load(Ordering::SeqCst)), (SampleEnd::Token, 8));
    let requests = server.requests();
    assert_eq!(requests[1].body["prompt"], serde_json::json!([1, 2, 3, 13, 14, 15]));
    assert_eq!(requests[1].body["max_tokens"], 17);
    let seeds: HashSet<u64> =
        requests.iter().map(|request| request.body["seed"].as_u64().unwrap()).collect();
    assert_eq!((requests.len(), seeds.len()), (3, 3), "no noise is drawn twice");
}

#[tokio::test]
async fn a_server_that_is_stopped_in_the_middle_is_a_failure() {
    let server = answering(|received| {
        let mut chunks = chunks(received, &[13], "abort");
        chunks[0]["choices"][0]["token_ids"] = serde_json::json!([]);
        chunks[0]["choices"][0]["logprobs"] = serde_json::Value::Null;
        stream(&chunks)
    });
    let error = sampler(&server).await.sample(request(2, None)).await.unwrap_err();
    let ServerError::Server(error) = server_error(error) else { panic!() };
    assert!(error.chain().contains("abort"), "{}", error.chain());
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let server = described(testkit::MockServer::answering(|_| Answer::hang()).unwrap());
    let sampler = Arc::new(sampler(&server).await);
    let waiting = sampler.clone();
    let gone = tokio::spawn(async move { waiting.gone().await });
    let error = sampler.sample(request(20, None)).await.unwrap_err();
    assert!(matches!(server_error(error), ServerError::Server(_)));
    let why = timeout(Duration::from_secs(5), gone).await.unwrap().unwrap();
    assert!(why.contains("sent nothing"), "{why}");
    assert_eq!(server.count(), 3);
    // From then on requests fail at once.
    let error = sampler.sample(request(20, None)).await.unwrap_err();
    assert!(matches!(server_error(error), ServerError::Gone(_)));
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn one_bad_request_does_not_condemn_the_server() {
    let server = answering(|received| match received.body["max_tokens"].as_u64() {
        Some(7) => Answer::error(500, "assertion failed"),
        _ => answer(received, 2),
    });
    let mut settings = settings(server.base_url());
    settings.retry.first_wait = Duration::from_millis(20);
    settings.retry.max_wait = Duration::from_millis(40);
    let sampler = HttpSampler::connect(settings).await.unwrap();
    let bad = sampler.sample(request(7, None));
    let good = async {
        for _ in 0..20 {
            sampler.sample(request(5, None)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let (bad, ()) = tokio::join!(bad, good);
    assert!(matches!(server_error(bad.unwrap_err()), ServerError::Server(_)));
    sampler.sample(request(5, None)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_streaming_to_others_is_not_gone() {
    let server = answering(|received| match received.body["max_tokens"].as_u64() {
        Some(7) => Answer::busy(0),
        // In ten pieces.
        _ => answer(received, 40).every(Duration::from_millis(40)),
    });
    let mut settings = settings(server.base_url());
    settings.retry.first_wait = Duration::from_millis(60);
    settings.retry.max_wait = Duration::from_millis(120);
    let sampler = HttpSampler::connect(settings).await.unwrap();
    let (bad, good) =
        tokio::join!(sampler.sample(request(7, None)), sampler.sample(request(50, None)));
    assert!(matches!(server_error(bad.unwrap_err()), ServerError::Server(_)));
    assert_eq!((good.unwrap().tokens.len(), sampler.failure()), (41, None));
}

#[tokio::test]
async fn only_tokens_end_a_silence() {
    let document = format!("{{{}", " ".repeat(2000));
    for drip in
        [Answer::events("data: {\"choices\": []}\n\n".repeat(20)), Answer::status(200, document)]
    {
        // Sent in ten pieces: each is in time, all of them are not.
        let server = answering(move |_| drip.clone().every(Duration::from_millis(100)));
        let mut settings = settings(server.base_url());
        settings.retry.attempts = 1;
        let sampler = HttpSampler::connect(settings).await.unwrap();
        let error = sampler.sample(request(20, None)).await.unwrap_err();
        let ServerError::Server(error) = server_error(error) else { panic!() };
        assert!(matches!(error, model::Error::Silence(_)), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_for_its_request_is_not_read() {
    let server = answering(|_| Answer::status(200, [b'['; 200_000]));
    let error = sampler(&server).await.sample(request(20, None)).await.unwrap_err();
    let ServerError::Server(error) = server_error(error) else { panic!() };
    assert!(error.chain().contains("too long for the request"), "{}", error.chain());
}

#[tokio::test]
async fn refusals_are_final() {
    let server = answering(|_| Answer::error(404, "no such model"));
    let error = sampler(&server).await.sample(request(5, None)).await.unwrap_err();
    assert!(matches!(server_error(error), ServerError::Server(_)));
    assert_eq!(server.count(), 1);
    let server = answering(|_| {
        Answer::error(
            400,
            "This model's maximum context length is 64 tokens. However, you requested 70 tokens",
        )
    });
    let error = sampler(&server).await.sample(request(5, None)).await.unwrap_err();
    assert!(matches!(error, SampleError::TooLong { tokens: 3, .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_reported_at_the_start() {
    let port = UnusedPort::new().unwrap();
    let error = HttpSampler::connect(settings(port.base_url().unwrap())).await.unwrap_err();
    let ConnectError::Server(error) = error else { panic!("{error}") };
    assert!(error.to_string().contains("cannot reach"), "{error}");
}
