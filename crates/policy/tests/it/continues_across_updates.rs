//! Weights change in the middle of responses: what was sampled before has the old probabilities, and everything after
//! follows from all tokens under the new weights. A cache that mixes both would go unnoticed in training.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lis_policy::{
    Architecture, CudaGraphs, Engine, EngineSettings, LoraConfig, Network, PrefixSharing, Shape,
};
use sampling::{Flow, SampleRequest, Sampled, SamplingParams, Until};
use tch::{Device, Kind, Tensor};

use crate::{
    needs,
    samples::{GREEDY, close, net, prompt, request, sampled, scored, shape, wait},
};

/// Tokens of every response after the update.
const MORE: usize = 30;

fn engine(net: &Network, slots: usize, prefix_sharing: PrefixSharing) -> Engine {
    let settings = EngineSettings {
        slots,
        context: 4000,
        cuda_graphs: CudaGraphs::Auto,
        memory_limit: None,
        prefix_sharing,
    };
    Engine::start(net, settings).unwrap()
}

fn random(seed: u64) -> SamplingParams {
    SamplingParams { temperature: 1.0, seed, ..GREEDY }
}

/// Changes all trained weights in place, so much that every probability changes.
fn change(net: &Network, height: f64) {
    tch::no_grad(|| {
        for (_, mut tensor) in net.trainable() {
            let ramp = Tensor::arange(tensor.numel() as i64, (Kind::Float, Device::Cpu))
                .view(tensor.size().as_slice());
            let noise = ((ramp * 1.3).sin() * height).to_device(tensor.device());
            let _ = tensor.f_add_(&noise.to_kind(tensor.kind())).unwrap();
        }
    });
}

/// Samples all requests at once, and updates the weights once each response has some tokens. All go on for some tokens
/// more.
fn across(engine: &Engine, requests: Vec<SampleRequest>, update: impl FnOnce()) -> Vec<Sampled> {
    let updated = Arc::new(AtomicBool::new(false));
    let until = || -> Until {
        let (updated, mut left) = (Arc::clone(&updated), MORE);
        Box::new(move |_| {
            left -= usize::from(updated.load(Ordering::SeqCst));
            if left == 0 { Flow::Stop } else { Flow::Continue }
        })
    };
    let wanted = engine.stats().sampled_tokens + 20 * requests.len() as u64;
    let responses: Vec<_> = requests
        .into_iter()
        .map(|request| engine.sample(SampleRequest { until: Some(until()), ..request }))
        .collect();
    sampled_at_least(engine, wanted);
    update();
    updated.store(true, Ordering::SeqCst);
    responses.into_iter().map(|response| wait(response).unwrap()).collect()
}

fn sampled_at_least(engine: &Engine, tokens: u64) {
    let begun = Instant::now();
    while engine.stats().sampled_tokens < tokens {
        assert!(begun.elapsed() < Duration::from_secs(60), "sampling does not continue");
        std::thread::yield_now();
    }
}

/// Checks a response that began with the old weights, and returns the number of tokens before the update.
fn check(
    response: &Sampled,
    prompt: &[u32],
    (old, new): (&Network, &Network),
    tolerance: f32,
) -> usize {
    let Sampled { tokens, logprobs, versions, .. } = response;
    assert_eq!(tokens.len(), versions.len());
    let before = versions.partition_point(|version| *version == 0);
    assert!(versions[before..].iter().all(|version| *version == 1), "{versions:?}");
    let (of_old, of_new) = (scored(old, prompt, tokens, 1.0), scored(new, prompt, tokens, 1.0));
    close(&logprobs[..before], &of_old[..before], tolerance);
    close(&logprobs[before..], &of_new[before..], tolerance);
    let moved = of_old[before..].iter().zip(&of_new[before..]).map(|(old, new)| (old - new).abs());
    assert!(moved.fold(0.0, f32::max) > 4.0 * tolerance, "the change was too small to show");
    before
}

#[test]
fn a_response_continues_with_the_new_weights_after_all_its_tokens() {
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        let (old, live) = (net(architecture), net(architecture));
        let engine = engine(&live, 3, PrefixSharing::Off);
        // The last is as short as what is evaluated token by token.
        let prompts = [prompt(1, 40), prompt(2, 700), prompt(3, 3)];
        let requests = (0..).zip(&prompts);
        let requests = requests.map(|(n, tokens)| request(n, tokens, 3000, random(n))).collect();
        let responses = across(&engine, requests, || {
            engine.hold().unwrap();
            let held = engine.stats().sampled_tokens;
            change(&live, 0.05);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(engine.stats().sampled_tokens, held, "the weights changed under a step");
            engine.refresh(&live).unwrap();
        });
        assert_eq!(engine.version(), 1);
        for (response, tokens) in responses.iter().zip(&prompts) {
            let before = check(response, tokens, (&old, &live), 1e-4);
            assert!(before > 0 && response.tokens.len() >= before + MORE);
        }
        let prompts: usize = prompts.iter().map(Vec::len).sum();
        assert_eq!(engine.stats().prompt_tokens, prompts as u64, "each is counted once");
    }
}

#[test]
fn responses_with_a_common_prefix_share_none_of_it_with_the_old_weights() {
    let (old, live) = (net(Architecture::Qwen2), net(Architecture::Qwen2));
    let engine = engine(&live, 4, PrefixSharing::On);
    let begin = prompt(5, 300);
    let prompts: Vec<Vec<u32>> =
        (0..4).map(|own| [begin.clone(), prompt(own, 20)].concat()).collect();
    let requests = (0..).zip(&prompts);
    let requests = requests.map(|(n, tokens)| request(n, tokens, 3000, random(n))).collect();
    let responses = across(&engine, requests, || {
        engine.hold().unwrap();
        change(&live, 0.05);
        engine.refresh(&live).unwrap();
    });
    for (response, tokens) in responses.iter().zip(&prompts) {
        check(response, tokens, (&old, &live), 1e-3);
    }
    let read = engine.stats().prompt_tokens;
    assert!(read < 300 + 4 * 30, "{read} tokens were evaluated");
}

#[test]
fn conversations_between_turns_or_evicted_are_evaluated_again() {
    let (old, live) = (net(Architecture::Qwen3), net(Architecture::Qwen3));
    let engine = engine(&live, 3, PrefixSharing::Off);
    // The first conversation loses its slot to the fourth.
    let second: Vec<Vec<u32>> = (0..4)
        .map(|n: u32| {
            let tokens = prompt(n, 50);
            let first = sampled(&engine, request(u64::from(n), &tokens, 12, random(7)));
            assert_eq!(first.versions, [0; 12]);
            [tokens, first.tokens, prompt(9, 15)].concat()
        })
        .collect();
    assert_eq!(engine.stats().cached_conversations, 3);
    let next = |n: u64| engine.sample(request(n, &second[n as usize], 12, random(1)));
    let mut waiting = None;
    let responses = across(&engine, vec![request(3, &second[3], 3000, random(3))], || {
        engine.hold().unwrap();
        waiting = Some([2, 0].map(next));
        change(&live, 0.05);
        engine.refresh(&live).unwrap();
    });
    check(&responses[0], &second[3], (&old, &live), 1e-4);
    let [between_turns, evicted] = waiting.unwrap().map(|response| wait(response).unwrap());
    for (response, n) in [(between_turns, 2), (evicted, 0), (wait(next(1)).unwrap(), 1)] {
        assert_eq!(check(&response, &second[n], (&old, &live), 1e-4), 0, "all of it is new");
    }
}

#[test]
fn an_adapter_counts_from_the_refresh_on_however_long_it_has_been_trained() {
    let adapted = || {
        let mut net = net(Architecture::Llama);
        let targets = lis_policy::TARGETS.to_vec();
        net.add_lora(&LoraConfig { rank: 4, alpha: 8.0, targets, seed: 1 }).unwrap();
        change(&net, 0.02);
        net
    };
    let (old, live) = (adapted(), adapted());
    let engine = engine(&live, 1, PrefixSharing::Off);
    let tokens = prompt(1, 40);
    let responses = across(&engine, vec![request(1, &tokens, 3000, random(1))], || {
        let before = engine.stats().sampled_tokens;
        engine.prepare_update().unwrap();
        change(&live, 0.1);
        // The engine has a copy, so it need not be held while the adapter is trained.
        sampled_at_least(&engine, before + 20);
        engine.refresh(&live).unwrap();
    });
    assert!(check(&responses[0], &tokens, (&old, &live), 1e-4) >= 40);
    // Another network with the same shape is an update too.
    let other = adapted();
    engine.refresh(&other).unwrap();
    let response = sampled(&engine, request(1, &tokens, 12, random(1)));
    assert_eq!(response.versions, [2; 12]);
    close(&response.logprobs, &scored(&old, &tokens, &response.tokens, 1.0), 1e-4);
}

#[test]
fn our_own_kernels_continue_with_the_new_weights() {
    if !needs::has_cuda() {
        return;
    }
    for rank in [0, 4] {
        let build = || {
            let sizes = Shape { heads: 4, kv_heads: 2, head_dim: 64, ..shape(Architecture::Qwen2) };
            let mut net = Network::random(sizes, 11, Device::Cuda(0), Kind::BFloat16).unwrap();
            if rank > 0 {
                let targets = lis_policy::TARGETS.to_vec();
                net.add_lora(&LoraConfig { rank, alpha: 8.0, targets, seed: 1 }).unwrap();
            }
            change(&net, 0.05);
            net
        };
        let (old, live) = (build(), build());
        let engine = engine(&live, 6, PrefixSharing::On);
        assert_eq!(engine.kernels_disabled_reason(), None);
        let begin = prompt(5, 300);
        let prompts: Vec<Vec<u32>> =
            (0..6).map(|own| [begin.clone(), prompt(own, 20)].concat()).collect();
        let requests = (0..).zip(&prompts);
        let requests = requests.map(|(n, tokens)| request(n, tokens, 3000, random(n))).collect();
        let responses = across(&engine, requests, || {
            engine.prepare_update().unwrap();
            let before = engine.stats().sampled_tokens;
            sampled_at_least(&engine, before + 60);
            engine.hold().unwrap();
            change(&live, 0.5);
            engine.refresh(&live).unwrap();
        });
        for (response, tokens) in responses.iter().zip(&prompts) {
            // Weights changed so much give large logits, which 16 bits round by more than a tenth.
            assert!(check(response, tokens, (&old, &live), 0.3) > 0);
        }
        assert!(engine.stats().replayed_steps > 20);
    }
}
