//! Every field that Kubernetes knows in the kinds that are read, and what becomes of it here.
//!
//! Taken from the API reference of Kubernetes 1.35. The order is that of the reference: alphabetical.

/// What becomes of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Class {
    /// Read, and made so or refused by its value.
    Honoured,
    /// It cannot matter on one host: a warning that says why.
    NoOp(&'static str),
    /// Running without it would be wrong: an error.
    Refused(&'static str),
}

pub(super) type Fields = &'static [(&'static str, Class)];

use Class::{Honoured, NoOp, Refused};

const NO_PLACING: Class = NoOp("has no effect: there is one host, so nothing is placed or scheduled");
const NO_API: Class = NoOp("has no effect: containers have no Kubernetes API to talk to");
const BY_SERVER: Class = NoOp("has no effect: a cluster writes it, nobody reads it here");
const NOT_YET: Class = Refused("is not supported yet, and running without it would be wrong");
const WINDOWS: Class = Refused("is for Windows containers, which are not supported");

pub(super) const OBJECT: Fields = &[
    ("apiVersion", Honoured),
    ("kind", Honoured),
    ("metadata", Honoured),
    ("spec", Honoured),
    ("status", BY_SERVER),
];

pub(super) const LIST: Fields =
    &[("apiVersion", Honoured), ("items", Honoured), ("kind", Honoured), ("metadata", BY_SERVER)];

pub(super) const METADATA: Fields = &[
    ("annotations", NoOp("has no effect: only annotations of the pod template are kept, as labels")),
    ("creationTimestamp", BY_SERVER),
    ("deletionGracePeriodSeconds", BY_SERVER),
    ("deletionTimestamp", BY_SERVER),
    ("finalizers", NoOp("has no effect: there are no controllers that would wait for them")),
    ("generateName", Refused("is not supported: an application from Git needs names that stay; use `name`")),
    ("generation", BY_SERVER),
    ("labels", Honoured),
    ("managedFields", BY_SERVER),
    ("name", Honoured),
    ("namespace", Honoured),
    ("ownerReferences", BY_SERVER),
    ("resourceVersion", BY_SERVER),
    ("selfLink", BY_SERVER),
    ("uid", BY_SERVER),
];

pub(super) const TEMPLATE_METADATA: Fields = &[
    ("annotations", Honoured),
    ("creationTimestamp", BY_SERVER),
    ("deletionGracePeriodSeconds", BY_SERVER),
    ("deletionTimestamp", BY_SERVER),
    ("finalizers", NoOp("has no effect: there are no controllers that would wait for them")),
    ("generateName", NoOp("has no effect: instances are named after the Deployment")),
    ("generation", BY_SERVER),
    ("labels", Honoured),
    ("managedFields", BY_SERVER),
    ("name", NoOp("has no effect: instances are named after the Deployment")),
    ("namespace", NoOp("has no effect: the Deployment's own namespace counts")),
    ("ownerReferences", BY_SERVER),
    ("resourceVersion", BY_SERVER),
    ("selfLink", BY_SERVER),
    ("uid", BY_SERVER),
];

pub(super) const DEPLOYMENT: Fields = &[
    ("minReadySeconds", Honoured),
    ("paused", Honoured),
    ("progressDeadlineSeconds", Honoured),
    ("replicas", Honoured),
    ("revisionHistoryLimit", Honoured),
    ("selector", Honoured),
    ("strategy", Honoured),
    ("template", Honoured),
];

/// And of a `ReplicationController`.
pub(super) const REPLICA_SET: Fields =
    &[("minReadySeconds", Honoured), ("replicas", Honoured), ("selector", Honoured), ("template", Honoured)];

pub(super) const STATEFUL_SET: Fields = &[
    ("minReadySeconds", Honoured),
    ("ordinals", Honoured),
    ("persistentVolumeClaimRetentionPolicy", Honoured),
    ("podManagementPolicy", Honoured),
    ("replicas", Honoured),
    ("revisionHistoryLimit", Honoured),
    ("selector", Honoured),
    ("serviceName", Honoured),
    ("template", Honoured),
    ("updateStrategy", Honoured),
    ("volumeClaimTemplates", Honoured),
];

pub(super) const ORDINALS: Fields = &[("start", Honoured)];
pub(super) const UPDATE_STRATEGY: Fields = &[("rollingUpdate", Honoured), ("type", Honoured)];
pub(super) const SET_ROLLING_UPDATE: Fields = &[("maxUnavailable", Honoured), ("partition", Honoured)];
pub(super) const RETENTION: Fields = &[("whenDeleted", Honoured), ("whenScaled", Honoured)];

pub(super) const CLAIM_TEMPLATE: Fields = &[
    ("apiVersion", Honoured),
    ("kind", Honoured),
    ("metadata", Honoured),
    ("spec", Honoured),
    ("status", BY_SERVER),
];

pub(super) const DAEMON_SET: Fields = &[
    ("minReadySeconds", Honoured),
    ("revisionHistoryLimit", Honoured),
    ("selector", Honoured),
    ("template", Honoured),
    ("updateStrategy", Honoured),
];

pub(super) const DAEMON_STRATEGY: Fields = UPDATE_STRATEGY;
pub(super) const DAEMON_ROLLING_UPDATE: Fields =
    &[("maxSurge", ONE_INSTANCE), ("maxUnavailable", ONE_INSTANCE)];

const ONE_INSTANCE: Class =
    NoOp("has no effect: there is one instance, and it is gone before the next one starts");

pub(super) const JOB: Fields = &[
    ("activeDeadlineSeconds", Honoured),
    ("backoffLimit", Honoured),
    ("backoffLimitPerIndex", NOT_YET),
    ("completionMode", Honoured),
    ("completions", Honoured),
    ("managedBy", NOT_YET),
    ("manualSelector", NoOp("has no effect: a Job knows its instances by their names")),
    ("maxFailedIndexes", NOT_YET),
    ("parallelism", Honoured),
    ("podFailurePolicy", NOT_YET),
    ("podReplacementPolicy", NoOp("has no effect: one is tried again once it has ended")),
    ("selector", Honoured),
    ("successPolicy", NOT_YET),
    ("suspend", Honoured),
    ("template", Honoured),
    ("ttlSecondsAfterFinished", Honoured),
];

pub(super) const CRON_JOB: Fields = &[
    ("concurrencyPolicy", Honoured),
    ("failedJobsHistoryLimit", Honoured),
    ("jobTemplate", Honoured),
    ("schedule", Honoured),
    ("startingDeadlineSeconds", Honoured),
    ("successfulJobsHistoryLimit", Honoured),
    ("suspend", Honoured),
    ("timeZone", Honoured),
];
pub(super) const JOB_TEMPLATE: Fields = &[("metadata", Honoured), ("spec", Honoured)];

pub(super) const CONFIG_MAP: Fields = &[
    ("apiVersion", Honoured),
    ("binaryData", Honoured),
    ("data", Honoured),
    ("immutable", NoOp("has no effect: what Git says counts, and a changed object is a new revision")),
    ("kind", Honoured),
    ("metadata", Honoured),
];

pub(super) const SECRET: Fields = &[
    ("apiVersion", Honoured),
    ("data", Honoured),
    ("immutable", NoOp("has no effect: what Git says counts, and a changed object is a new revision")),
    ("kind", Honoured),
    ("metadata", Honoured),
    ("stringData", Honoured),
    // It says what the keys are called, and those are there to be read.
    ("type", Honoured),
];

const NO_CLASS: Class = NoOp("has no effect: every claim is a volume of Docker");

pub(super) const CLAIM: Fields = &[
    ("accessModes", Honoured),
    ("dataSource", NOT_YET),
    ("dataSourceRef", NOT_YET),
    ("resources", NoOp("has no effect: a volume of Docker has no size")),
    ("selector", NO_CLASS),
    ("storageClassName", Honoured),
    ("volumeAttributesClassName", NO_CLASS),
    ("volumeMode", Honoured),
    ("volumeName", Honoured),
];

pub(super) const PERSISTENT: Fields = &[
    ("accessModes", Honoured),
    ("awsElasticBlockStore", OTHER_STORAGE),
    ("azureDisk", OTHER_STORAGE),
    ("azureFile", OTHER_STORAGE),
    ("capacity", Honoured),
    ("cephfs", OTHER_STORAGE),
    ("cinder", OTHER_STORAGE),
    ("claimRef", Honoured),
    ("csi", OTHER_STORAGE),
    ("fc", OTHER_STORAGE),
    ("flexVolume", OTHER_STORAGE),
    ("flocker", OTHER_STORAGE),
    ("gcePersistentDisk", OTHER_STORAGE),
    ("glusterfs", OTHER_STORAGE),
    ("hostPath", Honoured),
    ("iscsi", OTHER_STORAGE),
    ("local", Honoured),
    ("mountOptions", NOT_YET),
    ("nfs", Honoured),
    ("nodeAffinity", NO_PLACING),
    ("persistentVolumeReclaimPolicy", NoOp("has no effect: volumes are never removed unasked")),
    ("photonPersistentDisk", OTHER_STORAGE),
    ("portworxVolume", OTHER_STORAGE),
    ("quobyte", OTHER_STORAGE),
    ("rbd", OTHER_STORAGE),
    ("scaleIO", OTHER_STORAGE),
    ("storageClassName", Honoured),
    ("storageos", OTHER_STORAGE),
    ("volumeAttributesClassName", NO_CLASS),
    ("volumeMode", NO_CLASS),
    ("vsphereVolume", OTHER_STORAGE),
];

const OTHER_STORAGE: Class =
    Refused("is not supported, and running without it would be wrong; use `hostPath`, `local` or `nfs`");

pub(super) const LOCAL: Fields = &[("fsType", NO_CLASS), ("path", Honoured)];

pub(super) const SERVICE: Fields = &[
    ("allocateLoadBalancerNodePorts", BY_ENGINE),
    ("clusterIP", Honoured),
    ("clusterIPs", BY_ENGINE),
    ("externalIPs", Honoured),
    ("externalName", Honoured),
    ("externalTrafficPolicy", BY_ENGINE),
    ("healthCheckNodePort", BY_ENGINE),
    ("internalTrafficPolicy", BY_ENGINE),
    ("ipFamilies", BY_ENGINE),
    ("ipFamilyPolicy", BY_ENGINE),
    ("loadBalancerClass", BY_ENGINE),
    ("loadBalancerIP", BY_ENGINE),
    ("loadBalancerSourceRanges", NOT_YET),
    ("ports", Honoured),
    ("publishNotReadyAddresses", NoOp("has no effect: the name is answered with all that run, ready or not")),
    ("selector", Honoured),
    ("sessionAffinity", Honoured),
    ("sessionAffinityConfig", Honoured),
    ("trafficDistribution", BY_ENGINE),
    ("type", Honoured),
];

const BY_ENGINE: Class =
    NoOp("has no effect: the engine's name resolution answers with the containers' addresses");

pub(super) const AFFINITY: Fields = &[("clientIP", Honoured)];
pub(super) const CLIENT_IP: Fields = &[("timeoutSeconds", Honoured)];

pub(super) const SERVICE_PORT: Fields = &[
    ("appProtocol", NoOp("has no effect: traffic is not looked at")),
    ("name", Honoured),
    ("nodePort", Honoured),
    ("port", Honoured),
    ("protocol", Honoured),
    ("targetPort", Honoured),
];

pub(super) const SELECTOR: Fields = &[("matchExpressions", Honoured), ("matchLabels", Honoured)];
pub(super) const EXPRESSION: Fields = &[("key", Honoured), ("operator", Honoured), ("values", Honoured)];
pub(super) const STRATEGY: Fields = &[("rollingUpdate", Honoured), ("type", Honoured)];
pub(super) const ROLLING_UPDATE: Fields = &[("maxSurge", Honoured), ("maxUnavailable", Honoured)];
pub(super) const TEMPLATE: Fields = &[("metadata", Honoured), ("spec", Honoured)];

pub(super) const POD: Fields = &[
    ("activeDeadlineSeconds", Refused("is not supported: nothing ends a container by the clock")),
    ("affinity", NO_PLACING),
    ("automountServiceAccountToken", NO_API),
    ("containers", Honoured),
    ("dnsConfig", Honoured),
    ("dnsPolicy", Honoured),
    ("enableServiceLinks", NoOp("has no effect: no variables are made for Services")),
    ("ephemeralContainers", Refused("is not allowed in a template: such containers are added by hand")),
    ("hostAliases", Honoured),
    ("hostIPC", Honoured),
    ("hostNetwork", Honoured),
    ("hostPID", Honoured),
    ("hostUsers", Honoured),
    ("hostname", Honoured),
    ("hostnameOverride", NOT_YET),
    ("imagePullSecrets", Honoured),
    ("initContainers", Honoured),
    ("nodeName", NO_PLACING),
    ("nodeSelector", NO_PLACING),
    ("os", NO_PLACING),
    ("overhead", NO_PLACING),
    ("preemptionPolicy", NO_PLACING),
    ("priority", NO_PLACING),
    ("priorityClassName", NO_PLACING),
    ("readinessGates", NOT_YET),
    ("resourceClaims", NOT_YET),
    ("resources", Refused("of the whole pod is not supported yet; set `resources` of the container")),
    ("restartPolicy", Honoured),
    ("runtimeClassName", NOT_YET),
    ("schedulerName", NO_PLACING),
    ("schedulingGates", NOT_YET),
    ("securityContext", Honoured),
    ("serviceAccount", NO_API),
    ("serviceAccountName", NO_API),
    ("setHostnameAsFQDN", NOT_YET),
    ("shareProcessNamespace", Honoured),
    ("subdomain", Honoured),
    ("terminationGracePeriodSeconds", Honoured),
    ("tolerations", NO_PLACING),
    ("topologySpreadConstraints", NO_PLACING),
    ("volumes", Honoured),
    ("workloadRef", NO_PLACING),
];

pub(super) const DNS_CONFIG: Fields =
    &[("nameservers", Honoured), ("options", Honoured), ("searches", Honoured)];
pub(super) const DNS_OPTION: Fields = &[("name", Honoured), ("value", Honoured)];

pub(super) const LOCAL_REF: Fields = &[("name", Honoured)];

pub(super) const VOLUME: Fields = &[
    ("awsElasticBlockStore", OTHER_STORAGE),
    ("azureDisk", OTHER_STORAGE),
    ("azureFile", OTHER_STORAGE),
    ("cephfs", OTHER_STORAGE),
    ("cinder", OTHER_STORAGE),
    ("configMap", Honoured),
    ("csi", OTHER_STORAGE),
    ("downwardAPI", Honoured),
    ("emptyDir", Honoured),
    ("ephemeral", Honoured),
    ("fc", OTHER_STORAGE),
    ("flexVolume", OTHER_STORAGE),
    ("flocker", OTHER_STORAGE),
    ("gcePersistentDisk", OTHER_STORAGE),
    ("gitRepo", Refused("was removed from Kubernetes, and is not supported")),
    ("glusterfs", OTHER_STORAGE),
    ("hostPath", Honoured),
    ("image", Honoured),
    ("iscsi", OTHER_STORAGE),
    ("name", Honoured),
    ("nfs", Honoured),
    ("persistentVolumeClaim", Honoured),
    ("photonPersistentDisk", OTHER_STORAGE),
    ("portworxVolume", OTHER_STORAGE),
    ("projected", Honoured),
    ("quobyte", OTHER_STORAGE),
    ("rbd", OTHER_STORAGE),
    ("scaleIO", OTHER_STORAGE),
    ("secret", Honoured),
    ("storageos", OTHER_STORAGE),
    ("vsphereVolume", OTHER_STORAGE),
];

pub(super) const DATA_VOLUME: Fields =
    &[("defaultMode", Honoured), ("items", Honoured), ("name", Honoured), ("optional", Honoured)];
pub(super) const SECRET_VOLUME: Fields =
    &[("defaultMode", Honoured), ("items", Honoured), ("optional", Honoured), ("secretName", Honoured)];
pub(super) const DATA_PROJECTION: Fields = &[("items", Honoured), ("name", Honoured), ("optional", Honoured)];
pub(super) const KEY_TO_PATH: Fields = &[("key", Honoured), ("mode", Honoured), ("path", Honoured)];
pub(super) const PROJECTED: Fields = &[("defaultMode", Honoured), ("sources", Honoured)];
pub(super) const PROJECTION: Fields = &[
    ("clusterTrustBundle", NOT_YET),
    ("configMap", Honoured),
    ("downwardAPI", Honoured),
    ("podCertificate", NOT_YET),
    ("secret", Honoured),
    ("serviceAccountToken", NO_API),
];
pub(super) const DOWNWARD: Fields = &[("defaultMode", Honoured), ("items", Honoured)];
pub(super) const DOWNWARD_ITEM: Fields =
    &[("fieldRef", Honoured), ("mode", Honoured), ("path", Honoured), ("resourceFieldRef", Honoured)];
pub(super) const EMPTY_DIR: Fields = &[("medium", Honoured), ("sizeLimit", Honoured)];
pub(super) const HOST_PATH: Fields = &[("path", Honoured), ("type", Honoured)];
pub(super) const CLAIM_VOLUME: Fields = &[("claimName", Honoured), ("readOnly", Honoured)];
pub(super) const IMAGE_VOLUME: Fields = &[
    (
        "pullPolicy",
        Refused("is not supported: it is pulled as the container's own image is; set `imagePullPolicy`"),
    ),
    ("reference", Honoured),
];
pub(super) const NFS: Fields = &[("path", Honoured), ("readOnly", Honoured), ("server", Honoured)];
pub(super) const VOLUME_MOUNT: Fields = &[
    ("mountPath", Honoured),
    ("mountPropagation", Honoured),
    ("name", Honoured),
    ("readOnly", Honoured),
    ("recursiveReadOnly", NOT_YET),
    ("subPath", Honoured),
    ("subPathExpr", Honoured),
];

pub(super) const HOST_ALIAS: Fields = &[("hostnames", Honoured), ("ip", Honoured)];

pub(super) const CONTAINER: Fields = &[
    ("args", Honoured),
    ("command", Honoured),
    ("env", Honoured),
    ("envFrom", Honoured),
    ("image", Honoured),
    ("imagePullPolicy", Honoured),
    ("lifecycle", Honoured),
    ("livenessProbe", Honoured),
    ("name", Honoured),
    ("ports", Honoured),
    ("readinessProbe", Honoured),
    ("resizePolicy", NoOp("has no effect: limits are changed without a restart wherever the engine can")),
    ("resources", Honoured),
    ("restartPolicy", Honoured),
    ("restartPolicyRules", NOT_YET),
    ("securityContext", Honoured),
    ("startupProbe", Honoured),
    ("stdin", Honoured),
    ("stdinOnce", NOT_YET),
    ("terminationMessagePath", NoOp("has no effect: the last words of a container are in its log")),
    ("terminationMessagePolicy", NoOp("has no effect: the last words of a container are in its log")),
    ("tty", Honoured),
    ("volumeDevices", NOT_YET),
    ("volumeMounts", Honoured),
    ("workingDir", Honoured),
];

pub(super) const ENV: Fields = &[("name", Honoured), ("value", Honoured), ("valueFrom", Honoured)];
pub(super) const VALUE_FROM: Fields = &[
    ("configMapKeyRef", Honoured),
    ("fieldRef", Honoured),
    ("fileKeyRef", NOT_YET),
    ("resourceFieldRef", Honoured),
    ("secretKeyRef", Honoured),
];
pub(super) const ENV_FROM: Fields =
    &[("configMapRef", Honoured), ("prefix", Honoured), ("secretRef", Honoured)];
pub(super) const DATA_REF: Fields = &[("name", Honoured), ("optional", Honoured)];
pub(super) const DATA_KEY_REF: Fields = &[("key", Honoured), ("name", Honoured), ("optional", Honoured)];
pub(super) const FIELD_REF: Fields = &[("apiVersion", Honoured), ("fieldPath", Honoured)];
pub(super) const RESOURCE_FIELD_REF: Fields =
    &[("containerName", Honoured), ("divisor", Honoured), ("resource", Honoured)];

pub(super) const PORT: Fields = &[
    ("containerPort", Honoured),
    ("hostIP", Honoured),
    ("hostPort", Honoured),
    ("name", Honoured),
    ("protocol", Honoured),
];

pub(super) const LIFECYCLE: Fields =
    &[("postStart", Honoured), ("preStop", Honoured), ("stopSignal", Honoured)];
pub(super) const LIFECYCLE_HANDLER: Fields = &[
    ("exec", Honoured),
    ("httpGet", Honoured),
    ("sleep", Honoured),
    ("tcpSocket", Refused("is not supported, as in Kubernetes; use `exec`")),
];
pub(super) const SLEEP: Fields = &[("seconds", Honoured)];

pub(super) const PROBE: Fields = &[
    ("exec", Honoured),
    ("failureThreshold", Honoured),
    ("grpc", Honoured),
    ("httpGet", Honoured),
    ("initialDelaySeconds", Honoured),
    ("periodSeconds", Honoured),
    ("successThreshold", Honoured),
    ("tcpSocket", Honoured),
    ("terminationGracePeriodSeconds", NOT_YET),
    ("timeoutSeconds", Honoured),
];

pub(super) const EXEC: Fields = &[("command", Honoured)];
pub(super) const HTTP_GET: Fields = &[
    ("host", Honoured),
    ("httpHeaders", Honoured),
    ("path", Honoured),
    ("port", Honoured),
    ("scheme", Honoured),
];
pub(super) const HEADER: Fields = &[("name", Honoured), ("value", Honoured)];
pub(super) const GRPC: Fields = &[("port", Honoured), ("service", Honoured)];
pub(super) const TCP_SOCKET: Fields = &[("host", Honoured), ("port", Honoured)];

pub(super) const RESOURCES: Fields = &[("claims", NOT_YET), ("limits", Honoured), ("requests", Honoured)];

pub(super) const SECURITY: Fields = &[
    ("allowPrivilegeEscalation", Honoured),
    ("appArmorProfile", Honoured),
    ("capabilities", Honoured),
    ("privileged", Honoured),
    ("procMount", Honoured),
    ("readOnlyRootFilesystem", Honoured),
    ("runAsGroup", Honoured),
    ("runAsNonRoot", Honoured),
    ("runAsUser", Honoured),
    ("seLinuxOptions", Honoured),
    ("seccompProfile", Honoured),
    ("windowsOptions", WINDOWS),
];

pub(super) const SE_LINUX: Fields =
    &[("level", Honoured), ("role", Honoured), ("type", Honoured), ("user", Honoured)];
pub(super) const CAPABILITIES: Fields = &[("add", Honoured), ("drop", Honoured)];
/// Of seccomp and of `AppArmor`.
pub(super) const PROFILE: Fields = &[("localhostProfile", NOT_YET), ("type", Honoured)];

pub(super) const POD_SECURITY: Fields = &[
    ("appArmorProfile", Honoured),
    ("fsGroup", Honoured),
    ("fsGroupChangePolicy", Honoured),
    ("runAsGroup", Honoured),
    ("runAsNonRoot", Honoured),
    ("runAsUser", Honoured),
    ("seLinuxChangePolicy", NoOp("has no effect: there are no volumes whose label could change")),
    ("seLinuxOptions", Honoured),
    ("seccompProfile", Honoured),
    ("supplementalGroups", Honoured),
    ("supplementalGroupsPolicy", Honoured),
    ("sysctls", Honoured),
    ("windowsOptions", WINDOWS),
];

pub(super) const SYSCTL: Fields = &[("name", Honoured), ("value", Honoured)];

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
