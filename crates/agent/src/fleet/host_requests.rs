//! Acts on the requests of a collector that this agent has joined: only those that `fleet.allowRequests` has, each of them at most
//! once. The id is stored before the agent acts.

use std::{collections::BTreeSet, time::Duration};

use driftless_clock::Clock;
use driftless_config::Audit;
use driftless_model::{
    Actor, ActorKind, AuditEntry, AuditResult, Channel, HostRequest, HostRequestKind, HostRequestOutcome,
    HostRequestResult, Timestamp, Until,
};
use driftless_store as store;
use driftless_store::Store;

use crate::{
    Handle,
    auditor::Auditor,
    error::chain,
    request::{RequestKind, Rollback},
};

/// Time for the agent to accept or refuse a request.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(30);

/// The settings about requests of collectors.
#[derive(Clone, Debug, Default)]
pub struct RequestSettings {
    /// The kinds that are allowed. Empty: none.
    pub allowed: BTreeSet<HostRequestKind>,
    /// For the entries about requests.
    pub audit: Audit,
}

/// Acts on the requests of one collector.
pub(crate) struct HostRequests {
    url: String,
    allowed: BTreeSet<HostRequestKind>,
    handle: Handle,
    store: Store,
    auditor: Auditor,
    clock: Clock,
}

impl HostRequests {
    pub(crate) fn new(
        url: &str,
        settings: &RequestSettings,
        handle: &Handle,
        store: &Store,
        clock: Clock,
    ) -> Self {
        Self {
            url: url.to_owned(),
            allowed: settings.allowed.clone(),
            handle: handle.clone(),
            store: store.clone(),
            auditor: Auditor::new(store.clone(), settings.audit.clone(), clock),
            clock,
        }
    }

    /// Acts on requests, one after the other. Returns whether there are results to report.
    pub(crate) async fn act(&self, requests: Vec<HostRequest>) -> bool {
        let mut has_results = false;
        for request in requests {
            match self.act_on(&request).await {
                Ok(acted) => has_results |= acted,
                Err(error) => {
                    let (to, id) = (&self.url, &request.id);
                    tracing::error!(
                        to,
                        id,
                        error = chain(&error),
                        "could not store a request of a collector"
                    );
                }
            }
        }
        has_results
    }

    /// Acts on a request. False: it was here before.
    async fn act_on(&self, request: &HostRequest) -> Result<bool, store::Error> {
        let (url, id, now) = (self.url.clone(), request.id.clone(), self.clock.now());
        let is_new = self.blocking(move |store| store.begin_host_request(&url, &id, now)).await;
        if !is_new.unwrap_or(Ok(false))? {
            return Ok(false);
        }
        let actor = Actor::new(ActorKind::Collector, format!("{} for {}", self.url, request.actor));
        let (outcome, message) = match self.perform(request, &actor).await {
            Ok(()) => (HostRequestOutcome::Accepted, String::new()),
            Err(refused) => refused,
        };
        let entry = AuditEntry {
            sequence: 0,
            at: Timestamp(0),
            actor,
            channel: Channel::Api,
            from: self.url.clone(),
            action: request.kind.word().to_owned(),
            app: Some(request.application.clone()),
            detail: format!("request {} {}", request.id, request.to.as_deref().unwrap_or_default()),
            result: match outcome {
                HostRequestOutcome::Accepted => AuditResult::Accepted,
                HostRequestOutcome::Refused | HostRequestOutcome::Unknown => AuditResult::Refused,
            },
            message: message.clone(),
        };
        self.auditor.store(AuditEntry { detail: entry.detail.trim_end().to_owned(), ..entry }).await;
        let result = HostRequestResult { id: request.id.clone(), outcome, message };
        // Without it, the result stays unknown, and the request is not performed again.
        self.blocking(move |store| store.end_host_request(&result)).await.unwrap_or(Ok(()))?;
        Ok(true)
    }

    async fn perform(
        &self,
        request: &HostRequest,
        actor: &Actor,
    ) -> Result<(), (HostRequestOutcome, String)> {
        if !self.allowed.contains(&request.kind) {
            let message = format!(
                "this host does not allow {} by a collector: `fleet.allowRequests` in its configuration says what it allows",
                request.kind.word()
            );
            return Err((HostRequestOutcome::Refused, message));
        }
        let kind = match request.kind {
            HostRequestKind::Sync => RequestKind::Sync,
            HostRequestKind::Suspend => RequestKind::Suspend,
            HostRequestKind::Resume => RequestKind::Resume,
            HostRequestKind::Rollback => RequestKind::Rollback(Rollback {
                to: request.to.clone(),
                reason: format!("asked for by {actor}"),
                until: Until::Manual,
            }),
        };
        let handle = self.handle.acting_for(actor);
        let asked = handle.request(request.application.clone(), kind);
        match tokio::time::timeout(ACCEPTED_WITHIN, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err((HostRequestOutcome::Refused, error.to_string())),
            Err(_) => Err((HostRequestOutcome::Unknown, "the agent did not answer in time".to_owned())),
        }
    }

    /// `None`: the agent is stopping.
    async fn blocking<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Option<T> {
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || query(&store)).await.ok()
    }
}
