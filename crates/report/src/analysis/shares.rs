//! Shares and rates of tokens, time and memory over many attempts.

use results::AttemptRecord;
use serde::{Deserialize, Serialize};

/// Shares and rates over a group of attempts. Absent where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Share of observations in all tokens.
    pub environment: Option<f64>,
    /// Share of tool time in the time of model and tools.
    pub execution: Option<f64>,
    /// Responses of the model per minute with at least one attempt running.
    pub queries_per_minute: Option<f64>,
    /// Attempts per such minute.
    #[serde(default)]
    pub attempts_per_minute: Option<f64>,
    /// Peak memory of the sandboxes.
    pub peak_memory: Option<Memory>,
}

/// Peak memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Attempts measured.
    pub attempts: usize,
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub max: u64,
}

impl Shares {
    /// Summarizes attempts, weighting each token and millisecond equally.
    pub fn of<'a>(attempts: impl IntoIterator<Item = &'a AttemptRecord>) -> Self {
        let (mut environment, mut tokens) = (0.0, 0.0);
        let (mut tools, mut both) = (0.0, 0.0);
        let mut queries = 0.0;
        let mut spans = Vec::new();
        let mut peaks = Vec::new();
        for attempt in attempts {
            environment += attempt.tokens.environment as f64;
            tokens += attempt.tokens.total() as f64;
            tools += attempt.spent.tool_ms as f64;
            both += attempt.spent.tool_ms as f64 + attempt.spent.model_ms as f64;
            if attempt.wall_ms > 0 {
                queries += f64::from(attempt.spent.turns);
                spans.push((attempt.started, attempt.started.saturating_add(attempt.wall_ms)));
            }
            peaks.extend(attempt.peak_memory);
        }
        let timed = spans.len() as f64;
        let minutes = covered(spans) as f64 / 60_000.0;
        Self {
            environment: share(environment, tokens),
            execution: share(tools, both),
            queries_per_minute: share(queries, minutes),
            attempts_per_minute: share(timed, minutes),
            peak_memory: memory(&peaks),
        }
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Time covered by the union of spans, so that pauses of a run do not count.
fn covered(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let mut reached = 0;
    let mut covered: u64 = 0;
    for (start, end) in spans {
        covered = covered.saturating_add(end.saturating_sub(start.max(reached)));
        reached = reached.max(end);
    }
    covered
}

fn memory(peaks: &[u64]) -> Option<Memory> {
    let max = *peaks.iter().max()?;
    let mean = peaks.iter().map(|peak| *peak as f64).sum::<f64>() / peaks.len() as f64;
    Some(Memory { attempts: peaks.len(), mean, max })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attempt(started: u64, wall_ms: u64, turns: u32, peak: Option<u64>) -> AttemptRecord {
        serde_json::from_value(json!({
            "v": 1, "task": "math", "mode": "sandbox", "id": "a", "score": 1.0, "outcome": "submitted",
            "spent": {"turns": turns, "usage": {}, "context": 0, "model_ms": 300, "tool_ms": 100},
            "tokens": {"prompt": 50, "model": 30, "environment": 20},
            "started": started, "wall_ms": wall_ms, "peak_memory": peak,
        }))
        .unwrap()
    }

    #[test]
    fn nothing_measured_is_absent() {
        assert_eq!(Shares::of([]), Shares::default());
        assert_eq!(Shares::of(&[attempt(5, 0, 3, None)]).queries_per_minute, None);
    }

    #[test]
    fn attempts_at_the_same_time_share_their_minutes() {
        let apart = [attempt(0, 60_000, 4, None), attempt(60_000, 60_000, 2, Some(7))];
        assert_eq!(Shares::of(&apart).queries_per_minute, Some(3.0));
        assert_eq!(Shares::of(&apart).attempts_per_minute, Some(1.0));
        // Without a duration an attempt counts in neither rate, without turns only as an attempt.
        let incomplete =
            [attempt(0, 60_000, 4, None), attempt(0, 0, 9, None), attempt(0, 60_000, 0, None)];
        let shares = Shares::of(&incomplete);
        assert_eq!((shares.queries_per_minute, shares.attempts_per_minute), (Some(4.0), Some(2.0)));
        let together = [attempt(0, 60_000, 4, Some(10)), attempt(0, 60_000, 2, Some(20))];
        let shares = Shares::of(&together);
        assert_eq!(shares.queries_per_minute, Some(6.0));
        assert_eq!(shares.environment, Some(0.2));
        assert_eq!(shares.execution, Some(0.25));
        assert_eq!(shares.peak_memory, Some(Memory { attempts: 2, mean: 15.0, max: 20 }));
    }

    #[test]
    fn a_night_between_two_halves_does_not_count() {
        let night = 12 * 3_600_000;
        let halves = [attempt(0, 60_000, 5, None), attempt(night, 60_000, 5, None)];
        assert_eq!(Shares::of(&halves).queries_per_minute, Some(5.0));
        let inside = [attempt(0, 120_000, 5, None), attempt(30_000, 60_000, 5, None)];
        assert_eq!(Shares::of(&inside).queries_per_minute, Some(5.0));
    }

    #[test]
    fn absurd_times_end_nothing() {
        let shares = Shares::of(&[attempt(u64::MAX, u64::MAX, 1, Some(u64::MAX))]);
        assert!(shares.queries_per_minute.is_none_or(f64::is_finite));
    }
}
