//! Canaries: an update that first replaces a share of the instances, and then pauses.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{SpecHash, Timestamp, parse_duration};

/// One step of a canary: `20% for 10m`, or `2` for a pause that ends when a user promotes it.
///
/// The words are those of Argo Rollouts, where a step sets a weight and the next one pauses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CanaryStep {
    share: CanaryShare,
    /// The pause once the new instances are available. `None`: until a user promotes the canary.
    pub pause: Option<Duration>,
}

/// The share of the instances that a step replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CanaryShare {
    /// From 1 to 99.
    Percent(u32),
    /// At least 1.
    Instances(u32),
}

/// Text that is no step of a canary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no step of a canary: {why}")]
pub struct InvalidCanary {
    text: String,
    why: String,
}

impl CanaryStep {
    /// Parses a share, in percent or as a number of instances, and the time of the pause after `for`.
    ///
    /// # Errors
    /// A message that says what is wrong, with an example.
    pub fn parse(text: &str) -> Result<Self, InvalidCanary> {
        let invalid = |why: &str| InvalidCanary { text: text.trim().to_owned(), why: why.to_owned() };
        let mut words = text.split_whitespace();
        let share = words.next().unwrap_or_default();
        let percent = share.strip_suffix('%');
        let number: Option<u32> = percent.unwrap_or(share).parse().ok();
        let share = match (number, percent) {
            (Some(number @ 1..=99), Some(_)) => CanaryShare::Percent(number),
            (Some(number @ 1..), None) => CanaryShare::Instances(number),
            (_, Some(_)) => return Err(invalid("the share must be from 1% to 99%")),
            (_, None) => {
                return Err(invalid("write a share such as `20%` or `1`, and a pause such as `20% for 10m`"));
            }
        };
        let pause = match (words.next(), words.next(), words.next()) {
            (None, _, _) => None,
            (Some("for"), Some(time), None) => {
                let pause = parse_duration(time).map_err(|why| invalid(&why))?;
                Some(pause).filter(|pause| !pause.is_zero())
            }
            _ => {
                return Err(invalid("write the pause as `for 10m`; without it, `driftless promote` ends it"));
            }
        };
        Ok(Self { share, pause })
    }

    /// The number of new instances of so many. A percentage is rounded to the nearest number that leaves at least one new and
    /// one old instance.
    pub fn instances(&self, replicas: u32) -> u32 {
        let most = replicas.saturating_sub(1);
        match self.share {
            CanaryShare::Percent(percent) => {
                let rounded = (u64::from(replicas) * u64::from(percent) + 50) / 100;
                u32::try_from(rounded).unwrap_or(u32::MAX).max(1).min(most)
            }
            CanaryShare::Instances(number) => number.min(most),
        }
    }

    /// Why a canary with these steps cannot be made with so many instances, and what to do. `None`: it can.
    pub fn obstacle(steps: &[Self], replicas: u32) -> Option<(String, &'static str)> {
        if steps.is_empty() || replicas == 0 {
            return None;
        }
        if replicas == 1 {
            let message = "a canary needs at least 2 instances, and there is 1".to_owned();
            return Some((message, "set the number of replicas to 2 or more, or remove the canary"));
        }
        let mut before = 0;
        for step in steps {
            if let CanaryShare::Instances(number) = step.share
                && number >= replicas
            {
                let message = format!("the canary step `{step}` is no share of {replicas} instances");
                return Some((
                    message,
                    "a step leaves at least one old instance; after the last one all are replaced",
                ));
            }
            let number = step.instances(replicas);
            if number < before {
                let message = format!("the canary step `{step}` has fewer instances than the step before it");
                return Some((message, "order the steps by their share, the smallest first"));
            }
            before = number;
        }
        None
    }
}

impl fmt::Display for CanaryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share {
            CanaryShare::Percent(percent) => write!(f, "{percent}%")?,
            CanaryShare::Instances(number) => write!(f, "{number}")?,
        }
        let Some(pause) = self.pause else { return Ok(()) };
        let milliseconds = pause.as_millis();
        if milliseconds.is_multiple_of(1000) {
            write!(f, " for {}s", milliseconds / 1000)
        } else {
            write!(f, " for {milliseconds}ms")
        }
    }
}

impl From<CanaryStep> for String {
    fn from(step: CanaryStep) -> Self {
        step.to_string()
    }
}

impl TryFrom<String> for CanaryStep {
    type Error = InvalidCanary;

    fn try_from(text: String) -> Result<Self, InvalidCanary> {
        Self::parse(&text)
    }
}

/// The step that the canary of a workload has reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryRecord {
    /// The new specification. Another one begins with the first step again.
    pub spec: SpecHash,
    /// The number of steps that are over. As many as there are: all instances are replaced.
    pub passed: u32,
    /// When the new instances of the current step were available first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Timestamp>,
}

/// The canary of a workload while it is at one of its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatus {
    /// The current step, counting from 1.
    pub step: u32,
    pub steps: u32,
    /// The number of new instances at this step.
    pub instances: u32,
    /// The new instances have been available: the pause has begun.
    pub paused: bool,
    /// When the pause ends by itself. `None`: it waits for a user, or it has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(texts: &[&str]) -> Vec<CanaryStep> {
        texts.iter().map(|text| CanaryStep::parse(text).unwrap()).collect()
    }

    #[test]
    fn steps_have_a_share_and_may_have_a_time() {
        for (text, printed) in
            [("20% for 10m", "20% for 600s"), (" 1 ", "1"), ("99%", "99%"), ("2 for 1s500ms", "2 for 1500ms")]
        {
            let step = CanaryStep::parse(text).unwrap();
            assert_eq!(step.to_string(), printed);
            assert_eq!(CanaryStep::parse(printed).unwrap(), step);
        }
        for text in [
            "",
            "0",
            "0%",
            "100%",
            "-1",
            "1.5%",
            "a",
            "20% 10m",
            "20% for",
            "20% for 10",
            "20% for 1m 2",
            "for 10m",
        ] {
            assert!(CanaryStep::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn share_leaves_new_and_old_instances() {
        for (text, replicas, expected) in [
            ("20%", 5, 1),
            ("1%", 5, 1),
            ("99%", 5, 4),
            ("50%", 3, 2),
            ("50%", 2, 1),
            ("25%", 10, 3),
            ("3", 5, 3),
            ("7", 5, 4),
        ] {
            assert_eq!(
                CanaryStep::parse(text).unwrap().instances(replicas),
                expected,
                "{text} of {replicas}"
            );
        }
        assert_eq!(CanaryStep::parse("1%").unwrap().instances(0), 0);
    }

    #[test]
    fn shares_that_cannot_be_made_are_reported() {
        let message = |texts: &[&str], replicas| {
            CanaryStep::obstacle(&steps(texts), replicas).map(|(message, _)| message)
        };
        assert_eq!(message(&["20%", "50%"], 5), None);
        assert_eq!(message(&["20%"], 0), None);
        assert_eq!(
            message(&["20%"], 1).as_deref(),
            Some("a canary needs at least 2 instances, and there is 1")
        );
        assert_eq!(
            message(&["1", "3"], 3).as_deref(),
            Some("the canary step `3` is no share of 3 instances")
        );
        assert_eq!(
            message(&["50%", "1"], 10).as_deref(),
            Some("the canary step `1` has fewer instances than the step before it")
        );
    }
}
