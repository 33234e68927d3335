//! Kinds `sum`, `join`, `extreme` and `rank`: tables of numbers.

use std::collections::BTreeMap;

use super::{
    Draft, Level, Query, csv,
    words::{CITIES, ITEMS, NAMES},
};
use crate::{rng::Rng, row::INPUT_DIR};

/// A sale.
struct Sale {
    city: &'static str,
    item: &'static str,
    quantity: i64,
    price: i64,
}

/// The sum of a column: over all rows, some rows, products, or several files.
pub(super) fn sum(rng: &mut Rng, level: Level) -> Draft {
    let months = &["january", "february", "march", "april"][..level.of([1, 1, 1, 1, 4])];
    let items = rng.sample(&ITEMS, level.of([3, 3, 5, 6, 8]));
    let cities = rng.sample(&CITIES, 4);
    let (city, item) = (rng.pick(&cities), rng.pick(&items));
    let lines = level.lines(rng) / months.len() + 1;
    let mut files = BTreeMap::new();
    let mut total = 0;
    for month in months {
        let mut sale = || Sale {
            city: rng.pick(&cities),
            item: rng.pick(&items),
            quantity: rng.between(1, 40),
            price: rng.between(2, 90),
        };
        let mut sales: Vec<Sale> = (0..lines).map(|_| sale()).collect();
        (sales[0].city, sales[0].item) = (city, item);
        rng.shuffle(&mut sales);
        let ours = sales.iter().filter(|sale| match level.number() {
            1 => true,
            2 => sale.item == item,
            _ => sale.item == item && sale.city == city,
        });
        let worth = |sale: &Sale| if level.number() >= 4 { sale.price } else { 1 };
        total += ours.map(|sale| sale.quantity * worth(sale)).sum::<i64>();
        let name =
            if months.len() == 1 { "sales.csv".into() } else { format!("sales-{month}.csv") };
        files.insert(name, csv("city,item,quantity,price", sales.iter().map(Sale::cells)));
    }
    let place = if months.len() == 1 { "sales.csv" } else { "all sales files together" };
    let asked = sum_asked(rng, level, total, [place, city, item]);
    Draft::from_query(files, &format!("head -n 3 {INPUT_DIR}/*.csv"), asked)
}

impl Sale {
    fn cells(&self) -> [String; 4] {
        let Self { city, item, quantity, price } = self;
        [(*city).to_owned(), (*item).to_owned(), quantity.to_string(), price.to_string()]
    }
}

fn sum_asked(rng: &mut Rng, level: Level, total: i64, [place, city, item]: [&str; 3]) -> Query {
    let questions = match level.number() {
        1 => [
            format!("What is the sum of the column quantity in {place}?"),
            format!("Add up the quantities of all sales in {place}. What is the total?"),
        ],
        2 => [
            format!("What quantity of the item {item} was sold in all according to {place}?"),
            format!("Add up the quantity of every sale of a {item} in {place}."),
        ],
        3 => [
            format!("What quantity of the item {item} was sold in {city} according to {place}?"),
            format!("Add up the quantity of all sales of a {item} in {city} in {place}."),
        ],
        _ => [
            format!(
                "A sale is worth quantity times price. What are the sales of the item {item} in {city} worth, in {place}?"
            ),
            format!(
                "What is the total of quantity times price over the sales of a {item} in {city}, in {place}?"
            ),
        ],
    };
    let test = match level.number() {
        1 => String::new(),
        2 => format!(" && $2 == \"{item}\""),
        _ => format!(" && $1 == \"{city}\" && $2 == \"{item}\""),
    };
    let amount = if level.number() >= 4 { "$3 * $4" } else { "$3" };
    let compute =
        format!("awk -F, 'FNR > 1{test} {{s += {amount}}} END {{print s}}' {INPUT_DIR}/*.csv");
    Query::new(rng.pick(&questions), total, compute)
}

/// Customers, orders and prices.
struct Shop {
    /// Number, name and city.
    customers: Vec<(i64, &'static str, &'static str)>,
    items: Vec<&'static str>,
    prices: Vec<i64>,
    /// Indices of customer and item, and an amount.
    orders: Vec<(usize, usize, i64)>,
}

/// Orders and customers in separate files, prices in a third.
pub(super) fn join(rng: &mut Rng, level: Level) -> Draft {
    let shop = Shop::new(rng, level);
    let (_, name, city) = shop.customers[shop.orders[0].0];
    let ours = shop.orders.iter().filter(|(who, _, _)| match level.number() {
        1 | 2 => shop.customers[*who].1 == name,
        _ => shop.customers[*who].2 == city,
    });
    let worth = |(_, item, amount): &(usize, usize, i64)| match level.number() {
        3 => 1,
        5 => amount * shop.prices[*item],
        _ => *amount,
    };
    let total: i64 = ours.map(worth).sum();
    let questions = match level.number() {
        1 | 2 => [
            format!("What do the orders of {name} add up to? The customers are in customers.csv."),
            format!("How much did {name} order in all? Add up the amounts in orders.csv."),
        ],
        3 => [
            format!("How many orders came from customers in {city}?"),
            format!("Count the orders of all customers who live in {city}."),
        ],
        4 => [
            format!("What do the amounts of all orders from customers in {city} add up to?"),
            format!("Add up the amounts of the orders of all customers who live in {city}."),
        ],
        _ => [
            format!(
                "An order is worth quantity times the price of its item. What are the orders of all customers in {city} worth together?"
            ),
            format!(
                "What do customers from {city} have to pay in all? Prices are in prices.csv, and an order is for a quantity of one item."
            ),
        ],
    };
    let asked = Query::new(rng.pick(&questions), total, joined(level, name, city));
    Draft::from_query(shop.files(level), &format!("head -n 3 {INPUT_DIR}/*.csv"), asked)
}

impl Shop {
    fn new(rng: &mut Rng, level: Level) -> Self {
        let many = level.of([3, 5, 10, 20, 40]);
        let cities = rng.sample(&CITIES, level.of([2, 3, 4, 5, 6]));
        let items = rng.sample(&ITEMS, level.of([3, 4, 6, 8, 12]));
        let names = rng.sample(&NAMES, many).into_iter().zip(1..);
        let customers = names.map(|(name, at)| (100 + at * 7, name, rng.pick(&cities))).collect();
        let prices = items.iter().map(|_| rng.between(2, 50)).collect();
        let orders = (0..level.lines(rng))
            .map(|_| (rng.below(many), rng.below(items.len()), rng.between(1, 60)))
            .collect();
        Self { customers, items, prices, orders }
    }

    fn files(&self, level: Level) -> BTreeMap<String, String> {
        let customers = self
            .customers
            .iter()
            .map(|(id, name, city)| [id.to_string(), (*name).to_owned(), (*city).to_owned()]);
        let orders = (1..).zip(&self.orders).map(|(at, (who, item, amount))| {
            let customer = self.customers[*who].0.to_string();
            [at.to_string(), customer, self.items[*item].to_owned(), amount.to_string()]
        });
        let amount = if level.number() == 5 { "quantity" } else { "amount" };
        let mut files = BTreeMap::from([
            ("customers.csv".to_owned(), csv("id,name,city", customers)),
            ("orders.csv".to_owned(), csv(&format!("order,customer,item,{amount}"), orders)),
        ]);
        if level.number() == 5 {
            let prices = self.items.iter().zip(&self.prices);
            let rows = prices.map(|(item, price)| [(*item).to_owned(), price.to_string()]);
            files.insert("prices.csv".to_owned(), csv("item,price", rows));
        }
        files
    }
}

fn joined(level: Level, name: &str, city: &str) -> String {
    let (customers, orders) =
        (format!("{INPUT_DIR}/customers.csv"), format!("{INPUT_DIR}/orders.csv"));
    let (column, value) = if level.number() <= 2 { ("$2", name) } else { ("$3", city) };
    let seen = format!("NR == FNR {{ours[$1] = ({column} == \"{value}\"); next}}");
    match level.number() {
        3 => format!(
            "awk -F, '{seen} FNR > 1 && ours[$2] {{n++}} END {{print n + 0}}' {customers} {orders}"
        ),
        5 => format!(
            "awk -F, 'FILENAME ~ /prices/ {{price[$1] = $2; next}} FILENAME ~ /customers/ {{ours[$1] = ($3 == \"{city}\"); next}} \
             FNR > 1 && ours[$2] {{s += $4 * price[$3]}} END {{print s + 0}}' {INPUT_DIR}/prices.csv {customers} {orders}"
        ),
        _ => format!(
            "awk -F, '{seen} FNR > 1 && ours[$2] {{s += $4}} END {{print s + 0}}' {customers} {orders}"
        ),
    }
}

/// Results of players; all points differ.
struct Results {
    files: BTreeMap<String, String>,
    place: &'static str,
    /// Player, team and points.
    rows: Vec<(String, &'static str, i64)>,
    team: &'static str,
}

const TEAMS: [&str; 6] = ["blue", "green", "orange", "purple", "red", "yellow"];

fn results(rng: &mut Rng, level: Level) -> Results {
    let many = level.of([1, 1, 1, 3, 5]);
    let lines = level.lines(rng);
    let teams = rng.sample(&TEAMS, level.of([2, 2, 3, 4, 5]));
    let mut names: Vec<String> = rng.sample(&NAMES, lines).into_iter().map(str::to_owned).collect();
    // There are more players than names: repeated names are numbered.
    while names.len() < lines {
        names.push(format!("{}{}", rng.pick(&NAMES), names.len()));
    }
    let mut points: Vec<i64> = (1..=lines as i64 * 4).collect();
    rng.shuffle(&mut points);
    let rows: Vec<_> = names
        .into_iter()
        .zip(points)
        .map(|(name, points)| (name, rng.pick(&teams), points + 20))
        .collect();
    let files = rows
        .chunks(lines.div_ceil(many))
        .enumerate()
        .map(|(at, rows)| {
            let name =
                if many == 1 { "results.csv".into() } else { format!("results-{}.csv", at + 1) };
            let rows = rows
                .iter()
                .map(|(name, team, points)| [name.clone(), (*team).to_owned(), points.to_string()]);
            (name, csv("player,team,points", rows))
        })
        .collect();
    let place = if many == 1 { "results.csv" } else { "the results files together" };
    let team = rng.pick(&rows).1;
    Results { files, place, rows, team }
}

/// The player with the most or fewest points, overall or of a team; or the team with the largest or smallest total.
pub(super) fn extreme(rng: &mut Rng, level: Level) -> Draft {
    let Results { files, place, rows, team } = results(rng, level);
    let most = rng.one_in(2);
    let (word, end) = if most { ("most", "tail") } else { ("fewest", "head") };
    let look = format!("head -n 3 {INPUT_DIR}/*.csv");
    if level.number() == 5 {
        let mut totals: BTreeMap<&str, i64> = BTreeMap::new();
        for (_, team, points) in &rows {
            *totals.entry(team).or_default() += points;
        }
        let mut ordered: Vec<(i64, &str)> =
            totals.into_iter().map(|(team, sum)| (sum, team)).collect();
        ordered.sort_unstable();
        if !most {
            ordered.reverse();
        }
        let unique =
            ordered.len() < 2 || ordered[ordered.len() - 1].0 != ordered[ordered.len() - 2].0;
        if let (Some((_, winner)), true) = (ordered.last(), unique) {
            let question = rng.pick(&[
                format!("Which team has the {word} points, all its players in {place} added up?"),
                format!("Add up the points of each team over {place}. Which team has the {word}?"),
            ]);
            let compute = format!(
                "awk -F, 'FNR > 1 {{s[$2] += $3}} END {{for (t in s) print s[t], t}}' {INPUT_DIR}/*.csv | sort -n | {end} -n 1 | cut -d' ' -f2"
            );
            return Draft::of(files, question, *winner, &look, &compute);
        }
    }
    let narrowed = level.number() >= 3;
    let of = if narrowed { format!(" of team {team}") } else { String::new() };
    let rows = rows.iter().filter(|row| !narrowed || row.1 == team);
    let mut rows: Vec<(i64, &str)> =
        rows.map(|(name, _, points)| (*points, name.as_str())).collect();
    rows.sort_unstable();
    let answer = if most { rows.last() } else { rows.first() }.map_or("", |(_, name)| name);
    let question = rng.pick(&[
        format!("Which player{of} has the {word} points in {place}?"),
        format!("Who{of} got the {word} points according to {place}?"),
        format!("Name the player{of} with the {word} points in {place}."),
    ]);
    let test = if narrowed { format!(" && $2 == \"{team}\"") } else { String::new() };
    let compute = format!(
        "awk -F, 'FNR > 1{test} {{print $3, $1}}' {INPUT_DIR}/*.csv | sort -n | {end} -n 1 | cut -d' ' -f2"
    );
    Draft::of(files, question, answer, &look, &compute)
}

/// The n-th player.
pub(super) fn rank(rng: &mut Rng, level: Level) -> Draft {
    let Results { files, place, rows, team } = results(rng, level);
    let narrowed = level.number() >= 3;
    let rows = rows.iter().filter(|row| !narrowed || row.1 == team);
    let mut rows: Vec<(i64, &str)> =
        rows.map(|(name, _, points)| (*points, name.as_str())).collect();
    rows.sort_unstable_by(|a, b| b.cmp(a));
    let at = rng.below(rows.len().min(level.of([3, 4, 6, 9, 15])));
    let place_in_words = ["first", "second", "third", "fourth", "fifth"];
    let nth =
        place_in_words.get(at).map_or_else(|| format!("{}th", at + 1), |word| (*word).to_owned());
    let of = if narrowed { format!(" among the players of team {team}") } else { String::new() };
    let question = rng.pick(&[
        format!("Sort the players in {place} by points, the most first. Who comes {nth}{of}?"),
        format!("Who is in {nth} place{of} if the players in {place} are ordered by points from most to fewest?"),
    ]);
    let test = if narrowed { format!(" && $2 == \"{team}\"") } else { String::new() };
    let look = format!("head -n 3 {INPUT_DIR}/*.csv");
    let compute = format!(
        "awk -F, 'FNR > 1{test} {{print $3, $1}}' {INPUT_DIR}/*.csv | sort -nr | sed -n {}p | cut -d' ' -f2",
        at + 1
    );
    Draft::of(files, question, rows[at].1, &look, &compute)
}
