//! Parsing of shell text, case by case.

use super::{command::Input, shell::read};

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let shown: Vec<String> = read(text)
        .commands
        .iter()
        .map(|command| {
            let pipe = if command.input == Input::Pipe { "|" } else { "" };
            format!("{pipe}{} {}", command.name, command.args.join(" ")).trim_end().to_owned()
        })
        .collect();
    assert_eq!(shown, expected, "{text}");
}

#[test]
fn commands_are_separated() {
    check("ls; cat a && grep b c || true & pwd", &["ls", "cat a", "grep b c", "true", "pwd"]);
    check("cat a | head -3 |& wc -l", &["cat a", "|head -3", "|wc -l"]);
    check("sudo -E /usr/bin/pip3 install x", &["pip3 install x"]);
    check("python3.11 -m pip install x", &["pip install x"]);
    check("A=1 B='x y' timeout 10s curl u", &["curl u"]);
    check("for f in *; do cat $f; done", &["for f in *", "cat $f", "done"]);
    check("if grep -q a b; then echo cat; fi", &["grep -q a b", "echo cat", "fi"]);
    check("# cat a\necho '#' a#b # find", &["echo # a#b"]);
    check("find . | xargs -n 1 grep x", &["find .", "|grep x"]);
}

#[test]
fn substitutions_are_commands() {
    check("echo \"n: $(wc -l < f) cat\"", &["wc -l", "echo n: $ cat"]);
    check("x=`cat a`; echo $x", &["cat a", "echo $x"]);
    check("(cd a && ls) | sort", &["cd a", "ls", "|sort"]);
    check("diff <(sort a) b", &["sort a", "diff b"]);
    check("f() { cat \"$1\"; }", &["cat $1"]);
    check("function f { cat a; }", &["cat a"]);
    check("a=(cat find) ls", &["ls"]);
    check("((cat a); ls)", &["cat a", "ls"]);
    check("echo $((1+(2*3))) cat", &["echo $ cat"]);
    check("echo ')' $(echo ')') x", &["echo )", "echo ) $ x"]);
}

#[test]
fn quotes_hide_and_join() {
    check("echo 'cat a; find b' \"| grep c\"", &["echo cat a; find b | grep c"]);
    check("c\\at a\\ b", &["cat a b"]);
    check("pip \\\n  install x", &["pip install x"]);
}

#[test]
fn redirections_are_no_arguments() {
    let shell = read("cmd a 2>/dev/null > out.txt 2>&1 < in.txt >> log &> all");
    let command = &shell.commands[0];
    assert_eq!(command.args, ["a"]);
    assert_eq!(command.writes, ["out.txt", "log", "all"]);
    assert_eq!(command.input, Input::File);
}

#[test]
fn here_documents_are_no_commands() {
    let text =
        "cat << 'EOF' > a.md && ls\nuse cat and find\nEOF\npython3 - <<-E\n\tprint(1)\n\tE\npwd";
    let shell = read(text);
    check(text, &["cat", "ls", "python3 -", "pwd"]);
    assert_eq!(shell.documents, ["use cat and find\n", "\tprint(1)\n"]);
    assert_eq!(shell.commands[0].writes, ["a.md"]);
    assert_eq!(shell.commands[0].input, Input::Text(Some(0)));
    assert_eq!(read("cat <<E\nno end").documents, ["no end"]);
    assert_eq!(read("cat <<< word").commands[0].input, Input::Text(None));
}

#[test]
fn counting_is_seen() {
    assert!(read("for ((i=0;i<3;i++)); do :; done").counts);
    assert!(read("((i++))").counts);
    assert!(!read("echo $((1+2)); (ls); f() { :; }").counts);
}
