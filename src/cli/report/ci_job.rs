//! Reads the environment of a CI job: forge, repository, pull or merge request, commit and token.

use std::path::Path;

use serde_json::Value;

use crate::cli::Environment;
use driftless_forge::ForgeKind;

/// Destination of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) kind: ForgeKind,
    pub(super) api: String,
    pub(super) project: String,
    /// `None` if the job has no pull or merge request.
    pub(super) request: Option<u64>,
    /// The commit of the change, not of a temporary merge commit.
    pub(super) commit: Option<String>,
    /// URL of this job.
    pub(super) url: Option<String>,
    /// Whether the request comes from a fork, whose token may not write.
    pub(super) is_fork: bool,
}

/// `None` outside the known CIs.
pub(super) fn ci_job(environment: &Environment) -> Option<Job> {
    let get = |name: &str| environment(name).filter(|it| !it.is_empty());
    if get("GITLAB_CI").is_some() {
        return gitlab(&get);
    }
    // Forgejo and Gitea set the variables of GitHub, and one of their own.
    let is_gitea = ["FORGEJO_ACTIONS", "GITEA_ACTIONS"].iter().any(|it| get(it).is_some());
    if is_gitea || get("GITHUB_ACTIONS").is_some() {
        let kind = if is_gitea { ForgeKind::Gitea } else { ForgeKind::GitHub };
        return actions(kind, &get);
    }
    None
}

/// The token for the job's forge; `DRIFTLESS_FORGE_TOKEN` takes precedence.
pub(super) fn token(kind: ForgeKind, environment: &Environment) -> Option<String> {
    let names: &[&str] = match kind {
        ForgeKind::GitHub => &["DRIFTLESS_FORGE_TOKEN", "GITHUB_TOKEN", "GH_TOKEN"],
        ForgeKind::GitLab => &["DRIFTLESS_FORGE_TOKEN", "GITLAB_TOKEN"],
        ForgeKind::Gitea => &["DRIFTLESS_FORGE_TOKEN", "FORGEJO_TOKEN", "GITEA_TOKEN", "GITHUB_TOKEN"],
    };
    names.iter().find_map(|it| environment(it).filter(|it| !it.trim().is_empty()))
}

/// The variables that [`token`] reads.
pub(super) fn token_names(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::GitHub => "GITHUB_TOKEN or DRIFTLESS_FORGE_TOKEN",
        ForgeKind::GitLab => "GITLAB_TOKEN or DRIFTLESS_FORGE_TOKEN",
        ForgeKind::Gitea => "FORGEJO_TOKEN, GITEA_TOKEN or DRIFTLESS_FORGE_TOKEN",
    }
}

fn gitlab(get: &dyn Fn(&str) -> Option<String>) -> Option<Job> {
    let (source, target) = (get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID"), get("CI_MERGE_REQUEST_PROJECT_ID"));
    Some(Job {
        kind: ForgeKind::GitLab,
        api: get("CI_API_V4_URL")?,
        project: target.clone().or_else(|| get("CI_PROJECT_ID"))?,
        request: get("CI_MERGE_REQUEST_IID").and_then(|it| it.parse().ok()),
        // In a merged-results pipeline, the other variable names a temporary merge commit.
        commit: get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA").or_else(|| get("CI_COMMIT_SHA")),
        url: get("CI_JOB_URL"),
        is_fork: source.is_some() && source != target,
    })
}

fn actions(kind: ForgeKind, get: &dyn Fn(&str) -> Option<String>) -> Option<Job> {
    let project = get("GITHUB_REPOSITORY")?;
    let server = get("GITHUB_SERVER_URL");
    let own = || server.as_ref().map(|it| format!("{}/api/v1", it.trim_end_matches('/')));
    let api = match kind {
        ForgeKind::Gitea => get("GITHUB_API_URL").or_else(own)?,
        ForgeKind::GitHub | ForgeKind::GitLab => {
            get("GITHUB_API_URL").unwrap_or_else(|| "https://api.github.com".to_owned())
        }
    };
    let event = get("GITHUB_EVENT_PATH").and_then(|it| read(Path::new(&it))).unwrap_or_default();
    let of_ref = || {
        let reference = get("GITHUB_REF")?;
        reference.strip_prefix("refs/pull/")?.split('/').next()?.parse().ok()
    };
    let request = event.pointer("/pull_request/number").and_then(Value::as_u64).or_else(of_ref);
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (head, base) = (text("/pull_request/head/repo/full_name"), text("/pull_request/base/repo/full_name"));
    let url = get("GITHUB_RUN_ID").zip(server).map(|(run, server)| match kind {
        ForgeKind::GitHub | ForgeKind::GitLab | ForgeKind::Gitea => {
            format!("{server}/{project}/actions/runs/{run}")
        }
    });
    Some(Job {
        kind,
        api,
        request,
        commit: text("/pull_request/head/sha").or_else(|| get("GITHUB_SHA")),
        url,
        is_fork: head.is_some() && head != base,
        project,
    })
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;

    fn environment(all: &[(&str, &str)]) -> Environment {
        let all: BTreeMap<String, String> =
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Arc::new(move |name| all.get(name).cloned())
    }

    #[test]
    fn a_pull_request_on_github_is_found_in_its_event() {
        let folder = tempfile::tempdir().unwrap();
        let event = folder.path().join("event.json");
        let text = r#"{"pull_request":{"number":12,"head":{"sha":"abc","repo":{"full_name":"you/infra"}},
            "base":{"repo":{"full_name":"me/infra"}}}}"#;
        std::fs::write(&event, text).unwrap();
        let all = [
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_API_URL", "https://api.github.com"),
            ("GITHUB_SERVER_URL", "https://github.com"),
            ("GITHUB_REPOSITORY", "me/infra"),
            ("GITHUB_RUN_ID", "5"),
            ("GITHUB_SHA", "def"),
            ("GITHUB_REF", "refs/pull/13/merge"),
            ("GITHUB_EVENT_PATH", event.to_str().unwrap()),
        ];
        let found = ci_job(&environment(&all)).unwrap();
        assert_eq!(
            (found.kind, found.request, found.commit.as_deref()),
            (ForgeKind::GitHub, Some(12), Some("abc"))
        );
        assert!(found.is_fork);
        assert_eq!(found.url.as_deref(), Some("https://github.com/me/infra/actions/runs/5"));
        // Without the event file, the reference still names the request.
        let found = ci_job(&environment(&all[..7])).unwrap();
        assert_eq!((found.request, found.commit.as_deref(), found.is_fork), (Some(13), Some("def"), false));
    }

    #[test]
    fn forgejo_github_and_gitlab_jobs_are_recognised() {
        let all = [
            ("GITHUB_ACTIONS", "true"),
            ("FORGEJO_ACTIONS", "true"),
            ("GITHUB_SERVER_URL", "https://git.example.com"),
            ("GITHUB_REPOSITORY", "me/infra"),
            ("GITHUB_REF", "refs/heads/main"),
            ("GITHUB_TOKEN", "a"),
            ("FORGEJO_TOKEN", "b"),
        ];
        let environment_of_forgejo = environment(&all);
        let found = ci_job(&environment_of_forgejo).unwrap();
        assert_eq!((found.kind, found.request), (ForgeKind::Gitea, None));
        assert_eq!(found.api, "https://git.example.com/api/v1");
        assert_eq!(token(ForgeKind::Gitea, &environment_of_forgejo).as_deref(), Some("b"));
        let all = [
            ("GITLAB_CI", "true"),
            ("CI_API_V4_URL", "https://gitlab.example.com/api/v4"),
            ("CI_PROJECT_ID", "99"),
            ("CI_MERGE_REQUEST_PROJECT_ID", "42"),
            ("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "99"),
            ("CI_MERGE_REQUEST_IID", "7"),
            ("CI_COMMIT_SHA", "def"),
        ];
        let found = ci_job(&environment(&all)).unwrap();
        assert_eq!((found.project.as_str(), found.request, found.is_fork), ("42", Some(7), true));
        assert_eq!(token(ForgeKind::GitLab, &environment(&all)), None);
        assert_eq!(ci_job(&environment(&[])), None);
    }
}
