//! Response bodies that are read into memory, up to a limit.

use reqwest::Response;

/// A body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection failed.
    #[error("the connection failed while a response was read")]
    Transfer(#[source] reqwest::Error),
    /// The body exceeds the limit.
    #[error("the response is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: u64,
    },
}

/// Reads a whole body of at most `limit` bytes.
pub async fn read_body(mut response: Response, limit: u64) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Transfer)? {
        if (body.len() + chunk.len()) as u64 > limit {
            return Err(BodyError::TooLong { limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
