//! Adapters packed for the repository and the program: gzip of all first bytes of the 16-bit numbers, then all second
//! bytes. The second ones hold sign and exponent and compress well by themselves.

use std::{
    io,
    io::{Read, Write},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

/// Packs the content of an adapter's file.
pub fn pack_adapter(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    for parity in [0, 1] {
        let half: Vec<u8> = content.iter().skip(parity).step_by(2).copied().collect();
        packed.write_all(&half)?;
    }
    packed.finish()
}

/// The content of an adapter's file. Fails if it is longer than `most`.
pub fn unpack_adapter(packed: &[u8], most: u64) -> io::Result<Vec<u8>> {
    let mut halves = Vec::new();
    GzDecoder::new(packed).take(most.saturating_add(1)).read_to_end(&mut halves)?;
    if halves.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than expected"));
    }
    let (first, second) = halves.split_at(halves.len().div_ceil(2));
    let mut content = vec![0; halves.len()];
    for (parity, half) in [first, second].into_iter().enumerate() {
        for (to, from) in content.iter_mut().skip(parity).step_by(2).zip(half) {
            *to = *from;
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        for length in [0, 1, 2, 3, 1000, 1001] {
            let content: Vec<u8> =
                (0..length).map(|number: u32| (number * 7 % 251) as u8).collect();
            let packed = pack_adapter(&content).unwrap();
            let most = u64::from(length);
            assert_eq!(unpack_adapter(&packed, most).unwrap(), content);
            assert!(length == 0 || unpack_adapter(&packed, most - 1).is_err());
        }
        let packed = pack_adapter(b"content").unwrap();
        assert!(unpack_adapter(&packed[..packed.len() / 2], 100).is_err());
        assert!(unpack_adapter(b"", 100).is_err());
    }
}
