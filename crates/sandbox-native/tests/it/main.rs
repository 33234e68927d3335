//! The native runtime against everything a sandbox guarantees, over a real kernel.
//!
//! Reads `LIS_TEST_ROOTFS` (a directory with a root file system); without it, the tests that need an
//! image of its own are skipped visibly.
#![cfg(target_os = "linux")]

mod security;
mod slow_reader;
mod support;

mod on_a_directory {
    sandbox_conformance::conformance_suite!(crate::support::on_a_directory);
}

mod on_the_host {
    sandbox_conformance::conformance_suite!(crate::support::on_the_host);
}
