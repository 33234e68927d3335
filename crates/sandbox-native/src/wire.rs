//! Messages with descriptors over SEQPACKET sockets: one packet, one message.
//!
//! A message too long for a packet travels in a memory file whose descriptor the packet carries. What
//! arrives is checked: a malformed packet is an error, never a panic.

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

/// Messages up to this length travel in the packet itself.
const INLINE: usize = 16 << 10;
/// No message is longer than this.
const LONGEST: u64 = 64 << 20;
/// No message carries more descriptors than this.
const MOST_FDS: usize = 16;

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

/// Two connected ends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends one message. Fails with `WouldBlock` on a full non-blocking socket, having sent nothing.
pub(crate) fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if body.len() <= INLINE {
        return send_packet(socket, &[&[IN_PACKET], &body], fds);
    }
    if body.len() as u64 > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
    }
    let mut file = memory_file(&body)?;
    file.rewind()?;
    let mut all = fds.to_vec();
    all.push(file.as_fd());
    send_packet(socket, &[&[IN_FILE]], &all)
}

/// A file in memory with this content.
pub(crate) fn memory_file(content: &[u8]) -> io::Result<std::fs::File> {
    let fd = rustix::fs::memfd_create(c"message", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(content)?;
    Ok(file)
}

fn send_packet(socket: BorrowedFd<'_>, parts: &[&[u8]], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
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

/// Receives one message, or nothing when the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut packet = [0u8; INLINE + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut packet)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            // What a peer leaves unread when it dies arrives as a reset; either way it is gone.
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

/// Reads a packet that arrived with these descriptors.
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
            std::fs::File::from(file).take(LONGEST).read_to_end(&mut body)?;
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
        for size in [0, 1, INLINE - 8, INLINE + 8, 3 << 20] {
            let text = "x".repeat(size);
            let null = std::fs::File::open("/dev/null").unwrap();
            send(a.as_fd(), &text, &[null.as_fd()]).unwrap();
            let (got, fds) = receive::<String>(b.as_fd()).unwrap().unwrap();
            assert_eq!((got.len(), fds.len()), (size, 1));
        }
        drop(a);
        assert!(receive::<String>(b.as_fd()).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn arbitrary_packets_are_errors_not_panics(packet in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Request>(&packet, vec![]);
            let _ = decode::<Reply>(&packet, vec![]);
            let _ = decode::<crate::spawner::Order>(&packet, vec![]);
            let file = memory_file(&packet).unwrap();
            let _ = decode::<Request>(&[IN_FILE], vec![file.into()]);
        }
    }
}
