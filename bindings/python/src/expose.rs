//! A port of a sandbox on this machine's loopback address, for as long as the sandbox is open.

use std::sync::{Arc, Weak};

use runtimes::AnySandbox;
use sandbox::RemoteSandbox;
use tokio::net::{TcpListener, TcpStream};

use crate::{failure::Failure, sandbox_handle::Shared};

/// Forwards connections to the port inside, and returns the address.
pub(crate) async fn expose(shared: Arc<Shared>, port: u16) -> Result<String, Failure> {
    if port == 0 {
        return Err(Failure::usage("port 0 is not a port"));
    }
    shared
        .using(|sandbox| {
            Box::pin(async move {
                match sandbox {
                    AnySandbox::Native(_) => Ok(()),
                    AnySandbox::Docker(_) => Err(Failure::Raise(
                        "SandboxUnavailable",
                        "ports can be exposed by the native runtime only".into(),
                    )),
                }
            })
        })
        .await?;
    let failed = |error| Failure::infrastructure(format!("cannot listen on 127.0.0.1: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (closed, weak) = (shared.closed().clone(), Arc::downgrade(&shared));
    shared.process().handle().spawn(async move {
        tokio::select! {
            () = closed.cancelled() => {}
            () = accept(listener, &weak, port) => {}
        }
    });
    Ok(format!("http://{address}"))
}

/// Serves connections until the sandbox is gone.
async fn accept(listener: TcpListener, shared: &Weak<Shared>, port: u16) {
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            // Too many open files, or a connection that ended before it was accepted.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let Some(sandbox) = shared.upgrade() else { return };
        let process = Arc::clone(sandbox.process());
        process.handle().spawn(forward(connection, Arc::downgrade(&sandbox), port));
    }
}

/// Copies both directions until either side or the sandbox ends.
async fn forward(mut outside: TcpStream, shared: Weak<Shared>, port: u16) {
    let connected = match shared.upgrade() {
        Some(shared) => {
            let connecting = shared.using(move |sandbox| {
                Box::pin(async move {
                    match sandbox {
                        AnySandbox::Native(sandbox) => Ok(sandbox.connect(port).await?),
                        AnySandbox::Docker(_) => Err(Failure::usage("not a native sandbox")),
                    }
                })
            });
            connecting.await.map(|inside| (inside, shared.closed().clone()))
        }
        None => return,
    };
    // Who connects sees the end of the connection, as if nobody listened inside.
    let Ok((mut inside, closed)) = connected else { return };
    tokio::select! {
        () = closed.cancelled() => {}
        _ = tokio::io::copy_bidirectional(&mut outside, &mut inside) => {}
    }
}
