//! Checks of the Git repositories: server, credentials, host key, reference.

use std::time::Duration;

use super::check::Check;
use crate::cli::context::Context;
use driftless_config::{Repository, Settings};
use driftless_git::{FetchPermits, RepositoryOptions};
use driftless_model::error_chain;

/// The time limit of one server.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn checks(settings: &Settings, context: &Context<'_>) -> Vec<Check> {
    let all = settings.repositories.iter().map(|repository| check(repository, settings, context));
    futures_util::future::join_all(all).await
}

async fn check(repository: &Repository, settings: &Settings, context: &Context<'_>) -> Check {
    let name = format!("repository {}", repository.name);
    let mirror = settings.state_dir.join("mirrors").join(&repository.name);
    let environment = context.environment.clone();
    let mut options = RepositoryOptions::new(repository, mirror, environment, FetchPermits::default());
    options.timeout = options.timeout.min(LIMIT);
    match driftless_git::Repository::probe(options).await {
        Ok(commit) => Check::ok(name, format!("answers, the newest commit is {}", commit.short())),
        Err(error) => Check::fail(name, error_chain(&error), help(repository)),
    }
}

fn help(repository: &Repository) -> &'static str {
    let auth = &repository.auth;
    if auth.ssh_key.is_some() {
        "check the key on the server, `knownHosts` or `hostKeys`, and the reference; docs/git.md"
    } else if auth.password.is_some() || auth.github_app.is_some() {
        "check the URL, that the token is valid and may read the repository, and the reference; docs/git.md"
    } else {
        "check the URL and the reference; a private repository needs `auth`; docs/git.md"
    }
}
