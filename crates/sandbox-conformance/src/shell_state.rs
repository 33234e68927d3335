//! One shell whose state carries on from call to call, whatever a command does to it.
//!
//! These cases never ask how the state is kept, only that the next command finds it.

use std::time::{Duration, Instant};

use sandbox::{Cause, Runtime, Spec, Status};

use crate::{
    Harness,
    support::{has, ok, running, sh, sh_within},
};

/// The first command finds itself in the working directory, which was made for it.
pub async fn starts_in_the_working_directory<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.create(&Spec { workdir: "/made/for you".into(), ..h.spec() }).await;
    assert_eq!(ok(&sandbox, "pwd").await, "/made/for you\n");
    assert_eq!(ok(&sandbox, "echo x > here && cat '/made/for you/here'").await, "x\n");
}

/// `cd` persists, also into unusual names and a directory that is removed.
pub async fn directory_carries_on<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "mkdir -p $'/tmp/a b\\n\\'c' && cd /usr && cd $'/tmp/a b\\n\\'c'").await;
    assert_eq!(ok(&sandbox, "pwd").await, "/tmp/a b\n'c\n");
    assert_eq!(ok(&sandbox, "cd -").await, "/usr\n");
    ok(&sandbox, "mkdir /tmp/gone && cd /tmp/gone && rmdir /tmp/gone").await;
    assert_eq!(ok(&sandbox, "echo still here; cd /tmp").await, "still here\n");
    assert_eq!(ok(&sandbox, "pwd").await, "/tmp\n");
}

/// Variables keep every byte, their attributes, and their absence.
pub async fn variables_carry_on<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(
        &sandbox,
        r#"plain=1 empty= text=$'two\nlines\t"quoted" \'single\' $HOME `id` \\ end'
           bytes=$'\xff\xfe|\x01' utf='naïve 雪'; declare -i number=40; declare -r fixed=yes; gone=1"#,
    )
    .await;
    ok(&sandbox, "unset gone; number+=2").await;
    let shown = ok(
        &sandbox,
        r#"printf '%s|' "$plain" "${empty-unset}" "$utf" "$number" "$fixed" "${gone-unset}"
           printf %s "$text" | od -An -tx1 | tr -d ' \n'; echo; printf %s "$bytes" | od -An -tx1"#,
    )
    .await;
    let text = "two\nlines\t\"quoted\" 'single' $HOME `id` \\ end";
    let hex: String = text.bytes().map(|b| format!("{b:02x}")).collect();
    assert_eq!(shown, format!("1||naïve 雪|42|yes|unset|{hex}\n ff fe 7c 01\n"));
}

/// Arrays keep their gaps, keys and values.
pub async fn arrays_carry_on<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, r#"list=(a "b c" "" [9]=$'nine\n'); declare -A map=([k]=v ["two words"]='"x"')"#)
        .await;
    let shown = ok(
        &sandbox,
        r#"echo "${#list[@]} ${!list[*]} <${list[1]}> <${list[2]}> <${list[9]}>"
           echo "${#map[@]} ${map[k]} ${map["two words"]}""#,
    )
    .await;
    assert_eq!(shown, "4 0 1 2 9 <b c> <> <nine\n>\n2 v \"x\"\n");
}

/// Functions last, with everything their bodies hold.
pub async fn functions_carry_on<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(
        &sandbox,
        "count() { (( $1 <= 0 )) && return 0; echo \"$1\"; count $(( $1 - 1 )); }\n\
         letter() { cat <<EOF\nDear $1,\n  \"yours\"\nEOF\n}\n\
         say-it() { printf '%s\\n' \"$@\"; }",
    )
    .await;
    assert_eq!(ok(&sandbox, "count 3; letter Ada").await, "3\n2\n1\nDear Ada,\n  \"yours\"\n");
    ok(&sandbox, "unset -f count; say-it() { echo changed; }").await;
    assert_eq!(sh(&sandbox, "count 1").await.status, Status::Exited(127));
    assert_eq!(ok(&sandbox, "say-it").await, "changed\n");
}

/// What is exported reaches programs, what is not does not.
pub async fn exported_variables_reach_programs<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "export SHOWN=1; hidden=1; twice() { echo \"$1$1\"; }; export -f twice").await;
    let script = r#"bash -c 'echo "${SHOWN-no} ${hidden-no}"; twice a'"#;
    assert_eq!(ok(&sandbox, script).await, "1 no\naa\n");
    ok(&sandbox, "export -n SHOWN").await;
    assert_eq!(ok(&sandbox, r#"echo "$SHOWN"; bash -c 'echo "${SHOWN-no}"'"#).await, "1\nno\n");
}

/// Shell options, aliases and the file mask last.
pub async fn options_aliases_and_umask_carry_on<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "set -o pipefail; shopt -s extglob expand_aliases; umask 027").await;
    ok(&sandbox, "alias greet='echo hello'; only() { [[ $1 == @(a|b) ]]; }").await;
    assert_eq!(sh(&sandbox, "false | true").await.status, Status::Exited(1));
    assert_eq!(
        ok(&sandbox, "umask; greet there; only b && echo yes").await,
        "0027\nhello there\nyes\n"
    );
    ok(&sandbox, "set +o pipefail; unalias greet; shopt -u extglob").await;
    ok(&sandbox, "false | true").await;
    assert_eq!(sh(&sandbox, "greet").await.status, Status::Exited(127));
    assert_ne!(sh(&sandbox, "shopt -q extglob").await.status, Status::Exited(0));
}

/// The variables of the specification are there, and a usable `PATH` and `HOME` without asking.
pub async fn environment_of_the_specification_is_there<R: Runtime>(h: &Harness<R>) {
    let env = vec![("TOKEN".into(), "a b\"c'$d\n".into()), ("EMPTY".into(), String::new())];
    let sandbox = h.create(&Spec { env, ..h.spec() }).await;
    let script = r#"bash -c 'printf "%s|" "$TOKEN" "${EMPTY-unset}"; command -v ls >/dev/null && [ -n "$HOME" ]'"#;
    assert_eq!(ok(&sandbox, script).await, "a b\"c'$d\n||");
}

/// `exit` ends the command, not the sandbox.
pub async fn exit_reports_its_code_and_the_next_call_works<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "before=1; keep() { echo kept; }; cd /usr").await;
    let output = sh(&sandbox, "echo out; echo err >&2; exit 3; echo never").await;
    assert_eq!(output.status, Status::Exited(3));
    assert_eq!((&*output.stdout.text(), &*output.stderr.text()), ("out\n", "err\n"));
    assert!(!output.shell_lost);
    assert_eq!(output.cause, None);
    for code in [0, 1, 255] {
        assert_eq!(sh(&sandbox, format!("exit {code}")).await.status, Status::Exited(code));
    }
    assert_eq!(ok(&sandbox, "echo $before; keep; pwd").await, "1\nkept\n/usr\n");
}

/// `set -e` may end commands early and nothing else.
pub async fn set_e_does_not_lose_the_sandbox<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "before=1").await;
    let output = sh(&sandbox, "set -e; false; echo never").await;
    assert_eq!((output.status, &*output.stdout.text()), (Status::Exited(1), ""));
    ok(&sandbox, "set -eu").await;
    let output = sh(&sandbox, "(exit 7); echo never").await;
    assert_eq!((output.status, &*output.stdout.text()), (Status::Exited(7), ""));
    assert_ne!(sh(&sandbox, "echo $unheard_of").await.status, Status::Exited(0));
    assert_eq!(ok(&sandbox, "set +eu; false; echo $before").await, "1\n");
}

/// `exec` replaces the shell for this command; the next one finds a shell with the former state.
pub async fn exec_replaces_the_shell_for_one_command<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "before=1").await;
    let output = sh(&sandbox, "exec printf 'replaced %s' \"$before\"").await;
    assert_eq!((output.status, &*output.stdout.text()), (Status::Exited(0), "replaced 1"));
    assert_eq!(ok(&sandbox, "echo $before").await, "1\n");
}

/// A shell that kills itself is reported as killed; the next command finds the former state.
pub async fn a_killed_shell_comes_back<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "before=1").await;
    let output = sh(&sandbox, "before=2; kill -9 $BASHPID; sleep 1").await;
    assert_eq!(output.status, Status::Signaled(9));
    assert_eq!(ok(&sandbox, "echo $before").await, "1\n");
}

/// After a timeout the state is what it was before the command.
pub async fn timeout_keeps_the_former_state<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "word=former; f() { echo former; }; cd /usr").await;
    let script = "word=latter; f() { echo latter; }; cd /tmp; sleep 1000";
    let output = sh_within(&sandbox, script, Duration::from_secs(1)).await;
    assert_eq!((output.status, output.cause), (Status::TimedOut, Some(Cause::Timeout)));
    assert!(!output.shell_lost);
    assert_eq!(ok(&sandbox, "echo $word; f; pwd").await, "former\nformer\n/usr\n");
}

/// A timeout kills children, background jobs, sessions of their own, orphans, and those that hide their
/// environment.
pub async fn timeout_kills_everything_the_command_started<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script =
        "sleep 31001 & setsid sleep 31002 & (setsid bash -c 'sleep 31003 & sleep 31004 &' &)
         env -i setsid -f sleep 31005
         ( ( env -i sleep 31006 & ) & )
         nohup sleep 31007 >/dev/null 2>&1 & disown
         sleep 0.5; echo started; sleep 31008";
    let start = Instant::now();
    let mut output = sh_within(&sandbox, script, Duration::from_millis(1500)).await;
    if output.stdout.text().is_empty() {
        // On a busy machine it takes longer to start all of them.
        output = sh_within(&sandbox, script, Duration::from_secs(10)).await;
    }
    assert_eq!(output.status, Status::TimedOut, "{}", output.stderr.text());
    assert_eq!(output.stdout.text(), "started\n");
    assert!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
    for n in 31001..=31008 {
        assert_eq!(running(&sandbox, &format!("sleep {n}")).await, 0, "sleep {n} lives on");
    }
}

/// A timeout kills nothing that earlier commands started.
pub async fn timeout_spares_earlier_processes<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "sleep 32001 & (setsid sleep 32002 &); env -i setsid -f sleep 32003").await;
    let output = sh_within(&sandbox, "sleep 32004", Duration::from_secs(1)).await;
    assert_eq!(output.status, Status::TimedOut);
    for n in 32001..=32003 {
        assert_eq!(running(&sandbox, &format!("sleep {n}")).await, 1, "sleep {n} died");
    }
    assert_eq!(running(&sandbox, "sleep 32004").await, 0);
}

/// Ignoring SIGTERM does not help.
pub async fn timeout_kills_what_ignores_it<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    let script = "trap '' TERM INT HUP QUIT; (while :; do sleep 33001; done) & \
                  while :; do sleep 33002; done";
    let start = Instant::now();
    let output = sh_within(&sandbox, script, Duration::from_secs(1)).await;
    assert_eq!(output.status, Status::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(60), "took {:?}", start.elapsed());
    for n in [33001, 33002] {
        assert_eq!(running(&sandbox, &format!("sleep {n}")).await, 0);
    }
    if has(&sandbox, "perl").await {
        let script = "perl -e '$SIG{TERM}=\"IGNORE\"; $0=\"perl 33003\"; sleep 1 while 1'";
        let output = sh_within(&sandbox, script, Duration::from_secs(1)).await;
        assert_eq!(output.status, Status::TimedOut);
        assert_eq!(running(&sandbox, "perl 33003").await, 0);
    }
}

/// Commands sent at once run one after the other, each with its own output.
pub async fn commands_queue_up<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "n=0").await;
    let one = || sh(&sandbox, "v=$n; sleep 0.2; n=$((v+1)); echo mine");
    let (a, b, c) = tokio::join!(one(), one(), one());
    for output in [a, b, c] {
        assert_eq!(output.stdout.text(), "mine\n");
    }
    assert_eq!(ok(&sandbox, "echo $n").await, "3\n");
}

/// A caller that stops waiting for a command can still run the next one.
pub async fn cancelling_a_command_leaves_a_working_shell<R: Runtime>(h: &Harness<R>) {
    let sandbox = h.sandbox().await;
    ok(&sandbox, "before=1").await;
    let bound = Duration::from_millis(500);
    let cancelled = tokio::time::timeout(bound, sh(&sandbox, "before=2; sleep 34001")).await;
    assert!(cancelled.is_err());
    let next = tokio::time::timeout(Duration::from_secs(60), ok(&sandbox, "echo $before")).await;
    assert_eq!(next.expect("the next command runs"), "1\n");
}
