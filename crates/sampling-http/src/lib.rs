//! A token sampler behind an inference server: [`HttpSampler`] implements [`sampling::Sampler`] over HTTP, with token ids
//! in and out.
//!
//! Start reading at `sampler.rs`. `body.rs` writes requests and `events.rs` reads answers in both protocols; `collect.rs`
//! checks every token before it becomes part of a sample. Connections, retries and errors are those of `lis-model`.
//! Knows no text, no chat template and no episode.
//!
//! ```no_run
//! use lis_sampling_http::{HttpSampler, ServerSettings};
//! use model::Endpoint;
//! use sampling::Sampler;
//!
//! # async fn example() -> Result<(), lis_sampling_http::ConnectError> {
//! let endpoint = Endpoint::new("qwen", "http://localhost:8000/v1");
//! let sampler = HttpSampler::connect(ServerSettings::new(endpoint, 151_936)).await?;
//! println!("up to {} tokens", sampler.context());
//! # Ok(())
//! # }
//! ```

mod body;
mod collect;
mod events;
mod sampler;
mod settings;

pub use collect::InvalidResponse;
pub use sampler::{ConnectError, HttpSampler, ServerError};
pub use settings::{Api, LogprobsKind, ServerSettings};
