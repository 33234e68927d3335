//! What the client offers to a program: files, commands and captured output.

use std::{path::Path, time::Duration};

use lis_supervisor::{Error, State, Supervisor};
use sandbox::{CaptureBuffer, OutputCap, Process, ShellCommand, Spec, Status, Streams};
use tokio::io::AsyncReadExt;

use crate::support::{name, with_supervisor};

/// Runs a script; its standard output.
async fn run(client: &Supervisor, sandbox: &str, script: &str) -> String {
    let output = CaptureBuffer::new(OutputCap::default());
    let (stdout, stderr) = (output.writer(), CaptureBuffer::new(OutputCap::default()).writer());
    let streams = Streams::Pipes { stdin: None, stdout, stderr };
    let process = Process::new(["sh", "-c", script]);
    let ended = client.exec(&name(sandbox), &process, streams).await.unwrap();
    assert_eq!(ended.exit.status, Status::Exited(0));
    output.take().text().into_owned()
}

async fn read(client: &Supervisor, path: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut file = client.read(&name("box"), Path::new(path)).await?;
    file.read_to_end(&mut bytes).await.unwrap();
    Ok(bytes)
}

#[test]
fn files_are_written_and_read_whole() {
    with_supervisor(async |served| {
        let client = served.client().await;
        let created = client.create(&name("box"), &Spec::default(), None).await.unwrap();
        assert_eq!(created.protection.runtime, "native");
        let contents: Vec<u8> = (0..1_000_000u32).map(|i| ((i * 7) >> 2) as u8).collect();
        client.write(&name("box"), Path::new("dir/file"), &contents).await.unwrap();
        assert!(read(&client, "/testbed/dir/file").await.unwrap() == contents);
        client.write(&name("box"), Path::new("/empty"), b"").await.unwrap();
        assert_eq!(read(&client, "/empty").await.unwrap(), b"");
        for missing in ["/missing", "/testbed"] {
            let error = read(&client, missing).await.unwrap_err();
            assert!(error.is_usage(), "{error}");
        }
        let large = vec![0; (64 << 20) + 1];
        let error = client.write(&name("box"), Path::new("/large"), &large).await.unwrap_err();
        assert!(matches!(error, Error::Rejected(_)), "{error}");
        let error = client.write(&name("no"), Path::new("/x"), b"x").await.unwrap_err();
        assert!(matches!(error, Error::Unknown(_)), "{error}");
    });
}

#[test]
fn one_client_runs_many_commands_at_once() {
    with_supervisor(async |served| {
        let client = served.client().await;
        client.create(&name("box"), &Spec::default(), None).await.unwrap();
        client.fork(&name("box"), &name("other")).await.unwrap();
        let meet =
            "touch here-$$; until [ $(ls -d here-* | wc -l) = 2 ]; do sleep 0.02; done; echo met";
        let (a, b, c) = tokio::join!(
            run(&client, "box", meet),
            run(&client, "box", meet),
            run(&client, "other", "echo apart"),
        );
        assert_eq!((a.as_str(), b.as_str(), c.as_str()), ("met\n", "met\n", "apart\n"));
        let listed = client.list().await.unwrap();
        assert_eq!(
            listed.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(),
            ["box", "other"]
        );
        assert!(listed.iter().all(|found| found.state == State::Idle));
        client.remove(&name("other")).await.unwrap();
        let error = client.remove(&name("other")).await.unwrap_err();
        assert!(matches!(error, Error::Unknown(_)), "{error}");
    });
}

#[test]
fn long_output_of_the_shell_keeps_its_head_and_tail() {
    with_supervisor(async |served| {
        let client = served.client().await;
        client.create(&name("box"), &Spec::default(), None).await.unwrap();
        let command = ShellCommand::new("echo first; head -c 3000000 /dev/zero; echo last; exit 3");
        let output = client.shell(&name("box"), &command).await.unwrap();
        assert_eq!(output.stdout.total, 3_000_011);
        assert!(
            output.stdout.head.starts_with(b"first\n") && output.stdout.tail.ends_with(b"last\n")
        );
        assert_eq!(output.stdout.head.len() + output.stdout.tail.len(), 1 << 20);
        assert_eq!(output.status, Status::Exited(3));
    });
}

#[test]
fn a_dropped_command_is_killed() {
    with_supervisor(async |served| {
        let client = served.client().await;
        client.create(&name("box"), &Spec::default(), None).await.unwrap();
        let process = Process::new(["sh", "-c", "touch started; sleep 1000"]);
        let sandbox = name("box");
        let running = client.exec(&sandbox, &process, Streams::discard());
        let begun = run(&client, "box", "until [ -e started ]; do sleep 0.02; done; echo yes");
        tokio::select! {
            _ = running => panic!("it ended"),
            begun = begun => assert_eq!(begun, "yes\n"),
        }
        let gone = "for i in $(seq 500); do grep -qsx sleep /proc/*/comm || exit 0; sleep 0.02; done; exit 1";
        run(&client, "box", gone).await;
    });
}

#[test]
fn a_sandbox_in_use_is_not_idle() {
    with_supervisor(async |served| {
        let client = served.client().await;
        let short = Some(Duration::from_millis(700));
        client.create(&name("box"), &Spec::default(), short).await.unwrap();
        assert_eq!(run(&client, "box", "sleep 1; echo done").await, "done\n");
        let listed = async || client.list().await.unwrap().len();
        while listed().await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
