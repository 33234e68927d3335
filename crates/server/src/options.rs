//! [`ServeOptions`].

use std::{fmt, time::Duration};

use episodes::EpisodeOptions;
use http_server::{ConnectionLimits, Tls};
use sandbox::{ImageRef, Spec};

use crate::{ChatOptions, EnvironmentOptions, McpOptions, OperationOptions, PageRoutes, Tokens};

/// How sandboxes are served.
#[derive(Clone)]
pub struct ServeOptions {
    /// What clients send as API key. `None`, and no `tokens`: any key is accepted, which is fit for a loopback address only.
    pub api_key: Option<String>,
    /// Named tokens with quotas, besides `api_key`, which is the token `default`.
    pub tokens: Tokens,
    /// Audit log and readiness.
    pub operation: OperationOptions,
    /// Specification of new sandboxes; clients choose the image and variables.
    pub spec: Spec,
    /// The image of the template `base`.
    pub base: ImageRef,
    /// Most sandboxes at once.
    pub max_sandboxes: usize,
    /// Longest time a sandbox lives without being extended.
    pub max_lifetime: Duration,
    /// Longest time a sandbox stays paused. It keeps its memory meanwhile, and is removed afterwards.
    pub max_paused: Duration,
    /// Output of a program that is kept for clients that have not read it, in bytes.
    pub kept_output: usize,
    /// Memory for all that is kept for clients of all sandboxes: output, input and lists, in bytes. What does not fit is
    /// refused, or where it is output dropped or waited for.
    pub kept_memory: usize,
    /// Memory for the bodies of requests that are received or processed, in bytes. What does not fit is refused.
    pub body_memory: usize,
    /// Tasks that are served as environments.
    pub environments: Option<EnvironmentOptions>,
    /// The certificate. `None`: connections are not encrypted.
    pub tls: Option<Tls>,
    /// Episodes of a model. `None`: none are played.
    pub episodes: Option<EpisodeOptions>,
    /// What clients are told that need a model where there is none.
    pub no_model: String,
    /// OpenAI's protocol; `None` where it is not served.
    pub chat: Option<ChatOptions>,
    /// The page in the browser; `None` where there is none.
    pub page: Option<PageRoutes>,
    /// Sessions of the Model Context Protocol.
    pub mcp: McpOptions,
    /// How long the body of a request may take; uploads of files may take longer, as long as they do not pause so long.
    pub body_timeout: Duration,
    /// Limits of connections.
    pub connections: ConnectionLimits,
}

impl fmt::Debug for ServeOptions {
    /// Without the key and the variables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeOptions")
            .field("base", &self.base)
            .field("max_sandboxes", &self.max_sandboxes)
            .field("max_lifetime", &self.max_lifetime)
            .finish_non_exhaustive()
    }
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            api_key: None,
            tokens: Tokens::default(),
            operation: OperationOptions::default(),
            spec: Spec::default(),
            base: ImageRef::Host,
            max_sandboxes: 1000,
            max_lifetime: Duration::from_secs(24 * 3600),
            max_paused: Duration::from_secs(24 * 3600),
            kept_output: 4 << 20,
            kept_memory: 1 << 30,
            body_memory: 256 << 20,
            environments: None,
            tls: None,
            episodes: None,
            no_model: "this server has no model".into(),
            chat: None,
            page: None,
            mcp: McpOptions::default(),
            body_timeout: Duration::from_secs(60),
            connections: ConnectionLimits {
                max_connections: 4096,
                busy: r#"{"code":503,"message":"too many connections"}"#.into(),
                ..ConnectionLimits::default()
            },
        }
    }
}
