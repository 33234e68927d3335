//! Images built from others: steps become layers, run once, and leave nothing when they fail.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Home, Running, code, err, is_root, is_running, out, refusal, setting, skip, unique_sleep,
    wait_for, write,
};

fn names(home: &Home) -> Vec<String> {
    let list = home.json(["image", "list", "--json"]);
    list.as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap().to_owned()).collect()
}

fn cached(report: &Value) -> Vec<bool> {
    report["steps"].as_array().unwrap().iter().map(|s| s["cached"].as_bool().unwrap()).collect()
}

/// Nothing on its way, no sandbox left.
fn assert_idle(home: &Home) {
    let left = fs::read_dir(home.state().join("images/tmp")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
    // On a busy machine the last process may end after the program.
    wait_for("the end of the sandboxes", || home.traces().is_empty().then_some(()));
}

#[test]
fn steps_become_layers_that_are_built_once() {
    let Some(home) = Home::with_sandboxes() else { return };
    let first = "mkdir /data; echo one > /data/a; ln /data/a /data/same";
    let steps = ["--run", first, "cat /data/a /data/a > /data/b"];
    let build = |more: &[&str]| {
        let args = ["image", "build", "mine", "--from", "host"].into_iter();
        home.run(args.chain(steps).chain(more.iter().copied()))
    };
    let first = build(&["--json"]);
    let text = err(&first);
    assert_eq!(code(&first), 0, "{text}");
    assert!(
        text.contains("step 1 of 2: mkdir /data") && text.contains("step 2 of 2: done in"),
        "{text}"
    );
    let report: Value = serde_json::from_str(&out(&first)).unwrap();
    assert_eq!((&report["name"], &report["from"]), (&"mine".into(), &"host".into()));
    assert_eq!((cached(&report), &report["layers"]), (vec![false, false], &2.into()));
    assert_eq!(report["steps"][1]["size"], 8);
    let inside = home.ok(["sandbox", "run", "--image", "mine", "--", "cat", "/data/b"]);
    assert_eq!(inside, "one\none\n");
    // What a sandbox gets for itself is not part of a layer.
    let layer = report["steps"][0]["layer"].as_str().unwrap().trim_start_matches("sha256:");
    let files = home.state().join("images/layers").join(layer).join("fs");
    assert!(files.join("data/a").exists() && !files.join("etc/resolv.conf").exists());
    // A file with two names is stored once.
    let inode = |name: &str| fs::metadata(files.join(name)).unwrap().ino();
    assert_eq!((inode("data/a"), &report["steps"][0]["size"]), (inode("data/same"), &4.into()));

    let second = build(&["--json"]);
    let (report, text): (Value, _) = (serde_json::from_str(&out(&second)).unwrap(), err(&second));
    assert_eq!((cached(&report), &report["unchanged"]), (vec![true, true], &true.into()));
    assert!(text.contains(": cached") && text.contains("`mine` is up to date"), "{text}");
    // Another last step keeps the first; no cache keeps none, and the duration is known by then.
    let more = build(&["--run", "touch /data/c", "--json"]);
    assert_eq!(cached(&serde_json::from_str(&out(&more)).unwrap()), [true, true, false]);
    let fresh = build(&["--no-cache", "--json"]);
    assert_eq!(cached(&serde_json::from_str(&out(&fresh)).unwrap()), [false, false]);
    assert!(err(&fresh).contains("/data/same (about "), "{}", err(&fresh));
    let table = home.ok(["image", "list"]);
    let row = table.lines().nth(1).unwrap();
    assert!(table.contains("FROM") && row.contains("host") && row.contains("ago"), "{table}");
    assert_idle(&home);
}

#[test]
fn a_failed_step_says_why_and_keeps_the_steps_before_it() {
    let Some(home) = Home::with_sandboxes() else { return };
    let build = |last: &str| {
        home.run(["image", "build", "mine", "--from", "host", "--run", "echo 1 > /one", last])
    };
    let failed = build("echo some output; printf 'no \\033[1mreason' >&2; exit 3");
    let (text, line) = (err(&failed), err(&failed).lines().last().unwrap().to_owned());
    assert_eq!((code(&failed), out(&failed).as_str()), (4, ""), "{text}");
    assert!(line.contains("cannot build `mine`: step 2 of 2 failed with exit code 3"), "{line}");
    assert!(line.contains("some output") && line.contains("no \\x1b[1mreason"), "{line}");
    assert_eq!(names(&home), Vec::<String>::new());
    assert_idle(&home);
    let fixed = build("cat /one");
    assert!(err(&fixed).contains("step 1 of 2: echo 1 > /one: cached"), "{}", err(&fixed));
    assert_eq!(names(&home), ["mine"]);
}

#[test]
fn a_cancelled_step_leaves_nothing() {
    let Some(home) = Home::with_sandboxes() else { return };
    let sleep = unique_sleep();
    let step = format!("echo started; {}", sleep.join(" "));
    let args = ["image", "build", "mine", "--from", "host", "--run", &step];
    let mut running = Running(home.command(args).spawn().unwrap());
    let mut said = BufReader::new(running.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("  started") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0);
    }
    running.signal(Signal::INT);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(running.end(), 130, "{rest}");
    assert!(rest.contains("cancelled"), "{rest}");
    assert!(!is_running(&sleep));
    assert_eq!(names(&home), Vec::<String>::new());
    assert_idle(&home);
}

#[test]
fn impossible_builds_are_refused_before_anything_runs() {
    let home = Home::new();
    for (args, word) in [
        (&["--add", "jq"][..], "no name"),
        (&["mine", "--from", "host"], "--add, --pip and --run"),
        (&["mine", "--from", "nope", "--run", "true"], "image list"),
        (&["mine", "--from", "mine", "--run", "true"], "on itself"),
        (&["base", "--add", "jq"], "on itself"),
        (&["../x", "--from", "host", "--run", "true"], "../x"),
        (&["mine", "--add", "-o"], "-o"),
        (&["mine", "--add", "a b"], "not a Debian package"),
        (&["mine", "--pip", ""], "requirement"),
        (&["science", "--from", "science", "--run", "true"], "on itself"),
    ] {
        let line = refusal(&home.run(["image", "build"].iter().chain(args)), 2);
        assert!(line.contains(word), "{args:?}: {line}");
    }
}

/// A program of this name that the command finds before the real one.
fn fake(home: &Home, name: &str, script: &str) -> String {
    let program = home.file("fake").join(name);
    write(&program, script);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = setting("PATH").unwrap_or_default();
    format!("{}:{}", home.file("fake").display(), path.to_string_lossy())
}

#[test]
fn the_base_image_is_built_again_only_on_request() {
    if !is_root() || !Path::new("/usr/bin/mmdebstrap").exists() {
        return skip("mmdebstrap", "the builder mmdebstrap is not installed, or needs root");
    }
    let home = Home::new();
    write(&home.file("tree/bin/sh"), "");
    // The builder's interface: steps on standard error, the system as a tar on standard output.
    let script = format!(
        "#!/bin/sh\necho x >> {0}/count\necho 'I: installing...' >&2\nexec tar -C {0}/tree -c .\n",
        home.file("").display()
    );
    let path = fake(&home, "mmdebstrap", &script);
    let build = |args: &[&str]| {
        let mut command = home.command(["image", "build"].iter().chain(args));
        let output = command.env("PATH", &path).output().unwrap();
        assert_eq!(code(&output), 0, "{}", err(&output));
        err(&output)
    };
    let count = || fs::read_to_string(home.file("count")).unwrap().lines().count();
    let first = build(&[]);
    assert!(first.contains("step 1 of 1: Debian") && first.contains("(about 4 min)"), "{first}");
    assert!(first.contains("  installing"), "{first}");
    let again = build(&["base"]);
    assert!(again.contains("`base` is up to date") && again.contains("--no-cache"), "{again}");
    assert_eq!(count(), 1);
    // The same recipe under another name needs no second build.
    build(&["other"]);
    assert_eq!((count(), names(&home)), (1, vec!["base".into(), "other".into()]));
    let forced = build(&["--no-cache"]);
    assert!(forced.contains("(about ") && !forced.contains("4 min"), "{forced}");
    assert_eq!(count(), 2);
    // A base image of unknown origin is replaced, and that is said.
    home.ok(["image", "rm", "base", "other"]);
    home.ok(["image", "import", "tree", "base"]);
    let replaced = build(&[]);
    assert!(replaced.contains("built from another recipe; building it again"), "{replaced}");
    assert_eq!(count(), 3);
}

/// A repository with one package inside the image, instead of the network.
const REPOSITORY: &str = r#"
set -e
mkdir -p /repo/hello/DEBIAN /repo/hello/usr/bin
printf '#!/bin/sh\necho hello from a package\n' > /repo/hello/usr/bin/say-hello
chmod 755 /repo/hello/usr/bin/say-hello
printf 'Package: say-hello\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.com>\nDescription: says hello\n' > /repo/hello/DEBIAN/control
dpkg-deb --build /repo/hello /repo/say-hello.deb
cd /repo
{
    cat hello/DEBIAN/control
    echo "Filename: ./say-hello.deb"
    echo "Size: $(stat -c %s say-hello.deb)"
    echo "SHA256: $(sha256sum say-hello.deb | cut -d ' ' -f 1)"
} > Packages
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/repo ./' > /etc/apt/sources.list
"#;

#[test]
fn packages_of_debian_are_added() {
    let Some(rootfs) = setting("LIS_TEST_ROOTFS").map(PathBuf::from) else {
        return skip("rootfs", "LIS_TEST_ROOTFS names no directory with a root file system");
    };
    let Some(home) = Home::with_sandboxes() else { return };
    home.ok(["image", "import", rootfs.to_str().unwrap(), "system"]);
    let built = home.run([
        "image",
        "build",
        "mine",
        "--from",
        "system",
        "--run",
        REPOSITORY,
        "--add",
        "say-hello",
    ]);
    assert_eq!(code(&built), 0, "{}", err(&built));
    let said = home.ok(["sandbox", "run", "--image", "mine", "--", "say-hello"]);
    assert_eq!(said, "hello from a package\n");
    let status = ["sandbox", "run", "--image", "mine", "--", "dpkg", "-s", "say-hello"];
    assert!(home.ok(status).contains("install ok installed"));
    let missing = home.run(["image", "build", "x", "--from", "mine", "--add", "no-such-package"]);
    let line = err(&missing).lines().last().unwrap().to_owned();
    assert!(code(&missing) == 4 && line.contains("Unable to locate package"), "{line}");
    // Where there is no package manager, the error says so.
    let host = home.run(["image", "build", "x", "--from", "host", "--add", "jq"]);
    assert!(err(&host).contains("install what you need with --run"), "{}", err(&host));
    assert_eq!(names(&home), ["mine", "system"]);
}

/// A wheel, which is a zip archive, made by the standard library.
const WHEEL: &str = r#"
mkdir /wheels && cd /wheels && exec python3 - <<'END'
import zipfile
info = "say_hello-1.dist-info"
with zipfile.ZipFile("say_hello-1-py3-none-any.whl", "w") as wheel:
    wheel.writestr("say_hello.py", "print('hello from a wheel')\n")
    wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\nName: say-hello\nVersion: 1\n")
    wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "/RECORD", "")
END
"#;

#[test]
fn packages_of_python_come_from_where_this_machine_gets_them() {
    let Some(home) = Home::with_sandboxes() else { return };
    let has_pip = home.run(["sandbox", "run", "--", "/usr/bin/python3", "-m", "pip", "--version"]);
    if !has_pip.status.success() {
        return skip("host-pip", "this machine's python3 has no pip");
    }
    // Other steps do not get the settings of pip, which may hold credentials.
    let wheel = format!("[ -z \"$PIP_NO_INDEX$PIP_FIND_LINKS\" ] || exit 9\n{WHEEL}");
    let args = ["image", "build", "mine", "--from", "host", "--run", &wheel, "--pip", "say-hello"];
    let mut command = home.command(args);
    command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", "/wheels").env("PIP_TARGET", "/nowhere");
    let built = command.output().unwrap();
    assert_eq!(code(&built), 0, "{}", err(&built));
    let run = ["sandbox", "run", "--image", "mine", "--", "python3", "-m", "say_hello"];
    assert_eq!(home.ok(run), "hello from a wheel\n");
}
