//! Every field that Kubernetes knows in the kinds that are read, and what becomes of it here.
//!
//! Taken from the API reference of Kubernetes 1.35. The order is that of the reference: alphabetical.

use Support::{NoEffect, Refused, Used};
pub(super) use driftless_yaml::Support;

pub(super) type Fields = &'static [(&'static str, Support)];

const NO_PLACING: Support = NoEffect("has no effect: there is only one host, so nothing is scheduled");
const NO_API: Support = NoEffect("has no effect: containers have no Kubernetes API to talk to");
const BY_SERVER: Support = NoEffect("has no effect: only a cluster writes it, and nothing reads it here");
const NOT_YET: Support =
    Refused("is not supported yet, and ignoring it would change how the application works");
const WINDOWS: Support = Refused("is for Windows containers, which are not supported");

pub(super) const OBJECT: Fields =
    &[("apiVersion", Used), ("kind", Used), ("metadata", Used), ("spec", Used), ("status", BY_SERVER)];

pub(super) const LIST: Fields =
    &[("apiVersion", Used), ("items", Used), ("kind", Used), ("metadata", BY_SERVER)];

pub(super) const METADATA: Fields = &[
    ("annotations", Used),
    ("creationTimestamp", BY_SERVER),
    ("deletionGracePeriodSeconds", BY_SERVER),
    ("deletionTimestamp", BY_SERVER),
    ("finalizers", NoEffect("has no effect: there are no controllers that wait for them")),
    ("generateName", Refused("is not supported: an application from Git needs stable names; use `name`")),
    ("generation", BY_SERVER),
    ("labels", Used),
    ("managedFields", BY_SERVER),
    ("name", Used),
    ("namespace", Used),
    ("ownerReferences", BY_SERVER),
    ("resourceVersion", BY_SERVER),
    ("selfLink", BY_SERVER),
    ("uid", BY_SERVER),
];

pub(super) const TEMPLATE_METADATA: Fields = &[
    ("annotations", Used),
    ("creationTimestamp", BY_SERVER),
    ("deletionGracePeriodSeconds", BY_SERVER),
    ("deletionTimestamp", BY_SERVER),
    ("finalizers", NoEffect("has no effect: there are no controllers that wait for them")),
    ("generateName", NoEffect("has no effect: instances are named after the workload")),
    ("generation", BY_SERVER),
    ("labels", Used),
    ("managedFields", BY_SERVER),
    ("name", NoEffect("has no effect: instances are named after the workload")),
    ("namespace", NoEffect("has no effect: the namespace of the workload counts")),
    ("ownerReferences", BY_SERVER),
    ("resourceVersion", BY_SERVER),
    ("selfLink", BY_SERVER),
    ("uid", BY_SERVER),
];

pub(super) const DEPLOYMENT: Fields = &[
    ("minReadySeconds", Used),
    ("paused", Used),
    ("progressDeadlineSeconds", Used),
    ("replicas", Used),
    ("revisionHistoryLimit", Used),
    ("selector", Used),
    ("strategy", Used),
    ("template", Used),
];

/// And of a `ReplicationController`.
pub(super) const REPLICA_SET: Fields =
    &[("minReadySeconds", Used), ("replicas", Used), ("selector", Used), ("template", Used)];

pub(super) const STATEFUL_SET: Fields = &[
    ("minReadySeconds", Used),
    ("ordinals", Used),
    ("persistentVolumeClaimRetentionPolicy", Used),
    ("podManagementPolicy", Used),
    ("replicas", Used),
    ("revisionHistoryLimit", Used),
    ("selector", Used),
    ("serviceName", Used),
    ("template", Used),
    ("updateStrategy", Used),
    ("volumeClaimTemplates", Used),
];

pub(super) const ORDINALS: Fields = &[("start", Used)];
pub(super) const UPDATE_STRATEGY: Fields = &[("rollingUpdate", Used), ("type", Used)];
pub(super) const SET_ROLLING_UPDATE: Fields = &[("maxUnavailable", Used), ("partition", Used)];
pub(super) const RETENTION: Fields = &[("whenDeleted", Used), ("whenScaled", Used)];

pub(super) const CLAIM_TEMPLATE: Fields =
    &[("apiVersion", Used), ("kind", Used), ("metadata", Used), ("spec", Used), ("status", BY_SERVER)];

pub(super) const DAEMON_SET: Fields = &[
    ("minReadySeconds", Used),
    ("revisionHistoryLimit", Used),
    ("selector", Used),
    ("template", Used),
    ("updateStrategy", Used),
];

pub(super) const DAEMON_STRATEGY: Fields = UPDATE_STRATEGY;
pub(super) const DAEMON_ROLLING_UPDATE: Fields =
    &[("maxSurge", ONE_INSTANCE), ("maxUnavailable", ONE_INSTANCE)];

const ONE_INSTANCE: Support =
    NoEffect("has no effect: there is one instance, and it is removed before the next one starts");

pub(super) const JOB: Fields = &[
    ("activeDeadlineSeconds", Used),
    ("backoffLimit", Used),
    ("backoffLimitPerIndex", NOT_YET),
    ("completionMode", Used),
    ("completions", Used),
    ("managedBy", NOT_YET),
    ("manualSelector", NoEffect("has no effect: Driftless selects the pods of a Job by their names")),
    ("maxFailedIndexes", NOT_YET),
    ("parallelism", Used),
    ("podFailurePolicy", NOT_YET),
    ("podReplacementPolicy", NoEffect("has no effect: a pod is tried again after it has ended")),
    ("selector", Used),
    ("successPolicy", NOT_YET),
    ("suspend", Used),
    ("template", Used),
    ("ttlSecondsAfterFinished", Used),
];

pub(super) const CRON_JOB: Fields = &[
    ("concurrencyPolicy", Used),
    ("failedJobsHistoryLimit", Used),
    ("jobTemplate", Used),
    ("schedule", Used),
    ("startingDeadlineSeconds", Used),
    ("successfulJobsHistoryLimit", Used),
    ("suspend", Used),
    ("timeZone", Used),
];
pub(super) const JOB_TEMPLATE: Fields = &[("metadata", Used), ("spec", Used)];

pub(super) const CONFIG_MAP: Fields = &[
    ("apiVersion", Used),
    ("binaryData", Used),
    ("data", Used),
    ("immutable", NoEffect("has no effect: a changed object in Git is a new revision")),
    ("kind", Used),
    ("metadata", Used),
];

pub(super) const SECRET: Fields = &[
    ("apiVersion", Used),
    ("data", Used),
    ("immutable", NoEffect("has no effect: a changed object in Git is a new revision")),
    ("kind", Used),
    ("metadata", Used),
    ("stringData", Used),
    // It says what the keys are called, and those are there to be read.
    ("type", Used),
];

const NO_CLASS: Support = NoEffect("has no effect: every claim is a Docker volume");

pub(super) const CLAIM: Fields = &[
    ("accessModes", Used),
    ("dataSource", NOT_YET),
    ("dataSourceRef", NOT_YET),
    ("resources", NoEffect("has no effect: a Docker volume has no size")),
    ("selector", Used),
    ("storageClassName", Used),
    ("volumeAttributesClassName", NO_CLASS),
    ("volumeMode", Used),
    ("volumeName", Used),
];

pub(super) const PERSISTENT: Fields = &[
    ("accessModes", Used),
    ("awsElasticBlockStore", OTHER_STORAGE),
    ("azureDisk", OTHER_STORAGE),
    ("azureFile", OTHER_STORAGE),
    ("capacity", Used),
    ("cephfs", OTHER_STORAGE),
    ("cinder", OTHER_STORAGE),
    ("claimRef", Used),
    ("csi", OTHER_STORAGE),
    ("fc", OTHER_STORAGE),
    ("flexVolume", OTHER_STORAGE),
    ("flocker", OTHER_STORAGE),
    ("gcePersistentDisk", OTHER_STORAGE),
    ("glusterfs", OTHER_STORAGE),
    ("hostPath", Used),
    ("iscsi", OTHER_STORAGE),
    ("local", Used),
    ("mountOptions", NOT_YET),
    ("nfs", Used),
    ("nodeAffinity", NO_PLACING),
    ("persistentVolumeReclaimPolicy", NoEffect("has no effect: volumes are never removed")),
    ("photonPersistentDisk", OTHER_STORAGE),
    ("portworxVolume", OTHER_STORAGE),
    ("quobyte", OTHER_STORAGE),
    ("rbd", OTHER_STORAGE),
    ("scaleIO", OTHER_STORAGE),
    ("storageClassName", Used),
    ("storageos", OTHER_STORAGE),
    ("volumeAttributesClassName", NO_CLASS),
    ("volumeMode", NO_CLASS),
    ("vsphereVolume", OTHER_STORAGE),
];

const OTHER_STORAGE: Support = Refused("is not supported; use `hostPath`, `local` or `nfs`");

pub(super) const LOCAL: Fields = &[("fsType", NO_CLASS), ("path", Used)];

pub(super) const SERVICE: Fields = &[
    ("allocateLoadBalancerNodePorts", BY_ENGINE),
    ("clusterIP", Used),
    ("clusterIPs", BY_ENGINE),
    ("externalIPs", Used),
    ("externalName", Used),
    ("externalTrafficPolicy", BY_ENGINE),
    ("healthCheckNodePort", BY_ENGINE),
    ("internalTrafficPolicy", BY_ENGINE),
    ("ipFamilies", BY_ENGINE),
    ("ipFamilyPolicy", BY_ENGINE),
    ("loadBalancerClass", BY_ENGINE),
    ("loadBalancerIP", BY_ENGINE),
    ("loadBalancerSourceRanges", Used),
    ("ports", Used),
    ("publishNotReadyAddresses", Used),
    ("selector", Used),
    ("sessionAffinity", Used),
    ("sessionAffinityConfig", Used),
    ("trafficDistribution", BY_ENGINE),
    ("type", Used),
];

const BY_ENGINE: Support =
    NoEffect("has no effect: the engine resolves names to the addresses of the containers");

pub(super) const AFFINITY: Fields = &[("clientIP", Used)];
pub(super) const CLIENT_IP: Fields = &[("timeoutSeconds", Used)];

pub(super) const SERVICE_PORT: Fields = &[
    ("appProtocol", NoEffect("has no effect: traffic is not inspected")),
    ("name", Used),
    ("nodePort", Used),
    ("port", Used),
    ("protocol", Used),
    ("targetPort", Used),
];

pub(super) const SELECTOR: Fields = &[("matchExpressions", Used), ("matchLabels", Used)];
pub(super) const EXPRESSION: Fields = &[("key", Used), ("operator", Used), ("values", Used)];
pub(super) const STRATEGY: Fields = &[("rollingUpdate", Used), ("type", Used)];
pub(super) const ROLLING_UPDATE: Fields = &[("maxSurge", Used), ("maxUnavailable", Used)];
pub(super) const TEMPLATE: Fields = &[("metadata", Used), ("spec", Used)];

pub(super) const POD: Fields = &[
    (
        "activeDeadlineSeconds",
        Refused("is not supported: pods have no deadline; use `activeDeadlineSeconds` of a Job"),
    ),
    ("affinity", NO_PLACING),
    ("automountServiceAccountToken", NO_API),
    ("containers", Used),
    ("dnsConfig", Used),
    ("dnsPolicy", Used),
    ("enableServiceLinks", Used),
    (
        "ephemeralContainers",
        Refused("is not allowed in a template: such containers are added to running pods"),
    ),
    ("hostAliases", Used),
    ("hostIPC", Used),
    ("hostNetwork", Used),
    ("hostPID", Used),
    ("hostUsers", Used),
    ("hostname", Used),
    ("hostnameOverride", NOT_YET),
    ("imagePullSecrets", Used),
    ("initContainers", Used),
    ("nodeName", NO_PLACING),
    ("nodeSelector", Used),
    ("os", Used),
    ("overhead", NO_PLACING),
    ("preemptionPolicy", NO_PLACING),
    ("priority", NO_PLACING),
    ("priorityClassName", NO_PLACING),
    ("readinessGates", NOT_YET),
    ("resourceClaims", NOT_YET),
    ("resources", Refused("of the whole pod is not supported yet; set `resources` of the container")),
    ("restartPolicy", Used),
    (
        "runtimeClassName",
        Refused("is not supported yet; for a GPU, remove it and set the container's limit `nvidia.com/gpu`"),
    ),
    ("schedulerName", NO_PLACING),
    ("schedulingGates", NOT_YET),
    ("securityContext", Used),
    // Containers have no Kubernetes API to talk to. Only a `fieldRef` reads the name.
    ("serviceAccount", Used),
    ("serviceAccountName", Used),
    ("setHostnameAsFQDN", NOT_YET),
    ("shareProcessNamespace", Used),
    ("subdomain", Used),
    ("terminationGracePeriodSeconds", Used),
    ("tolerations", NO_PLACING),
    ("topologySpreadConstraints", NO_PLACING),
    ("volumes", Used),
    ("workloadRef", NO_PLACING),
];

pub(super) const POD_OS: Fields = &[("name", Used)];
pub(super) const DNS_CONFIG: Fields = &[("nameservers", Used), ("options", Used), ("searches", Used)];
pub(super) const DNS_OPTION: Fields = &[("name", Used), ("value", Used)];

pub(super) const LOCAL_REF: Fields = &[("name", Used)];

pub(super) const VOLUME: Fields = &[
    ("awsElasticBlockStore", OTHER_STORAGE),
    ("azureDisk", OTHER_STORAGE),
    ("azureFile", OTHER_STORAGE),
    ("cephfs", OTHER_STORAGE),
    ("cinder", OTHER_STORAGE),
    ("configMap", Used),
    ("csi", OTHER_STORAGE),
    ("downwardAPI", Used),
    ("emptyDir", Used),
    ("ephemeral", Used),
    ("fc", OTHER_STORAGE),
    ("flexVolume", OTHER_STORAGE),
    ("flocker", OTHER_STORAGE),
    ("gcePersistentDisk", OTHER_STORAGE),
    ("gitRepo", Refused("was removed from Kubernetes, and is not supported")),
    ("glusterfs", OTHER_STORAGE),
    ("hostPath", Used),
    ("image", Used),
    ("iscsi", OTHER_STORAGE),
    ("name", Used),
    ("nfs", Used),
    ("persistentVolumeClaim", Used),
    ("photonPersistentDisk", OTHER_STORAGE),
    ("portworxVolume", OTHER_STORAGE),
    ("projected", Used),
    ("quobyte", OTHER_STORAGE),
    ("rbd", OTHER_STORAGE),
    ("scaleIO", OTHER_STORAGE),
    ("secret", Used),
    ("storageos", OTHER_STORAGE),
    ("vsphereVolume", OTHER_STORAGE),
];

pub(super) const DATA_VOLUME: Fields =
    &[("defaultMode", Used), ("items", Used), ("name", Used), ("optional", Used)];
pub(super) const SECRET_VOLUME: Fields =
    &[("defaultMode", Used), ("items", Used), ("optional", Used), ("secretName", Used)];
pub(super) const DATA_PROJECTION: Fields = &[("items", Used), ("name", Used), ("optional", Used)];
pub(super) const KEY_TO_PATH: Fields = &[("key", Used), ("mode", Used), ("path", Used)];
pub(super) const PROJECTED: Fields = &[("defaultMode", Used), ("sources", Used)];
pub(super) const PROJECTION: Fields = &[
    ("clusterTrustBundle", NOT_YET),
    ("configMap", Used),
    ("downwardAPI", Used),
    ("podCertificate", NOT_YET),
    ("secret", Used),
    ("serviceAccountToken", NO_API),
];
pub(super) const DOWNWARD: Fields = &[("defaultMode", Used), ("items", Used)];
pub(super) const DOWNWARD_ITEM: Fields =
    &[("fieldRef", Used), ("mode", Used), ("path", Used), ("resourceFieldRef", Used)];
pub(super) const EMPTY_DIR: Fields = &[("medium", Used), ("sizeLimit", Used)];
pub(super) const HOST_PATH: Fields = &[("path", Used), ("type", Used)];
pub(super) const CLAIM_VOLUME: Fields = &[("claimName", Used), ("readOnly", Used)];
pub(super) const IMAGE_VOLUME: Fields = &[("pullPolicy", Used), ("reference", Used)];
pub(super) const NFS: Fields = &[("path", Used), ("readOnly", Used), ("server", Used)];
pub(super) const VOLUME_MOUNT: Fields = &[
    ("mountPath", Used),
    ("mountPropagation", Used),
    ("name", Used),
    ("readOnly", Used),
    ("recursiveReadOnly", NOT_YET),
    ("subPath", Used),
    ("subPathExpr", Used),
];

pub(super) const HOST_ALIAS: Fields = &[("hostnames", Used), ("ip", Used)];

pub(super) const CONTAINER: Fields = &[
    ("args", Used),
    ("command", Used),
    ("env", Used),
    ("envFrom", Used),
    ("image", Used),
    ("imagePullPolicy", Used),
    ("lifecycle", Used),
    ("livenessProbe", Used),
    ("name", Used),
    ("ports", Used),
    ("readinessProbe", Used),
    (
        "resizePolicy",
        NoEffect("has no effect: limits are changed without a restart if the engine can do that"),
    ),
    ("resources", Used),
    ("restartPolicy", Used),
    ("restartPolicyRules", NOT_YET),
    ("securityContext", Used),
    ("startupProbe", Used),
    ("stdin", Used),
    ("stdinOnce", NOT_YET),
    (
        "terminationMessagePath",
        NoEffect("has no effect: termination messages are not read; the container's log has the reason"),
    ),
    (
        "terminationMessagePolicy",
        NoEffect("has no effect: termination messages are not read; the container's log has the reason"),
    ),
    ("tty", Used),
    ("volumeDevices", NOT_YET),
    ("volumeMounts", Used),
    ("workingDir", Used),
];

pub(super) const ENV: Fields = &[("name", Used), ("value", Used), ("valueFrom", Used)];
pub(super) const VALUE_FROM: Fields = &[
    ("configMapKeyRef", Used),
    ("fieldRef", Used),
    ("fileKeyRef", NOT_YET),
    ("resourceFieldRef", Used),
    ("secretKeyRef", Used),
];
pub(super) const ENV_FROM: Fields = &[("configMapRef", Used), ("prefix", Used), ("secretRef", Used)];
pub(super) const DATA_REF: Fields = &[("name", Used), ("optional", Used)];
pub(super) const DATA_KEY_REF: Fields = &[("key", Used), ("name", Used), ("optional", Used)];
pub(super) const FIELD_REF: Fields = &[("apiVersion", Used), ("fieldPath", Used)];
pub(super) const RESOURCE_FIELD_REF: Fields =
    &[("containerName", Used), ("divisor", Used), ("resource", Used)];

pub(super) const PORT: Fields =
    &[("containerPort", Used), ("hostIP", Used), ("hostPort", Used), ("name", Used), ("protocol", Used)];

pub(super) const LIFECYCLE: Fields = &[("postStart", Used), ("preStop", Used), ("stopSignal", Used)];
pub(super) const LIFECYCLE_HANDLER: Fields = &[
    ("exec", Used),
    ("httpGet", Used),
    ("sleep", Used),
    ("tcpSocket", Refused("is not supported, as in Kubernetes; use `exec`")),
];
pub(super) const SLEEP: Fields = &[("seconds", Used)];

pub(super) const PROBE: Fields = &[
    ("exec", Used),
    ("failureThreshold", Used),
    ("grpc", Used),
    ("httpGet", Used),
    ("initialDelaySeconds", Used),
    ("periodSeconds", Used),
    ("successThreshold", Used),
    ("tcpSocket", Used),
    ("terminationGracePeriodSeconds", NOT_YET),
    ("timeoutSeconds", Used),
];

pub(super) const EXEC: Fields = &[("command", Used)];
pub(super) const HTTP_GET: Fields =
    &[("host", Used), ("httpHeaders", Used), ("path", Used), ("port", Used), ("scheme", Used)];
pub(super) const HEADER: Fields = &[("name", Used), ("value", Used)];
pub(super) const GRPC: Fields = &[("port", Used), ("service", Used)];
pub(super) const TCP_SOCKET: Fields = &[("host", Used), ("port", Used)];

pub(super) const RESOURCES: Fields = &[("claims", NOT_YET), ("limits", Used), ("requests", Used)];

pub(super) const SECURITY: Fields = &[
    ("allowPrivilegeEscalation", Used),
    ("appArmorProfile", Used),
    ("capabilities", Used),
    ("privileged", Used),
    ("procMount", Used),
    ("readOnlyRootFilesystem", Used),
    ("runAsGroup", Used),
    ("runAsNonRoot", Used),
    ("runAsUser", Used),
    ("seLinuxOptions", Used),
    ("seccompProfile", Used),
    ("windowsOptions", WINDOWS),
];

pub(super) const SE_LINUX: Fields = &[("level", Used), ("role", Used), ("type", Used), ("user", Used)];
pub(super) const CAPABILITIES: Fields = &[("add", Used), ("drop", Used)];
/// Of seccomp and of `AppArmor`.
pub(super) const PROFILE: Fields = &[("localhostProfile", NOT_YET), ("type", Used)];

pub(super) const POD_SECURITY: Fields = &[
    ("appArmorProfile", Used),
    ("fsGroup", Used),
    ("fsGroupChangePolicy", Used),
    ("runAsGroup", Used),
    ("runAsNonRoot", Used),
    ("runAsUser", Used),
    ("seLinuxChangePolicy", NoEffect("has no effect: SELinux labels of volumes are not changed")),
    ("seLinuxOptions", Used),
    ("seccompProfile", Used),
    ("supplementalGroups", Used),
    ("supplementalGroupsPolicy", Used),
    ("sysctls", Used),
    ("windowsOptions", WINDOWS),
];

pub(super) const SYSCTL: Fields = &[("name", Used), ("value", Used)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order_and_name_each_field_once() {
        for table in [
            METADATA,
            TEMPLATE_METADATA,
            DEPLOYMENT,
            STATEFUL_SET,
            JOB,
            CRON_JOB,
            SERVICE,
            CLAIM,
            PERSISTENT,
            POD,
            VOLUME,
            CONTAINER,
            PROBE,
            SECURITY,
            POD_SECURITY,
        ] {
            let names: Vec<_> = table.iter().map(|(name, _)| *name).collect();
            assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        }
    }
}
