//! Why a repository does not have an application that was deployed from it, and whether that may be a mistake.

use std::collections::BTreeMap;

use driftless_config as config;
use driftless_git as git;
use driftless_model::{AppName, HostIdentity};
use driftless_store::Store;

use crate::error::chain;

/// The reason why a repository does not have an application that was deployed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// Git does not have it any more.
    Gone,
    /// The commit removes all applications of the repository at once, which may be a mistake if there are several. `count` are
    /// those that are still known.
    Emptied { count: usize },
    /// The commit, or one before it, removed so many applications of the repository at once that it may be a mistake, and others
    /// are left. With a `count` of 1, the removal of this one waited already, and it may have been the only one.
    Reduced { count: usize },
    /// It may be missing by mistake, for the reason of `RepositoryView::doubt`.
    Doubtful,
    /// The repository could not be read completely.
    Unclear,
}

/// The deployed applications of a repository that were last applied while the host had another name or other labels.
///
/// # Errors
///
/// If the database cannot be read. Nobody knows then whether the host has changed, so no commit may be used.
pub(crate) fn former_hosts(
    settings: &config::Repository,
    store: &Store,
) -> Result<BTreeMap<AppName, HostIdentity>, git::Error> {
    let known = store.known_applications().map_err(|error| git::Error {
        cause: git::Cause::Interrupted,
        doing: "compare the host with that of the last run".to_owned(),
        message: chain(&error),
        retry_after: None,
    })?;
    let own = known.into_iter().filter(|known| known.repository == settings.name);
    let former = own.filter_map(|known| {
        let host = known.host()?;
        Some((known.app, host))
    });
    Ok(former.filter(|(_, host)| *host != settings.host).collect())
}

/// Why an application is missing that the host would have under its former name and labels.
pub(crate) fn changed_host(former: &HostIdentity, now: &HostIdentity) -> String {
    let name = |host: &HostIdentity| match host.name.as_str() {
        "" => "without a name".to_owned(),
        known => format!("`{known}`"),
    };
    let labels = |host: &HostIdentity, other: &HostIdentity| {
        let differ = host.labels.iter().filter(|(label, value)| other.labels.get(*label) != Some(*value));
        let differ: Vec<String> = differ.map(|(label, value)| format!("`{label}={value}`")).collect();
        if differ.is_empty() { "none".to_owned() } else { differ.join(", ") }
    };
    if former.name == now.name {
        format!(
            "the application is for this host as its labels were before (then {}, now {}): set `host.labels`",
            labels(former, now),
            labels(now, former)
        )
    } else {
        format!(
            "the application is for this host under its former name (then {}, now {}): set `host.name`",
            name(former),
            name(now)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_name_or_label_of_the_host_is_named() {
        let host = |name: &str, role: Option<&str>| HostIdentity {
            name: name.to_owned(),
            labels: role.map(|role| ("role".to_owned(), role.to_owned())).into_iter().collect(),
        };
        let (before, renamed) = (host("nas", Some("media")), host("", Some("media")));
        let text = changed_host(&before, &renamed);
        assert!(text.contains("(then `nas`, now without a name): set `host.name`"), "{text}");
        let text = changed_host(&before, &host("nas", None));
        assert!(text.contains("(then `role=media`, now none): set `host.labels`"), "{text}");
    }
}
