//! Links to commits and lines at the forge of a repository, where its URL tells the forge.

use driftless_model::RepoUrl;

/// The forms of links that forges have.
#[derive(Clone, Copy)]
enum Links {
    GitHub,
    GitLab,
    Gitea,
    Bitbucket,
}

/// The links of one repository.
pub(super) struct ForgeLinks {
    /// `https://git.example.com/me/infra`
    base: String,
    /// `None`: the host's name does not tell the forge.
    links: Option<Links>,
}

impl ForgeLinks {
    /// The links of a repository at this URL. `None`: it is on this machine, or the URL is none.
    pub(super) fn of(url: &str) -> Option<Self> {
        let url = RepoUrl::parse(url).ok()?;
        let host = url.host()?.to_ascii_lowercase();
        let path = url.path().trim_matches('/').trim_end_matches(".git").trim_end_matches('/');
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-~".contains(letter);
        // A forge's repository has an owner and a name.
        if !path.contains('/') || !path.chars().all(is_plain) {
            return None;
        }
        let origin = url.web_origin().unwrap_or_else(|| format!("https://{host}"));
        let has = |word: &str| host.split('.').any(|part| part.starts_with(word));
        let links = if has("github") {
            Some(Links::GitHub)
        } else if has("gitlab") {
            Some(Links::GitLab)
        } else if has("bitbucket") {
            Some(Links::Bitbucket)
        } else if ["gitea", "forgejo", "codeberg"].into_iter().any(has) {
            Some(Links::Gitea)
        } else {
            None
        };
        Some(Self { base: format!("{origin}/{path}"), links })
    }

    /// The page of a commit. GitHub, Gitea, Forgejo and GitLab all answer the same path.
    pub(super) fn commit(&self, id: &str) -> String {
        let Self { base, links } = self;
        match links {
            Some(Links::GitLab) => format!("{base}/-/commit/{id}"),
            Some(Links::Bitbucket) => format!("{base}/commits/{id}"),
            Some(Links::GitHub | Links::Gitea) | None => format!("{base}/commit/{id}"),
        }
    }

    /// A line of a file at a commit. `None`: the forge is not known.
    pub(super) fn line(&self, id: &str, file: &str, line: u32) -> Option<String> {
        let base = &self.base;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-@+".contains(letter);
        if !file.chars().all(is_plain) || file.contains("..") {
            return None;
        }
        Some(match self.links? {
            Links::GitHub => format!("{base}/blob/{id}/{file}#L{line}"),
            Links::GitLab => format!("{base}/-/blob/{id}/{file}#L{line}"),
            Links::Gitea => format!("{base}/src/commit/{id}/{file}#L{line}"),
            Links::Bitbucket => format!("{base}/src/{id}/{file}#lines-{line}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_the_form_of_the_forge() {
        let commit = |url: &str| ForgeLinks::of(url).map(|links| links.commit("c0ffee"));
        let line =
            |url: &str| ForgeLinks::of(url).and_then(|links| links.line("c0ffee", "a/compose.yaml", 9));
        for (url, page, place) in [
            (
                "https://github.com/me/infra.git",
                "https://github.com/me/infra/commit/c0ffee",
                "blob/c0ffee/a/compose.yaml#L9",
            ),
            (
                "git@gitlab.example.com:me/sub/infra.git",
                "https://gitlab.example.com/me/sub/infra/-/commit/c0ffee",
                "-/blob/c0ffee/a/compose.yaml#L9",
            ),
            (
                "https://codeberg.org/me/infra",
                "https://codeberg.org/me/infra/commit/c0ffee",
                "src/commit/c0ffee/a/compose.yaml#L9",
            ),
            (
                "https://bitbucket.org/me/infra.git",
                "https://bitbucket.org/me/infra/commits/c0ffee",
                "src/c0ffee/a/compose.yaml#lines-9",
            ),
        ] {
            assert_eq!(commit(url).as_deref(), Some(page), "{url}");
            assert!(line(url).unwrap().ends_with(place), "{url}: {:?}", line(url));
        }
        assert_eq!(
            commit("https://git.example.com/me/infra.git").as_deref(),
            Some("https://git.example.com/me/infra/commit/c0ffee")
        );
        assert_eq!(line("https://git.example.com/me/infra.git"), None);
        for none in ["/srv/git/infra", "https://git.example.com/infra.git", "file:///srv/git/a/b"] {
            assert_eq!(commit(none), None, "{none}");
        }
        let links = ForgeLinks::of("https://github.com/me/infra").unwrap();
        assert_eq!(links.line("c", "a/../b", 1), None);
    }
}
