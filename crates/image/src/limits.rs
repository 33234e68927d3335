//! Limits on what an image may store. Plain data.

/// Limits on images from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one layer, uncompressed, as a tar stream; stops decompression bombs.
    pub layer_bytes: u64,
    /// Entries of one layer.
    pub layer_entries: u64,
    /// Layers of one image; overlayfs stacks at most 500.
    pub layers: usize,
    /// Bytes of all compressed layers of one image together.
    pub download_bytes: u64,
    /// Bytes to leave free on the file system of the store. Default: 1 GiB, or a hundredth of the file system if that is
    /// less.
    pub reserve: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            layer_bytes: 64 << 30,
            layer_entries: 4_000_000,
            layers: 200,
            download_bytes: 64 << 30,
            reserve: None,
        }
    }
}
