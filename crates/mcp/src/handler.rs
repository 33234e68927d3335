//! Answers the requests of a session: which tools there are, and calls to them.

use std::{borrow::Cow, sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode,
        Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
        ProgressToken, ProtocolVersion, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::{SandboxSource, Session, session::CallError, tools::infrastructure_failure};

/// The versions of the protocol that are served: those with sessions, which later ones do not have.
pub const VERSIONS: &[ProtocolVersion] = &[
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
];

/// How often a client that wants to know hears that its call still runs.
const PROGRESS: Duration = Duration::from_secs(3);

const INSTRUCTIONS: &str = "The tools work on one Linux computer of this session. It starts with the first tool call, \
     keeps its files and its shell from call to call, and is deleted with the session: transfer what you need with \
     read_file before.";

/// Whether a version of the protocol is served.
pub fn is_supported(version: &str) -> bool {
    VERSIONS.iter().any(|known| known.as_str() == version)
}

/// Answers requests.
#[derive(Debug)]
pub(crate) struct Handler<P: SandboxSource>(pub(crate) Arc<Session<P>>);

impl<P: SandboxSource> ServerHandler for Handler<P> {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
            .with_server_info(Implementation::new("llm-in-sandbox", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(VERSIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.list().to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = &*request.name;
        if !self.0.list().iter().any(|tool| tool.name == name) {
            let name: String = name.chars().take(100).collect();
            return Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None));
        }
        let arguments = request.arguments.unwrap_or_default();
        let calling = self.0.call(name, arguments, &context.ct);
        let done = match context.meta.get_progress_token() {
            Some(token) => tokio::select! {
                done = calling => done,
                never = report(&context, token) => match never {},
            },
            None => calling.await,
        };
        match done {
            Ok(result) => Ok(result.into()),
            Err(error @ CallError::TooMany) => {
                Ok(infrastructure_failure(format!("Nothing was done: {error}.")).into())
            }
            Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
        }
    }

    /// Requests that are not of the protocol, or whose parameters do not have its form.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(100).collect();
        Err(match method.as_str() {
            "initialize" | "ping" | "tools/list" | "tools/call" => {
                let message = format!("the parameters of {method} do not have the protocol's form");
                ErrorData::invalid_params(message, None)
            }
            _ => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no {method}"), None),
        })
    }
}

/// Tells the client now and then that its call still runs, in seconds since it began.
async fn report(
    context: &RequestContext<RoleServer>,
    token: ProgressToken,
) -> std::convert::Infallible {
    let begun = Instant::now();
    let mut ticks = interval_at(begun + PROGRESS, PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let seconds = begun.elapsed().as_secs_f64().floor();
        let progress = ProgressNotificationParam::new(token.clone(), seconds)
            .with_message(format!("running for {seconds} s"));
        // A client that is gone is noticed elsewhere.
        let _ = context.peer.notify_progress(progress).await;
    }
}
