//! Pods of several containers, and the image that they need besides their own.

use crate::harness::{Agent, Container, Counting, Site, images, manifests, wait_until};

#[tokio::test]
async fn helper_image_is_generated_and_its_container_stops_at_once() {
    let site = Site::new("helper");
    let agent = site
        .running(
            "services: {pause: {image: \"driftless/helper:2\", stop_grace_period: 80s, restart: always}}",
        )
        .await;
    let pause = site.container("pause");
    assert_eq!((pause.state().as_str(), pause.number("/RestartCount")), ("running", 0));
    assert_eq!(pause.text("/Config/Cmd/0"), "pause");
    // Docker would kill it after 80 s, and the code would be 137.
    site.docker.run(&["update", "--restart", "no", &pause.id()]);
    drop(agent);
    site.docker.run(&["stop", &pause.id()]);
    let ended = site.docker.container(&pause.id()).unwrap();
    assert_eq!((ended.state().as_str(), ended.number("/State/ExitCode")), ("exited", 0));
}

/// The parts of a workload's only pod, and its first container.
struct Pod {
    pause: Container,
    parts: Vec<Container>,
}

impl Pod {
    fn of(site: &Site, workload: &str) -> Self {
        let (mut first, parts): (Vec<_>, Vec<_>) =
            site.of(workload).into_iter().partition(|it| it.label("driftless.container").is_empty());
        assert_eq!(first.len(), 1, "one pod: {:?}", first.iter().map(Container::name).collect::<Vec<_>>());
        Self { pause: first.remove(0), parts }
    }

    #[track_caller]
    fn part(&self, name: &str) -> &Container {
        let found = self.parts.iter().find(|it| it.label("driftless.container") == name);
        found.unwrap_or_else(|| panic!("{} has no container {name}", self.pause.name()))
    }

    fn ids(&self) -> Vec<(String, String)> {
        let all = self.parts.iter().chain([&self.pause]);
        let mut ids: Vec<_> = all.map(|it| (it.id(), it.started())).collect();
        ids.sort();
        ids
    }
}

async fn commit(site: &Site, agent: &Agent, manifest: &str) {
    let commit = site.repository.commit(&[(&site.path("all.yaml"), manifest)]);
    agent.sync().await;
    agent.deployed(&commit).await;
}

/// A server, and a sidecar that asks it over the loopback and writes the answer to a shared folder.
fn pair(server: &str, busybox: &str, word: &str) -> String {
    format!(
        "{}      hostname: twins
      shareProcessNamespace: true
      terminationGracePeriodSeconds: 1
      hostAliases: [{{ip: 10.1.2.3, hostnames: [elsewhere]}}]
      containers:
        - name: server
          image: \"{server}\"
          env: [{{name: MESSAGE_FILE, value: /shared/word}}]
          ports: [{{name: http, containerPort: 8080}}]
          readinessProbe: {{httpGet: {{path: /healthz, port: http}}, periodSeconds: 1}}
          volumeMounts: [{{name: shared, mountPath: /shared, readOnly: true}}]
        - name: helper
          image: \"{busybox}\"
          command:
            - /bin/busybox
            - sh
            - -c
            - echo {word} > /data/word; grep elsewhere /etc/hosts; while :; do sleep 1000; done
          volumeMounts:
            - {{name: shared, mountPath: /data}}
            - {{name: memory, mountPath: /memory}}
          resources: {{limits: {{memory: 64Mi}}}}
          readinessProbe:
            exec: {{command: [/bin/busybox, test, -e, /data/word]}}
            periodSeconds: 1
        - name: third
          image: \"{busybox}\"
          volumeMounts: [{{name: memory, mountPath: /memory}}]
      volumes:
        - {{name: shared, emptyDir: {{}}}}
        - {{name: memory, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 8080, targetPort: http}}]}}
",
        manifests::deployment("web")
    )
}

#[tokio::test]
async fn containers_of_a_pod_share_and_are_replaced_together() {
    let mut site = Site::new("pair");
    let proxy = Counting::start(&site.directory());
    site.settings.docker_host = Some(proxy.host());
    let (server, busybox) = (images::server("1.0"), images::placeholder());
    let first = site.repository.commit(&[(&site.path("all.yaml"), &pair(&server, &busybox, "hello"))]);
    let mut agent = site.agent().await;
    agent.settled(&first).await;
    let pod = Pod::of(&site, "web");
    let exec = |container: &Container, line: &str| {
        site.docker.run(&["exec", &container.id(), "/bin/busybox", "sh", "-c", line])
    };

    // One network, one host name, one set of processes, one empty folder; a file in memory for two of them.
    let answer = exec(pod.part("helper"), "/bin/busybox wget -q -O- http://127.0.0.1:8080/");
    assert!(answer.contains("on twins") && answer.contains("hello"), "{answer}");
    assert!(exec(pod.part("helper"), "/bin/busybox ps").contains("/server"));
    exec(pod.part("helper"), "echo fast > /memory/file");
    assert_eq!(exec(pod.part("third"), "cat /memory/file").trim(), "fast");
    assert!(exec(pod.part("third"), "/bin/busybox df -m /memory").contains("tmpfs"));
    assert!(exec(pod.part("helper"), "cat /etc/hosts").contains("10.1.2.3"));
    assert_eq!(pod.pause.text("/HostConfig/IpcMode"), "shareable");
    let asked = site.docker.run(&[
        "run",
        "--rm",
        "--network",
        &format!("{}_default", site.app),
        "--entrypoint",
        "/bin/busybox",
        &busybox,
        "wget",
        "-q",
        "-O-",
        "http://web:8080/",
    ]);
    assert!(asked.contains("on twins"), "{asked}");
    let shown = agent.application().await.unwrap();
    let status = shown.status.workloads.values().next().unwrap();
    assert_eq!((status.ready_replicas, status.instances.len()), (1, 1), "a pod is one instance");

    // Nothing is done while nothing changes, not even by another agent of this state.
    // A probe runs a command inside, which changes nothing.
    let writes = || proxy.writes().into_iter().filter(|it| !it.contains("exec")).collect::<Vec<_>>();
    let (ids, before) = (pod.ids(), writes());
    agent.restart().await;
    agent.settled(&first).await;
    agent.sync().await;
    agent.settled(&first).await;
    assert_eq!(Pod::of(&site, "web").ids(), ids);
    assert_eq!(writes(), before);

    // A container of it comes back into the same pod.
    let helper = pod.part("helper").id();
    site.docker.run(&["rm", "-f", &helper]);
    let healed = site
        .until("the helper is back", |_| {
            let pod = Pod::of(&site, "web");
            let found = pod.parts.iter().find(|it| it.label("driftless.container") == "helper");
            found.filter(|it| it.state() == "running" && it.id() != helper).cloned()
        })
        .await;
    agent.settled(&first).await;
    let now = Pod::of(&site, "web");
    assert_eq!((now.pause.id(), now.part("server").id()), (pod.pause.id(), pod.part("server").id()));
    assert_eq!(exec(&healed, "cat /memory/file").trim(), "fast");
    // One that is stopped is started again.
    site.docker.run(&["stop", "-t", "0", &now.part("server").id()]);
    site.until("the server runs again", |docker| {
        docker.container(&now.part("server").id()).filter(|it| it.state() == "running")
    })
    .await;
    agent.settled(&first).await;
    // With the first container goes the pod.
    site.docker.run(&["rm", "-f", &now.pause.id()]);
    site.until("there is another pod", |_| {
        let all = site.of("web");
        let is_old = |it: &Container| now.ids().iter().any(|(id, _)| *id == it.id());
        (all.len() == 4 && !all.iter().any(is_old) && all.iter().all(|it| it.state() == "running"))
            .then_some(())
    })
    .await;
    agent.settled(&first).await;

    // A new version is a new pod, which is whole before the old one goes.
    let old = Pod::of(&site, "web");
    let volumes: Vec<String> = old.pause.0["Mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["Name"].as_str().unwrap().to_owned())
        .collect();
    commit(&site, &agent, &pair(&server, &busybox, "goodbye")).await;
    let new = Pod::of(&site, "web");
    assert!(
        old.ids().iter().all(|(id, _)| site.docker.container(id).is_none()),
        "nothing of the old is left"
    );
    let answer = exec(new.part("helper"), "/bin/busybox wget -q -O- http://127.0.0.1:8080/");
    assert!(answer.contains("goodbye"), "{answer}");
    assert_eq!(volumes.len(), 2, "what was empty at first");
    for volume in volumes {
        assert!(site.docker.attempt(&["volume", "inspect", &volume]).is_err(), "goes with its pod");
    }
}

/// Two init containers, one sidecar, and one app container that prints their output.
fn prepared(busybox: &str, second: &str) -> String {
    format!(
        "{}      terminationGracePeriodSeconds: 0
      initContainers:
        - name: first
          image: \"{busybox}\"
          command: [/bin/busybox, sh, -c, echo first >> /work/order; sleep 3]
          volumeMounts: [{{name: work, mountPath: /work}}]
        - name: beside
          image: \"{busybox}\"
          restartPolicy: Always
          command: [/bin/busybox, sh, -c, echo beside >> /work/order; while :; do sleep 1000; done]
          startupProbe: {{exec: {{command: [/bin/busybox, test, -e, /work/order]}}, periodSeconds: 1, timeoutSeconds: 30}}
          volumeMounts: [{{name: work, mountPath: /work}}]
        - name: second
          image: \"{busybox}\"
          command: [/bin/busybox, sh, -c, {second}]
          volumeMounts: [{{name: work, mountPath: /work}}]
      containers:
        - name: web
          image: \"{busybox}\"
          command: [/bin/busybox, sh, -c, cat /work/order; while :; do sleep 1000; done]
          volumeMounts: [{{name: work, mountPath: /work}}]
      volumes: [{{name: work, emptyDir: {{}}}}]
",
        manifests::deployment("web")
    )
}

#[tokio::test]
async fn failed_init_container_fails_a_pod_that_is_never_restarted() {
    let site = Site::new("initial-failed");
    let text = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: once}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  initContainers: [{{name: first, image: \"{0}\", command: [/bin/busybox, sh, -c, exit 3]}}]
  containers: [{{name: main, image: \"{0}\", command: [/bin/busybox, sleep, \"1000\"]}}]
",
        images::placeholder()
    );
    site.repository.commit(&[(&site.path("all.yaml"), &text)]);
    let agent = site.agent().await;
    let words = || -> Option<Vec<String>> {
        let listed = agent.said("get pods --no-headers");
        let words: Vec<String> = listed.split_whitespace().map(str::to_owned).collect();
        (words.get(2).map(String::as_str) == Some("Init:Error")).then_some(words)
    };
    let words = wait_until("the init container to fail", words).await;
    assert_eq!(words[1..4], ["0/1", "Init:Error", "0"], "it ran once and is not restarted");
    let phase = || {
        Some(agent.said("get pods -o jsonpath={.items[0].status.phase}")).filter(|it| it.trim() == "Failed")
    };
    wait_until("the pod to be failed", phase).await;
}

#[tokio::test]
async fn init_containers_run_in_order_once_per_pod() {
    let site = Site::new("initial");
    let busybox = images::placeholder();
    site.repository.commit(&[(&site.path("all.yaml"), &prepared(&busybox, "exit 3"))]);
    let mut agent = site.agent().await;
    let state = |it: &driftless_model::Application| {
        it.status.workloads.values().flat_map(|it| &it.instances).map(|it| it.state.clone()).next()
    };
    agent.until("the second fails", |it| state(it).is_some_and(|it| it == "Init:CrashLoopBackOff")).await;
    let listed = agent.said("get pods --no-headers");
    assert!(listed.contains("1/2") && listed.contains("Init:CrashLoopBackOff"), "{listed}");
    assert!(
        site.of("web").iter().all(|it| it.label("driftless.container") != "web"),
        "nothing comes after it"
    );

    // Another pod; the agent is killed while the first one prepares it.
    let good = "echo second >> /work/order";
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &prepared(&busybox, good))]);
    agent.sync().await;
    let first = site
        .until("the first runs in a new pod", |_| {
            let all = site.of("web");
            let new =
                all.iter().find(|it| it.label("driftless.container") == "first" && it.state() == "running");
            let is_alone = all.iter().filter(|it| it.label("driftless.container") == "second").count() <= 1;
            new.filter(|_| is_alone).cloned()
        })
        .await;
    agent.kill9();
    agent.launch();
    agent.ready().await;
    agent.settled(&commit).await;
    let pod = Pod::of(&site, "web");
    assert_eq!(pod.part("first").started(), first.started(), "it went on where it was");
    site.logged(pod.part("web"), "first\nbeside\nsecond\n").await;
    let listed = agent.said("get pods --no-headers");
    assert!(listed.contains("2/2") && listed.contains("Running"), "{listed}");
    let name = pod.pause.name();
    assert!(agent.said(&format!("logs {name} -c web")).contains("second"));
    assert!(agent.said(&format!("describe pod {name}")).contains("Init Containers:\n  first:"));

    // A container that ends is started again, without its init containers.
    let (web, was) = (pod.part("web").id(), pod.part("web").started());
    site.docker.run(&["kill", "-s", "KILL", &web]);
    site.until("it runs again", |docker| {
        docker.container(&web).filter(|it| it.state() == "running" && it.started() != was)
    })
    .await;
    agent.settled(&commit).await;
    let now = Pod::of(&site, "web");
    for part in ["first", "second", "beside"] {
        assert_eq!(now.part(part).started(), pod.part(part).started());
    }
}

#[tokio::test]
async fn job_ends_with_its_containers_then_its_sidecar() {
    let site = Site::new("work");
    let busybox = images::placeholder();
    let manifest = format!(
        "apiVersion: batch/v1
kind: Job
metadata: {{name: migrate}}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      initContainers:
        - name: beside
          image: \"{busybox}\"
          restartPolicy: Always
      containers:
        - {{name: one, image: \"{busybox}\", command: [/bin/busybox, echo, one is done]}}
        - {{name: two, image: \"{busybox}\", command: [/bin/busybox, sleep, '2']}}
"
    );
    let commit = site.repository.commit(&[(&site.path("all.yaml"), &manifest)]);
    let mut agent = site.agent().await;
    agent.settled(&commit).await;
    agent
        .until("it is complete", |application| {
            application
                .status
                .workloads
                .values()
                .all(|it| it.job.as_ref().is_some_and(|it| it.succeeded == 1))
        })
        .await;
    let pod = Pod::of(&site, "migrate");
    assert!(pod.parts.iter().chain([&pod.pause]).all(|it| it.state() == "exited"));
    let finished = |it: &Container| it.text("/State/FinishedAt");
    assert!(finished(pod.part("beside")) > finished(pod.part("two")));
    agent.restart().await;
    agent.settled(&commit).await;
    assert_eq!(Pod::of(&site, "migrate").ids(), pod.ids(), "it is not done again");
    let listed = agent.said("get pods --no-headers");
    assert!(listed.contains("Completed"), "{listed}");
    assert!(agent.said("logs job/migrate -c one").contains("one is done"));
}
