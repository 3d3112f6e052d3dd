//! Numbers that follow from `CHAOS_SEED`: the same seed gives the same moments and the same damage.

/// The generator SplitMix64.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A stream of its own for each name, so that parts do not disturb each other's numbers.
    pub(crate) fn of(seed: u64, name: &str) -> Self {
        let mixed =
            name.bytes().fold(seed, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(mixed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is above 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn between(&mut self, first: u64, end: u64) -> u64 {
        first + self.below(end - first)
    }

    /// True in one of `count` cases.
    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
