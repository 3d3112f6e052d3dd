//! The kinds of objects: read, ignored or refused.
//!
//! A kind without which the application would be wrong is an error. A kind without a meaning on a single host is a
//! warning. An unknown kind is an error.

use super::reader::{Value, closest};
use driftless_yaml::join;

/// The support for a kind.
#[derive(Clone, Debug)]
pub(super) enum KindSupport {
    /// Read.
    Owned(Owned),
    List,
    /// Ignored with a warning.
    NoEffect(String),
    /// Refused with an error at the named field.
    Refused {
        field: &'static str,
        message: String,
        help: Option<String>,
    },
}

/// The kinds that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owned {
    ConfigMap,
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    ReplicaSet,
    ReplicationController,
    Secret,
    Service,
    StatefulSet,
}

/// The version and name of each kind that is read.
const OWNED: &[(&str, &str, Owned)] = &[
    ("v1", "ConfigMap", Owned::ConfigMap),
    ("batch/v1", "CronJob", Owned::CronJob),
    ("apps/v1", "DaemonSet", Owned::DaemonSet),
    ("apps/v1", "Deployment", Owned::Deployment),
    ("batch/v1", "Job", Owned::Job),
    ("v1", "PersistentVolume", Owned::PersistentVolume),
    ("v1", "PersistentVolumeClaim", Owned::PersistentVolumeClaim),
    ("v1", "Pod", Owned::Pod),
    ("apps/v1", "ReplicaSet", Owned::ReplicaSet),
    ("v1", "ReplicationController", Owned::ReplicationController),
    ("v1", "Secret", Owned::Secret),
    ("v1", "Service", Owned::Service),
    ("apps/v1", "StatefulSet", Owned::StatefulSet),
];

/// Kinds without a meaning on one host, with the reason.
const NO_OPS: &[(&str, &str)] = &[
    ("APIService", NO_SERVER),
    ("AlertmanagerConfig", NO_METRICS),
    ("CSIDriver", "every claim is a Docker volume"),
    ("ClusterRole", NO_API),
    ("ClusterRoleBinding", NO_API),
    ("CustomResourceDefinition", NO_SERVER),
    ("GrafanaDashboard", NO_METRICS),
    ("HorizontalPodAutoscaler", "there is no autoscaling; `replicas` of the Deployment counts"),
    ("LimitRange", "only the limits of the containers count"),
    ("MutatingWebhookConfiguration", NO_SERVER),
    ("Namespace", "namespaces become part of the workloads' names"),
    (
        "NetworkPolicy",
        "the application's network is closed to other applications; all its containers can reach each other",
    ),
    ("PodDisruptionBudget", "no container is evicted by an API"),
    ("PodMonitor", NO_METRICS),
    ("PodMonitoring", NO_METRICS),
    ("PodSecurityPolicy", "only the pod's own manifest limits it"),
    ("PriorityClass", "containers have no priorities"),
    ("PrometheusRule", NO_METRICS),
    ("ResourceQuota", "only the limits of the containers count"),
    ("Role", NO_API),
    ("RoleBinding", NO_API),
    ("ScrapeConfig", NO_METRICS),
    (
        "ServiceAccount",
        "containers have no Kubernetes API to talk to; only `imagePullSecrets` of an account count",
    ),
    ("ServiceMonitor", NO_METRICS),
    ("StorageClass", "every claim is a Docker volume"),
    ("ValidatingAdmissionPolicy", NO_SERVER),
    ("ValidatingAdmissionPolicyBinding", NO_SERVER),
    ("ValidatingWebhookConfiguration", NO_SERVER),
    ("VerticalPodAutoscaler", "there is no autoscaling; `resources` of the container count"),
];

const NO_METRICS: &str = "Driftless does not collect metrics";
const NO_SERVER: &str = "there is no API server";
const NO_API: &str = "containers have no Kubernetes API to talk to";

/// Known kinds that are not supported yet, each with what to do instead.
const NOT_YET: &[(&str, &str)] = &[
    ("Endpoints", NAME_INSTEAD),
    ("EndpointSlice", NAME_INSTEAD),
    ("Gateway", REVERSE_PROXY),
    ("HTTPRoute", REVERSE_PROXY),
    ("Ingress", REVERSE_PROXY),
    ("IngressClass", REVERSE_PROXY),
    ("PodTemplate", "put the template into the workload that uses it"),
];

const NAME_INSTEAD: &str = "use a Service of `type: ExternalName`, or the address itself";
const REVERSE_PROXY: &str = "run a reverse proxy such as Caddy or Traefik as a Deployment with a Service of `type: \
                             LoadBalancer`, and write the routes into its configuration: with the names of the Services of \
                             its application, and for other applications with the host's address and the port of a \
                             Service of `type: NodePort`; nginx and HAProxy keep the address that a name had at their start, \
                             so give the Services behind them the annotation `driftless.proxy: \"true\"`";

/// Kinds of well-known extensions of a cluster, each with what to do instead: the end of the API group, and the kind. An empty
/// kind is any other one of that group.
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("argoproj.io", "AppProject", FOLLOW),
    ("argoproj.io", "Application", FOLLOW),
    ("argoproj.io", "ApplicationSet", FOLLOW),
    ("argoproj.io", "ClusterWorkflowTemplate", JOB),
    ("argoproj.io", "CronWorkflow", JOB),
    ("argoproj.io", "Rollout", "use a Deployment"),
    ("argoproj.io", "Workflow", JOB),
    ("argoproj.io", "WorkflowTemplate", JOB),
    ("bitnami.com", "SealedSecret", SECRETS),
    ("cert-manager.io", "", "let the reverse proxy obtain its certificates, as Caddy and Traefik do"),
    ("external-secrets.io", "", SECRETS),
    ("gateway.networking.k8s.io", "", REVERSE_PROXY),
    ("helm.cattle.io", "", CHART),
    ("helm.toolkit.fluxcd.io", "", CHART),
    ("image.toolkit.fluxcd.io", "", "use the annotation `driftless.update` of the workload"),
    ("isindir.github.com", "SopsSecret", SECRETS),
    ("kustomize.toolkit.fluxcd.io", "", FOLLOW),
    ("networking.istio.io", "", REVERSE_PROXY),
    ("source.toolkit.fluxcd.io", "HelmChart", CHART),
    ("source.toolkit.fluxcd.io", "HelmRepository", CHART),
    ("source.toolkit.fluxcd.io", "", FOLLOW),
    ("traefik.containo.us", "", REVERSE_PROXY),
    ("traefik.io", "", REVERSE_PROXY),
];

/// The ends of API groups that no API server has: programs read such files.
const TOOLS: &[&str] = &[
    "apiserver.config.k8s.io",
    "audit.k8s.io",
    "backstage.io",
    "client.authentication.k8s.io",
    "k3d.io",
    "kind.x-k8s.io",
    "kops.k8s.io",
    "kubeadm.k8s.io",
    "kubelet.config.k8s.io",
    "kubeproxy.config.k8s.io",
    "kubescheduler.config.k8s.io",
    "skaffold",
];

/// The version and kind of a kubeconfig.
const KUBECONFIG: (&str, &str) = ("v1", "Config");

const CHART: &str = "commit the output of `helm template`";
const FOLLOW: &str =
    "remove it: the agent's configuration names the repositories and folders that it follows";
const JOB: &str = "use a Job or CronJob";
const SECRETS: &str = "use a Secret: encrypt its file with SOPS, or let the agent put values of the host into it with `valuesFrom`";
const TOOL: &str =
    "another tool reads this file, and no cluster does: move it out of the folder of the manifests";
const OPERATOR: &str = "an operator of a cluster reads this kind: remove it, or write the workloads that the operator would create";

/// The API group of kustomizations. Flux has another kind with the same name.
const KUSTOMIZE: &str = "kustomize.config.k8s.io/";

/// Every known kind: its name, how it is handled, and why.
pub(super) fn all() -> Vec<(&'static str, &'static str, &'static str)> {
    let owned = OWNED.iter().map(|(_, kind, _)| (*kind, "used", ""));
    let no_ops = NO_OPS.iter().map(|(kind, why)| (*kind, "no effect", *why));
    let not_yet = NOT_YET
        .iter()
        .map(|(kind, _)| (*kind, "refused", "ignoring it would change how the application works"));
    owned.chain(no_ops).chain(not_yet).collect()
}

/// The version and kind, or findings about the missing one.
pub(super) fn identify<'a>(value: &Value<'a>) -> Option<(&'a str, &'a str)> {
    let read = |field: &str, example: &str| {
        let Some(node) = value.node.get(field).filter(|it| !it.is_null()) else {
            let finding = value.node.finding(join(&value.path, field), format!("`{field}` is missing"));
            value.report().say(finding.help(format!("such as `{field}: {example}`")));
            return None;
        };
        Value::new(node, join(&value.path, field), value.report()).text()
    };
    let version = read("apiVersion", "apps/v1");
    let kind = read("kind", "Deployment");
    version.zip(kind)
}

/// The support for objects of this version and kind.
pub(super) fn judge(version: &str, kind: &str) -> KindSupport {
    if let Some((right, name, owned)) =
        OWNED.iter().find(|(_, name, _)| kind.strip_suffix("List").unwrap_or(kind) == *name)
    {
        return match (version == *right, kind == *name) {
            (true, true) => KindSupport::Owned(*owned),
            (true, false) => KindSupport::List,
            (false, _) => wrong_version(version, kind, right),
        };
    }
    match (version, kind) {
        ("v1", "List") => return KindSupport::List,
        (_, "List") => return wrong_version(version, kind, "v1"),
        _ => {}
    }
    if let Some((_, why)) = NO_OPS.iter().find(|(name, _)| *name == kind) {
        return KindSupport::NoEffect(format!("the kind {kind} has no effect: {why}"));
    }
    let not_yet = NOT_YET.iter().find(|(name, _)| *name == kind);
    let message = match kind {
        "Kustomization" if version.starts_with(KUSTOMIZE) => {
            "a kustomization counts only under its own name, and is no manifest".to_owned()
        }
        _ if not_yet.is_some() => {
            format!(
                "the kind {kind} is not supported yet, and ignoring it would change how the application works"
            )
        }
        _ => format!("the kind {kind} of {version} is not known"),
    };
    let known = NO_OPS
        .iter()
        .map(|(name, _)| *name)
        .chain(NOT_YET.iter().map(|(name, _)| *name))
        .chain(OWNED.iter().map(|(_, it, _)| *it))
        .chain(["List"]);
    let help = match kind {
        "Kustomization" if version.starts_with(KUSTOMIZE) => {
            Some("call the file `kustomization.yaml`, and give it a folder of its own".to_owned())
        }
        _ => match not_yet.map(|(_, help)| *help).or_else(|| instead_of_extension(version, kind)) {
            Some(help) => Some(help.to_owned()),
            None => closest(kind, known)
                .map(|it| format!("did you mean `{it}`?"))
                .or_else(|| is_extension(version).then(|| OPERATOR.to_owned())),
        },
    };
    KindSupport::Refused { field: "kind", message, help }
}

/// The advice for a kind of a well-known extension of a cluster, or of another tool.
fn instead_of_extension(version: &str, kind: &str) -> Option<&'static str> {
    if is_of_tool(version, kind) {
        return Some(TOOL);
    }
    EXTENSIONS
        .iter()
        .find(|(end, name, _)| is_in_group(version, end) && (name.is_empty() || *name == kind))
        .map(|(_, _, help)| *help)
}

/// Whether the API group is this one or a subdomain of it.
fn is_in_group(version: &str, end: &str) -> bool {
    let group = version.split_once('/').and_then(|(group, _)| group.strip_suffix(end));
    group.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether another tool reads this kind, and no cluster has it. Settings of Backstage, Skaffold and others have the form of manifests.
pub(super) fn is_of_tool(version: &str, kind: &str) -> bool {
    (version, kind) == KUBECONFIG || TOOLS.iter().any(|end| is_in_group(version, end))
}

/// Whether the API group is one of a cluster's extensions. Those of Kubernetes itself have no dot, or end in `k8s.io`.
fn is_extension(version: &str) -> bool {
    let group = version.split_once('/').map(|(group, _)| group).unwrap_or_default();
    group.contains('.') && !group.ends_with(".k8s.io")
}

fn wrong_version(version: &str, kind: &str, right: &str) -> KindSupport {
    let removed = match version {
        "extensions/v1beta1" | "apps/v1beta1" | "apps/v1beta2" => Some("1.16"),
        "batch/v2alpha1" => Some("1.21"),
        "batch/v1beta1" => Some("1.25"),
        _ => None,
    };
    let message = match removed {
        Some(release) => format!("{kind} of {version} was removed in Kubernetes {release}"),
        None => format!("there is no {kind} in {version}"),
    };
    // The kind of an operator is another one than the built-in kind of the same name.
    let is_foreign = removed.is_none() && is_extension(version);
    let help = match instead_of_extension(version, kind) {
        Some(help) => help.to_owned(),
        None if is_foreign => OPERATOR.to_owned(),
        None => format!("use `apiVersion: {right}`"),
    };
    KindSupport::Refused { field: "apiVersion", message, help: Some(help) }
}
