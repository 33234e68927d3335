//! The same commands with Docker's containers as sandboxes.

use std::process::Output;

use crate::support::Running;
use crate::support::{Home, code, err, is_running, out, setting, skip, unique_sleep, wait_for};

struct Docker {
    home: Home,
    host: std::ffi::OsString,
    image: String,
}

impl Docker {
    fn new() -> Option<Self> {
        let image = setting("LIS_TEST_IMAGE").and_then(|image| image.into_string().ok());
        match (setting("DOCKER_HOST"), image) {
            (Some(host), Some(image)) => Some(Self { home: Home::new(), host, image }),
            _ => {
                skip("docker", "DOCKER_HOST and LIS_TEST_IMAGE name no daemon and image");
                None
            }
        }
    }

    fn command(&self, options: &[&str], command: &[&str]) -> std::process::Command {
        let mut all = vec!["sandbox", "run", "--runtime", "docker", "--image", &self.image];
        all.extend(options);
        all.push("--");
        all.extend(command);
        let mut command = self.home.command(all);
        command.env("DOCKER_HOST", &self.host);
        command
    }

    fn run(&self, options: &[&str], command: &[&str]) -> Output {
        self.command(options, command).output().unwrap()
    }
}

#[test]
fn codes_and_output_pass_through() {
    let Some(docker) = Docker::new() else { return };
    let output = docker.run(&["--env", "A=b"], &["bash", "-c", "echo $A; echo e >&2; exit 3"]);
    assert_eq!((code(&output), out(&output).as_str()), (3, "b\n"), "{}", err(&output));
    assert_eq!(err(&output), "e\n");
    let late = docker.run(&["--timeout", "1"], &["sleep", "60"]);
    assert_eq!(code(&late), 124, "{}", err(&late));
    assert!(!docker.home.state().exists(), "Docker needs no state of ours");
}

#[test]
fn ctrl_c_removes_the_container() {
    let Some(docker) = Docker::new() else { return };
    let sleep = unique_sleep();
    let words: Vec<&str> = sleep.iter().map(String::as_str).collect();
    let mut running = Running(docker.command(&[], &words).spawn().unwrap());
    wait_for("the command", || is_running(&sleep).then_some(()));
    running.signal(rustix::process::Signal::INT);
    assert_eq!(running.end(), 130);
    wait_for("the command's end", || (!is_running(&sleep)).then_some(()));
    let mut list = docker.home.command(["sandbox", "list", "--runtime", "docker", "--json"]);
    let listed = list.env("DOCKER_HOST", &docker.host).output().unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let ours = listed.as_array().unwrap().iter().any(|s| s["owner_pid"] == running.0.id());
    assert!(!ours, "{listed}");
}
