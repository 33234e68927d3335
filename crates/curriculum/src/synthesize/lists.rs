//! Kinds `count`, `distinct`, `frequent` and `pattern`: counting lines, values and codes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Draft, Level, csv, join_lines,
    words::{CITIES, FILLERS, ITEMS, NAMES, PARTS},
};
use crate::{rng::Rng, row::INPUT_DIR};

const SEVERITIES: [&str; 4] = ["DEBUG", "INFO", "WARNING", "ERROR"];

/// A line of a log.
struct Entry {
    time: String,
    severity: &'static str,
    part: &'static str,
    text: String,
}

/// The number of matching log lines: by severity, component or time of day.
pub(super) fn count(rng: &mut Rng, level: Level) -> Draft {
    let (many, size) = (level.of([1, 1, 1, 3, 5]), level.lines(rng));
    let (severity, part) = (rng.pick(&SEVERITIES), rng.pick(&PARTS));
    let hour = rng.between(9, 17);
    let from = format!("{hour:02}:00:00");
    let mut files = BTreeMap::new();
    let mut answer = 0;
    for name in &["app", "backup", "main", "night", "web"][..many] {
        let mut entries = log(rng, size / many + 1);
        // At least one line matches.
        if let Some(entry) = entries.last_mut() {
            (entry.severity, entry.part, entry.time) = (severity, part, "23:59:59".into());
        }
        let counts = |entry: &&Entry| {
            entry.severity == severity
                && (level.number() < 3 || entry.part == part)
                && (level.number() < 5 || entry.time >= from)
        };
        answer += entries.iter().filter(counts).count() as i64;
        let line = |entry: Entry| {
            format!("2024-05-17 {} {} {} {}", entry.time, entry.severity, entry.part, entry.text)
        };
        files.insert(format!("{name}.log"), join_lines(entries.into_iter().map(line)));
    }
    let (whose, test) = match level.number() {
        1 | 2 => (String::new(), String::new()),
        3 | 4 => (format!(" of {part}"), format!(" && $4 == \"{part}\"")),
        _ => (
            format!(" of {part} at {hour}:00 or later"),
            format!(" && $4 == \"{part}\" && $2 >= \"{from}\""),
        ),
    };
    let place = if many == 1 { "app.log" } else { "all the logs together" };
    let question = rng.pick(&[
        format!("How many {severity} lines{whose} are there in {place}?"),
        format!("Count the lines{whose} with severity {severity} in {place}."),
        format!("In {place}, how many entries{whose} have the severity {severity}?"),
    ]);
    let look = format!("head -n 3 {INPUT_DIR}/*.log");
    let compute = format!("cat {INPUT_DIR}/*.log | awk '$3 == \"{severity}\"{test}' | wc -l");
    Draft::of(files, question, answer, &look, &compute)
}

fn log(rng: &mut Rng, lines: usize) -> Vec<Entry> {
    const TEXTS: [&str; 8] = [
        "connection opened",
        "connection closed",
        "took longer than expected",
        "tried again",
        "finished without a result",
        "finished",
        "started",
        "waits for others",
    ];
    let mut seconds: Vec<i64> = (0..lines).map(|_| rng.between(0, 86_000)).collect();
    seconds.sort_unstable();
    let entry = |second: i64| Entry {
        time: format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60),
        severity: rng.pick(&SEVERITIES),
        part: rng.pick(&PARTS),
        text: rng.pick(&TEXTS).to_owned(),
    };
    seconds.into_iter().map(entry).collect()
}

/// Visits: person, city, activity.
fn visits(rng: &mut Rng, level: Level, files: usize) -> Vec<Vec<[String; 3]>> {
    let many = level.of([4, 6, 10, 16, 24]);
    let (names, cities) =
        (rng.sample(&NAMES, many), rng.sample(&CITIES, level.of([2, 3, 4, 5, 6])));
    let lines = level.lines(rng) / files + 2;
    let mut visit = || [rng.pick(&names), rng.pick(&cities), rng.pick(&ITEMS)].map(str::to_owned);
    (0..files).map(|_| (0..lines).map(|_| visit()).collect()).collect()
}

fn visit_files(tables: &[Vec<[String; 3]>]) -> BTreeMap<String, String> {
    let name = |at: usize| match tables.len() {
        1 => "visits.csv".to_owned(),
        _ => format!("visits-{}.csv", at + 1),
    };
    tables
        .iter()
        .enumerate()
        .map(|(at, table)| (name(at), csv("visitor,city,bought", table)))
        .collect()
}

/// The number of distinct values of a column.
pub(super) fn distinct(rng: &mut Rng, level: Level) -> Draft {
    let tables = visits(rng, level, level.of([1, 1, 1, 3, 5]));
    let city = tables[0][0][1].clone();
    let narrowed = level.number() >= 3;
    let visitors: BTreeSet<&str> = tables
        .iter()
        .flatten()
        .filter(|[_, where_, _]| !narrowed || *where_ == city)
        .map(|[who, _, _]| who.as_str())
        .collect();
    let answer = visitors.len() as i64;
    let files = visit_files(&tables);
    let place = if files.len() == 1 { "visits.csv" } else { "the visits files together" };
    let where_ = if narrowed { format!(" to {city}") } else { String::new() };
    let question = rng
        .pick(&[
            format!(
                "How many different visitors are there in {place}, counting only visits{where_}?"
            ),
            format!("Count the distinct visitors of the visits{where_} in {place}."),
            format!("Over all visits{where_} in {place}: how many different people came?"),
        ])
        .replace(", counting only visits?", "?")
        .replace("of the visits in", "in");
    let test = if narrowed { format!(" && $2 == \"{city}\"") } else { String::new() };
    let look = format!("head -n 3 {INPUT_DIR}/*.csv");
    let compute =
        format!("awk -F, 'FNR > 1{test} {{print $1}}' {INPUT_DIR}/*.csv | sort -u | wc -l");
    Draft::of(files, question, answer, &look, &compute)
}

/// The most frequent value of a column.
pub(super) fn frequent(rng: &mut Rng, level: Level) -> Draft {
    let mut tables = visits(rng, level, level.of([1, 1, 1, 3, 5]));
    let (winner, city) = (tables[0][0][0].clone(), tables[0][0][1].clone());
    let narrowed = level.number() >= 3;
    let most = |tables: &[Vec<[String; 3]>]| {
        let mut often: BTreeMap<String, usize> = BTreeMap::new();
        for [who, where_, _] in tables.iter().flatten() {
            if !narrowed || *where_ == city {
                *often.entry(who.clone()).or_default() += 1;
            }
        }
        let others = often.iter().filter(|(who, _)| **who != winner);
        (often.get(&winner).copied(), others.map(|(_, many)| *many).max())
    };
    // The most frequent value has to be unique.
    while let (ours, others) = most(&tables)
        && ours <= others
    {
        let visit = [winner.clone(), city.clone(), rng.pick(&ITEMS).to_owned()];
        let table = rng.below(tables.len());
        let at = rng.below(tables[table].len());
        tables[table].insert(at, visit);
    }
    // Shuffled, so that positions reveal nothing.
    tables.iter_mut().for_each(|table| rng.shuffle(table));
    let files = visit_files(&tables);
    let place = if files.len() == 1 { "visits.csv" } else { "the visits files together" };
    let where_ = if narrowed { format!(" to {city}") } else { String::new() };
    let question = rng
        .pick(&[
            format!("Whose name stands for the most visits{where_} in {place}?"),
            format!("Which visitor made the most visits{where_} according to {place}?"),
            format!("Who is the most frequent visitor in {place}, counting visits{where_}?"),
        ])
        .replace(", counting visits?", "?");
    let test = if narrowed { format!(" && $2 == \"{city}\"") } else { String::new() };
    let look = format!("head -n 3 {INPUT_DIR}/*.csv");
    let compute = format!(
        "awk -F, 'FNR > 1{test} {{print $1}}' {INPUT_DIR}/*.csv | sort | uniq -c | sort -n | tail -n 1 | awk '{{print $2}}'"
    );
    Draft::of(files, question, winner, &look, &compute)
}

/// Codes such as QX-1234 within sentences: their number, that of one series, or the sum of their numbers.
pub(super) fn pattern(rng: &mut Rng, level: Level) -> Draft {
    const SERIES: [&str; 6] = ["AB", "DK", "MX", "PT", "QZ", "VR"];
    let (many, files) = (level.of([4, 8, 25, 60, 150]), level.of([1, 1, 1, 3, 5]));
    let series = rng.pick(&SERIES);
    let mut numbers: Vec<i64> = Vec::new();
    while numbers.len() < many {
        let number = rng.between(1000, 9999);
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    let mut codes: Vec<(&str, i64)> =
        numbers.iter().map(|number| (rng.pick(&SERIES), *number)).collect();
    codes[0].0 = series;
    let ours = || codes.iter().filter(|(name, _)| *name == series).map(|(_, number)| number);
    let (count, sum) = (ours().count() as i64, ours().sum::<i64>());
    let mut sentences: Vec<String> = Vec::new();
    for (name, number) in &codes {
        sentences.push(rng.pick(&[
            format!("Parcel {name}-{number} arrived in the morning."),
            format!("Nobody asked for {name}-{number}, so it was sent back."),
            format!("The label said {name}-{number}."),
            format!("We looked for {name}-{number} and found it under the stairs."),
        ]));
        if rng.one_in(2) {
            sentences.push(rng.pick(&FILLERS).to_owned());
        }
    }
    let size = sentences.len().div_ceil(files);
    let texts: BTreeMap<String, String> = sentences
        .chunks(size)
        .zip(["notes-a", "notes-b", "notes-c", "notes-d", "notes-e"])
        .map(|(page, name)| {
            (format!("{name}.txt"), join_lines(page.chunks(3).map(|some| some.join(" "))))
        })
        .collect();
    let place = if texts.len() == 1 { "notes-a.txt" } else { "the notes" };
    let found = format!("grep -ohE '{series}-[0-9]{{4}}' {INPUT_DIR}/*.txt");
    let look = format!("head -n 3 {INPUT_DIR}/*.txt");
    let (question, answer, compute) = match level.number() {
        1 | 3 => {
            let question = rng.pick(&[
                format!("How many codes of the series {series} (such as {series}-0000) are in {place}?"),
                format!("Codes look like {series}-0000. Count those in {place} that begin with {series}."),
            ]);
            (question, count, format!("{found} | wc -l"))
        }
        _ => {
            let question = rng.pick(&[
                format!("Codes look like {series}-0000. Add up the numbers of all codes in {place} that begin with {series}."),
                format!("What is the sum of the four-digit numbers of all {series} codes (such as {series}-0000) in {place}?"),
            ]);
            (question, sum, format!("{found} | cut -d- -f2 | awk '{{s += $1}} END {{print s}}'"))
        }
    };
    Draft::of(texts, question, answer, &look, &compute)
}
