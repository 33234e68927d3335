//! Nested data: values at a path, counted by a condition, added up, over several files.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Asked, Level, Made,
    words::{CITIES, HOBBIES, NAMES},
};
use crate::{dice::Dice, row::INPUT_DIR};

/// A question about members of clubs.
pub(super) fn json(dice: &mut Dice, level: Level) -> Made {
    let many = level.of([2, 5, 15, 40, 60]);
    let names = dice.several(&NAMES, many);
    let members: Vec<Value> = names.iter().map(|name| member(dice, name)).collect();
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
        1 | 2 => of_one(dice, level, &members),
        _ => of_a_city(dice, level, &members),
    };
    let compute = format!("python3 -c \"\n{load}\nprint({})\n\"", asked.compute);
    Made::asking(files, &look, Asked { compute, ..asked })
}

fn member(dice: &mut Dice, name: &str) -> Value {
    let scores: Vec<i64> = (0..dice.between(2, 5)).map(|_| dice.between(1, 50)).collect();
    json!({
        "name": name,
        "age": dice.between(18, 80),
        "address": {"city": dice.pick(&CITIES[..6]), "zip": dice.between(10_000, 99_999)},
        "hobbies": dice.several(&HOBBIES[..6], 2),
        "scores": scores,
    })
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// A value of one member; the command is the expression for it.
fn of_one(dice: &mut Dice, level: Level, members: &[Value]) -> Asked {
    let chosen = dice.pick(members);
    let name = chosen["name"].as_str().unwrap_or_default();
    let (question, answer, path) = match level.number() {
        1 => (
            dice.pick(&[
                format!("How old is {name} according to club.json?"),
                format!("What is the age of {name} in club.json?"),
            ]),
            &chosen["age"],
            "m['age']",
        ),
        _ => (
            dice.pick(&[
                format!("What is the zip code in the address of {name} in club.json?"),
                format!("Which zip code does club.json give for {name}?"),
            ]),
            &chosen["address"]["zip"],
            "m['address']['zip']",
        ),
    };
    let expression = format!("next({path} for m in members if m['name'] == '{name}')");
    Asked::new(question, number(answer), expression)
}

/// Something about all members of a city; the command is the expression for it.
fn of_a_city(dice: &mut Dice, level: Level, members: &[Value]) -> Asked {
    let city = members[0]["address"]["city"].as_str().unwrap_or_default();
    let ours = || members.iter().filter(|member| member["address"]["city"] == *city);
    if level.number() == 3 {
        let question = dice.pick(&[
            format!("How many members in club.json live in {city}?"),
            format!("Count the members in club.json whose address is in {city}."),
        ]);
        let expression = format!("sum(m['address']['city'] == '{city}' for m in members)");
        return Asked::new(question, ours().count() as i64, expression);
    }
    let place = if level.number() == 4 { "club.json" } else { "all clubs" };
    let question = dice.pick(&[
        format!("What do all scores of all members from {city} in {place} add up to?"),
        format!(
            "Add up every score of the members who live in {city}, in {place}. What is the sum?"
        ),
    ]);
    let scores = ours().filter_map(|member| member["scores"].as_array()).flatten();
    let expression =
        format!("sum(sum(m['scores']) for m in members if m['address']['city'] == '{city}')");
    Asked::new(question, scores.map(number).sum::<i64>(), expression)
}

fn pretty(value: &Value) -> String {
    // Numbers and texts always can be written.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
