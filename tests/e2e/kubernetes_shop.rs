//! A shop of ten services, written as such shops are: a file for each service with its account, Deployment and Service,
//! and what only a cluster has a use for. All of it validates, starts, becomes ready and finds each other.

use driftless_model::HealthStatus;

use crate::harness::{Site, images};

/// The services, each with its port and those that it asks.
const SERVICES: &[(&str, u16, &[&str])] = &[
    ("ads", 9555, &[]),
    ("basket", 7070, &["store"]),
    ("catalogue", 3550, &[]),
    ("checkout", 5050, &["basket", "catalogue", "currency", "mail", "payment", "shipping"]),
    ("currency", 7001, &[]),
    ("front", 8080, &["ads", "basket", "catalogue", "checkout", "currency", "shipping"]),
    ("mail", 5000, &[]),
    ("payment", 50051, &[]),
    ("shipping", 50052, &[]),
    ("store", 6379, &[]),
];

fn manifests(image: &str, (name, port, asks): (&str, u16, &[&str])) -> String {
    let port_of = |name: &str| SERVICES.iter().find(|it| it.0 == name).map_or(0, |it| it.1);
    let env: String = asks
        .iter()
        .map(|service| {
            format!(
                "            - {{name: {}_SERVICE_ADDR, value: \"{service}:{}\"}}\n",
                service.to_uppercase(),
                port_of(service)
            )
        })
        .collect();
    let replicas = if name == "catalogue" { 2 } else { 1 };
    format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      serviceAccountName: {name}
      terminationGracePeriodSeconds: 1
      securityContext: {{fsGroup: 1000, runAsGroup: 1000, runAsNonRoot: true, runAsUser: 1000}}
      containers:
        - name: server
          image: \"{image}\"
          ports: [{{containerPort: {port}}}]
          env:
            - {{name: PORT, value: \"{port}\"}}
            - {{name: NAME, value: {name}}}
{env}          securityContext:
            allowPrivilegeEscalation: false
            capabilities: {{drop: [ALL]}}
            privileged: false
            readOnlyRootFilesystem: true
          readinessProbe: {{httpGet: {{path: /healthz, port: {port}}}, periodSeconds: 1}}
          livenessProbe: {{tcpSocket: {{port: {port}}}, initialDelaySeconds: 1}}
          resources:
            requests: {{cpu: 10m, memory: 16Mi}}
            limits: {{cpu: 200m, memory: 64Mi}}
          volumeMounts: [{{name: scratch, mountPath: /tmp}}]
      volumes: [{{name: scratch, emptyDir: {{}}}}]
---
apiVersion: v1
kind: Service
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  type: ClusterIP
  selector: {{app: {name}}}
  ports: [{{name: http, port: {port}, targetPort: {port}}}]
"
    )
}

#[tokio::test]
async fn shop_of_ten_services_starts_and_is_ready() {
    let site = Site::new("shop");
    let image = images::server("1.0");
    let files: Vec<(String, String)> = SERVICES
        .iter()
        .map(|it| (site.path(&format!("{}.yaml", it.0)), manifests(&image, *it)))
        .chain([(
            site.path("cluster.yaml"),
            "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: front}\nspec: {maxReplicas: 3}\n---\n\
             apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: none}\nspec: {podSelector: {}}\n"
                .to_owned(),
        )])
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let commit = site.repository.commit(&files);
    let agent = site.agent().await;
    let application = agent.settled(&commit).await;

    assert_eq!(application.status.health, HealthStatus::Healthy);
    let running = site.docker.running(&site.app);
    // A pod for each service, two for the catalogue, and a proxy of two containers for each Service, since all pods have
    // probes.
    assert_eq!(running.len(), SERVICES.len() + 1 + 2 * SERVICES.len(), "pods and proxies");
    for (name, port, _) in SERVICES {
        let container = &site.of(name)[0];
        assert_eq!(container.variable("PORT"), Some(port.to_string()));
    }
    // Fields without effect are reported once for each object, and nothing else is.
    let told: Vec<&str> = application.status.findings.iter().map(|it| it.message.as_str()).collect();
    let count = |word: &str| told.iter().filter(|it| it.contains(word)).count();
    assert_eq!(count("the kind ServiceAccount has no effect"), SERVICES.len(), "{told:#?}");
    assert_eq!(count("the kind HorizontalPodAutoscaler has no effect"), 1);
    assert_eq!(count("the kind NetworkPolicy has no effect"), 1);
    assert_eq!(count("containers have no Kubernetes API to talk to"), SERVICES.len());
    assert_eq!(told.len(), SERVICES.len() + 2, "{told:#?}");
}
