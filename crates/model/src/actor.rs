//! Actors, the scopes of tokens and people, and the entries of the audit.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AppName, Timestamp, matches_star};

/// The client, person or program that asked for something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    pub kind: ActorKind,
    /// The name of the token, user or repository. The agent itself has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// The way in which an actor is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ActorKind {
    /// The agent's own process.
    Agent,
    /// A user of this machine, known by the connection over loopback or over the Unix socket.
    LocalUser,
    /// The bearer of a token.
    Token,
    /// A person whom the trusted proxy or the OpenID provider has authenticated.
    User,
    /// An enrolled host of the fleet, known by the key of its agent.
    Host,
    /// A collector that this agent has joined, with the actor who asked it.
    Collector,
    /// The webhook of a repository.
    Webhook,
    /// Nobody whom the agent knows: a login that failed.
    Unknown,
}

impl Actor {
    /// An actor of this kind and name.
    pub fn new(kind: ActorKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }

    /// The agent's own process.
    pub fn agent() -> Self {
        Self::new(ActorKind::Agent, "")
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ActorKind::Agent => return f.write_str("agent"),
            ActorKind::Unknown => return f.write_str("unknown"),
            ActorKind::LocalUser => "local user",
            ActorKind::Token => "token",
            ActorKind::User => "user",
            ActorKind::Host => "host",
            ActorKind::Collector => "collector",
            ActorKind::Webhook => "webhook",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// A permission of a token or of a group of people. Every scope but `report` includes `read`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Read everything but the audit and the list of tokens.
    Read,
    /// Act on these applications: sync, rollback, restart and the like.
    Act(ActOn),
    /// Report the state of the hosts of this name to this collector, and nothing else: not even read. `*` in the name
    /// matches any text.
    Report(String),
    /// Everything, including the audit, tokens and the confirmation of a loss of state.
    Admin,
}

/// The applications of an `act` scope. `*` in a name matches any text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActOn {
    /// All applications.
    All,
    /// Applications by their name.
    Application(String),
    /// The applications of repositories by the name in the configuration.
    Repository(String),
}

/// A text that is no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no scope: write `read`, `act`, `act:app/NAME`, `act:repo/NAME`, `report`, `report:host/NAME` or `admin`; `*` in a name matches any text"
)]
pub struct InvalidScope(pub String);

impl Scope {
    /// Parses `read`, `act`, `act:app/NAME`, `act:repo/NAME`, `report`, `report:host/NAME` or `admin`.
    ///
    /// # Errors
    ///
    /// If the text is something else.
    pub fn parse(text: &str) -> Result<Self, InvalidScope> {
        let invalid = || InvalidScope(text.to_owned());
        let name = |name: &str| {
            let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-*".contains(letter);
            let is_name = !name.is_empty() && name.len() <= 100 && name.chars().all(is_letter);
            is_name.then(|| name.to_owned()).ok_or_else(invalid)
        };
        match text {
            "read" => Ok(Self::Read),
            "act" => Ok(Self::Act(ActOn::All)),
            "admin" => Ok(Self::Admin),
            "report" => Ok(Self::Report("*".to_owned())),
            _ if text.starts_with("report:host/") => {
                Ok(Self::Report(name(text.trim_start_matches("report:host/"))?))
            }
            _ => match text.strip_prefix("act:").and_then(|rest| rest.split_once('/')) {
                Some(("app", app)) => Ok(Self::Act(ActOn::Application(name(app)?))),
                Some(("repo", repository)) => Ok(Self::Act(ActOn::Repository(name(repository)?))),
                Some(_) | None => Err(invalid()),
            },
        }
    }

    /// Whether this scope permits to read the state of the agent.
    pub fn allows_reading(&self) -> bool {
        !matches!(self, Self::Report(_))
    }

    /// Whether this scope permits to report the state of a host.
    pub fn allows_reporting(&self, host: &str) -> bool {
        match self {
            Self::Admin => true,
            Self::Report(pattern) => matches_star(pattern, host),
            Self::Read | Self::Act(_) => false,
        }
    }

    /// Whether this scope permits to have a repository fetched.
    pub fn allows_fetching(&self, repository: &str) -> bool {
        match self {
            Self::Admin | Self::Act(ActOn::All) => true,
            Self::Act(ActOn::Repository(pattern)) => matches_star(pattern, repository),
            Self::Read | Self::Report(_) | Self::Act(ActOn::Application(_)) => false,
        }
    }

    /// Whether this scope permits to act on an application of a repository. `None`: the agent has no such application.
    pub fn allows_acting_on(&self, app: &AppName, repository: Option<&str>) -> bool {
        match self {
            Self::Read | Self::Report(_) => false,
            Self::Admin | Self::Act(ActOn::All) => true,
            Self::Act(ActOn::Application(pattern)) => matches_star(pattern, app.as_str()),
            Self::Act(ActOn::Repository(pattern)) => {
                repository.is_some_and(|repository| matches_star(pattern, repository))
            }
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Admin => f.write_str("admin"),
            Self::Report(name) if name == "*" => f.write_str("report"),
            Self::Report(name) => write!(f, "report:host/{name}"),
            Self::Act(ActOn::All) => f.write_str("act"),
            Self::Act(ActOn::Application(name)) => write!(f, "act:app/{name}"),
            Self::Act(ActOn::Repository(name)) => write!(f, "act:repo/{name}"),
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A named token as the agent stores and lists it. The token itself is not kept, only its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiToken {
    /// Unique.
    pub name: String,
    pub scopes: Vec<Scope>,
    pub created: Timestamp,
    /// The actor that created it.
    pub created_by: Actor,
    /// From this time on it is refused. `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

impl ApiToken {
    /// Whether the token is refused because its time is over.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// One request that changes something, as the audit stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Counts up; 0 before the store has numbered it.
    #[serde(default)]
    pub sequence: u64,
    pub at: Timestamp,
    pub actor: Actor,
    pub channel: Channel,
    /// The address of the client. `socket`: the Unix socket. Empty: the agent's own process.
    pub from: String,
    /// One word such as `sync` or `rollback`.
    pub action: String,
    /// The application, if the request is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// The rest of the request: a workload, a revision, a reason. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    pub result: AuditResult,
    /// Why it was refused or has failed. Empty: it was accepted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The way in which a request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    Api,
    Cli,
    Page,
    Webhook,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditResult {
    Accepted,
    /// The actor may not, or the request makes no sense in the present state.
    Refused,
    /// The agent could not: the engine, the database or the time failed.
    Failed,
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "api",
            Self::Cli => "cli",
            Self::Page => "page",
            Self::Webhook => "webhook",
        })
    }
}

impl fmt::Display for AuditResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Failed => "failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_written_as_they_are_read() {
        for text in ["read", "act", "act:app/shop", "act:repo/infra-*", "admin"] {
            assert_eq!(Scope::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "Read", "act:", "act:app", "act:app/", "act:host/nas", "act:app/a b", "write"] {
            assert!(Scope::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn act_scope_is_limited_to_its_applications() {
        let (shop, blog) = (AppName::from("shop"), AppName::from("blog"));
        let allows =
            |scope: &str, app: &AppName| Scope::parse(scope).unwrap().allows_acting_on(app, Some("infra"));
        assert!(!allows("read", &shop));
        assert!(allows("act", &shop) && allows("admin", &blog));
        assert!(allows("act:app/sho*", &shop) && !allows("act:app/shop", &blog));
        assert!(allows("act:repo/infra", &blog) && !allows("act:repo/other", &blog));
        let unknown = Scope::parse("act:repo/*").unwrap();
        assert!(!unknown.allows_acting_on(&shop, None), "an unknown application has no repository");
    }
}
