//! Rate limits: a token bucket per webhook for signed deliveries, and one per client address for deliveries without a valid
//! signature and for wrong tokens. The number of buckets is bounded.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// A push to many branches sends one delivery for each.
const PER_HOOK: Limit = Limit { burst: 60.0, per_second: 5.0 };

/// Deliveries without a valid signature. All that come through one reverse proxy share this limit.
const PER_ADDRESS: Limit = Limit { burst: 30.0, per_second: 1.0 };

/// Wrong tokens. All that come through one reverse proxy share this limit, unless it is a trusted one.
const WRONG_TOKENS: Limit = Limit { burst: 10.0, per_second: 0.2 };

/// Shortest time between two log lines about wrong tokens.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// The most buckets that are kept of each kind.
const MOST: usize = 4096;

#[derive(Clone, Copy)]
struct Limit {
    burst: f64,
    per_second: f64,
}

pub(super) struct Rates {
    hooks: Mutex<Buckets<String>>,
    failures: Mutex<Buckets<IpAddr>>,
}

impl Rates {
    pub(super) fn new() -> Self {
        Self { hooks: Mutex::new(Buckets::new(PER_HOOK)), failures: Mutex::new(Buckets::new(PER_ADDRESS)) }
    }

    /// Takes a token of a webhook for a signed delivery. `Err`: the seconds until one is available.
    pub(super) fn take(&self, hook: &str) -> Result<(), u64> {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.take(hook.to_owned(), Instant::now())
    }

    /// Counts a delivery without a valid signature.
    pub(super) fn note_failure(&self, address: IpAddr) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        // Too many are noticed by the check before the next one.
        let _ = failures.take(network(address), Instant::now());
    }

    /// Whether an address has sent few deliveries without a valid signature. `Err`: the seconds until it has.
    pub(super) fn check_failures(&self, address: IpAddr) -> Result<(), u64> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.check(&network(address), Instant::now())
    }
}

/// The wrong tokens of each client address.
pub(super) struct FailureRates {
    failures: Mutex<Buckets<IpAddr>>,
    logged: Mutex<Option<Instant>>,
}

impl Default for FailureRates {
    fn default() -> Self {
        Self { failures: Mutex::new(Buckets::new(WRONG_TOKENS)), logged: Mutex::default() }
    }
}

impl FailureRates {
    /// Whether a token of this address may be checked. `Err`: the seconds until it may.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), u64> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.check(&network(address), Instant::now())
    }

    /// Counts a wrong token. True: it should be logged.
    pub(super) fn note(&self, address: IpAddr) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        // Too many are noticed by the check before the next one.
        let _ = failures.take(network(address), Instant::now());
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged.is_none_or(|at| at.elapsed() >= LOG_EVERY);
        if is_due {
            *logged = Some(Instant::now());
        }
        is_due
    }
}

/// The /64 network of an IPv6 address, because a client usually has all of it.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(it) => match it.to_ipv4_mapped() {
            Some(it) => IpAddr::V4(it),
            None => IpAddr::from((it.to_bits() >> 64 << 64).to_be_bytes()),
        },
    }
}

struct Buckets<K> {
    limit: Limit,
    /// Tokens left, and when they were counted.
    left: BTreeMap<K, (f64, Instant)>,
}

impl<K: Ord> Buckets<K> {
    fn new(limit: Limit) -> Self {
        Self { limit, left: BTreeMap::new() }
    }

    /// Whether a token is left. `Err`: the seconds until one is.
    fn check(&self, key: &K, now: Instant) -> Result<(), u64> {
        let Limit { burst, per_second } = self.limit;
        let Some((left, at)) = self.left.get(key) else { return Ok(()) };
        let have = (left + now.duration_since(*at).as_secs_f64() * per_second).min(burst);
        if have >= 1.0 {
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - have) / per_second).as_secs() + 1)
        }
    }

    fn take(&mut self, key: K, now: Instant) -> Result<(), u64> {
        let Limit { burst, per_second } = self.limit;
        if self.left.len() >= MOST && !self.left.contains_key(&key) {
            // Full buckets need not be kept. If none is full, new clients are refused for a second.
            let full_after = Duration::from_secs_f64(burst / per_second);
            self.left.retain(|_, (_, at)| now.duration_since(*at) < full_after);
            if self.left.len() >= MOST {
                return Err(1);
            }
        }
        let (left, at) = self.left.entry(key).or_insert((burst, now));
        let have = (*left + now.duration_since(*at).as_secs_f64() * per_second).min(burst);
        *at = now;
        if have >= 1.0 {
            *left = have - 1.0;
            Ok(())
        } else {
            *left = have;
            // At most one token is missing.
            Err(Duration::from_secs_f64((1.0 - have) / per_second).as_secs() + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_empties_and_refills() {
        let mut buckets = Buckets::new(Limit { burst: 3.0, per_second: 0.5 });
        let now = Instant::now();
        let mut take = |seconds| buckets.take("a", now + Duration::from_secs(seconds));
        assert_eq!([take(0), take(0), take(0)], [Ok(()); 3]);
        assert_eq!((take(0), take(1)), (Err(3), Err(2)));
        assert_eq!((take(2), take(2)), (Ok(()), Err(3)));
        assert_eq!((take(600), take(600), take(600)), (Ok(()), Ok(()), Ok(())));
        assert!(take(600).is_err(), "a bucket holds no more than its burst");
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!((buckets.check(&"a", at(600)), buckets.check(&"a", at(602))), (Err(3), Ok(())));
        assert_eq!(buckets.check(&"b", now), Ok(()));
    }

    #[test]
    fn rate_limiter_memory_is_bounded() {
        let mut buckets = Buckets::new(Limit { burst: 1.0, per_second: 1.0 });
        let now = Instant::now();
        for number in 0..20_000 {
            let _ = buckets.take(number, now);
        }
        assert_eq!(buckets.left.len(), MOST);
        assert!(buckets.take(20_000, now).is_err());
        assert!(buckets.take(20_000, now + Duration::from_secs(2)).is_ok());
        assert_eq!(buckets.left.len(), 1);
    }

    #[test]
    fn ipv6_network_counts_as_one_client() {
        let one: IpAddr = "2001:db8:1:2::1".parse().unwrap();
        let two: IpAddr = "2001:db8:1:2:ffff::9".parse().unwrap();
        let other: IpAddr = "2001:db8:1:3::1".parse().unwrap();
        assert_eq!(network(one), network(two));
        assert_ne!(network(one), network(other));
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(network(mapped), "192.0.2.1".parse::<IpAddr>().unwrap());
    }
}
