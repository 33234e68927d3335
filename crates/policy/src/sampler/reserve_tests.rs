//! Pages are taken from younger responses only, nobody who has a page in a step loses it, and every response ends.

use tokio::sync::oneshot;

use super::{
    super::{CudaGraphs, PrefixSharing, pages::pages_of, store::tests as stores},
    *,
};
use crate::{
    kernels::PAGE,
    perf::{CheckSettings, Memory},
};
use sampling::{SampleRequest, Sampled, SamplingParams};

type Response = oneshot::Receiver<Result<Sampled, SampleError>>;

/// A slot with a prompt of this many tokens, of which the first `cached` were evaluated.
fn slot(begun: u64, prompt: usize, cached: usize, max_tokens: usize) -> (Slot, Response) {
    let mut slot = Slot::default();
    let (to, response) = oneshot::channel();
    let params = SamplingParams { temperature: 0.0, top_p: 1.0, top_k: None, seed: 0 };
    let ask = SampleRequest {
        conversation: begun,
        tokens: (0..prompt as u32).collect(),
        max_tokens,
        params,
        stop_tokens: Vec::new(),
        until: None,
    };
    slot.begin(ask, to, 10_000, false);
    slot.take_pending(cached);
    slot.begun = begun;
    (slot, response)
}

/// Slots of [`slot`], whose cached tokens have pages.
fn slots(store: &mut PageStore, all: &[(u64, usize, usize)]) -> (Vec<Slot>, Vec<Response>) {
    let made = all.iter().map(|&(begun, prompt, cached)| slot(begun, prompt, cached, 500));
    let (slots, responses): (Vec<Slot>, Vec<Response>) = made.unzip();
    for (index, slot) in slots.iter().enumerate() {
        assert!(store.reserve(index, 0, slot.tokens.len(), 0).unwrap());
    }
    (slots, responses)
}

/// What must hold after every reservation: a slot has pages for exactly what it has evaluated and is about to.
fn check<T>(store: &PageStore, slots: &[Slot], reserved: &[(usize, T)], tokens: fn(&T) -> usize) {
    let mut written = Vec::new();
    for (index, what) in reserved {
        let (begin, end) = (slots[*index].tokens.len(), slots[*index].tokens.len() + tokens(what));
        let pages = stores::pages(store, *index);
        assert!(pages.len() >= end.div_ceil(PAGE), "slot {index} has too few pages");
        written.extend((begin / PAGE..end.div_ceil(PAGE)).map(|page| pages[page]));
    }
    let all = written.len();
    written.sort_unstable();
    written.dedup();
    assert_eq!(written.len(), all, "two slots write to one page");
    for (index, slot) in slots.iter().enumerate() {
        let pages = stores::pages(store, index).len();
        assert!(pages >= slot.tokens.len().div_ceil(PAGE), "slot {index} lost a page");
    }
}

fn chosen<T>(reserved: &Reserved<T>) -> Vec<usize> {
    reserved.chosen.iter().map(|(index, _)| *index).collect()
}

#[test]
fn a_short_response_never_takes_the_page_of_an_older_one() {
    // All four pages are taken, and the oldest response needs a fifth.
    let mut store = stores::store(3, 3 * PAGE, 4, 1);
    let all = [(1, 2 * PAGE + 1, 2 * PAGE), (2, 8, 7), (3, 5, 4)];
    let (mut slots, _responses) = slots(&mut store, &all);
    let reserved = decode(&mut store, &mut slots).unwrap();
    check(&store, &slots, &reserved.chosen, |_| 1);
    assert_eq!((chosen(&reserved), reserved.evictions), (vec![0, 1], 1));
    assert_eq!(
        slots[2].tokens.len(),
        0,
        "the youngest is evicted, and still has few tokens pending"
    );
    assert_eq!(slots[2].pending(), 5);
    // Nor does it later, when it is evaluated again.
    slots[0].take_pending(1);
    slots[1].take_pending(1);
    slots[0].push_token(1, -1.0, 0);
    slots[1].push_token(1, -1.0, 0);
    let reserved = decode(&mut store, &mut slots).unwrap();
    check(&store, &slots, &reserved.chosen, |_| 1);
    assert_eq!((chosen(&reserved), reserved.evictions), (vec![0, 1], 0));
}

#[test]
fn an_older_response_that_is_prefilling_keeps_its_pages() {
    let mut store = stores::store(2, 3 * PAGE, 4, 1);
    // The older one has three pages and needs none, the younger one needs a second.
    let all = [(2, PAGE + 1, PAGE), (1, 3 * PAGE, 2 * PAGE + 5)];
    let (mut slots, _responses) = slots(&mut store, &all);
    let reserved = decode(&mut store, &mut slots).unwrap();
    assert_eq!((chosen(&reserved), reserved.evictions), (vec![], 0), "it waits");
    let reserved = prefill(&mut store, &mut slots, &[], 1000).unwrap();
    check(&store, &slots, &reserved.chosen, |tokens| *tokens);
    assert_eq!((chosen(&reserved), reserved.evictions), (vec![1], 0));
}

#[test]
fn memory_is_given_back_where_most_of_it_is_of_conversations_that_have_ended() {
    let mut store = stores::store(4, 3 * PAGE, 12, 1);
    let all = [(1, 3 * PAGE, 3 * PAGE - 1), (2, 40, 39), (3, 3 * PAGE, 9), (4, 2 * PAGE, PAGE)];
    let (mut slots, _responses) = slots(&mut store, &all);
    let has_pages = |store: &PageStore| [0, 1, 2, 3].map(|slot| store.has_pages(slot));
    // One has ended, and another is between turns: most pages are in use.
    slots[3].running = None;
    slots[3].release();
    slots[1].running = None;
    give_back(&mut store, &mut slots);
    assert_eq!(has_pages(&store), [true, true, true, false]);
    assert_eq!((slots[0].tokens.len(), slots[1].tokens.len()), (3 * PAGE - 1, 39));
    // The largest ends. A conversation that is released while its response is sampled is not lost.
    slots[0].running = None;
    slots[0].release();
    slots[2].release();
    give_back(&mut store, &mut slots);
    assert_eq!((has_pages(&store), stores::available(&store)), ([false; 4], 12));
    assert_eq!((slots[1].tokens.len(), slots[2].tokens.len()), (0, 0));
    assert_eq!(slots[2].pending(), 3 * PAGE, "all of it is evaluated again");
}

#[test]
fn idle_conversations_go_first() {
    let mut store = stores::store(3, 2 * PAGE, 3, 1);
    let all = [(1, PAGE + 1, PAGE), (2, PAGE, PAGE - 1), (3, PAGE, PAGE - 1)];
    let (mut slots, _responses) = slots(&mut store, &all);
    slots[1].running = None;
    let reserved = decode(&mut store, &mut slots).unwrap();
    assert_eq!((chosen(&reserved), reserved.evictions), (vec![0, 2], 0));
    assert!(slots[1].tokens.is_empty() && !store.has_pages(1));
}

#[test]
fn what_was_evicted_waits_until_the_others_have_room_to_grow() {
    let mut store = stores::store(3, 4 * PAGE, 5, 1);
    let all = [(1, PAGE, PAGE - 1), (2, PAGE, PAGE - 1), (3, 2 * PAGE, 0)];
    let (mut slots, _responses) = slots(&mut store, &all);
    let reserved = prefill(&mut store, &mut slots, &[], 1000).unwrap();
    assert!(chosen(&reserved).is_empty(), "the two older ones are about to need a page each");
    slots[0].running = None;
    let reserved = prefill(&mut store, &mut slots, &[], 1000).unwrap();
    assert_eq!(chosen(&reserved), [2]);
}

#[test]
fn the_oldest_text_is_read_first_and_the_shortest_next() {
    let mut store = stores::store(4, 4 * PAGE, 100, 10);
    let all = [(4, 30, 0), (3, 20, 0), (1, 50, 0), (2, 10, 0)];
    let (mut slots, _responses) = slots(&mut store, &all);
    let reserved = prefill(&mut store, &mut slots, &[true, false, true, false], 65).unwrap();
    assert_eq!(reserved.chosen, [(2, 50), (3, 10), (1, 5)]);
}

#[test]
fn one_that_fits_nowhere_fails_alone() {
    // The device has memory for three pages, though sequences may have eight.
    let mut store = stores::store(2, 8 * PAGE, 20, 1);
    let all = [(1, 5 * PAGE, 0), (2, PAGE, PAGE - 1)];
    stores::with_memory(&mut store, 3);
    let (mut slots, mut responses) = slots(&mut store, &all);
    let reserved = prefill(&mut store, &mut slots, &[], 1000).unwrap();
    assert_eq!(reserved.evictions, 1, "everything was tried");
    let failed = responses[0].try_recv().unwrap().unwrap_err();
    let cause = std::error::Error::source(&failed).unwrap().to_string();
    assert!(cause.contains("out of memory"), "{cause}");
    let reserved = prefill(&mut store, &mut slots, &[], 1000).unwrap();
    assert_eq!(chosen(&reserved), [1], "the other one continues");
    assert!(responses[1].try_recv().is_err());
}

/// Samples responses of these lengths (prompt, response) with so many slots and pages, as the sampler's thread does, until
/// all have ended. Returns the evictions and the evaluated tokens.
fn simulate(
    slots: usize,
    pages: usize,
    chunk: usize,
    context: usize,
    all: &[(usize, usize)],
) -> (u64, usize) {
    let mut store = stores::store(slots, context, pages, chunk);
    let mut slots: Vec<Slot> = (0..slots).map(|_| Slot::default()).collect();
    let (mut waiting, mut responses) = ((1..).zip(all), Vec::new());
    let (mut evictions, mut evaluated, mut steps) = (0, 0, 0);
    let mut advance = |slots: &mut Vec<Slot>, index: usize, tokens: usize| {
        evaluated += tokens;
        let slot = &mut slots[index];
        slot.take_pending(tokens);
        if slot.pending() == 0 {
            slot.push_token(7, -1.0, 0);
        }
    };
    loop {
        for free in slots.iter_mut().filter(|slot| slot.running.is_none()) {
            let Some((begun, &(prompt, response))) = waiting.next() else { break };
            let (begun, response) = slot(begun, prompt, 0, response);
            *free = begun;
            responses.push(response);
        }
        let running = |slots: &[Slot], at: usize| slots[at].running.is_some();
        let oldest =
            (0..slots.len()).filter(|at| running(&slots, *at)).min_by_key(|at| slots[*at].begun);
        let Some(oldest) = oldest else { break };
        let before = slots[oldest].tokens.len();
        steps += 1;
        assert!(steps < 100_000, "it never ends");
        let reserved = prefill(&mut store, &mut slots, &[], 300).unwrap();
        check(&store, &slots, &reserved.chosen, |tokens| *tokens);
        evictions += reserved.evictions;
        for (index, tokens) in reserved.chosen {
            advance(&mut slots, index, tokens);
        }
        let reserved = decode(&mut store, &mut slots).unwrap();
        check(&store, &slots, &reserved.chosen, |_| 1);
        evictions += reserved.evictions;
        for (index, _) in reserved.chosen {
            advance(&mut slots, index, 1);
        }
        let advanced = slots[oldest].tokens.len() > before;
        assert!(advanced || !running(&slots, oldest), "the oldest response did not advance");
    }
    assert_eq!(responses.len(), all.len());
    for (response, (_, length)) in responses.iter_mut().zip(all) {
        assert_eq!(response.try_recv().unwrap().unwrap().tokens.len(), *length);
    }
    (evictions, evaluated)
}

#[test]
fn every_response_ends_and_little_is_evaluated_twice() {
    let short: Vec<(usize, usize)> = (0..12).map(|n| (1 + n % 8, 60 + 17 * n)).collect();
    let long: Vec<(usize, usize)> = (0..9).map(|n| (40 + 53 * n, 300 - 20 * n)).collect();
    let mixed: Vec<(usize, usize)> = short.iter().zip(&long).flat_map(|(a, b)| [*a, *b]).collect();
    for all in [short, long, mixed] {
        let context = all.iter().map(|(prompt, response)| prompt + response).max().unwrap();
        let needed: usize = all.iter().map(|(prompt, response)| prompt + response - 1).sum();
        for (pages, chunk) in [(1, 1), (9, 1), (9, 3), (12, 4), (16, 1), (200, 10)] {
            let (evictions, evaluated) = simulate(all.len(), pages, chunk, context, &all);
            assert!(evaluated < 2 * needed, "{pages} pages: {evaluated} of {needed} tokens");
            assert_eq!(pages == 200, evictions == 0, "{pages} pages");
            assert!(pages != 200 || evaluated == needed);
        }
    }
}

#[test]
fn two_responses_do_not_evict_each_other_in_turn() {
    // Together they need 20 pages of 11: one has to wait for the other.
    let (evictions, evaluated) = simulate(2, 11, 1, 10 * PAGE, &[(300, 340), (300, 340)]);
    assert!(evictions <= 1, "{evictions}");
    assert!(evaluated < 2 * 639 + 640, "{evaluated}");
}

/// The integration tests of the kernels need a GPU; that their sizes evict responses does not.
#[test]
fn the_tests_on_a_gpu_evict() {
    let settings = CheckSettings {
        conversations: 20,
        slots: 8,
        context: 500,
        prompt: 60,
        turns: 1,
        tokens: 250,
        cuda_graphs: CudaGraphs::Auto,
        prefix_sharing: PrefixSharing::Off,
        memory: Memory::Scarce,
    };
    let short = CheckSettings { conversations: 12, prompt: 8, ..settings };
    for (settings, sequences) in [(settings, 1), (settings, 2), (short, 1)] {
        let all: Vec<(usize, usize)> = (0..settings.conversations)
            .map(|row| (settings.prompt_length(row), settings.response_length(row, 0)))
            .collect();
        let pages = sequences * (pages_of(settings.context) + 1);
        let (evictions, _) = simulate(settings.slots, pages, pages, settings.context, &all);
        assert!(evictions > 0, "{settings:?} with {pages} pages");
    }
}
