//! Titles, axis labels and order of known metrics. Others are shown under their own name, at the end.

use crate::sets;

/// A section of the page, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Reward,
    Validation,
    Behaviour,
    Sandbox,
    Policy,
    Optimizer,
    Speed,
    Other,
    PassRates,
}

impl Section {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Reward => "Reward",
            Self::Validation => "Validation",
            Self::Behaviour => "Behaviour",
            Self::Sandbox => "Sandbox use",
            Self::Policy => "Policy",
            Self::Optimizer => "Optimizer",
            Self::Speed => "Speed",
            Self::Other => "Other metrics",
            Self::PassRates => "Pass rates",
        }
    }
}

/// Known metrics in their order: name, section, title, label of the vertical axis.
#[rustfmt::skip]
const KNOWN: [(&str, Section, &str, &str); 32] = [
    ("reward_mean", Section::Reward, "Reward", "mean reward per episode"),
    ("success", Section::Reward, "Success", "share of episodes"),
    ("raw_reward_mean", Section::Reward, "Reward before penalties", "mean reward per episode"),
    ("reward_std", Section::Reward, "Reward standard deviation", "standard deviation"),
    ("groups_with_spread", Section::Reward, "Groups with reward variance", "groups"),
    ("turns_mean", Section::Behaviour, "Turns", "mean turns per episode"),
    ("response_tokens_mean", Section::Behaviour, "Response length", "mean sampled tokens per episode"),
    ("env_tokens_mean", Section::Behaviour, "Environment tokens", "mean tokens per episode"),
    ("prompt_tokens_mean", Section::Behaviour, "Prompt length", "mean tokens per episode"),
    ("valid_call_rate", Section::Behaviour, "Valid tool calls", "share of calls"),
    ("use/external", Section::Sandbox, "External resources", "share of turns"),
    ("use/files", Section::Sandbox, "Files", "share of turns"),
    ("use/computation", Section::Sandbox, "Computation", "share of turns"),
    ("entropy", Section::Policy, "Entropy", "nats per sampled token"),
    ("kl_to_sampler", Section::Policy, "KL to the sampler", "nats per token"),
    ("clip_fraction", Section::Policy, "Clip fraction", "share of tokens"),
    ("loss", Section::Optimizer, "Loss", "loss"),
    ("grad_norm", Section::Optimizer, "Gradient norm", "norm before clipping"),
    ("lr", Section::Optimizer, "Learning rate", "learning rate"),
    ("learnt_tokens", Section::Optimizer, "Trained tokens", "tokens per step"),
    ("computed_tokens", Section::Optimizer, "Computed tokens", "tokens per step"),
    ("skipped_steps", Section::Optimizer, "Skipped updates", "updates"),
    ("tokens_per_s", Section::Speed, "Throughput", "tokens per second"),
    ("seconds/play", Section::Speed, "Rollout time", "seconds per step"),
    ("seconds/learn", Section::Speed, "Update time", "seconds per step"),
    ("seconds/learn_beside", Section::Speed, "Update time beside episodes", "seconds per step"),
    ("seconds/refresh", Section::Speed, "Refresh time", "seconds per step"),
    ("seconds/validate", Section::Speed, "Validation time", "seconds per step"),
    ("seconds", Section::Speed, "Step time", "seconds per step"),
    ("episodes", Section::Other, "Episodes", "episodes per step"),
    ("episodes_left", Section::Other, "Dropped episodes", "episodes per step"),
    ("groups", Section::Other, "Groups", "groups per step"),
];

/// Section, position and labels of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) section: Section,
    /// Position within the section.
    pub(crate) position: usize,
    pub(crate) title: String,
    pub(crate) axis: String,
}

/// What a metric is called, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Title.
    pub title: String,
    /// Label of the vertical axis.
    pub axis: String,
    /// Title of its section.
    pub section: &'static str,
    /// Position of the section.
    pub section_order: usize,
    /// Position within the section.
    pub position: usize,
}

/// Describes a metric.
pub fn describe(name: &str) -> Description {
    let Label { section, position, title, axis } = label(name);
    let section_order = section as usize;
    Description { title, axis, section: section.title(), section_order, position }
}

/// Returns the label of a metric.
pub(crate) fn label(name: &str) -> Label {
    if let Some(at) = KNOWN.iter().position(|(known, ..)| *known == name) {
        let (_, section, title, axis) = KNOWN[at];
        return Label { section, position: at, title: title.into(), axis: axis.into() };
    }
    if let Some((set, metric)) = sets::split(name)
        && let Some(at) = KNOWN.iter().position(|(known, ..)| *known == metric)
    {
        let (_, _, title, axis) = KNOWN[at];
        let title = format!("{set}: {title}");
        return Label { section: Section::Validation, position: at, title, axis: axis.into() };
    }
    let (kind, rest) = name.split_once('/').unwrap_or(("", name));
    let words = |name: &str| name.replace(['_', '/'], " ");
    let of = |section: Section, title: String, axis: &str| Label {
        section,
        position: KNOWN.len(),
        title,
        axis: axis.to_owned(),
    };
    match kind {
        // Unpacks one level only: a name may nest as deep as it is long.
        "validation" if !rest.starts_with("validation/") => {
            let inner = label(rest);
            Label {
                section: Section::Validation,
                title: format!("{} (validation)", inner.title),
                ..inner
            }
        }
        "use" => of(Section::Sandbox, words(rest), "share of turns"),
        "end" => of(Section::Behaviour, format!("Ended as {}", words(rest)), "share of episodes"),
        "rate" => of(Section::PassRates, words(rest), "share of episodes"),
        "seconds" => of(Section::Speed, format!("Time: {}", words(rest)), "seconds per step"),
        _ => of(Section::Other, words(name), &words(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_sections_and_titles() {
        let of = |name: &str| (label(name).section, label(name).title);
        assert_eq!(of("reward_mean"), (Section::Reward, "Reward".into()));
        assert_eq!(of("validation/turns_mean"), (Section::Validation, "Turns (validation)".into()));
        assert_eq!(
            of("validation/plain/x_y"),
            (Section::Validation, "plain x y (validation)".into())
        );
        assert_eq!(of("validation/gsm8k/success"), (Section::Validation, "gsm8k: Success".into()));
        assert_eq!(of("validation/use/files"), (Section::Validation, "Files (validation)".into()));
        assert_eq!(of("use/network"), (Section::Sandbox, "network".into()));
        assert_eq!(of("end/submitted"), (Section::Behaviour, "Ended as submitted".into()));
        assert_eq!(of("rate/count/3"), (Section::PassRates, "count 3".into()));
        assert_eq!(of("seconds/save"), (Section::Speed, "Time: save".into()));
        assert_eq!(of("new_thing"), (Section::Other, "new thing".into()));
        assert_eq!(of(&"validation/".repeat(18)).0, Section::Other);
    }
}
