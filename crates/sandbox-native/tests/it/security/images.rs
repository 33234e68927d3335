//! Hostile images: links, files or nothing in place of directories that the set-up uses.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use sandbox::{
    ByteSize, DiskQuota, ImageRef, Limits, Network, Runtime, Sandbox, ShellCommand, Spec,
};

use super::{Ground, ok, on_the_host, perl, soon};

/// A root file system with nothing but a shell, made of this machine's own.
#[expect(clippy::disallowed_methods, reason = "asks the host which libraries its shell needs")]
fn bare_image(at: &Path) {
    let needs = std::process::Command::new("ldd").arg("/bin/bash").output().unwrap();
    let needs = String::from_utf8(needs.stdout).unwrap();
    let files = needs.split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/bash"]);
    for file in files {
        let to = at.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    for dir in ["etc", "proc", "dev", "sys", "tmp", "testbed"] {
        fs::create_dir(at.join(dir)).unwrap();
    }
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Puts a link where the image has a directory.
fn replace(image: &Path, name: &str, target: &Path) {
    let at = image.join(name);
    let _ = fs::remove_dir_all(&at);
    let _ = fs::remove_file(&at);
    symlink(target, at).unwrap();
}

/// The host's directory a hostile image wants to reach, with what must stay as it is.
fn bait() -> (tempfile::TempDir, Vec<(&'static str, &'static str)>) {
    let bait = tempfile::Builder::new().prefix("lis-bait-").tempdir().unwrap();
    let files = vec![("hosts", "the host's hosts"), ("resolv.conf", "the host's resolvers")];
    for (name, content) in &files {
        fs::write(bait.path().join(name), content).unwrap();
    }
    fs::set_permissions(bait.path(), fs::Permissions::from_mode(0o777)).unwrap();
    (bait, files)
}

fn assert_untouched(bait: &Path, files: &[(&str, &str)], image: &str) {
    let mut names: Vec<_> = fs::read_dir(bait).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["hosts", "resolv.conf"], "{image}");
    for (name, content) in files {
        assert_eq!(&fs::read_to_string(bait.join(name)).unwrap(), content, "{image}: {name}");
    }
}

async fn start(h: &Ground<'_>, image: &Path, network: &Network) -> Option<impl Sandbox> {
    let image = ImageRef::Dir(image.to_owned());
    let spec = Spec { image, network: network.clone(), ..h.spec() };
    soon("create", h.runtime.create(&spec)).await.ok()
}

/// Links in the place of directories that are mounted on or written to stay inside.
#[test]
fn links_for_directories_stay_inside() {
    on_the_host(async |h| {
        let (bait, files) = bait();
        let climbing = PathBuf::from(format!("../../../../../..{}", bait.path().display()));
        let mut targets =
            vec![bait.path().to_owned(), climbing, "/".into(), ".".into(), "/proc".into()];
        targets.extend((3..12).map(|n| format!("/proc/self/fd/{n}/../..").into()));
        for name in ["proc", "dev", "sys", "tmp", "etc", "testbed", "etc/hosts", "etc/resolv.conf"]
        {
            let image = tempfile::tempdir().unwrap();
            bare_image(image.path());
            for target in &targets {
                replace(image.path(), name, target);
                let shown = format!("{name} -> {}", target.display());
                let networks = if name.starts_with("etc") {
                    vec![Network::None, Network::Full]
                } else {
                    vec![Network::None]
                };
                for network in networks {
                    let runs = names(&h.home.join("run"));
                    if let Some(sandbox) = start(h, image.path(), &network).await {
                        let command =
                            ShellCommand::new("echo $((6*7)); echo /testbed/* /etc/* /dev/*");
                        if let Ok(output) = soon(&shown, sandbox.shell(&command)).await {
                            assert!(!output.stdout.text().contains("/u0"), "{shown}: {output:?}");
                        }
                        let id = sandbox.id().to_owned();
                        assert_no_strays(&h.home, &id, &shown);
                        soon(&shown, sandbox.destroy()).await.unwrap();
                    }
                    assert_eq!(names(&h.home.join("run")), runs, "{shown}");
                }
                assert_untouched(bait.path(), &files, &shown);
            }
        }
    });
}

fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

/// Next to the sandbox's own directory nothing has appeared.
fn assert_no_strays(home: &Path, id: &str, image: &str) {
    for run in names(&home.join("run")) {
        let strays: Vec<_> = names(&home.join("run").join(run).join("state"))
            .into_iter()
            .filter(|name| name != id)
            .collect();
        assert!(strays.is_empty(), "{image}: {strays:?}");
    }
}

/// Missing directories are created inside; files in their place are an error or harmless.
#[test]
fn missing_directories_and_files_in_their_place() {
    on_the_host(async |h| {
        for name in ["proc", "dev", "sys", "tmp", "etc", "testbed"] {
            let image = tempfile::tempdir().unwrap();
            bare_image(image.path());
            fs::remove_dir(image.path().join(name)).unwrap();
            let sandbox = start(h, image.path(), &Network::None).await;
            let sandbox = sandbox.unwrap_or_else(|| panic!("without {name}: no sandbox"));
            assert_eq!(ok(&sandbox, "echo $((6*7))").await, "42\n", "without {name}");
            assert!(!image.path().join(name).exists(), "{name} was made in the image itself");
            fs::write(image.path().join(name), "a file").unwrap();
            if let Some(sandbox) = start(h, image.path(), &Network::Full).await {
                let _ = soon(name, sandbox.shell(&ShellCommand::new("echo"))).await;
            }
            assert_eq!(fs::read_to_string(image.path().join(name)).unwrap(), "a file");
        }
    });
}

/// What a command leaves behind misleads neither a fork of its sandbox nor the next one from its image.
#[test]
fn a_prepared_fork_stays_inside() {
    on_the_host(async |h| {
        let (bait, files) = bait();
        for number in 3..12 {
            let sandbox = h.sandbox().await;
            let target = format!("/proc/self/fd/{number}/../..");
            ok(
                &sandbox,
                &format!(
                    "cd /; rm -rf /etc /testbed; ln -s {target} /etc; ln -s {target}/made /testbed"
                ),
            )
            .await;
            if let Ok(fork) = soon("fork", sandbox.fork()).await {
                let _ = soon("shell", fork.shell(&ShellCommand::new("pwd"))).await;
                soon("destroy", fork.destroy()).await.unwrap();
            }
            let id = sandbox.id().to_owned();
            let strays = |run: &String| {
                names(&h.home.join("run").join(run).join("state"))
                    .into_iter()
                    .filter(|name| *name != id)
                    .collect::<Vec<_>>()
            };
            for run in names(&h.home.join("run")) {
                assert_eq!(strays(&run), Vec::<String>::new(), "descriptor {number}");
            }
            soon("destroy", sandbox.destroy()).await.unwrap();
        }
        assert_untouched(bait.path(), &files, "fork");
    });
}

/// The image itself stays as it is, whatever commands do to their root.
#[test]
fn images_are_read_only() {
    on_the_host(async |h| {
        let image = tempfile::tempdir().unwrap();
        bare_image(image.path());
        fs::write(image.path().join("etc/kept"), "kept").unwrap();
        let sandbox = start(h, image.path(), &Network::None).await.unwrap();
        ok(
            &sandbox,
            "echo changed > /etc/kept; echo new > /etc/new; echo x > /usr/bin/bash2 || true",
        )
        .await;
        assert_eq!(ok(&sandbox, "echo $(</etc/kept)").await, "changed\n");
        assert_eq!(fs::read_to_string(image.path().join("etc/kept")).unwrap(), "kept");
        assert!(!image.path().join("etc/new").exists());
    });
}

/// A fork has no file that was removed before, however many attributes a command has given the directory that it was in.
#[test]
fn attributes_bring_no_removed_file_back() {
    on_the_host(async |h| {
        let limits = Limits { disk: Some(ByteSize::mib(64)), ..h.spec().limits };
        // The kernel keeps more attributes of a file in memory than it lists.
        let spec = Spec { disk_quota: DiskQuota::Memory, limits, ..h.spec() };
        let sandbox = h.create(&spec).await;
        let hide = format!(
            "system('rm -rf /etc/alternatives && mkdir /etc/alternatives') == 0 or die; my ($d, $none) = ('/etc/alternatives', ''); \
             for (1..300) {{ my $n = sprintf('user.%0240d', $_); syscall({}, $d, $n, $none, 0, 0) }} print scalar(<$d/*>) // 'empty'",
            libc::SYS_setxattr
        );
        assert_eq!(perl(&sandbox, &hide).await, "empty");
        let fork = soon("fork", sandbox.fork()).await.unwrap();
        assert_eq!(ok(&fork, "ls -A /etc/alternatives").await, "");
    });
}

/// A saved sandbox has the files that it had: names which mean something else in an image neither hide other files in it
/// nor make it unusable.
#[test]
fn names_of_whiteouts_hide_nothing_in_a_saved_image() {
    on_the_host(async |h| {
        let sandbox = h.sandbox().await;
        let hostile = "cd /testbed; mkdir d; echo a > d/kept; echo b > kept; echo c > .wh.kept; touch d/.wh..wh..opq; \
                       touch .wh. .wh.. .wh... .wh..wh.x; mkdir .wh.d; ln -s kept .wh.l; touch /etc/.wh.passwd; touch /usr/bin/.wh.env 2> /dev/null; true";
        ok(&sandbox, hostile).await;
        soon("snapshot", sandbox.snapshot("saved-names")).await.unwrap();
        let spec = Spec { image: ImageRef::Name("saved-names".into()), ..h.spec() };
        let saved = soon("create", h.runtime.create(&spec)).await.unwrap();
        let look =
            "cd /testbed; cat d/kept kept; test -s /etc/passwd && test -x /usr/bin/env && ls -A";
        assert_eq!(ok(&saved, look).await, "a\nb\nd\nkept\n");
    });
}
