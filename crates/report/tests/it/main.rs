//! What a reader of reports relies on: right numbers, the same each time, from any directory, however hostile.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agrees_with_the_oracle;
mod claims_no_more_than_it_knows;
mod compares_runs;
mod fabricate;
mod finds_true_effects;
mod reads_runs;
mod renders_episodes;
mod renders_reports;
mod shows_episodes_side_by_side;
mod shows_hostile_texts;
