//! Figures that have a title and a place. Others are shown under their own name, at the end.

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Reward,
    Validation,
    Behaviour,
    Computer,
    Policy,
    Optimiser,
    Speed,
    Other,
}

impl Section {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Reward => "Reward",
            Self::Validation => "Validation",
            Self::Behaviour => "Behaviour",
            Self::Computer => "Use of the computer",
            Self::Policy => "Policy",
            Self::Optimiser => "Optimiser",
            Self::Speed => "Speed",
            Self::Other => "Other figures",
        }
    }
}

/// The figures in their order: name, section, title, what the vertical axis counts.
#[rustfmt::skip]
const KNOWN: [(&str, Section, &str, &str); 30] = [
    ("reward_mean", Section::Reward, "Reward", "mean reward of an episode"),
    ("success", Section::Reward, "Success", "share of episodes"),
    ("raw_reward_mean", Section::Reward, "Reward before penalties", "mean reward of an episode"),
    ("reward_std", Section::Reward, "Spread of the reward", "standard deviation"),
    ("groups_with_spread", Section::Reward, "Groups with any spread", "groups"),
    ("turns_mean", Section::Behaviour, "Turns", "mean turns of an episode"),
    ("response_tokens_mean", Section::Behaviour, "Response length", "mean sampled tokens of an episode"),
    ("env_tokens_mean", Section::Behaviour, "Tokens of the environment", "mean tokens of an episode"),
    ("prompt_tokens_mean", Section::Behaviour, "Length of the prompt", "mean tokens of an episode"),
    ("valid_call_rate", Section::Behaviour, "Valid calls", "share of calls"),
    ("use/external", Section::Computer, "External resources", "share of turns"),
    ("use/files", Section::Computer, "Files", "share of turns"),
    ("use/computation", Section::Computer, "Computation", "share of turns"),
    ("entropy", Section::Policy, "Entropy", "nats per sampled token"),
    ("kl_to_sampler", Section::Policy, "Distance from the sampler", "KL, nats per token"),
    ("clip_fraction", Section::Policy, "Clipped", "share of tokens"),
    ("loss", Section::Optimiser, "Loss", "loss"),
    ("grad_norm", Section::Optimiser, "Gradient", "norm before clipping"),
    ("lr", Section::Optimiser, "Learning rate", "learning rate"),
    ("learnt_tokens", Section::Optimiser, "Tokens learnt from", "tokens of a step"),
    ("computed_tokens", Section::Optimiser, "Tokens computed", "tokens of a step"),
    ("skipped_steps", Section::Optimiser, "Skipped", "updates"),
    ("tokens_per_s", Section::Speed, "Throughput", "tokens per second"),
    ("seconds/play", Section::Speed, "Time to play", "seconds of a step"),
    ("seconds/learn", Section::Speed, "Time to learn", "seconds of a step"),
    ("seconds/validate", Section::Speed, "Time to validate", "seconds of a step"),
    ("seconds", Section::Speed, "Time", "seconds of a step"),
    ("episodes", Section::Other, "Episodes", "episodes of a step"),
    ("episodes_left", Section::Other, "Episodes that left their group", "episodes of a step"),
    ("groups", Section::Other, "Groups", "groups of a step"),
];

/// Where a figure stands and how it is labelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) section: Section,
    /// Its place within the section.
    pub(crate) place: usize,
    pub(crate) title: String,
    pub(crate) axis: String,
}

/// The label of a figure.
pub(crate) fn label(name: &str) -> Label {
    if let Some(at) = KNOWN.iter().position(|(known, ..)| *known == name) {
        let (_, section, title, axis) = KNOWN[at];
        return Label { section, place: at, title: title.into(), axis: axis.into() };
    }
    let (kind, rest) = name.split_once('/').unwrap_or(("", name));
    let words = |name: &str| name.replace(['_', '/'], " ");
    let of = |section: Section, title: String, axis: &str| Label {
        section,
        place: KNOWN.len(),
        title,
        axis: axis.to_owned(),
    };
    match kind {
        // Names may be nested as deep as they are long; one level of these has a meaning.
        "validation" if !rest.starts_with("validation/") => {
            let inner = label(rest);
            Label {
                section: Section::Validation,
                title: format!("{}, held out", inner.title),
                ..inner
            }
        }
        "use" => of(Section::Computer, words(rest), "share of turns"),
        "end" => of(Section::Behaviour, format!("Ended as {}", words(rest)), "share of episodes"),
        "seconds" => of(Section::Speed, format!("Time: {}", words(rest)), "seconds of a step"),
        _ => of(Section::Other, words(name), &words(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_places() {
        let of = |name: &str| (label(name).section, label(name).title);
        assert_eq!(of("reward_mean"), (Section::Reward, "Reward".into()));
        assert_eq!(of("validation/turns_mean"), (Section::Validation, "Turns, held out".into()));
        assert_eq!(of("validation/plain/x_y"), (Section::Validation, "plain x y, held out".into()));
        assert_eq!(of("validation/use/files"), (Section::Validation, "Files, held out".into()));
        assert_eq!(of("use/network"), (Section::Computer, "network".into()));
        assert_eq!(of("end/submitted"), (Section::Behaviour, "Ended as submitted".into()));
        assert_eq!(of("seconds/save"), (Section::Speed, "Time: save".into()));
        assert_eq!(of("odd_thing"), (Section::Other, "odd thing".into()));
        assert_eq!(of(&"validation/".repeat(18)).0, Section::Other);
    }
}
