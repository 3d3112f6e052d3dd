//! Entries of queues that no task handles any more, since their repository or receiver has left the configuration. They would
//! wait for ever, and hide those that are stuck.

use std::collections::{BTreeMap, BTreeSet};

use driftless_config::{Repository, Settings};
use driftless_model::{DeliveryOutcome, Timestamp};
use driftless_store::{Error, Store};

use crate::error::chain;

/// Ends these entries, when the agent starts. If that fails, they only stay.
pub(crate) fn end_stale_queues(settings: &Settings, store: &Store, now: Timestamp) {
    if let Err(error) = try_to_end(settings, store, now) {
        tracing::warn!(
            error = chain(&error),
            "could not end what waits for removed repositories or receivers"
        );
    }
}

fn try_to_end(settings: &Settings, store: &Store, now: Timestamp) -> Result<(), Error> {
    let names_with = |is_used: fn(&Repository) -> bool| -> BTreeSet<&str> {
        let repositories = settings.repositories.iter().filter(|repository| is_used(repository));
        repositories.map(|repository| repository.name.as_str()).collect()
    };
    let message = "the repository is not followed any more, or has no `webhook`".to_owned();
    let outcome = DeliveryOutcome { at: now, message };
    store.close_other_deliveries(&names_with(|repository| repository.webhook.is_some()), &outcome)?;
    store.remove_other_statuses(&names_with(|repository| repository.status.is_some()))?;
    // With a receiver, the watch of incidents does so.
    if settings.notifications.receivers.is_empty() {
        store.drop_notifications(&BTreeMap::new())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use driftless_clock::Clock;
    use driftless_model::{CommitId, Delivery, DeliveryResult, WebhookProvider};
    use driftless_store::StoredStatus;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn queues_keep_no_entries_of_removed_repositories() {
        let store = Store::in_memory(Clock::System).unwrap();
        let delivery = Delivery {
            id: "one".to_owned(),
            at: NOW,
            provider: WebhookProvider::GitHub,
            event: "push".to_owned(),
            reference: None,
            commit: None,
            maybe_other_branch: false,
            from: String::new(),
            result: DeliveryResult::Accepted,
            message: String::new(),
            outcome: None,
        };
        let status = StoredStatus {
            commit: CommitId::from_stored("a".repeat(40)),
            context: "driftless/shop".to_owned(),
            state: "pending".to_owned(),
            description: String::new(),
        };
        for repository in ["infra", "old"] {
            store.accept_delivery(repository, &delivery).unwrap();
            store.set_status(repository, &status).unwrap();
        }
        let infra = "repositories:\n- name: infra\n  url: https://github.com/me/infra.git\n";
        let lengths = |rest: &str| {
            let settings = Settings::parse("driftless.yaml", &format!("{infra}{rest}")).unwrap();
            end_stale_queues(&settings, &store, NOW);
            store.queues().unwrap().iter().map(|queue| queue.length).collect::<Vec<_>>()
        };
        let of_both = "  webhook: {provider: github, secretFile: /k/hook}\n  \
                       status: {provider: github, tokenFile: /k/token}\n";
        assert_eq!(lengths(of_both), [1, 1, 0], "those of `infra` stay");
        let old = store.last_delivery("old").unwrap().unwrap().outcome.unwrap();
        assert!(old.message.contains("not followed any more"), "{old:?}");
        assert_eq!(lengths(""), [0, 0, 0]);
    }
}
