//! Kubernetes manifests for a single host: volumes, ports of Services, names and resources.

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_kubernetes::render;
use driftless_model::{Finding, HookPhase, Stack};

fn rendered(text: &str) -> Rendered {
    render(&MemoryFiles::new([("a.yaml", text)]), &AppSpec::kubernetes("shop", &["a.yaml"]))
}

#[track_caller]
fn stack(text: &str) -> Stack {
    let rendered = rendered(text);
    rendered.stack.unwrap_or_else(|| panic!("{:#?}", rendered.findings))
}

fn texts(text: &str, is_error: bool) -> Vec<String> {
    let found = rendered(text).findings;
    found.iter().filter(|it| it.is_error() == is_error).map(Finding::to_string).collect()
}

/// A Deployment with these fields of its pod, in flow style, and of its container.
fn deployment(name: &str, pod: &str, container: &str) -> String {
    format!(
        "---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: shop}}}}
  template:
    metadata: {{labels: {{app: shop}}}}
    spec:
      {pod}
      containers: [{{name: main, image: 'web:1', {container}}}]
"
    )
}

fn claim(name: &str, namespace: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: \
         {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
    )
}

fn share(volume: &str, path: &str) -> String {
    format!("volumes: [{{name: {volume}, nfs: {{server: nas, path: {path}}}}}]")
}

#[test]
fn one_docker_volume_for_two_objects_is_an_error() {
    let mounts = "volumeMounts: [{name: media, mountPath: /media}, {name: cache, mountPath: /cache}]";
    let pod = "volumes: [{name: media, nfs: {server: nas, path: /vol}}, {name: cache, persistentVolumeClaim: {claimName: web-media}}]";
    let text = deployment("web", pod, mounts) + &claim("web-media", "default");
    let found = texts(&text, true);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("would both be the Docker volume `web-media`"), "{found:#?}");

    // Of two namespaces.
    let pod = |name: &str| format!("volumes: [{{name: data, persistentVolumeClaim: {{claimName: {name}}}}}]");
    let mount = "volumeMounts: [{name: data, mountPath: /data}]";
    let other = deployment("db", &pod("data"), mount).replace("{name: db}", "{name: db, namespace: prod}");
    let text = deployment("web", &pod("data.prod"), mount)
        + &other
        + &claim("data.prod", "default")
        + &claim("data", "prod");
    assert!(texts(&text, true).concat().contains("the claim `data.prod` of the namespace `default`"));

    // Shares: those of one definition are the same.
    let shares = |path: &str| {
        deployment("media", &share("server-data", "/a"), "volumeMounts: [{name: server-data, mountPath: /a}]")
            + &deployment("media-server", &share("data", path), mount)
    };
    assert_eq!(texts(&shares("/a"), true), [""; 0]);
    assert!(texts(&shares("/b"), true).concat().contains("the volume `data` of `media-server`"));
    // One claim of two pods is one volume.
    let text = deployment("web", &pod("data"), mount) + &deployment("db", &pod("data"), mount);
    assert_eq!(stack(&(text + &claim("data", "default"))).volumes.len(), 1);
}

#[test]
fn named_port_leads_to_the_pods_that_have_it() {
    let job = "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: backup}\nspec:\n  template:\n    metadata: {labels: {app: shop}}\n    \
               spec: {restartPolicy: Never, containers: [{name: main, image: 'web:1'}]}\n";
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: front}\nspec: {selector: {app: shop}, ports: [{port: 80, targetPort: http}]}\n";
    let web = deployment("web", "", "ports: [{name: http, containerPort: 8080}]");
    let text = format!("{web}{job}{service}");
    assert_eq!(texts(&text, true), [""; 0]);
    assert_eq!(texts(&text, false), [""; 0]);
    let is_named = |stack: &Stack, workload: &str| {
        let networks = stack.workloads[&workload.into()].container.networks();
        networks.values().any(|network| network.aliases.iter().any(|alias| alias.contains("front")))
    };
    let found = stack(&text);
    assert!(is_named(&found, "web") && !is_named(&found, "backup"));
    let warnings = texts(&format!("{web}{}{service}", deployment("worker", "", "")), false);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("`worker` has no port named `http`, and gets no traffic"), "{warnings:#?}");
    let errors = texts(&format!("{}{service}", deployment("worker", "", "")), true);
    assert!(errors.concat().contains("`worker` has no port named `http`"), "{errors:#?}");
}

#[test]
fn names_of_services_do_not_resolve_on_the_network_of_the_host() {
    let of = |pod: &str| texts(&deployment("web", pod, ""), false).concat();
    let with_host = of("hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet");
    assert!(with_host.contains("does not know those of Services"), "{with_host}");
    assert_eq!(of("hostNetwork: true\n      dnsPolicy: Default"), "");
    assert!(of("dnsPolicy: Default").contains("names are always resolved by the engine"));
}

#[test]
fn entry_without_a_value_is_a_warning() {
    let object = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata:\n  LOG_FILE:\n  LEVEL: info\n";
    let text = deployment("web", "", "envFrom: [{configMapRef: {name: settings}}]") + object;
    let warnings = texts(&text, false);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("data.LOG_FILE: has no value, and the entry is left out"), "{warnings:#?}");
    let web = &stack(&text).workloads[&"web".into()].container;
    assert_eq!(web.env.keys().collect::<Vec<_>>(), ["LEVEL"], "running containers are not replaced");
}

#[test]
fn missing_request_is_the_limit_or_zero() {
    let with = |resources: &str| {
        let container = format!(
            "resources: {resources}, env: [{{name: SIZE, valueFrom: {{resourceFieldRef: {{resource: requests.memory}}}}}}]"
        );
        deployment("web", "", &container)
    };
    let size = |text: &str| stack(text).workloads[&"web".into()].container.env["SIZE"].clone().unwrap();
    assert_eq!(size(&with("{limits: {memory: 1Gi}}")), "1073741824");
    assert_eq!(size(&with("{limits: {memory: 2Gi}, requests: {memory: 1Gi}}")), "1073741824");
    assert_eq!(size(&with("{limits: {cpu: 1}}")), "0");
}

/// A Job with these annotations, in flow style.
fn job(name: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\nspec:\n  template:\n    spec: \
         {{restartPolicy: Never, containers: [{{name: main, image: 'web:1'}}]}}\n"
    )
}

#[test]
fn hooks_of_helm_run_as_with_argo_cd() {
    let web = deployment("web", "", "");
    let hook = |annotations: &str| {
        let found = stack(&format!("{web}{}", job("migrate", annotations)));
        let workload = &found.workloads[&"migrate".into()];
        (workload.hook(), workload.wave)
    };
    let before = "helm.sh/hook: 'pre-install,pre-upgrade', helm.sh/hook-weight: '-5', helm.sh/hook-delete-policy: before-hook-creation";
    assert_eq!(hook(before), (Some(HookPhase::PreSync), -5));
    assert_eq!(texts(&format!("{web}{}", job("migrate", before)), false), [""; 0]);
    assert_eq!(hook("helm.sh/hook: post-upgrade"), (Some(HookPhase::PostSync), 0));
    assert_eq!(hook("helm.sh/hook: pre-delete"), (Some(HookPhase::PreDelete), 0));
    let both = "helm.sh/hook: 'post-install,pre-upgrade', driftless.hook: PostSync, driftless.wave: '2', helm.sh/hook-weight: '1'";
    assert_eq!(hook(both), (Some(HookPhase::PostSync), 2), "the other annotations count");
    let weight = "helm.sh/hook: pre-install, driftless.hook: PreSync, helm.sh/hook-weight: '-5'";
    assert_eq!(hook(weight), (Some(HookPhase::PreSync), -5), "there is no other wave");
    let errors = texts(&format!("{web}{}", job("migrate", "helm.sh/hook: 'post-install,pre-upgrade'")), true);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].contains("is a PreSync and a PostSync hook"), "{errors:#?}");
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: db, annotations: {helm.sh/hook: 'post-install,pre-upgrade'}}\n";
    assert_eq!(texts(&format!("{web}{secret}"), true), [""; 0], "it is there before the first hook");
}

#[test]
fn hooks_of_helm_that_never_run_here_are_left_out() {
    let test = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web-test, annotations: {helm.sh/hook: test}}\nspec: {restartPolicy: \
                Never, containers: [{name: wget, image: 'busybox:1'}]}\n";
    let text = deployment("web", "", "")
        + test
        + &job("undo", "helm.sh/hook: 'pre-rollback,post-rollback'")
        + &job("drop", "helm.sh/hook: post-delete");
    let found = stack(&text);
    assert_eq!(found.workloads.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["web"]);
    let warnings = texts(&text, false);
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    assert!(
        warnings[0].contains("the Pod is left out: the hook `test` of Helm never runs here"),
        "{warnings:#?}"
    );
}

/// A LoadBalancer for all pods, or with another type.
fn service(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{selector: {{app: shop}}, {spec}}}\n"
    )
}

#[test]
fn proxy_does_not_take_the_port_of_a_pod_on_the_host() {
    let web = deployment("web", "hostNetwork: true", "ports: [{containerPort: 8123}]");
    let published = |spec: &str| {
        let text = web.clone() + &service("front", spec);
        let found = stack(&text);
        let proxy = &found.workloads[&"front_proxy".into()].container;
        let ports: Vec<u16> = proxy.ports.iter().filter_map(|port| Some(port.host.as_ref()?.first)).collect();
        let warnings = texts(&text, false).concat();
        (ports, warnings.contains("port 8123 of the host is that of `web` itself"))
    };
    assert_eq!(published("type: LoadBalancer, ports: [{port: 8123}]"), (vec![], true));
    let both = "type: LoadBalancer, ports: [{name: a, port: 8123}, {name: b, port: 80, targetPort: 8123}]";
    assert_eq!(published(both), (vec![80], true));
    assert_eq!(published("type: NodePort, ports: [{port: 8123, nodePort: 30123}]"), (vec![30123], false));
    assert_eq!(
        published("type: LoadBalancer, ports: [{port: 8123, protocol: UDP, targetPort: 9}]").0,
        [8123]
    );
}

#[test]
fn port_on_the_network_of_the_host_is_one_of_the_host() {
    let pod = |name: &str, port: &str| deployment(name, "hostNetwork: true", &format!("ports: [{{{port}}}]"));
    let errors = |text: String| texts(&text, true);
    let two = errors(pod("one", "containerPort: 80") + &pod("two", "containerPort: 80"));
    assert_eq!(two.len(), 1, "{two:#?}");
    assert!(two[0].contains("port 80 of the host is already taken by `one`"), "{two:#?}");
    let published = deployment("two", "", "ports: [{containerPort: 8080, hostPort: 80}]");
    assert_eq!(errors(pod("one", "containerPort: 80") + &published).len(), 1);

    // Other addresses, another protocol, one that does not run, and one that ends.
    let other = "containerPort: 80, hostIP: 192.0.2.7";
    assert_eq!(errors(pod("one", "containerPort: 80") + &pod("two", other)), [""; 0]);
    let udp = "containerPort: 80, protocol: UDP";
    assert_eq!(errors(pod("one", "containerPort: 80") + &pod("two", udp)), [""; 0]);
    let stopped =
        pod("two", "containerPort: 80").replace("spec:\n  selector", "spec:\n  replicas: 0\n  selector");
    assert_eq!(errors(pod("one", "containerPort: 80") + &stopped), [""; 0]);
    let ports = "image: 'web:1', ports: [{containerPort: 80}]";
    let job = job("two", "").replace("restartPolicy", "hostNetwork: true, restartPolicy");
    assert_eq!(errors(pod("one", "containerPort: 80") + &job.replace("image: 'web:1'", ports)), [""; 0]);
    let init = format!("hostNetwork: true\n      initContainers: [{{name: first, {ports}}}]");
    assert_eq!(errors(pod("one", "containerPort: 80") + &deployment("two", &init, "")), [""; 0]);
}

#[test]
fn workloads_for_two_architectures_may_have_one_host_port() {
    let errors = |more: &str, port: &str| -> Vec<usize> {
        let pod = |architecture: &str| {
            let pod = format!("{more}nodeSelector: {{kubernetes.io/arch: {architecture}}}");
            deployment(&format!("exporter-{architecture}"), &pod, &format!("ports: [{{{port}}}]"))
        };
        let any = deployment("exporter", more.trim_end(), &format!("ports: [{{{port}}}]"));
        let found = |text: String| texts(&text, true).len();
        vec![found(pod("amd64") + &pod("arm64")), found(pod("amd64") + &any)]
    };
    assert_eq!(errors("hostNetwork: true\n      ", "containerPort: 9100"), [0, 1]);
    assert_eq!(errors("", "containerPort: 9100, hostPort: 9100"), [0, 1]);
}

#[test]
fn pod_without_logins_has_those_of_its_service_account() {
    let file = r#"{"auths": {"registry.example.com": {"auth": "YTpi"}}}"#;
    let secret = |name: &str| {
        // Another content, so that the two are two logins.
        let file = format!("{file}{}", " ".repeat(name.len()));
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{.dockerconfigjson: '{file}'}}\n"
        )
    };
    let account = |name: &str, secret: &str| {
        format!(
            "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: {name}}}\nimagePullSecrets: [{{name: {secret}}}]\n"
        )
    };
    let secrets = secret("a") + &secret("own");
    let logins = |pod: &str, account: &str| {
        let text = deployment("web", pod, "") + &secrets + account;
        assert_eq!(texts(&text, false), [""; 0], "{text}");
        stack(&text).workloads[&"web".into()].pull_secrets.clone()
    };
    let of_account = logins("serviceAccountName: web", &account("web", "a"));
    assert_eq!(of_account.len(), 1);
    assert_eq!(logins("serviceAccountName: ''", &account("default", "a")), of_account);
    assert!(logins("restartPolicy: Always", &account("web", "a")).is_empty(), "another account");
    let own = "serviceAccountName: web\n      imagePullSecrets: [{name: own}]";
    let of_pod = logins(own, &account("web", "a"));
    assert!(of_pod.len() == 1 && of_pod != of_account, "{of_pod:?}");

    let missing = deployment("web", "serviceAccountName: web", "") + &account("web", "regcred");
    let warnings = texts(&missing, false);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("there is no Secret `regcred` in this application"), "{warnings:#?}");
    for (data, message) in [
        (".dockerconfigjson: eyJh", "the Secret `regcred` is not a file as `docker login` writes it"),
        ("password: a", "the Secret `regcred` holds no login for a registry"),
    ] {
        let secret = format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: regcred}}\nstringData: {{{data}}}\n"
        );
        let errors = texts(&(missing.clone() + &secret), true);
        assert!(errors.len() == 1 && errors[0].contains(message), "{errors:#?}");
    }
    let bare = account("web", "a").replace("[{name: a}]", "[]");
    assert!(texts(&(deployment("web", "", "") + &bare), false).concat().contains("has no effect"));
}
