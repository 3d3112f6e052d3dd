//! Creating a container.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use bollard::{models as api, query_parameters as query};
use driftless_model::{ContainerId, Format, Mount, MountSource, label};
use driftless_plan::{Creation, RequiredSignature};
use http::Method;

use super::{
    downward, first_start,
    networks::Networks,
    trial::{self, LateTrials},
};
use crate::{
    attribution::Attribution,
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    error::Error,
    inventory::Inventory,
    podman, to_engine,
};

/// Words of Docker about a part of the host that a definition needs and that may come without a commit: a disk that is mounted
/// later, or a runtime or plugin that is installed.
const MISSING_ON_HOST: [&str; 4] = [
    "bind source path does not exist",
    "unknown or invalid runtime name",
    "unknown runtime specified",
    "no log driver named",
];

/// Words of Podman about a definition. It answers them with status 500, whether the definition or the host is at fault.
const REFUSED_BY_PODMAN: [&str; 3] = ["make cli opts", "fill out specgen", "container create:"];

/// Creates containers.
pub(super) struct Creator {
    connection: Arc<Connection>,
    attribution: Arc<Attribution>,
    inventory: Arc<Inventory>,
    networks: Arc<Networks>,
    late_trials: LateTrials,
}

impl Creator {
    pub(super) fn new(
        connection: &Arc<Connection>,
        attribution: &Arc<Attribution>,
        inventory: &Arc<Inventory>,
        networks: &Arc<Networks>,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            attribution: Arc::clone(attribution),
            inventory: Arc::clone(inventory),
            networks: Arc::clone(networks),
            late_trials: LateTrials::default(),
        }
    }

    /// On an old engine further networks are connected one by one. If that fails the container stays as it is: it was
    /// not started, and the planner sees the missing network and plans to connect it.
    pub(super) async fn create(&self, creation: &Creation) -> Result<ContainerId, Error> {
        let doing = format!("create {}", creation.name);
        let call = Box::pin(self.create_call(creation, &doing)).await?;
        let to_engine::CreateCall { body, connect_after, mac_address } = call;
        let id = ContainerId(self.send(creation, body, mac_address, &doing).await?);
        let settings = &creation.container.host;
        if !settings.post_start.is_empty() || !settings.pre_stop.is_empty() {
            self.attribution.record_hooks(&id);
        }
        self.attribution.record_created(&creation.name, &id);
        for (network, endpoint) in connect_after {
            let connected = self.networks.connect(&id, &network, endpoint).await;
            connected.map_err(|error| {
                error.classify(&format!("connect {} to network {network}", creation.name))
            })?;
        }
        Ok(id)
    }

    /// Asks the engine whether it accepts a definition, by a container that is removed at once: see [`trial`].
    pub(super) async fn try_definition(&self, creation: &Creation) -> Result<(), Error> {
        let doing = format!("create {}", creation.name);
        let mut trial = trial::of(creation);
        let missing = self.missing_volumes(&trial).await.map_err(|error| error.classify(&doing))?;
        trial::leave_out(&mut trial, &missing);
        let call = Box::pin(self.create_call(&trial, &doing)).await?;
        let to_engine::CreateCall { mut body, connect_after: _, mac_address } = call;
        // It is no container of an application.
        let labels = [(label::TRIAL.to_owned(), creation.agent.to_string())];
        body.labels = Some(labels.into_iter().collect());
        let left = trial::remove(&self.connection, &trial.name).await;
        left.map_err(|error| error.classify(&doing))?;
        // Before the call, because an interrupt drops it. The engine may still finish a creation that it gave no answer to.
        let removal = self.late_trials.remove_later(&self.connection, trial.name.clone());
        let created = self.send(&trial, body, mac_address, &doing).await;
        let is_unclear =
            matches!(&created, Err(error @ Error::Transient { .. }) if !error.is_refused_by_host());
        let removed = if created.is_ok() || is_unclear {
            trial::remove(&self.connection, created.as_deref().unwrap_or(&trial.name)).await
        } else {
            Ok(())
        };
        if removed.is_ok() && !is_unclear {
            removal.abort();
        }
        created.map(drop)
    }

    /// The call that creates a container. Fails if it is known before the call that it cannot succeed.
    async fn create_call(&self, creation: &Creation, doing: &str) -> Result<to_engine::CreateCall, Error> {
        let classify = |error: CallError| error.classify(doing);
        let rejected = |message| Error::Rejected { doing: doing.to_owned(), message };
        let version = self.connection.api_version().await.map_err(classify)?;
        if let Some(message) = self.connection.unreachable_mount(&creation.container.mounts) {
            return Err(CallError::Status { code: 400, message }.refused_by_host(doing));
        }
        if let Some(message) = self.objection(creation).await.map_err(classify)? {
            return Err(rejected(message));
        }
        if let Some(made) = &creation.made_image {
            self.keep_name(&creation.container.image, made).await.map_err(classify)?;
        }
        self.check_signature(creation).await?;
        self.check_volumes(creation).await?;
        let inheriting = self.with_lasting_volumes(creation).await.map_err(classify)?;
        let creation = &*inheriting;
        let values = downward::values(&self.connection, creation).await.map_err(classify)?;
        let paths = self.connection.host_paths();
        let mut call = to_engine::create_call(creation, values, &paths, version)
            .map_err(|error| rejected(error.to_string()))?;
        if self.connection.is_podman() {
            call.body = podman::without_its_defaults(call.body);
        }
        let traits = self.connection.defaults().engine_traits();
        if let Some(all) = traits.cpus_exceeded_by(&creation.container.resources)
            && creation.format == Format::Kubernetes
        {
            // A cluster accepts a limit above the CPUs of a node; the engine refuses it.
            call.body.host_config.get_or_insert_default().nano_cpus = i64::try_from(all).ok();
        }
        if creation.format == Format::Compose {
            // Docker Compose compares it with the image that the name stands for, and shows it.
            let name = call.body.image.as_deref().unwrap_or_default();
            if let Some(image) = self.inventory.image(name).await.map_err(classify)? {
                let labels = call.body.labels.get_or_insert_default();
                labels.insert(label::compose::IMAGE.to_owned(), image.id.clone());
            }
        }
        Ok(call)
    }

    /// Sends the call. Returns the id of the container.
    async fn send(
        &self,
        creation: &Creation,
        body: api::ContainerCreateBody,
        mac_address: Option<String>,
        doing: &str,
    ) -> Result<String, Error> {
        // The body is large, and the future of every step would be as large with it.
        let created = match mac_address {
            Some(mac_address) => Box::pin(self.send_create(creation, body, mac_address)).await,
            None => Box::pin(self.call_create(creation, body)).await,
        };
        match created {
            Ok(id) => Ok(id),
            // An interrupted call may have succeeded, and then the container with this name is the wanted one. But
            // labels can be copied: only the planner can tell, after another observation.
            // Docker answers with status 409, Podman with 500.
            Err(error) if error.contains(&["is already in use by"]) => Err(error.refused(doing)),
            Err(error) => Err(self.classify_error(error.without_values(&creation.container.env), doing)),
        }
    }

    /// Without the volumes of the container that it replaces for which neither the manifest nor the image has a place any more.
    async fn with_lasting_volumes<'a>(&self, creation: &'a Creation) -> Result<Cow<'a, Creation>, CallError> {
        // The engine reports `/data` where a Dockerfile has `VOLUME /data/`.
        let without_slash = |target: &str| target.trim_end_matches('/').to_owned();
        let has = |mounts: &[Mount], target: &String| {
            mounts.iter().any(|mount| without_slash(&mount.target) == without_slash(target))
        };
        let is_mounted = |target: &String| has(&creation.container.mounts, target);
        if creation.inherit.keys().all(is_mounted) {
            return Ok(Cow::Borrowed(creation));
        }
        let name = creation.image.as_ref().unwrap_or(&creation.container.image);
        let image = self.inventory.image(name).await?;
        let is_declared =
            |target: &String| image.as_ref().is_some_and(|image| has(&image.defaults.mounts, target));
        let mut lasting = creation.clone();
        lasting.inherit.retain(|target, _| is_mounted(target) || is_declared(target));
        Ok(Cow::Owned(lasting))
    }

    /// Gives the name of an image that the agent made back to that image, if another one has it by now. The name contains
    /// the digest of what the image is made from, so no other image is meant by it.
    async fn keep_name(&self, name: &str, made: &str) -> Result<(), CallError> {
        // Not from the cache: the event about the other image may be under way.
        let inspect = self.connection.docker().inspect_image(name);
        let named = match self.connection.call(DEADLINE, inspect).await {
            Ok(found) => found.id,
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        if named.as_deref() == Some(made) {
            return Ok(());
        }
        tracing::warn!(
            image = name,
            "another image has this name; it is given back to the one that was made under it"
        );
        let (repository, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
        let options = query::TagImageOptionsBuilder::new().repo(repository).tag(tag).build();
        self.connection.call(DEADLINE, self.connection.docker().tag_image(made, Some(options))).await
    }

    /// Refuses an image that must be signed and was not verified, or whose name has got to another image since.
    async fn check_signature(&self, creation: &Creation) -> Result<(), Error> {
        let verified = match &creation.signature {
            RequiredSignature::None => return Ok(()),
            RequiredSignature::Unverified => None,
            RequiredSignature::Verified { id } => Some(id),
        };
        let doing = format!("create {}", creation.name);
        let name = creation.image.as_ref().unwrap_or(&creation.container.image);
        // Not from the cache: the event about the other image may be under way.
        let inspect = self.connection.docker().inspect_image(name);
        let found = self.connection.call(DEADLINE, inspect).await.map_err(|error| error.classify(&doing))?;
        if verified.is_some() && found.id.as_ref() == verified {
            return Ok(());
        }
        let message = format!("the signature of {name} is not verified yet");
        Err(Error::Refused { doing, message })
    }

    /// Refuses volumes that are gone since they were observed: the engine would make empty ones under their names.
    async fn check_volumes(&self, creation: &Creation) -> Result<(), Error> {
        let doing = format!("create {}", creation.name);
        let missing = self.missing_volumes(creation).await.map_err(|error| error.classify(&doing))?;
        let Some(name) = missing.first() else { return Ok(()) };
        let message = format!("the volume {name} does not exist any more");
        Err(Error::Refused { doing, message })
    }

    /// The volumes of a container that the engine does not have.
    async fn missing_volumes(&self, creation: &Creation) -> Result<BTreeSet<String>, CallError> {
        let mut missing = BTreeSet::new();
        for mount in &creation.container.mounts {
            let MountSource::Volume { name, no_copy: _ } = &mount.source else { continue };
            // Not from the list: the event about a removal may be under way, and a plugin may list less than it has.
            let inspect = self.connection.docker().inspect_volume(name);
            match self.connection.call(DEADLINE, inspect).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {
                    missing.insert(name.clone());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }

    /// Why the container cannot be created as specified, if it cannot.
    async fn objection(&self, creation: &Creation) -> Result<Option<String>, CallError> {
        let container = &creation.container;
        if container.host.non_root {
            let name = creation.image.as_ref().unwrap_or(&container.image);
            let image = self.inventory.image(name).await?;
            let user = image.and_then(|image| image.defaults.user.clone()).unwrap_or_default();
            if let Some(message) = first_start::root_user(name, &user) {
                return Ok(Some(message));
            }
        }
        Ok(podman::unsupported(container).filter(|_| self.connection.is_podman()))
    }

    async fn call_create(
        &self,
        creation: &Creation,
        body: api::ContainerCreateBody,
    ) -> Result<String, CallError> {
        let platform = creation.container.host.platform.as_deref().unwrap_or_default();
        let options = query::CreateContainerOptionsBuilder::new().name(&creation.name);
        let options = options.platform(platform).build();
        let create = Box::pin(self.connection.docker().create_container(Some(options), body));
        self.connection.call(DEADLINE, create).await.map(|created| created.id)
    }

    /// Without bollard, which does not know the field of old engines for the MAC address.
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
        // Neither can contain a character with a meaning in a query.
        let platform =
            creation.container.host.platform.iter().map(|platform| format!("&platform={platform}"));
        let path = format!("/containers/create?name={}{}", creation.name, platform.collect::<String>());
        self.connection.api_version().await?;
        let body = json.to_string().into_bytes();
        let sent = self.connection.transport().send_json::<Created>(Method::POST, &path, body);
        within(DEADLINE, sent).await.map(|created| created.id)
    }

    fn classify_error(&self, error: CallError, doing: &str) -> Error {
        // Contents are written before they are mounted. If one is gone, somebody removed it: observe and write again.
        let paths = self.connection.host_paths();
        let folders = [&paths.content, &paths.secret, &paths.app];
        let mut folders = folders.into_iter().map(|folder| folder.to_string_lossy().to_lowercase());
        let is_own = folders.any(|folder| error.contains(&[folder.as_str()]));
        // A status of 403 is of a filter or plugin of the engine.
        let is_of_host = error.code() == Some(403)
            || error.contains(&MISSING_ON_HOST)
            || (self.connection.is_podman() && error.contains(&REFUSED_BY_PODMAN));
        if is_own && error.contains(&["does not exist"]) {
            error.refused(doing)
        } else if is_of_host {
            error.refused_by_host(doing)
        } else {
            error.classify(doing)
        }
    }
}
