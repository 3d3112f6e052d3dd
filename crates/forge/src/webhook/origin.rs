//! Compares the repository that a payload names with the configured one.
//!
//! Nothing is fetched from a URL of a payload; the comparison only keeps a webhook from triggering other
//! repositories.

use driftless_model::RepoUrl;

/// The end of the hosts that Azure DevOps had before.
const OLD_AZURE: &str = ".visualstudio.com";

/// The normal form of a repository's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Lower case, without user and port; empty if only the path is known.
    host: String,
    /// Lower case, without slashes at the ends and without `.git`.
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Same,
    /// One side has nothing to compare.
    Unknown,
    /// The same repository under another host name, as with a forge that has an internal and an external address.
    OtherHost {
        named: String,
    },
    Other {
        named: String,
    },
}

impl Origin {
    /// Reads URLs, the scp form, and plain paths such as `me/infra`.
    pub fn of(text: &str) -> Self {
        match RepoUrl::parse_public(text) {
            Ok(url) => Self::of_url(&url),
            Err(_) => Self::path(text.split(['?', '#']).next().unwrap_or(text)),
        }
    }

    /// The normal form of a configured URL.
    pub(super) fn of_url(url: &RepoUrl) -> Self {
        let host = url.host().unwrap_or_default().to_ascii_lowercase();
        let path = plain_path(&url.decoded_path(), organization(&host));
        Self { host: plain_host(&host), path }
    }

    /// Reads a path made of a payload's parts, such as a project key and a repository slug.
    pub fn path(text: &str) -> Self {
        Self { host: String::new(), path: plain_path(text, None) }
    }

    fn shown(&self) -> String {
        if self.host.is_empty() { self.path.clone() } else { format!("{}/{}", self.host, self.path) }
    }

    /// Owner and name, which are the same behind any proxy and prefix.
    fn tail(&self) -> Option<(&str, &str)> {
        let (before, name) = self.path.rsplit_once('/')?;
        Some((before.rsplit('/').next().unwrap_or(before), name))
    }
}

/// A repository on a local path has another name at every forge, so it cannot be compared.
pub(super) fn compare(configured: &Origin, named: &[Origin]) -> Match {
    let Some(first) = named.first() else { return Match::Unknown };
    if configured.host.is_empty() {
        return Match::Unknown;
    }
    if named.iter().any(|it| it.path == configured.path && (it.host == configured.host || it.host.is_empty()))
    {
        return Match::Same;
    }
    let is_alike =
        |it: &&Origin| it.path == configured.path || (it.tail().is_some() && it.tail() == configured.tail());
    match named.iter().find(is_alike) {
        Some(it) if it.host.is_empty() || it.host == configured.host => Match::Same,
        Some(it) => Match::OtherHost { named: it.host.clone() },
        None => Match::Other { named: first.shown() },
    }
}

/// The host without port, and without the prefixes that forges use for SSH over port 443.
fn plain_host(host: &str) -> String {
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    let bare = host.strip_prefix("altssh.").or_else(|| host.strip_prefix("ssh.")).unwrap_or(host);
    match bare.strip_suffix(OLD_AZURE) {
        Some(_) => "dev.azure.com".to_owned(),
        None => bare.to_owned(),
    }
}

/// The organization in a host of Azure DevOps: `me.visualstudio.com/project/…` is the old form of `dev.azure.com/me/project/…`.
fn organization(host: &str) -> Option<&str> {
    // The path of the old form for SSH has it.
    host.strip_suffix(OLD_AZURE).filter(|name| *name != "vs-ssh")
}

/// `v3/` and `_git` are of Azure DevOps, `scm/` of Bitbucket Data Center, in one of their two forms each. `organization` is the
/// part of the path that is in the host.
fn plain_path(path: &str, organization: Option<&str>) -> String {
    let path = path.trim_matches('/').to_lowercase();
    let path = path.strip_suffix(".git").unwrap_or(&path);
    let is_azure = path.starts_with("v3/") || path.split('/').any(|name| name == "_git");
    let prefixes: &[&str] = if organization.is_some() { &["defaultcollection/"] } else { &["v3/", "scm/"] };
    let path = prefixes.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
    let names = path.split('/').filter(|name| !name.is_empty() && *name != "_git");
    let mut names: Vec<&str> = organization.into_iter().chain(names).collect();
    // The repository with the name of its project: `me/infra/_git/infra` is the long form of `me/_git/infra`.
    if is_azure && matches!(names.as_slice(), [_, .., project, name] if project == name) {
        names.pop();
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_many_spellings() {
        for (configured, named) in [
            ("https://git.example.com/me/infra.git", "https://GIT.example.com/me/infra"),
            ("https://git.example.com/me/infra", "git@git.example.com:me/infra.git"),
            ("ssh://git@git.example.com:2222/me/infra.git", "https://git.example.com:3000/Me/Infra"),
            ("ssh://git@ssh.github.com:443/me/infra.git", "https://github.com/me/infra"),
            ("git@altssh.bitbucket.org:me/infra.git", "https://bitbucket.org/me/infra"),
            ("git@ssh.dev.azure.com:v3/me/project/infra", "https://me@dev.azure.com/me/project/_git/infra"),
            ("https://dev.azure.com/me/project/_git/infra", "https://me.visualstudio.com/project/_git/infra"),
            ("https://dev.azure.com/me/Infra/_git/Infra", "https://dev.azure.com/me/_git/Infra"),
            ("https://me@dev.azure.com/me/_git/Infra", "https://dev.azure.com/me/Infra/_git/Infra"),
            ("git@ssh.dev.azure.com:v3/me/infra/infra", "https://dev.azure.com/me/_git/infra"),
            ("git@ssh.dev.azure.com:v3/me/infra/infra", "https://me.visualstudio.com/_git/infra"),
            ("me@vs-ssh.visualstudio.com:v3/me/infra/infra", "https://dev.azure.com/me/_git/infra"),
            (
                "https://dev.azure.com/me/infra/_git/infra",
                "https://me.visualstudio.com/DefaultCollection/_git/infra",
            ),
            (
                "https://tfs.example.com/tfs/Main/infra/_git/infra",
                "https://tfs.example.com/tfs/Main/_git/infra",
            ),
            (
                "ssh://git@ssh.dev.azure.com/v3/me/My%20Project/infra",
                "https://dev.azure.com/me/My%20Project/_git/infra",
            ),
            (
                "git@ssh.dev.azure.com:v3/me/My%20Project/infra",
                "https://dev.azure.com/me/my%20project/_git/infra",
            ),
            ("https://git.example.com/scm/prj/infra.git", "ssh://git@git.example.com:7999/prj/infra.git"),
            ("https://example.com/gitea/me/infra.git", "https://example.com/me/infra.git"),
        ] {
            assert_eq!(
                compare(&Origin::of(configured), &[Origin::of(named)]),
                Match::Same,
                "{configured} {named}"
            );
        }
        assert_eq!(
            compare(&Origin::of("https://h/scm/PRJ/infra.git"), &[Origin::path("prj/infra")]),
            Match::Same
        );
    }

    #[test]
    fn other_repository_and_other_host_are_distinguished() {
        let infra = "https://git.example.com/me/infra.git";
        for other in ["https://git.example.com/me/infra2", "https://git.example.com/you/infra", "infra", ""] {
            assert!(
                matches!(compare(&Origin::of(infra), &[Origin::of(other)]), Match::Other { .. }),
                "{other}"
            );
        }
        let default = Origin::of("https://dev.azure.com/me/infra/_git/infra");
        for other in ["https://dev.azure.com/me/infra/_git/shop", "https://dev.azure.com/me/_git/shop"] {
            assert!(matches!(compare(&default, &[Origin::of(other)]), Match::Other { .. }), "{other}");
        }
        let outer = compare(&Origin::of("http://gitea:3000/me/infra.git"), &[Origin::of(infra)]);
        assert_eq!(outer, Match::OtherHost { named: "git.example.com".into() });
        assert_eq!(compare(&Origin::of(infra), &[]), Match::Unknown);
        assert_eq!(compare(&Origin::of("/srv/infra.git"), &[Origin::of(infra)]), Match::Unknown);
        assert_eq!(compare(&Origin::of("file:///srv/infra.git"), &[Origin::of(infra)]), Match::Unknown);
    }
}
