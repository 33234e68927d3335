//! Messages of the process service, as JSON.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use sandbox::{Exit, Status, TerminalSize};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::output_log::Stream;

/// A program with its arguments.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ProcessConfig {
    pub(crate) cmd: String,
    pub(crate) args: Vec<String>,
    pub(crate) envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StartRequest {
    pub(crate) process: ProcessConfig,
    pub(crate) pty: Option<Pty>,
    pub(crate) tag: Option<String>,
    pub(crate) stdin: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pty {
    pub(crate) size: Option<PtySize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PtySize {
    cols: u16,
    rows: u16,
}

impl Pty {
    pub(crate) fn size(self) -> TerminalSize {
        let size = self.size.unwrap_or_default();
        let or = |value, default| if value == 0 { default } else { value };
        TerminalSize { rows: or(size.rows, 24), cols: or(size.cols, 80) }
    }
}

/// A running program, by number or by tag.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Selector {
    pub(crate) pid: Option<u32>,
    pub(crate) tag: Option<String>,
}

/// Requests that concern one running program.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessRequest {
    pub(crate) process: Selector,
    pub(crate) input: Option<ProcessInput>,
    pub(crate) pty: Option<Pty>,
    pub(crate) signal: Option<SignalName>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessInput {
    #[serde(deserialize_with = "base64_bytes")]
    pub(crate) stdin: Option<Bytes>,
    #[serde(deserialize_with = "base64_bytes")]
    pub(crate) pty: Option<Bytes>,
}

/// A message of an input stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamInputRequest {
    pub(crate) start: Option<ProcessRequest>,
    pub(crate) data: Option<InputData>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct InputData {
    pub(crate) input: ProcessInput,
}

/// A signal: enumerations arrive as names or numbers.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum SignalName {
    Name(String),
    Number(i32),
}

impl SignalName {
    /// Its number, if the protocol has it.
    pub(crate) fn number(&self) -> Option<i32> {
        match self {
            Self::Name(name) if name == "SIGNAL_SIGTERM" => Some(15),
            Self::Name(name) if name == "SIGNAL_SIGKILL" => Some(9),
            Self::Number(number @ (9 | 15)) => Some(*number),
            _ => None,
        }
    }
}

fn base64_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    // Both alphabets, with or without padding, as the JSON format of protocol buffers asks for.
    let text = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    let bytes = base64::prelude::BASE64_STANDARD_NO_PAD.decode(text);
    bytes.map(|bytes| Some(bytes.into())).map_err(serde::de::Error::custom)
}

/// An event of a running program.
pub(crate) fn started(pid: u32) -> Value {
    json!({ "event": { "start": { "pid": pid } } })
}

/// Output.
pub(crate) fn data(stream: Stream, bytes: &[u8]) -> Value {
    let text = BASE64_STANDARD.encode(bytes);
    let data = match stream {
        Stream::Stdout => json!({ "stdout": text }),
        Stream::Stderr => json!({ "stderr": text }),
        Stream::Terminal => json!({ "pty": text }),
    };
    json!({ "event": { "data": data } })
}

/// A sign of life.
pub(crate) fn keepalive() -> Value {
    json!({ "event": { "keepalive": {} } })
}

/// The end of a program, or why it could not run.
pub(crate) fn end(exit: &Result<Exit, String>) -> Value {
    let (code, exited, status) = match exit {
        Ok(Exit { status: Status::Exited(code), .. }) => {
            (*code, true, format!("exit status {code}"))
        }
        Ok(Exit { status: Status::Signaled(number), .. }) => {
            (-1, false, format!("signal: {}", signal_name(*number)))
        }
        Ok(Exit { status: Status::TimedOut, .. }) => (-1, false, "signal: killed".to_owned()),
        Err(why) => (-1, false, why.clone()),
    };
    let mut event = json!({ "exitCode": code, "exited": exited, "status": status });
    if code != 0 {
        event["error"] = Value::String(status);
    }
    json!({ "event": { "end": event } })
}

/// A signal's name as the original service writes it.
fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        6 => "aborted",
        8 => "floating point exception",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
