//! Whole episodes, groups of them and demonstrations, with a scripted sampler in real sandboxes.

mod support;
