//! Chance without a state: every draw follows from a seed and its number, so that a run that goes on draws as if it had
//! never stopped.

/// An order in which things are drawn again and again, each time all of them in a new order.
#[derive(Clone, Copy, Debug)]
pub struct Deck {
    seed: u64,
    size: usize,
}

impl Deck {
    /// Draws from so many things.
    pub fn new(seed: u64, size: usize) -> Self {
        Self { seed, size }
    }

    /// What is drawn after `drawn` others, so many at once.
    pub fn draw(&self, drawn: u64, count: usize) -> Vec<usize> {
        let size = self.size as u64;
        if size == 0 {
            return Vec::new();
        }
        let mut round = drawn / size;
        let mut order = self.order(round);
        let next = |at: u64| {
            if at / size != round {
                round = at / size;
                order = self.order(round);
            }
            order[(at % size) as usize]
        };
        (drawn..).take(count).map(next).collect()
    }

    fn order(&self, round: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.size).collect();
        for at in (1..self.size).rev() {
            let other = mixed(self.seed, &[round, at as u64]) % (at as u64 + 1);
            order.swap(at, other as usize);
        }
        order
    }
}

/// A number that looks like chance and follows from others.
pub fn mixed(seed: u64, numbers: &[u64]) -> u64 {
    numbers.iter().fold(stirred(seed), |so_far, number| stirred(so_far ^ stirred(*number)))
}

/// The finaliser of SplitMix64.
fn stirred(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_holds_everything_once_in_an_order_of_its_own() {
        let deck = Deck::new(7, 10);
        let rounds: Vec<Vec<usize>> = (0..3).map(|round| deck.draw(round * 10, 10)).collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        }
        assert!(rounds[0] != rounds[1] && rounds[1] != rounds[2]);
        assert_ne!(deck.draw(0, 10), Deck::new(8, 10).draw(0, 10));
    }

    #[test]
    fn drawing_can_stop_anywhere_and_go_on() {
        let deck = Deck::new(1, 7);
        let whole = deck.draw(0, 40);
        let parts = [deck.draw(0, 5), deck.draw(5, 11), deck.draw(16, 24)].concat();
        assert_eq!(whole, parts);
        assert!(Deck::new(1, 0).draw(0, 3).is_empty());
    }
}
