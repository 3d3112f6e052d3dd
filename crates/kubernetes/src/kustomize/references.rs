//! Updates references to objects that got another name.
//!
//! A reference names its object by any name that the object had during the build. Of several objects that had this
//! name,
//! the reference means the one that got the same prefixes and suffixes as the referring object.

use super::{
    resource::{Gvk, Resource},
    walk::{Missing, steps, visit},
};
use driftless_model::Finding;
use driftless_yaml::{Kind, Node, edit::set, edit::text};

/// References to objects of one kind.
struct Referred {
    group: &'static str,
    kind: &'static str,
    /// Paths from the specification of a pod.
    in_pods: &'static [&'static str],
    /// Kinds of referring objects, with the path from the root of the object.
    elsewhere: &'static [(&'static str, &'static str)],
}

/// The path of the pod specification, by kind.
const PODS: &[(&str, &str)] = &[
    ("Pod", "spec"),
    ("PodTemplate", "template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicationController", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
];

const SCALED: &[(&str, &str)] = &[("HorizontalPodAutoscaler", "spec/scaleTargetRef/name")];

const REFERRED: &[Referred] = &[
    Referred { group: "", kind: "Deployment", in_pods: &[], elsewhere: SCALED },
    Referred { group: "", kind: "ReplicationController", in_pods: &[], elsewhere: SCALED },
    Referred { group: "", kind: "ReplicaSet", in_pods: &[], elsewhere: SCALED },
    Referred { group: "", kind: "StatefulSet", in_pods: &[], elsewhere: SCALED },
    Referred {
        group: "",
        kind: "ConfigMap",
        in_pods: &[
            "volumes/configMap/name",
            "containers/env/valueFrom/configMapKeyRef/name",
            "initContainers/env/valueFrom/configMapKeyRef/name",
            "containers/envFrom/configMapRef/name",
            "initContainers/envFrom/configMapRef/name",
            "volumes/projected/sources/configMap/name",
        ],
        elsewhere: &[
            ("Node", "spec/configSource/configMap"),
            ("Role", "rules/resourceNames"),
            ("ClusterRole", "rules/resourceNames"),
            ("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/fastcgi-params-configmap"),
        ],
    },
    Referred {
        group: "",
        kind: "Secret",
        in_pods: &[
            "volumes/secret/secretName",
            "containers/env/valueFrom/secretKeyRef/name",
            "initContainers/env/valueFrom/secretKeyRef/name",
            "containers/envFrom/secretRef/name",
            "initContainers/envFrom/secretRef/name",
            "imagePullSecrets/name",
            "volumes/projected/sources/secret/name",
        ],
        elsewhere: &[
            ("Ingress", "spec/tls/secretName"),
            ("Ingress", "metadata/annotations/ingress.kubernetes.io\\/auth-secret"),
            ("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-secret"),
            ("Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-tls-secret"),
            ("ServiceAccount", "imagePullSecrets/name"),
            ("StorageClass", "parameters/secretName"),
            ("StorageClass", "parameters/adminSecretName"),
            ("StorageClass", "parameters/userSecretName"),
            ("StorageClass", "parameters/secretRef"),
            ("Role", "rules/resourceNames"),
            ("ClusterRole", "rules/resourceNames"),
            ("PersistentVolume", "spec/azureFile/secretName"),
        ],
    },
    Referred {
        group: "",
        kind: "Service",
        in_pods: &[],
        elsewhere: &[
            ("StatefulSet", "spec/serviceName"),
            ("Ingress", "spec/rules/http/paths/backend/serviceName"),
            ("Ingress", "spec/backend/serviceName"),
            ("Ingress", "spec/rules/http/paths/backend/service/name"),
            ("Ingress", "spec/defaultBackend/service/name"),
            ("APIService", "spec/service/name"),
            ("ValidatingWebhookConfiguration", "webhooks/clientConfig/service"),
            ("MutatingWebhookConfiguration", "webhooks/clientConfig/service"),
        ],
    },
    Referred {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        in_pods: &[],
        elsewhere: &[("RoleBinding", "roleRef/name")],
    },
    Referred {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        in_pods: &[],
        elsewhere: &[("RoleBinding", "roleRef/name"), ("ClusterRoleBinding", "roleRef/name")],
    },
    Referred {
        group: "",
        kind: "ServiceAccount",
        in_pods: &["serviceAccountName"],
        elsewhere: &[("RoleBinding", "subjects"), ("ClusterRoleBinding", "subjects")],
    },
    Referred {
        group: "",
        kind: "PersistentVolumeClaim",
        in_pods: &["volumes/persistentVolumeClaim/claimName"],
        elsewhere: &[],
    },
    Referred {
        group: "",
        kind: "PersistentVolume",
        in_pods: &[],
        elsewhere: &[("PersistentVolumeClaim", "spec/volumeName"), ("ClusterRole", "rules/resourceNames")],
    },
    Referred {
        group: "storage.k8s.io",
        kind: "StorageClass",
        in_pods: &[],
        elsewhere: &[
            ("PersistentVolume", "spec/storageClassName"),
            ("PersistentVolumeClaim", "spec/storageClassName"),
            ("StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName"),
        ],
    },
    Referred {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        in_pods: &["priorityClassName"],
        elsewhere: &[],
    },
    Referred {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicy",
        in_pods: &[],
        elsewhere: &[("ValidatingAdmissionPolicyBinding", "spec/policyName")],
    },
    Referred {
        group: "networking.k8s.io",
        kind: "IngressClass",
        in_pods: &[],
        elsewhere: &[("Ingress", "spec/ingressClassName")],
    },
];

/// Sets every reference to the current name of its object.
pub(super) fn fix(resources: &mut [Resource], findings: &mut Vec<Finding>) {
    // Names do not change here, so one copy of all names serves every object.
    let known: Vec<Known> = resources.iter().map(Known::of).collect();
    for (resource, own) in resources.iter_mut().zip(&known) {
        for referred in REFERRED {
            let candidates: Vec<&Known> =
                known.iter().filter(|it| it.is_referred(referred) && it.can_be_seen_by(own)).collect();
            if candidates.is_empty() {
                continue;
            }
            for path in paths(referred, &own.first_kind) {
                let place = resource.place().clone();
                let role = path.ends_with("roleRef/name").then(|| role_of(&resource.node)).flatten();
                visit(&mut resource.node, &steps(&path), Missing::Nothing, &place, &mut |node| {
                    Reference { own, candidates: &candidates, role: role.as_ref(), path: &path }
                        .put(node, findings);
                });
            }
        }
    }
}

fn paths(referred: &Referred, kind: &str) -> Vec<String> {
    let pods = PODS.iter().filter(|(it, _)| *it == kind);
    let in_pods = pods.flat_map(|(_, pod)| referred.in_pods.iter().map(move |it| format!("{pod}/{it}")));
    let elsewhere =
        referred.elsewhere.iter().filter(|(it, _)| *it == kind).map(|(_, path)| (*path).to_owned());
    in_pods.chain(elsewhere).collect()
}

/// Group and kind of the role that a binding gives.
fn role_of(node: &Node) -> Option<(String, String)> {
    let role = node.get("roleRef")?;
    Some((role.get("apiGroup")?.as_scalar()?.to_owned(), role.get("kind")?.as_scalar()?.to_owned()))
}

/// The names of an object that references to it may use.
struct Known {
    name: String,
    gvk: Gvk,
    first_kind: String,
    first_namespace: Option<String>,
    /// `None` for a kind without namespaces.
    namespace: Option<String>,
    /// Whether the manifest sets `namespace`.
    has_namespace: bool,
    /// Earlier names and kinds.
    before: Vec<(String, Gvk)>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
    /// The namespaces of the service accounts that a binding names.
    subjects: Vec<String>,
}

impl Known {
    fn of(resource: &Resource) -> Self {
        let (id, first) = (resource.id(), resource.first_id());
        let before = resource.earlier_ids().into_iter().map(|it| (it.name, it.gvk)).collect();
        let metadata = resource.node.get("metadata");
        let mut subjects = Vec::new();
        if id.gvk.kind == "RoleBinding" {
            let listed = resource.node.get("subjects").map(Node::items).unwrap_or_default();
            let accounts =
                listed.iter().filter(|it| it.get("kind").and_then(Node::as_scalar) == Some("ServiceAccount"));
            subjects.extend(accounts.filter_map(|it| it.get("namespace")?.as_scalar().map(str::to_owned)));
        }
        Self {
            name: id.name,
            gvk: id.gvk,
            first_kind: first.gvk.kind,
            first_namespace: first.namespace,
            namespace: id.namespace,
            has_namespace: metadata.and_then(|it| it.get("namespace")).is_some_and(|it| !it.is_null()),
            before,
            prefixes: resource.prefixes.clone(),
            suffixes: resource.suffixes.clone(),
            subjects,
        }
    }

    fn is_referred(&self, referred: &Referred) -> bool {
        self.before.iter().any(|(_, gvk)| gvk.kind == referred.kind && gvk.is(referred.group, "", ""))
    }

    fn can_be_seen_by(&self, other: &Self) -> bool {
        match (&self.namespace, &other.namespace) {
            (None, _) | (_, None) => true,
            (Some(own), Some(theirs)) => own == theirs || other.subjects.contains(own),
        }
    }

    /// Whether both got the same prefixes and suffixes, as far as the shorter list goes.
    fn has_way_of(&self, other: &Self, may_be_empty: bool) -> bool {
        let same = |one: &[String], other: &[String]| {
            let is_end = one.iter().rev().zip(other.iter().rev()).all(|(a, b)| a == b);
            let is_empty = one.is_empty() || other.is_empty();
            if is_empty { may_be_empty || one.len() == other.len() } else { is_end }
        };
        same(&self.prefixes, &other.prefixes) && same(&self.suffixes, &other.suffixes)
    }
}

struct Reference<'a> {
    own: &'a Known,
    candidates: &'a [&'a Known],
    role: Option<&'a (String, String)>,
    path: &'a str,
}

impl Reference<'_> {
    fn put(&self, node: &mut Node, findings: &mut Vec<Finding>) {
        match &mut node.kind {
            Kind::Sequence(items) => items.iter_mut().for_each(|it| self.put(it, findings)),
            Kind::Mapping(_) => self.put_in_map(node, findings),
            Kind::Scalar { text: name, .. } => match self.find(name, self.candidates) {
                Ok(Some(found)) if found.name != *name => *node = text(&node.place, found.name.clone()),
                Ok(_) => {}
                Err(message) => findings.push(node.finding(self.path.replace('/', "."), message)),
            },
        }
    }

    /// A reference that is a map with name and namespace.
    fn put_in_map(&self, node: &mut Node, findings: &mut Vec<Finding>) {
        let Some(name) = node.get("name").and_then(Node::as_scalar).map(str::to_owned) else { return };
        let namespace = node.get("namespace").and_then(Node::as_scalar);
        let is_there = |it: &&&Known| {
            namespace.is_none_or(|wanted| {
                it.first_namespace.as_deref() == Some(wanted) || it.namespace.as_deref() == Some(wanted)
            })
        };
        let candidates: Vec<&Known> = self.candidates.iter().filter(is_there).copied().collect();
        let place = node.place.clone();
        match self.find(&name, &candidates) {
            Ok(Some(found)) => {
                if found.name != name {
                    set(node, "name", text(&place, found.name.clone()));
                }
                if let Some(namespace) = found.namespace.as_ref().filter(|_| found.has_namespace) {
                    set(node, "namespace", text(&place, namespace.clone()));
                }
            }
            Ok(None) => {}
            Err(message) => findings.push(node.finding(self.path.replace('/', "."), message)),
        }
    }

    fn find<'k>(&self, name: &str, candidates: &[&'k Known]) -> Result<Option<&'k Known>, String> {
        let is_named = |it: &&&Known| it.before.iter().any(|(before, _)| before == name);
        let is_role = |it: &&&Known| {
            self.role.is_none_or(|(group, kind)| it.before.iter().any(|(_, gvk)| gvk.is(group, "", kind)))
        };
        let mut found: Vec<&Known> = candidates.iter().filter(is_named).filter(is_role).copied().collect();
        if found.len() > 1 {
            found.retain(|it| it.has_way_of(self.own, true));
        }
        if found.len() > 1 {
            found.retain(|it| it.has_way_of(self.own, false));
        }
        let Some((first, rest)) = found.split_first() else { return Ok(None) };
        match rest.iter().find(|it| it.name != first.name) {
            None => Ok(Some(first)),
            Some(other) => {
                Err(format!("`{name}` may be the {} `{}` or `{}`", first.gvk.kind, first.name, other.name))
            }
        }
    }
}
