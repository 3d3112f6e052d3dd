//! Small conversions from the engine's types.

use std::collections::BTreeMap;

use driftless_model::label;

#[expect(clippy::disallowed_types, reason = "the engine's types contain hash maps")]
pub(super) fn map(found: Option<&std::collections::HashMap<String, String>>) -> BTreeMap<String, String> {
    found.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// `None` for an empty text.
pub(super) fn filled(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// `None` for zero and negative numbers.
pub(super) fn positive(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number > 0)
}

/// The labels without those of the agent, of Docker Compose and of Docker Desktop.
pub(super) fn user_labels<'a>(
    all: impl Iterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let own = [
        label::AGENT,
        label::APPLICATION,
        label::WORKLOAD,
        label::SLOT,
        label::SPEC,
        label::ASKED,
        label::POD,
        label::PART,
        label::ROLE,
    ];
    let of_tools = [label::compose::PREFIX, label::DOCKER_DESKTOP];
    let is_of_tool = |name: &str| of_tools.iter().any(|prefix| name.starts_with(prefix));
    all.filter(|(name, _)| !own.contains(&name.as_str()) && !is_of_tool(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
