//! Whatever a sandbox produces, the program that runs it needs little memory.
//!
//! With `LIS_SLOW` set the sizes are those of the promise: two million entries, ten gigabytes of output.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{Home, setting};

/// Most memory of the program, in MiB, its code included.
const MOST: u64 = 64;

/// Runs the program; its exit code and its peak resident memory in MiB.
fn peak(command: &mut Command) -> (i32, u64) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) / 1024);
        if let Some(ended) = child.try_wait().unwrap() {
            println!("{:.1} s, {most} MiB", begun.elapsed().as_secs_f64());
            return (ended.code().unwrap(), most);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The usual size, or that of the promise.
fn size(usual: u64, promised: u64) -> u64 {
    if setting("LIS_SLOW").is_some() { promised } else { usual }
}

fn copied_out(home: &Home, script: &str) -> (i32, u64) {
    let options = ["--disk", "none", "--memory", "none", "--timeout", "20m"];
    let mut command = home.command(["sandbox", "run"]);
    command.args(options).args(["--json", "--copy-out", "t:copied"]);
    peak(command.args(["--", "bash", "-c", &format!("mkdir t; cd t; {script}")]))
}

#[test]
fn a_tree_of_many_files_is_copied_in_little_memory() {
    let Some(home) = Home::with_sandboxes() else { return };
    let entries = size(6_000, 2_000_000);
    let script = format!(
        "perl -e 'for $d (0..99) {{ mkdir $d; for $f (1..{}) {{ open F, q(>), qq($d/$f) }} }}'",
        entries / 100
    );
    let (code, most) = copied_out(&home, &script);
    assert!(code == 0 && most < MOST, "{code}: {most} MiB");
    assert_eq!(fs::read_dir(home.file("copied/99")).unwrap().count() as u64, entries / 100);
}

#[test]
fn what_cannot_be_copied_takes_little_memory() {
    let Some(home) = Home::with_sandboxes() else { return };
    // Names and paths of a usual length would need ten times as many.
    let links = size(8_000, 2_000_000);
    let script = format!(
        "for i in 1 2 3 4 5 6 7; do d=$(printf 'd%.0s' {{1..200}}); mkdir $d; cd $d; done; \
         perl -e 'symlink(q(/etc/passwd), $_) for 1..{links}'"
    );
    let (code, most) = copied_out(&home, &script);
    assert!(code == 0 && most < MOST, "{code}: {most} MiB");
}

/// Ten thousand levels, of which the first are copied, with what lies beside them.
#[test]
fn a_deep_tree_is_copied_as_far_as_possible() {
    let Some(home) = Home::with_sandboxes() else { return };
    let script = "echo x > kept; perl -e 'for (1..10000) { mkdir q(d); chdir q(d) }'";
    let (code, most) = copied_out(&home, script);
    assert!(code == 0 && most < MOST, "{code}: {most} MiB");
    assert_eq!(fs::read_to_string(home.file("copied/kept")).unwrap(), "x\n");
    assert!(home.file("copied").join("d/".repeat(100)).is_dir());
}

#[test]
fn output_without_end_takes_little_memory() {
    let Some(home) = Home::with_sandboxes() else { return };
    let bytes = size(200 << 20, 10 << 30).to_string();
    for json in [&["--json"][..], &[]] {
        let mut command = home.command(["sandbox", "run", "--timeout", "20m"]);
        let (code, most) = peak(command.args(json).args(["--", "head", "-c", &bytes, "/dev/zero"]));
        assert!(code == 0 && most < MOST, "{code}: {most} MiB");
    }
}
