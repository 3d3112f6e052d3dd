//! Parts of Kubernetes manifests that several tests share.

/// A Deployment of one, up to the fields of its pod, which stand below it with six spaces before them.
pub fn deployment(name: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
"
    )
}
