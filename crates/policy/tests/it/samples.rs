//! The engine continues sequences exactly as the network would one token at a time, independent of other requests.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lis_policy::{
    AdapterPath, Architecture, CudaGraphs, Engine, EngineError, EngineSettings, LoraConfig,
    Network, Output, PrefixSharing, Row, Scaling, Shape, Target,
    perf::{self, Generation, Memory},
};
use sampling::{Flow, SampleEnd, SampleError, SampleRequest, Sampled, SamplingParams, Until};
use tch::{Device, Kind, Tensor};

const VOCABULARY: u32 = 301;

pub(crate) fn shape(architecture: Architecture) -> Shape {
    Shape {
        architecture,
        hidden: 48,
        layers: 3,
        heads: 6,
        kv_heads: 2,
        head_dim: 8,
        intermediate: 96,
        vocabulary: i64::from(VOCABULARY),
        rope_theta: 10_000.0,
        rope_scaling: Scaling::None,
        norm_eps: 1e-5,
        output: if architecture == Architecture::Qwen3 { Output::Own } else { Output::Tied },
        positions: 4096,
    }
}

/// A random network whose logits differ enough that rounding is irrelevant, and depend on every earlier token.
pub(crate) fn net_on(architecture: Architecture, device: Device, kind: Kind) -> Network {
    net_of(shape(architecture), device, kind)
}

/// The same of any shape. Norms and biases matter: none is 1 or 0.
fn net_of(shape: Shape, device: Device, kind: Kind) -> Network {
    // Other tests run meanwhile: threads would mostly wait for each other.
    tch::set_num_threads(1);
    let net = Network::random(shape, 11, device, kind).unwrap();
    tch::no_grad(|| {
        for (name, mut tensor) in net.parameters().unwrap() {
            let noise =
                (Tensor::arange(tensor.numel() as i64, (Kind::Float, Device::Cpu)) * 0.7).sin();
            let noise = noise.view(tensor.size().as_slice()).to_device(device).to_kind(kind);
            match name.contains("norm") || name.contains("bias") {
                true => drop(tensor.f_add_(&(noise * 0.1)).unwrap()),
                false => drop(tensor.f_mul_scalar_(8.0).unwrap()),
            }
        }
    });
    net
}

pub(crate) fn net(architecture: Architecture) -> Network {
    net_on(architecture, Device::Cpu, Kind::Float)
}

fn engine(net: &Network, slots: usize, length: usize) -> Engine {
    Engine::start(
        net,
        EngineSettings {
            slots,
            context: length,
            cuda_graphs: CudaGraphs::Auto,
            memory_limit: None,
            prefix_sharing: PrefixSharing::Off,
        },
    )
    .unwrap()
}

pub(crate) fn prompt(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32)
        .map(|place| (seed * 7919 + place * place * 31 + place * 17) % VOCABULARY)
        .collect()
}

pub(crate) const GREEDY: SamplingParams =
    SamplingParams { temperature: 0.0, top_p: 1.0, top_k: None, seed: 0 };

pub(crate) fn request(
    conversation: u64,
    tokens: &[u32],
    max_tokens: usize,
    params: SamplingParams,
) -> SampleRequest {
    SampleRequest {
        conversation,
        tokens: tokens.into(),
        max_tokens,
        params,
        stop_tokens: Vec::new(),
        until: None,
    }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(100), future).await.unwrap() })
}

pub(crate) fn sampled(engine: &Engine, request: SampleRequest) -> Sampled {
    wait(engine.sample(request)).unwrap()
}

/// The greedy continuation, by evaluating everything again for every token.
fn naively(net: &Network, prompt: &[u32], most: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..most {
        let ids: Vec<i64> = tokens.iter().copied().map(i64::from).collect();
        let ids = Tensor::from_slice(&ids).unsqueeze(0).to_device(net.device());
        let scores = tch::no_grad(|| net.logits(&ids).unwrap());
        let last = scores.select(1, tokens.len() as i64 - 1);
        tokens.push(u32::try_from(last.argmax(1, false).int64_value(&[0])).unwrap());
    }
    tokens.split_off(prompt.len())
}

/// The log-probabilities of a response, as training computes them.
pub(crate) fn scored(
    net: &Network,
    prompt: &[u32],
    response: &[u32],
    temperature: f64,
) -> Vec<f32> {
    let tokens = [prompt, response].concat();
    let marks: Vec<bool> = (0..tokens.len()).map(|place| place >= prompt.len()).collect();
    let batch = net.batch(&[Row { tokens: &tokens, scored: &marks, shared: 0 }]).unwrap();
    let all = net.logprobs(&batch, temperature).unwrap().logprob.to_kind(Kind::Float);
    Vec::<f32>::try_from(&all).unwrap()
}

pub(crate) fn close(ours: &[f32], theirs: &[f32], tolerance: f32) {
    assert_eq!(ours.len(), theirs.len());
    let worst =
        ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max);
    assert!(worst < tolerance, "off by {worst}");
}

#[test]
fn greedy_replies_are_the_nets_own() {
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        let net = net(architecture);
        let engine = engine(&net, 2, 100);
        for length in [1, 2, 9, 40] {
            let prompt = prompt(5, length);
            let response = sampled(&engine, request(length as u64, &prompt, 24, GREEDY));
            assert_eq!(
                response.tokens,
                naively(&net, &prompt, 24),
                "{architecture:?}, {length} tokens"
            );
            assert_eq!(response.end, SampleEnd::Length);
            close(&response.logprobs, &scored(&net, &prompt, &response.tokens, 1.0), 1e-4);
        }
    }
}

#[test]
fn log_probabilities_are_those_of_training_at_every_temperature() {
    let net = net(Architecture::Llama);
    let engine = engine(&net, 1, 200);
    for (temperature, top_p, top_k) in [(1.0, 1.0, None), (0.6, 1.0, None), (1.5, 0.8, Some(20))] {
        let prompt = prompt(3, 30);
        let params = SamplingParams { temperature, top_p, top_k, seed: 4 };
        let response = sampled(&engine, request(1, &prompt, 60, params));
        close(&response.logprobs, &scored(&net, &prompt, &response.tokens, temperature), 1e-4);
    }
}

#[test]
fn long_questions_are_read_in_parts() {
    let net = net(Architecture::Qwen2);
    let engine = engine(&net, 2, 1600);
    let prompt = prompt(8, 1300);
    let params = SamplingParams { temperature: 1.0, ..GREEDY };
    let response = sampled(&engine, request(1, &prompt, 260, params));
    close(&response.logprobs, &scored(&net, &prompt, &response.tokens, 1.0), 1e-4);
    assert_eq!(engine.stats().prompt_tokens, 1300);
}

#[test]
fn many_at_once_are_answered_as_one_by_one() {
    let net = net(Architecture::Llama);
    let params = |row: u32| match row % 3 {
        0 => GREEDY,
        1 => SamplingParams { temperature: 1.0, seed: u64::from(row), ..GREEDY },
        _ => SamplingParams { temperature: 0.7, top_p: 0.9, top_k: Some(50), seed: u64::from(row) },
    };
    let asks = || {
        (0..17u32).map(|row| {
            let length = [1, 3, 8, 9, 20, 60, 150, 300][row as usize % 8] + row as usize;
            request(u64::from(row), &prompt(row, length), 20 + row as usize * 3, params(row))
        })
    };
    let alone = engine(&net, 1, 600);
    let expected: Vec<Sampled> = asks().map(|request| sampled(&alone, request)).collect();
    let served_alone = engine(&net, 17, 600);
    let exactly: Vec<Sampled> = asks().map(|request| sampled(&served_alone, request)).collect();
    // In the other order, and so in other slots: the last bits may differ, the tokens must not.
    let turned = engine(&net, 17, 600);
    let mut in_other_slots: Vec<Sampled> =
        asks().rev().map(|request| sampled(&turned, request)).collect();
    in_other_slots.reverse();
    for (other, exactly) in in_other_slots.iter().zip(&exactly) {
        assert_eq!(other.tokens, exactly.tokens);
        close(&other.logprobs, &exactly.logprobs, 1e-4);
    }
    for slots in [17, 5] {
        let together = engine(&net, slots, 600);
        let futures: Vec<_> = asks().map(|request| together.sample(request)).collect();
        let replies = wait(async {
            let mut replies = Vec::new();
            for future in futures {
                replies.push(future.await.unwrap());
            }
            replies
        });
        for (row, (response, expected)) in replies.iter().zip(&expected).enumerate() {
            assert_eq!(response.tokens, expected.tokens, "row {row} of {slots} slots");
            close(&response.logprobs, &expected.logprobs, 1e-4);
        }
        assert!(slots != 17 || replies == exactly, "numbers depend on who else is served");
    }
}

#[test]
fn a_second_turn_reads_only_what_is_new() {
    let net = net(Architecture::Qwen3);
    let params = SamplingParams { temperature: 1.0, seed: 2, ..GREEDY };
    let cached = engine(&net, 2, 400);
    let first = prompt(1, 50);
    let response = sampled(&cached, request(7, &first, 20, params));
    assert_eq!(cached.stats().prompt_tokens, 50);
    for added in [3, 70] {
        let second = [&first[..], &response.tokens, &prompt(9, added)].concat();
        let before = cached.stats().prompt_tokens;
        let again = sampled(&cached, request(7, &second, 30, params));
        // The last token of the reply was chosen, and never evaluated.
        assert!(cached.stats().prompt_tokens - before <= added as u64 + 1);
        let fresh = sampled(&engine(&net, 1, 400), request(1, &second, 30, params));
        assert_eq!(again.tokens, fresh.tokens);
        close(&again.logprobs, &fresh.logprobs, 1e-4);
    }
    // A history that differs from the cached one is evaluated from the first difference.
    let other = [&first[..40], &prompt(4, 30)].concat();
    let before = cached.stats().prompt_tokens;
    let again = sampled(&cached, request(7, &other, 10, GREEDY));
    assert_eq!(cached.stats().prompt_tokens - before, 30);
    assert_eq!(again.tokens, naively(&net, &other, 10));
}

#[test]
fn seeds_decide_and_nothing_else() {
    let net = net(Architecture::Llama);
    let engine = engine(&net, 3, 200);
    let tokens = prompt(2, 12);
    let of = |conversation, seed| {
        sampled(
            &engine,
            request(conversation, &tokens, 40, SamplingParams { temperature: 1.0, seed, ..GREEDY }),
        )
        .tokens
    };
    assert_eq!(of(1, 5), of(2, 5));
    assert_ne!(of(1, 5), of(1, 6));
    let one = SamplingParams { temperature: 1.3, top_k: Some(1), ..GREEDY };
    assert_eq!(sampled(&engine, request(4, &tokens, 15, one)).tokens, naively(&net, &tokens, 15));
}

#[test]
fn replies_end_at_their_end_tokens_or_where_the_listener_says() {
    let net = net(Architecture::Llama);
    let engine = engine(&net, 1, 200);
    let tokens = prompt(6, 20);
    let whole = naively(&net, &tokens, 12);
    let at = whole.iter().position(|token| *token == whole[7]).unwrap();
    let ended = sampled(
        &engine,
        SampleRequest { stop_tokens: vec![whole[7]], ..request(1, &tokens, 12, GREEDY) },
    );
    assert_eq!((&ended.tokens[..], ended.end), (&whole[..=at], SampleEnd::Token));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let until: Until = Box::new({
        let heard = Arc::clone(&heard);
        move |token| {
            let mut heard = heard.lock().unwrap();
            heard.push(token);
            if heard.len() == 5 { Flow::Stop } else { Flow::Continue }
        }
    });
    let stopped =
        sampled(&engine, SampleRequest { until: Some(until), ..request(1, &tokens, 12, GREEDY) });
    assert_eq!((&stopped.tokens[..], stopped.end), (&whole[..5], SampleEnd::Until));
    assert_eq!(*heard.lock().unwrap(), whole[..5]);
    // The context ends a reply too.
    let long = prompt(1, 195);
    let cut = sampled(&engine, request(2, &long, 100, GREEDY));
    assert_eq!((cut.tokens.len(), cut.end), (5, SampleEnd::Length));
}

#[test]
fn a_dropped_future_frees_its_slot() {
    let net = net(Architecture::Llama);
    let engine = engine(&net, 1, 4000);
    let begun = Instant::now();
    let endless = engine.sample(request(1, &prompt(1, 10), 3900, GREEDY));
    while engine.stats().sampled_tokens < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the reply never began");
        std::thread::yield_now();
    }
    drop(endless);
    let tokens = prompt(2, 30);
    assert_eq!(sampled(&engine, request(2, &tokens, 5, GREEDY)).tokens, naively(&net, &tokens, 5));
    assert!(engine.stats().sampled_tokens < 3900, "the cancelled response was sampled to its end");
}

#[test]
fn forgotten_conversations_leave_room() {
    let net = net(Architecture::Llama);
    let engine = engine(&net, 2, 64);
    for conversation in 0..5 {
        let tokens = prompt(conversation, 10);
        let response = sampled(&engine, request(u64::from(conversation), &tokens, 4, GREEDY));
        assert_eq!(response.tokens, naively(&net, &tokens, 4));
    }
    assert_eq!(engine.stats().cached_conversations, 2);
    engine.release(3);
    engine.release(4);
    engine.release(77);
    sampled(&engine, request(9, &prompt(9, 10), 4, GREEDY));
    assert_eq!(engine.stats().cached_conversations, 1);
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let net = net(Architecture::Llama);
    let engine = engine(&net, 1, 20);
    let refused = |request: SampleRequest| wait(engine.sample(request)).unwrap_err();
    let full = refused(request(1, &prompt(1, 20), 1, GREEDY));
    assert!(matches!(full, SampleError::TooLong { tokens: 20, context: 20 }), "{full}");
    assert!(matches!(refused(request(1, &[], 1, GREEDY)), SampleError::Empty));
    let unknown = refused(request(1, &[1, VOCABULARY], 1, GREEDY));
    assert!(matches!(unknown, SampleError::UnknownToken { token: VOCABULARY, .. }), "{unknown}");
    let bad = [
        SamplingParams { temperature: -1.0, ..GREEDY },
        SamplingParams { temperature: f64::NAN, ..GREEDY },
        SamplingParams { temperature: f64::INFINITY, ..GREEDY },
        SamplingParams { top_p: 0.0, ..GREEDY },
        SamplingParams { top_p: f64::NAN, ..GREEDY },
        SamplingParams { top_k: Some(0), ..GREEDY },
    ];
    for params in bad {
        assert!(
            matches!(refused(request(1, &[1], 1, params)), SampleError::InvalidParameter { .. }),
            "{params:?}"
        );
    }
    assert!(matches!(refused(request(1, &[1], 0, GREEDY)), SampleError::InvalidParameter { .. }));
    assert_eq!(engine.stats().prompt_tokens, 0);
}

#[test]
fn settings_that_cannot_work_are_refused_before_memory_is_taken() {
    let net = net(Architecture::Llama);
    let settings = |slots, length, memory_limit| EngineSettings {
        slots,
        context: length,
        cuda_graphs: CudaGraphs::Off,
        memory_limit,
        prefix_sharing: PrefixSharing::Off,
    };
    let start = |settings| Engine::start(&net, settings).map(|_| ()).unwrap_err();
    assert!(matches!(start(settings(0, 10, None)), EngineError::Setting { .. }));
    assert!(matches!(start(settings(1, 4097, None)), EngineError::Setting { max: 4096, .. }));
    let large = settings(4096, 4096, Some(1 << 20));
    let needed = Engine::memory(&net, &large);
    // Keys and values of 3 layers, 2 heads of 8 numbers, 4 bytes each, are the least.
    assert!(needed > 4096 * 4096 * 3 * 2 * 2 * 8 * 4);
    assert!(matches!(start(large), EngineError::OutOfMemory { available: 1_048_576, .. }));
}

#[test]
fn updated_weights_are_sampled_after_a_refresh() {
    let mut net = net(Architecture::Llama);
    let engine = engine(&net, 2, 128);
    let tokens = prompt(3, 25);
    let before = sampled(&engine, request(1, &tokens, 16, GREEDY)).tokens;
    let change = |net: &Network| {
        tch::no_grad(|| {
            for (_, mut tensor) in net.trainable() {
                let ramp = Tensor::arange(tensor.numel() as i64, (Kind::Float, Device::Cpu))
                    .view(tensor.size().as_slice());
                let _ = tensor.f_add_(&((ramp * 1.3).sin() * 0.05)).unwrap();
            }
        });
    };
    change(&net);
    engine.refresh(&net).unwrap();
    let after = sampled(&engine, request(1, &tokens, 16, GREEDY));
    assert_eq!(after.tokens, naively(&net, &tokens, 16));
    assert_ne!(after.tokens, before, "the change was too small to show");
    // An adapter that comes later, and its updates.
    net.add_lora(&LoraConfig {
        rank: 4,
        alpha: 8.0,
        targets: vec![Target::Query, Target::Value, Target::Down],
        seed: 1,
    })
    .unwrap();
    for _ in 0..2 {
        change(&net);
        engine.refresh(&net).unwrap();
        let adapted = sampled(&engine, request(1, &tokens, 16, GREEDY));
        assert_eq!(adapted.tokens, naively(&net, &tokens, 16));
        close(&adapted.logprobs, &scored(&net, &tokens, &adapted.tokens, 1.0), 1e-4);
    }
    let other = Network::random(
        Shape { layers: 2, ..shape(Architecture::Llama) },
        1,
        Device::Cpu,
        Kind::Float,
    )
    .unwrap();
    assert!(matches!(engine.refresh(&other), Err(EngineError::OtherShape)));
}

#[test]
fn shared_beginnings_are_evaluated_once_and_change_nothing() {
    let net = net(Architecture::Qwen2);
    let cuda_graphs = CudaGraphs::Auto;
    let prefix_sharing = PrefixSharing::On;
    let settings =
        EngineSettings { slots: 4, context: 1500, cuda_graphs, memory_limit: None, prefix_sharing };
    let engine = Engine::start(&net, settings).unwrap();
    let begins = prompt(3, 900);
    let asked = |own: u32| [begins.clone(), prompt(own, 60)].concat();
    // More of them than there are slots, all at once: those that come later find what others left.
    let questions: Vec<Vec<u32>> = [1, 2, 1, 3, 4, 2].map(asked).to_vec();
    let replies: Vec<_> = (0..)
        .zip(&questions)
        .map(|(n, tokens)| engine.sample(request(n, tokens, 8, GREEDY)))
        .collect();
    for (n, (response, tokens)) in (0..).zip(replies.into_iter().zip(&questions)) {
        let response = wait(response).unwrap();
        assert_eq!(response.tokens, naively(&net, tokens, 8), "{n}");
        close(&response.logprobs, &scored(&net, tokens, &response.tokens, 1.0), 1e-3);
        engine.release(n);
    }
    let read = engine.stats().prompt_tokens;
    assert!(read < 900 + 6 * 70, "{read} tokens were evaluated");
}

#[test]
fn diverged_weights_fail_replies_and_not_the_engine() {
    let net = net(Architecture::Llama);
    let engine = engine(&net, 1, 64);
    for name in ["model.norm.weight", "model.layers.0.input_layernorm.weight"] {
        let norm = net.trainable().into_iter().find(|(known, _)| known == name).unwrap().1;
        let fill = |value: f64| tch::no_grad(|| drop(norm.shallow_clone().fill_(value)));
        fill(f64::NAN);
        engine.refresh(&net).unwrap();
        let tokens = prompt(1, 25);
        let failed = wait(engine.sample(request(1, &tokens, 5, GREEDY)));
        assert!(matches!(failed, Err(SampleError::NotFinite)), "{name}");
        fill(1.0);
        engine.refresh(&net).unwrap();
        // Shorter than what is in the cache: behind it lies what must not be seen.
        let tokens = prompt(2, 4);
        let response = sampled(&engine, request(1, &tokens, 5, GREEDY));
        assert_eq!(response.tokens, naively(&net, &tokens, 5), "{name}");
    }
}

#[test]
fn speeds_are_of_the_work_that_was_asked_for() {
    let net = net(Architecture::Llama);
    let what = Generation { batch: 3, prompt: 20, response: 10, cuda_graphs: CudaGraphs::Auto };
    let generated = perf::generation(&net, &what).unwrap();
    assert_eq!(
        (generated.rate.tokens, generated.stats.sampled_tokens),
        (30, 60),
        "once to warm up"
    );
    assert!(generated.rate.per_second() > 0.0 && generated.graphs_disabled_reason.is_some());
    let mut steps = 0;
    let step = || {
        steps += 1;
        if steps > 5 { Err("too many") } else { Ok(()) }
    };
    let rate = perf::training(Device::Cpu, 2, 100, step).unwrap();
    assert_eq!((rate.tokens, steps), (200, 5), "three to warm up");
}

/// Whether there is a GPU; fails where one is required.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what must work")]
fn has_cuda() -> bool {
    let Err(error) = lis_policy::load_cuda() else { return true };
    let required = std::env::var("LIS_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "cuda"), "{error}");
    println!("skip: no CUDA");
    false
}

#[test]
fn recorded_steps_are_the_same_as_others() {
    if !has_cuda() {
        return;
    }
    let net = net_on(Architecture::Qwen2, Device::Cuda(0), Kind::Float);
    let start = |cuda_graphs| {
        Engine::start(
            &net,
            EngineSettings {
                slots: 4,
                context: 700,
                cuda_graphs,
                memory_limit: None,
                prefix_sharing: PrefixSharing::Off,
            },
        )
        .unwrap()
    };
    let (recorded, plain) = (start(CudaGraphs::Auto), start(CudaGraphs::Off));
    assert_eq!(recorded.graphs_disabled_reason(), None);
    for row in 0..6 {
        let tokens = prompt(row, 20 + row as usize * 40);
        let params = SamplingParams { temperature: f64::from(row % 2), seed: 3, ..GREEDY };
        let [ours, theirs] = [&recorded, &plain]
            .map(|engine| sampled(engine, request(u64::from(row), &tokens, 300, params)));
        assert_eq!(ours.tokens, theirs.tokens);
        close(&ours.logprobs, &theirs.logprobs, 1e-3);
        close(&ours.logprobs, &scored(&net, &tokens, &ours.tokens, 1.0), 1e-3);
    }
    assert!(recorded.stats().replayed_steps > 1000);
    assert_eq!(plain.stats().replayed_steps, 0);
}

/// How far the sampler is from training, with conversations of many lengths, turns and common beginnings.
fn agreement(net: &Network, prefix_sharing: PrefixSharing, memory: Memory) -> perf::Agreement {
    let settings = perf::CheckSettings {
        conversations: 9,
        slots: 6,
        context: 400,
        prompt: 400,
        turns: 3,
        tokens: 12,
        cuda_graphs: CudaGraphs::Auto,
        prefix_sharing,
        memory,
    };
    // Short prompts and responses of several pages: more are begun than there are pages for in the end.
    let long = perf::CheckSettings {
        conversations: 20,
        slots: 8,
        context: 500,
        prompt: 60,
        turns: 1,
        tokens: 250,
        ..settings
    };
    let settings = if memory == Memory::Free { settings } else { long };
    perf::check(net, &settings).unwrap()
}

#[test]
fn whole_conversations_have_the_probabilities_of_training() {
    let net = net(Architecture::Qwen3);
    for prefix_sharing in [PrefixSharing::Off, PrefixSharing::On] {
        let found = agreement(&net, prefix_sharing, Memory::Free);
        assert!(found.tokens > 100 && found.worst < 1e-3, "{found:?}");
        let path = perf::SamplerPath { own_kernels: false, adapter: AdapterPath::None };
        assert_eq!((found.path, found.evictions), (Some(path), 0));
    }
}

/// Adds an adapter that matters.
fn adapt(net: &mut Network) {
    let targets = lis_policy::TARGETS.to_vec();
    net.add_lora(&LoraConfig { rank: 4, alpha: 8.0, targets, seed: 1 }).unwrap();
    tch::manual_seed(3);
    tch::no_grad(|| {
        for (_, mut factor) in net.trainable() {
            let _ = factor.f_normal_(0.0, 0.1).unwrap();
        }
    });
}

/// Asserts that the sampler used our own kernels, and that its errors come from rounding, as those of training do.
fn agrees(what: &str, found: &perf::Agreement, adapter: AdapterPath) {
    let ratio = found.sampler_error / found.training_error.max(1e-3);
    println!("{what}: ratio {ratio:.2}, {} evictions: {found:?}", found.evictions);
    let path = perf::SamplerPath { own_kernels: true, adapter };
    assert_eq!(found.path, Some(path), "{what}");
    assert!(found.tokens > 100 && ratio < 2.5, "{what}: {found:?}");
}

#[test]
fn our_own_kernels_have_the_probabilities_of_training() {
    if !has_cuda() {
        return;
    }
    // Groups of 16, 6 and 1 query heads share keys.
    for (architecture, heads, kv_heads, head_dim) in [
        (Architecture::Llama, 16, 1, 64),
        (Architecture::Qwen2, 12, 2, 128),
        (Architecture::Qwen3, 8, 8, 64),
    ] {
        let sizes = Shape { heads, kv_heads, head_dim, ..shape(architecture) };
        let plain = net_of(sizes.clone(), Device::Cuda(0), Kind::BFloat16);
        let mut adapted = net_of(sizes, Device::Cuda(0), Kind::BFloat16);
        adapt(&mut adapted);
        let (none, merged, factors) =
            (AdapterPath::None, AdapterPath::Merged, AdapterPath::Factors);
        for (net, prefix_sharing, memory, path) in [
            (&plain, PrefixSharing::Off, Memory::Free, none),
            (&plain, PrefixSharing::On, Memory::Scarce, none),
            (&adapted, PrefixSharing::On, Memory::Free, merged),
            (&adapted, PrefixSharing::Off, Memory::Scarce, merged),
            (&adapted, PrefixSharing::Off, Memory::Least, factors),
        ] {
            let found = agreement(net, prefix_sharing, memory);
            agrees(&format!("{architecture:?} {prefix_sharing:?} {memory:?}"), &found, path);
            // Shared pages may be just enough.
            if prefix_sharing == PrefixSharing::Off {
                assert_eq!(memory == Memory::Free, found.evictions == 0, "{memory:?}: {found:?}");
            }
        }
    }
}

#[test]
fn short_prompts_survive_eviction() {
    if !has_cuda() {
        return;
    }
    // So short that an evicted response is evaluated again by decode steps.
    let settings = perf::CheckSettings {
        conversations: 12,
        slots: 8,
        context: 500,
        prompt: 8,
        turns: 1,
        tokens: 250,
        cuda_graphs: CudaGraphs::Auto,
        prefix_sharing: PrefixSharing::Off,
        memory: Memory::Least,
    };
    let sizes = Shape { heads: 16, kv_heads: 1, head_dim: 64, ..shape(Architecture::Qwen2) };
    let found = perf::check(&net_of(sizes, Device::Cuda(0), Kind::BFloat16), &settings).unwrap();
    agrees("short prompts", &found, AdapterPath::None);
    assert!(found.evictions > 0, "{found:?}");
}

/// The root mean square of differences.
fn distance(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let squares: f32 = ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).powi(2)).sum();
    (squares / ours.len() as f32).sqrt()
}

#[test]
fn our_own_kernels_follow_updates_and_truncate() {
    if !has_cuda() {
        return;
    }
    let sizes = Shape { heads: 16, kv_heads: 1, head_dim: 64, ..shape(Architecture::Qwen2) };
    let mut net = net_of(sizes, Device::Cuda(0), Kind::BFloat16);
    let targets = lis_policy::TARGETS.to_vec();
    net.add_lora(&LoraConfig { rank: 4, alpha: 8.0, targets, seed: 1 }).unwrap();
    let engine = engine(&net, 3, 300);
    assert_eq!(engine.kernels_disabled_reason(), None);
    assert_eq!(engine.adapter_path(), AdapterPath::Merged);
    let tokens = prompt(3, 70);
    let before = sampled(&engine, request(1, &tokens, 20, GREEDY));
    // The most likely token alone is sampled as the greedy one is.
    let one = SamplingParams { temperature: 1.0, top_k: Some(1), ..GREEDY };
    let same = sampled(&engine, request(2, &tokens, 20, one));
    assert_eq!(same.tokens, before.tokens);
    let params = SamplingParams { temperature: 0.7, top_p: 0.9, top_k: Some(20), seed: 3 };
    let cut = sampled(&engine, request(2, &tokens, 20, params));
    let off = distance(&cut.logprobs, &scored(&net, &tokens, &cut.tokens, 0.7));
    adapt_again(&net);
    engine.refresh(&net).unwrap();
    let after = sampled(&engine, request(1, &tokens, 20, GREEDY));
    let off_after = distance(&after.logprobs, &scored(&net, &tokens, &after.tokens, 1.0));
    let moved = distance(&before.logprobs, &scored(&net, &tokens, &before.tokens, 1.0));
    println!("off by {off} and {off_after}; the change is {moved}");
    assert!(off < 0.1 && off_after < 0.2, "off by {off} and {off_after}");
    assert!(moved > 1.0, "the change was too small to show: {moved}");
    let graphs = engine.stats().replayed_steps;
    assert!(graphs > 20, "{graphs}");
}

/// Changes the adapter of a network as training would, only more.
fn adapt_again(net: &Network) {
    tch::manual_seed(4);
    tch::no_grad(|| {
        for (_, mut factor) in net.trainable() {
            let _ = factor.f_normal_(0.0, 0.2).unwrap();
        }
    });
}
