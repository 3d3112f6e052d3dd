//! Small conversions to the engine's types.
#![expect(clippy::disallowed_types, reason = "the engine's types contain hash maps")]

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

pub(super) fn hash_map(map: &BTreeMap<String, String>) -> HashMap<String, String> {
    map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// `None` for an empty list.
pub(super) fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The engine counts in seconds. Rounded up, so that nothing gets less time than its manifest says.
pub(crate) fn whole_seconds(duration: Duration) -> i64 {
    let rounded = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(rounded).unwrap_or(i64::MAX)
}
