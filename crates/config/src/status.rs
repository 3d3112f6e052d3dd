//! Commit statuses: keys, and the forge that a repository's URL names.

use driftless_model::RepoUrl;

use std::path::PathBuf;

use crate::{
    keys,
    secret::Secret,
    settings::{CommitStatus, StatusProvider},
    value::{Fields as _, Value},
};

const PROVIDERS: &[(&str, StatusProvider)] = &[
    ("github", StatusProvider::GitHub),
    ("gitlab", StatusProvider::GitLab),
    ("gitea", StatusProvider::Gitea),
    ("forgejo", StatusProvider::Gitea),
];

/// The keys of `status`.
pub(super) struct StatusEntry {
    provider: StatusProvider,
    token_env: Option<String>,
    token_file: Option<PathBuf>,
    url: Option<String>,
    project: Option<String>,
    context: Option<String>,
}

impl StatusEntry {
    pub(super) fn read(value: Value<'_>) -> Option<Self> {
        let object = value.object(&keys::STATUS)?;
        object.require("provider");
        Some(Self {
            provider: object.word("provider", PROVIDERS).unwrap_or(StatusProvider::GitHub),
            token_env: object.owned("tokenEnv"),
            token_file: object.absolute("tokenFile"),
            url: object.parsed("url", api),
            project: object.owned("project"),
            context: object.owned("context"),
        })
    }

    /// The error is a message about the section.
    pub(super) fn check(self, repository: Option<&RepoUrl>) -> Result<CommitStatus, &'static str> {
        let Self { provider, token_env, token_file, url, project, context } = self;
        let token = match (token_env, token_file) {
            (Some(name), None) => Secret::Environment(name),
            (None, Some(path)) => Secret::File(path),
            (None, None) => {
                return Err("a status needs a token: name a file in `tokenFile` or a variable in `tokenEnv`");
            }
            (Some(_), Some(_)) => {
                return Err("`tokenEnv` and `tokenFile` exclude each other: give one of them");
            }
        };
        let place = repository.and_then(place);
        let api = url.or_else(|| place.as_ref().map(|it| default_api(provider, &it.0)));
        let project = project.or_else(|| place.map(|it| it.1)).filter(|it| it.contains('/'));
        let (Some(api), Some(project)) = (api, project) else {
            return Err("the repository's URL does not name its forge: give `url`, such as \
                 `https://git.example.com/api/v1`, and `project`, such as `me/infra`");
        };
        let context = context.unwrap_or_else(|| "driftless".to_owned());
        if context.is_empty() || context.len() > 100 || context.chars().any(char::is_control) {
            return Err("`context` must be a short name, such as `driftless-berlin`");
        }
        Ok(CommitStatus { provider, token, api, project, context })
    }
}

/// Scheme and host of the forge's pages, and the path without `.git`. `None`: the URL is local.
fn place(url: &RepoUrl) -> Option<(String, String)> {
    let path = url.path().trim_matches('/');
    Some((url.web_origin()?, path.strip_suffix(".git").unwrap_or(path).to_owned()))
}

fn default_api(provider: StatusProvider, origin: &str) -> String {
    match provider {
        StatusProvider::GitHub if origin == "https://github.com" || origin == "https://ssh.github.com" => {
            "https://api.github.com".to_owned()
        }
        StatusProvider::GitHub => format!("{origin}/api/v3"),
        StatusProvider::GitLab => format!("{origin}/api/v4"),
        StatusProvider::Gitea => format!("{origin}/api/v1"),
    }
}

fn api(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('@')) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("the address of the API is written as `https://git.example.com/api/v1`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forge_is_derived_from_the_repository_url() {
        for (url, provider, api, project) in [
            ("https://github.com/me/infra.git", StatusProvider::GitHub, "https://api.github.com", "me/infra"),
            ("git@github.com:me/infra.git", StatusProvider::GitHub, "https://api.github.com", "me/infra"),
            (
                "https://ghe.example/me/infra",
                StatusProvider::GitHub,
                "https://ghe.example/api/v3",
                "me/infra",
            ),
            (
                "ssh://git@git.example:2222/a/b/c.git",
                StatusProvider::GitLab,
                "https://git.example/api/v4",
                "a/b/c",
            ),
            ("http://gitea:3000/me/infra.git", StatusProvider::Gitea, "http://gitea:3000/api/v1", "me/infra"),
        ] {
            let (origin, path) = place(&RepoUrl::parse(url).unwrap()).unwrap();
            assert_eq!((default_api(provider, &origin).as_str(), path.as_str()), (api, project), "{url}");
        }
        for local in ["/srv/infra.git", "file:///srv/infra.git"] {
            assert_eq!(place(&RepoUrl::parse(local).unwrap()), None);
        }
    }
}
