//! Applications that may be missing in the list of an agent: those that it has not observed yet, and those of repositories that
//! it has not read.

use super::{client, client::Client, findings::first_names};
use driftless_model::{AgentStatus, AppName, Application, RepositoryStatus};

/// The reasons why the list of an agent may not have all applications. They are read before the list, so that an application
/// which the agent observes in between is in one of them.
#[derive(Debug)]
pub(super) struct Missing {
    repositories: Vec<RepositoryStatus>,
    unobserved: Vec<AppName>,
}

impl Missing {
    /// Asks an agent. One of an earlier release, or one that has no answer for this token, has no reasons.
    pub(super) async fn read(client: &Client) -> Result<Self, client::Error> {
        let repositories = client.get::<Vec<RepositoryStatus>>("/api/v1/repositories").await;
        let repositories = if_allowed(repositories)?.unwrap_or_default();
        Ok(Self { repositories, unobserved: unobserved(client).await? })
    }

    /// A sentence for each reason that holds, with the list of all applications. Empty: the list is complete.
    pub(super) fn sentences(&self, all: &[Application]) -> Vec<String> {
        let is_unread = |repository: &&RepositoryStatus| {
            repository.commit.is_none() && !all.iter().any(|app| app.spec.repository == repository.name)
        };
        let sentence = |RepositoryStatus { name, message, .. }: &RepositoryStatus| {
            let message = if message.is_empty() { "it was not read yet" } else { message };
            format!("repository {name}: {message}")
        };
        let unread = self.repositories.iter().filter(is_unread).map(sentence);
        unread.chain(unobserved_sentence(&self.unobserved, all)).collect()
    }
}

/// The applications that an agent has not observed yet.
pub(super) async fn unobserved(client: &Client) -> Result<Vec<AppName>, client::Error> {
    let agent = if_allowed(client.get::<AgentStatus>("/api/v1/agent").await)?;
    Ok(agent.map(|agent| agent.unobserved).unwrap_or_default())
}

/// A sentence about the unobserved applications that a list does not have.
pub(super) fn unobserved_sentence(unobserved: &[AppName], all: &[Application]) -> Option<String> {
    let is_listed = |name: &AppName| all.iter().any(|app| app.name == *name);
    let names: Vec<&str> = unobserved.iter().filter(|name| !is_listed(name)).map(AppName::as_str).collect();
    let names = (!names.is_empty()).then(|| first_names(&names))?;
    Some(format!("the agent has not observed {names} yet; try again in a moment"))
}

/// `None` if the token is for others, or the agent is older.
fn if_allowed<T>(answer: Result<T, client::Error>) -> Result<Option<T>, client::Error> {
    match answer {
        Err(error) if error.is_forbidden() || error.is_not_found() => Ok(None),
        answer => answer.map(Some),
    }
}
