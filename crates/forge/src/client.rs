//! The client for one repository of a forge: statuses of commits, and comments on pull requests.

use driftless_model::CommitId;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::json;

use crate::{
    call::{Caller, Connection, Error},
    kind::ForgeKind,
};

/// The longest comment that every forge accepts, in characters. GitHub's limit is 65,536.
pub const LONGEST_COMMENT: usize = 65_000;

/// The longest description of a status that GitHub accepts, in characters.
const LONGEST_DESCRIPTION: usize = 140;

/// The newest comments with the marker that are tried. The forge may refuse to change those of others.
const TRIED: usize = 3;

/// Maximum number of pages of comments in which the marker is searched.
const PAGES: u32 = 20;
const PER_PAGE: usize = 100;

/// A client for one repository of a forge.
#[derive(Clone, Debug)]
pub struct Forge {
    kind: ForgeKind,
    caller: Caller,
    /// The repository's part of a path, such as `repos/me/infra` or `projects/me%2Finfra`.
    project: String,
}

/// The status of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub state: State,
    /// Context such as `driftless/preview`; a later status of the same context replaces this one.
    pub context: String,
    /// One line, cut to the forge's limit.
    pub description: String,
    /// Link to details.
    pub url: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    Success,
    /// The check found a problem.
    Failure,
    /// The check itself failed.
    Error,
}

/// The outcome of [`Forge::set_comment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Created,
    Updated,
    /// The comment had this text already.
    Unchanged,
}

#[derive(Deserialize)]
struct Comment {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    /// GitHub only: the relation of the author to the repository.
    #[serde(default)]
    author_association: Option<String>,
    #[serde(default)]
    user: Option<Author>,
}

#[derive(Deserialize)]
struct Author {
    /// GitHub only: `Bot` or `User`.
    #[serde(default)]
    r#type: Option<String>,
}

impl Comment {
    /// Whether it begins with the marker; a comment that quotes it is not ours. Anybody can write the marker: on GitHub, a token that may
    /// edit the comments of others must not do so with that of a stranger, who could change the report afterwards.
    fn may_be_ours(&self, marker: &str) -> bool {
        let is_bot = self.user.as_ref().and_then(|user| user.r#type.as_deref()) == Some("Bot");
        let is_trusted = self.author_association.as_deref().is_none_or(|it| MEMBERS.contains(&it));
        let begins = self.body.as_deref().is_some_and(|body| body.trim_start().starts_with(marker));
        begins && (is_bot || is_trusted)
    }
}

/// Authors who may change the repository, in the words of GitHub.
const MEMBERS: [&str; 3] = ["OWNER", "MEMBER", "COLLABORATOR"];

impl Forge {
    /// `api` is the address of the API, such as `https://api.github.com`, `https://gitlab.example.com/api/v4` or
    /// `https://git.example.com/api/v1`; `project` is `owner/name`, or on GitLab the path or number of a project.
    pub fn new(
        kind: ForgeKind,
        api: &str,
        project: &str,
        token: &str,
        connection: &Connection,
    ) -> Result<Self, Error> {
        let address = api.trim_end_matches('/');
        let url = Url::parse(address).ok().filter(|it| matches!(it.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| Error::Address(address.to_owned()))?;
        let caller = Caller::new(kind, url, token.trim(), connection)?;
        let project = project.trim_matches('/');
        let is_plain = |it: &str| {
            !it.is_empty()
                && it != "."
                && it != ".."
                && it.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_.".contains(&it))
        };
        let parts: Vec<&str> = project.split('/').collect();
        let is_good = parts.iter().all(|it| is_plain(it)) && (parts.len() == 2 || kind == ForgeKind::GitLab);
        if !is_good {
            return Err(Error::Project(project.to_owned()));
        }
        let project = match kind {
            ForgeKind::GitHub | ForgeKind::Gitea => format!("repos/{project}"),
            ForgeKind::GitLab => format!("projects/{}", parts.join("%2F")),
        };
        Ok(Self { kind, caller, project })
    }

    /// Sets the status of a commit, given by its full id.
    pub async fn set_status(&self, commit: &CommitId, status: &Status) -> Result<(), Error> {
        let doing = format!("set the status of {}", commit.short());
        if CommitId::parse(commit.as_str()).is_err() {
            return Err(Error::Commit(commit.to_string()));
        }
        let path = format!("{}/statuses/{commit}", self.project);
        let Status { state, context, description, url } = status;
        let state = self.word(*state);
        let description = sent_description(description);
        let mut body = json!({ "state": state, "description": description });
        let name = if self.kind == ForgeKind::GitLab { "name" } else { "context" };
        body[name] = json!(context);
        if let Some(url) = url {
            body["target_url"] = json!(url);
        }
        match self.caller.post(&doing, &path, &body).await {
            // GitLab refuses to set the state that the commit already has.
            Err(Error::Refused { status: StatusCode::BAD_REQUEST, message, .. })
                if self.kind == ForgeKind::GitLab && message.contains("Cannot transition status") =>
            {
                Ok(())
            }
            // GitLab does not say that a protected branch needs a higher role.
            Err(Error::Refused { doing, status: StatusCode::FORBIDDEN, message, retry_after: None })
                if self.kind == ForgeKind::GitLab =>
            {
                let message = format!(
                    "{message}; for a protected branch, the token needs a role that may push or merge to it"
                );
                Err(Error::Refused { doing, status: StatusCode::FORBIDDEN, message, retry_after: None })
            }
            done => done,
        }
    }

    /// Creates or updates the comment on a pull or merge request that begins with `marker`. Where the forge refuses to change the
    /// newest ones, because they are those of others, another one is created. A body that is too long
    /// is an error: only the caller knows what can be left out.
    pub async fn set_comment(&self, request: u64, marker: &str, body: &str) -> Result<Written, Error> {
        let doing = match self.kind {
            ForgeKind::GitHub | ForgeKind::Gitea => format!("comment on pull request {request}"),
            ForgeKind::GitLab => format!("comment on merge request {request}"),
        };
        if body.chars().count() > LONGEST_COMMENT {
            return Err(Error::TooLong);
        }
        let text = json!({ "body": body });
        let all = match self.kind {
            ForgeKind::GitHub | ForgeKind::Gitea => format!("{}/issues/{request}/comments", self.project),
            ForgeKind::GitLab => format!("{}/merge_requests/{request}/notes", self.project),
        };
        for comment in self.find(&doing, &all, marker).await?.into_iter().rev().take(TRIED) {
            if comment.body.as_deref().map(normal) == Some(normal(body)) {
                return Ok(Written::Unchanged);
            }
            let id = comment.id;
            let updated = match self.kind {
                ForgeKind::GitHub | ForgeKind::Gitea => {
                    let path = format!("{}/issues/comments/{id}", self.project);
                    self.caller.patch(&doing, &path, &text).await
                }
                ForgeKind::GitLab => self.caller.put(&doing, &format!("{all}/{id}"), &text).await,
            };
            match updated {
                // It is that of somebody else, such as the former user of the job.
                Err(error) if error.is_permission() => {}
                updated => return updated.map(|()| Written::Updated),
            }
        }
        self.caller.post(&doing, &all, &text).await?;
        Ok(Written::Created)
    }

    /// The comments that begin with the marker, oldest first.
    async fn find(&self, doing: &str, all: &str, marker: &str) -> Result<Vec<Comment>, Error> {
        let mut before = None;
        let mut ours = Vec::new();
        for page in 1..=PAGES {
            // Oldest first, so that a new comment moves none to another page.
            let order = if self.kind == ForgeKind::GitLab { "&sort=asc&order_by=created_at" } else { "" };
            let path = format!("{all}?per_page={PER_PAGE}&limit={PER_PAGE}&page={page}{order}");
            let comments: Vec<Comment> = self.caller.get(doing, &path).await?;
            let first = comments.first().map(|it| it.id);
            // Gitea ignores the page and returns all.
            if page > 1 && first == before {
                break;
            }
            let is_last = comments.len() < PER_PAGE;
            ours.extend(comments.into_iter().filter(|it| it.may_be_ours(marker)));
            if is_last {
                break;
            }
            before = first;
        }
        Ok(ours)
    }

    fn word(&self, state: State) -> &'static str {
        match (state, self.kind) {
            (State::Pending, _) => "pending",
            (State::Success, _) => "success",
            (State::Failure | State::Error, ForgeKind::GitLab) => "failed",
            (State::Failure, ForgeKind::GitHub | ForgeKind::Gitea) => "failure",
            (State::Error, ForgeKind::GitHub | ForgeKind::Gitea) => "error",
        }
    }
}

/// The text as forges store it: with `\n` line ends, trimmed.
fn normal(text: &str) -> String {
    text.replace("\r\n", "\n").trim().to_owned()
}

/// The description of a status as a forge gets it: one line of at most 140 characters.
pub fn sent_description(description: &str) -> String {
    shortened(description, LONGEST_DESCRIPTION)
}

fn shortened(text: &str, most: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= most {
        return line.to_owned();
    }
    line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}
