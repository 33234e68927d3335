//! Synthetic answers to mathematical problems as models write them: about half right, many spelled differently from
//! the solution.

use seeded::SplitMix64;

use super::Case;

/// Generates `count` cases. The same seed gives the same cases on every machine.
pub fn synthetic_cases(seed: u64, count: usize) -> Vec<Case> {
    let mut rng = Choices(SplitMix64::new(seed));
    (0..count).map(|_| case(&mut rng)).collect()
}

/// Random choices; the same on every machine.
struct Choices(SplitMix64);

impl Choices {
    /// A number in `low..high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.next_u64() % (high - low)
    }

    fn pick<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        let at = self.between(0, choices.len() as u64);
        choices.get(at as usize).copied().unwrap_or_default()
    }
}

/// A right answer, an equivalent spelling, and a wrong answer.
struct Answer {
    gold: String,
    same: String,
    other: String,
}

fn case(rng: &mut Choices) -> Case {
    let answer = match rng.between(0, 12) {
        0..3 => whole(rng),
        3 => decimal(rng),
        4 => fraction(rng),
        5 => root(rng),
        6 => with_unit(rng),
        7 => tuple(rng),
        8 => interval(rng),
        9 => set(rng),
        10 => polynomial(rng),
        _ => equation(rng),
    };
    let Answer { gold, same, other } = answer;
    let said = match rng.between(0, 4) {
        0 => gold.clone(),
        1 => same,
        _ => other,
    };
    let pred = match rng.between(0, 4) {
        0 => said,
        1 => format!("Adding the two cases gives \\boxed{{{said}}}."),
        2 => format!("After simplification the answer is $\\boxed{{{said}}}$"),
        _ => format!("\\boxed{{{said}}}"),
    };
    Case { gold, pred }
}

fn whole(rng: &mut Choices) -> Answer {
    let n = rng.between(1, 30_000);
    let grouped = if n < 1000 { format!("{n}.0") } else { format!("{},{:03}", n / 1000, n % 1000) };
    Answer { gold: n.to_string(), same: grouped, other: (n + rng.between(1, 9)).to_string() }
}

fn decimal(rng: &mut Choices) -> Answer {
    let (n, d) = (rng.between(0, 40), rng.between(1, 99));
    let hundredths = n * 100 + d;
    Answer {
        gold: format!("{n}.{d:02}"),
        same: format!("\\frac{{{hundredths}}}{{100}}"),
        other: format!("{n}.{:02}", d + 1),
    }
}

fn fraction(rng: &mut Choices) -> Answer {
    let (n, d, k) = (rng.between(1, 60), rng.between(2, 60), rng.between(2, 6));
    Answer {
        gold: format!("\\frac{{{n}}}{{{d}}}"),
        same: format!("\\dfrac{{{}}}{{{}}}", n * k, d * k),
        other: format!("{}/{d}", n + d),
    }
}

fn root(rng: &mut Choices) -> Answer {
    let (a, b) = (rng.between(2, 12), rng.pick(&["2", "3", "5", "7", "10"]));
    let inside = a * a * b.parse::<u64>().unwrap_or(1);
    Answer {
        gold: format!("{a}\\sqrt{{{b}}}"),
        same: format!("\\sqrt{{{inside}}}"),
        other: format!("\\sqrt{{{}}}", inside + 1),
    }
}

fn with_unit(rng: &mut Choices) -> Answer {
    let n = rng.between(1, 500);
    let unit = rng.pick(&["\\text{ cm}", "\\%", "^\\circ", "\\text{ cm}^2", " \\text{ dollars}"]);
    Answer { gold: n.to_string(), same: format!("{n}{unit}"), other: format!("{}{unit}", n + 1) }
}

fn tuple(rng: &mut Choices) -> Answer {
    let [a, b, c] = [0; 3].map(|_| rng.between(0, 20));
    Answer {
        gold: format!("({a}, {b}, {c})"),
        same: format!("\\left({a},{b},{c}\\right)"),
        other: format!("({c}, {a}, {b}, 1)"),
    }
}

fn interval(rng: &mut Choices) -> Answer {
    let (low, high) = (rng.between(1, 9), rng.between(10, 30));
    Answer {
        gold: format!("[-{low}, {high})"),
        same: format!("\\left[-{low},{high}\\right)"),
        other: format!("(-{low}, {high}]"),
    }
}

fn set(rng: &mut Choices) -> Answer {
    let (a, b) = (rng.between(1, 30), rng.between(31, 60));
    Answer {
        gold: format!("\\{{{a}, {b}\\}}"),
        same: format!("{b}, {a}"),
        other: format!("\\{{{a}, {}\\}}", b + 1),
    }
}

fn polynomial(rng: &mut Choices) -> Answer {
    let (a, b) = (rng.between(1, 9), rng.between(1, 9));
    Answer {
        gold: format!("(x+{a})(x-{b})"),
        same: format!("x^2 + {a}x - {b}x - {}", a * b),
        other: format!("x^2 + {}x + {}", a + b, a * b),
    }
}

fn equation(rng: &mut Choices) -> Answer {
    let (m, c) = (rng.between(2, 12), rng.between(1, 20));
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
    fn a_seed_gives_the_same_cases() {
        assert_eq!(synthetic_cases(1, 50), synthetic_cases(1, 50));
        assert_eq!(synthetic_cases(1, 60)[..50], synthetic_cases(1, 50));
        assert_ne!(synthetic_cases(1, 50), synthetic_cases(2, 50));
    }

    #[test]
    fn some_are_right_and_some_are_wrong() {
        let cases = synthetic_cases(7, 400);
        let right = cases.iter().filter(|c| grade::math::reward(&c.gold, &c.pred) > 0.0).count();
        assert!((150..350).contains(&right), "{right}");
    }
}
