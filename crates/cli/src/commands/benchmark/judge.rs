//! The judge of a benchmark: none, the model under test, or another model.

use benchmark::{JudgeAccess, TaskRows};
use problems::Grader;

use super::{args::JudgeArgs, settings::BenchmarkSettings, show::JudgeState};
use crate::{
    args::model::{AdapterArg, ModelArgs},
    model::{ModelFile, ModelLocation, ModelSettings, Secrets, strip_vendor},
    settings::{Settings, config::Config},
};

/// Which model judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JudgeChoice {
    /// None.
    None,
    /// The model under test.
    SameModel,
    /// Another model.
    Other(Box<JudgeArgs>),
}

impl JudgeChoice {
    /// From the arguments, given the model under test and the name the user gave it.
    pub(crate) fn of(args: &JudgeArgs, model: &ModelSettings, given_name: Option<&str>) -> Self {
        let Some(name) = &args.judge_model else { return Self::None };
        // A model in this process has several names, and is loaded once.
        let here = matches!(model.location, ModelLocation::InProcess(_))
            == ModelFile::named(name).is_some();
        let same = Some(name.as_str()) == given_name || (here && model.name == recorded(name));
        match same && args.judge_base_url.is_none() {
            true => Self::SameModel,
            false => Self::Other(Box::new(args.clone())),
        }
    }

    /// The name of the judge's model.
    pub(crate) fn name(&self, settings: &BenchmarkSettings) -> Option<String> {
        match self {
            Self::None => None,
            Self::SameModel => Some(settings.model.name.clone()),
            Self::Other(args) => args.judge_model.as_deref().map(recorded),
        }
    }

    /// Whether answers can be judged.
    pub(crate) fn access(&self) -> JudgeAccess {
        match self {
            Self::None => JudgeAccess::Missing,
            Self::SameModel | Self::Other(_) => JudgeAccess::Available,
        }
    }

    /// Whether a task needs a judge and has none.
    pub(crate) fn state(&self, tasks: &[TaskRows]) -> JudgeState {
        let needs_judge = tasks.iter().any(|rows| rows.task.grader == Grader::Judge);
        match self {
            _ if !needs_judge => JudgeState::NotNeeded,
            Self::None => JudgeState::Missing,
            Self::SameModel | Self::Other(_) => JudgeState::Needed,
        }
    }
}

/// The recorded name of a model.
fn recorded(name: &str) -> String {
    ModelFile::named(name).map_or_else(|| strip_vendor(name).to_owned(), |file| file.name())
}

impl JudgeArgs {
    /// The settings of the judge's model. It is retried as often as the model under test. A local model judges without
    /// its own adapter, which was trained for other work.
    pub(crate) fn model_settings(
        &self,
        model: &ModelSettings,
        settings: &Settings,
    ) -> anyhow::Result<(ModelSettings, Secrets)> {
        let args = ModelArgs {
            retries: Some(model.retries),
            model: self.judge_model.clone(),
            base_url: self.judge_base_url.clone(),
            api_key_env: self.judge_api_key_env.clone(),
            ..ModelArgs::default()
        };
        // Not as an argument, which a model at a server would refuse.
        let config = Config { adapter: Some(AdapterArg::None), ..settings.config(None)? };
        ModelSettings::check(args, &config, settings)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use model::{Sampling, ToolFormat};

    use super::*;
    use crate::{
        args::model::{Forcing, Images, LocalArgs, Provider},
        model::{LocalSettings, store},
        settings::environment::Environment,
    };

    fn plan(name: &str, location: ModelLocation) -> ModelSettings {
        ModelSettings {
            name: name.into(),
            location,
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
            defaults: Default::default(),
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
        let m = plan("m", ModelLocation::Server { provider: Provider::Openai, base_url });
        let of = |name, url| JudgeChoice::of(&judge(name, url), &m, Some("openai/m"));
        assert_eq!(of(None, None), JudgeChoice::None);
        assert_eq!(of(Some("m"), None), JudgeChoice::SameModel);
        assert_eq!(of(Some("openai/m"), None), JudgeChoice::SameModel);
        let resumed = judge(Some("openai/m"), None);
        assert_eq!(JudgeChoice::of(&resumed, &m, None), JudgeChoice::SameModel);
        for (name, url) in [("m", Some("http://x/v1")), ("n", None), ("local:m", None)] {
            assert!(matches!(of(Some(name), url), JudgeChoice::Other(_)), "{name}");
        }
    }

    #[test]
    fn a_judge_is_used_without_an_adapter_wherever_it_runs() {
        let base_url = "http://x/v1".into();
        let m = plan("m", ModelLocation::Server { provider: Provider::Openai, base_url });
        let settled = |name: &str, url: Option<&str>| {
            let mut environment = Environment::default();
            environment.model.base_url = url.map(str::to_owned);
            environment.model.adapter = Some(AdapterArg::File("/m/a.gguf".into()));
            let judge = JudgeArgs { judge_model: Some(name.into()), ..JudgeArgs::default() };
            judge.model_settings(&m, &Settings::new(environment, false)).unwrap().0
        };
        // A server may name its model after a file.
        let remote = settled("judge-q4.gguf", Some("http://judge/v1"));
        assert!(matches!(remote.location, ModelLocation::Server { .. }), "{remote:?}");
        for name in ["judge-q4.gguf", "local:qwen2.5-coder-1.5b"] {
            let local = settled(name, None);
            assert!(matches!(local.location, ModelLocation::InProcess(_)), "{local:?}");
            assert_eq!(local.adapter(), None);
        }
    }

    #[test]
    fn a_model_in_this_process_is_known_by_all_its_names() {
        let file = ModelFile::named("local:q").unwrap();
        let location = ModelLocation::InProcess(LocalSettings::new(
            file,
            LocalArgs::default(),
            NonZeroU32::MIN,
            &store::catalogue().unwrap(),
        ));
        let q = plan("q", location);
        let judge =
            |name: &str| JudgeArgs { judge_model: Some(name.into()), ..JudgeArgs::default() };
        // As it is named first, and when its run is taken up.
        for called in [Some("local:q"), None] {
            assert_eq!(JudgeChoice::of(&judge("local:q"), &q, called), JudgeChoice::SameModel);
        }
        assert!(matches!(JudgeChoice::of(&judge("q"), &q, None), JudgeChoice::Other(_)));
    }
}
