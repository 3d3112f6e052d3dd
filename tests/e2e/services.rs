//! Services that are more than names of their pods: another port than theirs, a port of the host for several, a client
//! that stays where it was.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::harness::{Agent, Site, images, wait_until};

const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// One of those that a NodePort may have, which nobody holds.
pub(crate) fn node_port() -> u16 {
    let offset = u16::try_from(crate::harness::random() % 2_700).unwrap();
    let mut all = NODE_PORTS.skip(usize::from(offset));
    all.find(|port| std::net::TcpListener::bind(("0.0.0.0", *port)).is_ok()).expect("a free port")
}

fn manifests(image: &str, port: u16, node_port: u16) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 3
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: \"{image}\"
          env: [{{name: PORT, value: \"{port}\"}}]
          ports: [{{name: http, containerPort: {port}}}]
          readinessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: front}}
spec: {{type: NodePort, selector: {{app: web}}, ports: [{{port: 80, targetPort: http, nodePort: {node_port}}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: sticky}}
spec: {{sessionAffinity: ClientIP, selector: {{app: web}}, ports: [{{port: 8080}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: pods}}
spec: {{clusterIP: None, selector: {{app: web}}, ports: [{{port: 80, targetPort: http}}]}}
"
    )
}

/// The name that the server answers with, if it is reached.
fn asked(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).filter(|it| !it.is_empty())
}

/// The answer at a name from inside the application. (The image has no resolver of its own.)
fn asked_inside(site: &Site, name: &str, port: u16, times: u32) -> Vec<String> {
    let network = format!("{}_default", site.app);
    let image = images::placeholder();
    let script = format!(
        "for i in $(seq {times}); do at=$(nslookup {name} 127.0.0.11 | grep -oE '[0-9]+(\\.[0-9]+){{3}}' | grep -v 127.0.0.11 | head -n 1)
         wget -q -O - http://$at:{port}/ || echo none; done"
    );
    let place = ["run", "--rm", "--network", &network, "--entrypoint", "/bin/busybox", &image];
    let said = site.docker.run(&[place.as_slice(), &["sh", "-c", &script]].concat());
    said.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn service_proxy_balances_and_survives_restarts() {
    let site = Site::new("services");
    let image = images::server("1.0");
    let node_port = node_port();
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &manifests(&image, 8080, node_port))]);
    let agent = site.agent().await;
    let application = agent.settled(&commit).await;
    let status = &application.status.workloads[&"front_proxy".into()];
    assert_eq!(status.spec.object.to_string(), "Service default/front");

    // From outside, and inside under all of its names, and in turn. The proxy's process may need a moment to listen.
    wait_until("the proxy to listen", || asked(node_port)).await;
    let outside: BTreeSet<String> = (0..12).filter_map(|_| asked(node_port)).collect();
    assert_eq!(outside.len(), 3, "{outside:?}");
    for name in ["front", "front.default.svc.cluster.local"] {
        let heard: BTreeSet<String> = asked_inside(&site, name, 80, 6).into_iter().collect();
        assert_eq!(heard.len(), 3, "{name}: {heard:?}");
        assert!(heard.iter().all(|it| it.starts_with("server 1.0 on ")), "{heard:?}");
    }
    let stuck: BTreeSet<String> = asked_inside(&site, "sticky", 8080, 6).into_iter().collect();
    assert_eq!(stuck.len(), 1, "{stuck:?}");
    let pods = asked_inside(&site, "pods", 8080, 1);
    assert!(pods[0].starts_with("server 1.0 on "), "a headless Service is its pods: {pods:?}");

    // A roll to another port of the containers, with clients at it all the time.
    let proxy = site.container("front_proxy_worker");
    let owner = site.container("front_proxy");
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &manifests(&image, 9090, node_port))]);
    agent.sync().await;
    agent.deployed(&commit).await;
    let rolled = site.container("front_proxy_worker");
    assert_ne!(rolled.id(), proxy.id(), "another target is another worker");
    assert_eq!(site.container("front_proxy").id(), owner.id(), "names and ports stay");
    wait_until("the new pods to answer", || asked(node_port)).await;

    // A killed instance comes back, and until then the others serve.
    let pod = site.of("web").remove(0);
    site.docker.run(&["rm", "-f", &pod.id()]);
    for _ in 0..6 {
        assert!(asked(node_port).is_some(), "one pod less is no failure");
    }
    site.docker.run(&["rm", "-f", &rolled.id()]);
    wait_until("the proxy to be back", || asked(node_port)).await;
    site.replaced("front_proxy_worker", &rolled.id()).await;
    drop(agent);

    // It ends at once after the request, with connections open.
    let _open = TcpStream::connect(("127.0.0.1", node_port)).unwrap();
    let proxy = site.container("front_proxy_worker");
    site.docker.run(&["update", "--restart", "no", &proxy.id()]);
    site.docker.run(&["stop", "-t", "80", &proxy.id()]);
    let ended = site.docker.container(&proxy.id()).unwrap();
    assert_eq!((ended.state().as_str(), ended.number("/State/ExitCode")), ("exited", 0));
}

/// Two Deployments behind one Service, the second of which is ready if its probe is on the right port.
fn half_ready(image: &str, port_of_second: u16) -> String {
    let deployment = |name: &str, port: u16| {
        format!(
            "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{name: {name}}}}}
  template:
    metadata: {{labels: {{name: {name}, app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: \"{image}\"
          ports: [{{containerPort: 8080}}]
          readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 1}}
---
"
        )
    };
    let service = |name: &str, more: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{selector: {{app: web}}, ports: [{{port: \
             8080}}]{more}}}\n---\n"
        )
    };
    let all = service("all", ", publishNotReadyAddresses: true");
    format!("{}{}{}{all}", deployment("one", 8080), deployment("two", port_of_second), service("front", ""))
}

#[tokio::test]
async fn service_traffic_goes_to_ready_pods_only() {
    let site = Site::new("ready");
    let image = images::server("1.0");
    let write = |port: u16| site.repository.commit(&[(&site.path("all.yaml"), &half_ready(&image, port))]);
    write(1);
    let agent = site.agent().await;
    let heard = |name: &str| -> BTreeSet<String> {
        asked_inside(&site, name, 8080, 8).into_iter().filter(|answer| answer != "none").collect()
    };
    let stands = |name: &str| site.of(name).iter().any(|pod| pod.state() == "running");
    let all_stand =
        || ["one", "two", "front_proxy", "front_proxy_worker"].into_iter().all(stands).then_some(());
    wait_until("the pods and the proxy to run", all_stand).await;
    wait_until("both pods to run", || Some(heard("all")).filter(|all| all.len() == 2)).await;
    let one =
        wait_until("the ready pod to answer", || Some(heard("front")).filter(|found| found.len() == 1)).await;
    for _ in 0..3 {
        assert_eq!(heard("front"), one, "the pod that is not ready gets no traffic");
    }
    // Probes are not part of a container's specification: the same pod becomes ready, and is not ready again.
    let pods = [site.container("one").id(), site.container("two").id()];
    write(8080);
    agent.sync().await;
    wait_until("both pods to be ready", || Some(heard("front")).filter(|found| found.len() == 2)).await;
    write(1);
    agent.sync().await;
    wait_until("the second pod to lose its traffic", || Some(heard("front")).filter(|found| *found == one))
        .await;
    assert_eq!(pods, [site.container("one").id(), site.container("two").id()]);
    // A proxy that was restarted gets the report again.
    let proxy = site.container("front_proxy_worker").id();
    site.docker.run(&["restart", "-t", "1", &proxy]);
    wait_until("the proxy to have the report", || Some(heard("front")).filter(|found| *found == one)).await;
    assert_eq!(heard("front"), one);
}

#[tokio::test]
async fn node_port_is_assigned_and_external_name_is_forwarded() {
    let site = Site::new("reach");
    let image = images::server("1.0");
    let text = format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: \"{image}\"
          ports: [{{containerPort: 8080}}]
          readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: open}}
spec: {{type: NodePort, selector: {{app: web}}, ports: [{{port: 8080}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: far}}
spec: {{type: ExternalName, externalName: open.default.svc.cluster.local, ports: [{{port: 8080}}]}}
"
    );
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &text)]);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;
    let words = ["get", "svc", "open", "-n", "default", "-o", "jsonpath={.spec.ports[0].nodePort}"];
    let told = |agent: &Agent| {
        let mut command = agent.command(&words);
        command.env("DRIFTLESS_SERVER", format!("http://{}", agent.address()));
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        said.trim().parse::<u16>().unwrap_or_else(|_| panic!("no port: {said}"))
    };
    let port = told(&agent);
    assert!((30_086..=32_767).contains(&port), "{port}");
    let outside = wait_until("the port to answer", || asked(port)).await;
    assert!(outside.starts_with("server 1.0"), "{outside}");
    let inside = asked_inside(&site, "far", 8080, 1);
    assert!(inside[0].starts_with("server 1.0 on "), "{inside:?}");

    let id = site.container("web").id();
    agent.restart().await;
    agent.settled(&commit).await;
    assert_eq!(told(&agent), port);
    assert_eq!(site.container("web").id(), id);
}
