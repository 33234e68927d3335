//! What operators ask a server: whether it lives, whether it can make sandboxes, and what it counted.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use episodes::DirectoryLock;
use sandbox::{ByteSize, RemoteRuntime};
use serde_json::json;

use crate::{
    app::Server,
    audit::{Audit, FILE_BYTES},
    error::respond,
    metrics::Gauges,
};

/// How the server is operated.
#[derive(Clone, Debug)]
pub struct OperationOptions {
    /// The directory of the audit log, which exists. `None`: there is none.
    pub audit: Option<PathBuf>,
    /// The server's directory, for the owners of snapshots. `None`: they are forgotten when it ends.
    pub data: Option<DataDirectory>,
    /// Bytes of one file of the audit log; four older ones are kept.
    pub audit_bytes: u64,
    /// The directory with the sandboxes' files, whose free space the readiness check looks at.
    pub sandbox_files: Option<PathBuf>,
}

/// The directory of a server, which no other server uses at the same time. Clones are the same.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    path: PathBuf,
    _lock: Arc<DirectoryLock>,
}

impl DataDirectory {
    /// Locks a directory until the last clone is dropped, creating it for this user alone where necessary.
    ///
    /// # Errors
    /// [`episodes::Error::InUse`] if another server uses it.
    pub fn open(path: PathBuf) -> Result<Self, episodes::Error> {
        Ok(Self { _lock: Arc::new(DirectoryLock::acquire(&path)?), path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Default for OperationOptions {
    fn default() -> Self {
        Self { audit: None, data: None, audit_bytes: FILE_BYTES, sandbox_files: None }
    }
}

impl OperationOptions {
    pub(crate) fn open_audit(&self) -> std::io::Result<Option<Audit>> {
        self.audit.as_ref().map(|dir| Audit::open(dir, self.audit_bytes)).transpose()
    }
}

/// The server answers.
pub(crate) fn health() -> Response<Body> {
    respond(StatusCode::OK, &json!({ "status": "ok" }))
}

/// Whether a sandbox could be created now, and if not, why.
pub(crate) fn ready<R: RemoteRuntime>(server: &Server<R>) -> Response<Body> {
    let registry = &server.registry;
    let mut reasons = Vec::new();
    if registry.is_closing() {
        reasons.push("the server is shutting down".to_owned());
    }
    let left = registry.places_left();
    if left == 0 {
        let most = registry.options.max_sandboxes;
        reasons.push(format!("there are {most} sandboxes, as many as there may be"));
    }
    if let Some(directory) = &registry.options.operation.sandbox_files {
        reasons.extend(shortage(directory, registry.options.spec.disk_reserve));
    }
    // Sandboxes can be created, so this alone does not take the server out of service.
    let mut warnings = Vec::new();
    if let Some(audit) = server.audit.as_ref().filter(|audit| audit.is_failing()) {
        let lost = audit.lost();
        warnings.push(format!("the audit log cannot be written; {lost} lines were lost"));
    }
    let (status, ready) = match reasons.is_empty() {
        true => (StatusCode::OK, true),
        false => (StatusCode::SERVICE_UNAVAILABLE, false),
    };
    let body = json!({
        "ready": ready, "reasons": reasons, "warnings": warnings, "sandboxes_left": left,
    });
    respond(status, &body)
}

/// The automatic reserve is the lesser of this and a hundredth of the file system, as for sandboxes.
const MOST_RESERVE: u64 = 1 << 30;

fn shortage(directory: &std::path::Path, reserve: Option<ByteSize>) -> Option<String> {
    let stat = match rustix::fs::statvfs(directory) {
        Ok(stat) => stat,
        Err(error) => return Some(format!("the sandboxes' files cannot be stored: {error}")),
    };
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let automatic = (bytes(stat.f_blocks) / 100).min(MOST_RESERVE);
    let reserve = reserve.map_or(automatic, ByteSize::bytes);
    let left = bytes(stat.f_bavail);
    (left < reserve).then(|| {
        format!("the disk has {} MiB left, and {} MiB have to stay free", left >> 20, reserve >> 20)
    })
}

/// The metrics in Prometheus' format.
pub(crate) fn metrics<R: RemoteRuntime>(server: &Server<R>) -> Response<Body> {
    let registry = &server.registry;
    let max_sandboxes = registry.options.max_sandboxes.max(1);
    let text = registry.metrics.encode(Gauges {
        sandboxes: max_sandboxes.saturating_sub(registry.places_left()),
        max_sandboxes,
        audit_lost: server.audit.as_ref().map_or(0, Audit::lost),
    });
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
