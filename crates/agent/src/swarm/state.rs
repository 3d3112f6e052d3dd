//! The state of an application that the agents on all managers of a Swarm have in common: its pin, its suspension, the numbers of
//! tasks that users set, the updates that failed, the Jobs that have completed, the newer images that were found, the digests of images, and the
//! revision that was last applied, and what is left of `engine: docker` on the managers. It is in the label of a Swarm config, so it outlives each of the nodes.
//!
//! Each agent remembers the state that all last agreed on. A change by its own users since then goes to the Swarm, and a change
//! in the Swarm becomes its own.

use std::collections::BTreeMap;

use driftless_model::{
    AppName, AppliedRevision, AvailableImage, EventKind, Observed, ObservedSwarm, Pin, REVISION_ELSEWHERE,
    Record, ResolvedImage, Revision, ScaleOverride, SharedState, SwarmRecord, WorkloadName, digest_hex,
};
use driftless_plan::{SwarmAction, left_on_host};
use driftless_store as store;
use driftless_store::Suspension;

use crate::{context::AppContext, record::StoredRecord, revisions::target::TargetRevision};

/// The result of a comparison of the states of this agent and of the Swarm.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    Reached,
    /// This agent has taken the state of the Swarm: the target must be chosen again.
    Taken,
    /// The Swarm does not have the state of this agent.
    Share(Box<SwarmAction>, Box<SharedState>),
}

/// Compares the states, and takes over what others have changed in that of the Swarm.
pub(crate) fn agree(
    context: &AppContext,
    target: &TargetRevision,
    observed: &Observed,
    record: &mut StoredRecord,
) -> Result<Agreement, store::Error> {
    let Some(swarm) = observed.swarm.as_deref().filter(|_| !target.stack.workloads.is_empty()) else {
        return Ok(Agreement::Reached);
    };
    let own = own_state(context, target, observed, swarm, record.get())?;
    let agreed = record.get().swarm.as_ref().map(|kept| kept.shared.clone()).unwrap_or_default();
    let present = swarm.shared.as_ref();
    let found = present.and_then(|present| present.state.clone());
    // The agent on the leader removes the config with the application. Another one that has not fetched since would write it again.
    if present.is_none() && !swarm.is_leader() && own == agreed {
        return Ok(Agreement::Reached);
    }
    // A config that is missing or cannot be read is written again.
    let merged = match &found {
        Some(found) => own.clone().merged(&agreed, found),
        None => own.clone(),
    };
    let found = found.unwrap_or_default();
    if merged != own {
        take(context, &merged, record)?;
        note_agreed(context, record, found);
        return Ok(Agreement::Taken);
    }
    if merged != found || present.is_some_and(|present| present.state.is_none()) {
        let action = SwarmAction::ShareState {
            project: target.stack.project.clone(),
            name: config_name(context.name()),
            present: present.map(|present| (present.id.clone(), present.version)),
            state: Box::new(merged.clone()),
        };
        return Ok(Agreement::Share(Box::new(action), Box::new(merged)));
    }
    note_agreed(context, record, found);
    Ok(Agreement::Reached)
}

/// Notes the state that the Swarm and this agent have.
pub(crate) fn note_agreed(context: &AppContext, record: &mut StoredRecord, state: SharedState) {
    let is_noted = record.get().swarm.as_ref().is_some_and(|kept| kept.shared == state);
    if is_noted || (record.get().swarm.is_none() && state == SharedState::default()) {
        return;
    }
    record.get_mut().swarm.get_or_insert_default().shared = state;
    record.save(context);
}

/// Forgets the updates that the Swarm paused or rolled back, as the Swarm has what Git asks for now: they were those of another
/// commit, which is deployed again if Git asks for it again. An agent that may know only older commits keeps them.
pub(crate) fn forget_failed_updates(observed: &Observed, record: &mut Record) {
    let leads = observed.swarm.as_ref().is_some_and(|swarm| swarm.is_leader());
    if let Some(kept) = record.swarm.as_mut().filter(|kept| leads && kept.unfetched.is_none()) {
        kept.try_again();
    }
}

/// The state as this agent has it.
fn own_state(
    context: &AppContext,
    target: &TargetRevision,
    observed: &Observed,
    swarm: &ObservedSwarm,
    record: &Record,
) -> Result<SharedState, store::Error> {
    let kept = record.swarm.as_deref();
    let agreed = kept.map(|kept| &kept.shared);
    let pin = context.store().pin(context.name())?;
    let services = kept.into_iter().flat_map(|kept| &kept.services);
    Ok(SharedState {
        suspended: context.store().suspended(context.name())?,
        // Each agent counts its revisions itself.
        pin: pin.map(|pin| Pin { revision: REVISION_ELSEWHERE, ..pin }),
        failed: services
            .filter_map(|(name, written)| Some((name.clone(), written.failed.clone()?)))
            .collect(),
        applied: applied(context, target, swarm, kept),
        scales: scales(context, target, record),
        completed_jobs: record.completed_jobs.shared(),
        images: images(swarm, record),
        digests: digests(swarm, record),
        left: left(target, observed, swarm, record),
        unknown: agreed.map(|agreed| agreed.unknown.clone()).unwrap_or_default(),
    })
}

/// The numbers of tasks that users set, also those of workloads that this agent does not know, as its fetch may be older.
fn scales(
    context: &AppContext,
    target: &TargetRevision,
    record: &Record,
) -> BTreeMap<WorkloadName, ScaleOverride> {
    let agreed = record.swarm.iter().flat_map(|kept| &kept.shared.scales);
    let unknown = agreed
        .filter(|(name, scale)| !target.stack.workloads.contains_key(*name) && scale.until > context.now());
    unknown.chain(&record.scales).map(|(name, scale)| (name.clone(), scale.clone())).collect()
}

/// The newer images that the agent on the leader has found. Only that one asks registries, and only if it knows the newest commit.
fn images(swarm: &ObservedSwarm, record: &Record) -> BTreeMap<String, AvailableImage> {
    let kept = record.swarm.as_deref();
    if !swarm.is_leader() || kept.is_some_and(|kept| kept.unfetched.is_some()) {
        return kept.map(|kept| kept.shared.images.clone()).unwrap_or_default();
    }
    own_images(record)
}

/// The digests of images that the agent on the leader has resolved: those of services may be of somebody else.
fn digests(swarm: &ObservedSwarm, record: &Record) -> BTreeMap<String, ResolvedImage> {
    let Some(kept) = record.swarm.as_deref() else { return BTreeMap::new() };
    if !swarm.is_leader() || !swarm.has_several_managers() || kept.unfetched.is_some() {
        return kept.shared.digests.clone();
    }
    let resolved = kept.images.iter().filter(|(reference, _)| !reference.contains('@'));
    resolved.map(|(reference, image)| (reference.clone(), image.clone())).collect()
}

/// The command that removes what is left of `engine: docker`, by the manager: on this agent's own one as it sees it, and on the others as their agents said.
fn left(
    target: &TargetRevision,
    observed: &Observed,
    swarm: &ObservedSwarm,
    record: &Record,
) -> BTreeMap<String, String> {
    let agreed = record.swarm.iter().flat_map(|kept| &kept.shared.left);
    let is_elsewhere = |node: &String| *node != swarm.node && swarm.nodes.contains_key(node);
    let elsewhere = agreed.filter(|(node, _)| is_elsewhere(node));
    let mut left: BTreeMap<String, String> =
        elsewhere.map(|(node, command)| (node.clone(), command.clone())).collect();
    if swarm.has_several_managers()
        && let Some(command) = left_on_host(&target.stack, observed, record)
    {
        left.insert(swarm.node.clone(), command);
    }
    left
}

fn own_images(record: &Record) -> BTreeMap<String, AvailableImage> {
    let all = record.followed_images.iter();
    all.filter_map(|(image, known)| Some((image.clone(), known.available.clone()?))).collect()
}

/// The revision that the agents have applied, including the one that this agent is about to apply.
fn applied(
    context: &AppContext,
    target: &TargetRevision,
    swarm: &ObservedSwarm,
    kept: Option<&SwarmRecord>,
) -> Option<AppliedRevision> {
    let agreed = kept.and_then(|kept| kept.shared.applied.clone());
    let is_held = target.policy.suspended || target.is_leaving || target.unconfirmed.is_some();
    let is_applied = agreed.as_ref().is_some_and(|agreed| agreed.stack == target.hash);
    if is_applied
        || is_held
        || !swarm.is_leader()
        || !swarm.has_several_managers()
        || kept.is_some_and(|kept| kept.unfetched.is_some())
    {
        return agreed;
    }
    let (commit, stack) = (target.commit.id.clone(), target.hash.clone());
    Some(AppliedRevision { commit, stack, by: context.agent().clone() })
}

/// Makes the state of the Swarm that of this agent.
fn take(context: &AppContext, shared: &SharedState, record: &mut StoredRecord) -> Result<(), store::Error> {
    let (name, store) = (context.name(), context.store());
    let event = |reason: &str, message: &str| {
        context.event(EventKind::Normal, reason, name.as_str(), message);
    };
    if shared.suspended != store.suspended(name)? {
        let suspension = if shared.suspended { Suspension::Suspended } else { Suspension::Active };
        store.set_suspended(name, suspension)?;
        let reason = if shared.suspended { "Suspended" } else { "Resumed" };
        event(reason, "asked of the agent on another manager of the Swarm");
    }
    let present = store.pin(name)?.map(|pin| Pin { revision: REVISION_ELSEWHERE, ..pin });
    if present != shared.pin {
        match &shared.pin {
            None => {
                store.clear_pin(name)?;
                event("PinReleased", "the agent on another manager of the Swarm has ended the pin");
            }
            Some(pin) => {
                let revision = revision_of(context, pin)?;
                store.set_pin(name, &Pin { revision, ..pin.clone() })?;
                let by = "asked of the agent on another manager of the Swarm";
                let message = format!("to commit {}, {by}: {}", pin.commit.short(), pin.reason);
                event("RolledBack", &message);
            }
        }
    }
    if record.get().scales != shared.scales {
        let record = record.get_mut();
        let before = std::mem::replace(&mut record.scales, shared.scales.clone());
        let scaled = before.keys().chain(shared.scales.keys());
        let scaled = scaled.filter(|name| before.get(*name) != shared.scales.get(*name));
        // The changes of these that follow are no drift.
        record.reopen(scaled.cloned());
        event("Scaled", "the agent on another manager of the Swarm was asked for other numbers of tasks");
    }
    if shared.images != own_images(record.get()) {
        let followed = &mut record.get_mut().followed_images;
        for known in followed.values_mut() {
            known.available = None;
        }
        for (image, available) in &shared.images {
            followed.entry(image.clone()).or_default().available = Some(available.clone());
        }
    }
    let kept = record.get_mut().swarm.get_or_insert_default();
    kept.images.extend(shared.digests.clone());
    for (service, written) in &mut kept.services {
        if written.failed.is_some() && !shared.failed.contains_key(service) {
            // It is tried again, or another specification has taken its place.
            (written.failed, written.wanted) = (None, String::new());
        }
    }
    for (service, failed) in &shared.failed {
        let written = kept.services.entry(service.clone()).or_default();
        written.wanted.clone_from(&failed.0);
        written.failed = Some(failed.clone());
    }
    Ok(())
}

/// The number of this agent's own revision of the commit of a pin. The newest that succeeded goes first.
fn revision_of(context: &AppContext, pin: &Pin) -> Result<u64, store::Error> {
    let history = context.store().revisions(context.name())?;
    let is_of_commit = |revision: &&Revision| revision.commit.id == pin.commit && !revision.is_removal();
    let of_commit = || history.iter().filter(is_of_commit);
    let found = of_commit().find(|revision| revision.is_way_back()).or_else(|| of_commit().next());
    Ok(found.map_or(REVISION_ELSEWHERE, |revision| revision.number))
}

/// The name of the config. A Swarm allows 64 letters, of which some are no letters of names.
fn config_name(app: &AppName) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_');
    let text = app.as_str();
    if text.len() <= 48 && text.chars().all(is_plain) {
        return format!("driftless.{text}");
    }
    let digest = digest_hex(text.as_bytes());
    format!("driftless.{}", digest.get(..32).unwrap_or(&digest))
}
