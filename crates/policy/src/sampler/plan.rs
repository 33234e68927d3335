//! What the next step evaluates: one token of each sequence with few pending ones (decode), or a chunk of new text of
//! some others (prefill). Knows no tensors.

use super::{
    buckets::bucket,
    evaluator::{FIELDS, PrefillBatch},
    pick::Draw,
    slot::Slot,
};

/// New text of at most this many tokens is evaluated by decode steps, one token each: its row of those steps is idle
/// anyway.
const MAX_DECODED: usize = 8;

/// The maximum number of new tokens of one conversation per prefill.
const PREFILL_CHUNK: usize = 512;

/// A row of logits.
#[derive(Debug)]
pub(super) struct Row {
    /// Its index.
    pub(super) index: usize,
    pub(super) slot: usize,
    pub(super) draw: Draw,
    /// Whether a token is sampled from it: not where more of the prompt follows.
    pub(super) sampled: bool,
}

/// One token of each sequence.
pub(super) struct DecodeBatch {
    /// The fields of all slots, field by field.
    pub(super) numbers: Vec<f64>,
    /// The rows of slots that are not idle.
    pub(super) rows: Vec<Row>,
    /// The number of cache positions that attention reads.
    pub(super) view: usize,
}

/// Whether a slot's pending tokens are evaluated by decode steps.
pub(super) fn is_decoding(slot: &Slot) -> bool {
    (1..=MAX_DECODED).contains(&slot.pending())
}

/// Whether a slot has new text to prefill.
pub(super) fn is_prefilling(slot: &Slot) -> bool {
    slot.pending() > MAX_DECODED
}

/// The next decode step. Keys of idle slots are written to the `scratch` cell.
pub(super) fn decode(slots: &mut [Slot], scratch: i64) -> DecodeBatch {
    let mut columns = Vec::new();
    let mut rows = Vec::new();
    let mut longest = 1;
    for (index, slot) in slots.iter_mut().enumerate() {
        let [mut token, mut position, mut cell] = [0.0, 0.0, scratch as f64];
        let mut draw = Draw::IDLE;
        if is_decoding(slot) {
            position = slot.tokens.len() as f64;
            cell = position;
            token = slot.take_pending(1).first().copied().map_or(0.0, f64::from);
            longest = longest.max(slot.tokens.len());
            let row = row(rows.len(), index, slot);
            draw = row.as_ref().map_or(draw, |row| row.draw);
            rows.extend(row.map(|row| Row { index, ..row }));
        }
        let [uniform, sharpness, greedy] = draw.fields();
        columns.push([token, position, cell, uniform, sharpness, greedy]);
    }
    let fields = 0..usize::try_from(FIELDS).unwrap_or_default();
    let numbers =
        fields.flat_map(|field| columns.iter().map(move |column| column[field])).collect();
    DecodeBatch { numbers, rows, view: bucket(longest) }
}

/// The next prefill, of as many slots as fit together: `limit` gives their number for a width and a view of the cache.
/// Slots that are `waiting` are left out.
pub(super) fn prefill(
    slots: &mut [Slot],
    waiting: &[bool],
    scratch: i64,
    limit: impl Fn(usize, usize) -> usize,
) -> (PrefillBatch, Vec<Row>) {
    let (chosen, width, view) = prefill_slots(slots, waiting, limit);
    let mut prefill = PrefillBatch { width: width as i64, view, ..PrefillBatch::default() };
    let mut rows = Vec::new();
    for index in chosen {
        let Some(slot) = slots.get_mut(index) else { continue };
        let begin = slot.tokens.len();
        let taken = slot.take_pending(width);
        prefill.slots.push(index as i64);
        prefill.last.push((prefill.tokens.len() + taken.len()) as i64 - 1);
        for offset in 0..width {
            let position = (begin + offset.min(taken.len().saturating_sub(1))) as i64;
            let token = taken.get(offset);
            prefill.tokens.push(token.copied().map_or(0, i64::from));
            prefill.positions.push(position);
            prefill.cells.push(if token.is_some() { position } else { scratch });
        }
        rows.extend(row(rows.len(), index, slot));
    }
    (prefill, rows)
}

/// The slots that are prefilled together, their padded width, and the view of the cache. Shortest first: similar lengths
/// need little padding, and the shortest start decoding soonest.
fn prefill_slots(
    slots: &[Slot],
    waiting: &[bool],
    limit: impl Fn(usize, usize) -> usize,
) -> (Vec<usize>, usize, usize) {
    let is_waiting = |index: usize| waiting.get(index).copied().unwrap_or_default();
    let prefill =
        slots.iter().enumerate().filter(|(index, slot)| is_prefilling(slot) && !is_waiting(*index));
    let mut prefill: Vec<(usize, &Slot)> = prefill.collect();
    prefill.sort_by_key(|(_, slot)| slot.pending());
    let (mut chosen, mut width, mut longest) = (Vec::new(), 1, 1);
    for (index, slot) in prefill {
        let part = slot.pending().min(PREFILL_CHUNK);
        let wider = width.max(part);
        let longer = longest.max(slot.tokens.len() + part);
        if !chosen.is_empty() && chosen.len() >= limit(wider, bucket(longer)) {
            break;
        }
        chosen.push(index);
        (width, longest) = (wider, longer);
    }
    (chosen, width, bucket(longest))
}

/// The row of a slot whose tokens were just taken.
pub(super) fn row(index: usize, at: usize, slot: &Slot) -> Option<Row> {
    let running = slot.running.as_ref()?;
    let draw = Draw::new(&running.params, slot.tokens.len());
    Some(Row { index, slot: at, draw, sampled: running.pending.is_empty() })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
