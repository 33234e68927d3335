//! Prices are found under the names a model goes by, and under no others.

use proptest::prelude::*;

use super::*;

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs()).max(1e-12)
}

#[test]
fn the_table_that_comes_along_can_be_read() {
    let prices = Prices::parse(TABLE).unwrap();
    assert_eq!(prices, Prices::embedded());
    assert!(is_date(prices.as_of().unwrap()));
    assert!(prices.models.len() > 100);
    for (name, Entry { price, context, .. }) in &prices.models {
        let price = price.unwrap_or_else(|| panic!("{name} has no price"));
        assert!(price.cached <= price.input && price.input <= price.output, "{name}");
        assert!(price.cache_write >= price.input && price.output < 1000.0, "{name}");
        assert!(context.is_none_or(|tokens| (4096..10_000_000).contains(&tokens)), "{name}");
    }
}

#[test]
fn each_kind_of_token_has_its_price() {
    let price = Price { input: 3.0, cached: 0.3, cache_write: 3.75, output: 15.0 };
    let usage = Usage {
        input: 1_000_000,
        cached: 600_000,
        cache_writes: 100_000,
        output: 20_000,
        reasoning: 15_000,
        estimated: false,
    };
    assert!(close(price.cost(&usage), 0.3 * 3.0 + 0.6 * 0.3 + 0.1 * 3.75 + 0.02 * 15.0));
    assert_eq!(price.cost(&Usage::default()), 0.0);
}

#[test]
fn a_model_is_known_by_every_name_it_goes_by() {
    let prices = Prices::embedded();
    let known = [
        ("gpt-4o", 2.5),
        ("gpt-4o-2024-08-06", 2.5),
        ("gpt-4o-2024-05-13", 5.0),
        ("openai/gpt-4o-2024-08-06", 2.5),
        ("gpt-4o-mini", 0.15),
        ("openrouter/openai/gpt-4o-mini-2024-07-18", 0.15),
        ("claude-sonnet-4-5-20250929", 3.0),
        ("claude-sonnet-4-5@20250929", 3.0),
        ("claude-opus-4-20250514", 15.0),
        ("anthropic/claude-3-7-sonnet-latest", 3.0),
        ("models/gemini-2.5-flash", 0.3),
        (" gpt-4.1 ", 2.0),
    ];
    for (name, input) in known {
        assert_eq!(prices.price(name).map(|price| price.input), Some(input), "{name}");
    }
}

#[test]
fn a_resemblance_is_no_price() {
    let prices = Prices::embedded();
    let unknown = [
        "",
        "/",
        "openai/",
        "gpt",
        "gpt-4o-",
        "gpt-4o-audio-preview",
        "gpt-4o-mini-tts",
        "gpt-4o:free",
        "GPT-4o",
        "me/gpt-4o",
        "openai/me/gpt-4o",
        "gpt-4o-2024-13-01",
        "gpt-4o-2024-08-32",
        "gpt-4o-19991231",
        "gpt-4o-20240806-x",
        "gpt-4o20240806",
        "-20240806",
        "20240806",
        "-latest",
        "gpt-4o-2024-08-0é",
        "é-20240806",
        "gpt-4o-２0240806",
        "gpt-4o-0806",
        "claude-sonnet-4-5-v1:0",
    ];
    for name in unknown {
        assert_eq!(prices.price(name), None, "{name}");
        assert_eq!(prices.accepts_images(name), None, "{name}");
    }
}

#[test]
fn pictures_and_context_are_known_too() {
    let prices = Prices::embedded();
    assert_eq!(prices.accepts_images("openai/gpt-4o-mini"), Some(true));
    assert_eq!(prices.accepts_images("o3-mini-2025-01-31"), Some(false));
    assert_eq!(prices.context("claude-haiku-4-5-20251001"), Some(200_000));
    assert_eq!(prices.context("somebody-elses-model"), None);
}

#[test]
fn a_users_table_counts_and_what_it_leaves_out_stays() {
    let mut prices = Prices::embedded();
    let own = r#"{"models": {
        "gpt-4o": {"input": 1, "output": 2},
        "gpt-4.1": {"images": false},
        "my/model": {"input": 0.5, "cached": 0.1, "output": 1, "context": 32768}}}"#;
    prices.merge(Prices::parse(own).unwrap());
    let flat = Price { input: 1.0, cached: 1.0, cache_write: 1.0, output: 2.0 };
    assert_eq!(prices.price("gpt-4o-2024-11-20"), Some(flat));
    assert_eq!(prices.accepts_images("gpt-4o"), Some(true));
    assert_eq!(prices.accepts_images("gpt-4.1"), Some(false));
    assert_eq!(prices.price("gpt-4.1").unwrap().output, 8.0);
    assert_eq!(prices.context("my/model"), Some(32_768));
    assert_eq!(prices.price("my/model").unwrap().cached, 0.1);
    assert!(prices.as_of().is_some());
}

#[test]
fn a_date_of_its_own_may_hold_what_the_model_lacks() {
    let mut prices = Prices::embedded();
    prices.merge(Prices::parse(r#"{"models": {"gpt-4o-2024-08-06": {"images": false}}}"#).unwrap());
    assert_eq!(prices.accepts_images("gpt-4o-2024-08-06"), Some(false));
    assert_eq!(prices.price("gpt-4o-2024-08-06"), prices.price("gpt-4o"));
}

#[test]
fn a_bad_table_is_refused() {
    let refused = |text: &str| Prices::parse(text).expect_err(text);
    for text in [
        "",
        "[]",
        "{}",
        r#"{"models": {"a": {"inptu": 1}}}"#,
        r#"{"models": {"a": {"input": "1"}}}"#,
    ] {
        assert!(matches!(refused(text), PriceError::Format(_)), "{text}");
    }
    let negative = refused(r#"{"models": {"a": {"input": 1, "output": -1}}}"#);
    assert!(matches!(negative, PriceError::Amount(name) if name == "a"));
    for text in [r#"{"models": {"a": {"input": 1}}}"#, r#"{"models": {"a": {"cached": 1}}}"#] {
        assert!(matches!(refused(text), PriceError::Half(name) if name == "a"), "{text}");
    }
}

proptest! {
    #[test]
    fn no_server_makes_a_cost_absurd(figures in any::<[u64; 5]>(), amounts in prop::array::uniform4(0.0..1000.0)) {
        let [input, cached, cache_writes, output, reasoning] = figures;
        let usage = Usage { input, cached, cache_writes, output, reasoning, estimated: false };
        let [input, cached, cache_write, output] = amounts;
        let price = Price { input, cached, cache_write, output };
        let cost = price.cost(&usage);
        let dearest = input.max(cached).max(cache_write);
        let most = (usage.input as f64 * dearest + usage.output as f64 * output) / MILLION;
        prop_assert!(cost.is_finite() && cost >= 0.0 && cost <= most * 1.000_001);
    }

    #[test]
    fn no_name_is_too_strange_to_look_up(name in any::<String>()) {
        let prices = Prices::embedded();
        if let Some(price) = prices.price(&name) {
            prop_assert_eq!(prices.price(&format!("openai/{name}")), Some(price));
        }
    }

    #[test]
    fn dates_and_vendors_change_nothing(
        vendor in prop::sample::select(VENDORS.to_vec()),
        year in 2020..2030, month in 1..13, day in 1..32,
        at in any::<prop::sample::Index>(),
    ) {
        let prices = Prices::embedded();
        let names: Vec<&String> = prices.models.keys().collect();
        let name = names[at.index(names.len())];
        // A name that ends in a date already has only that one.
        prop_assume!(without_date(name).is_none());
        let price = prices.price(name);
        for dated in [format!("{vendor}/{name}-{year}{month:02}{day:02}"), format!("{name}-{year}-{month:02}-{day:02}")] {
            // Some dates have a price of their own.
            prop_assume!(!prices.models.contains_key(&dated));
            prop_assert_eq!(prices.price(&dated), price, "{}", dated);
        }
        prop_assert_eq!(prices.price(&format!("{name}-mini-x")), None);
    }
}
