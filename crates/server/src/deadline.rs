//! [`Deadline`]: when something that outlives the process is over.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::time::Instant;

/// The end of a duration. Recorded as a time of day, which is all that another process understands; in this process it
/// passes with the monotonic clock, so that nothing is over early or late because the clock was set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: SystemTime,
    ends: Instant,
}

/// Longer durations could not be added to the time.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Deadline {
    /// After this time from now.
    pub(crate) fn after(time: Duration) -> Self {
        let time = time.min(LONGEST);
        let now = SystemTime::now();
        Self { at: now.checked_add(time).unwrap_or(now), ends: Instant::now() + time }
    }

    /// One that was recorded as a time of day.
    pub(crate) fn recorded(at: SystemTime) -> Self {
        let left = at.duration_since(SystemTime::now()).unwrap_or_default();
        Self { at, ends: Instant::now() + left.min(LONGEST) }
    }

    /// At most this far away: where the clock was set back since it was recorded, it would be too far.
    pub(crate) fn within(self, longest: Duration) -> Self {
        Self { ends: self.ends.min(Instant::now() + longest.min(LONGEST)), ..self }
    }

    /// Whether it has passed.
    pub(crate) fn has_passed(&self) -> bool {
        self.ends <= Instant::now()
    }

    /// The time of day that is recorded.
    pub(crate) fn at(&self) -> SystemTime {
        self.at
    }
}

/// By what is recorded.
impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Deadline {}

impl Serialize for Deadline {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.at.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Deadline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        SystemTime::deserialize(from).map(Self::recorded)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn deadlines_pass_with_the_monotonic_clock_and_survive_the_process() {
        let deadline = Deadline::after(HOUR);
        let text = serde_json::to_string(&deadline).unwrap();
        let again: Deadline = serde_json::from_str(&text).unwrap();
        assert_eq!(again, deadline);
        advance(HOUR - Duration::from_secs(60)).await;
        assert!(!deadline.has_passed() && !again.has_passed());
        // The process slept for an hour, and its clock of the day says nothing else.
        advance(Duration::from_secs(61)).await;
        assert!(deadline.has_passed() && again.has_passed());
        assert!(!Deadline::after(Duration::MAX).has_passed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_back_prolongs_nothing() {
        let year = 365 * 24 * HOUR;
        let far = Deadline::recorded(SystemTime::now() + year).within(HOUR);
        assert!(Deadline::recorded(SystemTime::now() - year).within(HOUR).has_passed());
        assert!(!far.has_passed());
        advance(HOUR).await;
        assert!(far.has_passed());
    }
}
