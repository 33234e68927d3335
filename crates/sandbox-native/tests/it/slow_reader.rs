//! A program's output arrives whole, however slowly it is read and however soon the program ends.
#![expect(clippy::unwrap_used, reason = "a failed expectation must fail the test")]

use std::time::Duration;

use sandbox::{Process, Runtime, Sandbox, Spec, Streams};
use tokio::io::AsyncReadExt;

use crate::support;

const BYTES: usize = 900_000;

async fn read_slowly(script: &str) -> usize {
    let runtime = match support::start(support::home()).await {
        Ok(runtime) => runtime,
        Err(missing) => {
            sandbox_conformance::skip(&missing.capability, &missing.reason);
            return BYTES;
        }
    };
    let sandbox = runtime.create(&Spec::default()).await.unwrap();
    let (mut ours, theirs) = tokio::io::duplex(16 << 10);
    let reader = tokio::spawn(async move {
        let (mut total, mut buffer) = (0, vec![0u8; 16 << 10]);
        loop {
            match ours.read(&mut buffer).await.unwrap() {
                0 => return total,
                n => total += n,
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    let streams = Streams::Pipes {
        stdin: None,
        stdout: Box::new(theirs),
        stderr: Box::new(tokio::io::sink()),
    };
    let exit = sandbox.process(&Process::new(["bash", "-c", script]), streams).await.unwrap();
    assert!(exit.status.success());
    let total = reader.await.unwrap();
    sandbox.destroy().await.unwrap();
    total
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_program_that_ended_is_lost() {
    assert_eq!(read_slowly(&format!("head -c {BYTES} /dev/zero")).await, BYTES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_writer_does_not_keep_the_caller() {
    let ended = tokio::time::timeout(Duration::from_secs(30), read_slowly("yes & exit 0")).await;
    assert!(ended.is_ok(), "the program's end was not noticed");
}
