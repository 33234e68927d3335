//! One connection: a welcome, a request, an answer.

use std::{io, time::Duration};

use sandbox::Runtime;
use tokio::{
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

use super::{Server, exec};
use crate::{
    frame::{self, Frame, Kind, invalid},
    message::{PROTOCOL, Request, Response, Welcome},
};

/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves a connection to its end. An error means that the client is gone or does not follow the protocol.
pub(super) async fn serve<R: Runtime>(stream: UnixStream, server: &Server<R>) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let welcome = Welcome {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        sandboxes: server.registry.count(),
    };
    frame::write(&mut writer, &Frame::message(&welcome)?).await?;
    let Ok(request) = timeout(REQUEST_TIMEOUT, frame::read(&mut reader)).await else {
        return Err(invalid("a client that sent no request"));
    };
    let Some(request) = request? else { return Ok(()) };
    let request = request.parse()?;
    let _permit = server.requests.acquire().await;
    match request {
        Request::Exec(request) => exec::run(server, request, reader, writer).await,
        Request::Write { name, path } => {
            let Some(contents) = receive_file(&mut reader).await? else { return Ok(()) };
            answer(reader, &mut writer, server.write(&name, path, contents)).await
        }
        Request::Read { name, path } => server.read(&name, path, reader, writer).await,
        Request::Shell { name, script, timeout } => {
            server.shell(&name, script, timeout, reader, writer).await
        }
        request => answer(reader, &mut writer, server.answer(request)).await,
    }
}

/// Sends the answer of an operation, which is cancelled if the client goes away.
async fn answer(
    reader: OwnedReadHalf,
    writer: &mut OwnedWriteHalf,
    operation: impl Future<Output = Response>,
) -> io::Result<()> {
    tokio::select! {
        response = operation => frame::write(writer, &Frame::message(&response)?).await,
        gone = hang_up(reader) => gone,
    }
}

/// Completes when the client goes away, or sends what nobody asked for.
pub(super) async fn hang_up(mut reader: OwnedReadHalf) -> io::Result<()> {
    match frame::read(&mut reader).await? {
        None => Ok(()),
        Some(frame) => Err(invalid(format!("an unexpected frame of the kind {:?}", frame.kind))),
    }
}

/// Receives the content of a file; `None` if the client goes away.
async fn receive_file(reader: &mut OwnedReadHalf) -> io::Result<Option<Vec<u8>>> {
    let mut contents = Vec::new();
    while let Some(frame) = frame::read(reader).await? {
        match frame.kind {
            Kind::Input if frame.bytes.is_empty() => return Ok(Some(contents)),
            Kind::Input => contents.extend_from_slice(&frame.bytes),
            other => return Err(invalid(format!("an unexpected frame of the kind {other:?}"))),
        }
        if contents.len() > crate::client::MAX_FILE {
            return Err(invalid("a file that is too large"));
        }
    }
    Ok(None)
}
