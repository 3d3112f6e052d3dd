//! The downward API, containers whose values are outdated, and the requests that
//! their manifests want made.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc,
    time::Duration,
};

use crate::harness::{Container, Site, images};

fn manifests(server: &str, busybox: &str, hook: u16) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: plain}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: plain}}}}
  template:
    metadata: {{labels: {{app: plain}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: plain
          image: \"{busybox}\"
          command: [/bin/busybox, sh, -c, 'echo I am $(NAME); while :; do sleep 1000; done']
          env:
            - {{name: NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
            - {{name: NODE, valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: told}}
spec:
  selector: {{matchLabels: {{app: told}}}}
  template:
    metadata: {{labels: {{app: told}}}}
    spec:
      terminationGracePeriodSeconds: 0
      initContainers:
        - name: server
          image: \"{server}\"
          restartPolicy: Always
          startupProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
      containers:
        - name: app
          image: \"{busybox}\"
          env:
            - {{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
            - {{name: HOST, valueFrom: {{fieldRef: {{fieldPath: status.hostIP}}}}}}
            - {{name: URL, value: 'http://$(IP):8080/'}}
          lifecycle:
            postStart: {{httpGet: {{path: /healthz, port: 8080}}}}
            preStop: {{httpGet: {{host: 127.0.0.1, path: '/bye?from=app', port: {hook}}}}}
"
    )
}

/// The requests received at a port of this machine.
fn requests() -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 1024];
            let length = stream.read(&mut buffer).unwrap_or_default();
            // Any answer counts.
            let _ = stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if heard.send(text.lines().next().unwrap_or_default().to_owned()).is_err() {
                return;
            }
        }
    });
    (port, requests)
}

fn of(site: &Site, name: &str) -> Option<Container> {
    site.of("told").into_iter().find(|it| it.label("driftless.container") == name)
}

#[tokio::test]
async fn pod_address_change_replaces_its_users_after_pre_stop() {
    let mut site = Site::new("downward");
    let (server, busybox) = (images::server("1.0"), images::placeholder());
    let (port, heard) = requests();
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &manifests(&server, &busybox, port))]);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;

    // The name of each pod is its own, in its variables and its command.
    let plain = site.of("plain");
    assert_eq!(plain.len(), 2);
    let node = site.docker.run(&["info", "--format", "{{.Name}}"]);
    for pod in &plain {
        assert_eq!(pod.variable("NAME"), Some(pod.name()));
        assert_eq!(pod.variable("NODE").as_deref(), Some(node.trim()));
        site.logged(pod, &format!("I am {}\n", pod.name())).await;
    }

    // The address is that of the pod, at which it answers; the host's is where the host is.
    let app = of(&site, "app").unwrap();
    let sidecar = of(&site, "server").unwrap();
    let pause = of(&site, "").unwrap();
    assert_eq!(app.variable("IP"), pause.address());
    let network = format!("{}_default", site.app);
    let gateway =
        site.docker.run(&["network", "inspect", &network, "--format", "{{(index .IPAM.Config 0).Gateway}}"]);
    assert_eq!(app.variable("HOST").as_deref(), Some(gateway.trim()));
    let wget = ["exec", &app.id(), "/bin/busybox", "sh", "-c", "/bin/busybox wget -q -O- $URL"];
    assert!(site.docker.run(&wget).contains("server 1.0"), "{:?}", app.variable("URL"));

    // Nothing is done while nothing changes, not even by an agent that remembers nothing.
    let ids = || site.of("told").iter().chain(&site.of("plain")).map(Container::id).collect::<Vec<_>>();
    let before = ids();
    agent.restart().await;
    agent.settled(&commit).await;
    agent.terminate().await;
    for file in agent.database() {
        std::fs::remove_file(file).unwrap();
    }
    agent.restart().await;
    agent.settled(&commit).await;
    assert_eq!(ids(), before);
    assert!(heard.try_recv().is_err(), "nothing was stopped");

    // Another address is another container where it was told, and nowhere else. (Somebody takes the old one meanwhile.)
    agent.terminate().await;
    site.docker.run(&["network", "disconnect", &network, &pause.id()]);
    let foreign = site.docker.run(&["run", "-d", "--network", &network, &busybox]);
    site.remove_too(foreign.trim());
    agent.restart().await;
    let replaced = site
        .until("who was told the address is replaced", |_| {
            let now = of(&site, "app").filter(|it| it.id() != app.id() && it.state() == "running")?;
            (now.variable("IP") == of(&site, "").and_then(|it| it.address())).then_some(now)
        })
        .await;
    assert_ne!(replaced.variable("IP"), app.variable("IP"));
    assert_eq!(of(&site, "server").unwrap().id(), sidecar.id());
    assert_eq!(of(&site, "").unwrap().id(), pause.id());
    let said = heard.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(said, "GET /bye?from=app HTTP/1.1");
    agent.settled(&commit).await;
}
