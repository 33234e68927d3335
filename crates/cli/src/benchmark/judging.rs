//! Who judges the answers of a benchmark: nobody, the model itself, or another.

use benchmark::Questions;
use problems::Grader;

use super::{args::JudgeArgs, asked::Asked, show::Judged};
use crate::{
    agent_args::ModelArgs,
    local::ModelFile,
    run::{ModelPlan, Place, Secrets, without_vendor},
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
    /// Who judges, given the measured model and what the user calls it.
    pub(crate) fn of(args: &JudgeArgs, measured: &ModelPlan, called: Option<&str>) -> Self {
        let Some(name) = &args.judge_model else { return Self::Nobody };
        // A model in this process has several names, and is loaded once.
        let here = matches!(measured.place, Place::Here(_)) == ModelFile::named(name).is_some();
        let same = Some(name.as_str()) == called || (here && measured.name == recorded(name));
        match same && args.judge_base_url.is_none() {
            true => Self::Itself,
            false => Self::Other(Box::new(args.clone())),
        }
    }

    /// What the judge is called.
    pub(crate) fn name(&self, asked: &Asked) -> Option<String> {
        match self {
            Self::Nobody => None,
            Self::Itself => Some(asked.model.name.clone()),
            Self::Other(args) => args.judge_model.as_deref().map(recorded),
        }
    }

    /// Whether one of these tasks waits for a judge in vain.
    pub(crate) fn judged(&self, tasks: &[Questions]) -> Judged {
        let wants_one = tasks.iter().any(|asked| asked.task.grader == Grader::Judge);
        match self {
            Self::Nobody if wants_one => Judged::ByNobody,
            Self::Nobody | Self::Itself | Self::Other(_) => Judged::AsWanted,
        }
    }
}

/// What a model is called in records.
fn recorded(name: &str) -> String {
    ModelFile::named(name).map_or_else(|| without_vendor(name).to_owned(), |file| file.name())
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
    use std::num::NonZeroU32;

    use model::{Sampling, ToolFormat};

    use super::*;
    use crate::{
        agent_args::{Forcing, Images, LocalArgs, Provider},
        local::LocalPlan,
    };

    fn plan(name: &str, place: Place) -> ModelPlan {
        ModelPlan {
            name: name.into(),
            place,
            api_key_env: None,
            tool_format: ToolFormat::Native,
            forced: Forcing::No,
            images: Images::No,
            sampling: Sampling::default(),
            extra_body: serde_json::Map::new(),
            silence: None,
            retries: 0,
            cache: None,
            price: None,
            context: None,
            hint: None,
        }
    }

    #[test]
    fn who_judges() {
        let judge = |name: Option<&str>, url: Option<&str>| JudgeArgs {
            judge_model: name.map(str::to_owned),
            judge_base_url: url.map(str::to_owned),
            judge_api_key_env: None,
        };
        let base_url = "http://x/v1".into();
        let m = plan("m", Place::Server { provider: Provider::Openai, base_url });
        let of = |name, url| Judging::of(&judge(name, url), &m, Some("openai/m"));
        assert_eq!(of(None, None), Judging::Nobody);
        assert_eq!(of(Some("m"), None), Judging::Itself);
        assert_eq!(of(Some("openai/m"), None), Judging::Itself);
        let resumed = judge(Some("openai/m"), None);
        assert_eq!(Judging::of(&resumed, &m, None), Judging::Itself);
        for (name, url) in [("m", Some("http://x/v1")), ("n", None), ("local:m", None)] {
            assert!(matches!(of(Some(name), url), Judging::Other(_)), "{name}");
        }
    }

    #[test]
    fn a_model_in_this_process_is_known_by_all_its_names() {
        let file = ModelFile::named("local:q").unwrap();
        let place = Place::Here(LocalPlan::new(file, LocalArgs::default(), NonZeroU32::MIN));
        let q = plan("q", place);
        let judge =
            |name: &str| JudgeArgs { judge_model: Some(name.into()), ..JudgeArgs::default() };
        // As it is named first, and when its run is taken up.
        for called in [Some("local:q"), None] {
            assert_eq!(Judging::of(&judge("local:q"), &q, called), Judging::Itself);
        }
        assert!(matches!(Judging::of(&judge("q"), &q, None), Judging::Other(_)));
    }
}
