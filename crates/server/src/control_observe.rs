//! Requests of the control plane about what sandboxes use and did, and which templates there are.

use std::collections::BTreeSet;

use axum::{
    body::Body,
    extract::{Extension, Path, Query, State},
    http::{Request, StatusCode},
};
use sandbox::RemoteRuntime;
use serde_json::{Map, Value, json};

use crate::{
    app::Server,
    control::{Answer, By, Shared, body, found, no_content},
    error::{ApiError, Code, respond},
    network::NetworkRequest,
    sandbox_log::{LogEntry, LogQuery},
    tokens::Caller,
};

type Pairs = Vec<(String, String)>;

/// The samples of one sandbox.
pub(crate) async fn metrics<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    Query(query): Query<Pairs>,
) -> Answer {
    let second = |name: &str, default: u64| {
        let Some((_, value)) = query.iter().find(|(key, _)| key == name) else {
            return Ok(default);
        };
        let message = format!("`{name}` is not a time in seconds since 1970");
        value.parse::<u64>().map_err(|_| ApiError::invalid(message))
    };
    let (start, end) = (second("start", 0)?, second("end", u64::MAX)?);
    if start > end {
        return Err(ApiError::invalid("`start` is later than `end`"));
    }
    let samples = found(&server, &caller, &id)?.metrics(start, end).await?;
    Ok(respond(StatusCode::OK, &Value::Array(samples)))
}

/// Most sandboxes of one request.
const MAX_IDS: usize = 100;

/// The last sample of each of several sandboxes. Unknown ones are left out.
pub(crate) async fn all_metrics<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Query(query): Query<Pairs>,
) -> Answer {
    let ids = query.iter().filter(|(name, _)| name == "sandbox_ids");
    let ids: BTreeSet<&str> =
        ids.flat_map(|(_, ids)| ids.split(',')).filter(|id| !id.is_empty()).collect();
    if ids.is_empty() || ids.len() > MAX_IDS {
        let message = format!("`sandbox_ids` must have 1 to {MAX_IDS} ids, separated by commas");
        return Err(ApiError::invalid(message));
    }
    let mut all = Map::new();
    for id in ids {
        let Some(live) = server.registry.find_of(&caller, id) else { continue };
        // One that ends meanwhile is left out like one that is unknown.
        let samples = live.metrics(0, u64::MAX).await.unwrap_or_default();
        if let Some(last) = samples.into_iter().next_back() {
            all.insert(id.to_owned(), last);
        }
    }
    Ok(respond(StatusCode::OK, &json!({ "sandboxes": all })))
}

/// The log of a sandbox, in both shapes of the first version.
pub(crate) async fn logs<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    Query(query): Query<Pairs>,
) -> Answer {
    let entries = selected(&server, &caller, &id, &query)?;
    let lines: Vec<_> = entries.iter().map(LogEntry::line).collect();
    let structured: Vec<_> = entries.iter().map(LogEntry::structured).collect();
    Ok(respond(StatusCode::OK, &json!({ "logs": lines, "logEntries": structured })))
}

/// The log of a sandbox, in the shape of the second version.
pub(crate) async fn logs_second<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    Query(query): Query<Pairs>,
) -> Answer {
    let entries = selected(&server, &caller, &id, &query)?;
    let structured: Vec<_> = entries.iter().map(LogEntry::structured).collect();
    Ok(respond(StatusCode::OK, &json!({ "logs": structured })))
}

fn selected<R: RemoteRuntime>(
    server: &Server<R>,
    caller: &Caller,
    id: &str,
    query: &[(String, String)],
) -> Result<Vec<LogEntry>, ApiError> {
    let query = LogQuery::parse(query)?;
    Ok(found(server, caller, id)?.log.select(&query))
}

/// Changes the network of a running sandbox: to what it has already, as no sandbox can change it.
pub(crate) async fn set_network<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Answer {
    let asked: NetworkRequest = body(&server, request).await?;
    let live = found(&server, &caller, &id)?;
    let wanted = asked.policy(None, &server.registry.options.spec.network)?;
    match wanted == live.spec.network {
        true => Ok(no_content()),
        false => {
            let message = "this server cannot change the network of a running sandbox; set \
                           `network` when creating it";
            Err(ApiError::new(Code::Unsupported, message))
        }
    }
}

/// Whether a template exists.
pub(crate) async fn template_alias<R: RemoteRuntime>(
    State(server): Shared<R>,
    Extension(caller): By,
    Path(alias): Path<String>,
) -> Answer {
    match server.registry.has_template(&caller, &alias).await? {
        true => Ok(respond(StatusCode::OK, &json!({ "templateID": alias, "public": false }))),
        false => Err(ApiError::not_found(format!("template '{alias}' not found"))),
    }
}
