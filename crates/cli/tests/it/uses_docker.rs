//! The same commands with Docker's containers as sandboxes.

use std::process::Output;

use testkit::{Answer, MockServer, bash, submit};

use crate::{
    episodes::{folder, run},
    support::{
        Home, Running, code, err, is_running, out, setting, skip, unique_sleep, wait_for, write,
    },
};

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

    /// What the daemon says of its images.
    fn images(&self) -> String {
        let socket = self.host.to_string_lossy().replace("unix://", "");
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--fail", "--unix-socket", &socket, "http://docker/images/json"]);
        let output = curl.output().unwrap();
        assert!(output.status.success());
        out(&output)
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

#[test]
fn an_episode_runs_in_a_container_and_goes_on_after_a_kill() {
    let Some(docker) = Docker::new() else { return };
    let home = &docker.home;
    let server = MockServer::start().unwrap();
    server.push(bash("cat input/a.txt > output/list.txt; mkdir /opt/kept"));
    server.push(Answer::hang());
    write(&home.file("in/a.txt"), "one\n");
    let mut command = run(home, &server.base_url(), ["Do it", "--input", "in"]);
    command.args(["--docker_image", &docker.image]).env("DOCKER_HOST", &docker.host);
    let mut running = Running(command.spawn().unwrap());
    server.wait_for_requests(2).unwrap();
    running.signal(rustix::process::Signal::KILL);
    running.0.wait().unwrap();

    server.push(bash(
        "ls -d /opt/kept >> output/list.txt; paste -s output/list.txt > output/answer.txt",
    ));
    server.push(submit());
    let mut command = home.command(["run", "--quiet", "--resume"]);
    let output = command.arg(folder(home)).env("DOCKER_HOST", &docker.host).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(out(&output), "one\t/opt/kept\n");
    let images = docker.images();
    assert!(!images.contains("run-"), "{images}");
}
