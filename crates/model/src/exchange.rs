//! One HTTP exchange with a model's server: the request is repeated without fields the server refuses, and the answer
//! is read as a stream of events or as one document, whichever it turns out to be.
//!
//! Knows no vendor: an [`EventSink`] interprets the JSON.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{Instrument, Span, debug, debug_span, field, trace};
use trajectory::count_values;

use crate::{
    Delta, Endpoint, Error, Listener, Request, Response,
    http::{Answer, Http},
    quirks::Quirks,
    refusal::Refusal,
    sse::{Decoder, Event},
    wire,
};

/// Whether more events follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More may follow.
    More,
    /// This was the last event.
    Done,
    /// The rest is not wanted: the connection is closed at once, so that the server stops generating.
    Cancel,
}

/// Receives the events of an answer.
pub trait EventSink {
    /// Takes the next event, or the complete response as one document.
    fn push(&mut self, json: &Value) -> Result<Progress, Error>;

    /// Whether the response is usable even if nothing more arrives.
    fn is_complete(&self) -> bool;

    /// Whether nothing was generated so far.
    fn is_empty(&self) -> bool;

    /// How much was generated so far. Where this is known, a server is silent while it does not grow, whatever events the
    /// server sends meanwhile.
    fn generated(&self) -> Option<usize> {
        None
    }

    /// The length in bytes beyond which an answer cannot be one to the request.
    fn max_bytes(&self) -> usize {
        usize::MAX
    }

    /// The number of JSON values beyond which one event cannot belong to an answer. A parsed value takes many times the bytes
    /// of its text.
    fn max_values(&self) -> usize {
        MAX_VALUES
    }
}

/// Values of one JSON text of a server. Texts and arguments are one value each, however long they are; small objects take
/// about 200 bytes for each.
pub(crate) const MAX_VALUES: usize = 1 << 18;

/// Assembles a response from a vendor's events.
pub(crate) trait Assembler: EventSink {
    /// The response to this request, once its end was seen.
    fn into_response(self, request: &Request<'_>) -> Response;
}

/// After the last piece of the response, trailing events such as the token count come at once or never.
const TRAILING: Duration = Duration::from_secs(5);

/// Bytes without content that are read after the time for content is over.
const MAX_IDLE_BYTES: usize = 1 << 20;

/// A client of one model at one server.
#[derive(Debug)]
pub(crate) struct Client {
    http: Http,
    quirks: Quirks,
}

impl Client {
    pub(crate) fn new(http: Http, quirks: Quirks) -> Self {
        Self { http, quirks }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.http.endpoint()
    }

    /// The names of the server's models.
    pub(crate) async fn models(&self) -> Result<Vec<String>, Error> {
        self.http.models().await
    }

    /// Sends the body that `build` makes of the request, and assembles the response.
    pub(crate) async fn complete(
        &self,
        request: &Request<'_>,
        build: impl Fn() -> Map<String, Value>,
        assembler: impl Assembler,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let span = debug_span!(
            "model_call",
            model = self.endpoint().model,
            max_tokens = request.max_tokens,
            attempt = field::Empty,
            input_tokens = field::Empty,
            output_tokens = field::Empty,
            ms = field::Empty,
        );
        self.exchange(request, build, assembler, listener).instrument(span).await
    }

    async fn exchange(
        &self,
        request: &Request<'_>,
        build: impl Fn() -> Map<String, Value>,
        mut assembler: impl Assembler,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        if request.sampling.shape.is_some() {
            let message = "a server's responses cannot be constrained to a form".into();
            return Err(Error::Refused { status: 400, message });
        }
        let began = Instant::now();
        let answer = self.send(build, listener).await?;
        receive(&self.http, answer, &mut assembler).await?;
        let response = assembler.into_response(request);
        let span = Span::current();
        span.record("input_tokens", response.usage.input);
        span.record("output_tokens", response.usage.output);
        span.record("ms", u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        debug!(stop = ?response.stop, calls = response.message.calls.len(), "response complete");
        trace!(message = ?response.message, "response");
        Ok(response)
    }

    /// Sends the body, and again without each field the server refuses.
    async fn send(
        &self,
        build: impl Fn() -> Map<String, Value>,
        listener: &dyn Listener,
    ) -> Result<Answer<'_>, Error> {
        let Self { http, quirks } = self;
        let extra = &http.endpoint().extra_body;
        let mut attempt = 1;
        loop {
            Span::current().record("attempt", attempt);
            let mut body = build();
            let applied = quirks.apply(&mut body);
            wire::merge(&mut body, extra);
            let body = Value::Object(body);
            trace!(%body, "request");
            let refusal = match http.post(&body).await?.check_status().await {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };
            // Each attempt leaves out one field more, so this ends.
            let sent = body.as_object();
            let learned = sent.and_then(|sent| quirks.learn(&refusal, sent, &applied, extra));
            let Some(field) = learned else { return Err(http.error(&refusal)) };
            let why = format!("the server does not accept `{field}`; retrying without it");
            debug!(field, "request field refused, retrying without it");
            listener.on_delta(Delta::Retry { attempt, wait: Duration::ZERO, why: &why });
            attempt += 1;
        }
    }
}

/// Reads an answer to its end.
pub(crate) async fn receive(
    http: &Http,
    mut answer: Answer<'_>,
    assembler: &mut impl EventSink,
) -> Result<(), Error> {
    let silence = http.endpoint().silence;
    let mut body = AnswerBody::Unknown;
    let mut events = Vec::new();
    let mut last_content = Instant::now();
    let (max_bytes, mut bytes) = (assembler.max_bytes(), 0);
    // Those since `last_content`.
    let mut idle_bytes = 0;
    loop {
        let limit = if assembler.is_complete() { TRAILING.min(silence) } else { silence };
        let chunk = match answer.chunk(limit.saturating_sub(last_content.elapsed())).await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(_) if assembler.is_complete() => break,
            Err(error) => return Err(error),
        };
        // What has arrived already is read even if the time is over, but not without end.
        idle_bytes += chunk.len();
        if idle_bytes > MAX_IDLE_BYTES && last_content.elapsed() > limit {
            return match assembler.is_complete() {
                true => Ok(()),
                false => Err(Error::Silence(silence)),
            };
        }
        bytes += chunk.len();
        if bytes > max_bytes {
            let why = format!("it is longer than {max_bytes} bytes, too long for the request");
            return Err(Error::Protocol(why));
        }
        let is_begun = !matches!(body, AnswerBody::Unknown);
        body.push(&chunk, &mut events).map_err(|why| http.protocol_error(&why))?;
        // A document is sent when it is complete: the limit holds for all of it, not for each piece.
        if !is_begun && matches!(body, AnswerBody::Document(_)) {
            (last_content, idle_bytes) = (Instant::now(), 0);
        }
        // Comments and pings keep a connection open but carry no content.
        let has_content = events.iter().any(Event::has_content);
        let before = assembler.generated();
        for event in events.drain(..) {
            match take(http, &event, assembler)? {
                Progress::More => {}
                Progress::Cancel => return Ok(()),
                Progress::Done => {
                    answer.finish().await;
                    return check_end(assembler);
                }
            }
        }
        let is_progress = match (before, assembler.generated()) {
            (Some(before), Some(after)) => after > before,
            _ => has_content,
        };
        if is_progress {
            (last_content, idle_bytes) = (Instant::now(), 0);
        }
    }
    // What follows the end of the response may be cut off without harm.
    let complete = assembler.is_complete();
    let last = body.finish().map_or(Ok(Progress::More), |event| take(http, &event, assembler));
    match last {
        _ if complete => Ok(()),
        Ok(Progress::Cancel) => Ok(()),
        Ok(Progress::Done) => check_end(assembler),
        Ok(Progress::More) if assembler.is_complete() => Ok(()),
        Ok(Progress::More) => {
            Err(Error::Cut("the connection closed before the end of the response".into()))
        }
        Err(error) => Err(error),
    }
}

/// Some servers end a response without a reason. One that is also empty has failed.
fn check_end(assembler: &impl EventSink) -> Result<(), Error> {
    if assembler.is_empty() && !assembler.is_complete() {
        return Err(Error::Cut("the response ended before it began".into()));
    }
    Ok(())
}

/// What the server turned out to send.
enum AnswerBody {
    Unknown,
    Events(Decoder),
    Document(Vec<u8>),
}

impl AnswerBody {
    /// Takes the next bytes, or reports why they are not a response.
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

fn take(http: &Http, event: &Event, assembler: &mut impl EventSink) -> Result<Progress, Error> {
    let data = event.data.trim();
    if data == "[DONE]" {
        return Ok(Progress::Done);
    }
    if data.is_empty() {
        return Ok(Progress::More);
    }
    let most = assembler.max_values();
    if count_values(data.as_bytes(), most) > most {
        let why = format!("one event has more than {most} values, too many for the request");
        return Err(http.protocol_error(&why));
    }
    let failed = event.name == "error";
    let json: Value = match serde_json::from_str(data) {
        Ok(json) => json,
        Err(_) if failed => Value::String(data.to_owned()),
        Err(error) => {
            return Err(http.protocol_error(&format!("part of it is not JSON: {error}")));
        }
    };
    let reported = json.get("error").is_some_and(|error| !error.is_null());
    let flat = json.get("object").is_some_and(|object| object == "error");
    if failed || reported || flat {
        return Err(http.error(&Refusal::in_stream(&json)));
    }
    assembler.push(&json)
}
