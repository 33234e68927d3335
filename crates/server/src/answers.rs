//! Large answers: their memory is that of what is kept for clients, until they are sent.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use http_server::MemoryPermit;
use sandbox::RemoteRuntime;
use serde::Serialize;

use crate::{
    app::Server,
    error::{ApiError, Code, respond_text, respond_with},
    running::no_memory,
    tokens::Caller,
};

/// A shorter answer takes no more than its connection does.
const SMALL: usize = 64 << 10;

impl<R: RemoteRuntime> Server<R> {
    /// A JSON answer for a caller.
    pub(crate) fn answer(
        &self,
        caller: &Caller,
        value: &impl Serialize,
    ) -> Result<Response<Body>, ApiError> {
        answer(value, self.registry.memory_of(caller).permit())
    }
}

/// A JSON answer that takes no more memory than this permit, or as much as there is.
pub(crate) fn answer(
    value: &impl Serialize,
    mut permit: MemoryPermit,
) -> Result<Response<Body>, ApiError> {
    let text = serde_json::to_vec(value)
        .map_err(|error| ApiError::new(Code::Internal, error.to_string()))?;
    if text.len() <= SMALL {
        return Ok(respond_text(StatusCode::OK, text));
    }
    permit.grow(text.len()).ok_or_else(no_memory)?;
    permit.shrink(text.len());
    Ok(respond_with(text.into(), permit))
}

#[cfg(test)]
mod tests {
    use http_server::MemoryBudget;

    use super::*;

    #[tokio::test]
    async fn an_answer_holds_its_memory_until_it_is_sent() {
        let budget = MemoryBudget::new(1 << 20);
        let long = "x".repeat(600 << 10);
        let response = answer(&long, budget.permit()).unwrap();
        assert_eq!(answer(&long, budget.permit()).unwrap_err().code, Code::TooMany);
        assert!(answer(&"short", budget.permit()).is_ok());
        let sent = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        assert_eq!(sent.len(), long.len() + 2);
        // What was taken while it was made is given back.
        let mut permit = budget.permit();
        permit.grow(1 << 20).unwrap();
        let response = answer(&long, permit).unwrap();
        assert!(budget.permit().grow(300 << 10).is_some());
        drop(response);
        assert!(budget.permit().grow(1 << 20).is_some());
    }
}
