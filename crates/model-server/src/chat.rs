//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use model::Model;
use openai_wire::{
    ApiError, CompletionHeader,
    parameters::{Delivery, with_defaults},
};
use trajectory::Message;

use crate::{
    Images, Served,
    app::{App, json},
    chat_request::{ChatRequest, parse},
    generation::Generation,
    holdback::Calls,
    stream,
};

/// Handles one request. Dropped when the client disconnects, which stops the generation.
pub(crate) async fn complete<M: Model>(
    State(app): State<Arc<App<M>>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let (mut chat, permit) = app.read(request, parse).await?;
    let which = app.find(&chat.model)?;
    let served = app.models.get(which).ok_or_else(|| unknown(&chat.model))?;
    if served.images == Images::Refused && chat.messages.iter().any(has_image) {
        return Err(ApiError::field("messages", "this model does not accept images"));
    }
    let header = CompletionHeader::new(named(served, &chat));
    chat.sampling = with_defaults(chat.sampling, &served.sampling);
    let calls = if chat.tools.is_empty() { Calls::Impossible } else { Calls::Possible };
    let delivery = chat.delivery;
    let slot = app.admission.enqueue(permit)?;
    let generation = Generation::start(app.models.clone(), which, chat, slot);
    match delivery {
        Delivery::Whole => Ok(json(&header.complete(&generation.done().await?))),
        Delivery::Stream(usage) => {
            stream::respond(generation, header, calls, usage, app.options.heartbeat).await
        }
    }
}

fn has_image(message: &Message) -> bool {
    let content = match message {
        Message::User { content } => content,
        Message::Tool(result) => &result.content,
        Message::System { .. } | Message::Assistant(_) => return false,
    };
    content.iter().any(|part| part.as_text().is_none())
}

/// The error for an unknown model.
pub(crate) fn unknown(name: &str) -> ApiError {
    let message = format!("unknown model {name:?}; GET /v1/models lists the available ones");
    let failure = ApiError::field("model", message).code("model_not_found");
    failure.with_status(StatusCode::NOT_FOUND)
}

/// The name the client used, or the model's own.
fn named<'a, M>(served: &'a Served<M>, chat: &'a ChatRequest) -> &'a str {
    let listed = served.names.first().map_or("", String::as_str);
    if chat.model.is_empty() { listed } else { &chat.model }
}
