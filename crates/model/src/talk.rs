//! One question and its answer: asked again without a field the server does not take, and read as a
//! stream of events or as one document, whichever it turns out to be.
//!
//! Knows no vendor: a [`Gatherer`] makes sense of the JSON.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::{
    Delta, Error, Listener, Request,
    failure::Failure,
    http::{Answer, Http},
    quirks::Quirks,
    sse::{Decoder, Event},
    wire,
};

/// Whether a reply goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It does.
    More,
    /// That was its last event.
    Done,
}

/// Makes a reply of a vendor's events.
pub(crate) trait Gatherer {
    /// The next event, or the whole reply as one document.
    fn take(&mut self, json: &Value) -> Result<Progress, Error>;

    /// Whether the reply is usable although nothing more may come.
    fn is_complete(&self) -> bool;

    /// Whether nothing has been said so far.
    fn is_empty(&self) -> bool;
}

/// What follows the last word, such as the count of tokens, comes at once or never.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Servers are asked, not held: a reply that must have a form is not to be had from them.
pub(crate) fn unforced(request: &Request<'_>) -> Result<(), Error> {
    match request.sampling.shape {
        None => Ok(()),
        Some(_) => Err(Error::Refused {
            status: 400,
            message: "a server's replies cannot be forced into a form".into(),
        }),
    }
}

/// Sends what `build` makes, and again without what the server does not take.
pub(crate) async fn ask<'a>(
    http: &'a Http,
    quirks: &Quirks,
    mut build: impl FnMut() -> Map<String, Value>,
    listener: &dyn Listener,
) -> Result<Answer<'a>, Error> {
    let insisted = &http.endpoint().extra_body;
    let mut attempt = 1;
    loop {
        let mut body = build();
        let applied = quirks.apply(&mut body);
        wire::merge(&mut body, insisted);
        let body = Value::Object(body);
        let failure = match http.post(&body).await?.refusal().await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        // Each time one field more is left out, so this ends.
        let sent = body.as_object();
        let learnt = sent.and_then(|sent| quirks.learn(&failure, sent, &applied, insisted));
        let Some(field) = learnt else { return Err(http.error(&failure)) };
        let why = format!("the server does not take `{field}`; asking without it");
        listener.hear(Delta::Retry { attempt, wait: Duration::ZERO, why: &why });
        attempt += 1;
    }
}

/// Reads an answer to its end.
pub(crate) async fn read(
    http: &Http,
    mut answer: Answer<'_>,
    gatherer: &mut impl Gatherer,
) -> Result<(), Error> {
    let silence = http.endpoint().silence;
    let mut form = Form::Unknown;
    let mut events = Vec::new();
    let mut heard = Instant::now();
    loop {
        let patience = if gatherer.is_complete() { AFTERMATH.min(silence) } else { silence };
        let chunk = match answer.chunk(patience.saturating_sub(heard.elapsed())).await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(_) if gatherer.is_complete() => break,
            Err(error) => return Err(error),
        };
        form.push(&chunk, &mut events).map_err(|why| http.nonsense(&why))?;
        // Comments and pings keep a connection open, but say nothing.
        if matches!(form, Form::Document(_)) || events.iter().any(Event::says_something) {
            heard = Instant::now();
        }
        for event in events.drain(..) {
            if take(http, &event, gatherer)? == Progress::Done {
                answer.finish().await;
                return ended(gatherer);
            }
        }
    }
    // What comes after the last word may be cut off without harm.
    let complete = gatherer.is_complete();
    let last = form.finish().map_or(Ok(Progress::More), |event| take(http, &event, gatherer));
    match last {
        _ if complete => Ok(()),
        Ok(Progress::Done) => ended(gatherer),
        Ok(Progress::More) if gatherer.is_complete() => Ok(()),
        Ok(Progress::More) => {
            Err(Error::Cut("the connection ended without the end of the reply".into()))
        }
        Err(error) => Err(error),
    }
}

/// Some servers end a reply without saying why. One that says nothing else either has failed.
fn ended(gatherer: &impl Gatherer) -> Result<(), Error> {
    if gatherer.is_empty() && !gatherer.is_complete() {
        return Err(Error::Cut("the reply ended before it began".into()));
    }
    Ok(())
}

/// What the server turned out to send.
enum Form {
    Unknown,
    Events(Decoder),
    Document(Vec<u8>),
}

impl Form {
    /// Takes the next bytes, or says why they are no reply.
    fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), String> {
        if matches!(self, Self::Unknown) {
            *self = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => Self::Unknown,
                Some(b'{' | b'[') => Self::Document(Vec::new()),
                Some(b'<') => {
                    return Err(format!("it is a web page: {}", String::from_utf8_lossy(bytes)));
                }
                Some(_) => Self::Events(Decoder::default()),
            };
        }
        match self {
            Self::Unknown => Ok(()),
            Self::Events(decoder) => decoder.push(bytes, events).map_err(|error| error.to_string()),
            Self::Document(document) => {
                document.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn finish(self) -> Option<Event> {
        match self {
            Self::Unknown => None,
            Self::Events(decoder) => decoder.finish(),
            Self::Document(bytes) => {
                let data = String::from_utf8_lossy(&bytes).into_owned();
                Some(Event { name: String::new(), data })
            }
        }
    }
}

fn take(http: &Http, event: &Event, gatherer: &mut impl Gatherer) -> Result<Progress, Error> {
    let data = event.data.trim();
    if data == "[DONE]" {
        return Ok(Progress::Done);
    }
    if data.is_empty() {
        return Ok(Progress::More);
    }
    let failed = event.name == "error";
    let json: Value = match serde_json::from_str(data) {
        Ok(json) => json,
        Err(_) if failed => Value::String(data.to_owned()),
        Err(error) => return Err(http.nonsense(&format!("a part of it is no JSON: {error}"))),
    };
    let reported = json.get("error").is_some_and(|error| !error.is_null());
    let flat = json.get("object").is_some_and(|object| object == "error");
    if failed || reported || flat {
        return Err(http.error(&Failure::in_stream(&json)));
    }
    gatherer.take(&json)
}
