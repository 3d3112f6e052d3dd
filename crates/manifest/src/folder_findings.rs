//! Findings about folders and files that somebody may expect to be applications, and that are none.

use driftless_files::paths;
use driftless_model::{Finding, Location, Severity};

/// The search depth below the given path, in folders.
pub(crate) const DEEPEST: usize = 2;

/// The most folders with the same problem that are named.
pub(crate) const MOST_NAMED: usize = 5;

/// The advice about a folder below the search depth.
pub(crate) const NEARER: &str = "name it in `applications`, or set `path` to a folder that is nearer to it";

/// Folders whose manifests are seldom meant for the agent, so that nothing warns of them.
pub(crate) const ASIDE: &[&str] =
    &["docs", "example", "examples", "node_modules", "templates", "test", "testdata", "tests", "vendor"];

/// Why a folder or file that somebody may expect to be an application is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    HelmChart,
    /// A Compose file that the search does not know by its name.
    OtherName,
    /// A file in the form of a Kubernetes manifest, above applications, with kinds of another tool.
    OtherTool,
    Submodule,
}

impl Missed {
    const ALL: [Self; 4] = [Self::HelmChart, Self::OtherName, Self::OtherTool, Self::Submodule];

    /// The rest of a sentence that begins with the path.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::HelmChart => "is a Helm chart, which is not read",
            Self::OtherName => "looks like a Compose file, but is not found by its name",
            Self::OtherTool => {
                "has only kinds of another tool, so its folder is no application, and those below are read"
            }
            Self::Submodule => "is a submodule, which is not fetched, so it is not searched",
        }
    }

    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::HelmChart => {
                "commit the output of `helm template` to a folder of its own, or list its folder `templates` in `applications` if \
                 the manifests in it are complete"
            }
            Self::OtherName => "name it in `files` of an entry of `applications`, or call it `compose.yaml`",
            Self::OtherTool => {
                "if its folder was an application, move the file to a folder of its own, or list the applications in \
                 `applications`"
            }
            Self::Submodule => "if it has applications, set `submodules: true` in the agent's configuration",
        }
    }
}

/// Warnings about all that was missed.
pub(crate) fn of_missed(missed: &[(Missed, String)]) -> Vec<Finding> {
    let warnings = |reason: Missed| {
        let same = missed.iter().filter(|(other, _)| *other == reason);
        let paths: Vec<String> = same.map(|(_, path)| path.clone()).collect();
        of_each(Severity::Warning, &paths, reason.message(), reason.advice())
    };
    Missed::ALL.into_iter().flat_map(warnings).collect()
}

/// One finding for each of the first paths, and one with the number of the others. The message is the rest of a sentence that begins
/// with the path.
pub(crate) fn of_each(severity: Severity, all: &[String], message: &str, help: &str) -> Vec<Finding> {
    let (named, others) = all.split_at(all.len().min(MOST_NAMED));
    let mut findings: Vec<Finding> =
        named.iter().map(|path| Finding { severity, ..error(path, message).help(help) }).collect();
    if let Some(first) = others.first() {
        let above = match common_folder(all) {
            "" => String::new(),
            folder => format!("; all are below `{folder}`"),
        };
        let message = format!("the same holds for {} more, such as `{first}`{above}", others.len());
        findings.push(Finding {
            severity,
            ..Finding::error(Location::file(first.clone()), "", message).help(help)
        });
    }
    findings
}

/// The deepest folder that has all of these below it.
fn common_folder(all: &[String]) -> &str {
    let mut folder = all.first().map_or("", |first| paths::parent(first));
    while !folder.is_empty() && !all.iter().all(|path| path.starts_with(&format!("{folder}/"))) {
        folder = paths::parent(folder);
    }
    folder
}

/// An error about a folder. The message is the rest of a sentence that begins with it.
pub(crate) fn error(folder: &str, message: &str) -> Finding {
    let (place, shown) = match folder {
        "" => (".", "the root of the repository".to_owned()),
        folder => (folder, format!("`{folder}`")),
    };
    Finding::error(Location::file(place), "", format!("{shown} {message}"))
}

/// Why a folder with such a content is no application.
pub(crate) fn too_deep(content: &str) -> String {
    format!("has {content}, but lies more than {DEEPEST} folders below the path, so it is not read")
}

/// Whether the manifests of a folder below `top` are seldom meant for the agent.
pub(crate) fn is_aside(folder: &str, top: &str) -> bool {
    let below = folder.strip_prefix(top).unwrap_or(folder);
    below.split('/').any(|name| ASIDE.contains(&name))
}
