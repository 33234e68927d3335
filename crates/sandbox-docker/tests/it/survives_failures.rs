//! Failures around a container: its owner dies, there is no daemon, the image has no shell.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bollard::{Docker, models::ContainerCreateBody};
use lis_sandbox_docker::{DockerOptions, DockerRuntime};
use sandbox::{Error, Feature, ImageRef, Runtime, Sandbox, ShellCommand, Spec};
use sandbox_conformance::{Harness, run};

use crate::{harness, setting};

async fn listed(h: &Harness<DockerRuntime>, id: &str) -> bool {
    let all = h.runtime.list().await;
    assert!(all.is_ok(), "{all:?}");
    all.into_iter().flatten().any(|info| info.id == id)
}

async fn wait_until_gone(h: &Harness<DockerRuntime>, id: &str) {
    let start = Instant::now();
    while listed(h, id).await {
        assert!(start.elapsed() < Duration::from_secs(30), "the container {id} is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Killing the process that owns a sandbox ends the sandbox.
#[test]
#[expect(clippy::disallowed_methods, reason = "the process to be killed is this test's own")]
fn a_killed_owner_leaves_no_container() {
    run(harness, async |h| {
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "survives_failures::creates_a_sandbox_and_waits",
                "--ignored",
                "--nocapture",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
        let id = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("created ").map(|(_, id)| id.trim().to_owned()));
        let alive = match &id {
            Some(id) => listed(h, id).await,
            None => false,
        };
        // SIGKILL: the owner cannot clean up.
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert!(alive, "the owner created no sandbox");
        wait_until_gone(h, &id.unwrap()).await;
    });
}

/// The process the test above kills.
#[test]
#[ignore = "started by a_killed_owner_leaves_no_container"]
fn creates_a_sandbox_and_waits() {
    run(harness, async |h| {
        let sandbox = h.sandbox().await;
        sandbox.shell(&ShellCommand::new("sleep 1000 & echo x > f")).await.unwrap();
        println!("created {}", sandbox.id());
        tokio::time::sleep(Duration::from_secs(120)).await;
    });
}

/// Containers of dead processes are removed; those of other machines are left alone.
#[test]
fn leftovers_of_the_dead_are_pruned() {
    run(harness, async |h| {
        let host = setting("DOCKER_HOST").unwrap_or_else(|| "unix:///var/run/docker.sock".into());
        let docker = Docker::connect_with_host(&host).unwrap().negotiate_version().await.unwrap();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let make = async |owner: String| {
            let labels = [("llm-in-sandbox", "1"), ("llm-in-sandbox.owner", &owner)];
            let labels: HashMap<String, String> =
                labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
            let body = ContainerCreateBody {
                image: Some(h.image.to_string()),
                cmd: Some(vec!["true".into()]),
                labels: Some(labels),
                ..Default::default()
            };
            docker.create_container(None, body).await.unwrap().id[..12].to_owned()
        };
        let dead = make(format!("999999999/1/an-earlier-boot/{}", host.trim())).await;
        let elsewhere = make("1/1/boot/some-other-machine".into()).await;
        // Another test may prune at the same moment; gone is what counts.
        h.runtime.prune().await.unwrap();
        wait_until_gone(h, &dead).await;
        let spared = listed(h, &elsewhere).await;
        docker.remove_container(&elsewhere, None).await.unwrap();
        assert!(spared, "a container of another machine was removed");
    });
}

/// Without a daemon the error names the address that was tried.
#[tokio::test]
async fn an_absent_daemon_is_reported_with_its_address() {
    for host in ["unix:///no/such/socket", "tcp://127.0.0.1:9", "gopher://x"] {
        let options = DockerOptions { host: Some(host.into()), ..DockerOptions::default() };
        match DockerRuntime::connect(options).await.map(drop) {
            Err(Error::NoDaemon { address, .. }) => assert_eq!(address, host),
            other => panic!("{host}: {other:?}"),
        }
    }
}

/// An image without bash is refused with the reason, and leaves nothing behind.
#[test]
fn an_image_without_bash_is_refused() {
    run(harness, async |h| {
        let name = format!("lis-no-bash-{}", std::process::id());
        let sandbox = h.sandbox().await;
        // The file stays open, so this command itself still ends.
        sandbox.shell(&ShellCommand::new("rm -f /bin/bash /usr/bin/bash")).await.unwrap();
        sandbox.snapshot(&name).await.unwrap();
        let spec = Spec { image: ImageRef::Name(name.clone()), ..h.spec() };
        let refused = h.runtime.create(&spec).await.map(|sandbox| sandbox.id().to_owned());
        sandbox.destroy().await.unwrap();
        let start = Instant::now();
        while h.runtime.remove_image(&name).await.is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "the refused container is left");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        match refused {
            Err(Error::Unsupported { feature, reason, remedy }) => {
                assert_eq!(feature, Feature::Image(spec.image));
                assert!(reason.contains("bash") && remedy.contains("bash"), "{reason}; {remedy}");
            }
            other => panic!("{other:?}"),
        }
    });
}

/// A command that deletes the shell's saved state loses it, and that is reported.
#[test]
fn a_deleted_state_is_reported() {
    run(harness, async |h| {
        let sandbox = h.sandbox().await;
        let shell = async |script: &str| sandbox.shell(&ShellCommand::new(script)).await.unwrap();
        shell("word=kept").await;
        sandbox
            .process(
                &sandbox::Process::new(["bash", "-c", "rm -rf /run/llm-in-sandbox/*"]),
                sandbox::Streams::discard(),
            )
            .await
            .unwrap();
        let output = shell("echo ${word-none}; word=new").await;
        assert_eq!((&*output.stdout.text(), output.shell_lost), ("none\n", true));
        let output = shell("echo $word").await;
        assert_eq!((&*output.stdout.text(), output.shell_lost), ("new\n", false));
    });
}

/// A container that was removed from outside is distinguished from a failing command.
#[test]
fn a_removed_container_is_gone() {
    run(harness, async |h| {
        let sandbox = h.sandbox().await;
        let host = setting("DOCKER_HOST").unwrap_or_else(|| "unix:///var/run/docker.sock".into());
        let docker = Docker::connect_with_host(&host).unwrap().negotiate_version().await.unwrap();
        let options =
            bollard::query_parameters::RemoveContainerOptions { force: true, ..Default::default() };
        docker.remove_container(sandbox.id(), Some(options)).await.unwrap();
        let failed = sandbox.shell(&ShellCommand::new("echo hi")).await;
        assert!(matches!(failed, Err(Error::Gone(_))), "{failed:?}");
        let failed = sandbox.write_file(Path::new("/tmp/x"), b"x").await;
        assert!(matches!(failed, Err(Error::Gone(_))), "{failed:?}");
        assert!(sandbox.destroy().await.is_ok());
    });
}

/// A specification may set `PATH`; an image given as a directory is refused.
#[test]
fn a_specification_may_change_the_search_path() {
    run(harness, async |h| {
        let env = vec![("PATH".into(), "/opt/tools:/usr/bin:/bin".into())];
        let sandbox = h.create(&Spec { env, ..h.spec() }).await;
        let output = sandbox.shell(&ShellCommand::new("echo $PATH")).await.unwrap();
        assert_eq!(output.stdout.text(), "/opt/tools:/usr/bin:/bin\n");
        let image = ImageRef::Dir("/somewhere".into());
        let refused = h.runtime.create(&Spec { image, ..h.spec() }).await.map(drop);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    });
}
