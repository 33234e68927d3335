//! Compares sets, tuples and intervals: element by element, end by end, or as sets of real numbers.
//!
//! Elements are compared by `compare`.

use std::cmp::Ordering;

use super::compare::{equal as equal_elements, is_assignment, last};
use super::dd::Dd;
use super::eval::{constant, exact};
use super::expr::{Constant, Expr, Interval, Joined, NumberSet};
use super::number::to_dd;
use super::tidy::tidy;

/// Most elements for which all orders are tried.
const MOST_MATCHED: usize = 40;

/// Whether two objects, at least one a set or tuple, are equal.
pub(super) fn equal(gold: &Expr, pred: &Expr, places: i64) -> Option<bool> {
    let collection = |expr: &Expr| expr.is_set() || matches!(expr, Expr::Tuple(_));
    let single =
        |expr: &Expr| if collection(expr) { expr.clone() } else { Expr::Set(vec![expr.clone()]) };
    let (a, b) = (single(gold), single(pred));
    if let (Expr::Interval(a), Expr::Interval(b)) = (&a, &b) {
        return same_interval(a, b, places);
    }
    if a == b || same_region(&a, &b) || same_members(&a, &b) {
        return Some(true);
    }
    match (&a, &b) {
        (Expr::Set(_) | Expr::Tuple(_), Expr::Set(_) | Expr::Tuple(_)) => {
            same_elements(&a, &b, places)
        }
        (Expr::Interval(interval), Expr::Set(_) | Expr::Tuple(_)) if is_pair(interval, &b) => {
            same_elements(&as_pair(interval), &b, places)
        }
        (Expr::Set(_) | Expr::Tuple(_), Expr::Interval(interval)) if is_pair(interval, &a) => {
            same_elements(&a, &as_pair(interval), places)
        }
        _ => Some(false),
    }
}

fn same_interval(a: &Interval, b: &Interval, places: i64) -> Option<bool> {
    if a.left_open != b.left_open || a.right_open != b.right_open {
        return Some(false);
    }
    if !equal_elements(&a.from, &b.from, places)? {
        return Some(false);
    }
    equal_elements(&a.to, &b.to, places)
}

/// An open interval as a pair.
fn is_pair(interval: &Interval, other: &Expr) -> bool {
    interval.left_open && interval.right_open && elements(other).len() == 2
}

fn as_pair(interval: &Interval) -> Expr {
    Expr::Tuple(vec![interval.from.clone(), interval.to.clone()])
}

/// The elements: a set's without duplicates, a tuple's as they are.
fn elements(collection: &Expr) -> Vec<&Expr> {
    match collection {
        Expr::Tuple(elements) => elements.iter().collect(),
        Expr::Set(elements) => {
            let mut kept: Vec<&Expr> = Vec::with_capacity(elements.len());
            for element in elements {
                if elements.len() > 2000 || !kept.contains(&element) {
                    kept.push(element);
                }
            }
            kept
        }
        _ => Vec::new(),
    }
}

fn same_elements(gold: &Expr, pred: &Expr, places: i64) -> Option<bool> {
    let (golds, preds) = (elements(gold), elements(pred));
    if golds.len() != preds.len() {
        return Some(false);
    }
    if matches!(gold, Expr::Set(_)) {
        return matched(golds, preds, places);
    }
    // A gold tuple is compared in order; the answer's set in the order written, duplicates included.
    let preds: Vec<&Expr> = match pred {
        Expr::Set(written) => written.iter().collect(),
        _ => preds,
    };
    for (at, gold) in golds.iter().enumerate() {
        if !equal_elements(gold, preds.get(at)?, places)? {
            return Some(false);
        }
    }
    if golds.len() == preds.len() { Some(true) } else { None }
}

/// Whether two finite sets have the same elements in standard form.
fn same_members(a: &Expr, b: &Expr) -> bool {
    let (Expr::Set(_), Expr::Set(_)) = (a, b) else { return false };
    let standard = |set: &Expr| {
        let mut members: Vec<Expr> = elements(set).into_iter().map(tidy).collect();
        members.sort();
        members.dedup();
        members
    };
    standard(a) == standard(b)
}

/// Compares in a common order: by value where all are numbers, otherwise by trial.
fn matched(mut golds: Vec<&Expr>, mut preds: Vec<&Expr>, places: i64) -> Option<bool> {
    if sort_by_value(&mut golds) && sort_by_value(&mut preds) {
        for (gold, pred) in golds.into_iter().zip(preds) {
            if !equal_elements(gold, pred, places)? {
                return Some(false);
            }
        }
        return Some(true);
    }
    if golds.len() > MOST_MATCHED {
        golds.sort_by_cached_key(|element| tidy(element));
        preds.sort_by_cached_key(|element| tidy(element));
        return Some(
            golds
                .into_iter()
                .zip(preds)
                .all(|(gold, pred)| equal_elements(gold, pred, places) == Some(true)),
        );
    }
    for gold in golds {
        let found = preds.iter().position(|pred| equal_elements(gold, pred, places) == Some(true));
        match found {
            Some(at) => preds.remove(at),
            None => return Some(false),
        };
    }
    Some(true)
}

/// Sorts elements that all are real numbers, or equations that give one.
fn sort_by_value(elements: &mut Vec<&Expr>) -> bool {
    let value = |element: &Expr| {
        let element = if is_assignment(element) {
            last(element).map_or(element, |sides| sides.1)
        } else {
            element
        };
        place(element)
    };
    let Some(mut keyed) = elements
        .iter()
        .map(|element| Some((value(element)?, *element)))
        .collect::<Option<Vec<_>>>()
    else {
        return false;
    };
    keyed.sort_by(|a, b| compare(a.0, b.0));
    *elements = keyed.into_iter().map(|pair| pair.1).collect();
    true
}

fn compare(a: Dd, b: Dd) -> Ordering {
    a.hi.total_cmp(&b.hi).then(a.lo.total_cmp(&b.lo))
}

/// A point on the real line, infinities included.
fn place(expr: &Expr) -> Option<Dd> {
    match expr {
        Expr::Constant(Constant::Infinity) => return Some(Dd::new(f64::INFINITY)),
        Expr::Constant(Constant::MinusInfinity) => return Some(Dd::new(f64::NEG_INFINITY)),
        _ => {}
    }
    if let Some(value) = exact(expr) {
        return Some(to_dd(&value)).filter(|value| value.is_finite());
    }
    constant(expr).filter(|value| value.is_real()).map(|value| value.re)
}

/// A subset of the real line: disjoint pieces from left to right.
#[derive(Clone, Debug, Default)]
struct Region(Vec<Piece>);

#[derive(Clone, Copy, Debug)]
struct Piece {
    from: Dd,
    to: Dd,
    left_open: bool,
    right_open: bool,
}

fn same_region(a: &Expr, b: &Expr) -> bool {
    let plain = |set: &Expr| matches!(set, Expr::Set(_) | Expr::Tuple(_));
    if matches!(a, Expr::Tuple(_)) || matches!(b, Expr::Tuple(_)) || (plain(a) && plain(b)) {
        return false;
    }
    match (region(a), region(b)) {
        (Some(a), Some(b)) => {
            a.0.len() == b.0.len()
                && a.0.iter().zip(&b.0).all(|(a, b)| {
                    near(a.from, b.from)
                        && near(a.to, b.to)
                        && a.left_open == b.left_open
                        && a.right_open == b.right_open
                })
        }
        _ => false,
    }
}

fn near(a: Dd, b: Dd) -> bool {
    if !a.hi.is_finite() || !b.hi.is_finite() {
        return a.hi == b.hi;
    }
    (a - b).hi.abs() <= 1e-24 * a.hi.abs().max(1e-6)
}

fn region(set: &Expr) -> Option<Region> {
    match set {
        Expr::EmptySet => Some(Region::default()),
        Expr::NumberSet(NumberSet::Reals) => Some(Region(vec![Piece {
            from: Dd::new(f64::NEG_INFINITY),
            to: Dd::new(f64::INFINITY),
            left_open: true,
            right_open: true,
        }])),
        Expr::Interval(interval) => Some(Region(vec![Piece {
            from: place(&interval.from)?,
            to: place(&interval.to)?,
            left_open: interval.left_open,
            right_open: interval.right_open,
        }])),
        Expr::Set(elements) => {
            let points = elements.iter().map(|element| {
                let at = place(element)?;
                Some(Piece { from: at, to: at, left_open: false, right_open: false })
            });
            Some(merged(points.collect::<Option<Vec<_>>>()?))
        }
        Expr::Joined(Joined::Union, a, b) => {
            let mut pieces = region(a)?.0;
            pieces.extend(region(b)?.0);
            Some(merged(pieces))
        }
        Expr::Joined(Joined::Complement, a, b) => Some(without(region(a)?, &region(b)?)),
        // The reference does not evaluate intersections.
        _ => None,
    }
}

fn merged(mut pieces: Vec<Piece>) -> Region {
    pieces.sort_by(|a, b| compare(a.from, b.from).then(a.left_open.cmp(&b.left_open)));
    let mut result: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if let Some(before) = result.last_mut() {
            let touches = near(before.to, piece.from) && !(before.right_open && piece.left_open);
            if touches || compare(piece.from, before.to).is_lt() && !near(before.to, piece.from) {
                if near(before.to, piece.to) {
                    before.right_open &= piece.right_open;
                } else if compare(before.to, piece.to).is_lt() {
                    before.to = piece.to;
                    before.right_open = piece.right_open;
                }
                continue;
            }
        }
        result.push(piece);
    }
    Region(result)
}

fn without(region: Region, holes: &Region) -> Region {
    let mut pieces = region.0;
    for hole in &holes.0 {
        pieces = pieces.into_iter().flat_map(|piece| cut(piece, *hole)).collect();
    }
    Region(pieces)
}

fn cut(piece: Piece, hole: Piece) -> Vec<Piece> {
    let left = Piece { to: hole.from, right_open: !hole.left_open, ..piece };
    let right = Piece { from: hole.to, left_open: !hole.right_open, ..piece };
    if compare(hole.to, piece.from).is_lt() || compare(piece.to, hole.from).is_lt() {
        return vec![piece];
    }
    let mut rest = Vec::new();
    for part in [
        Piece { to: if compare(left.to, piece.to).is_lt() { left.to } else { piece.to }, ..left },
        Piece {
            from: if compare(piece.from, right.from).is_lt() { right.from } else { piece.from },
            ..right
        },
    ] {
        let point = near(part.from, part.to);
        if (point && !part.left_open && !part.right_open)
            || (!point && compare(part.from, part.to).is_lt())
        {
            rest.push(part);
        }
    }
    rest
}
