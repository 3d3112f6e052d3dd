//! Looks at the engine for one application. A pass over containers that did not change costs the one shared
//! list and nothing else; what a list does not tell comes from the cache, as long as the events vouch for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bollard::models as api;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    Error, ObserveScope,
    cache::{Known, NamedObjects, ObjectKind, Seen},
    call_error::CallError,
    container_files,
    container_list::{ContainerList, ListedContainer},
    engine::{DEADLINE, Inner},
    from_engine,
};
use driftless_model::{
    AgentId, AppName, Candidate, Claims, ContainerId, Endpoint, Health, HeldPort, Image, Inside, Instance,
    InstanceId, LiveSettings, Observed, ObservedNetwork, ObservedVolume, Other, PartOf, Readiness, Role,
    SpecHash, State, Timestamp, WorkloadName, label,
};

/// How many containers are inspected at the same time.
const AT_ONCE: usize = 8;
/// How far from its end a hand on a container is taken to be the cause, beyond its grace period.
const AROUND: Duration = Duration::from_mins(1);
/// How many results of a health check the engine remembers.
const HEALTH_LOG: usize = 5;

impl Inner {
    pub(crate) async fn observe(&self, app: &AppName, scope: &ObserveScope) -> Result<Observed, Error> {
        let doing = || format!("look at what runs of {app}");
        let observed = async {
            self.cache.adopted(app, &scope.adopted, &scope.adopted_networks);
            let listing = self.listing().await?;
            let (mut parts, mut instances): (BTreeMap<_, _>, BTreeMap<_, _>) =
                self.instances(app, &listing).await?.into_iter().partition(|(_, it)| it.part.is_some());
            let mut candidates = self.candidates(scope, &listing).await?;
            from_engine::name(&mut instances, &mut parts, &mut candidates, &listing);
            Ok(Observed {
                inside: self.inside(
                    instances
                        .values()
                        .chain(parts.values())
                        .chain(candidates.values().map(|it| &it.instance)),
                ),
                instances,
                parts,
                candidates,
                others: self.others(scope).await?,
                own: self.own(),
                networks: self.networks(app, scope, &listing).await?,
                volumes: self.volumes(app, scope).await?,
                images: self.images(scope).await?,
                claims: claims(app, &listing),
                engine_started: self.engine_started().await?,
                engine_api: self.transport.version().map(|it| (it.major, it.minor)),
            })
        };
        observed.await.map_err(|failure: CallError| failure.sort(&doing()))
    }

    pub(crate) async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        let found = async {
            let listing = self.listing().await?;
            let networks = self.objects(ObjectKind::Networks).await?;
            let of_networks = networks.values().filter_map(|it| it.app.clone());
            Ok(listing.by_app.keys().cloned().chain(of_networks).collect())
        };
        found.await.map_err(|failure: CallError| failure.sort("list the applications on this host"))
    }

    /// The engine makes its default bridge anew whenever it starts, and nothing else of its API tells when that
    /// was. An engine without that bridge does not tell.
    async fn engine_started(&self) -> Result<Option<Timestamp>, CallError> {
        Ok(self.objects(ObjectKind::Networks).await?.get("bridge").and_then(|it| it.created))
    }

    /// All networks or volumes of the host.
    pub(crate) async fn objects(&self, which: ObjectKind) -> Result<NamedObjects, CallError> {
        if let Some(objects) = self.cache.objects(which) {
            return Ok(objects);
        }
        let ticket = self.cache.draw();
        let objects: NamedObjects = Arc::new(match which {
            ObjectKind::Networks => {
                let options = None::<bollard::query_parameters::ListNetworksOptions>;
                let found = self.call(DEADLINE, self.docker.list_networks(options)).await?;
                by_name(found.into_iter().map(|it| {
                    let labels: BTreeMap<_, _> = it.labels.clone().into_iter().flatten().collect();
                    let created = it.created.as_deref().and_then(Timestamp::parse);
                    let network = labels
                        .contains_key(label::compose::PROJECT)
                        .then(|| from_engine::network(&it, &labels));
                    let known = known(it.id.unwrap_or_default(), &labels);
                    (it.name.unwrap_or_default(), Known { network, created, ..known })
                }))
            }
            ObjectKind::Volumes => {
                let options = None::<bollard::query_parameters::ListVolumesOptions>;
                let found = self.call(DEADLINE, self.docker.list_volumes(options)).await?;
                by_name(found.volumes.into_iter().flatten().map(|it| {
                    let labels: BTreeMap<_, _> = it.labels.clone().into_iter().collect();
                    let volume = labels
                        .contains_key(label::compose::PROJECT)
                        .then(|| from_engine::volume(&it, &labels));
                    (it.name.clone(), Known { volume, ..known(it.name, &labels) })
                }))
            }
        });
        self.cache.store_objects(which, ticket, &objects);
        Ok(objects)
    }

    /// One container of ours, or of somebody who copied our labels. `None` when it is gone meanwhile.
    async fn instance(
        &self,
        id: &ContainerId,
        listed: &Arc<ListedContainer>,
    ) -> Result<Option<Arc<Instance>>, CallError> {
        if let Some(seen) = self.cache.container(id).filter(|it| it.listed == *listed) {
            return Ok(Some(seen.instance));
        }
        let ticket = self.cache.begin_container_read(id);
        let options = None::<bollard::query_parameters::InspectContainerOptions>;
        let found = match self.call(DEADLINE, self.docker.inspect_container(id.as_str(), options)).await {
            Ok(found) => found,
            Err(failure) if failure.code() == Some(404) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let mut instance = self.raised(id, &found);
        instance.config = self.cache.shared(instance.config);
        instance.touched_by_hand = self.touched_by_hand(&instance).await?;
        let instance = Arc::new(instance);
        let seen = Seen { listed: Arc::clone(listed), instance: Arc::clone(&instance) };
        self.cache.store_container(id, ticket, seen);
        Ok(Some(instance))
    }

    async fn instances(
        &self,
        app: &AppName,
        listing: &ContainerList,
    ) -> Result<BTreeMap<ContainerId, Instance>, CallError> {
        let ids = listing.by_app.get(app).into_iter().flatten();
        let wanted: Vec<_> =
            ids.filter_map(|id| Some((id.clone(), Arc::clone(listing.containers.get(id)?)))).collect();
        let found: Vec<_> = stream::iter(wanted)
            .map(|(id, listed)| async move {
                let instance = self.instance(&id, &listed).await?;
                Ok::<_, CallError>((id, instance))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(found.into_iter().filter_map(|(id, it)| Some((id, it?.as_ref().clone()))).collect())
    }

    /// Who was in them, but for the health checks.
    fn inside<'a>(&self, all: impl Iterator<Item = &'a Instance>) -> BTreeMap<ContainerId, Inside> {
        let visits = |it: &Instance| {
            let all = self.cache.visits(&it.id).into_iter();
            all.filter(|visit| !container_files::is_healthcheck(&visit.what, &it.config))
                .collect::<BTreeSet<_>>()
        };
        let all = all.map(|it| (it.id.clone(), Inside { files: None, visits: visits(it) }));
        all.filter(|(_, it)| !it.visits.is_empty()).collect()
    }

    /// What Docker Compose made for this project, and what was taken over from it before.
    async fn candidates(
        &self,
        scope: &ObserveScope,
        listing: &ContainerList,
    ) -> Result<BTreeMap<ContainerId, Candidate>, CallError> {
        let is_wanted = |id: &ContainerId, it: &ListedContainer| {
            let is_of_project = it.project.is_some() && it.project == scope.project;
            it.app.is_none() && it.agent.is_none() && (is_of_project || scope.adopted.contains(id))
        };
        let mut candidates = BTreeMap::new();
        for (id, listed) in listing.containers.iter().filter(|(id, it)| is_wanted(id, it)) {
            let Some(instance) = self.instance(id, listed).await? else { continue };
            // Of the very image it runs: its name may stand for another by now.
            let image = self.image(&instance.image_id).await?;
            let defaults = image.map(|it| Arc::clone(&it.defaults)).unwrap_or_default();
            candidates.insert(id.clone(), Candidate { instance: instance.as_ref().clone(), defaults });
        }
        Ok(candidates)
    }

    fn raised(&self, id: &ContainerId, found: &api::ContainerInspectResponse) -> Instance {
        let labels = found.config.as_ref().and_then(|it| it.labels.as_ref());
        let either = |ours: &str, compose: &str| {
            labels.and_then(|it| it.get(ours).or_else(|| it.get(compose))).cloned().unwrap_or_default()
        };
        let label = |name: &str| labels.and_then(|it| it.get(name)).cloned().unwrap_or_default();
        let config = from_engine::container(found, &self.paths(), &self.defaults());
        let created = found.created.as_deref().and_then(Timestamp::parse).unwrap_or_default();
        let retries = config.healthcheck.as_ref().and_then(|it| it.retries).unwrap_or(3);
        let state = found.state.as_ref().map_or(State::Created, |it| state(it, created, retries));
        let name = found.name.as_deref().unwrap_or_default().trim_start_matches('/').to_owned();
        let part =
            Role::parse(&label(label::ROLE)).filter(|_| !label(label::POD).is_empty()).map(|role| PartOf {
                pod: ContainerId(label(label::POD)),
                name: label(label::PART),
                role,
                told: from_engine::asked(labels).told.values,
            });
        let workload = WorkloadName(either(label::WORKLOAD, label::compose::SERVICE));
        Instance {
            id: id.clone(),
            instance: InstanceId {
                workload: part.as_ref().map_or_else(|| workload.clone(), |it| workload.part(&it.name)),
                slot: either(label::SLOT, label::compose::CONTAINER_NUMBER).parse().unwrap_or_default(),
            },
            agent: AgentId(label(label::AGENT)),
            spec: SpecHash(label(label::SPEC)),
            created,
            readiness: readiness(&state),
            state,
            restarts: found.restart_count.and_then(|it| u32::try_from(it).ok()).unwrap_or_default(),
            networks: endpoints(found),
            name,
            live: LiveSettings { resources: config.resources.clone(), restart: config.restart },
            config: Arc::new(config),
            image_id: found.image.clone().unwrap_or_default(),
            anonymous_volumes: from_engine::anonymous_volumes(found),
            empty_volumes: from_engine::empty_volumes(found),
            part,
            hosts: from_engine::hosts(found),
            volumes_of: from_engine::volumes_of(found),
            started: found.state.as_ref().and_then(|it| Timestamp::parse(it.started_at.as_deref()?)),
            touched_by_hand: None,
        }
    }

    /// When somebody last stopped, killed or paused it since it was started. The events told us, or, if we did
    /// not listen when it ended, the engine still remembers: its last 256 events.
    async fn touched_by_hand(&self, instance: &Instance) -> Result<Option<Timestamp>, CallError> {
        let hand = self.cache.touched_at(&instance.id);
        let finished = match &instance.state {
            State::Paused => return Ok(hand),
            State::Exited { finished, .. } => *finished,
            // `docker kill` can send any signal, and whoever still runs was not ended by it.
            State::Created
            | State::Running { .. }
            | State::Restarting { .. }
            | State::Removing
            | State::Dead => {
                return Ok(None);
            }
        };
        // Nor was who ended long after it.
        let grace = instance.config.stop_grace_period.unwrap_or_default().saturating_add(AROUND);
        if let Some(at) = hand.filter(|at| finished.since(*at) <= grace) {
            return Ok(Some(at));
        }
        let listened = self.cache.trusted_since().is_some_and(|since| since <= finished);
        if listened || self.cache.is_stopped_by_us(&instance.id) {
            return Ok(None);
        }
        self.remembered_hand(&instance.id, finished).await
    }

    async fn remembered_hand(
        &self,
        id: &ContainerId,
        finished: Timestamp,
    ) -> Result<Option<Timestamp>, CallError> {
        // The signal comes before the end, `stop` is told after it.
        let since = finished.0.saturating_sub(u64::try_from(AROUND.as_millis()).unwrap_or_default()) / 1000;
        let until = finished.after(AROUND).min(self.clock.now()).0.div_ceil(1000);
        let filters = [
            ("type".to_owned(), vec!["container".to_owned()]),
            ("container".to_owned(), vec![id.to_string()]),
            ("event".to_owned(), ["kill", "stop", "pause"].map(str::to_owned).to_vec()),
        ]
        .into();
        let options = bollard::query_parameters::EventsOptionsBuilder::new()
            .since(&since.to_string())
            .until(&until.to_string())
            .filters(&filters)
            .build();
        let events = self.docker.events(Some(options));
        let found = self.call(DEADLINE, events.take(16).try_collect::<Vec<_>>()).await?;
        let times = found.iter().filter_map(|it| it.time_nano).filter_map(|it| u64::try_from(it).ok());
        Ok(times.max().map(|it| Timestamp(it / 1_000_000)))
    }

    async fn networks(
        &self,
        app: &AppName,
        scope: &ObserveScope,
        listing: &ContainerList,
    ) -> Result<BTreeMap<String, ObservedNetwork>, CallError> {
        let all = self.objects(ObjectKind::Networks).await?;
        let wanted = all
            .iter()
            .filter(|(name, known)| known.app.as_ref() == Some(app) || scope.networks.contains(*name));
        let mut networks: BTreeMap<String, ObservedNetwork> = wanted
            .map(|(name, known)| {
                let Known { id, app, agent, spec, project, network, volume: _, created: _ } = known.clone();
                let compose = network.filter(|_| project == scope.project);
                (name.clone(), ObservedNetwork { id, agent, app, spec, foreign: Vec::new(), compose })
            })
            .collect();
        for listed in listing.containers.values().filter(|it| it.app.as_ref() != Some(app)) {
            for (name, _) in &listed.networks {
                if let Some(network) = networks.get_mut(name) {
                    network.foreign.push(listed.name.clone());
                }
            }
        }
        for network in networks.values_mut() {
            network.foreign.sort_unstable();
        }
        Ok(networks)
    }

    async fn volumes(
        &self,
        app: &AppName,
        scope: &ObserveScope,
    ) -> Result<BTreeMap<String, ObservedVolume>, CallError> {
        let all = self.objects(ObjectKind::Volumes).await?;
        let wanted = all
            .iter()
            .filter(|(name, known)| known.app.as_ref() == Some(app) || scope.volumes.contains(*name));
        Ok(wanted
            .map(|(name, known)| {
                let Known { id: _, app, agent, spec, project, network: _, volume, created: _ } =
                    known.clone();
                let compose = volume.filter(|_| project == scope.project);
                (name.clone(), ObservedVolume { agent, app, spec, compose })
            })
            .collect())
    }

    /// The containers of others that the stack shares something with. No list tells when they were started.
    async fn others(&self, scope: &ObserveScope) -> Result<BTreeMap<String, Other>, CallError> {
        let mut others = BTreeMap::new();
        for name in scope.containers.iter().filter(|it| is_reference(it)) {
            let options = None::<bollard::query_parameters::InspectContainerOptions>;
            let found = match self.call(DEADLINE, self.docker.inspect_container(name, options)).await {
                Ok(found) => found,
                Err(failure) if failure.code() == Some(404) => continue,
                Err(failure) => return Err(failure),
            };
            let Some(id) = found.id.map(ContainerId) else { continue };
            let running = found.state.filter(|it| it.running == Some(true) && it.restarting != Some(true));
            let started = running.and_then(|it| Timestamp::parse(it.started_at.as_deref()?));
            others.insert(name.clone(), Other { id, started });
        }
        Ok(others)
    }

    async fn images(&self, scope: &ObserveScope) -> Result<BTreeMap<String, Image>, CallError> {
        let found: Vec<_> = stream::iter(scope.images.clone())
            .map(|reference| async move {
                let image = self.image(&reference).await?;
                Ok::<_, CallError>((reference, image))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(found
            .into_iter()
            .filter_map(|(reference, image)| Some((reference, image?.as_ref().clone())))
            .collect())
    }

    pub(crate) async fn image(&self, reference: &str) -> Result<Option<Arc<Image>>, CallError> {
        if let Some(image) = self.cache.image(reference) {
            return Ok(Some(image));
        }
        if !is_reference(reference) {
            return Ok(None);
        }
        let ticket = self.cache.draw();
        let found = match self.call(DEADLINE, self.docker.inspect_image(reference)).await {
            Ok(found) => found,
            Err(failure) if matches!(failure.code(), Some(400 | 404)) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let image = Arc::new(Image {
            defaults: Arc::new(from_engine::image_defaults(&found)),
            id: found.id.unwrap_or_default(),
            tagged: found.metadata.and_then(|it| Timestamp::parse(&it.last_tag_time?)),
            digests: found.repo_digests.unwrap_or_default(),
        });
        self.cache.store_image(reference, ticket, &image);
        Ok(Some(image))
    }
}

/// Whether it can stand in a path of the API without being taken for something else.
pub(crate) fn is_reference(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"._-/:@+".contains(&it))
        && !text.split('/').any(|it| it == ".." || it == ".")
}

/// Network names need not be unique. Of equal ones, one that carries our labels is meant; then the first id.
fn by_name(found: impl Iterator<Item = (String, Known)>) -> BTreeMap<String, Known> {
    let mut all: BTreeMap<String, Known> = BTreeMap::new();
    for (name, known) in found {
        let rank = |it: &Known| (it.agent.is_none(), it.id.clone());
        if all.get(&name).is_none_or(|other| rank(&known) < rank(other)) {
            all.insert(name, known);
        }
    }
    all
}

fn known(id: String, labels: &BTreeMap<String, String>) -> Known {
    Known {
        id,
        app: labels.get(label::APPLICATION).cloned().map(AppName),
        agent: labels.get(label::AGENT).cloned().map(AgentId),
        spec: labels.get(label::SPEC).cloned().map(SpecHash),
        project: labels.get(label::compose::PROJECT).cloned(),
        network: None,
        volume: None,
        created: None,
    }
}

fn claims(app: &AppName, listing: &ContainerList) -> Claims {
    let mut claims = Claims::default();
    for (id, listed) in listing.containers.iter().filter(|(_, it)| it.app.as_ref() != Some(app)) {
        claims.names.insert(listed.name.clone(), id.clone());
        if listed.app.is_none() {
            claims.nobodys.insert(listed.name.clone());
        }
        if listed.is_running() {
            for (port, protocol, ip) in listed.ports.iter().copied() {
                claims.ports.insert(HeldPort { port, protocol, ip, by: listed.name.clone() });
            }
        }
    }
    claims
}

fn endpoints(found: &api::ContainerInspectResponse) -> BTreeMap<String, Endpoint> {
    let names = from_engine::OwnNames::of(found);
    let networks = found.network_settings.as_ref().and_then(|it| it.networks.as_ref());
    // The engine writes a network down before it connects to it, and leaves that in place when it fails: what
    // runs is connected where it has an endpoint, whatever the list says.
    let runs =
        found.state.as_ref().is_some_and(|it| it.running.unwrap_or_default() && it.restarting != Some(true));
    let is_none = |it: &api::EndpointSettings| runs && it.network_id.as_ref().is_none_or(String::is_empty);
    networks
        .into_iter()
        .flatten()
        .filter(|(_, it)| !is_none(it))
        .map(|(network, it)| {
            let endpoint = Endpoint {
                network_id: it.network_id.clone().unwrap_or_default(),
                aliases: names.without(it.aliases.as_ref()),
                ip: it.ip_address.clone().filter(|it| !it.is_empty()),
                gateway: it.gateway.clone().filter(|it| !it.is_empty()),
            };
            (network.clone(), endpoint)
        })
        .collect()
}

fn state(found: &api::ContainerState, created: Timestamp, retries: u32) -> State {
    use api::ContainerStateStatusEnum as Status;
    let time = |text: &Option<String>| text.as_deref().and_then(Timestamp::parse);
    let started = time(&found.started_at).unwrap_or(created);
    let finished = time(&found.finished_at).unwrap_or(created);
    let code = found.exit_code.unwrap_or_default();
    let error = found.error.clone().unwrap_or_default();
    let running = || {
        let (health, since) = health(found.health.as_ref(), started, retries);
        State::Running { since, health }
    };
    let exited = || State::Exited {
        code,
        finished,
        out_of_memory: found.oom_killed.unwrap_or_default(),
        error: error.clone(),
    };
    match found.status {
        // Somebody asked for a start and the engine could not: it ended before it began.
        Some(Status::CREATED) if !error.is_empty() => exited(),
        Some(Status::CREATED) => State::Created,
        Some(Status::RUNNING | Status::STOPPING) => running(),
        Some(Status::PAUSED) => State::Paused,
        Some(Status::RESTARTING) => State::Restarting { code, finished },
        Some(Status::REMOVING) => State::Removing,
        Some(Status::DEAD) => State::Dead,
        Some(Status::EMPTY) | None if found.running == Some(true) => running(),
        Some(Status::EXITED | Status::EMPTY) | None => exited(),
    }
}

/// What the health check says, and since when the container is as it should be. The log holds the last few
/// results alone: where it does not reach back to the change, the start counts.
fn health(found: Option<&api::Health>, started: Timestamp, retries: u32) -> (Health, Timestamp) {
    use api::HealthStatusEnum as Status;
    let Some(found) = found else { return (Health::Healthy, started) };
    match found.status {
        Some(Status::STARTING) => (Health::Starting, started),
        Some(Status::UNHEALTHY) => (Health::Unhealthy, started),
        Some(Status::HEALTHY) => (
            Health::Healthy,
            healthy_since(found.log.as_deref().unwrap_or_default(), retries).unwrap_or(started),
        ),
        Some(Status::NONE | Status::EMPTY) | None => (Health::Healthy, started),
    }
}

fn healthy_since(log: &[api::HealthcheckResult], retries: u32) -> Option<Timestamp> {
    let mut since = None;
    // Only a log that is not full reaches back to the start.
    let mut was_unhealthy = log.len() < HEALTH_LOG;
    let mut failures = 0;
    for result in log {
        if result.exit_code == Some(0) {
            failures = 0;
            if was_unhealthy {
                was_unhealthy = false;
                since = result.end.as_deref().and_then(Timestamp::parse);
            }
        } else {
            failures += 1;
            was_unhealthy |= failures >= retries.max(1);
        }
    }
    since
}

fn readiness(state: &State) -> Readiness {
    match state {
        State::Running { since, health: Health::Healthy } => Readiness::Ready { since: *since },
        State::Running { since: _, health: Health::Starting } => {
            Readiness::Starting { reason: "its health check has not succeeded yet".to_owned() }
        }
        State::Running { since: _, health: Health::Unhealthy } => {
            Readiness::NotReady { reason: "its health check fails".to_owned() }
        }
        State::Created => Readiness::NotReady { reason: "not started".to_owned() },
        State::Paused => Readiness::NotReady { reason: "paused".to_owned() },
        State::Restarting { .. } => Readiness::NotReady { reason: "restarting".to_owned() },
        State::Exited { .. } => Readiness::NotReady { reason: "exited".to_owned() },
        State::Removing | State::Dead => Readiness::NotReady { reason: "being removed".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(second: u8, exit_code: i64) -> api::HealthcheckResult {
        let end = Some(format!("2026-01-01T00:00:{second:02}Z"));
        api::HealthcheckResult { start: None, end, exit_code: Some(exit_code), output: None }
    }

    #[test]
    fn healthy_since_is_the_first_success_after_failures() {
        let at = |second: u8| Timestamp::parse(&format!("2026-01-01T00:00:{second:02}Z"));
        assert_eq!(healthy_since(&[result(1, 1), result(2, 0), result(3, 0)], 3), at(2));
        assert_eq!(healthy_since(&[result(1, 0), result(2, 1), result(3, 0)], 3), at(1));
        let recovered = [result(1, 0), result(2, 1), result(3, 1), result(4, 0), result(5, 0)];
        assert_eq!(healthy_since(&recovered, 2), at(4));
        assert_eq!(healthy_since(&recovered, 3), None, "the log no longer tells");
    }

    #[test]
    fn references_cannot_smuggle_another_path() {
        assert!(is_reference("registry.example.com:5000/a/b@sha256:00ff"));
        for wrong in ["", "a?b", "a#b", "../json", "a/../b", "a b", "a%2fb"] {
            assert!(!is_reference(wrong), "{wrong}");
        }
    }
}
