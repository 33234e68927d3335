//! Who judges the answers of a benchmark: nobody, the model itself, or another.

use super::{args::JudgeArgs, asked::Asked, show::Judged};
use crate::{
    agent_args::ModelArgs,
    run::{ModelPlan, Secrets},
    settings::Settings,
};

/// Who judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judging {
    /// Nobody.
    Nobody,
    /// The model that is measured.
    Itself,
    /// Somebody else.
    Other(Box<JudgeArgs>),
}

impl Judging {
    /// Who judges, given what the measured model is called.
    pub(crate) fn of(args: JudgeArgs, measured: Option<&str>) -> Self {
        match &args.judge_model {
            None => Self::Nobody,
            Some(name) if args.judge_base_url.is_none() && Some(name.as_str()) == measured => {
                Self::Itself
            }
            Some(_) => Self::Other(Box::new(args)),
        }
    }

    /// What the judge is called.
    pub(crate) fn name(&self, asked: &Asked) -> Option<String> {
        match self {
            Self::Nobody => None,
            Self::Itself => Some(asked.model.name.clone()),
            Self::Other(args) => args.judge_model.clone(),
        }
    }

    /// Whether somebody judges.
    pub(crate) fn judged(&self) -> Judged {
        match self {
            Self::Nobody => Judged::ByNobody,
            Self::Itself | Self::Other(_) => Judged::BySomebody,
        }
    }
}

impl JudgeArgs {
    /// The plan of the judge's model. It is asked as patiently as the other.
    pub(crate) fn plan(
        &self,
        measured: &ModelPlan,
        settings: &Settings,
    ) -> anyhow::Result<(ModelPlan, Secrets)> {
        let args = ModelArgs {
            retries: Some(measured.retries),
            model: self.judge_model.clone(),
            base_url: self.judge_base_url.clone(),
            api_key_env: self.judge_api_key_env.clone(),
            ..ModelArgs::default()
        };
        ModelPlan::check(args, &settings.config(None)?, settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_judges() {
        let judge = |name: Option<&str>, url: Option<&str>| JudgeArgs {
            judge_model: name.map(str::to_owned),
            judge_base_url: url.map(str::to_owned),
            judge_api_key_env: None,
        };
        assert_eq!(Judging::of(judge(None, None), Some("m")), Judging::Nobody);
        assert_eq!(Judging::of(judge(Some("m"), None), Some("m")), Judging::Itself);
        let others = [judge(Some("m"), Some("http://x/v1")), judge(Some("n"), None)];
        for other in others {
            assert!(matches!(Judging::of(other, Some("m")), Judging::Other(_)));
        }
    }
}
