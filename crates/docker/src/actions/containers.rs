//! Performs one action. It is tolerant: what is already so is done. It never forces, never removes a volume, and
//! first makes sure that what it is about to touch carries our label.

use std::time::Duration;

use bollard::{models as api, query_parameters as query};
use http::Method;

use crate::{
    Effect, Error,
    cache::ObjectKind,
    call_error::CallError,
    engine::{DEADLINE, Inner, within},
    from_engine, podman, to_engine,
};
use driftless_model::{
    AppName, Attachment, ContainerId, Format, LiveSettings, Network, SpecHash, Volume, label,
};
use driftless_plan::{Action, ContainerRef, Creation};

/// What stopping may take beyond the grace period.
const AFTER_GRACE: Duration = Duration::from_secs(30);
/// What the engine grants a container that was created without a grace period.
const GRACE: Duration = Duration::from_secs(10);

/// The host port or address that somebody else holds.
const TAKEN: &[&str] = &["port is already allocated", "address already in use"];
/// Each engine has its own words for a network that is joined already.
const ATTACHED: &[&str] =
    &["already exists in network", "already attached to network", "network is already connected"];
/// What a start fails on however often it is tried.
const HOPELESS: &[&str] = &[
    "executable file not found",
    "no such file or directory",
    "not a directory",
    "permission denied",
    "exec format error",
];

impl Inner {
    pub(crate) async fn perform(
        &self,
        app: &AppName,
        action: &Action,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Effect, Error> {
        match action {
            Action::PullImage { image, platform, secrets } => {
                self.pull(image, platform.as_deref(), secrets, progress).await?;
            }
            Action::BuildImage { image, .. } => {
                let message = "the files of the commit are not at hand here".to_owned();
                return Err(Error::Rejected { doing: format!("build {image}"), message });
            }
            Action::ImportImage { image } => self.import(image, progress).await?,
            Action::CreateNetwork { name, network } => self.create_network(app, name, network).await?,
            Action::RemoveNetwork { name, id } => self.remove_network(name, id).await?,
            Action::CreateVolume { name, volume } => self.create_volume(app, name, volume).await?,
            Action::CreateInstance(creation) => return self.create(creation).await.map(Effect::Created),
            // It is on the disk by now, and the engine has no part in it.
            Action::WriteFiles { .. } => {}
            Action::RunHooks { container, instance: _ } => self.run_hooks(container).await?,
            Action::SignalInstance { container, signal } => self.signal(container, signal).await?,
            Action::StartInstance { container } => self.start(container).await?,
            Action::StopInstance { container, grace } => self.stop(container, *grace).await?,
            Action::RemoveInstance { container } => self.remove(container).await?,
            Action::UnpauseInstance { container } => self.unpause(container).await?,
            Action::RenameInstance { container, to } => self.rename(container, to).await?,
            Action::UpdateInstance { container, settings } => self.update(container, settings).await?,
            Action::Connect { container, network, attachment } => {
                self.connect(container, network, attachment).await?;
            }
            Action::Disconnect { container, network } => self.disconnect(container, network).await?,
        }
        Ok(Effect::Done)
    }

    async fn start(&self, container: &ContainerRef) -> Result<(), Error> {
        let doing = format!("start {}", named(container));
        let id = self.ours(container, &doing).await?.ok_or_else(|| gone(&doing))?;
        self.prepare(&id, &doing).await?;
        let options = None::<query::StartContainerOptions>;
        let started = self.call(DEADLINE, self.docker.start_container(id.as_str(), options)).await;
        self.cache.invalidate_container(&id);
        match started {
            Ok(()) => Ok(()),
            Err(failure) if failure.code() == Some(304) => Ok(()),
            Err(failure) => Err(sort_start(failure, &doing)),
        }
    }

    async fn stop(&self, container: &ContainerRef, grace: Option<Duration>) -> Result<(), Error> {
        let doing = format!("stop {}", named(container));
        let Some(id) = self.ours(container, &doing).await? else { return Ok(()) };
        if self.own().as_ref() == Some(&id) {
            let message = "this agent runs in it, and would not come to start it again".to_owned();
            return Err(Error::Rejected { doing, message });
        }
        let seconds = grace.map(to_engine::whole_seconds);
        let options = query::StopContainerOptions {
            t: seconds.map(|it| i32::try_from(it).unwrap_or(i32::MAX)),
            signal: None,
        };
        let own_grace = self.cache.container(&id).and_then(|it| it.instance.config.stop_grace_period);
        let deadline = grace.or(own_grace).unwrap_or(GRACE).saturating_add(AFTER_GRACE);
        if let Some(wrong) = self.before_stop(&id).await {
            tracing::warn!(container = named(container), wrong, "it is stopped all the same");
        }
        self.cache.stopping(&id, self.clock.now());
        let stopped = self.call(deadline, self.docker.stop_container(id.as_str(), Some(options))).await;
        self.cache.invalidate_container(&id);
        tolerate(stopped, |it| matches!(it.code(), Some(304 | 404))).map_err(|it| it.sort(&doing))
    }

    async fn run_hooks(&self, container: &ContainerRef) -> Result<(), Error> {
        let doing = format!("run the post_start commands of {}", named(container));
        let id = self.ours(container, &doing).await?.ok_or_else(|| gone(&doing))?;
        let hooks = self.hooks(&id).await.map_err(|it| it.sort(&doing))?;
        self.after_start(&id, &hooks, &doing).await
    }

    async fn signal(&self, container: &ContainerRef, signal: &str) -> Result<(), Error> {
        let doing = format!("send {signal} to {}", named(container));
        let id = self.ours(container, &doing).await?.ok_or_else(|| gone(&doing))?;
        let options = query::KillContainerOptionsBuilder::new().signal(signal).build();
        self.cache.signalling(&id);
        let sent = self.call(DEADLINE, self.docker.kill_container(id.as_str(), Some(options))).await;
        self.cache.invalidate_container(&id);
        if sent.is_err() {
            // Nobody will be told of it.
            self.cache.is_our_signal(&id);
        }
        sent.map_err(|it| match it.code() {
            // It has ended meanwhile: it is looked at again, and started with what it is to hold.
            Some(404 | 409) => it.refused(&doing),
            _ => it.sort(&doing),
        })
    }

    async fn remove(&self, container: &ContainerRef) -> Result<(), Error> {
        let doing = format!("remove {}", named(container));
        let Some(id) = self.ours(container, &doing).await? else { return Ok(()) };
        let empty = match self
            .call(
                DEADLINE,
                self.docker.inspect_container(id.as_str(), None::<query::InspectContainerOptions>),
            )
            .await
        {
            Ok(found) => from_engine::empty_volumes(&found),
            Err(failure) if failure.code() == Some(404) => std::collections::BTreeMap::new(),
            Err(failure) => return Err(failure.sort(&doing)),
        };
        let options = query::RemoveContainerOptionsBuilder::new().force(false).v(false).build();
        let removed = self.call(DEADLINE, self.docker.remove_container(id.as_str(), Some(options))).await;
        self.cache.invalidate_container(&id);
        let is_done = |it: &CallError| it.code() == Some(404) || it.says(&["already in progress"]);
        tolerate(removed, is_done).map_err(|it| it.sort(&doing))?;
        self.cache.gone(&id);
        for volume in empty.into_values() {
            let options = None::<query::RemoveVolumeOptions>;
            let removed = self.call(DEADLINE, self.docker.remove_volume(&volume, options)).await;
            // Somebody else may have mounted it by now; then it is theirs.
            let is_done = |it: &CallError| matches!(it.code(), Some(404 | 409));
            tolerate(removed, is_done).map_err(|it| it.sort(&doing))?;
        }
        Ok(())
    }

    async fn unpause(&self, container: &ContainerRef) -> Result<(), Error> {
        let doing = format!("unpause {}", named(container));
        let id = self.ours(container, &doing).await?.ok_or_else(|| gone(&doing))?;
        let unpaused = self.call(DEADLINE, self.docker.unpause_container(id.as_str())).await;
        self.cache.invalidate_container(&id);
        tolerate(unpaused, |it| it.says(&["is not paused"])).map_err(|it| it.sort(&doing))
    }

    async fn rename(&self, container: &ContainerRef, to: &str) -> Result<(), Error> {
        let doing = format!("rename {} to {to}", named(container));
        let id = self.ours(container, &doing).await?.ok_or_else(|| gone(&doing))?;
        let options = query::RenameContainerOptionsBuilder::new().name(to).build();
        let renamed = self.call(DEADLINE, self.docker.rename_container(id.as_str(), options)).await;
        self.cache.invalidate_container(&id);
        tolerate(renamed, |it| it.says(&["same name"])).map_err(|it| it.sort(&doing))
    }

    async fn update(&self, container: &ContainerRef, settings: &LiveSettings) -> Result<(), Error> {
        let doing = format!("update the limits of {}", named(container));
        let id = self.ours(container, &doing).await?.ok_or_else(|| gone(&doing))?;
        let body = to_engine::update_body(settings);
        let updated = self.call(DEADLINE, self.docker.update_container(id.as_str(), body)).await;
        self.cache.invalidate_container(&id);
        updated.map_err(|it| it.sort(&doing))?;
        self.check_update(&id, settings, &doing).await
    }

    /// The engine takes an absent limit for "as it is", so it cannot take one away, and says nothing about it.
    async fn check_update(
        &self,
        id: &ContainerId,
        settings: &LiveSettings,
        doing: &str,
    ) -> Result<(), Error> {
        let options = None::<query::InspectContainerOptions>;
        let found = self.call(DEADLINE, self.docker.inspect_container(id.as_str(), options)).await;
        let found = found.map_err(|it| it.sort(doing))?;
        let resources =
            found.host_config.map(|it| from_engine::resources(&it, &self.defaults())).unwrap_or_default();
        let wanted = &settings.resources;
        let stays = [
            ("CPUs", resources.nano_cpus.is_some() && wanted.nano_cpus.is_none()),
            ("memory", resources.memory.is_some() && wanted.memory.is_none()),
            (
                "memory reservation",
                resources.memory_reservation.is_some() && wanted.memory_reservation.is_none(),
            ),
            ("CPU shares", resources.cpu_shares.is_some() && wanted.cpu_shares.is_none()),
        ];
        let stays: Vec<&str> = stays.into_iter().filter_map(|(what, it)| it.then_some(what)).collect();
        if stays.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the engine cannot take away the limit on {} from a live container; it must be replaced",
            stays.join(" and ")
        );
        Err(Error::Refused { doing: doing.to_owned(), message })
    }

    async fn connect(
        &self,
        container: &ContainerRef,
        network: &str,
        attachment: &Attachment,
    ) -> Result<(), Error> {
        let doing = format!("connect {} to network {network}", named(container));
        let id = self.ours(container, &doing).await?.ok_or_else(|| gone(&doing))?;
        let version = self.agree().await.map_err(|it| it.sort(&doing))?;
        let joined = self.join(&id, network, to_engine::endpoint(attachment, version)).await;
        self.cache.invalidate_container(&id);
        joined.map_err(|it| it.sort(&doing))
    }

    async fn join(
        &self,
        id: &ContainerId,
        network: &str,
        endpoint: api::EndpointSettings,
    ) -> Result<(), CallError> {
        let target = self.network_id(network).await?;
        let request =
            api::NetworkConnectRequest { container: id.to_string(), endpoint_config: Some(endpoint) };
        let joined = self.call(DEADLINE, self.docker.connect_network(&target, request)).await;
        tolerate(joined, |it| it.says(ATTACHED))
    }

    async fn disconnect(&self, container: &ContainerRef, network: &str) -> Result<(), Error> {
        let doing = format!("disconnect {} from network {network}", named(container));
        let Some(id) = self.ours(container, &doing).await? else { return Ok(()) };
        let target = match self.network_id(network).await {
            Ok(target) => target,
            Err(failure) if failure.code() == Some(404) => return Ok(()),
            Err(failure) => return Err(failure.sort(&doing)),
        };
        let request = api::NetworkDisconnectRequest { container: id.to_string(), force: Some(false) };
        let left = self.call(DEADLINE, self.docker.disconnect_network(&target, request)).await;
        self.cache.invalidate_container(&id);
        let is_done = |it: &CallError| it.code() == Some(404) || it.says(&["is not connected to"]);
        tolerate(left, is_done).map_err(|it| it.sort(&doing))
    }

    /// Network names need not be unique, and may hold what a path cannot.
    async fn network_id(&self, name: &str) -> Result<String, CallError> {
        let networks = self.objects(ObjectKind::Networks).await?;
        let known = networks.get(name).map(|it| it.id.clone());
        known.ok_or_else(|| CallError::Status { code: 404, message: format!("there is no network {name}") })
    }

    async fn create_network(&self, app: &AppName, name: &str, network: &Network) -> Result<(), Error> {
        let doing = format!("create network {name}");
        // We cannot afford to miss one that exists: old engines make another of the same name.
        self.cache.invalidate_objects(ObjectKind::Networks);
        let networks = self.objects(ObjectKind::Networks).await.map_err(|it| it.sort(&doing))?;
        if let Some(existing) = networks.get(name) {
            let is_same = existing.agent.as_ref() == Some(&self.agent)
                && existing.app.as_ref() == Some(app)
                && existing.spec.as_ref() == Some(&SpecHash::of(network));
            let message = "a network of this name exists already, and is not the one we want".to_owned();
            return if is_same { Ok(()) } else { Err(Error::Refused { doing, message }) };
        }
        let body = to_engine::network_body(name, network, app, &self.agent);
        let created = self.send_network(&body).await;
        self.cache.invalidate_objects(ObjectKind::Networks);
        created.map_err(|failure| match failure.code() {
            // The address range overlaps one in use, or there is none left: the host must change first.
            Some(403) => failure.rejected(&doing),
            _ => failure.sort(&doing),
        })
    }

    /// Not by bollard, which does not know the field that keeps old engines from making a second one.
    async fn send_network(&self, body: &api::NetworkCreateRequest) -> Result<(), CallError> {
        self.agree().await?;
        let mut json = serde_json::to_value(body).map_err(|error| CallError::unreachable(&error))?;
        if let Some(fields) = json.as_object_mut() {
            fields.insert("CheckDuplicate".to_owned(), true.into());
        }
        let sent = self.transport.send(Method::POST, "/networks/create", json.to_string().into_bytes());
        within(DEADLINE, sent).await.map(drop)
    }

    async fn remove_network(&self, name: &str, id: &str) -> Result<(), Error> {
        let doing = format!("remove network {name}");
        let networks = self.objects(ObjectKind::Networks).await.map_err(|it| it.sort(&doing))?;
        let known = networks.values().find(|it| it.id == id);
        let is_adopted = self.cache.is_adopted_network(id);
        if !is_adopted && known.is_some_and(|it| it.agent.as_ref() != Some(&self.agent)) {
            return Err(not_ours(&doing));
        }
        // Of two networks of one name the objects holds one; and what it does not know may still be there.
        if known.is_none() && !is_adopted {
            let options = None::<query::InspectNetworkOptions>;
            match self.call(DEADLINE, self.docker.inspect_network(id, options)).await {
                Ok(found) => {
                    let agent = found.labels.as_ref().and_then(|it| it.get(label::AGENT));
                    if agent.map(String::as_str) != Some(self.agent.as_str()) {
                        return Err(not_ours(&doing));
                    }
                }
                Err(failure) if failure.code() == Some(404) => return Ok(()),
                Err(failure) => return Err(failure.sort(&doing)),
            }
        }
        let removed = self.call(DEADLINE, self.docker.remove_network(id)).await;
        self.cache.invalidate_objects(ObjectKind::Networks);
        tolerate(removed, |it| it.code() == Some(404)).map_err(|it| it.sort(&doing))
    }

    async fn create_volume(&self, app: &AppName, name: &str, volume: &Volume) -> Result<(), Error> {
        let doing = format!("create volume {name}");
        let body = to_engine::volume_body(name, volume, app, &self.agent);
        let created = self.call(DEADLINE, self.docker.create_volume(body)).await;
        self.cache.invalidate_objects(ObjectKind::Volumes);
        // The engine answers with the existing one, whatever it was made of.
        let found = created.map_err(|it| it.sort(&doing))?;
        let is = |name: &str, value: &str| found.labels.get(name).map(String::as_str) == Some(value);
        if is(label::AGENT, self.agent.as_str()) && is(label::APPLICATION, app.as_str()) {
            return Ok(());
        }
        let message = "a volume of this name exists already, and is not ours".to_owned();
        Err(Error::Refused { doing, message })
    }

    /// On an old engine further networks are joined one by one. When that fails the container stays as it is:
    /// it was not started, and the planner sees the missing network and asks for it again.
    async fn create(&self, creation: &Creation) -> Result<ContainerId, Error> {
        let doing = format!("create {}", creation.name);
        let version = self.agree().await.map_err(|it| it.sort(&doing))?;
        if let Some(message) = self.unreachable_mount(&creation.container.mounts) {
            return Err(Error::Rejected { doing, message });
        }
        if let Some(message) = self.runs_as_root(creation).await.map_err(|it| it.sort(&doing))? {
            return Err(Error::Rejected { doing, message });
        }
        let is_podman = self.is_podman();
        if let Some(message) = podman::misunderstood(&creation.container).filter(|_| is_podman) {
            return Err(Error::Rejected { doing, message });
        }
        let to_engine::Lowered { mut body, join_after, mac_address } = {
            let told = self.told(creation).await.map_err(|it| it.sort(&doing))?;
            to_engine::create_body_telling(creation, told, &self.paths(), version)
        };
        if is_podman {
            body = podman::without_its_defaults(body);
        }
        if creation.format == Format::Compose {
            // Compose compares it with what the name stands for, and shows it.
            let made_of = self.image(body.image.as_deref().unwrap_or_default()).await;
            if let Some(image) = made_of.map_err(|it| it.sort(&doing))? {
                let labels = body.labels.get_or_insert_default();
                labels.insert(label::compose::IMAGE.to_owned(), image.id.clone());
            }
        }
        // The body is large, and every action's future would be as large with it.
        let created = if let Some(address) = mac_address {
            Box::pin(self.send_create(creation, body, address)).await
        } else {
            let platform = creation.container.host.platform.as_deref().unwrap_or_default();
            let options = query::CreateContainerOptionsBuilder::new().name(&creation.name);
            let options = options.platform(platform).build();
            let creating = Box::pin(self.docker.create_container(Some(options), body));
            self.call(DEADLINE, creating).await.map(|it| it.id)
        };
        let id = match created {
            Ok(id) => ContainerId(id),
            // A call that was interrupted may have succeeded, and then the holder of the name is what we want. But
            // labels can be copied: only a look at the whole of it tells, and that is the planner's.
            // Docker says so with 409, Podman with 500.
            Err(failure) if failure.says(&["is already in use by"]) => {
                return Err(failure.refused(&doing));
            }
            Err(failure) => return Err(self.sort_create(failure.without(&creation.container.env), &doing)),
        };
        let settings = &creation.container.host;
        let has_hooks = !settings.post_start.is_empty() || !settings.pre_stop.is_empty();
        self.cache.made(&creation.name, &id, has_hooks);
        for (network, endpoint) in join_after {
            let joined = self.join(&id, &network, endpoint).await;
            joined.map_err(|it| it.sort(&format!("connect {} to network {network}", creation.name)))?;
        }
        Ok(id)
    }

    /// Not by bollard, which does not know the field of old engines for the hardware address.
    async fn send_create(
        &self,
        creation: &Creation,
        body: api::ContainerCreateBody,
        mac_address: String,
    ) -> Result<String, CallError> {
        #[derive(serde::Deserialize)]
        struct Created {
            #[serde(rename = "Id")]
            id: String,
        }
        let mut json = serde_json::to_value(&body).map_err(|error| CallError::unreachable(&error))?;
        if let Some(fields) = json.as_object_mut() {
            fields.insert("MacAddress".to_owned(), mac_address.into());
        }
        // Neither can hold what means something in a query.
        let platform = creation.container.host.platform.iter().map(|it| format!("&platform={it}"));
        let path = format!("/containers/create?name={}{}", creation.name, platform.collect::<String>());
        self.agree().await?;
        let sent = self.transport.ask::<Created>(Method::POST, &path, json.to_string().into_bytes());
        within(DEADLINE, sent).await.map(|it| it.id)
    }

    fn sort_create(&self, failure: CallError, doing: &str) -> Error {
        // Content is written before it is mounted. If it is gone, somebody cleaned up: look again, write again.
        let paths = self.paths();
        let dirs = [&paths.content, &paths.secret, &paths.app];
        let is_own = dirs.iter().any(|it| failure.says(&[it.to_string_lossy().to_lowercase().as_str()]));
        if is_own && failure.says(&["does not exist"]) { failure.refused(doing) } else { failure.sort(doing) }
    }

    /// The container's id, if it carries our label; `None` when there is no such container.
    async fn ours(&self, container: &ContainerRef, doing: &str) -> Result<Option<ContainerId>, Error> {
        let key = match container {
            ContainerRef::Id(id, _) if self.cache.is_made(id) || self.cache.adopter(id).is_some() => {
                return Ok(Some(id.clone()));
            }
            ContainerRef::Id(id, _) => {
                // Labels of a container never change, so what was seen once is enough.
                match self.cache.container(id).map(|it| it.instance.agent == self.agent) {
                    Some(true) => return Ok(Some(id.clone())),
                    Some(false) => return Err(not_ours(doing)),
                    None => id.as_str(),
                }
            }
            ContainerRef::Name(name) => match self.cache.made_as(name) {
                Some(id) => return Ok(Some(id)),
                None => name,
            },
        };
        let options = None::<query::InspectContainerOptions>;
        match self.call(DEADLINE, self.docker.inspect_container(key, options)).await {
            Ok(found) => {
                let labels = found.config.and_then(|it| it.labels).unwrap_or_default();
                if labels.get(label::AGENT).map(String::as_str) == Some(self.agent.as_str()) {
                    Ok(found.id.map(ContainerId))
                } else {
                    Err(not_ours(doing))
                }
            }
            Err(failure) if failure.code() == Some(404) => Ok(None),
            Err(failure) => Err(failure.sort(doing)),
        }
    }
}

/// What is already so is done.
fn tolerate<T: Default>(
    result: Result<T, CallError>,
    is_done: impl Fn(&CallError) -> bool,
) -> Result<T, CallError> {
    match result {
        Err(failure) if is_done(&failure) => Ok(T::default()),
        other => other,
    }
}

fn sort_start(failure: CallError, doing: &str) -> Error {
    if failure.says(TAKEN) {
        return match taken_port(&failure.to_string()) {
            Some(port) => Error::Refused {
                doing: doing.to_owned(),
                message: format!("host port {port} is in use by somebody else"),
            },
            None => failure.refused(doing),
        };
    }
    if failure.says(&["network"]) && failure.says(&["not found"]) {
        return failure.refused(doing);
    }
    if failure.says(HOPELESS) { failure.rejected(doing) } else { failure.sort(doing) }
}

/// `Bind for 0.0.0.0:8080 failed: port is already allocated`, or `listen tcp4 0.0.0.0:8080: bind: address
/// already in use`: the number after the last `:` of the word before.
fn taken_port(message: &str) -> Option<u16> {
    let end = TAKEN.iter().find_map(|it| message.to_lowercase().find(it))?;
    let words = message.get(..end)?.split_whitespace();
    words.rev().find_map(|it| it.trim_end_matches(':').rsplit_once(':')?.1.parse().ok())
}

fn named(container: &ContainerRef) -> &str {
    match container {
        ContainerRef::Id(_, name) | ContainerRef::Name(name) => name,
    }
}

fn not_ours(doing: &str) -> Error {
    Error::Refused { doing: doing.to_owned(), message: "it is not ours".to_owned() }
}

fn gone(doing: &str) -> Error {
    Error::Refused { doing: doing.to_owned(), message: "there is no such container any more".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_named() {
        let allocated = "driver failed programming external connectivity on endpoint a (4f): Bind for 0.0.0.0:8080 failed: port is already allocated";
        assert_eq!(taken_port(allocated), Some(8080));
        let listening = "driver failed: Error starting userland proxy: listen tcp4 127.0.0.1:18099: bind: address already in use";
        assert_eq!(taken_port(listening), Some(18099));
        assert_eq!(taken_port("Address already in use"), None);
    }
}
