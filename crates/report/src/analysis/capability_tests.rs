//! Classification of commands and programs, case by case.

use serde_json::{Map, Value, json};

use super::{Call, Capabilities, Turn, Use, capabilities, runs_program, uses};

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("{value}") };
    map
}

/// The letters of the capabilities a call uses: by the paper's patterns, and by what it does.
fn used(tool: &str, arguments: Value) -> (String, String) {
    let arguments = object(arguments);
    let calls = vec![Call { tool, arguments: &arguments }];
    let found = uses(&Turn { number: 1, calls, ..Turn::default() });
    (letters(found.paper), letters(found.extended))
}

fn letters(used: Use) -> String {
    let all = [('e', used.external), ('f', used.file), ('c', used.computation)];
    all.iter().filter(|(_, is)| *is).map(|(letter, _)| letter).collect()
}

#[track_caller]
fn bash(cases: &[(&str, &str, &str)]) {
    for (command, paper, extended) in cases {
        let found = used("execute_bash", json!({"command": command}));
        assert_eq!(found, ((*paper).to_owned(), (*extended).to_owned()), "{command}");
    }
}

#[track_caller]
fn file(path: &str, cases: &[(&str, &str, &str)]) {
    for (text, paper, extended) in cases {
        let arguments = json!({"command": "create", "path": path, "file_text": text});
        let found = used("str_replace_editor", arguments);
        assert_eq!(found, ((*paper).to_owned(), (*extended).to_owned()), "{path}: {text}");
    }
}

#[test]
fn commands_for_resources_from_outside() {
    bash(&[
        ("pip install numpy", "e", "e"),
        ("pip3 install -q numpy", "", "e"),
        ("python3 -m pip install numpy", "e", "e"),
        ("sudo apt-get install -y jq", "e", "e"),
        ("apt install jq", "", "e"),
        ("apt-get update", "", "e"),
        ("curl -s https://example.org | head", "e", "e"),
        ("wget -q https://example.org/a.zip && unzip a.zip", "e", "ef"),
        ("git clone https://example.org/r", "", "e"),
        ("conda install -y x", "", "e"),
        ("npm install x", "", "e"),
        ("which curl", "e", ""),
        ("echo 'use wget to get it'", "e", ""),
        ("curl -s localhost:8080/health", "e", ""),
        ("pip list", "", ""),
        ("pip show rdkit", "e", ""),
        ("git log --oneline", "", ""),
        ("echo pipinstall; echo curly; echo wgetter", "", ""),
    ]);
}

#[test]
fn commands_for_files() {
    bash(&[
        ("cat notes.txt", "f", "f"),
        ("ls -la /testbed", "", "f"),
        ("sed -n '1,20p' a.txt", "", "f"),
        ("head -n 3 a.txt", "", "f"),
        ("grep -rn word .", "f", "f"),
        ("grep -r word", "f", "f"),
        ("find . -name '*.md'", "f", "f"),
        ("wc -l < a.txt", "", "f"),
        ("awk '{print $1}' a.txt", "", "f"),
        ("jq .a b.json", "", "f"),
        ("python solve.py < input.txt", "", "f"),
        ("for f in *.txt; do cat \"$f\"; done", "f", "f"),
        ("echo \"lines: $(wc -l a.txt)\"", "", "f"),
        ("if grep -q a b.txt; then echo yes; fi", "f", "f"),
        ("dmesg | grep error | head -3", "f", ""),
        ("echo category concat finder greps", "", ""),
        ("echo find the cat", "f", ""),
        ("cat > answer.txt << 'EOF'\n42\nEOF", "f", ""),
        ("cat << EOF\ncat find grep\nEOF", "f", ""),
        ("echo 42 > answer.txt", "", ""),
        ("mkdir -p out && cd out && chmod +x run", "", ""),
        ("# find the file\npwd", "f", ""),
        ("tr a b < x.txt", "", "f"),
        ("true < /dev/null", "", ""),
    ]);
}

#[test]
fn commands_that_calculate() {
    bash(&[
        ("echo '2^10' | bc", "", "c"),
        ("factor 91", "", "c"),
        ("for i in $(seq 1 10); do echo $i; done", "", "c"),
        ("for i in {1..10}; do echo $i; done", "", "c"),
        ("for ((i=0;i<9;i++)); do echo $i; done", "", "c"),
        ("i=0; while [ $i -lt 9 ]; do i=$((i+1)); done", "c", "c"),
        ("awk 'BEGIN{for(i=0;i<9;i++) s+=i; print s}'", "", "c"),
        ("while read -r line; do echo $line; done < a.txt", "c", "f"),
        ("echo $((2+3))", "", ""),
        ("echo wait a while", "c", ""),
        ("sleep 3", "", ""),
    ]);
}

#[test]
fn programs_inside_commands() {
    bash(&[
        ("python3 -c 'print(sum(range(10)))'", "c", "c"),
        ("python3 -c \"import json; print(json.load(open('a.json')))\"", "f", "f"),
        ("python3 - <<'E'\nfor i in range(3): print(i)\nE", "c", "c"),
        ("python3 << E\nimport urllib.request as u\nE", "", "e"),
        ("cat > a.py <<'E'\nimport sympy\nprint(sympy.solve('x-1'))\nE\npython3 a.py", "f", "c"),
        ("cat > a.md <<'E'\nWe open(x) for a while with curl\nE", "efc", ""),
        ("bash -c 'cat a.txt'", "f", "f"),
        ("bash -lc \"pip install x && ls\"", "e", "ef"),
        ("timeout 5 python3 -u -c 'while True: pass'", "c", "c"),
        ("node -e 'for (let i=0;i<3;i++) console.log(i)'", "", "c"),
        ("tee run.sh <<E\ncurl https://example.org\nE", "e", "e"),
        ("python3 -c \"print('open( while range(')\"", "fc", ""),
        ("python3 -c 'import os; os.system(\"pip install x\")'", "e", "e"),
    ]);
}

#[test]
fn python_files() {
    file(
        "/testbed/a.py",
        &[
            ("import numpy as np\nx = np.loadtxt('d.txt')", "", "f"),
            ("import requests\nr = requests.get('https://example.org')", "e", "e"),
            ("from urllib.request import urlopen", "", "e"),
            ("from scipy.optimize import fsolve", "c", "c"),
            ("from itertools import product", "", "c"),
            ("from sympy import symbols, solve", "", "c"),
            ("x = np.arange(5)", "", "c"),
            ("i = 0\nwhile i < 3:\n    i += 1", "c", "c"),
            ("# a while loop that opens files: open(x), range(3)\nprint(1)", "fc", ""),
            ("'''Find the cat, open(it) while you curl.'''\nprint(1)", "efc", ""),
            ("s = 'x'.find('y')", "f", ""),
            ("reopen('a'); category = 1; globals()", "", ""),
            ("json.loads(text)", "", ""),
            ("from rdkit import Chem", "e", "e"),
            ("from Bio import SeqIO", "", "e"),
            ("import math\nprint(math.sqrt(2))", "", "c"),
            ("width = (a - b) // 2", "", ""),
            ("subprocess.run(['curl', '-s', url])", "e", "e"),
            ("from pathlib import Path\nfor p in Path('.').iterdir(): print(p)", "f", "f"),
            ("z1 = 1; z2 = 2; z3 = z1 + z2\nquad_area = 2", "", ""),
        ],
    );
}

#[test]
fn other_files() {
    file("/testbed/a.sh", &[("cat a.txt | wc -l", "f", "f"), ("# curl\necho hi", "e", "")]);
    file("/testbed/notes.md", &[("Find the cat while you curl, open(x).", "efc", "")]);
    file("/testbed/answer.txt", &[("the quad, minimize, find", "fc", "")]);
    file("/testbed/run", &[("#!/bin/sh\nls", "", "f"), ("ls", "", "")]);
    file("/testbed/a.c", &[("for (int i=0;i<3;i++) {} // while", "c", "c"), ("fopen(a)", "", "f")]);
    file("/testbed/a.js", &[("const f = readFileSync('a')", "", "f"), ("// axios\nlet a", "", "")]);
}

#[test]
fn the_editor() {
    let editor = |arguments| used("str_replace_editor", arguments);
    let none = (String::new(), String::new());
    let view = editor(json!({"command": "view", "path": "/testbed/cat find.txt"}));
    assert_eq!(view, (String::new(), "f".into()));
    let replaced =
        json!({"command": "str_replace", "path": "a.py", "old_str": "open(x)", "new_str": "x"});
    assert_eq!(editor(replaced), none);
    let inserted =
        json!({"command": "insert", "path": "a.py", "insert_line": 1, "new_str": "open(x)"});
    assert_eq!(editor(inserted), ("f".into(), "f".into()));
}

#[test]
fn calls_of_other_shapes() {
    assert_eq!(used("submit", json!({})), (String::new(), String::new()));
    assert_eq!(used("submit", json!({"answer": "cat"})), ("f".into(), String::new()));
    assert_eq!(used("python", json!({"code": "open('a')"})), ("f".into(), "f".into()));
    assert_eq!(used("execute_bash", json!({"command": 5})), (String::new(), String::new()));
    assert_eq!(used("x", json!({"command": ["cat", "a"]})), (String::new(), String::new()));
}

#[test]
fn rates_are_of_all_turns() {
    let command = |text: &str| object(json!({"command": text}));
    let (cat, curl) = (command("cat a"), command("curl https://example.org"));
    let turn = |arguments| Turn {
        calls: vec![Call { tool: "execute_bash", arguments }],
        ..Turn::default()
    };
    let both = Turn { calls: [turn(&cat).calls, turn(&curl).calls].concat(), ..Turn::default() };
    let mut all = capabilities(&[turn(&cat), turn(&cat), both, Turn::default()]);
    assert_eq!(all.extended.file_rate(), 0.75);
    assert_eq!(all.extended.external_rate(), 0.25);
    assert_eq!(all.paper.computation_rate(), 0.0);
    all += all;
    assert_eq!((all.paper.turns, all.extended.file), (8, 6));
    assert_eq!(Capabilities::default().paper.file_rate(), 0.0);
}

#[test]
fn programs_of_any_kind_are_known() {
    for (command, expected) in [
        ("python3 - <<'PY'\nprint(2 + 3)\nPY", true),
        ("awk -F, '{s += $2} END {print s}' a.csv", true),
        ("sudo /usr/bin/python3.11 solve.py", true),
        ("cat > solve.py <<'EOF'\nprint(1)\nEOF", true),
        ("head -n 4 notes.txt | grep python", false),
        ("printf '%s' '4' > answer.txt", false),
        ("cat > notes.md <<'EOF'\nrun python3\nEOF", false),
    ] {
        let arguments = object(json!({"command": command}));
        let calls = vec![Call { tool: "execute_bash", arguments: &arguments }];
        let turn = Turn { number: 1, calls, ..Turn::default() };
        assert_eq!(runs_program(&turn), expected, "{command}");
    }
}
