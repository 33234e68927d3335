//! Which instructions libtorch uses on the CPU.
#![expect(unsafe_code, reason = "libtorch takes this setting from the environment alone")]

use std::fs;

/// Keeps oneDNN, which multiplies matrices of 16 bits on the CPU, from using AMX, unless `ONEDNN_MAX_CPU_ISA` is set.
/// Attention and matrix products of libtorch 2.11 configure the tiles of AMX independently: one releases what the other
/// takes for configured, and the process ends with an illegal instruction.
///
/// Takes effect at the start of a program only: it does nothing once there are threads, or after the first product.
pub fn disable_amx() {
    const KEEP: libc::c_int = 0;
    if !fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1) {
        return;
    }
    // SAFETY: both strings end with a zero and outlive the call, which copies them. This thread is the only one, so
    // nobody reads the environment meanwhile.
    unsafe { libc::setenv(c"ONEDNN_MAX_CPU_ISA".as_ptr(), c"AVX512_CORE_BF16".as_ptr(), KEEP) };
}
