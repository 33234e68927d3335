//! `POST /v1/chat/completions`: from the body to the reply.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use model::{Model, Sampling};
use trajectory::Message;

use crate::{
    Served, Sight,
    answer::Heading,
    app::{App, json},
    body,
    failure::Failure,
    generation::{Generation, broken},
    hold::Calls,
    question::{Delivery, Question, question},
    stream,
};

/// Answers one request. Whoever hangs up drops this, and with it the generation.
pub(crate) async fn complete<M: Model>(
    State(app): State<Arc<App<M>>>,
    request: Request,
) -> Result<Response<Body>, Failure> {
    let (body, room) = body::receive(request, &app.options, &app.admission).await?;
    // A long body takes a while, and others' words are not to wait for it. Its room goes along: it is taken for as long
    // as the body is there, even where the client has hung up.
    let reading = tokio::task::spawn_blocking(move || (question(&body), room));
    let (question, room) = reading.await.map_err(|_| broken())?;
    let mut question = question?;
    let which = app.find(&question.model)?;
    let served = app.models.get(which).ok_or_else(|| unknown(&question.model))?;
    if served.sight == Sight::Blind && question.messages.iter().any(shows) {
        return Err(Failure::field("messages", "this model cannot look at pictures"));
    }
    let heading = Heading::new(named(served, &question));
    question.sampling = over(question.sampling, &served.sampling);
    let calls = if question.tools.is_empty() { Calls::Impossible } else { Calls::Possible };
    let delivery = question.delivery;
    let place = app.admission.place(room)?;
    let generation = Generation::start(app.models.clone(), which, question, place);
    match delivery {
        Delivery::Whole => Ok(json(&heading.whole(&generation.done().await?))),
        Delivery::Stream(usage) => {
            stream::respond(generation, heading, calls, usage, app.options.heartbeat).await
        }
    }
}

fn shows(message: &Message) -> bool {
    let content = match message {
        Message::User { content } => content,
        Message::Tool(result) => &result.content,
        Message::System { .. } | Message::Assistant(_) => return false,
    };
    content.iter().any(|part| part.as_text().is_none())
}

/// No model has this name.
pub(crate) fn unknown(name: &str) -> Failure {
    let message = format!("no model is called {name:?}; GET /v1/models lists them");
    let failure = Failure::field("model", message).code("model_not_found");
    failure.status(StatusCode::NOT_FOUND)
}

/// Clients get back the name they asked for.
fn named<'a, M>(served: &'a Served<M>, question: &'a Question) -> &'a str {
    let listed = served.names.first().map_or("", String::as_str);
    if question.model.is_empty() { listed } else { &question.model }
}

/// What the client wants, and where it does not say, what the server has set.
fn over(asked: Sampling, set: &Sampling) -> Sampling {
    let stop = if asked.stop.is_empty() { set.stop.clone() } else { asked.stop };
    Sampling {
        temperature: asked.temperature.or(set.temperature),
        top_p: asked.top_p.or(set.top_p),
        top_k: asked.top_k.or(set.top_k),
        min_p: asked.min_p.or(set.min_p),
        repetition_penalty: asked.repetition_penalty.or(set.repetition_penalty),
        seed: asked.seed.or(set.seed),
        stop,
        ..set.clone()
    }
}
