//! The names that events have for a workload or a Pod: its workloads, its instances as `web.1`, and its containers.

use std::collections::BTreeSet;

use super::target::Target;
use driftless_model::{Application, Kind, WorkloadName, WorkloadStatus};

/// The objects of the events about a workload or a Pod.
#[derive(Default)]
pub(super) struct EventObjects {
    /// Workloads, present instances, and the containers of these.
    names: BTreeSet<String>,
    /// The beginnings of the names of instances that may have been removed. A slot follows, or a hash and a slot.
    beginnings: BTreeSet<String>,
    /// The containers of a Pod of several. Each has the name of the Pod's own container, and its own after that.
    parts: BTreeSet<String>,
}

impl EventObjects {
    pub(super) fn of(target: &Target, application: &Application) -> Self {
        let mut found = Self::default();
        let own = if target.kind == Kind::Pod { &target.name } else { &target.workload };
        found.names.insert(own.clone());
        let is_of_it = |(name, workload): &(&WorkloadName, &WorkloadStatus)| {
            workload.spec.whole.as_ref().unwrap_or(name).as_str() == target.workload
        };
        for (name, workload) in application.status.workloads.iter().filter(is_of_it) {
            found.add(target, name, workload);
        }
        found
    }

    fn add(&mut self, target: &Target, name: &WorkloadName, workload: &WorkloadStatus) {
        let is_pod = target.kind == Kind::Pod;
        let parts = workload.spec.containers.iter().map(|part| part.name.as_str());
        let mut has_pod = false;
        for instance in &workload.instances {
            if is_pod && *instance.pod.as_ref().unwrap_or(&instance.name) != target.name {
                continue;
            }
            has_pod = true;
            // An instance of an older specification may have other parts.
            let present = instance.containers.iter().map(|part| part.spec.name.as_str());
            self.add_instance(name, &instance.name, instance.slot, present);
        }
        for awaited in workload.awaited.iter().filter(|awaited| !is_pod || awaited.name == target.name) {
            has_pod = true;
            self.add_instance(name, &awaited.name, awaited.slot, parts.clone());
        }
        // A Pod whose name stays is all of its workload.
        let is_one_pod = workload.spec.object.kind == Kind::Pod || workload.spec.whole.is_some();
        if !is_pod || (has_pod && is_one_pod) {
            self.names.insert(name.to_string());
            self.beginnings.insert(format!("{name}."));
            self.beginnings.insert(format!("{}-{name}-", target.app));
            self.parts.extend(parts.map(str::to_owned));
        }
    }

    fn add_instance<'a>(
        &mut self,
        workload: &WorkloadName,
        container: &str,
        slot: u32,
        parts: impl Iterator<Item = &'a str>,
    ) {
        self.names.insert(container.to_owned());
        self.names.insert(format!("{workload}.{slot}"));
        self.names.extend(parts.map(|part| format!("{container}-{part}")));
    }

    pub(super) fn contains(&self, object: &str) -> bool {
        let mut ends = self.beginnings.iter().filter_map(|beginning| object.strip_prefix(beginning.as_str()));
        let is_part_end = |end: &str, part: &str| {
            end.strip_suffix(part).and_then(|end| end.strip_suffix('-')).is_some_and(is_instance_end)
        };
        let is_end = |end: &str| is_instance_end(end) || self.parts.iter().any(|part| is_part_end(end, part));
        self.names.contains(object) || ends.any(is_end)
    }
}

/// Whether a name ends as that of an instance: `1`, or `1a2b3c4d-1` with the hash of its specification.
fn is_instance_end(end: &str) -> bool {
    let is_slot = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match end.rsplit_once('-') {
        Some((hash, slot)) => {
            hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) && is_slot(slot)
        }
        None => is_slot(end),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use driftless_model::{
        ApplicationSpec, ApplicationStatus, AwaitedInstance, InstanceStatus, ObjectRef, PartSpec, Policy,
        Role, WorkloadSpec,
    };
    use serde_json::json;

    use super::*;

    fn application(workloads: BTreeMap<WorkloadName, WorkloadStatus>) -> Application {
        let spec = ApplicationSpec {
            repository: String::new(),
            url: String::new(),
            reference: String::new(),
            path: String::new(),
            format: None,
            policy: Policy::default(),
            commit: None,
        };
        let status = ApplicationStatus { workloads: Arc::new(workloads), ..ApplicationStatus::default() };
        Application { name: "shop".into(), spec, generation: 1, status }
    }

    fn workload(kind: Kind, name: &str, whole: Option<&str>) -> WorkloadStatus {
        let object = ObjectRef { kind, namespace: "prod".to_owned(), name: name.to_owned() };
        let spec = WorkloadSpec { object, whole: whole.map(Into::into), ..WorkloadSpec::default() };
        WorkloadStatus { spec, ..WorkloadStatus::default() }
    }

    fn instance(container: &str, slot: u32, pod: Option<&str>) -> InstanceStatus {
        let pod = pod.map(str::to_owned);
        InstanceStatus { name: container.to_owned(), slot, pod, ..InstanceStatus::default() }
    }

    fn target(kind: &str, name: &str, workload: &str) -> Target {
        let labels = json!({ "driftless.application": "shop", "driftless.workload": workload });
        Target::of(json!({ "kind": kind, "metadata": { "name": name, "labels": labels } }))
    }

    fn assert_events(target: &Target, application: &Application, of_it: &[&str], of_others: &[&str]) {
        let objects = EventObjects::of(target, application);
        for object in of_it {
            assert!(objects.contains(object), "{object}");
        }
        for object in of_others {
            assert!(!objects.contains(object), "{object}");
        }
    }

    #[test]
    fn events_are_of_a_workload_its_slots_and_its_containers() {
        let mut web = workload(Kind::Deployment, "web", None);
        web.instances = vec![instance("traefik", 1, None)];
        let shop = application([("web".into(), web)].into());
        let of_it = ["web", "web.1", "web.7", "shop-web-2", "shop-web-0a1b2c3d-12", "traefik"];
        let of_others = ["web2", "web.", "shop-web-admin-1", "shop-web-", "shop-db-1", "revision 4"];
        assert_events(&target("Deployment", "web", "web"), &shop, &of_it, &of_others);
        assert_events(&target("Pod", "traefik", "web"), &shop, &["traefik", "web.1"], &["web", "web.2"]);
    }

    #[test]
    fn events_of_pods_with_a_name_of_their_own_are_found() {
        let member = |ordinal: u32| {
            let mut set = workload(Kind::StatefulSet, "db", Some("db.prod"));
            let (pod, container) = (format!("db-{ordinal}"), format!("shop-db-{ordinal}.prod-1a2b3c4d-1"));
            set.instances = vec![instance(&container, 1, Some(&pod))];
            (WorkloadName(format!("db-{ordinal}.prod")), set)
        };
        let shop = application([member(0), member(1)].into());
        let second = ["db-1.prod", "db-1.prod.1", "shop-db-1.prod-1a2b3c4d-1", "shop-db-1.prod-99999999-1"];
        let first = ["db-0.prod.1", "shop-db-0.prod-1a2b3c4d-1", "shop-db-0.prod-99999999-1"];
        assert_events(&target("StatefulSet", "db", "db.prod"), &shop, &[&first[..], &second].concat(), &[]);
        assert_events(&target("Pod", "db-1", "db.prod"), &shop, &second, &first);
    }

    #[test]
    fn events_of_the_containers_of_a_pod_are_found() {
        let mut web = workload(Kind::Deployment, "web", None);
        let part = |name: &str| PartSpec { name: name.to_owned(), role: Role::App, image: String::new() };
        web.spec.containers = vec![part("app"), part("log")];
        web.awaited = vec![AwaitedInstance {
            name: "shop-web-1a2b3c4d-2".to_owned(),
            slot: 2,
            reason: "Pending".to_owned(),
            message: String::new(),
        }];
        let shop = application([("web".into(), web)].into());
        let of_it = ["shop-web-1a2b3c4d-1-app", "shop-web-99999999-1-log", "shop-web-1a2b3c4d-2-app"];
        assert_events(&target("Deployment", "web", "web"), &shop, &of_it, &["shop-web-1a2b3c4d-1-tail"]);
        let pod = target("Pod", "shop-web-1a2b3c4d-2", "web");
        assert_events(&pod, &shop, &["shop-web-1a2b3c4d-2-app"], &["shop-web-1a2b3c4d-1-app"]);
    }
}
