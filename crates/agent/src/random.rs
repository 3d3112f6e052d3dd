//! Random keys, and numbers for jitter.

use driftless_model::Timestamp;

/// A number that differs between names and times, for jitter.
pub(crate) fn seed(name: &str, now: Timestamp) -> u64 {
    name.bytes().fold(now.0, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte))
}

/// A random key for [`driftless_model::Mask`].
///
/// # Panics
///
/// Never: AWS-LC ends the process rather than return without random bytes.
#[must_use]
pub fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key).expect("AWS-LC returns random bytes");
    key
}
