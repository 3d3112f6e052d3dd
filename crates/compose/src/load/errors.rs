//! The locations that have an error, so that no location gets two.

use std::collections::BTreeSet;

use driftless_model::{Finding, Location};

/// The locations that have an error.
pub(crate) fn errors_at(findings: &[Finding]) -> BTreeSet<Location> {
    findings.iter().filter(|finding| finding.is_error()).map(|finding| finding.location.clone()).collect()
}
