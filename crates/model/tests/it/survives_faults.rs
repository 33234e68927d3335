//! Every way in which a server fails becomes a matching error, and never a response.

use std::time::{Duration, Instant};

use lis_model::{Endpoint, Error, Overflow, Silent};
use testkit::{Answer, Fault, MockServer, UnusedPort, bash, say};

use crate::clients::{Client, VENDORS, Vendor, ask, endpoint, told};

const TEXT: &str = "many small pieces of text, one after the other; ünd ein Umlaut";

async fn failed(vendor: Vendor, answer: impl Into<Answer>) -> Error {
    match told(vendor, answer).await {
        Err(error) => error,
        Ok(response) => panic!("{vendor:?}: {response:?}"),
    }
}

#[tokio::test]
async fn statuses_say_what_to_do() {
    for vendor in VENDORS {
        for status in [401, 403] {
            let error = failed(vendor, Answer::error(status, "no such key")).await;
            assert!(
                matches!(&error, Error::Key { message, .. } if message == "no such key"),
                "{error:?}"
            );
        }
        for status in [408, 429, 500, 502, 503, 529] {
            let error = failed(vendor, Answer::error(status, "not now")).await;
            let busy = matches!(&error, Error::Busy { status: told, message, retry_after: None }
                if *told == status && message == "not now");
            assert!(busy, "{error:?}");
        }
        let asked = Some(Duration::from_secs(7));
        let error = failed(vendor, Answer::busy(7)).await;
        assert!(matches!(error, Error::Busy { retry_after, .. } if retry_after == asked));
        for status in [400, 404, 422] {
            let error = failed(vendor, Answer::error(status, "bad words")).await;
            assert!(
                matches!(&error, Error::Refused { message, .. } if message.starts_with("bad words"))
            );
        }
        let error = failed(vendor, Answer::page(502)).await;
        assert!(matches!(error, Error::Busy { status: 502, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn an_overflow_has_its_numbers() {
    let words = "prompt is too long: 212345 tokens > 200000 maximum";
    let expected = Overflow { context: Some(200_000), prompt: Some(212_345), output: None };
    for vendor in VENDORS {
        let error = failed(vendor, Answer::error(400, words)).await;
        assert!(matches!(error, Error::Overflow { numbers, .. } if numbers == expected));
        let error = failed(vendor, say(TEXT).fault(Fault::ErrorEvent(1, words.into()))).await;
        assert!(matches!(error, Error::Overflow { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_response_that_is_cut_off_is_an_error() {
    let faults = [
        Fault::CutAfter(0),
        Fault::CutAfter(2),
        Fault::CutInChar,
        Fault::CutInJson(2),
        Fault::EndAfter(2),
        Fault::EndAfter(0),
    ];
    for vendor in VENDORS {
        for fault in faults.clone() {
            let error = failed(vendor, say(TEXT).fault(fault.clone())).await;
            let cut = matches!(error, Error::Cut(_) | Error::Protocol(_));
            assert!(cut && error.is_transient(), "{vendor:?} {fault:?}: {error:?}");
            let error = failed(vendor, bash("echo ünd").fault(fault.clone())).await;
            assert!(error.is_transient(), "{vendor:?} {fault:?}: {error:?}");
        }
        for answer in [Answer::close(), Answer::reset()] {
            let error = failed(vendor, answer).await;
            assert!(matches!(error, Error::Cut(_)), "{vendor:?}: {error:?}");
        }
    }
}

#[tokio::test]
async fn silence_ends_the_wait_and_the_connection() {
    for vendor in VENDORS {
        let quiet = |after| say(TEXT).fault(Fault::SilentAfter(after));
        for answer in [Answer::hang(), quiet(0), quiet(3)] {
            let server = MockServer::scripted([answer]).unwrap();
            let silence = Duration::from_millis(300);
            let client = Client::new(vendor, Endpoint { silence, ..endpoint(&server) }).unwrap();
            let begun = Instant::now();
            let error = ask(&client, &Silent).await.unwrap_err();
            assert!(matches!(error, Error::Silence(told) if told == silence), "{error:?}");
            assert!(begun.elapsed() >= silence && begun.elapsed() < Duration::from_secs(8));
            assert!(server.is_idle_soon().await, "the client still holds the connection");
        }
    }
}

#[tokio::test]
async fn keep_alives_are_not_content() {
    let alive = |vendor| match vendor {
        Vendor::OpenAi => Answer::events(":"),
        Vendor::Anthropic => {
            Answer::events("event: ping\ndata: {\"type\": \"ping\"}\n\n".repeat(10))
        }
    };
    for vendor in VENDORS {
        let answer = alive(vendor).fault(Fault::Endless).every(Duration::from_millis(20));
        let server = MockServer::scripted([answer]).unwrap();
        let silence = Duration::from_millis(300);
        let client = Client::new(vendor, Endpoint { silence, ..endpoint(&server) }).unwrap();
        let error = tokio::time::timeout(Duration::from_secs(8), ask(&client, &Silent)).await;
        let error = error.expect("the client listens for ever").unwrap_err();
        assert!(matches!(error, Error::Silence(told) if told == silence), "{error:?}");
    }
}

#[tokio::test]
async fn a_refusal_with_an_endless_body_is_still_one() {
    for vendor in VENDORS {
        let refusal = Answer::error(503, "not now, ".repeat(20)).fault(Fault::SilentAfter(2));
        let begun = Instant::now();
        let error = failed(vendor, refusal).await;
        assert!(matches!(error, Error::Busy { status: 503, .. }), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(9), "the client's patience is 10 seconds");
    }
}

#[tokio::test]
async fn what_follows_the_last_word_may_be_cut_off() {
    let said =
        "data: {\"choices\":[{\"delta\":{\"content\":\"yes\"},\"finish_reason\":\"stop\"}]}\n\n";
    let response =
        told(Vendor::OpenAi, Answer::events(format!("{said}data: {{\"usa"))).await.unwrap();
    assert_eq!((response.message.text.as_str(), response.usage.estimated), ("yes", true));
}

#[tokio::test]
async fn what_is_not_a_response_is_an_error() {
    for vendor in VENDORS {
        let nonsense = [
            say(TEXT).fault(Fault::Malformed(1)),
            Answer::page(200),
            Answer::events("no events at all"),
            Answer::status(200, "{\"cut"),
            Answer::status(200, "{}"),
            Answer::status(200, ""),
            Answer::events("data: 7\n\n"),
            Answer::events("data: [DONE]\n\n"),
            Answer::events("data: {\"type\":\"message_stop\"}\n\n"),
        ];
        for answer in nonsense {
            let shown = format!("{answer:?}");
            let error = failed(vendor, answer).await;
            assert!(matches!(error, Error::Protocol(_) | Error::Cut(_)), "{error:?} {shown}");
        }
    }
}

#[tokio::test]
async fn an_error_in_the_stream_is_an_error() {
    for vendor in VENDORS {
        let error =
            failed(vendor, say(TEXT).fault(Fault::ErrorEvent(2, "out of luck".into()))).await;
        assert!(error.is_transient() && error.to_string().contains("out of luck"), "{error:?}");
    }
    let overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let error = failed(Vendor::Anthropic, Answer::events(overloaded)).await;
    assert!(matches!(error, Error::Busy { status: 529, .. }), "{error:?}");
    for words in [
        "data: {\"object\":\"error\",\"message\":\"bad schema\",\"code\":400}\n\n",
        "data: {\"error\":{\"message\":\"bad schema\",\"code\":400}}\n\n",
        "error: {\"code\":400,\"message\":\"bad schema\"}\n\n",
    ] {
        let error = failed(Vendor::OpenAi, Answer::events(words)).await;
        assert!(
            matches!(&error, Error::Refused { message, .. } if message == "bad schema"),
            "{words}: {error:?}"
        );
    }
}

#[tokio::test]
async fn replies_without_end_are_ended() {
    for vendor in VENDORS {
        let error = failed(vendor, Answer::long_line(40 << 20)).await;
        assert!(matches!(error, Error::Protocol(_)), "{error:?}");
        let piece = "x".repeat(1 << 20);
        let endless = say(piece).pieces(1).fault(Fault::Endless);
        let error = failed(vendor, endless).await;
        assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_reported_with_its_address() {
    for vendor in VENDORS {
        let nobody = UnusedPort::new().unwrap();
        let base_url = nobody.base_url().unwrap();
        let client = Client::new(vendor, Endpoint::new("m", base_url.clone())).unwrap();
        let error = ask(&client, &Silent).await.unwrap_err();
        assert!(error.is_transient());
        assert!(
            matches!(&error, Error::Unreachable { url, .. } if url.starts_with(&base_url)),
            "{error:?}"
        );
        for address in ["nowhere", "ftp://x", ""] {
            let error = Client::new(vendor, Endpoint::new("m", address)).unwrap_err();
            assert!(matches!(error, Error::Settings(_)));
        }
    }
}
