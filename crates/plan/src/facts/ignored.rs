//! `ignoreDifferences`: which differences of live containers are reported and left.

use driftless_model::{IgnoredField, Policy, Subject};

/// The field that the policy or the manifest names, if a difference of this workload at this path is ignored.
pub(crate) fn rule<'a>(policy: &'a Policy, subject: Subject<'a>, path: &str) -> Option<&'a IgnoredField> {
    let concerned = policy
        .ignore_differences
        .iter()
        .filter(|rule| rule.workload.as_ref().is_none_or(|workload| workload == subject.name));
    let of_policy = concerned.flat_map(|rule| &rule.fields);
    subject.workload.ignore_differences.iter().chain(of_policy).find(|field| field.covers(path))
}
