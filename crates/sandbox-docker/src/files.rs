//! Reads, writes and lists files of a container by scripts that run in it, so that links, mounts and permissions are those
//! that a process inside sees.

use std::{
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bollard::container::LogOutput;
use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt};
use sandbox::{Entry, EntryKind, Error, Input};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::{
    exec::{Console, Running, StopOnDrop},
    failure::{self, during},
    names,
    sandbox_impl::Inner,
};

/// Exit code of the scripts below where the path is at fault.
const REFUSED: i32 = 90;
/// Likewise, where nothing is at the path.
const MISSING: i32 = 91;

/// Most bytes of an error message that are kept.
const MAX_MESSAGE: usize = 16 << 10;
/// Longest listing of a directory in bytes. The caller holds it in memory.
const MAX_LISTING: usize = 4 << 20;

const REFUSE: &str = r#"refuse() { printf %s "$1" >&2; exit 90; }
missing() { [[ -L $p ]] && refuse 'the link leads nowhere'; printf %s 'there is no such file or directory' >&2; exit 91; }
"#;

const READ: &str = r#"[[ -e $p ]] || missing
[[ -d $p ]] && refuse 'it is a directory'
[[ -f $p ]] || refuse 'it is not a regular file'
printf + >&2
exec cat -- "$p""#;

const WRITE: &str = r#"umask 022
if [[ -L $p ]]; then q=$(readlink -m -- "$p"; printf x); p=${q%?x}; fi
[[ -d $p ]] && refuse 'it is a directory'
[[ ! -e $p || -f $p ]] || refuse 'it is not a regular file'
d=${p%/*}
if [[ $d == "$p" ]]; then d=.; elif [[ -z $d ]]; then d=/; fi
if [[ ! -d $d ]]; then w=$(mkdir -p -- "$d" 2>&1) || refuse "$w"; fi
t=$d/$t
trap 'rm -f -- "$t"' EXIT
cat >"$t" || exit 91
[[ $(stat -c %s -- "$t") == "$n" ]] || exit 92
if [[ -e $p ]]; then chmod --reference="$p" -- "$t" && chown --reference="$p" -- "$t" || exit 91; fi
mv -fT -- "$t" "$p" || exit 91"#;

const LIST: &str = r#"[[ -e $p ]] || missing
[[ -d $p ]] || refuse 'it is not a directory'
exec find "$p/" -mindepth 1 -maxdepth 1 -printf '%y %s %m %f\0'"#;

type Pieces = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;

impl Inner {
    /// Opens a regular file.
    pub(crate) async fn read_file(self: &Arc<Self>, path: &Path) -> Result<Input, Error> {
        let Running { mark, exec, mut output, input } = self.script(path, READ, "").await?;
        let mut stderr = Vec::new();
        let mut first = Bytes::new();
        // The script writes `+` to standard error before the contents; anything else is an error message.
        while let Some(piece) = output.next().await {
            match piece.map_err(during("reading a file"))? {
                LogOutput::StdErr { message } => note(&mut stderr, &message),
                other => first = other.into_bytes(),
            }
            if !first.is_empty() || stderr == b"+" {
                let reader = StopOnDrop::new(self, mark);
                let stream = FileStream { output, _input: input, piece: first, stderr, reader };
                return Ok(Box::new(stream));
            }
        }
        self.check(path, &exec, &stderr).await?;
        Ok(Box::new(tokio::io::empty()))
    }

    /// Writes a file atomically.
    pub(crate) async fn write_file(&self, path: &Path, contents: &[u8]) -> Result<(), Error> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(refused(path, "it is a directory"));
        }
        let settings = format!("t=.{}.partial n={}\n", names::unique(), contents.len());
        let Running { exec, mut output, mut input, .. } =
            self.script(path, WRITE, &settings).await?;
        let mut stderr = Vec::new();
        let send = async {
            // A script that fails does not read its input; its message has the reason.
            let _ = input.write_all(contents).await;
            let _ = input.shutdown().await;
            std::future::pending::<()>().await;
        };
        let listen = async {
            while let Some(piece) = output.next().await {
                note(&mut stderr, piece.map_err(during("writing a file"))?.as_ref());
            }
            Ok::<(), Error>(())
        };
        // The daemon does not read what is left when the script has ended.
        tokio::select! {
            listened = listen => listened?,
            () = send => {}
        }
        self.check(path, &exec, &stderr).await
    }

    /// Lists a directory.
    pub(crate) async fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        let Running { exec, mut output, input: _input, .. } = self.script(path, LIST, "").await?;
        let (mut out, mut stderr) = (Vec::new(), Vec::new());
        while let Some(piece) = output.next().await {
            match piece.map_err(during("listing a directory"))? {
                LogOutput::StdErr { message } => note(&mut stderr, &message),
                other => out.extend_from_slice(other.as_ref()),
            }
            if out.len() > MAX_LISTING {
                let text =
                    "it has too many entries to be listed; a command can count or search them";
                let source = io::Error::new(io::ErrorKind::FileTooLarge, text);
                return Err(Error::Path { path: path.into(), source });
            }
        }
        self.check(path, &exec, &stderr).await?;
        let entries: Option<Vec<Entry>> = out
            .strip_suffix(b"\0")
            .map(|all| all.split(|b| *b == 0).map(entry).collect())
            .unwrap_or_else(|| Some(Vec::new()));
        let mut entries = entries.ok_or_else(|| Error::Io {
            what: format!("listing {}", path.display()),
            source: io::Error::other("the output of the image's `find` is not understood"),
        })?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    async fn script(&self, path: &Path, script: &str, settings: &str) -> Result<Running, Error> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(refused(path, "it is empty or holds a NUL byte"));
        }
        let script = format!("p={}\n{settings}{REFUSE}{script}", names::quoted(bytes));
        self.start(self.bash(["-c", &script]), &[], Console::Pipes).await
    }

    async fn check(&self, path: &Path, exec: &str, stderr: &[u8]) -> Result<(), Error> {
        let why = printable(stderr);
        match self.exit_code(exec).await? {
            0 => Ok(()),
            REFUSED => Err(refused(path, why)),
            MISSING => Err(Error::Path {
                path: path.into(),
                source: io::Error::new(io::ErrorKind::NotFound, why),
            }),
            code => Err(Error::Io {
                what: format!("{} in the sandbox", path.display()),
                source: io::Error::new(failure::kind_of(&why), format!("{why} (exit code {code})")),
            }),
        }
    }
}

/// Keeps the start of what a script prints: other processes of the container can write to its streams.
fn note(stderr: &mut Vec<u8>, message: &[u8]) {
    let room = MAX_MESSAGE.saturating_sub(stderr.len());
    stderr.extend_from_slice(&message[..message.len().min(room)]);
}

/// A message of a program in the container, without what could control a terminal or change the order of the text.
fn printable(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let mut printable = String::new();
    for c in text.trim().chars() {
        match c {
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' => {
                printable.extend(c.escape_unicode());
            }
            c if c.is_control() => printable.extend(c.escape_default()),
            c => printable.push(c),
        }
    }
    printable
}

fn refused(path: &Path, why: impl Into<String>) -> Error {
    Error::Path { path: path.into(), source: io::Error::other(why.into()) }
}

/// `f 12 644 name`
fn entry(line: &[u8]) -> Option<Entry> {
    let mut fields = line.splitn(4, |b| *b == b' ');
    let mut field = || fields.next();
    let kind = match field()? {
        b"f" => EntryKind::File,
        b"d" => EntryKind::Directory,
        b"l" => EntryKind::Link,
        _ => EntryKind::Other,
    };
    let size: u64 = std::str::from_utf8(field()?).ok()?.parse().ok()?;
    let mode = u32::from_str_radix(std::str::from_utf8(field()?).ok()?, 8).ok()?;
    let name = PathBuf::from(std::ffi::OsString::from_vec(field()?.to_vec()));
    Some(Entry { name, kind, size: if kind == EntryKind::File { size } else { 0 }, mode })
}

/// The contents of a file as they arrive.
struct FileStream {
    output: Pieces,
    /// Kept open: otherwise the daemon would close the other direction as well.
    _input: Pin<Box<dyn AsyncWrite + Send>>,
    piece: Bytes,
    stderr: Vec<u8>,
    /// Stops the script when the caller stops reading.
    reader: StopOnDrop,
}

impl AsyncRead for FileStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.piece.is_empty() {
                let count = self.piece.len().min(buffer.remaining());
                buffer.put_slice(&self.piece[..count]);
                self.piece.advance(count);
                return Poll::Ready(Ok(()));
            }
            match std::task::ready!(self.output.as_mut().poll_next(context)) {
                Some(Ok(LogOutput::StdErr { message })) => note(&mut self.stderr, &message),
                Some(Ok(other)) => self.piece = other.into_bytes(),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                // An error message of `cat`: the contents are incomplete.
                None if self.stderr.len() > 1 => {
                    let why = printable(&self.stderr[1..]);
                    return Poll::Ready(Err(io::Error::other(why)));
                }
                None => {
                    self.reader.disarm();
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_find_prints_them() {
        let seen = entry(b"f 12 4755 a b\n").unwrap();
        assert_eq!((seen.kind, seen.size, seen.mode), (EntryKind::File, 12, 0o4755));
        assert_eq!(seen.name, Path::new("a b\n"));
        assert_eq!(entry(b"d 4096 755 x").unwrap().size, 0);
        assert_eq!(entry(b"p 0 644 x").unwrap().kind, EntryKind::Other);
        assert_eq!(entry(b"f x 644 x"), None);
        assert_eq!(entry(b"f 1"), None);
    }
}
