//! Retries in front of a real client: transient failures, learned limits, visible waits.

use std::time::Duration;

use lis_model::{Error, Retry, Retrying};
use testkit::{Answer, Fault, MockServer, Received, say};

use crate::clients::{Client, Recorder, VENDORS, Vendor, ask, endpoint};

fn patient(server: &MockServer, vendor: Vendor) -> Retrying<Client> {
    let settings = Retry {
        first_wait: Duration::from_millis(2),
        max_wait: Duration::from_millis(10),
        max_retry_after: Duration::from_millis(50),
        ..Retry::default()
    };
    Retrying::new(Client::new(vendor, endpoint(server)).unwrap(), settings)
}

#[tokio::test]
async fn failures_that_pass_are_waited_out() {
    for vendor in VENDORS {
        let answers = [
            Answer::busy(3600),
            Answer::error(500, "broken"),
            say("half a reply").fault(Fault::CutAfter(2)),
            Answer::page(200),
            Answer::close(),
            say("at last").into(),
        ];
        let server = MockServer::scripted(answers).unwrap();
        let recorder = Recorder::default();
        let response = ask(&patient(&server, vendor), &recorder).await.unwrap();
        assert_eq!(response.message.text, "at last");
        let heard = recorder.heard();
        let retries: Vec<_> = heard.iter().filter(|line| line.starts_with("retry ")).collect();
        assert_eq!(retries.len(), 5, "{heard:?}");
        assert!(retries[0].contains("429") && retries[1].contains("broken"));
    }
}

#[tokio::test]
async fn it_gives_up_after_six_and_at_once_without_a_key() {
    for vendor in VENDORS {
        let server = MockServer::answering(|_: &Received| Answer::error(503, "loading")).unwrap();
        let error = ask(&patient(&server, vendor), &Recorder::default()).await.unwrap_err();
        assert!(matches!(error, Error::GaveUp { attempts: 6, .. }), "{error:?}");
        assert_eq!(server.count(), 6);
        let server = MockServer::answering(|_: &Received| Answer::error(401, "who?")).unwrap();
        let error = ask(&patient(&server, vendor), &Recorder::default()).await.unwrap_err();
        assert!(matches!(error, Error::Key { .. }));
        assert_eq!(server.count(), 1);
    }
}

/// A server with 2000 tokens of context, 500 of them taken.
fn small(received: &Received) -> Answer {
    let asked = received.body["max_tokens"].as_u64().unwrap();
    if asked + 500 > 2000 {
        let total = asked + 500;
        return Answer::error(
            400,
            format!(
                "This model's maximum context length is 2000 tokens. However, you requested {total} tokens \
                 (500 in the messages, {asked} in the completion). Please reduce the length of the messages \
                 or completion."
            ),
        );
    }
    say("short").tokens(500, 3).into()
}

#[tokio::test]
async fn the_output_limit_shrinks_to_what_fits_and_stays() {
    for vendor in VENDORS {
        let server = MockServer::answering(small).unwrap();
        let model = patient(&server, vendor);
        for _ in 0..3 {
            assert_eq!(ask(&model, &Recorder::default()).await.unwrap().message.text, "short");
        }
        let asked: Vec<_> =
            server.requests().iter().map(|r| r.body["max_tokens"].as_u64().unwrap()).collect();
        assert_eq!(asked.len(), 4, "only the first call was refused: {asked:?}");
        assert!(asked[0] == 4096 && asked[1..].iter().all(|asked| (1400..=1500).contains(asked)));
    }
}

#[tokio::test]
async fn a_full_context_is_an_overflow_in_the_end() {
    for vendor in VENDORS {
        let full =
            |_: &Received| Answer::error(400, "prompt is too long: 9000 tokens > 8192 maximum");
        let server = MockServer::answering(full).unwrap();
        let error = ask(&patient(&server, vendor), &Recorder::default()).await.unwrap_err();
        assert!(matches!(error, Error::Overflow { .. }), "{error:?}");
        assert_eq!(server.count(), 1);
    }
}
