//! When certificates, keys and tokens end, and when people hear of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// The longest time before the end in which it is soon.
const LONGEST_NOTICE: Duration = Duration::from_hours(14 * 24);

/// The part of a lifetime in which its end is soon, if that is shorter. Programs renew certificates earlier.
const SHARE: u32 = 4;

/// Less time than this is left: somebody should look at it now.
const URGENT: Duration = Duration::from_hours(24);

/// The end of a certificate, a key or a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expiry {
    /// The key of the configuration that names it, such as `tls`, or `token NAME`.
    pub subject: String,
    /// In words: `the certificate /etc/driftless/tls/fullchain.pem`.
    pub what: String,
    pub begins: Timestamp,
    pub ends: Timestamp,
}

impl Expiry {
    /// Whether it ends in 14 days, or in the last quarter of a shorter lifetime, or has ended.
    pub fn is_soon(&self, now: Timestamp) -> bool {
        now >= self.soon_from()
    }

    /// The first moment at which its end is soon.
    pub fn soon_from(&self) -> Timestamp {
        let lifetime = self.ends.since(self.begins);
        self.ends.before((lifetime / SHARE).min(LONGEST_NOTICE))
    }

    /// Whether it ends within a day, or has ended.
    pub fn is_urgent(&self, now: Timestamp) -> bool {
        now.after(URGENT) >= self.ends
    }

    /// One sentence: what ends when.
    pub fn sentence(&self, now: Timestamp) -> String {
        let Self { subject, what, begins: _, ends } = self;
        let left = ends.since(now);
        let (days, hours) = (left.as_secs() / 86_400, left.as_secs() / 3600);
        match (days, hours) {
            _ if *ends <= now => format!("{what} ({subject}) has expired at {ends}"),
            (2.., _) => format!("{what} ({subject}) expires in {days} days, at {ends}"),
            (_, 2..) => format!("{what} ({subject}) expires in {hours} hours, at {ends}"),
            _ => format!("{what} ({subject}) expires within 2 hours, at {ends}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn end_is_soon_in_the_last_quarter_or_two_weeks() {
        let begins = Timestamp(1_000_000);
        let of = |days: u32| Expiry {
            subject: "tls".to_owned(),
            what: "the certificate c.pem".to_owned(),
            begins,
            ends: begins.after(DAY * days),
        };
        // (lifetime, first day on which the end is soon)
        for (lifetime, soon) in [(90, 76), (365, 351), (40, 30), (8, 6)] {
            let expiry = of(lifetime);
            assert_eq!(expiry.soon_from(), begins.after(DAY * soon), "{lifetime}");
            assert!(!expiry.is_soon(Timestamp(begins.after(DAY * soon).0 - 1)), "{lifetime}");
            assert!(expiry.is_soon(begins.after(DAY * soon)), "{lifetime}");
            assert!(!expiry.is_urgent(begins.after(DAY * soon)), "{lifetime}");
            assert!(
                expiry.is_urgent(begins.after(DAY * (lifetime - 1)))
                    && expiry.is_soon(begins.after(DAY * 400))
            );
        }
        let said = |days: u32| of(90).sentence(begins.after(DAY * days));
        assert!(
            said(80).starts_with("the certificate c.pem (tls) expires in 10 days, at 1970-04-01T"),
            "{}",
            said(80)
        );
        assert!(said(89).contains("expires in 24 hours"), "{}", said(89));
        assert!(said(90).contains("has expired at 1970-04-01T"), "{}", said(90));
    }
}
