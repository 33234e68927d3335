//! The caller: it neither waits without end nor takes memory without end, whatever answers inside.

use std::time::{Duration, Instant};

use sandbox::{Sandbox, Spec};
use tokio::io::AsyncReadExt;

use super::{ok, on_docker, sh, soon, store};

/// The most memory this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// A command that stops every process that is started does not make the caller wait without end.
#[test]
fn stopped_processes_do_not_block_the_caller() {
    on_docker(async |h| {
        let stall_timeout = Duration::from_secs(4);
        let sandbox = h.create(&Spec { stall_timeout, ..h.spec() }).await;
        ok(&sandbox, "head -c 30M /dev/zero > big").await;
        // All that run by then, itself included, are left alone. It begins when the shell that started it has ended.
        let stop = r#"my %own = map { $_ => 1 } map { m{(\d+)} } glob '/proc/[0-9]*'; open(my $f, '>', '/tmp/on');
            select(undef, undef, undef, 0.02) while -e "/proc/$ARGV[0]";
            while (1) { for (glob '/proc/[0-9]*') { my ($p) = m{(\d+)}; kill 'STOP', $p unless $own{$p} } }"#;
        store(&sandbox, "/tmp/stop.pl", stop).await;
        let begin =
            "perl /tmp/stop.pl $$ >/dev/null 2>&1 </dev/null & until [ -e /tmp/on ]; do :; done";
        ok(&sandbox, begin).await;
        // It begins within moments: the shell that it waits for has ended.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let start = Instant::now();
        let read = async {
            let mut file = sandbox.read_file("/testbed/big".as_ref()).await?;
            let read = file.read_to_end(&mut Vec::new()).await;
            read.map_err(sandbox::Error::io("reading"))
        };
        let read = soon("read", read).await;
        let listed = soon("list", sandbox.list("/testbed".as_ref())).await;
        let written = soon("write", sandbox.write_file("/testbed/f".as_ref(), b"x")).await;
        let results = [read.map(drop), listed.map(drop), written];
        let errors = results.iter().filter(|result| result.is_err()).count();
        assert!(errors > 0, "the control fails: nothing was stopped");
        assert!(start.elapsed() < stall_timeout * 6, "{:?}: {results:?}", start.elapsed());
        soon("destroy", sandbox.destroy()).await.unwrap_or_else(|e| panic!("{e}"));
    });
}

/// Programs of the container that answer without end take little of the caller's memory.
#[test]
fn endless_answers_do_not_fill_the_callers_memory() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let noisy = "#!/bin/bash\nprintf x >&2\nhead -c 100M /dev/zero >&2\nexit 1\n";
        store(&sandbox, "/usr/local/bin/cat.new", noisy).await;
        let endless = "#!/bin/bash\nhead -c 100M /dev/zero\n";
        store(&sandbox, "/usr/local/bin/find", endless).await;
        ok(&sandbox, "cd /usr/local/bin; chmod +x find cat.new; mv cat.new cat").await;
        let before = peak();
        let read = async {
            let mut file = sandbox.read_file("/etc/passwd".as_ref()).await?;
            let read = file.read_to_end(&mut Vec::new()).await;
            read.map_err(sandbox::Error::io("reading"))
        };
        let read = soon("read", read).await;
        assert!(read.is_err(), "{read:?}");
        let grown = peak() - before;
        assert!(grown < 48 << 20, "{} MiB more for an error message", grown >> 20);
        let listed = soon("list", sandbox.list("/".as_ref())).await;
        let Err(error) = listed else { panic!("it was listed") };
        assert!(error.chain().contains("too many entries"), "{}", error.chain());
    });
}

/// What a container prints in place of an error is text without control characters.
#[test]
fn error_messages_cannot_control_a_terminal() {
    on_docker(async |h| {
        let sandbox = h.sandbox().await;
        let hostile =
            "#!/bin/bash\nprintf '\\e]0;owned\\a\\e[2J\\342\\200\\256\\302\\23331m' >&2\nexit 1\n";
        store(&sandbox, "/usr/local/bin/find", hostile).await;
        sh(&sandbox, "chmod +x /usr/local/bin/find").await;
        let error = soon("list", sandbox.list("/".as_ref())).await;
        let Err(error) = error else { panic!("it was listed") };
        let text = error.chain();
        assert!(text.contains("owned"), "{text:?}");
        let hidden = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!text.contains(hidden), "{text:?}");
    });
}
