//! Connections to programs in sandboxes that have changed their protocol, such as WebSockets: bytes in both directions, in
//! bounded number, until either side is gone or the sandbox has ended.

use std::time::Duration;

use futures_util::future::Either;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use crate::{
    error::{ApiError, Code},
    live::LiveEnd,
};

/// Most such connections at once: they no longer count as connections of the HTTP server.
pub(crate) const MOST: usize = 2048;
/// How long the change of protocol may take on either side.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one direction may continue after the other has ended.
const HALF_CLOSED: Duration = Duration::from_secs(60);

/// The error where there are no places left, or none for the owner of the sandbox.
pub(crate) fn too_many() -> ApiError {
    let message = format!(
        "this server passes on at most {MOST} connections at once, a quarter of them for one of several tokens"
    );
    ApiError::new(Code::TooMany, message)
}

/// Passes bytes between a client and a program once both connections have changed their protocol. Holds what stands for
/// their places until then.
pub(crate) fn start(
    permit: impl Send + 'static,
    outside: OnUpgrade,
    inside: OnUpgrade,
    mut end: LiveEnd,
) {
    tokio::spawn(async move {
        let _permit = permit;
        let passing = async {
            let both = async { tokio::try_join!(outside, inside) };
            // Errors are of either side: it is gone.
            let Ok(Ok((outside, inside))) = timeout(SWITCH_TIMEOUT, both).await else { return };
            pass(TokioIo::new(outside), TokioIo::new(inside)).await;
        };
        tokio::select! {
            () = passing => {}
            () = end.wait() => {}
        }
    });
}

/// Passes bytes both ways. Both connections are closed when it returns.
async fn pass(
    outside: impl AsyncRead + AsyncWrite + Unpin,
    inside: impl AsyncRead + AsyncWrite + Unpin,
) {
    let (from_client, to_client) = tokio::io::split(outside);
    let (from_program, to_program) = tokio::io::split(inside);
    let mut up = std::pin::pin!(copy(from_client, to_program));
    let mut down = std::pin::pin!(copy(from_program, to_client));
    // A side that has sent all may still receive, but a side that is gone must not keep the other.
    let (ended, other) = tokio::select! {
        ended = &mut up => (ended, Either::Left(down)),
        ended = &mut down => (ended, Either::Right(up)),
    };
    if ended.is_ok() {
        let _ = timeout(HALF_CLOSED, other).await;
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::{AsyncReadExt, ReadBuf, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_side_that_is_gone_ends_the_other() {
        let (mut client, outside) = duplex(64);
        let (mut program, inside) = duplex(64);
        let passing = tokio::spawn(pass(outside, inside));
        client.write_all(b"to the program").await.unwrap();
        let mut buffer = [0; 14];
        program.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"to the program");
        client.shutdown().await.unwrap();
        assert_eq!(program.read(&mut buffer).await.unwrap(), 0, "the end is passed on");
        program.write_all(b"last").await.unwrap();
        assert_eq!(client.read(&mut buffer).await.unwrap(), 4);
        // The program never closes its side.
        timeout(HALF_CLOSED * 2, passing).await.unwrap().unwrap();
        assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
    }

    /// A connection that was reset: reading fails.
    struct Reset;

    impl AsyncRead for Reset {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
    }

    impl AsyncWrite for Reset {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(data.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_fails_ends_the_other_at_once() {
        // The other side is silent and stays open.
        let (mut program, inside) = duplex(64);
        timeout(Duration::from_secs(1), pass(Reset, inside)).await.unwrap();
        assert_eq!(program.read(&mut [0; 1]).await.unwrap(), 0);
        let (mut client, outside) = duplex(64);
        timeout(Duration::from_secs(1), pass(outside, Reset)).await.unwrap();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    }
}
