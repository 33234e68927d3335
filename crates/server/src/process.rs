//! The process service: starts programs, streams their output, and controls them.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Request, Response},
};
use bytes::{Buf, BytesMut};
use futures_util::{Stream, StreamExt};
use sandbox::{RemoteRuntime, RemoteSandbox};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    app::{DataRequest, Server},
    connect,
    error::ApiError,
    live::Live,
    output_log::{Piece, Reader},
    process_types::{
        ProcessInput, ProcessRequest, StartRequest, StreamInputRequest, data, end, keepalive,
        started,
    },
    running::{End, Running, Start, no_memory},
};

/// Where a client continues to read output.
const OFFSET: &str = "x-output-offset";

/// Answers a procedure of the service.
pub(crate) async fn call<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    to: DataRequest<R::Sandbox>,
    procedure: &str,
    request: Request<Body>,
) -> Response<Body> {
    let headers = request.headers().clone();
    match procedure {
        "Start" => start(server, &to, &headers, request).await.unwrap_or_else(failed),
        "Connect" => reconnect(server, &to, &headers, request).await.unwrap_or_else(failed),
        "StreamInput" => stream_input(&to, request).await.unwrap_or_else(failed),
        _ => connect::unary(control(server, &to, procedure, request).await),
    }
}

fn failed(error: ApiError) -> Response<Body> {
    connect::failed_stream(&error)
}

async fn start<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    to: &DataRequest<R::Sandbox>,
    headers: &HeaderMap,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let timeout = connect::deadline(headers)?;
    let (body, _permit) = server.receive_any(request).await?;
    let asked: StartRequest = connect::parse_first(&body)?;
    let user = to.live.user(to.user.as_deref()).await?;
    if let Some(cwd) = &asked.process.cwd {
        check_directory(&to.live, &user, cwd).await?;
    }
    let start = Start {
        config: asked.process,
        tag: asked.tag,
        terminal: asked.pty.map(|pty| pty.size()),
        // Clients that predate the field expect an open input.
        stdin: asked.stdin.unwrap_or(true),
        timeout,
        user,
    };
    // In a task of its own: the program runs even if its client disconnects now.
    let live = Arc::clone(&to.live);
    let starting = tokio::spawn(async move { Running::start(&live, start).await });
    let (running, reader) = starting.await??;
    Ok(follow(&to.live, running.pid, reader, timeout, connect::keepalive(headers)))
}

/// That a program can start in this directory.
async fn check_directory<S: RemoteSandbox>(
    live: &Live<S>,
    user: &crate::users::User,
    cwd: &str,
) -> Result<(), ApiError> {
    let path = user.resolve(cwd);
    let operation = sandbox::FileOperation::Describe(path.clone());
    let found = live.file_operation(&user.identity, &operation).await;
    let is_directory = found.is_ok_and(|infos| {
        infos.first().is_some_and(|info| info.kind == sandbox::EntryKind::Directory)
    });
    match is_directory {
        true => Ok(()),
        false => Err(ApiError::invalid(format!("cwd '{}' does not exist", path.display()))),
    }
}

async fn reconnect<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    to: &DataRequest<R::Sandbox>,
    headers: &HeaderMap,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let offset = match headers.get(OFFSET) {
        None => None,
        Some(value) => {
            let offset = value.to_str().ok().and_then(|text| text.parse().ok());
            let message = format!("the header {OFFSET} has no number of bytes");
            Some(offset.ok_or_else(|| ApiError::invalid(message))?)
        }
    };
    let timeout = connect::deadline(headers)?;
    let (body, _permit) = server.receive_any(request).await?;
    let asked: ProcessRequest = connect::parse_first(&body)?;
    let running = to.live.programs.find(&asked.process)?;
    let reader = Reader::new(&running.log, offset);
    let at = reader.start;
    let keepalive = connect::keepalive(headers);
    let mut response = follow(&to.live, running.pid, reader, timeout, keepalive);
    response.headers_mut().insert(OFFSET, HeaderValue::from(at));
    Ok(response)
}

/// Streams the output of a program and its end. The client's deadline ends the stream, the sandbox's end cuts it.
fn follow<S: RemoteSandbox>(
    live: &Arc<Live<S>>,
    pid: u32,
    reader: Reader<End>,
    deadline: Option<Duration>,
    keepalive: Duration,
) -> Response<Body> {
    let first = connect::message(&started(pid));
    let until = deadline.map(|limit| tokio::time::Instant::now() + limit);
    let events = futures_util::stream::once(async move { Ok(first) });
    let end = live.end();
    let rest = futures_util::stream::unfold(Some(reader), move |reader| {
        let mut end = end.clone();
        async move {
            let mut reader = reader?;
            tokio::select! {
                // The deadline first: there may always be more output.
                biased;
                over = connect::reached(until) => Some((Ok(over), None)),
                piece = timeout(keepalive, reader.next()) => Some(match piece {
                    Err(_) => (Ok(connect::message(&self::keepalive())), Some(reader)),
                    Ok(Some(Piece::Output(stream, bytes))) => {
                        (Ok(connect::message(&data(stream, &bytes))), Some(reader))
                    }
                    Ok(Some(Piece::End(exit))) => (last(&exit).or_else(|why| connect::cut(&end, why)), None),
                    Ok(None) => (Ok(connect::end(None)), None),
                }),
                () = end.wait() => Some((connect::cut(&end, io::Error::other(ENDED)), None)),
            }
        }
    });
    connect::stream(events.chain(rest))
}

const ENDED: &str = "the sandbox has ended";

/// The last messages of a program that ended. One that ended with its sandbox has no end of its own.
fn last(exit: &End) -> io::Result<Bytes> {
    let bytes = match exit {
        Ok(exit) if exit.status == sandbox::Status::TimedOut => {
            let message = "the time limit of the program was reached";
            let error = ApiError::new(crate::error::Code::DeadlineExceeded, message);
            connect::end(Some(&error))
        }
        Ok(_) => {
            [connect::message(&end(exit)).as_ref(), connect::end(None).as_ref()].concat().into()
        }
        Err(why) => return Err(io::Error::other(why.clone())),
    };
    Ok(bytes)
}

/// The procedures with one message each way.
async fn control<R: RemoteRuntime>(
    server: &Arc<Server<R>>,
    to: &DataRequest<R::Sandbox>,
    procedure: &str,
    request: Request<Body>,
) -> Result<Value, ApiError> {
    let (body, _permit) = server.receive(request).await?;
    let programs = &to.live.programs;
    if procedure == "List" {
        let list = programs.list();
        let list = list.iter().map(|running| {
            let mut value = json!({ "config": running.config, "pid": running.pid });
            if let Some(tag) = &running.tag {
                value["tag"] = json!(tag);
            }
            value
        });
        return Ok(json!({ "processes": list.collect::<Vec<_>>() }));
    }
    let asked: ProcessRequest = connect::parse(&body)?;
    let find = || programs.find_running(&asked.process);
    match procedure {
        "Update" => {
            if let Some(pty) = asked.pty {
                find()?.resize(pty.size())?;
            }
        }
        "SendInput" => {
            let running = find()?;
            let input = asked.input.unwrap_or_default();
            to.live.unless_closed(send_input(&running, input)).await?;
        }
        "SendSignal" => {
            let signal = asked.signal.as_ref().and_then(|signal| signal.number());
            let message = "the signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL";
            let signal = signal.ok_or_else(|| ApiError::invalid(message))?;
            find()?.signal(signal).await;
        }
        "CloseStdin" => find()?.close_input()?,
        other => {
            let message = format!("the process service has no procedure {other}");
            return Err(ApiError::new(crate::error::Code::Unsupported, message));
        }
    }
    Ok(json!({}))
}

/// Sends input to a program with or without a terminal, each by its own name.
async fn send_input(running: &Running, input: ProcessInput) -> Result<(), ApiError> {
    let bytes = match (input.stdin, input.pty, running.has_terminal()) {
        (Some(bytes), None, false) | (None, Some(bytes), true) => bytes,
        (Some(_), _, true) => return Err(ApiError::invalid("the program has a terminal")),
        (_, Some(_), false) => return Err(ApiError::invalid("the program has no terminal")),
        (None, None, _) => {
            return Err(ApiError::invalid("the input has no data"));
        }
    };
    running.send(bytes).await
}

/// Most bytes of one message of an input stream.
const MAX_INPUT: usize = 4 << 20;

/// Sends a stream of messages to one program, in order.
async fn stream_input<S: RemoteSandbox>(
    to: &DataRequest<S>,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let mut running: Option<Arc<Running>> = None;
    let mut waiting = BytesMut::new();
    let mut permit = to.live.memory.permit();
    let mut body = std::pin::pin!(read(request));
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        permit.grow(waiting.len() + chunk.len()).ok_or_else(no_memory)?;
        waiting.extend_from_slice(&chunk);
        while let Some((message, rest)) = connect::split(&waiting)? {
            let left = rest.len();
            let message: StreamInputRequest = connect::parse(message)?;
            if let Some(start) = message.start {
                running = Some(to.live.programs.find_running(&start.process)?);
            }
            if let Some(data) = message.data {
                let first = || ApiError::invalid("the first message must name the process");
                let running = running.as_ref().ok_or_else(first)?;
                to.live.unless_closed(send_input(running, data.input)).await?;
            }
            waiting.advance(waiting.len() - left);
        }
        if waiting.len() > MAX_INPUT {
            let message = format!("a message is longer than {MAX_INPUT} bytes");
            return Err(ApiError::new(crate::error::Code::TooLarge, message));
        }
    }
    let answer = [connect::message(&json!({})), connect::end(None)];
    Ok(connect::stream(futures_util::stream::iter(answer.map(Ok))))
}

fn read(request: Request<Body>) -> impl Stream<Item = Result<Bytes, ApiError>> {
    let body = request.into_body().into_data_stream();
    body.map(|chunk| chunk.map_err(|_| ApiError::invalid("the body was cut off")))
}
