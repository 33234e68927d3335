//! What must be invisible from inside: the host's environment, files and processes, and the neighbours'.

use sandbox::{Layer, LayerState, Process, Runtime, Sandbox};

use crate::{
    Harness,
    support::{ok, process_ok, run_process, running, sh},
};

/// No variable of our own process can be read inside, by any process.
#[expect(clippy::disallowed_methods, reason = "the test process's own variables are the markers")]
pub async fn host_environment_is_invisible<R: Runtime>(h: &Harness<R>) {
    // Test runners set variables of their own; any value long enough to be telling serves as a marker.
    // Shells inside set these as well.
    let common =
        ["PATH", "HOME", "PWD", "OLDPWD", "SHELL", "TERM", "LANG", "USER", "LOGNAME", "SHLVL", "_"];
    let markers: Vec<(String, String)> = std::env::vars()
        .filter(|(name, value)| !common.contains(&name.as_str()) && value.len() >= 6)
        .collect();
    assert!(!markers.is_empty(), "the test process has no environment to hide");
    let sandbox = h.sandbox().await;
    let script = "env -0; cat /proc/[0-9]*/environ 2>/dev/null; set | head -c 1M; true";
    let seen = [
        sh(&sandbox, script).await.stdout.head,
        run_process(&sandbox, &Process::new(["bash", "-c", script]), None).await.stdout,
    ]
    .concat();
    for (name, value) in markers {
        let pair = format!("{name}={value}");
        let found = seen.windows(pair.len()).any(|window| window == pair.as_bytes());
        assert!(!found, "{name} of the host is visible inside");
    }
}

/// Files of the host, its homes above all, are not there.
pub async fn host_files_are_invisible<R: Runtime>(h: &Harness<R>) {
    let mut markers =
        vec![tempfile::Builder::new().prefix("lis-marker-").tempfile().expect("a file")];
    for dir in ["/root", "/home", "/var/tmp"] {
        markers.extend(tempfile::Builder::new().prefix("lis-marker-").tempfile_in(dir));
    }
    let sandbox = h.sandbox().await;
    for marker in &markers {
        let path = marker.path().display();
        assert!(
            !sh(&sandbox, format!("[ -e '{path}' ]")).await.status.success(),
            "{path} is visible"
        );
        let failed = sandbox.read_file(marker.path()).await.map(drop);
        assert!(failed.is_err(), "{path} can be read");
    }
    let found = ok(&sandbox, "find / -xdev -name 'lis-marker-*' 2>/dev/null; true").await;
    assert_eq!(found, "");
}

/// Processes of the host are not there.
#[expect(clippy::disallowed_methods, reason = "the process to be hidden is one of the host's")]
pub async fn host_processes_are_invisible<R: Runtime>(h: &Harness<R>) {
    let argument = format!("390{:07}", std::process::id());
    let mut child = std::process::Command::new("sleep").arg(&argument).spawn().expect("sleep runs");
    let sandbox = h.sandbox().await;
    let seen = running(&sandbox, &format!("sleep {argument}")).await;
    let own = sh(&sandbox, format!("kill -0 {}", child.id())).await;
    child.kill().and_then(|()| child.wait()).expect("it ends");
    assert_eq!(seen, 0, "a process of the host is visible");
    assert!(!own.status.success(), "a process of the host can be signalled");
    let count: usize =
        ok(&sandbox, "set -- /proc/[0-9]*; echo $#").await.trim().parse().expect("a number");
    assert!(count <= 8, "{count} processes are visible in a fresh sandbox");
}

/// Other sandboxes' files and processes are not there.
pub async fn neighbours_are_invisible<R: Runtime>(h: &Harness<R>) {
    let (one, two) = (h.sandbox().await, h.sandbox().await);
    ok(&one, "sleep 40001 & for d in /testbed /tmp /root /var/tmp /dev/shm; do echo x > $d/of-one; done 2>/dev/null; true")
        .await;
    assert_eq!(running(&two, "sleep 40001").await, 0);
    assert_eq!(ok(&two, "find / -xdev -name of-one; ls /dev/shm 2>/dev/null; true").await, "");
    assert_eq!(running(&one, "sleep 40001").await, 1);
}

/// A command starts with standard input, output and error, and no further descriptor.
pub async fn commands_have_three_descriptors<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    // The fourth is the directory `ls` itself has open.
    assert_eq!(ok(&sandbox, "ls /proc/self/fd").await, "0\n1\n2\n3\n");
    assert_eq!(process_ok(&sandbox, &["ls", "/proc/self/fd"]).await, "0\n1\n2\n3\n");
}

/// The host's name is hidden.
pub async fn hostname_is_its_own<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let inside = ok(&sandbox, "cat /proc/sys/kernel/hostname; uname -n").await;
    match std::fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) => assert!(!inside.lines().any(|line| line == host.trim()), "{inside}"),
        Err(_) => crate::skip("procfs", "this system does not report its name that way"),
    }
}

/// Programs cannot gain privileges by executing others, and have few to begin with.
pub async fn privileges_cannot_grow<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for script in ["cat /proc/self/status", "cat < /proc/self/status"] {
        let status = ok(&sandbox, script).await;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_whitespace().nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(field("NoNewPrivs:"), "1");
        let bounding = u64::from_str_radix(&field("CapBnd:"), 16).expect("a mask");
        // Neither mounting, tracing, modules, raw devices, the clock nor the network's administration.
        for (bit, name) in [
            (12, "NET_ADMIN"),
            (16, "SYS_MODULE"),
            (17, "SYS_RAWIO"),
            (19, "SYS_PTRACE"),
            (21, "SYS_ADMIN"),
            (25, "SYS_TIME"),
            (27, "MKNOD"),
        ] {
            assert_eq!(bounding & (1 << bit), 0, "CAP_{name} can be had");
        }
    }
}

/// The report of what is enforced names its runtime and explains every layer.
pub async fn protection_is_reported<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let protection = sandbox.protection();
    assert!(!protection.runtime.is_empty());
    use Layer::{CpuLimit, DiskLimit, MemoryLimit, Network, ProcessLimit};
    for layer in [MemoryLimit, ProcessLimit, CpuLimit, DiskLimit, Network] {
        let report = protection.layers.iter().find(|report| report.layer == layer);
        let report = report.unwrap_or_else(|| panic!("the {layer} is not reported"));
        assert!(!report.detail.is_empty(), "the {layer} is not explained");
    }
    for (layer, capability) in
        [(MemoryLimit, &h.caps.memory_limit), (DiskLimit, &h.caps.disk_limit)]
    {
        if matches!(capability, crate::Capability::No(_)) {
            let state = protection.state(&layer);
            assert_ne!(state, LayerState::Enforced, "the {layer} does not hold");
        }
    }
}
