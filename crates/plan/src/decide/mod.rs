//! Decisions: which steps are safe now, and what the others wait for.

use crate::{draft::Draft, steps::Plan};

mod addresses;
mod adopt;
mod canary;
mod create;
pub(crate) mod cron;
mod files;
mod former_folder;
mod fs_drift;
mod group;
mod images;
pub(crate) mod job_retry;
pub(crate) mod jobs;
mod moved_folder;
mod namespaces;
mod orphans;
mod other_agent;
pub(crate) mod other_writers;
mod own_update;
mod platform;
mod pod_parts;
mod preconditions;
mod proportion;
mod prune;
mod repair;
mod replace;
mod resources;
mod rollout;
pub(crate) mod scaled;
mod secrets;
mod stateful_order;
mod teardown;
mod unknown_ends;
mod unpublished;
pub(crate) mod waves;
mod workloads;
pub(crate) mod writers;

/// Plans a round on the containers of one host.
///
/// The phases hand facts to later ones in fields of [`Draft`], so their order is part of the rules:
///
/// | phase | leaves | read by |
/// |---|---|---|
/// | `adopt` | `not_adopted` | `workloads`, which leaves these workloads to Docker Compose |
/// | `images` | `pulls`, `missing_images`, `kept_without_image`, `is_fetching` | all after it: nothing is stopped for a commit that is not complete |
/// | `resources::provide` | `provided`, `reconnected`, `kept_networks` | `preconditions`, `addresses` and `repair`: containers are created and connected after these steps |
/// | `orphans` | `removed`, `returning` | `preconditions`, `writers` and `addresses`: names, ports and data become free, or are about to be used again |
/// | `jobs` and `workloads` | `removed`, `stopped`, `started` and waits, for each workload that is planned later; `workloads` also `without_turn` | the workloads after it, and the removals |
/// | `remove_unused_networks`, `remove_volumes` | steps | nobody: they come after the removal of all containers |
/// | the `remark`s | waits | `excuse_late_ones`, which reads the waits of all phases |
pub(crate) fn plan_on_host(mut draft: Draft<'_>) -> Plan {
    if adopt::hold_unadopted(&mut draft) {
        return draft.finish();
    }
    if former_folder::hold_new(&mut draft) {
        return draft.finish();
    }
    images::pull_missing(&mut draft);
    resources::provide(&mut draft);
    orphans::remove_orphans(&mut draft);
    jobs::run_all(&mut draft);
    workloads::roll_all(&mut draft);
    resources::remove_unused_networks(&mut draft);
    resources::remove_volumes(&mut draft);
    waves::remark(&mut draft);
    scaled::remark(&mut draft);
    unknown_ends::remark(&mut draft);
    unpublished::remark(&mut draft);
    other_agent::remark(&mut draft);
    rollout::excuse_late_ones(&mut draft);
    cron::look_ahead(&mut draft);
    draft.connect_fixed_addresses_first();
    draft.finish()
}
