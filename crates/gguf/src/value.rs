//! Metadata values. Does not know what any key means.

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is named after its type")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// A metadata array; its items have one type.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is named after its items' type")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
}

impl Value {
    /// A non-negative integer of any width.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::U64(value) => Some(value),
            Self::I8(value) => value.try_into().ok(),
            Self::I16(value) => value.try_into().ok(),
            Self::I32(value) => value.try_into().ok(),
            Self::I64(value) => value.try_into().ok(),
            _ => None,
        }
    }

    /// A floating-point number of either width.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(value) => Some(value.into()),
            Self::F64(value) => Some(value),
            _ => None,
        }
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// A string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// An array of strings.
    pub fn as_strings(&self) -> Option<&[String]> {
        match self {
            Self::Array(Array::String(texts)) => Some(texts),
            _ => None,
        }
    }

    /// An array of integers of any width, as `i64`; none if one does not fit.
    pub fn as_integers(&self) -> Option<Vec<i64>> {
        let Self::Array(array) = self else { return None };
        match array {
            Array::U8(items) => Some(items.iter().map(|&item| item.into()).collect()),
            Array::I8(items) => Some(items.iter().map(|&item| item.into()).collect()),
            Array::U16(items) => Some(items.iter().map(|&item| item.into()).collect()),
            Array::I16(items) => Some(items.iter().map(|&item| item.into()).collect()),
            Array::U32(items) => Some(items.iter().map(|&item| item.into()).collect()),
            Array::I32(items) => Some(items.iter().map(|&item| item.into()).collect()),
            Array::U64(items) => items.iter().map(|&item| item.try_into().ok()).collect(),
            Array::I64(items) => Some(items.clone()),
            Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::String(_) => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}
