//! SOCKS version 5, for programs that make plain TCP connections through a proxy. Only `CONNECT`, without authentication.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{HEAD_TIME, Policy, Refusal, pipe::pipe, while_wanted};

/// The first byte of every message.
pub(super) const VERSION: u8 = 5;

/// A result in the reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Connected = 0,
    NotAllowed = 2,
    Unreachable = 4,
    NoSuchCommand = 7,
    NoSuchAddressType = 8,
}

/// Serves a client whose first byte was seen to be [`VERSION`].
pub(super) async fn serve(mut client: TcpStream, policy: &Policy) -> io::Result<()> {
    let request = match timeout(HEAD_TIME, read_request(&mut client)).await {
        Ok(request) => request?,
        Err(_) => return Ok(()),
    };
    let (host, port) = match request {
        Ok(target) => target,
        Err(Some(refusal)) => return reply(&mut client, refusal).await,
        Err(None) => return Ok(()),
    };
    match while_wanted(&client, policy.reach_or_report(&host, port)).await? {
        Ok(mut server) => {
            reply(&mut client, Reply::Connected).await?;
            pipe(&mut client, &mut server, policy.idle).await
        }
        Err(Refusal::NotAllowed(..)) => reply(&mut client, Reply::NotAllowed).await,
        Err(_) => reply(&mut client, Reply::Unreachable).await,
    }
}

/// The requested host and port; else the reply to a request that cannot be met, or none to a client that speaks another
/// protocol.
type Request = Result<(String, u16), Option<Reply>>;

async fn read_request(client: &mut TcpStream) -> io::Result<Request> {
    const WITHOUT_AUTHENTICATION: u8 = 0;
    const NO_METHOD: u8 = 0xff;
    const CONNECT: u8 = 1;
    let [_, count] = read(client).await?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&WITHOUT_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_METHOD]).await?;
        return Ok(Err(None));
    }
    client.write_all(&[VERSION, WITHOUT_AUTHENTICATION]).await?;
    let [version, command, _, kind] = read(client).await?;
    if version != VERSION {
        return Ok(Err(None));
    }
    let host = match kind {
        1 => Ipv4Addr::from(read::<4>(client).await?).to_string(),
        4 => Ipv6Addr::from(read::<16>(client).await?).to_string(),
        3 => {
            let mut name = vec![0; usize::from(client.read_u8().await?)];
            client.read_exact(&mut name).await?;
            match String::from_utf8(name) {
                Ok(name) if !name.is_empty() => name,
                _ => return Ok(Err(Some(Reply::NotAllowed))),
            }
        }
        _ => return Ok(Err(Some(Reply::NoSuchAddressType))),
    };
    let port = client.read_u16().await?;
    match command {
        CONNECT => Ok(Ok((host, port))),
        // Among them UDP.
        _ => Ok(Err(Some(Reply::NoSuchCommand))),
    }
}

async fn read<const N: usize>(client: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn reply(client: &mut TcpStream, reply: Reply) -> io::Result<()> {
    // No address of ours is of use to the client.
    client.write_all(&[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]).await
}
