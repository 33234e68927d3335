//! The native runtime on a real kernel: the conformance suite, attacks, and failures.
//!
//! Without `LIS_TEST_ROOTFS`, a directory with a root file system, the tests that need one are skipped visibly.
#![cfg(target_os = "linux")]

mod mirror;
mod mounts_stay_apart;
mod reaches_public_servers;
mod remote;
mod security;
mod slow_reader;
mod spawner_fails;
mod support;

mod on_a_directory {
    sandbox_conformance::conformance_suite!(crate::support::on_a_directory);
}

mod on_the_host {
    sandbox_conformance::conformance_suite!(crate::support::on_the_host);
}
