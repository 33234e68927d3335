//! Clients that send nonsense, too much, or nothing: the supervisor closes their connection and serves the others.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use lis_supervisor::{Error, Supervisor};
use sandbox::{Process, Spec, Streams};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::support::{Served, name, with_supervisor};

/// A raw connection, after the welcome.
async fn connect(served: &Served) -> UnixStream {
    let mut stream = UnixStream::connect(served.directory().join("socket")).await.unwrap();
    let mut header = [0; 5];
    stream.read_exact(&mut header).await.unwrap();
    let length = u32::from_le_bytes(header[1..].try_into().unwrap());
    let mut welcome = vec![0; length as usize];
    stream.read_exact(&mut welcome).await.unwrap();
    assert!(String::from_utf8(welcome).unwrap().contains("\"protocol\":3"));
    stream
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind], &(content.len() as u32).to_le_bytes()[..], content].concat()
}

/// Whether the supervisor closes the connection.
async fn is_closed(mut stream: UnixStream) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.is_ok()
}

#[test]
fn nonsense_closes_the_connection_and_nothing_else() {
    with_supervisor(async |served| {
        let client = served.client().await;
        client.create(&name("box"), &Spec::default(), None).await.unwrap();
        let exec = br#"{"exec":{"name":"box","argv":["cat"],"env":[],"workdir":null,"timeout":null,"streams":"input_output"}}"#;
        let flood = [frame(0, exec), [frame(1, &[7; 65536])].concat().repeat(80)].concat();
        let idle = br#"{"exec":{"name":"box","argv":["sleep","1000"],"env":[],"workdir":null,"timeout":null,"streams":"input_output"}}"#;
        let unread = [frame(0, idle), frame(1, &[7; 65536]).repeat(40)].concat();
        for nonsense in [
            frame(0, b"no json"),
            frame(0, br#"{"exec":{"name":"../x"}}"#),
            frame(0, br#"{"create":{"name":"A","spec":{},"idle_timeout":null}}"#),
            frame(0, br#"{"of the future":1}"#),
            frame(1, b"input without a request"),
            frame(77, b""),
            [&[0], &u32::MAX.to_le_bytes()[..]].concat(),
            [frame(0, b"\"list\""), frame(0, b"\"list\"")].concat(),
            [frame(0, exec), frame(2, b"output of a client")].concat(),
            flood,
            unread,
        ] {
            let mut stream = connect(served).await;
            // The supervisor may close the connection before it has everything.
            let _ = stream.write_all(&nonsense).await;
            assert!(
                is_closed(stream).await,
                "{:?}",
                String::from_utf8_lossy(&nonsense[..40.min(nonsense.len())])
            );
        }
        let process = Process::new(["true"]);
        let ended = client.exec(&name("box"), &process, Streams::discard()).await.unwrap();
        assert!(ended.exit.status.success());
    });
}

#[test]
fn many_silent_clients_keep_nobody_waiting() {
    with_supervisor(async |served| {
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(connect(served).await);
        }
        let begun = Instant::now();
        served.client().await.create(&name("box"), &Spec::default(), None).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(served.client().await.list().await.unwrap().len(), 1);
    });
}

#[test]
fn the_socket_is_private_and_checked_by_the_client() {
    with_supervisor(async |served| {
        let directory = served.directory();
        let mode = fs::metadata(&directory).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o711)).unwrap();
        let error = Supervisor::connect(&served.home).await.unwrap_err();
        assert!(matches!(error, Error::Directory { .. }), "{error}");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        served.client().await.list().await.unwrap();
    });
}

#[test]
fn another_user_is_refused_even_where_the_directory_lets_it_in() {
    if !rustix::process::geteuid().is_root() {
        return sandbox_testkit::skip("root", "only root can become another user");
    }
    with_supervisor(async |served| {
        let socket = served.directory().join("socket");
        for (path, mode) in [(&served.home, 0o711), (&served.directory(), 0o711), (&socket, 0o777)]
        {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let read = tokio::task::spawn_blocking(move || {
            // Of this thread alone, which is not used again.
            let thread = std::thread::spawn(move || {
                let other = rustix::process::Uid::from_raw(12345);
                rustix::thread::set_thread_res_uid(other, other, other).unwrap();
                let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
                let mut read = Vec::new();
                std::io::Read::read_to_end(&mut stream, &mut read).map(|_| read)
            });
            thread.join().unwrap()
        });
        assert_eq!(read.await.unwrap().unwrap(), b"", "not even a welcome");
        fs::set_permissions(served.directory(), fs::Permissions::from_mode(0o700)).unwrap();
        served.client().await.list().await.unwrap();
    });
}

#[test]
fn a_supervisor_that_cannot_be_found_any_more_ends() {
    with_supervisor(async |served| {
        let client = served.client().await;
        client.create(&name("box"), &Spec::default(), None).await.unwrap();
        let other = served.client().await;
        fs::remove_dir_all(served.directory()).unwrap();
        // Any change makes it look; otherwise it looks from time to time.
        drop(other);
        let deadline = Instant::now() + Duration::from_secs(30);
        while served.sandboxes() > 0 {
            assert!(Instant::now() < deadline, "the sandboxes are still there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
