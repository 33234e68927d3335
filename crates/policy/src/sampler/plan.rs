//! What the next step evaluates: one token of each sequence that has only few left, or as much new text of some others as
//! goes at once. Refuses to know tensors.

use super::{
    buckets::bucket,
    pick::Draw,
    seat::Seat,
    steps::{FIELDS, Reading},
};

/// New text of at most so many tokens comes in through the steps that write replies, one token each: its row of those
/// steps is idle anyway.
const TRICKLE: usize = 8;

/// New tokens of one conversation that are read at once.
const CHUNK: usize = 512;

/// What a row of scores is for.
#[derive(Debug)]
pub(super) struct Row {
    /// Which one.
    pub(super) index: usize,
    pub(super) seat: usize,
    pub(super) draw: Draw,
    /// Whether a token is to be chosen: not where more of the question follows.
    pub(super) wanted: bool,
}

/// One token of each sequence.
pub(super) struct Writing {
    /// The fields of all slots, one field after the other.
    pub(super) numbers: Vec<f64>,
    /// The slots that are not idle.
    pub(super) rows: Vec<Row>,
    /// How much of the cache is looked at.
    pub(super) looked: usize,
}

/// Whether a slot's next tokens come one by one.
pub(super) fn writes(seat: &Seat) -> bool {
    (1..=TRICKLE).contains(&seat.pending())
}

/// Whether a slot has new text to be read.
pub(super) fn reads(seat: &Seat) -> bool {
    seat.pending() > TRICKLE
}

/// Feeds one token of every slot that writes. Keys of idle slots go `nowhere`.
pub(super) fn writing(seats: &mut [Seat], nowhere: i64) -> Writing {
    let mut columns = Vec::new();
    let mut rows = Vec::new();
    let mut longest = 1;
    for (index, seat) in seats.iter_mut().enumerate() {
        let [mut token, mut position, mut place] = [0.0, 0.0, nowhere as f64];
        let mut draw = Draw::IDLE;
        if writes(seat) {
            position = seat.tokens.len() as f64;
            place = position;
            token = seat.feed(1).first().copied().map_or(0.0, f64::from);
            longest = longest.max(seat.tokens.len());
            let row = row(rows.len(), index, seat);
            draw = row.as_ref().map_or(draw, |row| row.draw);
            rows.extend(row.map(|row| Row { index, ..row }));
        }
        let [uniform, sharpness, greedy] = draw.fields();
        columns.push([token, position, place, uniform, sharpness, greedy]);
    }
    let fields = 0..usize::try_from(FIELDS).unwrap_or_default();
    let numbers =
        fields.flat_map(|field| columns.iter().map(move |column| column[field])).collect();
    Writing { numbers, rows, looked: bucket(longest) }
}

/// Feeds new text of as many slots as can be read at once: of the given width and view of the cache, `most` tells. Those
/// that wait are not among them.
pub(super) fn reading(
    seats: &mut [Seat],
    waiting: &[bool],
    nowhere: i64,
    most: impl Fn(usize, usize) -> usize,
) -> (Reading, Vec<Row>) {
    let (who, width, looked) = readers(seats, waiting, most);
    let mut reading = Reading { width: width as i64, looked, ..Reading::default() };
    let mut rows = Vec::new();
    for index in who {
        let Some(seat) = seats.get_mut(index) else { continue };
        let begin = seat.tokens.len();
        let fed = seat.feed(width);
        reading.slots.push(index as i64);
        reading.last.push((reading.tokens.len() + fed.len()) as i64 - 1);
        for place in 0..width {
            let position = (begin + place.min(fed.len().saturating_sub(1))) as i64;
            let token = fed.get(place);
            reading.tokens.push(token.copied().map_or(0, i64::from));
            reading.positions.push(position);
            reading.places.push(if token.is_some() { position } else { nowhere });
        }
        rows.extend(row(rows.len(), index, seat));
    }
    (reading, rows)
}

/// Who is read together, how wide, and how much of the cache is looked at. Neighbours in length waste little padding, and
/// the shortest are soonest writing.
fn readers(
    seats: &[Seat],
    waiting: &[bool],
    most: impl Fn(usize, usize) -> usize,
) -> (Vec<usize>, usize, usize) {
    let waits = |index: usize| waiting.get(index).copied().unwrap_or_default();
    let reading = seats.iter().enumerate().filter(|(index, seat)| reads(seat) && !waits(*index));
    let mut reading: Vec<(usize, &Seat)> = reading.collect();
    reading.sort_by_key(|(_, seat)| seat.pending());
    let (mut who, mut width, mut longest) = (Vec::new(), 1, 1);
    for (index, seat) in reading {
        let part = seat.pending().min(CHUNK);
        let wider = width.max(part);
        let longer = longest.max(seat.tokens.len() + part);
        if !who.is_empty() && who.len() >= most(wider, bucket(longer)) {
            break;
        }
        who.push(index);
        (width, longest) = (wider, longer);
    }
    (who, width, bucket(longest))
}

/// The row of a slot that was just fed.
fn row(index: usize, at: usize, seat: &Seat) -> Option<Row> {
    let running = seat.running.as_ref()?;
    let draw = Draw::new(&running.choice, seat.tokens.len());
    Some(Row { index, seat: at, draw, wanted: running.pending.is_empty() })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
