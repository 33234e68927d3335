//! Kind `dates`: a calendar; days between events, the first one, those of a month or a weekday, the longest gap.
//!
//! Dates are days since 1970-01-01; the demonstrations compute the answers with a few lines of Python.

use std::collections::BTreeMap;

use super::{Draft, Level, Query, join_lines, words::EVENTS};
use crate::{rng::Rng, row::INPUT_DIR};

#[rustfmt::skip]
const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// An event: its day and its name.
type Event = (i64, String);

/// A question about a calendar.
pub(super) fn dates(rng: &mut Rng, level: Level) -> Draft {
    let events = calendar(rng, level);
    let text = join_lines(events.iter().map(|(day, name)| format!("{} {name}", iso(*day))));
    let files = BTreeMap::from([("calendar.txt".to_owned(), text)]);
    let asked = match level.number() {
        1 => between(rng, &events),
        2 => earliest(rng, &events),
        3 => of_month(rng, &events),
        4 => of_weekday(rng, &events),
        _ => longest_gap(rng, &events),
    };
    Draft::from_query(files, &format!("head -n 4 {INPUT_DIR}/calendar.txt"), asked)
}

/// Events on different days from 2020 to 2024, shuffled.
fn calendar(rng: &mut Rng, level: Level) -> Vec<Event> {
    let many = level.of([4, 8, 24, 60, 120]);
    let mut days: Vec<i64> = Vec::new();
    while days.len() < many {
        let day = rng.between(18_262, 20_088);
        if !days.contains(&day) {
            days.push(day);
        }
    }
    let names = rng.sample(&EVENTS, many);
    // There are more events than names: repeated names are numbered from 2.
    let name = |at: usize| match at / names.len() {
        0 => names[at].to_owned(),
        more => format!("{}{}", names[at % names.len()], more + 1),
    };
    days.into_iter().enumerate().map(|(at, day)| (day, name(at))).collect()
}

fn python(lines: &str) -> String {
    format!(
        "python3 -c \"\nfrom datetime import date\nevents = [line.split() for line in \
         open('{INPUT_DIR}/calendar.txt')]\n{lines}\n\""
    )
}

fn between(rng: &mut Rng, events: &[Event]) -> Query {
    let (first, second) = (&events[0], &events[1]);
    let (from, to) = if first.0 < second.0 { (first, second) } else { (second, first) };
    let ((from_day, from), (to_day, to)) = (from, to);
    let question = rng.pick(&[
        format!("How many days after the {from} is the {to} in calendar.txt?"),
        format!("calendar.txt lists events. How many days lie between the dates of the {from} and the {to}?"),
    ]);
    let compute = python(&format!(
        "day = {{name: date.fromisoformat(when) for when, name in events}}\n\
         print(abs((day['{to}'] - day['{from}']).days))"
    ));
    Query::new(question, to_day - from_day, compute)
}

fn earliest(rng: &mut Rng, events: &[Event]) -> Query {
    let first = events.iter().min().map_or("", |(_, name)| name);
    let question = rng.pick(&[
        "Which event in calendar.txt takes place first?",
        "What is the earliest event of calendar.txt?",
    ]);
    let compute = format!("sort {INPUT_DIR}/calendar.txt | head -n 1 | cut -d' ' -f2");
    Query::new(question.to_owned(), first, compute)
}

fn of_month(rng: &mut Rng, events: &[Event]) -> Query {
    let month = civil(events[0].0).1;
    let name = MONTHS[(month - 1) as usize];
    let question = rng.pick(&[
        format!("How many events in calendar.txt take place in {name}, whatever the year?"),
        format!("Count the events of calendar.txt that fall into the month of {name} of any year."),
    ]);
    let many = events.iter().filter(|(day, _)| civil(*day).1 == month).count();
    Query::new(question, many as i64, format!("grep -c -- '-{month:02}-' {INPUT_DIR}/calendar.txt"))
}

fn of_weekday(rng: &mut Rng, events: &[Event]) -> Query {
    let weekday = weekday_of(events[0].0);
    let name = WEEKDAYS[weekday];
    let question = rng.pick(&[
        format!("How many events in calendar.txt fall on a {name}?"),
        format!("Count the events of calendar.txt that take place on a {name}."),
    ]);
    let many = events.iter().filter(|(day, _)| weekday_of(*day) == weekday).count();
    let line = "print(sum(date.fromisoformat(when).weekday() == DAY for when, name in events))";
    Query::new(question, many as i64, python(&line.replace("DAY", &weekday.to_string())))
}

fn longest_gap(rng: &mut Rng, events: &[Event]) -> Query {
    let mut days: Vec<i64> = events.iter().map(|(day, _)| *day).collect();
    days.sort_unstable();
    let gap = days.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let question = rng.pick(&[
        "What is the largest number of days between an event in calendar.txt and the next one?",
        "Sort the events of calendar.txt by date. How many days long is the longest gap from one to the next?",
    ]);
    let compute = python(
        "days = sorted(date.fromisoformat(when) for when, name in events)\n\
         print(max((b - a).days for a, b in zip(days, days[1:])))",
    );
    Query::new(question.to_owned(), gap, compute)
}

/// Year, month and day.
fn civil(day: i64) -> (i64, i64, i64) {
    // Hinnant's algorithm: years from March have their leap day at the end, and repeat every 400 years.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

fn iso(day: i64) -> String {
    let (year, month, day) = civil(day);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The weekday, from 0 for Monday; 1970-01-01 was a Thursday.
fn weekday_of(day: i64) -> usize {
    (day + 3).rem_euclid(7) as usize
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
            assert_eq!((iso(day).as_str(), WEEKDAYS[weekday_of(day)]), (date, weekday));
        }
    }
}
