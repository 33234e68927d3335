//! Files among files: references from one to the next, two lists or directories compared, what a tree holds.

use std::collections::BTreeMap;

use super::{
    Answer, Asked, Level, Made, lined,
    words::{CODES, DIRS, FILLERS, ITEMS, KEYS, NAMES, TOPICS},
};
use crate::{
    dice::Dice,
    row::{INPUT_DIR, answered},
};

/// A code word at the end of a chain of files, among files that lead nowhere.
pub(super) fn follow(dice: &mut Dice, level: Level) -> Made {
    let (hops, others) = (level.of([1, 2, 4, 7, 12]), level.of([0, 2, 6, 14, 30]));
    let mut numbers: Vec<i64> = (10..99).collect();
    dice.shuffle(&mut numbers);
    let mut names = numbers.into_iter().map(|number| match level.number() {
        1..=3 => format!("note-{number}.txt"),
        _ => format!("{}/note-{number}.txt", dice.pick(&DIRS[..4])),
    });
    let chain: Vec<String> = names.by_ref().take(hops).collect();
    let astray: Vec<String> = names.take(others).collect();
    let code = dice.pick(&CODES);
    let mut files = BTreeMap::new();
    let mut name = "start.txt";
    for next in &chain {
        files.insert(
            name.to_owned(),
            lined([dice.pick(&FILLERS).to_owned(), format!("next: {next}")]),
        );
        name = next;
    }
    files.insert(
        name.to_owned(),
        lined([dice.pick(&FILLERS).to_owned(), format!("code word: {code}")]),
    );
    for (at, name) in astray.iter().enumerate() {
        // Half of them end in a wrong word, half lead to another of them.
        let line = match astray.get(at + 1).filter(|_| at % 2 == 0) {
            Some(next) => format!("next: {next}"),
            None => format!("code word: {}", dice.pick(&CODES)),
        };
        files.insert(name.clone(), lined([dice.pick(&FILLERS).to_owned(), line]));
    }
    let question = dice.pick(&[
        "start.txt names the next file, which may name another, and so on. Which code word stands in the last one?".to_owned(),
        "Begin with start.txt and go from file to file as the lines `next:` say. What is the code word at the end?".to_owned(),
        "Follow the references from start.txt to the last file. Which code word does it hold?".to_owned(),
    ]);
    let look = format!("cat {INPUT_DIR}/start.txt");
    let walk = format!(
        "cd {INPUT_DIR}; f=start.txt\nwhile grep -q '^next: ' $f; do f=$(sed -n 's/^next: //p' $f); done; cat $f"
    );
    let write = answered(&format!("sed -n 's/^code word: //p' {INPUT_DIR}/{name}"));
    Made { files, question, answer: code.into(), steps: vec![look, walk, write] }
}

/// What two lists, two files or two directories have in common, and what not.
pub(super) fn compare(dice: &mut Dice, level: Level) -> Made {
    match level.number() {
        1..=3 => lists(dice, level),
        4 => changed(dice, level),
        _ => directories(dice, level),
    }
}

fn lists(dice: &mut Dice, level: Level) -> Made {
    let many = level.of([6, 15, 40, 0, 0]);
    let names = dice.several(&NAMES, many + 10);
    let both = match level.number() {
        3 => dice.between(10, 35).unsigned_abs() as usize,
        _ => many - 1,
    };
    let mut first: Vec<&str> = names[..many].to_vec();
    // The last of the first list is only there; of a long list, several are.
    let mut second: Vec<&str> = names[..both].to_vec();
    if level.number() == 3 {
        second.extend(&names[many..]);
    }
    dice.shuffle(&mut first);
    dice.shuffle(&mut second);
    let sorted = format!("<(sort {INPUT_DIR}/invited.txt) <(sort {INPUT_DIR}/arrived.txt)");
    let (question, answer, compute) = match level.number() {
        3 => (
            dice.pick(&[
                "How many names are in both invited.txt and arrived.txt?".to_owned(),
                "Count the names that invited.txt and arrived.txt have in common.".to_owned(),
            ]),
            (both as i64).into(),
            format!("comm -12 {sorted} | wc -l"),
        ),
        _ => (
            dice.pick(&[
                "Who is in invited.txt but not in arrived.txt?".to_owned(),
                "One of the people in invited.txt is missing from arrived.txt. Who?".to_owned(),
            ]),
            Answer::from(names[many - 1]),
            format!("comm -23 {sorted}"),
        ),
    };
    let files =
        [("invited.txt".to_owned(), lined(first)), ("arrived.txt".to_owned(), lined(second))];
    Made::new(files, question, answer, &format!("head -n 5 {INPUT_DIR}/*.txt"), &compute)
}

/// Two versions of a file, line by line.
fn changed(dice: &mut Dice, level: Level) -> Made {
    let lines = level.lines(dice);
    let old: Vec<String> = (0..lines)
        .map(|at| format!("{}{at} = {}", dice.pick(&KEYS), dice.between(1, 500)))
        .collect();
    let mut different = 0;
    let mut new = old.clone();
    for line in &mut new {
        if dice.once_in(7) {
            line.push('0');
            different += 1;
        }
    }
    if different == 0 {
        new[0].push('0');
        different = 1;
    }
    let question = dice.pick(&[
        "How many lines of new.conf differ from the same lines of old.conf?".to_owned(),
        "old.conf and new.conf have the same number of lines. In how many of them do they differ?"
            .to_owned(),
    ]);
    let files = [("old.conf".to_owned(), lined(old)), ("new.conf".to_owned(), lined(new))];
    let compute = format!("diff {INPUT_DIR}/old.conf {INPUT_DIR}/new.conf | grep -c '^<'");
    Made::new(files, question, different, &format!("head -n 3 {INPUT_DIR}/*.conf"), &compute)
}

/// Two directories with the same files, one of which differs.
fn directories(dice: &mut Dice, level: Level) -> Made {
    let names = dice.several(&TOPICS, level.of([4, 6, 8, 12, 16]));
    let odd = dice.pick(&names);
    let written = |lines: &[(&str, &str, i64)]| {
        lined(lines.iter().map(|(who, what, many)| format!("{who} {what} {many}")))
    };
    let mut files = BTreeMap::new();
    for name in names {
        let mut lines: Vec<(&str, &str, i64)> = (0..dice.between(10, 30))
            .map(|_| (dice.pick(&NAMES), dice.pick(&ITEMS), dice.between(1, 99)))
            .collect();
        files.insert(format!("before/{name}.txt"), written(&lines));
        if name == odd {
            let at = dice.below(lines.len());
            let old = lines[at].2;
            while lines[at].2 == old {
                lines[at].2 = dice.between(1, 99);
            }
        }
        files.insert(format!("after/{name}.txt"), written(&lines));
    }
    let question = dice.pick(&[
        "The directories before and after hold files of the same names. The content of which file differs? Give its name without the directory.".to_owned(),
        "Exactly one file of the directory after is not the same as in the directory before. What is its name, without the directory?".to_owned(),
    ]);
    let look = format!("ls {INPUT_DIR}/before {INPUT_DIR}/after");
    let compute = format!(
        "diff -rq {INPUT_DIR}/before {INPUT_DIR}/after | awk '{{print $2}}' | xargs basename"
    );
    Made::of(files, question, format!("{odd}.txt"), &look, &compute)
}

/// A file of a tree: directory, name, ending, lines.
type Leaf = (String, String, &'static str, Vec<String>);

/// What a tree of directories holds: files of a kind, their lines, the fullest directory, where a word is.
pub(super) fn tree(dice: &mut Dice, level: Level) -> Made {
    let mut leaves = leaves(dice, level, &["txt", "log", "csv", "md"]);
    let asked = match level.number() {
        1..=3 => of_a_kind(dice, level, &leaves),
        4 => fullest(dice, &mut leaves),
        _ => hidden(dice, &mut leaves),
    };
    let files = leaves
        .into_iter()
        .map(|(dir, name, ending, lines)| (format!("{dir}/{name}.{ending}"), lined(lines)))
        .collect();
    Made::asking(files, &format!("find {INPUT_DIR} -type f | head -n 20"), asked)
}

fn of_a_kind(dice: &mut Dice, level: Level, leaves: &[Leaf]) -> Asked {
    let ending = leaves[0].2;
    let ours = || leaves.iter().filter(|leaf| leaf.2 == ending);
    let found = format!("find {INPUT_DIR} -name '*.{ending}'");
    if level.number() < 3 {
        let question = dice.pick(&[
            format!("How many files whose names end in .{ending} are there, in all directories?"),
            format!("Count the .{ending} files, those in subdirectories included."),
        ]);
        return Asked::new(question, ours().count() as i64, format!("{found} | wc -l"));
    }
    let question = dice.pick(&[
        format!("How many lines do all .{ending} files have together, subdirectories included?"),
        format!("Add up the numbers of lines of all files that end in .{ending}, in whichever directory."),
    ]);
    let lines = ours().map(|leaf| leaf.3.len() as i64).sum::<i64>();
    Asked::new(question, lines, format!("{found} -exec cat {{}} + | wc -l"))
}

fn fullest(dice: &mut Dice, leaves: &mut [Leaf]) -> Asked {
    let full = dice.pick(leaves).0;
    // One directory has to be fuller than all others: files move there, so that they look like any.
    loop {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for leaf in leaves.iter() {
            *sizes.entry(&leaf.0).or_default() += 1;
        }
        let own = sizes.remove(full.as_str());
        if own > sizes.into_values().max() {
            break;
        }
        let at = dice.below(leaves.len());
        leaves[at].0.clone_from(&full);
    }
    let question = dice.pick(&[
        "Which directory directly holds the most files? Give its own name, without those above it.",
        "In which directory do the most files lie, not counting subdirectories? Give its own name only.",
    ]);
    let name = full.rsplit('/').next().unwrap_or_default();
    let compute = format!(
        "find {INPUT_DIR} -type f -printf '%h\\n' | sort | uniq -c | sort -n | tail -n 1 | awk '{{print $2}}' | xargs basename"
    );
    Asked::new(question.to_owned(), name, compute)
}

fn hidden(dice: &mut Dice, leaves: &mut [Leaf]) -> Asked {
    let (word, at) = (dice.pick(&CODES), dice.below(leaves.len()));
    let (_, name, ending, lines) = &mut leaves[at];
    let line = dice.below(lines.len());
    lines[line] = format!("the password is {word}");
    let question = dice.pick(&[
        format!(
            "In which file does the word {word} occur? Give the file's name without its directory."
        ),
        format!("Exactly one file holds the word {word}. What is its name, without the directory?"),
    ]);
    let compute = format!("grep -rlw '{word}' {INPUT_DIR} | xargs basename");
    Asked::new(question, format!("{name}.{ending}"), compute)
}

fn leaves(dice: &mut Dice, level: Level, endings: &[&'static str]) -> Vec<Leaf> {
    // No two directories have the same name, wherever they lie.
    let dirs = dice.several(&DIRS, level.of([2, 4, 6, 8, 12]));
    let mut paths: Vec<String> = Vec::new();
    for dir in dirs {
        let above = (!paths.is_empty() && level.number() > 1 && !dice.once_in(3))
            .then(|| dice.pick(&paths));
        paths.push(above.map_or_else(|| dir.to_owned(), |above| format!("{above}/{dir}")));
    }
    let many = level.of([5, 10, 18, 30, 60]);
    (0..many)
        .map(|at| {
            // The number keeps names apart: the same topic may come twice.
            let name = format!("{}-{}", dice.pick(&TOPICS), at + 1);
            let lines = (0..dice.between(1, level.of([4, 6, 8, 10, 12])))
                .map(|_| dice.pick(&FILLERS).to_owned())
                .collect();
            (dice.pick(&paths), name, dice.pick(endings), lines)
        })
        .collect()
}
