//! Times, durations, sizes, limits and sentences as people read them.

use std::time::Duration;

use driftless_model::{Mask, RestartPolicy};

/// Whether two sentences differ in numbers only, such as counters and times, or not at all.
pub fn differs_in_numbers_only(one: &str, other: &str) -> bool {
    let words = |text: &str| {
        let is_word = |word: &&str| !word.contains(|letter: char| letter.is_ascii_digit());
        text.split_whitespace().filter(is_word).map(str::to_owned).collect::<Vec<_>>()
    };
    words(one) == words(other)
}

/// `1m 30s`, `90 ms`: a duration for people.
pub(crate) fn duration(it: Duration) -> String {
    let (seconds, millis) = (it.as_secs(), it.subsec_millis());
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) if millis > 0 => format!("{millis}ms"),
        (0, 0, s) if millis > 0 => format!("{s}.{millis:03}s"),
        (0, 0, s) => format!("{s}s"),
        (0, m, 0) => format!("{m}m"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, 0, 0) => format!("{h}h"),
        (h, m, 0) => format!("{h}h{m}m"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

/// `128 MiB` where it is a whole number of them, or else bytes.
pub(crate) fn bytes(count: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if count >= size && count.is_multiple_of(size) {
            return format!("{} {unit}", count / size);
        }
    }
    format!("{count} bytes")
}

/// `always`, `on-failure:3`, as Docker's command line takes it.
pub(crate) fn restart(policy: RestartPolicy) -> String {
    match policy {
        RestartPolicy::No => "no".to_owned(),
        RestartPolicy::Always => "always".to_owned(),
        RestartPolicy::UnlessStopped => "unless-stopped".to_owned(),
        RestartPolicy::OnFailure { max_retries: None } => "on-failure".to_owned(),
        RestartPolicy::OnFailure { max_retries: Some(limit) } => format!("on-failure:{limit}"),
    }
}

/// Errors of engines and programs may have many lines; a sentence has one.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Maximum length of a container's output in a sentence, in characters.
const OUTPUT: usize = 300;

/// The last lines that a container or its health check printed, masked, in one line of at most 300 characters. The end is
/// kept, because it says why.
pub fn output(lines: &str, mask: &Mask) -> String {
    let masked = mask.output(lines);
    let mut lines: Vec<String> = masked.lines().map(one_line).filter(|line| !line.is_empty()).collect();
    // A container that crashes again and again prints the same each time.
    lines.dedup();
    let text = lines.join(" | ");
    // The end says why.
    let cut = text.chars().count().saturating_sub(OUTPUT);
    if cut == 0 { text } else { format!("…{}", text.chars().skip(cut).collect::<String>()) }
}

/// Whether a field is a variable of a container. Its value may be a secret, even if its name does not suggest it.
pub(crate) fn is_variable(field: &str) -> bool {
    field.starts_with("env.")
}

/// The code of a run that did not end by itself: the agent stops it, because a probe has failed for good.
pub(crate) const DEAD: i64 = -1;

/// The code of a task of a Swarm that failed without one: it was rejected before it started, or its node was lost.
pub(crate) const NO_CODE: i64 = -2;

/// The way in which a container ended.
pub(crate) fn ended(code: i64) -> String {
    match code {
        DEAD => "failed its probe".to_owned(),
        NO_CODE => "failed".to_owned(),
        code => format!("exited with code {code}"),
    }
}

/// Why a container ended, as far as the engine, a probe and its output tell.
pub(crate) fn crash_reason(error: &str, output: Option<&String>) -> String {
    match (error, output) {
        (error, None) => error.to_owned(),
        ("", Some(output)) => format!("last output `{output}`"),
        (error, Some(output)) => format!("{error}; last output `{output}`"),
    }
}

/// `1.5`: whole and fractional CPUs.
pub(crate) fn cpus(nano: u64) -> String {
    let (whole, rest) = (nano / 1_000_000_000, nano % 1_000_000_000);
    if rest == 0 { whole.to_string() } else { format!("{whole}.{rest:09}").trim_end_matches('0').to_owned() }
}

#[cfg(test)]
mod tests {
    use driftless_model::Container;

    use super::*;
    use crate::fields::diff::differences;

    #[test]
    fn a_changed_variable_is_a_field_of_a_variable() {
        let with = |value: &str| Container {
            env: [("TOKEN".to_owned(), Some(value.to_owned()))].into(),
            ..Container::default()
        };
        let found = differences(&with("a"), &Container::default(), &with("b"), &Mask::without_codes());
        assert!(found.len() == 1 && is_variable(&found[0].field), "{found:?}");
    }
}
