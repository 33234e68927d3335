//! Any text may be a command: what the shell makes of it is data, and the next command works.

use sandbox::{Error, Runtime, Sandbox, ShellCommand, Status};

use crate::{
    Harness,
    support::{ok, sh},
};

/// Here-documents and every kind of quote arrive as written.
pub async fn heredocs_and_quotes<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script =
        "cat <<'END'\n$HOME `id` \\ \"x\" 'y'\nEOF\nEND\ncat <<-EOF\n\ttab $((1+1))\n\tEOF\n";
    assert_eq!(ok(&sandbox, script).await, "$HOME `id` \\ \"x\" 'y'\nEOF\ntab 2\n");
    let script = r#"echo 'single '"'"' quote' "double \" quote" $'ansi \' quote' \\ back\ slash"#;
    assert_eq!(
        ok(&sandbox, script).await,
        "single ' quote double \" quote ansi ' quote \\ back slash\n"
    );
    let script = "python() {\n  cat\n}\npython <<'PY'\nprint(\"it's\")\nPY";
    assert_eq!(ok(&sandbox, script).await, "print(\"it's\")\n");
    assert_eq!(ok(&sandbox, "cat <<'END'\nno end line").await, "no end line\n");
    assert_eq!(ok(&sandbox, "echo $'caf\\xc3\\xa9' ☃ 'a'$'\\t''b'").await, "café ☃ a\tb\n");
}

/// The last line may be a comment, or anything else without a newline.
pub async fn comment_without_a_final_newline<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    assert_eq!(ok(&sandbox, "echo a # and why").await, "a\n");
    assert_eq!(ok(&sandbox, "echo b;").await, "b\n");
    assert_eq!(ok(&sandbox, "echo c\n\n\n").await, "c\n");
    assert_eq!(ok(&sandbox, "# nothing").await, "");
    assert_eq!(ok(&sandbox, "if true\nthen echo d\nfi").await, "d\n");
}

/// Broken syntax is an exit code and a message; the shell lives on with its state.
pub async fn broken_syntax_is_data<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "before=1").await;
    for script in
        ["echo 'open", "echo \"open", "if true; then", "echo $(", "done", "( echo", "}", "a() {"]
    {
        let output = sh(&sandbox, script).await;
        assert!(
            matches!(output.status, Status::Exited(code) if code != 0),
            "`{script}`: {output:?}"
        );
        assert!(output.stderr.total > 0, "`{script}` says nothing");
        assert_eq!(ok(&sandbox, "echo $before").await, "1\n", "after `{script}`");
    }
    // Bash takes these as complete; they must not swallow what comes after them.
    for script in ["echo x \\", "echo x &", "echo x; \\\n"] {
        assert!(sh(&sandbox, script).await.status.success(), "`{script}`");
        assert_eq!(ok(&sandbox, "echo $before").await, "1\n", "after `{script}`");
    }
}

/// A NUL byte cannot be in a command; nothing of such a command runs.
pub async fn nul_byte_is_refused<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let command = ShellCommand::new(&b"touch /tmp/ran\0; touch /tmp/ran"[..]);
    let refused = sandbox.shell(&command).await;
    assert!(matches!(refused, Err(Error::BadRequest(_))), "{refused:?}");
    ok(&sandbox, "! [ -e /tmp/ran ]").await;
}

/// A command of 10 MB is a command.
pub async fn ten_megabyte_command<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let size = 10_000_000;
    let script = format!("cat > /tmp/big <<'END'\n{}\nEND\nwc -c < /tmp/big", "x".repeat(size));
    assert_eq!(ok(&sandbox, script).await.trim(), (size + 1).to_string());
    let script = format!("big='{}'; echo ${{#big}}; unset big", "y".repeat(size));
    assert_eq!(ok(&sandbox, script).await.trim(), size.to_string());
}

/// Nothing at all succeeds.
pub async fn empty_command<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    for script in ["", "\n", "   ", ":"] {
        let output = sh(&sandbox, script).await;
        assert_eq!(output.status, Status::Exited(0), "{script:?}");
        assert_eq!((output.stdout.total, output.stderr.total), (0, 0), "{script:?}");
    }
}

/// Commands that read standard input see its end at once.
pub async fn standard_input_is_empty<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    assert_eq!(ok(&sandbox, "cat; read -r line || echo end; cat | wc -c").await, "end\n0\n");
}

/// An unknown program is exit code 127 and a message.
pub async fn command_not_found_is_data<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let output = sh(&sandbox, "no-such-program --flag").await;
    assert_eq!(output.status, Status::Exited(127));
    assert!(output.stderr.text().contains("no-such-program"), "{}", output.stderr.text());
}

/// A program that dies by a signal is exit code 128 and the signal's number, as shells have it.
pub async fn crashing_program_is_data<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let output = sh(&sandbox, "bash -c 'kill -SEGV $$'").await;
    assert_eq!((output.status, output.cause), (Status::Exited(139), None));
}
