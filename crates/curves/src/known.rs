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
const KNOWN: [(&str, Section, &str, &str); 24] = [
    ("reward_mean", Section::Reward, "Reward", "mean reward of an episode"),
    ("success", Section::Reward, "Success", "share of episodes"),
    ("reward_std", Section::Reward, "Spread of the reward", "standard deviation"),
    ("groups_with_spread", Section::Reward, "Groups with any spread", "groups"),
    ("turns_mean", Section::Behaviour, "Turns", "mean turns of an episode"),
    (
        "response_tokens_mean",
        Section::Behaviour,
        "Response length",
        "mean sampled tokens of an episode",
    ),
    ("response_tokens", Section::Behaviour, "Sampled tokens", "tokens"),
    (
        "env_tokens_mean",
        Section::Behaviour,
        "Tokens of the environment",
        "mean tokens of an episode",
    ),
    ("env_tokens", Section::Behaviour, "Tokens of the environment", "tokens"),
    ("valid_call_rate", Section::Behaviour, "Valid calls", "share of calls"),
    ("truncated", Section::Behaviour, "Cut off", "share of episodes"),
    ("entropy", Section::Policy, "Entropy", "nats per sampled token"),
    ("kl_to_sampler", Section::Policy, "Distance from the sampler", "KL, nats per token"),
    ("ratio_max", Section::Policy, "Largest ratio", "new to old probability"),
    ("clip_fraction", Section::Policy, "Clipped", "share of tokens"),
    ("loss", Section::Optimiser, "Loss", "loss"),
    ("grad_norm", Section::Optimiser, "Gradient", "norm before clipping"),
    ("lr", Section::Optimiser, "Learning rate", "learning rate"),
    ("perplexity", Section::Optimiser, "Perplexity", "perplexity"),
    ("accuracy", Section::Optimiser, "Accuracy", "share of tokens"),
    ("tokens_per_s", Section::Speed, "Throughput", "tokens per second"),
    ("seconds", Section::Speed, "Time of a step", "seconds"),
    ("tokens", Section::Speed, "Tokens of a step", "tokens"),
    ("memory", Section::Speed, "Memory", "bytes"),
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
    let known = |name: &str| KNOWN.iter().position(|(known, ..)| *known == name);
    if let Some(at) = known(name) {
        let (_, section, title, axis) = KNOWN[at];
        return Label { section, place: at, title: title.into(), axis: axis.into() };
    }
    let (kind, rest) = name.split_once('/').unwrap_or(("", name));
    let words = |name: &str| name.replace(['_', '/'], " ");
    match kind {
        "validation" => {
            let (place, title, axis) = match known(rest) {
                Some(at) => (at, format!("{}, held out", KNOWN[at].2), KNOWN[at].3.to_owned()),
                None => (KNOWN.len(), format!("{}, held out", words(rest)), words(rest)),
            };
            Label { section: Section::Validation, place, title, axis }
        }
        "capability" | "capabilities" => Label {
            section: Section::Computer,
            place: 0,
            title: words(rest),
            axis: "share of turns".into(),
        },
        "seconds" => Label {
            section: Section::Speed,
            place: KNOWN.len(),
            title: format!("Time: {}", words(rest)),
            axis: "seconds".into(),
        },
        _ => Label { section: Section::Other, place: 0, title: words(name), axis: words(rest) },
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
        assert_eq!(of("capability/file"), (Section::Computer, "file".into()));
        assert_eq!(of("seconds/play"), (Section::Speed, "Time: play".into()));
        assert_eq!(of("odd_thing"), (Section::Other, "odd thing".into()));
    }
}
