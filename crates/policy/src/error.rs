//! What libtorch answers when it refuses: an error, never a panic, so that a caller can make room and try again.
//! Refuses to know what the caller was doing.

use tch::TchError;

/// What an operation on tensors gives.
pub type Fallible<T> = Result<T, TchError>;

/// Whether the memory of the device did not suffice, so that less at a time may work.
pub fn out_of_memory(error: &TchError) -> bool {
    let TchError::Torch(text) = error else { return false };
    let signs = [
        "out of memory",
        "can't allocate memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        // Its own memory is taken when it is first used, which may be late.
        "CUBLAS_STATUS_NOT_INITIALIZED",
    ];
    signs.iter().any(|sign| text.contains(sign))
}
