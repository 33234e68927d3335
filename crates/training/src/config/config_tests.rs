//! Configurations: rejected values, overrides, defaults.

use super::*;

const MINIMAL: &str = "model = \"m\"\noutput = \"o\"\nsteps = 3\n[data]\ntrain = [\"t.jsonl\"]\n";

fn refused(text: &str) -> String {
    error_text::chain(&RlConfig::parse(text, &[]).unwrap_err())
}

#[test]
fn the_defaults_are_the_released_recipe() {
    let config = RlConfig::parse(MINIMAL, &[]).unwrap();
    assert_eq!(
        (config.rollout.problems, config.rollout.members, config.rollout.turns),
        (8, 8, 100)
    );
    assert_eq!(config.algorithm.name, AlgorithmName::Rloo);
    assert_eq!(config.algorithm.steps_per_batch(), 1);
    let optimizer = &config.optimizer;
    assert_eq!(
        (optimizer.learning_rate, optimizer.betas, optimizer.max_grad_norm),
        (1e-6, [0.9, 0.999], 1.0)
    );
    assert_eq!((optimizer.weight_decay, optimizer.eps), (0.01, 1e-8));
    let Validation::One(validation) = &config.validation else { panic!() };
    assert_eq!((validation.every, validation.sampling.top_k), (10, 20));
    assert_eq!(config.data.task, "instruct_pretrain");
}

#[test]
fn unknown_keys_are_rejected_by_name_and_line() {
    let error = refused(&MINIMAL.replace("steps = 3", "steps = 3\nstesp = 4"));
    assert!(error.contains("stesp") && error.contains("line 4"), "{error}");
    let error = refused(&format!("{MINIMAL}[rollout]\nturn = 4\n"));
    assert!(error.contains("turn"), "{error}");
}

#[test]
fn new_keys_at_their_defaults_look_like_an_older_configuration() {
    let config = RlConfig::parse(MINIMAL, &[]).unwrap();
    let value = serde_json::to_value(&config).unwrap();
    assert_eq!(config.rollout.observation, attempt::Settings::default().output_chars);
    assert!(value["rollout"].get("observation").is_none() && value.get("reward").is_none());
    assert!(value["data"].get("draw").is_none() && value["rollout"].get("close_at").is_none());
}

#[test]
fn problems_are_not_drawn_by_pass_rate_and_resampled() {
    let drawn = MINIMAL.replace("[data]", "[data]\ndraw = \"pass-rate\"");
    assert!(RlConfig::parse(&drawn, &[]).is_ok());
    let error = refused(&format!("{drawn}[algorithm]\nresample = 1\n"));
    assert!(error.contains("algorithm.resample") && error.contains("pass-rate"), "{error}");
}

#[test]
fn steps_that_close_early_need_importance_weights_and_one_round() {
    let closing = |more: &str| format!("{MINIMAL}[rollout]\nclose_at = 0.75\n[algorithm]\n{more}");
    let error = refused(&closing(""));
    assert!(
        error.contains("rollout.close_at") && error.contains("algorithm.importance"),
        "{error}"
    );
    let error = refused(&closing("importance = 2.0\nresample = 1\n"));
    assert!(error.contains("algorithm.resample") && error.contains("close_at"), "{error}");
    let config = RlConfig::parse(&closing("importance = 2.0\n"), &[]).unwrap();
    assert_eq!(config.rollout.groups_to_close(), 6);
    let value = serde_json::to_value(&config).unwrap();
    assert_eq!(value["rollout"]["close_at"], 0.75);
    let groups = |problems, close_at| {
        RolloutSettings { problems, close_at, ..RolloutSettings::default() }.groups_to_close()
    };
    let found = [(10, 0.7), (8, 0.9), (1, 0.5), (3, 1e-9), (8, 1.0)].map(|(n, at)| groups(n, at));
    assert_eq!(found, [7, 8, 1, 1, 8]);
    let sft = "model = \"m\"\noutput = \"o\"\n[data]\ntrajectories = [\"t\"]\n";
    let error = SftConfig::parse(&format!("{sft}[rollout]\nclose_at = 0.5\n"), &[]).unwrap_err();
    assert!(error.to_string().contains("rollout.close_at"), "{error}");
    let error = SftConfig::parse(&format!("{sft}[rollout]\noverlap = true\n"), &[]).unwrap_err();
    assert!(error.to_string().contains("rollout.overlap"), "{error}");
}

#[test]
fn values_out_of_range_are_rejected_by_key() {
    for (more, key) in [
        ("[rollout]\nproblems = 0", "rollout.problems"),
        ("[rollout]\nproblems = 60000\nmembers = 60000", "rollout.problems times"),
        ("[rollout.sampling]\ntemperature = nan", "rollout.sampling.temperature"),
        ("[rollout.sampling]\ntemperature = 0", "rollout.sampling.temperature"),
        ("[rollout.sampling]\ntop_p = 0.9", "rollout.sampling.top_p"),
        ("[rollout.sampling]\ntop_k = 20", "rollout.sampling.top_k"),
        ("[rollout.sampling]\ntemperature = 1e-4", "rollout.sampling.temperature"),
        ("[validation.sampling]\ntemperature = 11", "validation.sampling.temperature"),
        ("[rollout]\ntimeout = -1", "rollout.timeout"),
        ("[rollout]\nclose_at = 0.0", "rollout.close_at"),
        ("[rollout]\nclose_at = nan", "rollout.close_at"),
        ("[rollout]\nformat = \"auto\"", "rollout.format"),
        ("[rollout]\nobservation = 0", "rollout.observation"),
        ("[reward]\nturn_cost = -0.1", "reward.turn_cost"),
        ("[reward]\nthreshold = 0.0", "reward.threshold"),
        ("[reward]\nfloor = nan", "reward.floor"),
        ("[optimiser]\nrate = inf", "optimiser.rate"),
        ("[optimiser]\nbetas = [0.9, 1.0]", "optimiser.betas"),
        ("[algorithm]\nclip_low = 1.5", "algorithm.clip_low"),
        ("[algorithm]\nkl = 0.1", "algorithm.kl"),
        ("[algorithm]\nepochs = 0", "algorithm.epochs"),
        ("[lora]\nrank = 0", "lora.rank"),
        ("[lora]\ntargets = []", "lora.targets"),
        ("[checkpoints]\nevery = 0", "checkpoints.every"),
    ] {
        let error = refused(&format!("{MINIMAL}{more}\n"));
        assert!(error.contains(key), "{more}: {error}");
    }
    assert!(refused(&MINIMAL.replace("steps = 3", "steps = 2000000")).contains("`steps`"));
    assert!(refused(&MINIMAL.replace("steps = 3", "steps = 0")).contains("`data.validation`"));
    assert!(refused(&" ".repeat(MAX_CONFIG_BYTES + 1)).contains("bytes"));
    let server = "[sampler]\nurl = \"http://localhost/v1\"\nmodel = \"m\"\n";
    let measured =
        MINIMAL.replace("steps = 3", "steps = 0\nfrom = \"run\"").replace("train", "validation");
    assert!(refused(&format!("{measured}{server}")).contains("`from`"));
}

#[test]
fn gradients_are_computed_early_where_a_group_does_not_depend_on_others() {
    let overlaps = |text: &str| {
        let config = RlConfig::parse(&format!("{MINIMAL}{text}"), &[])?;
        Ok::<_, ConfigError>(config.rollout.overlap)
    };
    assert!(!overlaps("").unwrap());
    assert!(!overlaps("[rollout]\noverlap = false").unwrap());
    assert!(overlaps("[rollout]\noverlap = true").unwrap());
    let closing = "[rollout]\nclose_at = 0.5\n[algorithm]\nimportance = 2.0";
    for other in [closing, "[algorithm]\nresample = 1", "[algorithm]\nepochs = 2"] {
        assert!(!overlaps(other).unwrap(), "{other}");
        let both = match other.strip_prefix("[rollout]") {
            Some(rest) => format!("[rollout]\noverlap = true{rest}"),
            None => format!("{other}\n[rollout]\noverlap = true"),
        };
        let error = overlaps(&both).unwrap_err().to_string();
        assert!(error.contains("rollout.overlap"), "{error}");
    }
}

#[test]
fn validation_episodes_get_slots_too() {
    let slots = |text: &str, validation: usize| {
        let config = RlConfig::parse(&format!("{MINIMAL}[rollout]\n{text}"), &[]).unwrap();
        config.rollout.slots(config.rollout.episodes(), validation)
    };
    assert_eq!((slots("problems = 2", 0), slots("problems = 2", 40)), (16, 40));
    assert_eq!(slots("problems = 2", 1000), 64, "no more than there are sandboxes");
    assert_eq!(slots("mode = \"llm\"", 1000), 256);
    assert_eq!(slots("slots = 3", 1000), 3);
    // What only measures has no episodes to train on.
    let text = format!("{MINIMAL}[rollout]\nsandboxes = 256\nproblems = 32\n");
    let text = text.replace("steps = 3", "steps = 0").replace("train", "validation");
    let config = RlConfig::parse(&text, &[]).unwrap();
    assert_eq!(config.rollout.slots(config.training_episodes(), 3), 3);
}

#[test]
fn greedy_validation_is_allowed() {
    for temperature in ["0", "0.001", "10"] {
        let text = format!("{MINIMAL}[validation.sampling]\ntemperature = {temperature}\n");
        assert!(RlConfig::parse(&text, &[]).is_ok(), "{temperature}");
    }
}

#[test]
fn overrides_take_precedence() {
    let overrides =
        ["optimiser.rate=1e-5", "model=elsewhere/x", "rollout.tokens=77", "lora.rank=4"];
    let config = RlConfig::parse(MINIMAL, &overrides.map(String::from)).unwrap();
    assert_eq!((config.optimizer.learning_rate, config.rollout.tokens), (1e-5, 77));
    assert_eq!(config.model, PathBuf::from("elsewhere/x"));
    assert_eq!(config.lora.map(|lora| lora.rank), Some(4));
    for bad in ["rate", "=3", "model.x=3"] {
        assert!(
            matches!(
                RlConfig::parse(MINIMAL, &[bad.to_owned()]),
                Err(ConfigError::Override { .. })
            ),
            "{bad}"
        );
    }
    assert!(matches!(
        RlConfig::parse(MINIMAL, &["optimiser.rte=3".into()]),
        Err(ConfigError::Toml(_))
    ));
}

#[test]
fn a_configuration_round_trips() {
    let text = format!("{MINIMAL}[algorithm]\nname = \"grpo++\"\n[lora]\nrank = 8\n");
    let text = text.replace("steps = 3", "steps = 3\ndevice = \"cuda:1\"");
    let config = RlConfig::parse(&text, &[]).unwrap();
    let written = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<RlConfig>(written).unwrap(), config);
}

#[test]
fn rates_rise_and_fall() {
    let mut optimizer =
        OptimizerSettings { learning_rate: 1.0, warmup: 2, ..OptimizerSettings::default() };
    let rates = |optimizer: &OptimizerSettings| {
        (1..=6)
            .map(|step| (optimizer.learning_rate_at(step, 6) * 1000.0).round() / 1000.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(rates(&optimizer), [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]);
    optimizer.schedule = Schedule::Linear;
    assert_eq!(rates(&optimizer), [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]);
    optimizer.schedule = Schedule::Cosine;
    assert_eq!(rates(&optimizer), [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]);
}

#[test]
fn supervised_runs_need_data() {
    let text = "model = \"m\"\noutput = \"o\"\n[data]\n";
    assert!(matches!(SftConfig::parse(text, &[]), Err(ConfigError::Value { key: "data", .. })));
    let text = format!("{text}trajectories = [\"runs\"]\n");
    assert_eq!(SftConfig::parse(&text, &[]).unwrap().data.task(), "instruct_pretrain");
}

#[test]
fn algorithms_keep_their_own_values_unless_set() {
    let config =
        |text: &str| RlConfig::parse(&format!("{MINIMAL}[algorithm]\n{text}"), &[]).unwrap();
    let objective = config("name = \"grpo++\"").algorithm.objective(500);
    assert_eq!(objective.surrogate().aggregation, crate::Aggregation::Constant(500.0));
    let objective = config("dual_clip = 0\nclip_high = 0.4\naggregation = \"token-mean\"")
        .algorithm
        .objective(500);
    assert_eq!(objective.surrogate().clip, crate::Clip { low: 0.2, high: 0.4, dual: None });
    assert_eq!(objective.surrogate().aggregation, crate::Aggregation::TokenMean);
}
