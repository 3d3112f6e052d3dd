//! How heals of one field are counted.

use driftless_model::WorkloadName;

use crate::facts::fs_changes;

/// How often the same difference is corrected although that has no effect.
pub(crate) const TRIES: u32 = 2;

/// The key under which heals of a field are counted. Changed files are undone by a container of another name, so those
/// heals are counted for the workload.
pub(crate) fn heal_key(object: &str, workload: Option<&WorkloadName>, field: &str) -> String {
    match workload {
        Some(workload) if field == fs_changes::FIELD => format!("{workload} {field}"),
        Some(_) | None => format!("{object} {field}"),
    }
}
