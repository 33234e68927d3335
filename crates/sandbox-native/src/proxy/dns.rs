//! The resolver of a sandbox that may reach public addresses, over UDP and TCP.
//!
//! Names are looked up by the host's resolver, and only public addresses are answered. That is a service to programs, not the
//! barrier: each connection is checked again by its address.

mod message;

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use self::message::{Code, Kind, Question};
use super::{Lookup, Policy};

/// Queries over UDP that are being answered at once. More are dropped; clients ask again.
const MAX_WAITING: usize = 64;
/// How long a client over TCP may stay silent.
const TCP_IDLE: Duration = Duration::from_secs(10);
/// Longest query.
const MAX_QUERY: usize = 512;

/// Serves over UDP.
pub(super) async fn serve(socket: UdpSocket, policy: Arc<Policy>) {
    let socket = Arc::new(socket);
    let waiting = Arc::new(Semaphore::new(MAX_WAITING));
    // Dropped, and so stopped, with the sandbox.
    let mut tasks = JoinSet::new();
    // One byte more, so that a longer query is noticed.
    let mut buffer = [0; MAX_QUERY + 1];
    loop {
        while tasks.try_join_next().is_some() {}
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // An earlier answer found its client gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&waiting).try_acquire_owned() else { continue };
        if length > MAX_QUERY || policy.queries.take().is_err() {
            continue;
        }
        let (query, policy, socket) =
            (buffer[..length].to_vec(), Arc::clone(&policy), Arc::clone(&socket));
        tasks.spawn(async move {
            let max = |question: &Question| question.max_udp();
            if let Some(answer) = answer(&query, max, &policy).await {
                let _ = socket.send_to(&answer, client).await;
            }
            drop(permit);
        });
    }
}

/// Serves one client over TCP.
pub(super) async fn serve_stream(mut client: TcpStream, policy: &Policy) -> io::Result<()> {
    loop {
        let length = match timeout(TCP_IDLE, client.read_u16()).await {
            Ok(Ok(length)) if (1..=MAX_QUERY).contains(&usize::from(length)) => length,
            _ => return Ok(()),
        };
        let mut query = vec![0; usize::from(length)];
        match timeout(TCP_IDLE, client.read_exact(&mut query)).await {
            Ok(read) => read?,
            Err(_) => return Ok(()),
        };
        policy.queries.wait().await;
        let max = |_: &Question| usize::from(u16::MAX);
        let Some(answer) = answer(&query, max, policy).await else { return Ok(()) };
        let mut bytes = (answer.len() as u16).to_be_bytes().to_vec();
        bytes.extend(answer);
        match timeout(TCP_IDLE, client.write_all(&bytes)).await {
            Ok(written) => written?,
            Err(_) => return Ok(()),
        }
    }
}

/// The answer to a query; `None` for what is not one.
async fn answer(
    query: &[u8],
    max: impl Fn(&Question) -> usize,
    policy: &Policy,
) -> Option<Vec<u8>> {
    let question = match message::parse(query) {
        Ok(question) => question,
        Err(refusal) => return refusal,
    };
    let max = max(&question);
    let (code, addresses) = resolve(&question, policy).await;
    Some(question.answer(code, &addresses, max))
}

async fn resolve(question: &Question, policy: &Policy) -> (Code, Vec<IpAddr>) {
    let plain = |code| (code, Vec::new());
    match question.kind {
        Kind::V4 | Kind::V6 => {}
        // No such record; the client goes on with the addresses.
        Kind::Service => return plain(Code::NoError),
        Kind::Reverse => return plain(Code::NoSuchName),
        Kind::Other => return plain(Code::NotImplemented),
    }
    match policy.lookup(&question.name).await {
        Lookup::Found(addresses) => {
            let wanted = |address: &IpAddr| match question.kind {
                Kind::V4 => address.is_ipv4(),
                _ => address.is_ipv6() && policy.upstream.has_ipv6(),
            };
            (Code::NoError, addresses.into_iter().filter(wanted).collect())
        }
        Lookup::NotPublic => {
            // Clients ask for both kinds of addresses at once.
            if question.kind == Kind::V4 {
                policy.refuse_name(&question.name);
            }
            plain(Code::NoSuchName)
        }
        Lookup::NotFound => plain(Code::NoSuchName),
        Lookup::Failed => plain(Code::Failed),
    }
}
