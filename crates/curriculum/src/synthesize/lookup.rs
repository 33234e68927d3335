//! Kinds `find` and `prose`: settings in files, facts in sentences.

use std::collections::BTreeMap;

use super::{
    Draft, Level, join_lines,
    words::{CITIES, FILLERS, HOBBIES, KEYS, NAMES, SERVICES, TRADES},
};
use crate::{
    rng::Rng,
    row::{INPUT_DIR, write_answer},
};

/// The value of a setting: in one file, in the file of a service, or the last of several.
pub(super) fn find(rng: &mut Rng, level: Level) -> Draft {
    let many = level.of([1, 1, 4, 8, 16]);
    let services = rng.sample(&SERVICES, many);
    let (service, key) = (rng.pick(&services), rng.pick(&KEYS));
    let mut files = BTreeMap::new();
    let mut answer = 0;
    let mut place = String::new();
    for (at, name) in services.iter().enumerate() {
        let (text, value) = settings(rng, level, name, key);
        let file = match level.number() {
            1 | 2 => format!("{name}.conf"),
            3 => format!("part-{}.conf", at + 1),
            _ => format!("{}/{}.conf", ["first", "second", "third"][at % 3], at + 1),
        };
        if *name == service {
            (answer, place) = (value, file.clone());
        }
        files.insert(file, text);
    }
    if level.number() <= 2 {
        let question = rng.pick(&[
            format!("What is the value of `{key}` in {place}?"),
            format!("The file {place} holds settings. To which number is `{key}` set?"),
            format!("Look up the setting `{key}` in {place}. What is its value?"),
        ]);
        let look = format!("cat {INPUT_DIR}/{place}");
        let compute = format!("grep '^{key} = ' {INPUT_DIR}/{place} | cut -d' ' -f3");
        return Draft::of(files, question, answer, &look, &compute);
    }
    let twice = match level.number() {
        5 => " Where it is set more than once in a file, the last line counts.",
        _ => "",
    };
    let question = rng.pick(&[
        format!("Each file holds the settings of one service. What is `{key}` of the service {service}?{twice}"),
        format!("Find the file of the service {service}. To which number does it set `{key}`?{twice}"),
        format!("What value of `{key}` is in force for the service {service}?{twice}"),
    ]);
    let look = format!("grep -r 'service = {service}' {INPUT_DIR}");
    let compute = format!("grep '^{key} = ' {INPUT_DIR}/{place} | tail -n 1 | cut -d' ' -f3");
    Draft::of(files, question, answer, &look, &compute)
}

/// A settings file with `key`, and the effective value.
fn settings(rng: &mut Rng, level: Level, service: &str, key: &'static str) -> (String, i64) {
    let many = level.of([4, 9, 10, 12, 15]);
    let mut keys = rng.sample(&KEYS, many);
    if !keys.contains(&key) {
        keys[0] = key;
    }
    rng.shuffle(&mut keys);
    let mut lines = vec![format!("service = {service}")];
    let mut value = 0;
    for name in keys {
        if level.number() >= 4 && rng.one_in(2) {
            lines.push(format!("# {name} = {}", rng.between(1, 999)));
        }
        let number = rng.between(1, 999);
        lines.push(format!("{name} = {number}"));
        if name == key {
            value = number;
        }
    }
    if level.number() == 5 {
        value = rng.between(1, 999);
        lines.push(format!("{key} = {value}"));
    }
    (join_lines(lines), value)
}

/// A person in a text.
struct Person {
    name: &'static str,
    city: &'static str,
    trade: &'static str,
    hobby: &'static str,
}

/// A fact about a person: their city, their identity, or their mentor.
pub(super) fn prose(rng: &mut Rng, level: Level) -> Draft {
    let many = level.of([3, 6, 10, 14, 24]);
    // Cities are unique, so that every fact identifies one person.
    let (names, cities) = (rng.sample(&NAMES, many), rng.sample(&CITIES, many));
    let people: Vec<Person> = names
        .iter()
        .zip(&cities)
        .map(|(name, city)| Person {
            name,
            city,
            trade: rng.pick(&TRADES),
            hobby: rng.pick(&HOBBIES),
        })
        .collect();
    let sentences: Vec<String> = people.iter().map(|person| sentence(rng, person)).collect();
    let mentors: Vec<String> = (0..many)
        .map(|at| format!("The mentor of {} is {}.", names[at], names[(at + 1) % many]))
        .collect();
    let at = rng.below(many);
    let (person, mentor) = (&people[at], &people[(at + 1) % many]);
    let (question, answer, words) = match level.number() {
        1 | 2 => {
            let question = rng.pick(&[
                format!("In which city does {} live?", person.name),
                format!("Where does {} live?", person.name),
                format!("Which city is the home of {}?", person.name),
            ]);
            (question, person.city, [person.name, person.name])
        }
        3 | 4 => {
            let question = rng.pick(&[
                format!("Who lives in {}?", person.city),
                format!("What is the name of the person from {}?", person.city),
                format!("Whose home is the city {}?", person.city),
            ]);
            (question, person.name, [person.city, person.city])
        }
        _ => {
            let question = rng.pick(&[
                format!("Where does the mentor of {} live?", person.name),
                format!(
                    "Somebody is the mentor of {}. In which city does that person live?",
                    person.name
                ),
            ]);
            (question, mentor.city, [person.name, mentor.name])
        }
    };
    let files =
        pages(rng, level, sentences, if level.number() == 5 { mentors } else { Vec::new() });
    let mut steps: Vec<String> =
        words.iter().map(|word| format!("grep -r -w '{word}' {INPUT_DIR}")).collect();
    steps.dedup();
    steps.push(write_answer(answer));
    Draft { files, question, answer: answer.into(), steps }
}

fn sentence(rng: &mut Rng, person: &Person) -> String {
    let Person { name, city, trade, hobby } = person;
    rng.pick(&[
        format!("{name} works as a {trade}, lives in {city} and likes {hobby}."),
        format!("In {city} lives {name}, a {trade} who is fond of {hobby}."),
        format!("{name}, whose home is {city}, gave up {hobby} and became a {trade}."),
        format!("The {trade} {name} has lived in {city} for years and has taken up {hobby}."),
    ])
}

/// Sentences among filler, a few per line, in one file or several.
fn pages(
    rng: &mut Rng,
    level: Level,
    facts: Vec<String>,
    more: Vec<String>,
) -> BTreeMap<String, String> {
    let fillers = level.of([1, 4, 12, 30, 80]);
    let mut sentences: Vec<String> = facts.into_iter().chain(more).collect();
    sentences.extend((0..fillers).map(|_| rng.pick(&FILLERS).to_owned()));
    rng.shuffle(&mut sentences);
    let files = level.of([1, 1, 1, 4, 6]);
    let size = sentences.len().div_ceil(files);
    let names = ["chronicle", "letter", "report", "diary", "story", "column"];
    let pages = sentences.chunks(size).zip(names).map(|(page, name)| {
        let lines = page.chunks(2).map(|pair| pair.join(" "));
        (format!("{name}.txt"), join_lines(lines))
    });
    pages.collect()
}
