//! Kubernetes manifests for the tests about them: rendered, with their findings.

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_kubernetes as kubernetes;
use driftless_model::{Finding, Stack};

/// Renders the manifests of an application, by path.
pub(crate) fn render_files(app: &str, files: &[(&str, &str)]) -> Rendered {
    let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    let spec = AppSpec { path: app.to_owned(), ..AppSpec::kubernetes(app, &paths) };
    kubernetes::render(&MemoryFiles::new(files.iter().copied()), &spec)
}

/// Renders one manifest, `a.yaml` of the application `shop`.
pub(crate) fn render(text: &str) -> Rendered {
    render_files("shop", &[("a.yaml", text)])
}

pub(crate) fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

/// The errors and warnings of a manifest.
pub(crate) fn findings(text: &str) -> Vec<String> {
    lines(&render(text).findings)
}

/// The stack of a manifest, which may have warnings.
#[track_caller]
pub(crate) fn stack(text: &str) -> Stack {
    let rendered = render(text);
    rendered.stack.unwrap_or_else(|| panic!("{:#?}", lines(&rendered.findings)))
}

/// The stack of a manifest without a warning.
#[track_caller]
pub(crate) fn stack_without_findings(text: &str) -> Stack {
    let rendered = render(text);
    assert_eq!(lines(&rendered.findings), [""; 0]);
    rendered.stack.unwrap()
}

/// A manifest has these findings and no others, in this order. Each one contains its text.
#[track_caller]
pub(crate) fn assert_findings(text: &str, expected: &[&str]) {
    let found = findings(text);
    let are_equal = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a.contains(b));
    assert!(are_equal, "expected: {expected:#?}\nfound: {found:#?}");
}

/// Each text has one finding, as `read` reads it, and it begins so.
#[track_caller]
pub(crate) fn assert_one_finding_each(cases: &[(String, &str)], read: impl Fn(&str) -> Vec<String>) {
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let found = read(text);
        if found.len() != 1 || !found[0].starts_with(expected) {
            wrong.push(format!("{text}\nexpected: {expected}\n   found: {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
