//! How the numbers of a tensor are stored. Refuses to know how they are turned back; see `blocks`.

/// A kind of stored numbers, as llama.cpp numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is llama.cpp's own name")]
#[expect(non_camel_case_types, reason = "each variant is llama.cpp's own name")]
pub enum Kind {
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
    /// One that this crate cannot turn into numbers.
    Other(u32),
}

const CODES: [(u32, Kind); 13] = [
    (0, Kind::F32),
    (1, Kind::F16),
    (2, Kind::Q4_0),
    (3, Kind::Q4_1),
    (6, Kind::Q5_0),
    (7, Kind::Q5_1),
    (8, Kind::Q8_0),
    (10, Kind::Q2_K),
    (11, Kind::Q3_K),
    (12, Kind::Q4_K),
    (13, Kind::Q5_K),
    (14, Kind::Q6_K),
    (30, Kind::Bf16),
];

/// Numbers come in blocks that share scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) numbers: u64,
    pub(crate) bytes: u64,
}

impl Kind {
    /// The kind with this number in a file.
    pub fn from_code(code: u32) -> Self {
        CODES.iter().find(|(known, _)| *known == code).map_or(Self::Other(code), |(_, kind)| *kind)
    }

    /// Its number in a file.
    pub fn code(self) -> u32 {
        match self {
            Self::Other(code) => code,
            kind => {
                CODES.iter().find(|(_, known)| *known == kind).map_or(u32::MAX, |(code, _)| *code)
            }
        }
    }

    /// Its blocks, where they are known.
    pub(crate) fn block(self) -> Option<Block> {
        let (numbers, bytes) = match self {
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
        Some(Block { numbers, bytes })
    }
}
