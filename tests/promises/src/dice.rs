//! Chance that can be repeated: everything a trial draws comes from one number, which it prints when it fails.

use std::time::Duration;

/// The variable that repeats a trial.
pub const VARIABLE: &str = "POSTRIDER_SEED";

/// The seed that was asked for, or one from the clock.
pub fn seed() -> u64 {
    match std::env::var(VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{VARIABLE} is a whole number, not {text:?}")),
        Err(_) => uuid::Uuid::new_v4().as_u64_pair().0 % 1_000_000_000,
    }
}

/// A number made of others, always the same one, that looks like chance.
pub fn mixed(numbers: &[u64]) -> u64 {
    let mut state = 0x51_7C_C1_B7_27_22_0A_95;
    for number in numbers {
        state = step(state ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
    state
}

fn step(state: u64) -> u64 {
    let mut bits = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Draws one number after the other.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Of this seed.
    pub fn new(seed: u64) -> Self {
        Self(mixed(&[seed]))
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = step(self.0);
        mixed(&[self.0]) % sides
    }

    /// Whether a chance of one in so many came up.
    pub fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.roll(from.len() as u64)).expect("it is below the length")]
    }

    /// A time between these, in milliseconds.
    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let span = u64::try_from(longest.saturating_sub(shortest).as_millis()).unwrap_or(u64::MAX);
        shortest + Duration::from_millis(self.roll(span + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_another_one_does_not() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..20).map(|_| dice.roll(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_side_comes_up() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 6];
        for _ in 0..6_000 {
            seen[usize::try_from(dice.roll(6)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|times| (850..1_150).contains(times)), "{seen:?}");
    }
}
