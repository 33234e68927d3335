//! How the values of a tensor are stored. Reading them is in `dequantize`.

/// A storage type of tensors, llama.cpp's `ggml_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is llama.cpp's own name")]
#[expect(non_camel_case_types, reason = "each variant is llama.cpp's own name")]
pub enum TensorType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    /// A type that this crate cannot read, by its code.
    Other(u32),
}

const CODES: [(u32, TensorType); 13] = [
    (0, TensorType::F32),
    (1, TensorType::F16),
    (2, TensorType::Q4_0),
    (3, TensorType::Q4_1),
    (6, TensorType::Q5_0),
    (7, TensorType::Q5_1),
    (8, TensorType::Q8_0),
    (10, TensorType::Q2_K),
    (11, TensorType::Q3_K),
    (12, TensorType::Q4_K),
    (13, TensorType::Q5_K),
    (14, TensorType::Q6_K),
    (30, TensorType::Bf16),
];

/// The block of a type: values that share scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) values: u64,
    pub(crate) bytes: u64,
}

impl TensorType {
    /// The type with this code in a file.
    pub fn from_code(code: u32) -> Self {
        CODES
            .iter()
            .find(|(known, _)| *known == code)
            .map_or(Self::Other(code), |(_, known)| *known)
    }

    /// Its code in a file.
    pub fn code(self) -> u32 {
        match self {
            Self::Other(code) => code,
            known => {
                CODES.iter().find(|(_, each)| *each == known).map_or(u32::MAX, |(code, _)| *code)
            }
        }
    }

    /// Its block; none for a type that cannot be read.
    pub(crate) fn block(self) -> Option<Block> {
        let (values, bytes) = match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2_K => (256, 84),
            Self::Q3_K => (256, 110),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
            Self::Other(_) => return None,
        };
        Some(Block { values, bytes })
    }
}
