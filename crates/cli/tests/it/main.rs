//! What a user of the command line sees, story by story: the real program, real sandboxes, real images.
//!
//! Reads `LIS_TEST_ROOTFS` (a directory with a root file system) and `LIS_TEST_IMAGE` (an image of the
//! daemon in `DOCKER_HOST`). A test that lacks something says `skip:`, and fails when `LIS_REQUIRE` names it.
#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests start the program and are told by the environment how they are run"
)]

mod accepts_the_reference;
mod benchmarks;
mod builds_images;
mod cancels_copies;
mod completes_commands;
mod copies_files;
mod diagnoses;
mod episodes;
mod fails_well;
mod follows_the_tutorial;
mod grades;
mod keeps_images;
mod keeps_models;
mod keeps_sandboxes;
mod keeps_secrets;
mod leaves_nothing_behind;
mod limits;
mod logs_requests;
mod makes_training_data;
mod measures_the_loop;
mod measures_the_server;
mod opens_a_shell;
mod reads_transcripts;
mod real_model;
mod refuses_bad_input;
mod replays;
mod reports;
mod resumes_a_run;
mod resumes_after_any_kill;
mod resumes_older_versions;
mod runs_a_command;
mod runs_the_examples;
mod serves_episodes;
mod serves_through_clock_jumps;
mod serves_through_faults;
mod serves_through_kills;
mod shows_nothing_hidden;
mod solves_a_task;
mod speaks_mcp;
mod stays_small;
mod support;
mod survives_kills;
mod trains;
mod uses_docker;
mod uses_slow_storage;
