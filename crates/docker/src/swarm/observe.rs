//! A Swarm as a manager reports it.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{
    AppName, LeftInSwarm, ObservedNetwork, ObservedService, ObservedSwarm, SHARED_LABEL, STACK_NAMESPACE,
    SWARM_OWNER, SharedObject, SharedState, SwarmNode, SwarmObject, SwarmPort, SwarmTask, Timestamp, label,
    written_data,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::manager_api::{ManagerApi, get};
use crate::{
    call_error::{CallError, without_template},
    docker::ObserveScope,
    percent_encoding::encode,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct Info {
    swarm: InfoSwarm,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct InfoSwarm {
    #[serde(rename = "NodeID")]
    node_id: String,
    #[serde(rename = "LocalNodeState")]
    state: String,
    #[serde(rename = "ControlAvailable")]
    is_manager: bool,
    #[serde(rename = "Error")]
    error: String,
}

impl InfoSwarm {
    fn is_in_none(&self) -> bool {
        matches!(self.state.as_str(), "inactive" | "")
    }

    fn is_worker(&self) -> bool {
        self.state == "active" && !self.is_manager
    }

    /// Why the engine manages no Swarm, and what to do about it.
    fn obstacle(&self) -> String {
        let Self { state, error, .. } = self;
        if self.is_in_none() {
            return "its engine is in no Swarm: run `docker swarm init`".to_owned();
        }
        let advice = match state.as_str() {
            "active" => {
                return "its engine is a worker of the Swarm: run `docker node promote` for it on a manager"
                    .to_owned();
            }
            "locked" => "run `docker swarm unlock`",
            // It is starting, or could not start, and may need the other managers.
            _ => "see whether the other managers run and can be reached",
        };
        let error = if error.is_empty() { String::new() } else { format!(" ({error})") };
        format!("the state of its engine in the Swarm is {state}{error}: {advice}")
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Service {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Version")]
    version: Version,
    #[serde(rename = "CreatedAt")]
    created: String,
    #[serde(rename = "Spec")]
    spec: Value,
    #[serde(rename = "Endpoint")]
    endpoint: Value,
    #[serde(rename = "UpdateStatus")]
    update: Option<UpdateStatus>,
    #[serde(rename = "ServiceStatus")]
    status: Option<ServiceStatus>,
    #[serde(rename = "JobStatus")]
    job: Option<JobStatus>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct JobStatus {
    job_iteration: Version,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct Version {
    index: u64,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct UpdateStatus {
    state: String,
    message: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct ServiceStatus {
    desired_tasks: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Task {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "CreatedAt")]
    created: String,
    #[serde(rename = "Spec")]
    spec: Value,
    #[serde(rename = "ServiceID")]
    service: String,
    #[serde(rename = "Slot")]
    slot: Option<u32>,
    #[serde(rename = "NodeID")]
    node: String,
    #[serde(rename = "Status")]
    status: TaskStatus,
    #[serde(rename = "DesiredState")]
    desired_state: String,
    #[serde(rename = "JobIteration")]
    iteration: Option<Version>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct TaskStatus {
    timestamp: String,
    state: String,
    message: String,
    err: String,
    container_status: Option<ContainerStatus>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerStatus {
    #[serde(rename = "ContainerID")]
    id: String,
    #[serde(rename = "ExitCode")]
    exit_code: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Node {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Spec")]
    spec: NodeSpec,
    #[serde(rename = "Description")]
    description: NodeDescription,
    #[serde(rename = "Status")]
    status: NodeStatus,
    #[serde(rename = "ManagerStatus")]
    manager: Option<ManagerStatus>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct NodeSpec {
    availability: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct NodeDescription {
    hostname: String,
    platform: NodePlatform,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodePlatform {
    #[serde(rename = "OS")]
    os: String,
    #[serde(rename = "Architecture")]
    architecture: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct NodeStatus {
    state: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct ManagerStatus {
    leader: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Object {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Version")]
    version: Version,
    #[serde(rename = "Spec")]
    spec: ObjectSpec,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
struct ObjectSpec {
    name: String,
    labels: Option<BTreeMap<String, String>>,
}

/// The Swarm as far as one application is concerned. Notes in its networks which services of others use them, on any node.
pub(crate) async fn observe(
    manager: &impl ManagerApi,
    app: &AppName,
    scope: &ObserveScope,
    networks: &mut BTreeMap<String, ObservedNetwork>,
) -> Result<ObservedSwarm, CallError> {
    let info: Info = get(manager, "/info").await?;
    if !info.swarm.is_manager {
        // While this node does not list the services that there may be, the containers would wait.
        let goes_on = info.swarm.is_in_none() || (info.swarm.is_worker() && !scope.had_services);
        let other_engine = if goes_on { ", or set `engine: docker`" } else { "" };
        let message = format!(
            "`engine: swarm` needs a manager of a Swarm, and {}{other_engine}",
            info.swarm.obstacle()
        );
        return Err(CallError::Status { code: 400, message });
    }
    let nodes: Vec<Node> = get(manager, "/nodes").await?;
    let services: Vec<Service> = match get(manager, "/services?status=true").await {
        Err(error) if error.code() == Some(400) => get(manager, "/services").await?,
        other => other?,
    };
    let is_of_app = |labels: &Option<BTreeMap<String, String>>| {
        let value = labels.as_ref().and_then(|labels| labels.get(label::APPLICATION));
        value.is_some_and(|value| value == app.as_str())
    };
    let mut swarm = ObservedSwarm { node: info.swarm.node_id, ..ObservedSwarm::default() };
    swarm.nodes = nodes.into_iter().map(observed_node).collect();
    let present: BTreeSet<String> = services.iter().map(|service| service.id.clone()).collect();
    let mut others = BTreeMap::new();
    for service in services {
        let (name, observed) = observed_service(service);
        if is_of(app, scope, &observed) || scope.services.contains(&name) {
            swarm.services.insert(name, observed);
            continue;
        }
        note_user(networks, &name, &observed.spec);
        swarm.file_users.extend(observed.file_ids().map(|id| (id.to_owned(), name.clone())));
        swarm.port_users.extend(observed.ports().into_iter().map(|port| (port, name.clone())));
        if observed.label(label::AGENT) == Some(SWARM_OWNER) && !observed.is_job() {
            others.insert(name, observed);
        }
    }
    swarm.tasks = observe_tasks(manager, &swarm).await?;
    if !scope.namespace.is_empty() {
        let of_stack = format!("{STACK_NAMESPACE}={}", scope.namespace);
        swarm.tasks.extend(removed_tasks(manager, &of_stack, &present).await?);
    }
    if begins_with_data(scope, &swarm) {
        let of_agent = format!("{}={SWARM_OWNER}", label::AGENT);
        swarm.tasks.extend(removed_tasks(manager, &of_agent, &present).await?);
        swarm.tasks.extend(tasks_of_others(manager, &others).await?);
        swarm.other_services = others;
    }
    let configs: Vec<Object> = get(manager, "/configs").await?;
    let secrets: Vec<Object> = get(manager, "/secrets").await?;
    swarm.shared = configs.iter().find_map(|config| shared_state(app, config));
    let external = |all: &[Object], wanted: &BTreeSet<String>| {
        let found = all.iter().map(|object| &object.spec).filter(|spec| wanted.contains(&spec.name));
        let with_owner = found.map(|spec| {
            let labelled = spec.labels.as_ref().and_then(|labels| labels.get(label::APPLICATION));
            let owner = labelled.filter(|owner| *owner != app.as_str()).cloned().map(AppName);
            (spec.name.clone(), owner)
        });
        with_owner.collect()
    };
    swarm.external_configs = external(&configs, &scope.external_configs);
    swarm.external_secrets = external(&secrets, &scope.external_secrets);
    let own = |all: Vec<Object>| {
        let is_shared = |object: &Object| {
            object.spec.labels.as_ref().is_some_and(|labels| labels.contains_key(SHARED_LABEL))
        };
        let own = all.into_iter().filter(|object| is_of_app(&object.spec.labels) && !is_shared(object));
        own.flat_map(own_file).collect()
    };
    swarm.configs = own(configs);
    swarm.secrets = own(secrets);
    Ok(swarm)
}

/// Whether a service is to write to data that the Swarm does not give it yet.
fn begins_with_data(scope: &ObserveScope, swarm: &ObservedSwarm) -> bool {
    scope.data.iter().any(|(name, wanted)| {
        let present = swarm.services.get(name).map(ObservedService::writes).unwrap_or_default();
        !wanted.is_subset(&present)
    })
}

/// The tasks of services of other applications, by id. They count for the data that they write to, under any specification.
async fn tasks_of_others(
    manager: &impl ManagerApi,
    services: &BTreeMap<String, ObservedService>,
) -> Result<BTreeMap<String, SwarmTask>, CallError> {
    if services.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<&String> = services.values().map(|service| &service.id).collect();
    let found = list_tasks(manager, &json!({"service": ids})).await?;
    Ok(found.into_iter().map(|task| (task.id.clone(), observed_task(task, false))).collect())
}

/// The tasks of the services of an application, by id.
///
/// The manager says itself which of them have the present specification, as it does to Docker's own client. It counts one in that
/// would get another placement and whose node fits, since it never replaces that one, and it knows the ports of tasks.
async fn observe_tasks(
    manager: &impl ManagerApi,
    swarm: &ObservedSwarm,
) -> Result<BTreeMap<String, SwarmTask>, CallError> {
    if swarm.services.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<&String> = swarm.services.values().map(|service| &service.id).collect();
    let found = list_tasks(manager, &json!({"service": ids})).await?;
    let current = list_tasks(manager, &json!({"service": ids, "_up-to-date": ["true"]})).await?;
    let current: BTreeSet<String> = current.into_iter().map(|task| task.id).collect();
    let observed = found.into_iter().map(|task| {
        let service = swarm.services.values().find(|service| service.id == task.service);
        let is_current = match (service, &task.iteration) {
            // Each update of a Job is another run of it.
            (Some(service), Some(iteration)) => service.iteration == iteration.index,
            _ => current.contains(&task.id),
        };
        (task.id.clone(), observed_task(task, is_current))
    });
    Ok(observed.collect())
}

/// The tasks with a label whose service is removed: a Swarm keeps them until their containers have stopped. `present` are the ids of all
/// services.
///
/// The label is that of the service at the time when the task was created. A task may be wanted to run for a moment after its service
/// is gone. Tasks of Jobs are left out: engine 20.10 keeps those that have ended for good.
async fn removed_tasks(
    manager: &impl ManagerApi,
    label: &str,
    present: &BTreeSet<String>,
) -> Result<BTreeMap<String, SwarmTask>, CallError> {
    let filter = json!({
        "label": [label], "desired-state": ["ready", "running", "remove"],
    });
    let found = list_tasks(manager, &filter).await?;
    let removed =
        found.into_iter().filter(|task| !present.contains(&task.service) && task.iteration.is_none());
    Ok(removed.map(|task| (task.id.clone(), observed_task(task, false))).collect())
}

async fn list_tasks(manager: &impl ManagerApi, filter: &Value) -> Result<Vec<Task>, CallError> {
    get(manager, &format!("/tasks?filters={}", encode(&filter.to_string()))).await
}

/// Whether a service is one of an application, by its labels. Somebody may have removed that of the application by hand.
fn is_of(app: &AppName, scope: &ObserveScope, service: &ObservedService) -> bool {
    match service.label(label::APPLICATION) {
        Some(name) => name == app.as_str(),
        None => match service.label(label::AGENT) {
            Some(agent) => {
                agent == SWARM_OWNER && service.label(STACK_NAMESPACE) == Some(scope.namespace.as_str())
            }
            None => scope.own_services.contains(&service.id),
        },
    }
}

/// A service, with its name.
fn observed_service(service: Service) -> (String, ObservedService) {
    let name = service.spec.get("Name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let update = service.update.unwrap_or_default();
    let observed = ObservedService {
        id: service.id,
        version: service.version.index,
        created: Timestamp::parse(&service.created).unwrap_or_default(),
        update_state: update.state,
        update_message: update.message,
        desired_tasks: service.status.and_then(|status| status.desired_tasks),
        iteration: service.job.unwrap_or_default().job_iteration.index,
        given_ports: SwarmPort::listed(&service.endpoint),
        spec: service.spec,
        is_unlabelled: false,
    };
    (name, observed)
}

/// A node, by its id.
fn observed_node(node: Node) -> (String, SwarmNode) {
    let Node { id, spec, description, status, manager } = node;
    let NodePlatform { os, architecture } = description.platform;
    let node = SwarmNode {
        name: description.hostname,
        state: status.state,
        availability: spec.availability,
        platform: if architecture.is_empty() { String::new() } else { format!("{os}/{architecture}") },
        is_leader: manager.as_ref().is_some_and(|role| role.leader),
        is_manager: manager.is_some(),
    };
    (id, node)
}

/// A config or secret of the application, by the names that the agent gives to its content.
fn own_file(object: Object) -> Vec<(String, SwarmObject)> {
    let Object { id, spec: ObjectSpec { name, labels }, .. } = object;
    let adopted = labels.and_then(|mut labels| labels.remove(label::FILES));
    let names = adopted.unwrap_or_else(|| name.clone());
    let object = SwarmObject { id, name };
    names.split(',').map(|name| (name.to_owned(), object.clone())).collect()
}

/// The state that the agents of all managers share, if a config has it. One that cannot be read shares nothing.
fn shared_state(app: &AppName, config: &Object) -> Option<SharedObject> {
    let labels = config.spec.labels.as_ref()?;
    let is_own = labels.get(label::AGENT).is_some_and(|agent| agent == SWARM_OWNER)
        && labels.get(label::APPLICATION).is_some_and(|name| name == app.as_str());
    let text = labels.get(SHARED_LABEL).filter(|_| is_own)?;
    let state: Option<SharedState> = serde_json::from_str(text).map_or_else(
        |error| {
            tracing::warn!(%app, %error, config = config.spec.name, "could not read the state that the agents of the Swarm share; writing it again");
            None
        },
        Some,
    );
    Some(SharedObject {
        name: config.spec.name.clone(),
        id: config.id.clone(),
        version: config.version.index,
        state,
    })
}

/// The objects with the labels of an application that runs on this host. None where the engine is in no Swarm.
///
/// A node that is locked, starting, demoted or cut off from the other managers does not list them, and tasks of the Swarm may run or run
/// again later. They are unknown then for an application that had services. Any other one does not wait for a Swarm that it may
/// have nothing to do with.
pub(crate) async fn objects_of(
    manager: &impl ManagerApi,
    app: &AppName,
    scope: &ObserveScope,
) -> Result<LeftInSwarm, CallError> {
    let services = match names(manager, "services", app).await {
        Ok(services) => services,
        Err(error @ (CallError::Status { .. } | CallError::TimedOut(_))) => {
            return unlisted_objects(manager, app, scope, &error).await;
        }
        Err(error) => return Err(error),
    };
    let mut left = LeftInSwarm { services, ..LeftInSwarm::default() };
    let others =
        [("configs", &mut left.configs), ("secrets", &mut left.secrets), ("networks", &mut left.networks)];
    let mut failure = None;
    for (kind, found) in others {
        match names(manager, kind, app).await {
            Ok(all) => *found = all,
            Err(error @ (CallError::Status { .. } | CallError::TimedOut(_))) => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    match failure {
        Some(error) if left.is_empty() => unlisted_objects(manager, app, scope, &error).await,
        // The listed objects hold the application already.
        _ => Ok(left),
    }
}

/// The objects that an application may have in a Swarm that does not list them.
async fn unlisted_objects(
    manager: &impl ManagerApi,
    app: &AppName,
    scope: &ObserveScope,
    error: &CallError,
) -> Result<LeftInSwarm, CallError> {
    if !scope.had_services {
        tracing::debug!(%app, %error, "the Swarm did not list the objects of the application");
        return Ok(LeftInSwarm::default());
    }
    let Info { swarm } = get(manager, "/info").await?;
    if swarm.is_in_none() {
        return Ok(LeftInSwarm::default());
    }
    let mut reason = if swarm.is_manager { error.to_string() } else { swarm.obstacle() };
    if swarm.is_worker() {
        reason.push_str(", or `docker swarm leave` on it if its services are gone");
    }
    Ok(LeftInSwarm { unknown: Some(reason), ..LeftInSwarm::default() })
}

/// The names of the objects of one kind with the labels of an application.
async fn names(manager: &impl ManagerApi, kind: &str, app: &AppName) -> Result<Vec<String>, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Named {
        /// That of a network.
        name: Option<String>,
        spec: Option<ObjectSpec>,
    }
    let labels = [format!("{}={SWARM_OWNER}", label::AGENT), format!("{}={app}", label::APPLICATION)];
    let filter = json!({"label": labels}).to_string();
    let found: Vec<Named> = get(manager, &format!("/{kind}?filters={}", encode(&filter))).await?;
    Ok(found.into_iter().filter_map(|object| object.name.or_else(|| Some(object.spec?.name))).collect())
}

/// Notes a service of somebody else in the networks that it uses.
fn note_user(networks: &mut BTreeMap<String, ObservedNetwork>, service: &str, spec: &Value) {
    let mut used = network_targets(spec);
    used.extend(spec.get("TaskTemplate").map(network_targets).unwrap_or_default());
    for (name, network) in networks {
        if used.contains(network.id.as_str()) || used.contains(name.as_str()) {
            network.foreign.push(service.to_owned());
        }
    }
}

/// The networks of a specification, by id or name. Of a service they are in that of its tasks, and for old clients in its own.
fn network_targets(spec: &Value) -> BTreeSet<&str> {
    let all = spec.get("Networks").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(|network| network.get("Target")?.as_str()).collect()
}

fn observed_task(task: Task, is_current: bool) -> SwarmTask {
    let TaskStatus { timestamp, state, message, err, container_status } = task.status;
    let container = container_status.unwrap_or_default();
    let time = |text: &str| Timestamp::parse(text).unwrap_or_default();
    SwarmTask {
        since: time(&timestamp),
        created: time(&task.created),
        id: task.id,
        service: task.service,
        slot: task.slot,
        node: Some(task.node).filter(|node| !node.is_empty()),
        state,
        desired_state: task.desired_state,
        message,
        // A node fills in what the manager could not check, and its words may quote the value of a variable.
        error: without_template(err),
        writes: written_data(&task.spec),
        exit_code: container.exit_code.filter(|_| !container.id.is_empty()),
        is_current,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::mount_paths::MountPaths;

    /// A manager with an answer for these paths. It fails for any other one.
    struct StubManager {
        answers: BTreeMap<&'static str, Value>,
        paths: MountPaths,
    }

    impl StubManager {
        fn answering(path: &'static str, answer: Value) -> Self {
            Self { answers: BTreeMap::from([(path, answer)]), paths: MountPaths::default() }
        }
    }

    impl ManagerApi for StubManager {
        async fn send(
            &self,
            _method: Method,
            path: &str,
            _headers: &[(&'static str, String)],
            _body: Vec<u8>,
        ) -> Result<Vec<u8>, CallError> {
            let answer = path.split('?').next().and_then(|path| self.answers.get(path));
            let failure = || CallError::Status { code: 503, message: "no answer".to_owned() };
            Ok(answer.ok_or_else(failure)?.to_string().into_bytes())
        }

        fn paths(&self) -> &MountPaths {
            &self.paths
        }
    }

    #[tokio::test]
    async fn listed_services_are_kept_when_another_list_fails() {
        let app = AppName::from("shop");
        let mut manager = StubManager::answering("/services", json!([{"Spec": {"Name": "shop_db"}}]));
        let left = objects_of(&manager, &app, &ObserveScope::default()).await.unwrap();
        assert_eq!((left.services, left.unknown), (vec!["shop_db".to_owned()], None));

        manager.answers.insert("/services", json!([]));
        let active = json!({"Swarm": {"LocalNodeState": "active", "ControlAvailable": true}});
        manager.answers.insert("/info", active);
        for had_services in [false, true] {
            let scope = ObserveScope { had_services, ..ObserveScope::default() };
            let left = objects_of(&manager, &app, &scope).await.unwrap();
            assert_eq!(left.unknown.as_deref(), had_services.then_some("no answer"));
        }
        // A network that is listed after a failure is kept, too.
        manager.answers.insert("/networks", json!([{"Name": "shop_default"}]));
        let left = objects_of(&manager, &app, &ObserveScope::default()).await.unwrap();
        assert_eq!(left.networks, ["shop_default"]);
    }

    #[tokio::test]
    async fn advice_for_a_worker_leads_on() {
        let worker = json!({"Swarm": {"LocalNodeState": "active", "ControlAvailable": false}});
        let manager = StubManager::answering("/info", worker);
        let app = AppName::from("shop");
        for had_services in [false, true] {
            let scope = ObserveScope { had_services, ..ObserveScope::default() };
            let error = observe(&manager, &app, &scope, &mut BTreeMap::new()).await.unwrap_err().to_string();
            assert!(error.contains("`docker node promote`"), "{error}");
            assert_eq!(error.contains("or set `engine: docker`"), !had_services, "{error}");
            let left = objects_of(&manager, &app, &scope).await.unwrap();
            let reason = left.unknown.unwrap_or_default();
            assert_eq!(reason.contains("`docker swarm leave`"), had_services, "{reason}");
        }
    }

    #[test]
    fn task_names_its_data_and_no_values() {
        let mount = |kind: &str, source: &str| json!({"Type": kind, "Source": source, "Target": "/a"});
        let mut read_only = mount("volume", "conf");
        read_only["ReadOnly"] = json!(true);
        let mounts = json!([
            mount("volume", "data"), mount("bind", "/srv"), read_only, {"Type": "volume", "Target": "/b"}, mount("tmpfs", "")
        ]);
        let status = TaskStatus {
            err: "expanding env failed: expanding env \"KEY={{.X}}hunter2\": can't evaluate field X"
                .to_owned(),
            ..TaskStatus::default()
        };
        let task = Task { spec: json!({"ContainerSpec": {"Mounts": mounts}}), status, ..Task::default() };
        let seen = observed_task(task, true);
        assert_eq!(seen.writes, BTreeSet::from(["/srv".to_owned(), "data".to_owned()]));
        assert!(seen.error.contains("KEY") && !seen.error.contains("hunter2"), "{}", seen.error);
    }
}
