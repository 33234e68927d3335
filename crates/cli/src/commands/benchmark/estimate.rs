//! What a run will take: attempts, tokens, cost and time, as far as that can be known before it starts, and the question
//! whether to start a large one.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use benchmark::{Due, TaskTally};
use indicatif::HumanDuration;
use serde_json::{Value, json};

use super::show::{OutputMode, short};
use crate::{console::terminal, exit::UsageError};

/// A run with this many attempts to play is large.
const MANY_ATTEMPTS: usize = 100;

/// So is one that is expected to cost this much, in dollars.
const MUCH_MONEY: f64 = 5.0;

/// What a run is expected to take.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Estimate {
    attempts: usize,
    /// From finished attempts of the same tasks and modes; none where one of them has none.
    expected: Option<Expected>,
    /// The limit of the cost of all attempts, where the user set one.
    max_cost: Option<f64>,
}

/// What attempts like the finished ones take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Expected {
    /// Finished attempts this follows from.
    finished: usize,
    tokens: f64,
    /// None where the price is not known.
    cost: Option<f64>,
    seconds: f64,
}

impl Estimate {
    /// Of what is due. `concurrency` attempts are played at once; `max_cost` is the limit of one.
    pub(crate) fn of(due: &Due, concurrency: usize, max_cost: Option<f64>) -> Self {
        let groups = due.tally.groups.iter();
        let groups: Vec<(usize, &TaskTally)> = groups
            .map(|group| (due.to_play_of(&group.task, group.mode), group))
            .filter(|(attempts, _)| *attempts > 0)
            .collect();
        let start = Expected { cost: Some(0.0), ..Expected::default() };
        let expected = groups.iter().try_fold(start, |sum, (attempts, group)| {
            let finished = group.finished.saturating_sub(group.infrastructure);
            let share = (finished > 0).then(|| *attempts as f64 / finished as f64)?;
            Some(Expected {
                finished: sum.finished + finished,
                tokens: sum.tokens + group.usage.total() as f64 * share,
                cost: sum.cost.zip(group.cost).map(|(sum, cost)| sum + cost * share),
                seconds: sum.seconds + group.seconds * share,
            })
        });
        let at_once = concurrency.min(due.to_play).max(1) as f64;
        let expected = expected.map(|all| Expected { seconds: all.seconds / at_once, ..all });
        let max_cost = max_cost.map(|cost| cost * due.to_play as f64);
        Self { attempts: due.to_play, expected, max_cost }
    }

    /// Whether the user should decide.
    fn is_large(&self) -> bool {
        let cost = self.expected.and_then(|expected| expected.cost);
        self.attempts >= MANY_ATTEMPTS || cost.is_some_and(|cost| cost >= MUCH_MONEY)
    }

    /// For people.
    fn text(&self) -> String {
        let mut parts = match self.expected {
            Some(Expected { finished, tokens, cost, seconds }) => {
                let time = Duration::try_from_secs_f64(seconds.max(1.0)).unwrap_or(Duration::MAX);
                let by = match finished {
                    1 => "one finished attempt".to_owned(),
                    _ => format!("{finished} finished attempts"),
                };
                let cost = match cost {
                    Some(cost) => format!("${cost:.2}"),
                    None => "a cost that is not known (give the price with --prices FILE)".into(),
                };
                vec![format!(
                    "about {} tokens, {cost} and {:#}, going by {by}",
                    short(tokens as u64),
                    HumanDuration(time)
                )]
            }
            None => vec![
                "tokens, cost and time are not known before the first attempts are finished".into(),
            ],
        };
        if let Some(cost) = self.max_cost {
            parts.push(format!("at most ${cost:.2} by --max-cost"));
        }
        format!("{} attempts to play: {}", self.attempts, parts.join("; "))
    }

    fn object(&self) -> Value {
        let expected = self.expected;
        json!({
            "event": "estimate",
            "attempts": self.attempts,
            "tokens": expected.map(|all| all.tokens.round()),
            "cost": expected.and_then(|all| all.cost),
            "seconds": expected.map(|all| all.seconds),
            "finished": expected.map_or(0, |all| all.finished),
            "max_cost": self.max_cost,
        })
    }

    /// Shows the estimate, and asks whether to start a large run: only on a terminal, and not if `ask` is false. An error
    /// means that the user decided against it.
    pub(crate) async fn confirm(&self, ask: bool, mode: OutputMode) -> anyhow::Result<()> {
        mode.event(&self.object(), &self.text());
        let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        let can_answer = is_terminal && mode.is_for_people() && !terminal::is_in_background();
        if !ask || !self.is_large() || !can_answer {
            return Ok(());
        }
        // A closed standard error cannot show the question, and nobody answers.
        let _ = write!(io::stderr(), "Start? [y/N] ");
        let _ = io::stderr().flush();
        let answer = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|_| line)
        });
        let answer = answer.await??;
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(UsageError("not started; --yes starts without asking".into()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said() {
        let unknown = Estimate { attempts: 99, expected: None, max_cost: None };
        assert!(unknown.text().contains("not known before the first attempts"));
        assert!(!unknown.is_large());
        assert!(Estimate { attempts: 100, ..unknown.clone() }.is_large());
        assert_eq!(unknown.object()["tokens"], Value::Null);
        let limited = Estimate { max_cost: Some(49.5), ..unknown };
        assert!(limited.text().ends_with("at most $49.50 by --max-cost"), "{}", limited.text());
    }

    #[test]
    fn finished_attempts_say_what_the_rest_takes() {
        let expected = Expected { finished: 3, tokens: 1.2e6, cost: Some(5.5), seconds: 90.0 };
        let estimate = Estimate { attempts: 40, expected: Some(expected), max_cost: None };
        let text = estimate.text();
        assert!(text.contains("1200k tokens, $5.50") && text.contains("3 finished"), "{text}");
        assert!(estimate.is_large(), "it costs much");
        let priceless = Expected { cost: None, ..expected };
        let estimate = Estimate { expected: Some(priceless), ..estimate };
        assert!(estimate.text().contains("--prices") && !estimate.is_large());
    }
}
