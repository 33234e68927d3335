//! Gives memory back that a waiting process does not need: thousands of sandboxes wait at once.

use std::ffi::c_void;

use super::SingleThreaded;

/// Stack that is kept below the caller's frame: more than what the functions of this module use.
const KEPT_STACK: usize = 16 << 10;
/// Stack that is given back. The kernel keeps at least a mebibyte between the end of a stack and the next mapping, so the
/// range contains nothing else.
const STACK: usize = 512 << 10;

/// Gives back free heap, unused stack, and the page tables of the program's code, which is read again from the page cache
/// when it is needed. Takes some microseconds, and as much again once the process goes on.
pub(crate) fn release_memory(_: SingleThreaded) {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer and gives back only memory that the allocator has not handed out.
    unsafe {
        libc::malloc_trim(0);
    }
    release_stack();
    // SAFETY: the callback matches the type that the function expects, and uses no data.
    unsafe { libc::dl_iterate_phdr(Some(release_code), std::ptr::null_mut()) };
}

fn page_size() -> usize {
    // SAFETY: sysconf takes an integer and touches no memory of this process.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(64 << 10)
}

#[inline(never)]
fn release_stack() {
    let here = 0u8;
    let page = page_size();
    let end = (&raw const here).addr().saturating_sub(KEPT_STACK) / page * page;
    let begin = end.saturating_sub(STACK);
    // SAFETY: the process has one thread, so this is its initial stack, which grows down. What lies below the frame of the
    // innermost function is not in use; the call below needs far less than what is kept. Errors mean that the stack is
    // shorter, which changes nothing.
    unsafe {
        libc::madvise(std::ptr::without_provenance_mut(begin), end - begin, libc::MADV_DONTNEED);
    }
}

/// Called for each loaded object: forgets where the pages of its read-only segments are.
extern "C" fn release_code(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a valid description of a loaded object, whose headers stay loaded during the call.
    let (base, headers) = unsafe {
        let info = &*info;
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    let page = page_size();
    for header in headers {
        let is_code = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0;
        let begin = (base.wrapping_add(header.p_vaddr) as usize).next_multiple_of(page);
        let end = base.wrapping_add(header.p_vaddr).wrapping_add(header.p_filesz) as usize;
        let length = (end / page * page).saturating_sub(begin);
        if is_code && length > 0 {
            // SAFETY: the segment was mapped privately from a file and never was writable, so its pages are the file's, and
            // are read from it again. Of a file that is being executed no page can change.
            unsafe {
                libc::madvise(std::ptr::without_provenance_mut(begin), length, libc::MADV_DONTNEED);
            }
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that gives memory back goes on as before, with less of it.
    #[test]
    fn a_process_goes_on_with_less_memory() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap()
        };
        // SAFETY: this child of the test's process has one thread, starts none, and ends by `exit_now`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: as above.
            let Ok(single) = (unsafe { SingleThreaded::assert() }) else {
                super::super::exit_now(3)
            };
            let blocks: Vec<_> = (0..64).map(|i| vec![i as u8; 64 << 10]).collect();
            let kept = blocks[7].clone();
            drop(blocks);
            let before = resident();
            release_memory(single);
            let went_on = kept.iter().all(|byte| *byte == 7) && format!("{kept:?}").len() > 1000;
            let code = i32::from(!went_on) + if resident() + 2048 < before { 0 } else { 2 };
            super::super::exit_now(code)
        }
        let mut status = 0;
        // SAFETY: the pointer is valid for the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        // The status as a whole: a child that crashed has no exit code either.
        assert_eq!(status, 0);
    }
}
