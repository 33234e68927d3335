//! What is written down about episodes: it comes back as it was, and old files stay readable.
//!
//! A missing requirement of a test is printed on a line that starts with `skip:`; a name in `LIS_REQUIRE`
//! turns that into a failure.

#![expect(clippy::unwrap_used, reason = "a test that cannot read what it wrote has failed")]
#![expect(clippy::print_stdout, reason = "skips are said aloud")]

mod examples;
mod keeps_every_line;
mod loads_other_records;
mod reads_old_files;
mod records_an_episode;
mod remembers_the_conversation;
mod survives_hostile_files;
