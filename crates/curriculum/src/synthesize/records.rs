//! Kind `json`: nested data; values at a path, counts by a condition, sums, over several files.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Draft, Level, Query,
    words::{CITIES, HOBBIES, NAMES},
};
use crate::{rng::Rng, row::INPUT_DIR};

/// A question about members of clubs.
pub(super) fn json(rng: &mut Rng, level: Level) -> Draft {
    let many = level.of([2, 5, 15, 40, 60]);
    let names = rng.sample(&NAMES, many);
    let members: Vec<Value> = names.iter().map(|name| member(rng, name)).collect();
    let mut files = BTreeMap::new();
    let (look, load);
    if level.number() == 5 {
        for (some, club) in members.chunks(many.div_ceil(4)).zip(["east", "north", "south", "west"])
        {
            let text = pretty(&json!({"club": club, "members": some}));
            files.insert(format!("clubs/{club}.json"), text);
        }
        look = format!("ls {INPUT_DIR}/clubs\nhead -n 20 {INPUT_DIR}/clubs/east.json");
        load = format!(
            "import glob, json\nmembers = [m for path in glob.glob('{INPUT_DIR}/clubs/*.json') \
             for m in json.load(open(path))['members']]"
        );
    } else {
        files.insert("club.json".to_owned(), pretty(&json!({"members": members})));
        look = format!("head -n 20 {INPUT_DIR}/club.json");
        load =
            format!("import json\nmembers = json.load(open('{INPUT_DIR}/club.json'))['members']");
    }
    let asked = match level.number() {
        1 | 2 => of_one(rng, level, &members),
        _ => of_a_city(rng, level, &members),
    };
    let compute = format!("python3 -c \"\n{load}\nprint({})\n\"", asked.compute);
    Draft::from_query(files, &look, Query { compute, ..asked })
}

fn member(rng: &mut Rng, name: &str) -> Value {
    let scores: Vec<i64> = (0..rng.between(2, 5)).map(|_| rng.between(1, 50)).collect();
    json!({
        "name": name,
        "age": rng.between(18, 80),
        "address": {"city": rng.pick(&CITIES[..6]), "zip": rng.between(10_000, 99_999)},
        "hobbies": rng.sample(&HOBBIES[..6], 2),
        "scores": scores,
    })
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// A value of one member, with the Python expression for it.
fn of_one(rng: &mut Rng, level: Level, members: &[Value]) -> Query {
    let chosen = rng.pick(members);
    let name = chosen["name"].as_str().unwrap_or_default();
    let (question, answer, path) = match level.number() {
        1 => (
            rng.pick(&[
                format!("How old is {name} according to club.json?"),
                format!("What is the age of {name} in club.json?"),
            ]),
            &chosen["age"],
            "m['age']",
        ),
        _ => (
            rng.pick(&[
                format!("What is the zip code in the address of {name} in club.json?"),
                format!("Which zip code does club.json give for {name}?"),
            ]),
            &chosen["address"]["zip"],
            "m['address']['zip']",
        ),
    };
    let expression = format!("next({path} for m in members if m['name'] == '{name}')");
    Query::new(question, number(answer), expression)
}

/// An aggregate over all members of a city, with the Python expression for it.
fn of_a_city(rng: &mut Rng, level: Level, members: &[Value]) -> Query {
    let city = members[0]["address"]["city"].as_str().unwrap_or_default();
    let ours = || members.iter().filter(|member| member["address"]["city"] == *city);
    if level.number() == 3 {
        let question = rng.pick(&[
            format!("How many members in club.json live in {city}?"),
            format!("Count the members in club.json whose address is in {city}."),
        ]);
        let expression = format!("sum(m['address']['city'] == '{city}' for m in members)");
        return Query::new(question, ours().count() as i64, expression);
    }
    let place = if level.number() == 4 { "club.json" } else { "all clubs" };
    let question = rng.pick(&[
        format!("What do all scores of all members from {city} in {place} add up to?"),
        format!(
            "Add up every score of the members who live in {city}, in {place}. What is the sum?"
        ),
    ]);
    let scores = ours().filter_map(|member| member["scores"].as_array()).flatten();
    let expression =
        format!("sum(sum(m['scores']) for m in members if m['address']['city'] == '{city}')");
    Query::new(question, scores.map(number).sum::<i64>(), expression)
}

fn pretty(value: &Value) -> String {
    // Numbers and strings can always be serialised.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
