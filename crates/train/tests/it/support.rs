//! A tiny model, a toy task, and the program under test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use policy::{Architecture, Network, Output as Head, Scaling, Shape};
use serde_json::{Value, json};
use tch::{Device, Kind};
use vocabulary::Vocabulary;

/// The problems, and the digit each expects in `answer.txt`.
pub(crate) const ANSWERS: [(&str, &str); 4] = [("A", "3"), ("B", "1"), ("C", "4"), ("D", "2")];

/// Supports tools without rendering them: with one token per byte, prompts have to be short.
const TEMPLATE: &str = "{% if tools %}{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}";

/// A temporary directory with a model, tasks and rows.
pub(crate) struct Toy {
    dir: tempfile::TempDir,
}

impl Toy {
    /// An empty directory.
    pub(crate) fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn new() -> Self {
        let toy = Self::empty();
        let model = toy.path("model");
        let net = Network::random(shape(), 11, Device::Cpu, Kind::Float).unwrap();
        net.save(&model).unwrap();
        Vocabulary::bytes().unwrap().save(&model).unwrap();
        fs::write(model.join("chat_template.jinja"), TEMPLATE).unwrap();
        fs::create_dir(toy.path("task")).unwrap();
        let task = "[prompt]\nset = \"general\"\nsystem = \"\"\ntask = \"{problem_statement}\"\n\
                    working_dir = \"/testbed\"\noutput_dir = \"/testbed\"\n[grader]\nkind = \"exact\"\n";
        fs::write(toy.path("task/task.toml"), task).unwrap();
        // Random rewards: about half of all responses get one.
        fs::create_dir(toy.path("chance")).unwrap();
        let chance = "[prompt]\nset = \"general\"\nplain = \"{problem_statement}\"\n\
                      [grader]\ncommand = \"cksum < answer.txt | awk '{ print $1 % 2 }'\"\n";
        fs::write(toy.path("chance/task.toml"), chance).unwrap();
        let rows = ANSWERS.iter().map(|(letter, digit)| row(letter, letter, digit));
        toy.write_rows("rows.jsonl", rows);
        toy
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write_rows(&self, name: &str, rows: impl Iterator<Item = Value>) {
        let text: String = rows.map(|row| format!("{row}\n")).collect();
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes a configuration with its paths filled in.
    pub(crate) fn config(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text.replace("DIR", &self.dir.path().to_string_lossy())).unwrap();
        path
    }

    /// The command with these arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("LLM_IN_SANDBOX_HOME", self.path("home")).current_dir(self.dir.path());
        command
    }

    /// Runs the program until it exits.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the program, which has to succeed.
    pub(crate) fn succeeds(&self, args: &[&str]) {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
    }

    /// How many steps a run has written down, which may be under way.
    pub(crate) fn whole_lines(&self, run: &str) -> usize {
        let text = fs::read_to_string(self.path(run).join("metrics.jsonl")).unwrap_or_default();
        text.matches('\n').count()
    }

    /// The metrics of a run, per step.
    pub(crate) fn metrics(&self, run: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(run).join("metrics.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Copies a directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A problem, with the command that answers it.
pub(crate) fn row(id: &str, letter: &str, digit: &str) -> Value {
    json!({
        "id": id,
        "problem_statement": letter,
        "ground_truth": digit,
        "demonstration": [format!("echo {digit} >answer.txt")],
    })
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llm-in-sandbox-train"));
    // Synchronising threads costs more than it gains at this size.
    command.args(args).stdin(Stdio::null()).env("OMP_NUM_THREADS", "1");
    command
}

fn shape() -> Shape {
    Shape {
        architecture: Architecture::Llama,
        hidden: 64,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        intermediate: 128,
        vocabulary: 259,
        rope_theta: 10_000.0,
        rope_scaling: Scaling::None,
        norm_eps: 1e-5,
        output: Head::Tied,
        positions: 1024,
    }
}

/// Whether sandboxes can be created here. Prints why a test is skipped, or fails it where `LIS_REQUIRE` names `userns`.
pub(crate) fn has_sandboxes() -> bool {
    let allowed = Path::new("/proc/sys/user/max_user_namespaces");
    let allowed = fs::read_to_string(allowed).is_ok_and(|text| text.trim() != "0");
    if !allowed {
        let required = variable("LIS_REQUIRE").unwrap_or_default();
        let required = required.split(',').any(|name| name.trim() == "userns");
        assert!(!required, "userns is required but missing");
        eprintln!("skip: userns: no user namespaces are allowed here");
    }
    allowed
}

/// A path below the directory of this crate, as the test runner names it: the one it was built in may belong to another
/// checkout.
pub(crate) fn crate_path(below: &str) -> PathBuf {
    let dir = variable("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&dir).join(below)
}

#[expect(clippy::disallowed_methods, reason = "test runs are configured by the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
