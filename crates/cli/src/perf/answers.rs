//! Made-up answers to mathematical problems as models write them: about half right, many spelled differently from
//! the solution. The same seed gives the same answers. Judges none of them.

use super::grade::Case;

/// So many cases.
pub(super) fn cases(seed: u64, count: usize) -> Vec<Case> {
    let mut dice = Dice(seed);
    (0..count).map(|_| case(&mut dice)).collect()
}

/// A small generator of numbers (Steele's SplitMix64): cases must be the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, without the latter.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    fn pick<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        let at = self.between(0, choices.len() as u64);
        choices.get(at as usize).copied().unwrap_or_default()
    }
}

/// A solution, the same in other words, and something else.
struct Answer {
    gold: String,
    same: String,
    other: String,
}

fn case(dice: &mut Dice) -> Case {
    let answer = match dice.between(0, 12) {
        0..3 => whole(dice),
        3 => decimal(dice),
        4 => fraction(dice),
        5 => root(dice),
        6 => with_unit(dice),
        7 => tuple(dice),
        8 => interval(dice),
        9 => set(dice),
        10 => polynomial(dice),
        _ => equation(dice),
    };
    let Answer { gold, same, other } = answer;
    let said = match dice.between(0, 4) {
        0 => gold.clone(),
        1 => same,
        _ => other,
    };
    let pred = match dice.between(0, 4) {
        0 => said,
        1 => format!("Adding the two cases gives \\boxed{{{said}}}."),
        2 => format!("After simplification the answer is $\\boxed{{{said}}}$"),
        _ => format!("\\boxed{{{said}}}"),
    };
    Case { gold, pred }
}

fn whole(dice: &mut Dice) -> Answer {
    let n = dice.between(1, 30_000);
    let grouped = if n < 1000 { format!("{n}.0") } else { format!("{},{:03}", n / 1000, n % 1000) };
    Answer { gold: n.to_string(), same: grouped, other: (n + dice.between(1, 9)).to_string() }
}

fn decimal(dice: &mut Dice) -> Answer {
    let (n, d) = (dice.between(0, 40), dice.between(1, 99));
    let hundredths = n * 100 + d;
    Answer {
        gold: format!("{n}.{d:02}"),
        same: format!("\\frac{{{hundredths}}}{{100}}"),
        other: format!("{n}.{:02}", d + 1),
    }
}

fn fraction(dice: &mut Dice) -> Answer {
    let (n, d, k) = (dice.between(1, 60), dice.between(2, 60), dice.between(2, 6));
    Answer {
        gold: format!("\\frac{{{n}}}{{{d}}}"),
        same: format!("\\dfrac{{{}}}{{{}}}", n * k, d * k),
        other: format!("{}/{d}", n + d),
    }
}

fn root(dice: &mut Dice) -> Answer {
    let (a, b) = (dice.between(2, 12), dice.pick(&["2", "3", "5", "7", "10"]));
    let inside = a * a * b.parse::<u64>().unwrap_or(1);
    Answer {
        gold: format!("{a}\\sqrt{{{b}}}"),
        same: format!("\\sqrt{{{inside}}}"),
        other: format!("\\sqrt{{{}}}", inside + 1),
    }
}

fn with_unit(dice: &mut Dice) -> Answer {
    let n = dice.between(1, 500);
    let unit = dice.pick(&["\\text{ cm}", "\\%", "^\\circ", "\\text{ cm}^2", " \\text{ dollars}"]);
    Answer { gold: n.to_string(), same: format!("{n}{unit}"), other: format!("{}{unit}", n + 1) }
}

fn tuple(dice: &mut Dice) -> Answer {
    let [a, b, c] = [0; 3].map(|_| dice.between(0, 20));
    Answer {
        gold: format!("({a}, {b}, {c})"),
        same: format!("\\left({a},{b},{c}\\right)"),
        other: format!("({c}, {a}, {b}, 1)"),
    }
}

fn interval(dice: &mut Dice) -> Answer {
    let (low, high) = (dice.between(1, 9), dice.between(10, 30));
    Answer {
        gold: format!("[-{low}, {high})"),
        same: format!("\\left[-{low},{high}\\right)"),
        other: format!("(-{low}, {high}]"),
    }
}

fn set(dice: &mut Dice) -> Answer {
    let (a, b) = (dice.between(1, 30), dice.between(31, 60));
    Answer {
        gold: format!("\\{{{a}, {b}\\}}"),
        same: format!("{b}, {a}"),
        other: format!("\\{{{a}, {}\\}}", b + 1),
    }
}

fn polynomial(dice: &mut Dice) -> Answer {
    let (a, b) = (dice.between(1, 9), dice.between(1, 9));
    Answer {
        gold: format!("(x+{a})(x-{b})"),
        same: format!("x^2 + {a}x - {b}x - {}", a * b),
        other: format!("x^2 + {}x + {}", a + b, a * b),
    }
}

fn equation(dice: &mut Dice) -> Answer {
    let (m, c) = (dice.between(2, 12), dice.between(1, 20));
    Answer {
        gold: format!("y = {m}x + {c}"),
        same: format!("y={c}+{m}x"),
        other: format!("y = {m}x - {c}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_its_cases_and_no_others() {
        assert_eq!(cases(1, 50), cases(1, 50));
        assert_eq!(cases(1, 60)[..50], cases(1, 50));
        assert_ne!(cases(1, 50), cases(2, 50));
    }

    #[test]
    fn some_are_right_and_some_are_wrong() {
        let cases = cases(7, 400);
        let right = cases.iter().filter(|c| grade::math::reward(&c.gold, &c.pred) > 0.0).count();
        assert!((150..350).contains(&right), "{right}");
    }
}
