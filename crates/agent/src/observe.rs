//! The observed state of one application: what the engine says, what the probes say, and the last filesystem scans.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use driftless_docker as docker;
use driftless_docker::{Docker, ObserveScope};
use driftless_model::{
    AppName, Container, ContainerId, ContentId, EngineKind, Health, KnownReady, Mask, MountSource, Observed,
    Outcome, Policy, Readiness, Record, Removal, Stack, State, Timestamp, Workload, last_reached,
};
use driftless_plan::{masked_output, merge_adopted, recall_health};
use driftless_store as store;

use crate::{
    context::AppContext,
    error::chain,
    fs_scan::FsScans,
    probe::Prober,
    probe_targets::{add_readiness, is_current},
    revisions::{last_version::reached_stack, target::TargetRevision},
};

/// Adds what failing health checks printed, masked, to the reason why an instance is not ready.
pub(crate) fn show_check_outputs(observed: &mut Observed, mask: &Mask) {
    for instance in observed.instances.values_mut().chain(observed.parts.values_mut()) {
        if let (State::Running { health: Health::Unhealthy, .. }, Readiness::NotReady { reason }) =
            (&instance.state, &mut instance.readiness)
            && !instance.check_output.is_empty()
        {
            *reason = format!("{reason}: {}", masked_output(&instance.check_output, mask));
        }
    }
}

/// Observes the containers of one application.
pub(crate) struct Observer<D> {
    docker: Arc<D>,
    prober: Arc<Prober>,
    scans: FsScans,
    /// Running containers whose version is known, each with its start.
    examined: BTreeSet<(ContainerId, Timestamp)>,
    /// Number of consecutive failed observations.
    failures: u32,
}

impl<D: Docker> Observer<D> {
    pub(crate) fn new(docker: Arc<D>, prober: Arc<Prober>, scans: FsScans) -> Self {
        Self { docker, prober, scans, examined: BTreeSet::new(), failures: 0 }
    }

    pub(crate) fn docker(&self) -> &Arc<D> {
        &self.docker
    }

    /// Number of consecutive failed observations.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// An observation was given up.
    pub(crate) fn note_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Asks the engine about a target, and the prober about what runs of it. Adopted containers are among the agent's own.
    pub(crate) async fn observe(
        &mut self,
        context: &AppContext,
        target: &TargetRevision,
        record: &Record,
    ) -> Result<Observed, docker::Error> {
        // It only names further images and probes. Decisions read it again, and are not made without it.
        let before = reached_stack(context, target, record).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "could not read which version was reached last");
            None
        });
        let mut observed = if target.policy.engine == EngineKind::Swarm {
            self.observe_services(context, &target.stack, record).await?
        } else {
            self.observe_stack(context, (&target.stack, before.as_ref()), &target.images, record).await?
        };
        // They carry no label of the agent, and nobody may take the application for gone.
        merge_adopted(&mut observed, record, context.agent());
        recall_health(record, &mut observed);
        Ok(observed)
    }

    /// Observes a target while its plan is executed. A failure is left to the next round.
    pub(crate) async fn observe_meanwhile(
        &mut self,
        context: &AppContext,
        target: &TargetRevision,
        record: &Record,
    ) -> Option<Observed> {
        let failures = self.failures;
        let observed = self.observe(context, target, record).await;
        self.failures = failures;
        observed.ok()
    }

    /// Asks a manager about a stack of a Swarm.
    pub(crate) async fn observe_services(
        &mut self,
        context: &AppContext,
        stack: &Stack,
        record: &Record,
    ) -> Result<Observed, docker::Error> {
        let scope = with_adopted(ObserveScope::of_swarm(stack), record);
        let observed = self.docker.observe(context.name(), &scope).await;
        self.failures = if observed.is_ok() { 0 } else { self.failures.saturating_add(1) };
        let mut observed = observed?;
        observed.claims.applications = Some(context.managed());
        Ok(observed)
    }

    /// The containers that the probes have found ready.
    pub(crate) fn ready(&self, context: &AppContext) -> BTreeMap<ContainerId, KnownReady> {
        self.prober.ready(context.name())
    }

    /// Asks about any stack, with the one that was reached before. `images` are the digests to create containers from.
    pub(crate) async fn observe_stack(
        &mut self,
        context: &AppContext,
        (stack, before): (&Stack, Option<&Stack>),
        images: &BTreeMap<String, String>,
        record: &Record,
    ) -> Result<Observed, docker::Error> {
        let scope = with_older(observe_scope(stack, images, record), before, record);
        let observed = self.docker.observe(context.name(), &scope).await;
        self.failures = if observed.is_ok() { 0 } else { self.failures.saturating_add(1) };
        let mut observed = observed?;
        observed.claims.applications = Some(context.managed());
        if record.removal == Some(Removal::WithVolumes) && stack.is_empty() {
            observed.claims.deployed_volumes = deployed_volumes(context);
        }
        let others = self.other_versions(context, (stack, before), &observed);
        let others: Vec<&Stack> = before.into_iter().chain(&others).collect();
        add_readiness(&self.prober, (stack, &others), context.name(), &mut observed, record);
        Ok(observed)
    }

    /// All kept versions, if a container that is seen for the first time is neither of the stack nor of the one before: its commit has
    /// failed, or a newer one came before it was reached. A former agent has probed it.
    fn other_versions(
        &mut self,
        context: &AppContext,
        (stack, before): (&Stack, Option<&Stack>),
        observed: &Observed,
    ) -> Vec<Stack> {
        let running = observed.containers().filter_map(|found| match found.state {
            State::Running { since, .. } => Some((found, (found.id.clone(), since))),
            _ => None,
        });
        let (mut examined, mut is_unknown) = (BTreeSet::new(), false);
        for (found, key) in running {
            is_unknown |= !self.examined.contains(&key)
                && !is_current(stack, found)
                && !before.is_some_and(|before| is_current(before, found));
            examined.insert(key);
        }
        self.examined = examined;
        if !is_unknown {
            return Vec::new();
        }
        context.store().stacks(context.name()).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "could not read which probes older containers have");
            // The next round tries again.
            self.examined.clear();
            Vec::new()
        })
    }

    /// Takes over the results of the filesystem scans, and adds them.
    pub(crate) fn update_scans(&mut self, observed: &mut Observed) {
        self.scans.update(observed);
    }

    /// Adds the results of the last filesystem scans, as a round has taken them over.
    pub(crate) fn add_scans(&self, observed: &mut Observed) {
        self.scans.add_to(observed);
    }

    /// Starts the filesystem scans that are due. Returns when the next one is due, if that is known.
    pub(crate) fn start_scans(
        &mut self,
        policy: &Policy,
        observed: &Observed,
        record: &Record,
    ) -> Option<Timestamp> {
        // The containers of a Swarm are on other nodes, too.
        if observed.swarm.is_some() {
            return None;
        }
        self.scans.start_due(&self.docker, policy, observed, record)
    }
}

/// The objects that the engine is asked about although they may not belong to the application.
pub(crate) fn observe_scope(
    stack: &Stack,
    images: &BTreeMap<String, String>,
    record: &Record,
) -> ObserveScope {
    let mut scope = with_adopted(ObserveScope::of(stack), record);
    scope.had_services = record.swarm.is_some();
    scope.images.extend(images.values().cloned());
    scope
}

/// With the images of the versions that may have to be kept while the target waits: their lost instances are created again, also from
/// images that only this host has.
fn with_older(mut scope: ObserveScope, before: Option<&Stack>, record: &Record) -> ObserveScope {
    let reached = before.into_iter().flat_map(|before| before.workloads.values());
    for workload in reached.chain(record.held.values()).chain(record.begun.values()) {
        scope.images.extend(workload.containers().map(|container| container.image.clone()));
        scope.images.extend(workload.mounted_images().cloned());
        scope.platforms.extend(workload.containers().filter_map(Container::platform));
    }
    scope
}

/// With the objects that carry no label of the agent, although they belong to it.
pub(crate) fn with_adopted(mut scope: ObserveScope, record: &Record) -> ObserveScope {
    let adopted = &record.adopted;
    scope.networks.extend(adopted.networks.keys().cloned());
    scope.volumes.extend(adopted.volumes.keys().cloned());
    scope.adopted = adopted.containers.keys().cloned().collect();
    scope.own_services = record.swarm.iter().flat_map(|kept| kept.own.values().cloned()).collect();
    scope.adopted_networks = adopted.networks.values().map(|network| network.id.clone()).collect();
    scope
}

/// The volumes that the other applications have in the revisions they are at or go back to, each with one of these. `None`: the database
/// does not tell.
fn deployed_volumes(context: &AppContext) -> Option<BTreeMap<String, AppName>> {
    let read = || {
        let (store, managed) = (context.store(), context.managed());
        let mut volumes = BTreeMap::new();
        for app in managed.names.iter().filter(|app| *app != context.name()) {
            let history = store.revisions(app)?;
            let succeeded = history.iter().find(|revision| revision.outcome == Outcome::Succeeded);
            let deployed = history.first().into_iter().chain(succeeded).chain(last_reached(&history));
            let pinned = store.pin(app)?.map(|pin| pin.revision);
            let revisions: BTreeSet<u64> = deployed.map(|revision| revision.number).chain(pinned).collect();
            for revision in revisions {
                let stack = store.stack(app, revision)?;
                let named = stack.iter().flat_map(|stack| stack.volumes.keys());
                volumes.extend(named.map(|name| (name.clone(), app.clone())));
            }
            let record = store.record(app)?;
            let kept = record.held.values().chain(record.begun.values());
            volumes.extend(kept.flat_map(mounted_volumes).map(|name| (name.clone(), app.clone())));
        }
        Ok::<_, store::Error>(volumes)
    };
    let warn = |error: &store::Error| {
        tracing::warn!(error = chain(error), "could not read which volumes other applications use");
    };
    read().inspect_err(warn).ok()
}

fn mounted_volumes(workload: &Workload) -> impl Iterator<Item = &String> {
    workload.containers().flat_map(|container| &container.mounts).filter_map(|mount| match &mount.source {
        MountSource::Volume { name, no_copy: _ } => Some(name),
        _ => None,
    })
}

/// The contents that the containers of an application mount, and those of files rewritten in place that they have read: while a commit
/// waits, they are started again with these, also if no stored revision has them any more.
pub(crate) fn contents_in_use(observed: &Observed, record: &Record) -> Vec<ContentId> {
    let mounted =
        observed.containers().flat_map(|container| container.contents().cloned().collect::<Vec<_>>());
    let read = record.delivered.values().flat_map(|files| files.values().cloned());
    mounted.chain(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_containers_have_read_stay_in_use() {
        let read = ContentId("of an overtaken commit".to_owned());
        let files = BTreeMap::from([("/etc/app.conf".to_owned(), read.clone())]);
        let mut record = Record::default();
        record.delivered.insert(ContainerId::from("web"), files);
        assert_eq!(contents_in_use(&Observed::default(), &record), [read]);
    }
}
