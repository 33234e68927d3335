//! Messages with descriptors over SEQPACKET sockets: one packet, one message.
//!
//! A message that is too long for a packet travels in a memory file whose descriptor the packet carries. Input is
//! checked: a malformed packet is an error, never a panic.

use std::{
    ffi::OsString,
    io::{self, IoSlice, IoSliceMut, Read, Seek, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Serialize, de::DeserializeOwned};

/// Longest message, in bytes, that travels in the packet itself.
const MAX_INLINE: usize = 16 << 10;
/// Longest message, in bytes.
const MAX_MESSAGE: u64 = 64 << 20;
/// Most descriptors of one message.
const MAX_FDS: usize = 16;

const IN_PACKET: u8 = 0;
const IN_FILE: u8 = 1;

/// A path as it travels: any bytes, not only UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct WirePath(Vec<u8>);

impl From<&Path> for WirePath {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<WirePath> for PathBuf {
    fn from(path: WirePath) -> Self {
        OsString::from_vec(path.0).into()
    }
}

/// An `io::Error` as it travels between processes of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct WireError {
    /// The system's error number: the error's own, or that of the first cause that has one.
    errno: Option<i32>,
    /// The message, where it is not the system's own for `errno`.
    message: Option<String>,
}

impl From<&io::Error> for WireError {
    fn from(error: &io::Error) -> Self {
        if let Some(errno) = error.raw_os_error() {
            return Self { errno: Some(errno), message: None };
        }
        let causes = std::iter::successors(std::error::Error::source(error), |e| e.source());
        let mut numbers = causes.filter_map(|e| e.downcast_ref::<io::Error>()?.raw_os_error());
        Self { errno: numbers.next(), message: Some(error.to_string()) }
    }
}

impl From<WireError> for io::Error {
    fn from(error: WireError) -> Self {
        let system = error.errno.map(Self::from_raw_os_error);
        match (system, error.message) {
            (Some(system), None) => system,
            (Some(system), Some(message)) => Self::new(system.kind(), message),
            (None, message) => Self::other(message.unwrap_or_default()),
        }
    }
}

/// Creates a pair of connected sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends one message. On a full non-blocking socket it fails with `WouldBlock` and has sent nothing.
pub(crate) fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if body.len() <= MAX_INLINE {
        return send_packet(socket, &[&[IN_PACKET], &body], fds);
    }
    if body.len() as u64 > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
    }
    let mut file = memory_file(&body)?;
    file.rewind()?;
    let mut all = fds.to_vec();
    all.push(file.as_fd());
    send_packet(socket, &[&[IN_FILE]], &all)
}

/// Creates a file in memory with this content.
pub(crate) fn memory_file(content: &[u8]) -> io::Result<std::fs::File> {
    let fd = rustix::fs::memfd_create(c"message", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(content)?;
    Ok(file)
}

fn send_packet(socket: BorrowedFd<'_>, parts: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors in one message"));
    }
    let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    loop {
        match rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}

/// Receives one message; `None` when the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut packet = [0u8; MAX_INLINE + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut packet)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            // A peer that dies with unread messages causes a reset.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    decode(&packet[..received.bytes], fds).map(Some)
}

/// Decodes a packet that arrived with these descriptors.
fn decode<T: DeserializeOwned>(
    packet: &[u8],
    mut fds: Vec<OwnedFd>,
) -> io::Result<(T, Vec<OwnedFd>)> {
    let malformed = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let message = match packet.split_first() {
        Some((&IN_PACKET, body)) => postcard::from_bytes(body),
        Some((&IN_FILE, _)) => {
            let file = fds.pop().ok_or_else(|| malformed("the message's file is missing"))?;
            let mut body = Vec::new();
            std::fs::File::from(file).take(MAX_MESSAGE).read_to_end(&mut body)?;
            postcard::from_bytes(&body)
        }
        _ => return Err(malformed("unknown kind of packet")),
    };
    Ok((message.map_err(|e| malformed(&e.to_string()))?, fds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::init::{Reply, Request};

    #[test]
    fn messages_of_every_size_arrive_with_their_descriptors() {
        let (a, b) = pair().unwrap();
        for size in [0, 1, MAX_INLINE - 8, MAX_INLINE + 8, 3 << 20] {
            let text = "x".repeat(size);
            let null = std::fs::File::open("/dev/null").unwrap();
            send(a.as_fd(), &text, &[null.as_fd()]).unwrap();
            let (got, fds) = receive::<String>(b.as_fd()).unwrap().unwrap();
            assert_eq!((got.len(), fds.len()), (size, 1));
        }
        drop(a);
        assert!(receive::<String>(b.as_fd()).unwrap().is_none());
    }

    #[test]
    fn errors_keep_their_number_kind_and_message() {
        let sent = |error: io::Error| io::Error::from(WireError::from(&error));
        let full = || io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        assert_eq!(sent(full()).raw_os_error(), full().raw_os_error());
        let wrapped = sent(io::Error::new(io::ErrorKind::InvalidData, Wrapped(full())));
        assert_eq!((wrapped.kind(), wrapped.to_string()), (full().kind(), "wrapped".into()));
        let plain = sent(io::Error::other("not a regular file"));
        assert_eq!((plain.raw_os_error(), plain.to_string()), (None, "not a regular file".into()));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("wrapped")]
    struct Wrapped(#[source] io::Error);

    proptest! {
        #[test]
        fn arbitrary_packets_are_errors_not_panics(packet in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Request>(&packet, vec![]);
            let _ = decode::<Reply>(&packet, vec![]);
            let _ = decode::<crate::spawner::SpawnerRequest>(&packet, vec![]);
            let file = memory_file(&packet).unwrap();
            let _ = decode::<Request>(&[IN_FILE], vec![file.into()]);
        }
    }
}
