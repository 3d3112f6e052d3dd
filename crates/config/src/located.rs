//! The places of broken rules between values: those of the values that their paths name.

use driftless_model::Finding;
use driftless_yaml::{Limits, Node, parse};

/// Gives each finding without a line the place of the value that its path names, or of the nearest one around it.
pub(super) fn located(file: &str, text: &str, mut findings: Vec<Finding>) -> Vec<Finding> {
    let documents = parse(file, text.as_bytes(), &Limits::default()).unwrap_or_default();
    let Some(root) = documents.first() else { return findings };
    for finding in findings.iter_mut().filter(|finding| finding.location.line == 0) {
        if let Some(node) = nearest(root, &finding.path) {
            finding.location = node.place.location();
        }
    }
    findings
}

/// The value at a path such as `repositories[0].auth`, or the last one on the way there. `None`: the file does not have the first
/// key.
fn nearest<'n>(root: &'n Node, path: &str) -> Option<&'n Node> {
    let mut nearest = None;
    for step in path.split(['.', '[']) {
        let node = nearest.unwrap_or(root);
        let next = match step.strip_suffix(']') {
            Some(index) => index.parse::<usize>().ok().and_then(|index| node.items().get(index)),
            None => node.get(step),
        };
        if next.is_none() {
            break;
        }
        nearest = next;
    }
    nearest
}
