//! `GET …/applications/{name}/wait`: answers when an application is in a state, or when something has changed.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use driftless_agent::{RequestError, Ticket};
use driftless_model::{Application, HealthStatus, SyncStatus, digest_hex};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::{api::Name, error::Error, parameters::Parameters, shared::Shared};

/// The longest wait of one request.
const LONGEST: Duration = Duration::from_mins(1);

/// A state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Synced,
    Healthy,
    Suspended,
    Degraded,
}

impl Goal {
    const ALL: [Self; 4] = [Self::Synced, Self::Healthy, Self::Suspended, Self::Degraded];

    /// The name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Healthy => "healthy",
            Self::Suspended => "suspended",
            Self::Degraded => "degraded",
        }
    }

    fn is_reached(self, application: &Application) -> bool {
        match self {
            Self::Synced => application.status.sync == SyncStatus::Synced,
            Self::Healthy => application.is_well(),
            Self::Suspended => application.status.health == HealthStatus::Suspended,
            Self::Degraded => application.status.health == HealthStatus::Degraded,
        }
    }
}

/// The query of `GET …/wait`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitQuery {
    /// States that must all be reached. Default: `synced,healthy`. Empty: wait for a change only.
    #[serde(default, rename = "for")]
    states: Option<String>,
    /// The request that the status must answer. Default: any.
    #[serde(default)]
    ticket: Option<String>,
    /// The `version` of the last answer: a status that differs from it is answered at once.
    #[serde(default)]
    seen: Option<String>,
    /// The longest wait, such as `30s`. Default: 30 s.
    #[serde(default)]
    within: Option<String>,
}

/// The answer of `GET …/wait`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waited {
    /// The application is in all the states, its status is about the newest target, and it answers the ticket.
    pub reached: bool,
    /// Identifies what `application` says, for `seen`.
    pub version: String,
    /// Why the application will not be `synced` until somebody acts, if that or no state was asked for: its newest commit failed
    /// or has manifests with errors, its containers are not adopted, or, if `healthy` was asked for as well, one has failed for
    /// good. As `reached`, it is about the newest target and the ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    pub application: Application,
}

/// The goal of one request.
struct Wish {
    states: Vec<Goal>,
    ticket: Option<Ticket>,
    seen: Option<String>,
    within: Duration,
}

impl Wish {
    fn read(query: WaitQuery) -> Result<Self, Error> {
        let WaitQuery { states, ticket, seen, within } = query;
        let states = states.unwrap_or_else(|| "synced,healthy".to_owned());
        let goal = |word: &str| {
            Goal::ALL.into_iter().find(|goal| goal.name() == word).ok_or_else(|| {
                let known = Goal::ALL.map(Goal::name).join(", ");
                Error::Malformed(format!("`for` is a list of {known}, not `{word}`"))
            })
        };
        let words = states.split(',').filter(|word| !word.is_empty());
        let states = words.map(goal).collect::<Result<Vec<_>, _>>()?;
        let ticket = ticket
            .map(|text| text.parse().map_err(|error| Error::Malformed(format!("`ticket`: {error}"))))
            .transpose()?;
        let within = match within {
            None => Duration::from_secs(30),
            Some(text) => driftless_model::parse_duration(&text)
                .map_err(|error| Error::Malformed(format!("`within`: {error}")))?,
        };
        if within > LONGEST {
            return Err(Error::Malformed(format!("`within` is at most {} s", LONGEST.as_secs())));
        }
        Ok(Self { states, ticket, seen, within })
    }

    fn is_reached(&self, application: &Application) -> bool {
        let is_there = self.states.iter().all(|goal| goal.is_reached(application));
        // A container of a failed commit that crashes again and again is healthy for moments.
        let is_possible = self.obstacle(application).is_none();
        !self.states.is_empty() && self.is_answered_by(application) && is_there && is_possible
    }

    /// Why the states are not reached until somebody acts. Without states, why the newest commit is not.
    fn obstacle<'a>(&self, application: &'a Application) -> Option<&'a str> {
        let status = &application.status;
        let is_asked = self.states.is_empty() || self.states.contains(&Goal::Synced);
        let failure = status.lasting_failure.as_deref().filter(|_| self.states.contains(&Goal::Healthy));
        let obstacle = status.obstacle.as_deref().or(failure);
        obstacle.filter(|_| is_asked && self.is_answered_by(application))
    }

    /// Whether the status is about the newest target and answers the ticket.
    fn is_answered_by(&self, application: &Application) -> bool {
        let is_answered = self.ticket.is_none_or(|ticket| ticket.is_answered_by(&application.status));
        is_answered && application.status.observed_generation >= application.generation
    }

    fn answer(&self, application: &Arc<Application>) -> Json<Waited> {
        Json(Waited {
            reached: self.is_reached(application),
            version: version(application),
            obstacle: self.obstacle(application).map(str::to_owned),
            application: Application::clone(application),
        })
    }
}

pub(super) async fn wait(
    State(shared): State<Shared>,
    Name(name): Name,
    Parameters(query): Parameters<WaitQuery>,
) -> Result<Json<Waited>, Error> {
    let wish = Wish::read(query)?;
    if wish.ticket.is_some_and(|ticket| !shared.handle.has_issued(&ticket)) {
        return Err(Error::Malformed("`ticket`: this agent has not made a request with this ticket".into()));
    }
    let _permit = shared.wait_permit()?;
    let end = Instant::now() + wish.within;
    let mut handle = shared.handle.clone();
    let mut last: Option<Arc<Application>> = None;
    loop {
        let application = match handle.application(&name) {
            // Its first round publishes it.
            Err(RequestError::Starting(_)) if Instant::now() < end => None,
            found => Some(found?),
        };
        // Most publications are about other applications.
        let is_known = |found: &Arc<Application>| last.as_ref().is_some_and(|last| Arc::ptr_eq(last, found));
        if let Some(new) = application.as_ref().filter(|found| !is_known(found)) {
            let has_changed = wish.seen.as_ref().is_some_and(|seen| *seen != version(new));
            if wish.is_reached(new) || has_changed {
                return Ok(wish.answer(new));
            }
        }
        match (timeout_at(end, handle.changed()).await, application) {
            (Ok(true), application) => last = application,
            (Ok(false), _) => return Err(Error::Stopping),
            (Err(_), Some(application)) => return Ok(wish.answer(&application)),
            // The time is over: the next look says so.
            (Err(_), None) => {}
        }
    }
}

/// Identifies what an application says.
fn version(application: &Application) -> String {
    let json = serde_json::to_vec(application).unwrap_or_default();
    let mut digest = digest_hex(&json);
    digest.truncate(16);
    digest
}
