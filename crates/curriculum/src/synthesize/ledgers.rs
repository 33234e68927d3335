//! Kinds `average`, `units` and `ledger`: arithmetic over amounts.

use super::{
    Draft, Level, Query, csv, join_lines,
    words::{CITIES, ITEMS},
};
use crate::{rng::Rng, row::INPUT_DIR};

/// The mean, the median or the range of measurements.
pub(super) fn average(rng: &mut Rng, level: Level) -> Draft {
    let files = level.of([1, 1, 1, 1, 3]);
    let stations = rng.sample(&CITIES, level.of([1, 2, 3, 4, 5]));
    let station = rng.pick(&stations);
    // An odd number of measurements has a median.
    let many = (level.lines(rng) / stations.len() + 2) | 1;
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut ours: Vec<i64> = Vec::new();
    for name in &stations {
        let mut values: Vec<i64> = (0..many).map(|_| rng.between(10, 400)).collect();
        // An integral mean avoids questions of rounding.
        let rest = values.iter().sum::<i64>() % many as i64;
        values[0] -= rest;
        rows.extend(values.iter().map(|value| [(*name).to_owned(), value.to_string()]));
        if *name == station {
            ours = values;
        }
    }
    rng.shuffle(&mut rows);
    ours.sort_unstable();
    let name = |at: usize| match files {
        1 => "measured.csv".to_owned(),
        _ => format!("measured-{}.csv", at + 1),
    };
    let tables = rows.chunks(rows.len().div_ceil(files)).enumerate();
    let tables = tables.map(|(at, rows)| (name(at), csv("station,value", rows))).collect();
    let place = if files == 1 { "measured.csv" } else { "all files together" };
    let asked = average_asked(rng, level, &ours, [place, station]);
    Draft::from_query(tables, &format!("head -n 3 {INPUT_DIR}/*.csv"), asked)
}

/// A question about sorted values, an odd number of them.
fn average_asked(rng: &mut Rng, level: Level, ours: &[i64], [place, station]: [&str; 2]) -> Query {
    let many = ours.len();
    let numbers =
        format!("awk -F, 'FNR > 1 && $1 == \"{station}\" {{print $2}}' {INPUT_DIR}/*.csv");
    let (questions, answer, rest) = match level.number() {
        1 | 2 | 5 => (
            [
                format!("What is the mean of the values of station {station} in {place}?"),
                format!("What is the average value of the station {station}, over {place}?"),
            ],
            ours.iter().sum::<i64>() / many as i64,
            "awk '{s += $1} END {print s / NR}'".to_owned(),
        ),
        3 => (
            [
                format!("What is the median of the values of station {station} in {place}?"),
                format!(
                    "Sort the values of the station {station} in {place}. Which one stands in the middle?"
                ),
            ],
            ours[many / 2],
            format!("sort -n | sed -n {}p", many / 2 + 1),
        ),
        _ => (
            [
                format!(
                    "What is the difference between the largest and the smallest value of station {station} in {place}?"
                ),
                format!(
                    "By how much do the highest and the lowest value of the station {station} in {place} differ?"
                ),
            ],
            ours[many - 1] - ours[0],
            "sort -n | awk 'NR == 1 {low = $1} {high = $1} END {print high - low}'".to_owned(),
        ),
    };
    Query::new(rng.pick(&questions), answer, format!("{numbers} | {rest}"))
}

/// A quantity and its units, smallest first, each with its size in the smallest.
struct Quantity {
    word: &'static str,
    units: [(&'static str, i64); 3],
}

const QUANTITIES: [Quantity; 4] = [
    Quantity { word: "length", units: [("cm", 1), ("m", 100), ("km", 100_000)] },
    Quantity { word: "weight", units: [("g", 1), ("kg", 1000), ("t", 1_000_000)] },
    Quantity { word: "duration", units: [("s", 1), ("min", 60), ("h", 3600)] },
    Quantity { word: "volume", units: [("ml", 1), ("dl", 100), ("l", 1000)] },
];

/// Amounts in different units, summed or compared in the smallest.
pub(super) fn units(rng: &mut Rng, level: Level) -> Draft {
    let Quantity { word, units } = &QUANTITIES[rng.below(QUANTITIES.len())];
    let used = &units[..level.of([2, 2, 3, 3, 3])];
    let smallest = used[0].0;
    let items = rng.sample(&ITEMS, level.of([3, 4, 6, 8, 10]));
    let item = rng.pick(&items);
    let mut rows: Vec<(&str, i64, usize)> = (0..level.lines(rng))
        .map(|_| (rng.pick(&items), rng.between(1, 30), rng.below(used.len())))
        .collect();
    rows[0].0 = item;
    rng.shuffle(&mut rows);
    let narrowed = level.number() >= 3;
    let ours = || rows.iter().filter(|row| !narrowed || row.0 == item);
    let in_smallest = ours().map(|(_, amount, unit)| amount * used[*unit].1);
    let (largest, total) = (in_smallest.clone().max().unwrap_or(0), in_smallest.sum::<i64>());
    let table = csv(
        &format!("item,{word},unit"),
        rows.iter().map(|(item, amount, unit)| {
            [(*item).to_owned(), amount.to_string(), used[*unit].0.to_owned()]
        }),
    );
    let seen: Vec<String> =
        used[1..].iter().map(|(unit, many)| format!("1 {unit} is {many} {smallest}")).collect();
    let seen = seen.join(" and ");
    let of = if narrowed { format!(" of the item {item}") } else { String::new() };
    let factors: Vec<String> =
        used.iter().map(|(unit, many)| format!("f[\"{unit}\"] = {many}")).collect();
    let factors = factors.join("; ");
    let test = if narrowed { format!(" && $1 == \"{item}\"") } else { String::new() };
    let begin = format!("awk -F, 'BEGIN {{{factors}}} NR > 1{test}");
    let (question, answer, compute) = if level.number() == 4 {
        (
            format!(
                "What is the largest {word}{of} in parts.csv, in {smallest}? Note that {seen}."
            ),
            largest,
            format!(
                "{begin} && $2 * f[$3] > m {{m = $2 * f[$3]}} END {{printf \"%d\\n\", m}}' {INPUT_DIR}/parts.csv"
            ),
        )
    } else {
        (
            rng.pick(&[
                format!("What is the total {word}{of} in parts.csv, in {smallest}? Note that {seen}."),
                format!("Add up the {word}{of} over all lines of parts.csv and give the result in {smallest} ({seen})."),
            ]),
            total,
            format!("{begin} {{s += $2 * f[$3]}} END {{printf \"%d\\n\", s}}' {INPUT_DIR}/parts.csv"),
        )
    };
    let look = format!("head -n 4 {INPUT_DIR}/parts.csv");
    Draft::new([("parts.csv".to_owned(), table)], question, answer, &look, &compute)
}

/// A balance: at the end, its minimum, or the number of times it is below zero.
pub(super) fn ledger(rng: &mut Rng, level: Level) -> Draft {
    let mut balance = rng.between(50, 200);
    let mut lines = vec![format!("start {balance}")];
    let (mut lowest, mut below) = (balance, 0);
    for _ in 0..level.lines(rng) {
        let amount = rng.between(1, 90);
        let (word, change) = if rng.one_in(2) { ("in", amount) } else { ("out", -amount) };
        lines.push(format!("{word} {amount}"));
        balance += change;
        lowest = lowest.min(balance);
        below += i64::from(balance < 0);
    }
    let told = "account.txt begins with the balance at the start; then each line brings money in or takes it out.";
    let step = "$1 == \"start\" || $1 == \"in\" {b += $2} $1 == \"out\" {b -= $2}";
    let file = format!("{INPUT_DIR}/account.txt");
    let (question, answer, compute) = match level.number() {
        1 | 2 => (
            rng.pick(&[
                format!("{told} What is the balance at the end?"),
                format!("What is the final balance in account.txt? {told}"),
            ]),
            balance,
            format!("awk '{step} END {{print b}}' {file}"),
        ),
        3 | 4 => (
            rng.pick(&[
                format!(
                    "{told} What is the lowest balance that is ever reached, the start included?"
                ),
                format!("{told} How low does the balance get at its lowest, the start included?"),
            ]),
            lowest,
            format!("awk '{step} NR == 1 || b < low {{low = b}} END {{print low}}' {file}"),
        ),
        _ => (
            rng.pick(&[
                format!("{told} After how many of these lines is the balance below zero?"),
                format!("{told} Count the lines after which the balance is negative."),
            ]),
            below,
            format!("awk '{step} b < 0 {{n++}} END {{print n + 0}}' {file}"),
        ),
    };
    let look = format!("head -n 4 {file}");
    Draft::new([("account.txt".to_owned(), join_lines(lines))], question, answer, &look, &compute)
}
