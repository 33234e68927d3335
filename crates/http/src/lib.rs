//! The HTTP client of the workspace: one place that decides on TLS, timeouts, redirects, proxies and the user agent,
//! and that bounds what is read.
//!
//! Start with [`ClientSettings`]. Everything else of an exchange is plain `reqwest`, re-exported here so that no other
//! crate has to choose its features. Reads no environment itself; `reqwest` applies the system's proxy settings.
//!
//! ```
//! use lis_http::{ClientSettings, Transport};
//!
//! let client = ClientSettings { transport: Transport::Loopback, ..ClientSettings::default() }.build()?;
//! let request = client.get("http://127.0.0.1:8080/v1/models").build()?;
//! assert_eq!(request.url().path(), "/v1/models");
//! # Ok::<(), lis_http::Error>(())
//! ```

mod body;
mod client;
mod range;

pub use body::{BodyError, read_body};
pub use client::{ClientSettings, Transport, is_loopback};
pub use range::{RangeResponse, range_response};
pub use reqwest::{Client, Error, Response, StatusCode, Url, header};
