//! Unified diffs of two texts.

use similar::TextDiff;

/// The change from one text to another as a unified diff with three lines of context; empty when they are equal.
pub fn unified_diff(from_label: &str, from: &str, to_label: &str, to: &str) -> String {
    if from == to {
        return String::new();
    }
    TextDiff::from_lines(from, to).unified_diff().context_radius(3).header(from_label, to_label).to_string()
}
