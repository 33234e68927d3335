//! Messages of the DNS as far as the resolver needs them: one question in, addresses out. Everything read is untrusted.

use std::net::IpAddr;

/// Longest answer over UDP to a client that does not say how much it takes.
const PLAIN: usize = 512;
/// Longest answer over UDP in any case: it fits into every network's packets.
pub(super) const MAX_UDP: usize = 1232;
/// Most addresses in an answer.
const MAX_ADDRESSES: usize = 24;
/// How long clients may remember an answer, in seconds.
const TTL: u32 = 30;

const HEADER: usize = 12;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

/// The result code of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    NoError = 0,
    Malformed = 1,
    Failed = 2,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    V4,
    V6,
    /// A name for an address.
    Reverse,
    /// How to reach a service; browsers ask for it besides the addresses.
    Service,
    Other,
}

/// A well-formed question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    id: u16,
    /// Whether the client wants recursion, which is repeated.
    flags: u16,
    /// The question as it was sent.
    section: Vec<u8>,
    /// The name, in lower case, without a dot at its end.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The longest answer the client takes, where it says so.
    size: Option<u16>,
}

/// Reads a query. A malformed one has an answer too, unless it is not a query at all.
pub(super) fn parse(bytes: &[u8]) -> Result<Question, Option<Vec<u8>>> {
    const RESPONSE: u16 = 0x8000;
    const OPCODE: u16 = 0x7800;
    let (Some(id), Some(flags)) = (word(bytes, 0), word(bytes, 2)) else { return Err(None) };
    if bytes.len() < HEADER || flags & RESPONSE != 0 {
        return Err(None);
    }
    let refuse = |code| Err(Some(header(id, flags, code, [0; 4])));
    if flags & OPCODE != 0 {
        return refuse(Code::NotImplemented);
    }
    let (Some(1), Some((name, end))) = (word(bytes, 4), name(bytes)) else {
        return refuse(Code::Malformed);
    };
    let (Some(kind), Some(class)) = (word(bytes, end), word(bytes, end + 2)) else {
        return refuse(Code::Malformed);
    };
    if class != CLASS_IN {
        return refuse(Code::Refused);
    }
    let kind = match kind {
        1 => Kind::V4,
        28 => Kind::V6,
        12 => Kind::Reverse,
        64 | 65 => Kind::Service,
        _ => Kind::Other,
    };
    let section = bytes[HEADER..end + 4].to_vec();
    Ok(Question { id, flags, section, name, kind, size: client_size(bytes, end + 4) })
}

/// The name of the first question and where it ends. Names in queries are not compressed.
fn name(bytes: &[u8]) -> Option<(String, usize)> {
    let (mut at, mut name) = (HEADER, String::new());
    loop {
        let length = usize::from(*bytes.get(at)?);
        let label = bytes.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || at - HEADER > 254 || !label.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        // A dot inside of a label would make another name of it.
        if label.contains(&b'.') {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| byte.to_ascii_lowercase() as char));
    }
}

/// What the client says about the answers it takes, if that is the only thing that follows the question.
fn client_size(bytes: &[u8], at: usize) -> Option<u16> {
    let only = word(bytes, 6)? == 0 && word(bytes, 8)? == 0 && word(bytes, 10)? == 1;
    let opt = only && *bytes.get(at)? == 0 && word(bytes, at + 1)? == TYPE_OPT;
    opt.then(|| word(bytes, at + 3)).flatten()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([two[0], two[1]]))
}

/// A header with the numbers of questions, answers, authorities and additions.
fn header(id: u16, flags: u16, code: Code, counts: [u16; 4]) -> Vec<u8> {
    const RECURSION: u16 = 0x0100;
    // A response, from a resolver.
    let flags = 0x8080 | (flags & RECURSION) | code as u16;
    [id, flags].iter().chain(&counts).flat_map(|word| word.to_be_bytes()).collect()
}

impl Question {
    /// The longest answer over UDP.
    pub(super) fn max_udp(&self) -> usize {
        self.size.map_or(PLAIN, |size| usize::from(size).clamp(PLAIN, MAX_UDP))
    }

    /// An answer with these addresses, which all are of the kind that was asked for. Longer than `max`, it is cut and says so.
    pub(super) fn answer(&self, code: Code, addresses: &[IpAddr], max: usize) -> Vec<u8> {
        const TRUNCATED: u8 = 0x02;
        let addresses = &addresses[..addresses.len().min(MAX_ADDRESSES)];
        let whole = self.encode(code, addresses);
        if whole.len() <= max {
            return whole;
        }
        let mut cut = self.encode(code, &[]);
        cut[2] |= TRUNCATED;
        cut
    }

    fn encode(&self, code: Code, addresses: &[IpAddr]) -> Vec<u8> {
        let additions = u16::from(self.size.is_some());
        let counts = [1, addresses.len() as u16, 0, additions];
        let mut bytes = header(self.id, self.flags, code, counts);
        bytes.extend(&self.section);
        for address in addresses {
            let (kind, data): (u16, Vec<u8>) = match address {
                IpAddr::V4(v4) => (1, v4.octets().into()),
                IpAddr::V6(v6) => (28, v6.octets().into()),
            };
            // The name is that of the question.
            bytes.extend([0xc0, HEADER as u8]);
            bytes.extend(kind.to_be_bytes());
            bytes.extend(CLASS_IN.to_be_bytes());
            bytes.extend(TTL.to_be_bytes());
            bytes.extend((data.len() as u16).to_be_bytes());
            bytes.extend(data);
        }
        if self.size.is_some() {
            bytes.push(0);
            bytes.extend(TYPE_OPT.to_be_bytes());
            bytes.extend((MAX_UDP as u16).to_be_bytes());
            bytes.extend([0; 6]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            bytes.push(label.len() as u8);
            bytes.extend(*label);
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        bytes
    }

    #[test]
    fn a_question_is_answered_with_its_own_section() {
        let question = parse(&query(&[b"WWW", b"example", b"com"], 1)).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("www.example.com", Kind::V4));
        let answer = question.answer(Code::NoError, &["1.2.3.4".parse().unwrap()], PLAIN);
        assert_eq!(answer[..12], [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..33], query(&[b"WWW", b"example", b"com"], 1)[12..]);
        assert_eq!(answer[33..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn long_answers_are_cut_and_say_so() {
        let mut bytes = query(&[&[b'a'; 63], &[b'b'; 63], &[b'c'; 63], b"com"], 28);
        let many = vec!["2606::1".parse().unwrap(); 40];
        let cut = parse(&bytes).unwrap().answer(Code::NoError, &many, PLAIN);
        assert!(cut.len() < PLAIN && cut[2] & 2 != 0 && cut[7] == 0);
        bytes[11] = 1;
        bytes.extend([0, 0, 41, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
        let question = parse(&bytes).unwrap();
        assert_eq!(question.max_udp(), MAX_UDP);
        let whole = question.answer(Code::NoError, &many, question.max_udp());
        assert!(whole.len() <= MAX_UDP && whole[2] & 2 == 0 && whole[7] == MAX_ADDRESSES as u8);
        assert_eq!(whole[whole.len() - 11..][..3], [0, 0, 41]);
    }

    #[test]
    fn what_is_not_a_plain_query_is_refused() {
        let code = |bytes: &[u8]| match parse(bytes) {
            Err(Some(answer)) => u32::from(answer[3] & 15),
            Err(None) => 99,
            Ok(_) => 0,
        };
        let good = query(&[b"a", b"com"], 1);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(code(&good), 0);
        assert_eq!(code(&good[..11]), 99);
        assert_eq!(code(&with(2, 0x81)), 99);
        assert_eq!(code(&with(2, 0x29)), 4);
        assert_eq!(code(&with(5, 2)), 1);
        assert_eq!(code(&with(12, 0xc0)), 1);
        assert_eq!(code(&with(13, b'.')), 1);
        assert_eq!(code(&with(13, 0)), 1);
        assert_eq!(code(&good[..good.len() - 1]), 1);
        let last = good.len() - 1;
        assert_eq!(code(&with(last, 3)), 5);
    }

    proptest! {
        #[test]
        fn arbitrary_packets_never_panic(packet in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(question) = parse(&packet) {
                let _ = question.answer(Code::NoError, &["1.2.3.4".parse().unwrap()], question.max_udp());
            }
        }
    }
}
