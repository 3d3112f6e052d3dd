//! The calls of the API of a manager.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::{
    cluster::{Cluster, ClusterNetwork, File},
    node::ClusterNode,
    normal_form::normal_form,
    service::{ClusterService, JobRuns},
    task::ClusterTask,
};
use crate::{
    call_error::CallError,
    swarm::ranges::{Range, first_free, range_of},
};

/// The words of managers that have no leader.
const NO_LEADER: &str = "rpc error: code = Unknown desc = The swarm does not have a leader. It's possible that too few managers are online. Make sure more than half of the managers are online.";
/// The words of a manager that was restarted with autolock.
const LOCKED: &str = "Swarm is encrypted and needs to be unlocked before it can be used. Please use \"docker swarm unlock\" to unlock it.";
const OUT_OF_SEQUENCE: &str = "rpc error: code = Unknown desc = update out of sequence";

/// A path without its query, and the query.
pub(super) struct Path<'a> {
    parts: Vec<&'a str>,
    query: &'a str,
}

impl<'a> Path<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        Self { parts: path.split('/').filter(|part| !part.is_empty()).collect(), query }
    }

    fn version(&self) -> u64 {
        self.query.strip_prefix("version=").and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// The values of a filter, such as `label`.
    fn filter(&self, name: &str) -> Vec<String> {
        let text = self.query.strip_prefix("filters=").map(decode).unwrap_or_default();
        let filters: BTreeMap<String, Vec<String>> = serde_json::from_str(&text).unwrap_or_default();
        filters.get(name).cloned().unwrap_or_default()
    }

    /// The objects with the labels of the filter. `labels` is where they are in an object.
    fn labelled(&self, objects: impl Iterator<Item = Value>, labels: &str) -> Value {
        objects.filter(|object| self.has_labels(object.pointer(labels).unwrap_or(&Value::Null))).collect()
    }

    /// Whether labels are those of the filter.
    fn has_labels(&self, labels: &Value) -> bool {
        self.filter("label").iter().all(|label| {
            let (name, value) = label.split_once('=').unwrap_or((label, ""));
            labels.is_object() && text(labels, name) == value
        })
    }
}

fn decode(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.extend(code);
        bytes.extend(part.get(2..).unwrap_or_default().bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn failure(code: u16, message: impl Into<String>) -> CallError {
    CallError::Status { code, message: message.into() }
}

fn missing(kind: &str, name: &str) -> CallError {
    failure(404, format!("{kind} {name} not found"))
}

fn invalid(message: &str) -> CallError {
    failure(400, format!("rpc error: code = InvalidArgument desc = {message}"))
}

fn text<'a>(body: &'a Value, key: &str) -> &'a str {
    body.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Cluster {
    /// The answer of a node to a call.
    pub(super) fn answer(
        &mut self,
        node: &str,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, CallError> {
        let path = Path::of(path);
        let own = self.nodes.values().find(|known| known.name == node).cloned();
        if let ["info"] = path.parts.as_slice() {
            return Ok(match own {
                Some(own) if own.is_locked() => json!({"Swarm": {
                    "LocalNodeState": "locked", "ControlAvailable": false, "Error": LOCKED,
                }}),
                Some(own) => json!({"Swarm": {
                    "NodeID": own.id, "LocalNodeState": "active", "ControlAvailable": own.is_manager, "Error": "",
                }}),
                None => json!({"Swarm": {"LocalNodeState": "inactive", "ControlAvailable": false}}),
            });
        }
        if let ["distribution", name @ .., "json"] = path.parts.as_slice() {
            return self.distribution(&decode(&name.join("/")));
        }
        let is_locked = own.as_ref().is_some_and(ClusterNode::is_locked);
        let Some(own) = own.filter(|own| own.is_manager && !is_locked) else {
            return match path.parts.as_slice() {
                // Any engine lists the networks of its host.
                ["networks"] => Ok(json!([])),
                _ => Err(failure(503, if is_locked { LOCKED } else { "This node is not a swarm manager." })),
            };
        };
        // One that is cut off from the others does not know who leads.
        if self.leader().is_none() || !own.is_reachable() {
            return Err(failure(500, NO_LEADER));
        }
        match (method.as_str(), path.parts.as_slice()) {
            ("GET", ["nodes"]) => {
                let leader = self.leader().map(str::to_owned);
                Ok(self.nodes.values().map(|node| node.to_json(leader.as_deref())).collect())
            }
            ("POST", ["nodes", id, "update"]) => self.update_node(id, path.version(), body),
            ("GET", ["services"]) => Ok(self.list_services(&path)),
            ("POST", ["services", "create"]) => self.create_service(body),
            ("GET", ["services", id]) => {
                let service = self.find_service(id)?;
                Ok(self.service_json(service, false))
            }
            ("POST", ["services", id, "update"]) => self.update_service(id, path.version(), body),
            ("DELETE", ["services", id]) => {
                let id = self.find_service(id)?.id.clone();
                self.services.remove(&id);
                Ok(Value::Null)
            }
            ("GET", ["tasks"]) => {
                let (of, desired) = (path.filter("service"), path.filter("desired-state"));
                let is_any = |wanted: &[String], value: &str| {
                    wanted.is_empty() || wanted.iter().any(|wanted| wanted == value)
                };
                let asks_for_current = !path.filter("_up-to-date").is_empty();
                let is_current = |task: &ClusterTask| {
                    let service = self.services.get(&task.service);
                    service.is_some_and(|service| !self.is_outdated(service, task))
                };
                let all = self.tasks.values().filter(|task| {
                    is_any(&of, &task.service)
                        && is_any(&desired, task.desired.name())
                        && path.has_labels(&task.labels)
                        && (!asks_for_current || is_current(task))
                });
                Ok(all.map(ClusterTask::to_json).collect())
            }
            ("GET", ["networks"]) => Ok(path.labelled(self.networks.values().map(network_json), "/Labels")),
            ("GET", ["networks", id]) => {
                let found = self.networks.values().find(|network| network.id == *id || network.name == *id);
                Ok(network_json(found.ok_or_else(|| missing("network", id))?))
            }
            ("GET", ["info"]) => {
                Ok(json!({"Swarm": {"Cluster": {"DefaultAddrPool": null, "SubnetSize": 24}}}))
            }
            ("POST", ["networks", "create"]) => self.create_network(body),
            ("DELETE", ["networks", id]) => self.remove_network(id),
            ("GET", [kind @ ("configs" | "secrets")]) => {
                let all = self.files(kind).values().map(|file| file_json(kind, file));
                Ok(path.labelled(all, "/Spec/Labels"))
            }
            ("POST", [kind @ ("configs" | "secrets"), "create"]) => self.create_file(kind, body),
            ("GET", [kind @ ("configs" | "secrets"), id]) => Ok(file_json(kind, self.find_file(kind, id)?)),
            ("POST", [kind @ ("configs" | "secrets"), id, "update"]) => {
                self.update_file(kind, id, path.version(), body)
            }
            ("DELETE", [kind @ ("configs" | "secrets"), id]) => self.remove_file(kind, id),
            _ => Err(failure(404, "page not found")),
        }
    }

    fn distribution(&self, image: &str) -> Result<Value, CallError> {
        if self.faults.missing.contains(image) {
            return Err(failure(404, format!("manifest for {image} not found: manifest unknown")));
        }
        let digest = driftless_model::digest_hex(image.as_bytes());
        Ok(json!({
            "Descriptor": {"digest": format!("sha256:{digest}")},
            "Platforms": [{"architecture": "amd64", "os": "linux"}],
        }))
    }

    fn update_node(&mut self, id: &str, version: u64, body: &Value) -> Result<Value, CallError> {
        let index = self.next_index();
        let Some(node) = self.nodes.get_mut(id) else { return Err(missing("node", id)) };
        if node.version != version {
            return Err(failure(500, OUT_OF_SEQUENCE));
        }
        text(body, "Availability").clone_into(&mut node.availability);
        node.labels = serde_json::from_value(body["Labels"].clone()).unwrap_or_default();
        node.version = index;
        Ok(Value::Null)
    }

    fn list_services(&self, path: &Path<'_>) -> Value {
        let with_status = path.query.contains("status=true");
        let all = self.services.values().map(|service| self.service_json(service, with_status));
        path.labelled(all, "/Spec/Labels")
    }

    fn find_service(&self, id: &str) -> Result<&ClusterService, CallError> {
        let found = self.services.values().find(|service| service.id == id || service.name() == id);
        found.ok_or_else(|| missing("service", id))
    }

    fn create_service(&mut self, body: &Value) -> Result<Value, CallError> {
        let spec = self.checked(body, None)?;
        let name = text(&spec, "Name");
        if self.find_service(name).is_ok() {
            let message = format!(
                "rpc error: code = AlreadyExists desc = name conflicts with an existing object: service {name} already exists"
            );
            return Err(failure(409, message));
        }
        let (id, version, created) = (self.new_id("service"), self.next_index(), self.now);
        let service = ClusterService {
            id: id.clone(),
            version,
            created,
            spec,
            previous: None,
            update: None,
            rollout: None,
            runs: JobRuns::beginning(created),
        };
        self.services.insert(id.clone(), service);
        Ok(json!({"ID": id}))
    }

    fn update_service(&mut self, id: &str, version: u64, body: &Value) -> Result<Value, CallError> {
        let found = self.find_service(id)?;
        let id = found.id.clone();
        if found.version != version {
            return Err(failure(500, OUT_OF_SEQUENCE));
        }
        if text(body, "Name") != found.name() {
            return Err(failure(
                501,
                "rpc error: code = Unimplemented desc = renaming services is not supported",
            ));
        }
        let spec = self.checked(body, Some(&id))?;
        let index = self.next_index();
        let Some(service) = self.services.get_mut(&id) else { return Err(missing("service", &id)) };
        let mode = |spec: &Value| spec["Mode"].as_object().and_then(|mode| mode.keys().next().cloned());
        if mode(&spec) != mode(&service.spec) {
            return Err(failure(
                501,
                "rpc error: code = Unimplemented desc = service mode change is not allowed",
            ));
        }
        service.previous = Some(std::mem::replace(&mut service.spec, spec));
        (service.version, service.update, service.rollout) = (index, None, None);
        service.run_again(self.now);
        Ok(json!({"Warnings": null}))
    }

    /// A specification in the form of an engine, if all that it names exists.
    fn checked(&self, body: &Value, own: Option<&str>) -> Result<Value, CallError> {
        let mut body = body.clone();
        let networks = body.pointer_mut("/TaskTemplate/Networks").and_then(Value::as_array_mut);
        for network in networks.into_iter().flatten() {
            let name = text(network, "Target").to_owned();
            let found = self.networks.values().find(|known| known.id == name || known.name == name);
            let found = found.ok_or_else(|| failure(500, format!("network {name} not found")))?;
            network["Target"] = found.id.as_str().into();
        }
        for (list, kind, key, name) in [
            ("Secrets", "secrets", "SecretID", "SecretName"),
            ("Configs", "configs", "ConfigID", "ConfigName"),
        ] {
            let all = body.pointer(&format!("/TaskTemplate/ContainerSpec/{list}")).and_then(Value::as_array);
            for reference in all.into_iter().flatten() {
                if !self.files(kind).contains_key(text(reference, key)) {
                    return Err(invalid(&format!("{} not found: {}", singular(kind), text(reference, name))));
                }
            }
        }
        let spec = normal_form(&body);
        let is_job = ["ReplicatedJob", "GlobalJob"].iter().any(|mode| spec["Mode"].get(mode).is_some());
        if is_job && spec.get("UpdateConfig").is_some() {
            return Err(invalid("Jobs may not have an update config"));
        }
        self.check_ports(&spec, own)?;
        Ok(spec)
    }

    /// Two services cannot have one port of the routing mesh.
    fn check_ports(&self, spec: &Value, own: Option<&str>) -> Result<(), CallError> {
        let ports = |spec: &Value| -> Vec<u64> {
            let all =
                spec.pointer("/EndpointSpec/Ports").and_then(Value::as_array).cloned().unwrap_or_default();
            let of_mesh = all.iter().filter(|port| text(port, "PublishMode") == "ingress");
            of_mesh.filter_map(|port| port.get("PublishedPort")?.as_u64()).collect()
        };
        let wanted = ports(spec);
        for other in self.services.values().filter(|other| Some(other.id.as_str()) != own) {
            if let Some(port) = ports(&other.spec).into_iter().find(|port| wanted.contains(port)) {
                let (name, id) = (other.name(), &other.id);
                return Err(invalid(&format!(
                    "port '{port}' is already in use by service '{name}' ({id}) as an ingress port"
                )));
            }
        }
        Ok(())
    }

    fn files(&self, kind: &str) -> &BTreeMap<String, File> {
        if kind == "secrets" { &self.secrets } else { &self.configs }
    }

    fn files_mut(&mut self, kind: &str) -> &mut BTreeMap<String, File> {
        if kind == "secrets" { &mut self.secrets } else { &mut self.configs }
    }

    fn find_file(&self, kind: &str, id: &str) -> Result<&File, CallError> {
        let found = self.files(kind).values().find(|file| file.id == id || file.name == id);
        found.ok_or_else(|| missing(singular(kind), id))
    }

    fn create_file(&mut self, kind: &str, body: &Value) -> Result<Value, CallError> {
        let name = text(body, "Name").to_owned();
        if self.find_file(kind, &name).is_ok() {
            let kind = singular(kind);
            let message = format!("rpc error: code = AlreadyExists desc = {kind} {name} already exists");
            return Err(failure(409, message));
        }
        let (id, version) = (self.new_id(singular(kind)), self.next_index());
        let data = text(body, "Data").to_owned();
        let labels = Some(body["Labels"].clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
        let templating = body["Templating"].clone();
        let file = File { id: id.clone(), version, name, labels, data, templating };
        self.files_mut(kind).insert(id.clone(), file);
        Ok(json!({"ID": id}))
    }

    fn update_file(&mut self, kind: &str, id: &str, version: u64, body: &Value) -> Result<Value, CallError> {
        let found = self.find_file(kind, id)?;
        let id = found.id.clone();
        if found.version != version {
            return Err(failure(500, OUT_OF_SEQUENCE));
        }
        if body.get("Data").is_some_and(|data| data.as_str() != Some(found.data.as_str())) {
            return Err(invalid("only updates to Labels are allowed"));
        }
        let index = self.next_index();
        if let Some(file) = self.files_mut(kind).get_mut(&id) {
            (file.labels, file.version) = (body["Labels"].clone(), index);
        }
        Ok(Value::Null)
    }

    fn remove_file(&mut self, kind: &str, id: &str) -> Result<Value, CallError> {
        let found = self.find_file(kind, id)?;
        let (id, name) = (found.id.clone(), found.name.clone());
        let (list, key) = if kind == "secrets" { ("Secrets", "SecretID") } else { ("Configs", "ConfigID") };
        let list = format!("/TaskTemplate/ContainerSpec/{list}");
        let users = self.services.values().filter(|service| service.uses(&list, key, &id));
        let users: Vec<&str> = users.map(ClusterService::name).collect();
        if !users.is_empty() {
            let (kind, word) = (singular(kind), if users.len() == 1 { "service" } else { "services" });
            let users = users.join(", ");
            return Err(invalid(&format!("{kind} '{name}' is in use by the following {word}: {users}")));
        }
        self.files_mut(kind).remove(&id);
        Ok(Value::Null)
    }

    fn create_network(&mut self, body: &Value) -> Result<Value, CallError> {
        let name = text(body, "Name").to_owned();
        if self.networks.values().any(|network| network.name == name) {
            return Err(failure(409, format!("network with name {name} already exists")));
        }
        let id = self.new_id("network");
        let labels = serde_json::from_value(body["Labels"].clone()).unwrap_or_default();
        let wanted = body.pointer("/IPAM/Config/0/Subnet").and_then(Value::as_str);
        // A request with a range that overlaps succeeds, and the network gets none.
        let subnet = self.free_subnet(wanted);
        self.networks.insert(id.clone(), ClusterNetwork { id: id.clone(), name, labels, subnet });
        Ok(json!({"Id": id}))
    }

    /// A range that no network has: the wanted one, or the next one of the pool.
    fn free_subnet(&self, wanted: Option<&str>) -> Option<String> {
        let taken = self.networks.values().filter_map(|network| network.subnet.as_deref());
        // That of the routing mesh.
        let used: Vec<Range> = taken.chain(["10.0.0.0/24"]).filter_map(range_of).collect();
        let (pool, prefix) = match wanted {
            Some(wanted) => (wanted, wanted.split_once('/')?.1.parse().ok()?),
            None => ("10.0.0.0/8", 24),
        };
        first_free(&range_of(pool)?, prefix, &used)
    }

    fn remove_network(&mut self, id: &str) -> Result<Value, CallError> {
        let found = self.networks.values().find(|network| network.id == id || network.name == id);
        let id = found.ok_or_else(|| missing("network", id))?.id.clone();
        let user =
            self.services.values().find(|service| service.uses("/TaskTemplate/Networks", "Target", &id));
        if let Some(user) = user {
            let user = &user.id;
            let message = format!(
                "rpc error: code = FailedPrecondition desc = network {id} is in use by service {user}"
            );
            return Err(failure(400, message));
        }
        self.networks.remove(&id);
        Ok(Value::Null)
    }
}

fn singular(kind: &str) -> &str {
    kind.strip_suffix('s').unwrap_or(kind)
}

fn network_json(network: &ClusterNetwork) -> Value {
    let ipam = match &network.subnet {
        Some(subnet) => json!({"Driver": "default", "Options": null, "Config": [{"Subnet": subnet}]}),
        None => json!({"Driver": "", "Options": null, "Config": null}),
    };
    json!({
        "Id": network.id, "Name": network.name, "Labels": network.labels, "Driver": "overlay", "Scope": "swarm",
        "IPAM": ipam,
    })
}

fn file_json(kind: &str, file: &File) -> Value {
    let mut spec = json!({"Name": file.name, "Labels": file.labels});
    if !file.templating.is_null() {
        spec["Templating"] = file.templating.clone();
    }
    // Nobody can read a secret.
    if kind == "configs" {
        spec["Data"] = file.data.as_str().into();
    }
    json!({"ID": file.id, "Version": {"Index": file.version}, "Spec": spec})
}
