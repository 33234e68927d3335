//! Kinds `follow`, `compare` and `tree`: many files.

use std::collections::BTreeMap;

use super::{
    Answer, Draft, Level, Query, join_lines,
    words::{CODES, DIRS, FILLERS, ITEMS, KEYS, NAMES, TOPICS},
};
use crate::{
    rng::Rng,
    row::{INPUT_DIR, write_output_of},
};

/// A code word at the end of a chain of files, among decoys.
pub(super) fn follow(rng: &mut Rng, level: Level) -> Draft {
    let (hops, others) = (level.of([1, 2, 4, 7, 12]), level.of([0, 2, 6, 14, 30]));
    let mut numbers: Vec<i64> = (10..99).collect();
    rng.shuffle(&mut numbers);
    let mut names = numbers.into_iter().map(|number| match level.number() {
        1..=3 => format!("note-{number}.txt"),
        _ => format!("{}/note-{number}.txt", rng.pick(&DIRS[..4])),
    });
    let chain: Vec<String> = names.by_ref().take(hops).collect();
    let astray: Vec<String> = names.take(others).collect();
    let code = rng.pick(&CODES);
    let mut files = BTreeMap::new();
    let mut name = "start.txt";
    for next in &chain {
        files.insert(
            name.to_owned(),
            join_lines([rng.pick(&FILLERS).to_owned(), format!("next: {next}")]),
        );
        name = next;
    }
    files.insert(
        name.to_owned(),
        join_lines([rng.pick(&FILLERS).to_owned(), format!("code word: {code}")]),
    );
    for (at, name) in astray.iter().enumerate() {
        // Half of the decoys end in a wrong word, half lead to another decoy.
        let line = match astray.get(at + 1).filter(|_| at % 2 == 0) {
            Some(next) => format!("next: {next}"),
            None => format!("code word: {}", rng.pick(&CODES)),
        };
        files.insert(name.clone(), join_lines([rng.pick(&FILLERS).to_owned(), line]));
    }
    let question = rng.pick(&[
        "start.txt names the next file, which may name another, and so on. Which code word stands in the last one?".to_owned(),
        "Begin with start.txt and go from file to file as the lines `next:` say. What is the code word at the end?".to_owned(),
        "Follow the references from start.txt to the last file. Which code word does it hold?".to_owned(),
    ]);
    let look = format!("cat {INPUT_DIR}/start.txt");
    let walk = format!(
        "cd {INPUT_DIR}; f=start.txt\nwhile grep -q '^next: ' $f; do f=$(sed -n 's/^next: //p' $f); done; cat $f"
    );
    let write = write_output_of(&format!("sed -n 's/^code word: //p' {INPUT_DIR}/{name}"));
    Draft { files, question, answer: code.into(), steps: vec![look, walk, write] }
}

/// Compares two lists, two files or two directories.
pub(super) fn compare(rng: &mut Rng, level: Level) -> Draft {
    match level.number() {
        1..=3 => lists(rng, level),
        4 => changed(rng, level),
        _ => directories(rng, level),
    }
}

fn lists(rng: &mut Rng, level: Level) -> Draft {
    let many = level.of([6, 15, 40, 0, 0]);
    let names = rng.sample(&NAMES, many + 10);
    let both = match level.number() {
        3 => rng.between(10, 35).unsigned_abs() as usize,
        _ => many - 1,
    };
    let mut first: Vec<&str> = names[..many].to_vec();
    // The last entries of the first list are missing from the second: one, or several of a long list.
    let mut second: Vec<&str> = names[..both].to_vec();
    if level.number() == 3 {
        second.extend(&names[many..]);
    }
    rng.shuffle(&mut first);
    rng.shuffle(&mut second);
    let sorted = format!("<(sort {INPUT_DIR}/invited.txt) <(sort {INPUT_DIR}/arrived.txt)");
    let (question, answer, compute) = match level.number() {
        3 => (
            rng.pick(&[
                "How many names are in both invited.txt and arrived.txt?".to_owned(),
                "Count the names that invited.txt and arrived.txt have in common.".to_owned(),
            ]),
            (both as i64).into(),
            format!("comm -12 {sorted} | wc -l"),
        ),
        _ => (
            rng.pick(&[
                "Who is in invited.txt but not in arrived.txt?".to_owned(),
                "One of the people in invited.txt is missing from arrived.txt. Who?".to_owned(),
            ]),
            Answer::from(names[many - 1]),
            format!("comm -23 {sorted}"),
        ),
    };
    let files = [
        ("invited.txt".to_owned(), join_lines(first)),
        ("arrived.txt".to_owned(), join_lines(second)),
    ];
    Draft::new(files, question, answer, &format!("head -n 5 {INPUT_DIR}/*.txt"), &compute)
}

/// Two versions of a file, line by line.
fn changed(rng: &mut Rng, level: Level) -> Draft {
    let lines = level.lines(rng);
    let old: Vec<String> =
        (0..lines).map(|at| format!("{}{at} = {}", rng.pick(&KEYS), rng.between(1, 500))).collect();
    let mut different = 0;
    let mut new = old.clone();
    for line in &mut new {
        if rng.one_in(7) {
            line.push('0');
            different += 1;
        }
    }
    if different == 0 {
        new[0].push('0');
        different = 1;
    }
    let question = rng.pick(&[
        "How many lines of new.conf differ from the same lines of old.conf?".to_owned(),
        "old.conf and new.conf have the same number of lines. In how many of them do they differ?"
            .to_owned(),
    ]);
    let files =
        [("old.conf".to_owned(), join_lines(old)), ("new.conf".to_owned(), join_lines(new))];
    let compute = format!("diff {INPUT_DIR}/old.conf {INPUT_DIR}/new.conf | grep -c '^<'");
    Draft::new(files, question, different, &format!("head -n 3 {INPUT_DIR}/*.conf"), &compute)
}

/// Two directories with the same files, one of which differs.
fn directories(rng: &mut Rng, level: Level) -> Draft {
    let names = rng.sample(&TOPICS, level.of([4, 6, 8, 12, 16]));
    let odd = rng.pick(&names);
    let written = |lines: &[(&str, &str, i64)]| {
        join_lines(lines.iter().map(|(who, what, many)| format!("{who} {what} {many}")))
    };
    let mut files = BTreeMap::new();
    for name in names {
        let mut lines: Vec<(&str, &str, i64)> = (0..rng.between(10, 30))
            .map(|_| (rng.pick(&NAMES), rng.pick(&ITEMS), rng.between(1, 99)))
            .collect();
        files.insert(format!("before/{name}.txt"), written(&lines));
        if name == odd {
            let at = rng.below(lines.len());
            let old = lines[at].2;
            while lines[at].2 == old {
                lines[at].2 = rng.between(1, 99);
            }
        }
        files.insert(format!("after/{name}.txt"), written(&lines));
    }
    let question = rng.pick(&[
        "The directories before and after hold files of the same names. The content of which file differs? Give its name without the directory.".to_owned(),
        "Exactly one file of the directory after is not the same as in the directory before. What is its name, without the directory?".to_owned(),
    ]);
    let look = format!("ls {INPUT_DIR}/before {INPUT_DIR}/after");
    let compute = format!(
        "diff -rq {INPUT_DIR}/before {INPUT_DIR}/after | awk '{{print $2}}' | xargs basename"
    );
    Draft::of(files, question, format!("{odd}.txt"), &look, &compute)
}

/// A file of a tree: directory, name, extension, lines.
type Leaf = (String, String, &'static str, Vec<String>);

/// A directory tree: files of a type, their lines, the fullest directory, the file with a word.
pub(super) fn tree(rng: &mut Rng, level: Level) -> Draft {
    let mut leaves = leaves(rng, level, &["txt", "log", "csv", "md"]);
    let asked = match level.number() {
        1..=3 => of_a_kind(rng, level, &leaves),
        4 => fullest(rng, &mut leaves),
        _ => hidden(rng, &mut leaves),
    };
    let files = leaves
        .into_iter()
        .map(|(dir, name, ending, lines)| (format!("{dir}/{name}.{ending}"), join_lines(lines)))
        .collect();
    Draft::from_query(files, &format!("find {INPUT_DIR} -type f | head -n 20"), asked)
}

fn of_a_kind(rng: &mut Rng, level: Level, leaves: &[Leaf]) -> Query {
    let ending = leaves[0].2;
    let ours = || leaves.iter().filter(|leaf| leaf.2 == ending);
    let found = format!("find {INPUT_DIR} -name '*.{ending}'");
    if level.number() < 3 {
        let question = rng.pick(&[
            format!("How many files whose names end in .{ending} are there, in all directories?"),
            format!("Count the .{ending} files, those in subdirectories included."),
        ]);
        return Query::new(question, ours().count() as i64, format!("{found} | wc -l"));
    }
    let question = rng.pick(&[
        format!("How many lines do all .{ending} files have together, subdirectories included?"),
        format!("Add up the numbers of lines of all files that end in .{ending}, in whichever directory."),
    ]);
    let lines = ours().map(|leaf| leaf.3.len() as i64).sum::<i64>();
    Query::new(question, lines, format!("{found} -exec cat {{}} + | wc -l"))
}

fn fullest(rng: &mut Rng, leaves: &mut [Leaf]) -> Query {
    let full = rng.pick(leaves).0;
    // The fullest directory has to be unique: files are moved there, so that they look like any other.
    loop {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for leaf in leaves.iter() {
            *sizes.entry(&leaf.0).or_default() += 1;
        }
        let own = sizes.remove(full.as_str());
        if own > sizes.into_values().max() {
            break;
        }
        let at = rng.below(leaves.len());
        leaves[at].0.clone_from(&full);
    }
    let question = rng.pick(&[
        "Which directory directly holds the most files? Give its own name, without those above it.",
        "In which directory do the most files lie, not counting subdirectories? Give its own name only.",
    ]);
    let name = full.rsplit('/').next().unwrap_or_default();
    let compute = format!(
        "find {INPUT_DIR} -type f -printf '%h\\n' | sort | uniq -c | sort -n | tail -n 1 | awk '{{print $2}}' | xargs basename"
    );
    Query::new(question.to_owned(), name, compute)
}

fn hidden(rng: &mut Rng, leaves: &mut [Leaf]) -> Query {
    let (word, at) = (rng.pick(&CODES), rng.below(leaves.len()));
    let (_, name, ending, lines) = &mut leaves[at];
    let line = rng.below(lines.len());
    lines[line] = format!("the password is {word}");
    let question = rng.pick(&[
        format!(
            "In which file does the word {word} occur? Give the file's name without its directory."
        ),
        format!("Exactly one file holds the word {word}. What is its name, without the directory?"),
    ]);
    let compute = format!("grep -rlw '{word}' {INPUT_DIR} | xargs basename");
    Query::new(question, format!("{name}.{ending}"), compute)
}

fn leaves(rng: &mut Rng, level: Level, endings: &[&'static str]) -> Vec<Leaf> {
    // Directory names are unique in the whole tree.
    let dirs = rng.sample(&DIRS, level.of([2, 4, 6, 8, 12]));
    let mut paths: Vec<String> = Vec::new();
    for dir in dirs {
        let above =
            (!paths.is_empty() && level.number() > 1 && !rng.one_in(3)).then(|| rng.pick(&paths));
        paths.push(above.map_or_else(|| dir.to_owned(), |above| format!("{above}/{dir}")));
    }
    let many = level.of([5, 10, 18, 30, 60]);
    (0..many)
        .map(|at| {
            // The number makes names unique: a topic may occur twice.
            let name = format!("{}-{}", rng.pick(&TOPICS), at + 1);
            let lines = (0..rng.between(1, level.of([4, 6, 8, 10, 12])))
                .map(|_| rng.pick(&FILLERS).to_owned())
                .collect();
            (rng.pick(&paths), name, rng.pick(endings), lines)
        })
        .collect()
}
