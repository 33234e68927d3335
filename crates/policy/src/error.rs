//! Errors of libtorch: returned, never a panic, so that a caller can retry with less memory.

use tch::TchError;

/// The result of a tensor operation.
pub type TchResult<T> = Result<T, TchError>;

/// Whether the device ran out of memory. libtorch has no error codes, so this matches its messages.
pub fn out_of_memory(error: &TchError) -> bool {
    let TchError::Torch(text) = error else { return false };
    let signs = [
        "out of memory",
        "can't allocate memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        // cuBLAS allocates its workspace when it is first used.
        "CUBLAS_STATUS_NOT_INITIALIZED",
    ];
    signs.iter().any(|sign| text.contains(sign))
}
