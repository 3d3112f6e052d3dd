//! Pauses before the next try, as pure functions of the count: those of the engine, of Git, of images and of other servers.
//!
//! Some pauses are elsewhere, because they are part of something else: between downloads of a commit that is too large
//! (`crates/git/src/download_pause.rs`), between health checks of a container that starts (`crates/agent/src/probe/watch.rs`), and
//! of a command that waits for an agent (`src/cli/goal.rs`).
//!
//! Nothing is counted or remembered here (see [`driftless_model::Record`]), and nothing is random: where many
//! hosts must not knock at the same moment, the spread comes from a seed that the caller gives.

use std::time::Duration;

/// Running for this long wipes the count of crashes: twice the longest pause, as the kubelet does it.
pub(crate) const CRASH_RESET: Duration = Duration::from_mins(10);

/// The longest pause in a record: a later time is one of before the clock was set back.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_mins(15);

const FIRST_RECONNECT: Duration = Duration::from_millis(800);
const LONGEST_RECONNECT: Duration = Duration::from_secs(5);

/// Before a container that ended for the `count`th time is started again: 0, 10, 20, 40, 80, 160, 300, 300 s …
/// The first restart is immediate.
pub(crate) fn crash_delay(count: u32) -> Duration {
    match count {
        0 | 1 => Duration::ZERO,
        _ => doubling(Duration::from_secs(10), count - 1, Duration::from_mins(5)),
    }
}

/// After the `count`th failed pull of this image in a row: 10, 20, 40, 80, 160, 300, 300 s …, and up to a fifth
/// more, always the same for the same image and count.
fn pull_delay(image: &str, count: u32) -> Duration {
    let seed = image.bytes().fold(u64::from(count), |seed, byte| mix(seed ^ u64::from(byte)));
    let pause = doubling(Duration::from_secs(10), count, Duration::from_mins(5));
    pause + pause / 5 * per_mille(seed) / 1000
}

/// After the `count`th failed pull, build or verification of this image in a row. A pause that the registry asks for is kept up to
/// the longest one; until it is over, the client of registries answers further questions itself.
pub(crate) fn image_delay(image: &str, count: u32, asked: Option<Duration>) -> Duration {
    pull_delay(image, count).max(asked.unwrap_or_default()).min(LONGEST_PAUSE)
}

/// Between the end of a heal and the next of the same field, after `count` heals: 0, 2, 6, 18, 54, 162, 300 s …
pub(crate) fn heal_delay(count: u32) -> Duration {
    let cap = Duration::from_mins(5);
    match count {
        0 => Duration::ZERO,
        _ => 3_u32
            .checked_pow(count - 1)
            .and_then(|it| Duration::from_secs(2).checked_mul(it))
            .map_or(cap, |it| it.min(cap)),
    }
}

/// Before work that failed for the `count`th time in a row is tried again: 10, 20, 40 … 320, 600, 600 s.
pub(crate) fn job_delay(count: u32) -> Duration {
    doubling(Duration::from_secs(10), count, Duration::from_mins(10))
}

/// After the `count`th failed sync in a row: 5, 10, 20, 40, 80, 160, 180, 180 s …
pub fn sync_delay(count: u32) -> Duration {
    doubling(Duration::from_secs(5), count, Duration::from_mins(3))
}

/// After the `count`th failed call in a row to a Git server, a forge or a receiver of notifications: 1, 2, 4 … 64, 120, 120 s …,
/// a fifth more or less.
pub fn remote_delay(count: u32, seed: u64) -> Duration {
    around(doubling(Duration::from_secs(1), count, Duration::from_mins(2)), 200, seed)
}

/// After the `count`th failed call to a Docker Engine that is not there: anything from nothing to 0.8, 1.6, 3.2 …
/// 25.6, 30, 30 s, so that nobody knocks in step on an engine that comes back.
pub fn docker_delay(count: u32, seed: u64) -> Duration {
    doubling(Duration::from_millis(800), count, Duration::from_secs(30)) * per_mille(seed) / 1000
}

/// Before the event stream of an engine is opened again, after `count` tries in a row that failed: 0.8, 1.6, 3.2, 5, 5 s …, up to a
/// quarter less, so that many agents do not reconnect at the same time.
pub fn reconnect_delay(count: u32, seed: u64) -> Duration {
    let full = FIRST_RECONNECT.saturating_mul(1 << count.min(10)).min(LONGEST_RECONNECT);
    let part = u32::try_from(seed % 251).unwrap_or_default();
    full.saturating_sub(full / 4 * part / 250)
}

/// The interval between polls, a tenth more or less.
pub fn poll_with_jitter(poll: Duration, seed: u64) -> Duration {
    around(poll, 100, seed)
}

/// `first`, twice that, four times that …, never more than `cap`; nothing for a count of 0.
fn doubling(first: Duration, count: u32, cap: Duration) -> Duration {
    match count {
        0 => Duration::ZERO,
        _ => 2_u32.checked_pow(count - 1).and_then(|it| first.checked_mul(it)).map_or(cap, |it| it.min(cap)),
    }
}

/// `pause`, up to `spread` thousandths shorter or longer.
fn around(pause: Duration, spread: u32, seed: u64) -> Duration {
    let width = pause.mul_f64(f64::from(spread) / 1000.0);
    pause.saturating_sub(width) + width.mul_f64(2.0 * f64::from(per_mille(seed)) / 1000.0)
}

/// 0 to 1000, evenly spread over the seeds.
fn per_mille(seed: u64) -> u32 {
    u32::try_from(mix(seed) % 1001).unwrap_or(0)
}

/// The finaliser of `SplitMix64`: neighbouring seeds give unlike numbers.
fn mix(seed: u64) -> u64 {
    let mut it = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(delay: impl Fn(u32) -> Duration, from: u32, to: u32) -> Vec<u64> {
        (from..=to).map(|count| delay(count).as_secs()).collect()
    }

    #[test]
    fn crash_backoff_doubles_up_to_5_minutes() {
        assert_eq!(seconds(crash_delay, 0, 9), [0, 0, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(crash_delay(u32::MAX), Duration::from_mins(5));
    }

    #[test]
    fn first_heals_are_immediate_then_pauses_triple() {
        assert_eq!(seconds(heal_delay, 0, 8), [0, 2, 6, 18, 54, 162, 300, 300, 300]);
        assert_eq!(heal_delay(u32::MAX), Duration::from_mins(5));
    }

    #[test]
    fn job_backoff_grows_from_10_seconds_to_10_minutes() {
        assert_eq!(seconds(job_delay, 0, 8), [0, 10, 20, 40, 80, 160, 320, 600, 600]);
    }

    #[test]
    fn sync_backoff_grows_from_5_seconds_to_3_minutes() {
        assert_eq!(seconds(sync_delay, 0, 8), [0, 5, 10, 20, 40, 80, 160, 180, 180]);
    }

    #[test]
    fn a_pull_waits_up_to_a_fifth_longer_and_always_the_same() {
        for (count, base) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (40, 300)] {
            let (least, pause) = (Duration::from_secs(base), pull_delay("web:1.0.1", count));
            assert!(pause >= least && pause <= least + least / 5, "{count}: {pause:?}");
            assert_eq!(pause, pull_delay("web:1.0.1", count));
        }
        let pauses: std::collections::BTreeSet<_> =
            (0..50).map(|it| pull_delay(&format!("web:{it}"), 3)).collect();
        assert!(pauses.len() > 25, "images do not wait in step: {pauses:?}");
    }

    #[test]
    fn registry_may_ask_for_a_pause_of_15_minutes_at_most() {
        let delay = |asked| image_delay("web:1.0.1", 1, asked);
        assert_eq!(delay(None), pull_delay("web:1.0.1", 1));
        assert_eq!(delay(Some(Duration::from_secs(1))), pull_delay("web:1.0.1", 1));
        assert_eq!(delay(Some(Duration::from_mins(2))), Duration::from_mins(2));
        // A longer one would be taken for a time of before the clock was set back, which is not waited for.
        assert_eq!(delay(Some(Duration::from_hours(1))), LONGEST_PAUSE);
    }

    #[test]
    fn reconnection_pauses_grow_and_vary() {
        for seed in [0, 17, 250] {
            assert!(reconnect_delay(0, seed) <= FIRST_RECONNECT);
            assert!(reconnect_delay(0, seed) >= FIRST_RECONNECT * 3 / 4);
            assert!(reconnect_delay(40, seed) >= LONGEST_RECONNECT * 3 / 4);
            assert!(reconnect_delay(40, seed) <= LONGEST_RECONNECT);
        }
        assert_ne!(reconnect_delay(3, 1), reconnect_delay(3, 100));
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_reaches_both_sides() {
        let of = |delay: &dyn Fn(u64) -> Duration| {
            let all: Vec<_> = (0..2000).map(delay).collect();
            (all.iter().min().map(Duration::as_millis), all.iter().max().map(Duration::as_millis))
        };
        let (least, most) = of(&|seed| poll_with_jitter(Duration::from_mins(1), seed));
        assert!(least >= Some(54_000) && least < Some(55_000) && most > Some(65_000) && most <= Some(66_000));
        let (least, most) = of(&|seed| remote_delay(9, seed));
        assert!(
            least >= Some(96_000) && least < Some(99_000) && most > Some(141_000) && most <= Some(144_000)
        );
        let (least, most) = of(&|seed| docker_delay(1, seed));
        assert!(least < Some(20) && most > Some(780) && most <= Some(800));
        assert!(docker_delay(99, 1) <= Duration::from_secs(30));
    }
}
