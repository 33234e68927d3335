//! The example tasks can be run as their table says: folders, inputs, commands, answers.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use lis_agent::prompt::Prompts;

const MOST_BYTES: u64 = 256 << 10;
const MOST_BYTES_IN_ALL: u64 = 1 << 20;
const MOST_TASK_BYTES: usize = 4 << 10;

/// As the test runner names it: the directory it was built in may belong to another checkout.
#[expect(clippy::disallowed_methods, reason = "the test runner names the directory of the crate")]
fn examples() -> PathBuf {
    let dir = std::env::var_os("CARGO_MANIFEST_DIR");
    Path::new(&dir.unwrap_or(env!("CARGO_MANIFEST_DIR").into())).join("../../examples")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn folders() -> BTreeSet<String> {
    let mut names = names_in(&examples());
    // Programs, sets of tasks and configurations.
    let others =
        ["README.md", "notebooks", "python", "rust", "small-tasks", "study", "tasks", "train"];
    assert!(others.into_iter().all(|name| names.remove(name)));
    names
}

/// The rows of the table: name, command, what to expect.
fn rows() -> Vec<(String, String, String)> {
    let readme = read(&examples().join("README.md"));
    let cells = |line: &str| line.split(" | ").map(str::to_owned).collect::<Vec<_>>();
    let lines = readme.lines().filter(|line| line.starts_with("| ["));
    lines
        .map(|line| {
            let cells = cells(line);
            let name = cells[0].trim_start_matches("| [").split(']').next().unwrap().to_owned();
            assert_eq!(cells.len(), 4, "{line}");
            (name, cells[2].clone(), cells[3].clone())
        })
        .collect()
}

#[test]
fn every_folder_is_in_the_table_once() {
    let listed: Vec<String> = rows().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(listed.len(), 10);
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), folders());
}

#[test]
fn every_command_names_the_task_and_its_input() {
    for (name, command, expected) in rows() {
        let folder = examples().join(&name);
        let start = format!("`llm-in-sandbox run \"$(cat examples/{name}/task.md)\" ");
        assert!(command.starts_with(&start), "{command}");
        assert!(command.ends_with("--model NAME`"), "{command}");
        let given = command.contains(&format!(" --input examples/{name}/input "));
        assert_eq!(given, folder.join("input").is_dir(), "{name}");
        assert!(given || !command.contains("--input"), "{command}");
        let compared = expected.contains(&format!("]({name}/answer.txt)"));
        assert_eq!(compared, folder.join("answer.txt").is_file(), "{name}");
    }
}

#[test]
fn every_folder_is_complete_and_small() {
    let mut in_all = 0;
    for name in folders() {
        let folder = examples().join(&name);
        let known = BTreeSet::from(["task.md", "input", "answer.txt"].map(str::to_owned));
        assert!(names_in(&folder).is_subset(&known), "{name}");
        let task = read(&folder.join("task.md"));
        assert!((100..MOST_TASK_BYTES).contains(&task.len()), "{name}: {}", task.len());
        let inputs = folder.join("input");
        let inputs = if inputs.is_dir() { names_in(&inputs) } else { BTreeSet::new() };
        for file in &inputs {
            let size = fs::metadata(folder.join("input").join(file)).unwrap().len();
            assert!((1..MOST_BYTES).contains(&size), "{name}/{file}: {size}");
            in_all += size;
        }
        let words = task.split(|c: char| !c.is_alphanumeric() && c != '.' && c != '_');
        for word in words.map(|word| word.trim_matches('.')) {
            let data = [".csv", ".json", ".fasta"].iter().any(|end| word.ends_with(end));
            assert!(!data || inputs.contains(word), "{name} speaks of {word}");
        }
    }
    assert!(in_all < MOST_BYTES_IN_ALL, "{in_all}");
}

#[test]
fn tasks_reach_the_model_word_for_word() {
    let general = Prompts::builtin("general").unwrap();
    for name in folders() {
        let task = read(&examples().join(&name).join("task.md"));
        assert!(
            general.render(&task, &sandbox::Network::None).unwrap().user.contains(task.trim_end()),
            "{name}"
        );
    }
}

fn answer(name: &str) -> String {
    let text = read(&examples().join(name).join("answer.txt"));
    assert_eq!(text.lines().count(), 1, "{name}");
    text.trim_end().to_owned()
}

#[test]
fn the_count_of_permutations_is_right() {
    fn count(n: usize, placed: usize, used: u32) -> u64 {
        if placed == n {
            return 1;
        }
        let near = placed.saturating_sub(3)..(placed + 4).min(n);
        let free = near.filter(|j| used & (1 << j) == 0 && !(placed + j + 2).is_multiple_of(3));
        free.map(|j| count(n, placed + 1, used | (1 << j))).sum()
    }
    assert_eq!(answer("math"), count(20, 0, 0).to_string());
}

#[test]
fn the_flight_of_the_ball_is_right() {
    /// Where the ball lands. Small steps of the midpoint rule; the last one is cut where it meets the ground.
    fn lands(degrees: f64) -> f64 {
        let radius = 0.0732_f64 / 2.0;
        let drag = 0.5 * 1.20 * 0.350 * std::f64::consts::PI * radius * radius / 0.145;
        let pull = |u: f64, v: f64| (-drag * u.hypot(v) * u, -9.81 - drag * u.hypot(v) * v);
        let (mut x, mut y) = (0.0, 1.50);
        let (mut v, mut u) = degrees.to_radians().sin_cos();
        (u, v) = (u * 46.0, v * 46.0);
        let dt = 1e-3;
        loop {
            let (a, b) = pull(u, v);
            let (um, vm) = (u + a * dt / 2.0, v + b * dt / 2.0);
            let (am, bm) = pull(um, vm);
            if y + vm * dt < 0.0 {
                return x - um * y / vm;
            }
            (x, y, u, v) = (x + um * dt, y + vm * dt, u + am * dt, v + bm * dt);
        }
    }
    let angles = (3500..4500).step_by(2).map(|hundredths| f64::from(hundredths) / 100.0);
    let best = angles.max_by(|a, b| lands(*a).total_cmp(&lands(*b))).unwrap();
    assert_eq!(answer("physics"), format!("{:.1}, {best:.1}, {:.1}", lands(45.0), lands(best)));
}

#[test]
fn the_mutation_is_right() {
    const AMINO: &[u8; 64] = b"FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG";
    let sequence = |file: &str| -> Vec<usize> {
        let text = read(&examples().join("biomedicine/input").join(file));
        let bases = text.lines().skip(1).flat_map(str::chars);
        bases.map(|base| "TCAG".find(base).unwrap()).collect()
    };
    let protein = |forward: Vec<usize>| -> String {
        // T and A, C and G are two apart in this order.
        let backward: Vec<usize> = forward.iter().rev().map(|base| (base + 2) % 4).collect();
        let frames = [forward, backward].into_iter().flat_map(|strand| {
            (0..3).map(move |frame| {
                let codons = strand[frame..].chunks_exact(3);
                let amino = codons.map(|codon| AMINO[codon[0] * 16 + codon[1] * 4 + codon[2]]);
                String::from_utf8(amino.collect()).unwrap()
            })
        });
        let open = frames.flat_map(|frame| {
            let (ended, _) = frame.rsplit_once('*').unwrap();
            let starts = ended.split('*').filter_map(|part| part.find('M').map(|at| &part[at..]));
            starts.map(str::to_owned).collect::<Vec<_>>()
        });
        open.max_by_key(String::len).unwrap()
    };
    let (healthy, ill) = (protein(sequence("reference.fasta")), protein(sequence("patient.fasta")));
    assert_eq!(healthy.len(), ill.len());
    let changes: Vec<String> = (healthy.chars().zip(ill.chars()).enumerate())
        .filter(|(_, (a, b))| a != b)
        .map(|(at, (a, b))| format!("{a}{}{b}", at + 1))
        .collect();
    assert_eq!(changes, [answer("biomedicine")]);
}
