//! The applications of a lane: their manifests by version, and how their containers must be in the end.

use crate::engine::IMAGE;

/// The purpose of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Compose: a one-shot migration, a service on a volume, and two replicas on a network that wait for the migration.
    Roll,
    /// Kubernetes: a Deployment of two, a StatefulSet on a claim, a Job on a claim, and a Secret.
    Kube,
    /// Compose: a service on a volume with a mounted file, and a one-shot. Cheap, for cases in large numbers.
    Small,
    /// Never changes: its container must be the same from the beginning to the end.
    Still,
    /// Rolled back to its first version: no later one may ever run.
    Pinned,
    /// Suspended at its first version.
    Suspended,
}

/// The number of containers of a role in the end, and their state.
pub(crate) struct Expected {
    pub(crate) role: &'static str,
    pub(crate) count: usize,
    pub(crate) state: &'static str,
}

const fn expected(role: &'static str, count: usize, state: &'static str) -> Expected {
    Expected { role, count, state }
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Roll => "roll",
            Self::Kube => "kube",
            Self::Small => "small",
            Self::Still => "still",
            Self::Pinned => "pinned",
            Self::Suspended => "suspended",
        }
    }

    pub(crate) fn file(self) -> &'static str {
        if self == Self::Kube { "app.yaml" } else { "compose.yaml" }
    }

    /// True if its newest version in Git is the one that must run.
    pub(crate) fn follows_git(self) -> bool {
        !matches!(self, Self::Pinned | Self::Suspended)
    }

    pub(crate) fn expected(self) -> Vec<Expected> {
        match self {
            Self::Roll => {
                vec![
                    expected("migrate", 1, "exited"),
                    expected("db", 1, "running"),
                    expected("web", 2, "running"),
                ]
            }
            Self::Kube => {
                vec![
                    expected("job", 1, "exited"),
                    expected("set", 1, "running"),
                    expected("web", 2, "running"),
                ]
            }
            Self::Small => vec![expected("db", 1, "running"), expected("migrate", 1, "exited")],
            Self::Still | Self::Pinned | Self::Suspended => vec![expected("db", 1, "running")],
        }
    }

    /// The manifest of a version. `image` replaces that of the service `db`.
    pub(crate) fn manifest(self, version: u32, secret: &str, image: Option<&str>) -> String {
        let db_image = image.unwrap_or(IMAGE);
        match self {
            Self::Roll => format!(
                "services:
  migrate:
    image: {IMAGE}
    command: [job, \"300\"]
    network_mode: none
    environment: {{ROLE: migrate, V: \"{version}\", PASSWORD: {secret}}}
    volumes: [jobs:/data]
  db:
    image: {db_image}
    command: [serve]
    network_mode: none
    restart: unless-stopped
    environment: {{ROLE: db, V: \"{version}\", PASSWORD: {secret}}}
    volumes: [data:/data]
  web:
    image: {IMAGE}
    command: [serve]
    restart: unless-stopped
    environment: {{ROLE: web, V: \"{version}\"}}
    depends_on: {{migrate: {{condition: service_completed_successfully}}}}
    deploy: {{replicas: 2, update_config: {{order: start-first}}}}
volumes: {{data: {{}}, jobs: {{}}}}
"
            ),
            Self::Small => format!(
                "services:
  migrate:
    image: {IMAGE}
    command: [job, \"100\"]
    network_mode: none
    environment: {{ROLE: migrate, V: \"{version}\"}}
    volumes: [jobs:/data]
  db:
    image: {db_image}
    command: [serve]
    network_mode: none
    restart: unless-stopped
    environment: {{ROLE: db, V: \"{version}\", PASSWORD: {secret}}}
    volumes: [data:/data]
    configs: [{{source: settings, target: /settings}}]
volumes: {{data: {{}}, jobs: {{}}}}
configs: {{settings: {{content: \"version {version}\"}}}}
"
            ),
            Self::Still | Self::Pinned | Self::Suspended => format!(
                "services:
  db:
    image: {db_image}
    command: [serve]
    network_mode: none
    restart: unless-stopped
    environment: {{ROLE: db, V: \"{version}\", PASSWORD: {secret}}}
    volumes: [data:/data]
volumes: {{data: {{}}}}
"
            ),
            Self::Kube => kubernetes(version, secret),
        }
    }
}

fn kubernetes(version: u32, secret: &str) -> String {
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: login}}
stringData: {{password: {secret}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: jobs}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: {IMAGE}
          args: [serve]
          env: [{{name: ROLE, value: web}}, {{name: V, value: \"{version}\"}}]
---
apiVersion: v1
kind: Service
metadata: {{name: set}}
spec: {{clusterIP: None, selector: {{app: set}}, ports: [{{port: 5432}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: set}}
spec:
  serviceName: set
  replicas: 1
  selector: {{matchLabels: {{app: set}}}}
  volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{accessModes: [ReadWriteOnce]}}}}]
  template:
    metadata: {{labels: {{app: set}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: set
          image: {IMAGE}
          args: [serve]
          env:
            - {{name: ROLE, value: set}}
            - {{name: V, value: \"{version}\"}}
            - {{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: login, key: password}}}}}}
          volumeMounts: [{{name: data, mountPath: /data}}]
---
apiVersion: batch/v1
kind: Job
metadata: {{name: job}}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers:
        - name: job
          image: {IMAGE}
          args: [job, \"300\"]
          env: [{{name: ROLE, value: job}}, {{name: V, value: \"{version}\"}}]
          volumeMounts: [{{name: jobs, mountPath: /data}}]
      volumes: [{{name: jobs, persistentVolumeClaim: {{claimName: jobs}}}}]
"
    )
}
