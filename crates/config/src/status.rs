//! Where a repository's forge is told what became of a commit: keys, and what its URL says of the forge.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

use super::{Secret, schema};

/// The forge whose commits get a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStatus {
    pub provider: StatusProvider,
    pub token: Secret,
    /// The address of its API. Default: made from the repository's URL.
    pub api: String,
    /// `owner/name`. Default: the path of the repository's URL.
    pub project: String,
    /// What a status is called, before `/` and the application's name. One for each host that follows the same
    /// repository. Default: `driftless`.
    pub context: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusProvider {
    GitHub,
    GitLab,
    /// And Forgejo.
    #[serde(alias = "forgejo")]
    Gitea,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawStatus {
    provider: StatusProvider,
    token_env: Option<String>,
    #[serde(default, deserialize_with = "schema::absolute")]
    token_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "api")]
    url: Option<String>,
    project: Option<String>,
    context: Option<String>,
}

impl RawStatus {
    /// The error is a sentence about the section as a whole.
    pub(super) fn check(self, repository: &str) -> Result<CommitStatus, &'static str> {
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
        let place = place(repository);
        let api = url.or_else(|| place.as_ref().map(|it| default_api(provider, &it.0)));
        let project = project.or_else(|| place.map(|it| it.1)).filter(|it| it.contains('/'));
        let (Some(api), Some(project)) = (api, project) else {
            return Err("the repository's URL does not tell its forge: give `url`, such as \
                 `https://git.example.com/api/v1`, and `project`, such as `me/infra`");
        };
        let context = context.unwrap_or_else(|| "driftless".to_owned());
        if context.is_empty() || context.len() > 100 || context.chars().any(char::is_control) {
            return Err("`context` is a short name, such as `driftless-berlin`");
        }
        Ok(CommitStatus { provider, token, api, project, context })
    }
}

/// Scheme and host as a forge's page has them, and the path without `.git`.
fn place(url: &str) -> Option<(String, String)> {
    let (origin, path) = match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/')?;
            match scheme.to_ascii_lowercase().as_str() {
                scheme @ ("http" | "https") => (format!("{scheme}://{authority}"), path),
                "file" => return None,
                // The port is that of SSH.
                _ => {
                    let host = authority.rsplit('@').next()?;
                    (format!("https://{}", host.split(':').next()?), path)
                }
            }
        }
        None if url.starts_with('/') => return None,
        None => {
            let (host, path) = url.split_once(':')?;
            (format!("https://{}", host.rsplit('@').next()?), path)
        }
    };
    let path = path.trim_matches('/');
    Some((origin, path.strip_suffix(".git").unwrap_or(path).to_owned()))
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

fn api<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_option(schema::Scalar(|text| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        if rest.is_some_and(|it| !it.is_empty() && !it.contains('@')) {
            Ok(text.trim_end_matches('/').to_owned())
        } else {
            Err("the address of the API is written as `https://git.example.com/api/v1`".to_owned())
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_repository_tells_its_forge() {
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
            let (origin, path) = place(url).unwrap();
            assert_eq!((default_api(provider, &origin).as_str(), path.as_str()), (api, project), "{url}");
        }
        assert_eq!((place("/srv/infra.git"), place("file:///srv/infra.git")), (None, None));
    }
}
