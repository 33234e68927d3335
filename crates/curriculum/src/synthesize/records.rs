//! Dates and nested data, for which a few lines of Python are the shortest way.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Answer, Level, Made, lined,
    words::{CITIES, EVENTS, HOBBIES, NAMES},
};
use crate::{dice::Dice, row::INPUT_DIR};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A calendar: days between events, the first one, those of a month or a weekday, the longest gap.
pub(super) fn dates(dice: &mut Dice, level: Level) -> Made {
    let many = level.of([4, 8, 24, 60, 120]);
    let mut days: Vec<i64> = Vec::new();
    while days.len() < many {
        // From 2020 to 2024, counted from 1970.
        let day = dice.between(18_262, 20_088);
        if !days.contains(&day) {
            days.push(day);
        }
    }
    let names = dice.several(&EVENTS, many);
    // More events than names: they are numbered from the second on.
    let name = |at: usize| match at / names.len() {
        0 => names[at].to_owned(),
        more => format!("{}{}", names[at % names.len()], more + 1),
    };
    let events: Vec<(i64, String)> =
        days.iter().copied().enumerate().map(|(at, day)| (day, name(at))).collect();
    let file = format!("{INPUT_DIR}/calendar.txt");
    let text = lined(events.iter().map(|(day, name)| format!("{} {name}", iso(*day))));
    let python = |lines: &str| {
        format!(
            "python3 -c \"\nfrom datetime import date\nevents = [line.split() for line in open('{file}')]\n{lines}\n\""
        )
    };
    let mut sorted = days.clone();
    sorted.sort_unstable();
    let (question, compute);
    let answer: Answer = match level.number() {
        1 => {
            let (first, second) = (&events[0], &events[1]);
            let (from, to) = if first.0 < second.0 { (first, second) } else { (second, first) };
            question = dice.pick(&[
                format!("How many days after the {} is the {} in calendar.txt?", from.1, to.1),
                format!("calendar.txt lists events. How many days lie between the dates of the {} and the {}?", from.1, to.1),
            ]);
            compute = python(&format!(
                "day = {{name: date.fromisoformat(when) for when, name in events}}\nprint(abs((day['{}'] - day['{}']).days))",
                to.1, from.1
            ));
            (to.0 - from.0).into()
        }
        2 => {
            let first = events.iter().min().map_or("", |(_, name)| name);
            question = dice.pick(&[
                "Which event in calendar.txt takes place first?".to_owned(),
                "What is the earliest event of calendar.txt?".to_owned(),
            ]);
            compute = format!("sort {file} | head -n 1 | cut -d' ' -f2");
            first.into()
        }
        3 => {
            let month = civil(days[0]).1;
            question = dice.pick(&[
                format!(
                    "How many events in calendar.txt take place in {}, whatever the year?",
                    MONTHS[month as usize - 1]
                ),
                format!(
                    "Count the events of calendar.txt that fall into the month of {} of any year.",
                    MONTHS[month as usize - 1]
                ),
            ]);
            compute = format!("grep -c -- '-{month:02}-' {file}");
            (days.iter().filter(|day| civil(**day).1 == month).count() as i64).into()
        }
        4 => {
            let weekday = weekday(days[0]);
            question = dice.pick(&[
                format!("How many events in calendar.txt fall on a {}?", WEEKDAYS[weekday]),
                format!(
                    "Count the events of calendar.txt that take place on a {}.",
                    WEEKDAYS[weekday]
                ),
            ]);
            compute = python(&format!(
                "print(sum(date.fromisoformat(when).weekday() == {weekday} for when, name in events))"
            ));
            (days.iter().filter(|day| self::weekday(**day) == weekday).count() as i64).into()
        }
        _ => {
            let gap = sorted.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            question = dice.pick(&[
                "What is the largest number of days between an event in calendar.txt and the next one?".to_owned(),
                "Sort the events of calendar.txt by date. How many days long is the longest gap from one to the next?".to_owned(),
            ]);
            compute = python(
                "days = sorted(date.fromisoformat(when) for when, name in events)\nprint(max((b - a).days for a, b in zip(days, days[1:])))",
            );
            gap.into()
        }
    };
    let files = BTreeMap::from([("calendar.txt".to_owned(), text)]);
    Made::of(files, question, answer, &format!("head -n 4 {file}"), &compute)
}

/// Year, month and day of a day counted from the first of 1970, for days since then.
fn civil(day: i64) -> (i64, i64, i64) {
    // Years that begin in March have their leap day at the end; eras of 400 such years are all alike.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) =
        (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (era * 400 + year + i64::from(month <= 2), month, day)
}

fn iso(day: i64) -> String {
    let (year, month, day) = civil(day);
    format!("{year:04}-{month:02}-{day:02}")
}

/// From 0 for a Monday; the first of 1970 was a Thursday.
fn weekday(day: i64) -> usize {
    (day + 3).rem_euclid(7) as usize
}

/// A member of a club, as nested data.
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

/// Values of nested data: at a path, counted by a condition, added up, over several files.
pub(super) fn json(dice: &mut Dice, level: Level) -> Made {
    let many = level.of([2, 5, 15, 40, 60]);
    let names = dice.several(&NAMES, many);
    let members: Vec<Value> = names.iter().map(|name| member(dice, name)).collect();
    let (chosen, city) =
        (&members[dice.below(many)], members[0]["address"]["city"].as_str().unwrap_or_default());
    let name = chosen["name"].as_str().unwrap_or_default();
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let in_city = |member: &&Value| member["address"]["city"] == *city;
    let scores = |member: &Value| {
        member["scores"].as_array().map_or(0, |all| all.iter().map(number).sum::<i64>())
    };
    let files: BTreeMap<String, String> = match level.number() {
        5 => members
            .chunks(many.div_ceil(4))
            .zip(["east", "north", "south", "west"])
            .map(|(some, club)| {
                (format!("clubs/{club}.json"), pretty(&json!({"club": club, "members": some})))
            })
            .collect(),
        _ => BTreeMap::from([("club.json".to_owned(), pretty(&json!({"members": members})))]),
    };
    let load = match level.number() {
        5 => format!(
            "import glob, json\nmembers = [m for path in glob.glob('{INPUT_DIR}/clubs/*.json') for m in json.load(open(path))['members']]"
        ),
        _ => format!("import json\nmembers = json.load(open('{INPUT_DIR}/club.json'))['members']"),
    };
    let (question, answer, expression) = match level.number() {
        1 => (
            dice.pick(&[
                format!("How old is {name} according to club.json?"),
                format!("What is the age of {name} in club.json?"),
            ]),
            number(&chosen["age"]),
            format!("next(m['age'] for m in members if m['name'] == '{name}')"),
        ),
        2 => (
            dice.pick(&[
                format!("What is the zip code in the address of {name} in club.json?"),
                format!("Which zip code does club.json give for {name}?"),
            ]),
            number(&chosen["address"]["zip"]),
            format!("next(m['address']['zip'] for m in members if m['name'] == '{name}')"),
        ),
        3 => (
            dice.pick(&[
                format!("How many members in club.json live in {city}?"),
                format!("Count the members in club.json whose address is in {city}."),
            ]),
            members.iter().filter(in_city).count() as i64,
            format!("sum(m['address']['city'] == '{city}' for m in members)"),
        ),
        _ => {
            let place = if level.number() == 4 { "club.json" } else { "all clubs" };
            (
                dice.pick(&[
                    format!("What do all scores of all members from {city} in {place} add up to?"),
                    format!("Add up every score of the members who live in {city}, in {place}. What is the sum?"),
                ]),
                members.iter().filter(in_city).map(scores).sum(),
                format!("sum(sum(m['scores']) for m in members if m['address']['city'] == '{city}')"),
            )
        }
    };
    let look = match level.number() {
        5 => format!("ls {INPUT_DIR}/clubs\nhead -n 20 {INPUT_DIR}/clubs/east.json"),
        _ => format!("head -n 20 {INPUT_DIR}/club.json"),
    };
    let compute = format!("python3 -c \"\n{load}\nprint({expression})\n\"");
    Made::of(files, question, answer, &look, &compute)
}

fn pretty(value: &Value) -> String {
    // Numbers and texts always can be written.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (day, date, weekday) in [
            (0, "1970-01-01", "Thursday"),
            (18_262, "2020-01-01", "Wednesday"),
            (18_321, "2020-02-29", "Saturday"),
            (18_322, "2020-03-01", "Sunday"),
            (20_088, "2024-12-31", "Tuesday"),
        ] {
            assert_eq!((iso(day).as_str(), WEEKDAYS[super::weekday(day)]), (date, weekday));
        }
    }
}
