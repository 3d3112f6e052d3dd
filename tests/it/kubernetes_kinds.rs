//! Kubernetes beyond the Deployment: what workloads refer to, what answers to which name, and what owns a pod.

use std::collections::{BTreeMap, BTreeSet};

use driftless_files::Rendered;
use driftless_model::{
    Access, Completion, Content, Mount, MountSource, NetworkMode, PROXY_IMAGE, PortRange, RestartPolicy,
    Stack, Strategy, Workload,
};

use crate::kubernetes_manifests::{assert_findings, findings, lines, render, stack_without_findings};

fn rendered(text: &str) -> (Stack, Rendered) {
    let rendered = render(text);
    let stack = rendered.stack.clone().unwrap_or_else(|| panic!("{:#?}", lines(&rendered.findings)));
    (stack, rendered)
}

/// A Deployment of one container, with more lines for its pod and its container.
fn deployment(name: &str, pod: &str, container: &str) -> String {
    let indent = |text: &str, by: usize| -> String {
        text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
    };
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: \
         {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n{}      containers:\n\
         \x20     - name: main\n        image: nginx:1.27\n{}",
        indent(pod, 6),
        indent(container, 8),
    )
}

fn service(name: &str, spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

const SETTINGS: &str = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast, a.conf: \"x=1\", \
                        1up: yes please}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\ndata: {password: \
                        aHVudGVyMg==}\nstringData: {user: app}\n";

fn web(stack: &Stack) -> &Workload {
    &stack.workloads[&"web".into()]
}

fn env(workload: &Workload) -> BTreeMap<&str, &str> {
    let all = workload.container.env.iter();
    all.map(|(name, value)| (name.as_str(), value.as_deref().unwrap_or("(none)"))).collect()
}

fn aliases<'a>(stack: &'a Stack, workload: &str, network: &str) -> Vec<&'a str> {
    let NetworkMode::Networks(networks) = &stack.workloads[&workload.into()].container.network_mode else {
        panic!("no networks");
    };
    networks[network].aliases.iter().map(String::as_str).collect()
}

#[test]
fn variables_from_secrets_are_marked_as_secret() {
    let container = "envFrom:\n- {configMapRef: {name: settings}, prefix: S_}\n- {secretRef: {name: login}}\n\
                     - {configMapRef: {name: none, optional: true}}\nenv:\n- {name: MODE, valueFrom: {configMapKeyRef: \
                     {name: settings, key: mode}}}\n- {name: URL, value: \"db://$(user):$(password)@db\"}\n\
                     - {name: user, value: root}\n- {name: GONE, valueFrom: {secretKeyRef: {name: login, key: nope, \
                     optional: true}}}\n- {name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}\n\
                     - {name: APP, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['app']\"}}}\n- {name: MEMORY, \
                     valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}\n- {name: CPU, valueFrom: \
                     {resourceFieldRef: {resource: limits.cpu}}}\nresources: {limits: {memory: 64Mi, cpu: 1500m}}";
    let stack = stack_without_findings(&format!("{SETTINGS}{}", deployment("web", "", container)));
    let expected = [
        ("APP", "web"),
        ("CPU", "2"),
        ("MEMORY", "64"),
        ("MODE", "fast"),
        ("SPACE", "default"),
        ("S_1up", "yes please"),
        ("S_a.conf", "x=1"),
        ("S_mode", "fast"),
        ("URL", "db://app:hunter2@db"),
        ("password", "hunter2"),
        ("user", "root"),
    ];
    assert_eq!(env(web(&stack)), BTreeMap::from(expected));
    let secret: BTreeSet<&str> = web(&stack).secret_env.iter().map(String::as_str).collect();
    assert_eq!(
        secret,
        BTreeSet::from(["URL", "password"]),
        "what is made of a secret is one; `user` was replaced"
    );
}

/// As in the output of `helm template --namespace`, where a chart writes the namespace into some objects only.
#[test]
fn reference_into_another_namespace_is_explained() {
    let in_cloud = |text: &str, name: &str| {
        let (own, other) =
            (format!("metadata: {{name: {name}}}"), format!("{{name: {name}, namespace: cloud}}"));
        text.replace(&own, &format!("metadata: {other}"))
    };
    let help =
        "(there is one in the namespace `cloud`, and this pod is in `default`: write `namespace: cloud` into";
    let env = "env:\n- name: A\n  valueFrom: {secretKeyRef: {name: login, key: user}}";
    let settings = in_cloud(SETTINGS, "login");
    let expected = format!("there is no Secret `login` in the namespace of this pod {help}");
    assert_findings(&format!("{settings}{}", deployment("web", "", env)), &[expected.as_str()]);
    let claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: \
                 [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n";
    let pod = deployment(
        "web",
        "volumes:\n- {name: data, persistentVolumeClaim: {claimName: data}}",
        "volumeMounts:\n- {name: data, mountPath: /data}",
    );
    let found = findings(&format!("{}{pod}", in_cloud(claim, "data")));
    let expected = format!("there is no PersistentVolumeClaim `data` in the namespace of this pod {help}");
    assert!(found.iter().any(|line| line.contains(&expected)), "{found:#?}");
    let web = in_cloud(&deployment("web", "", ""), "web");
    assert_findings(
        &format!("{web}{}", service("web", "{selector: {app: web}, ports: [{port: 1}]}")),
        &[
            "so its name does not resolve (there is one in the namespace `cloud`, and this Service is in `default`",
        ],
    );
}

#[test]
fn reference_to_a_missing_object_is_an_error_at_its_place() {
    let from = |text: &str| {
        format!("{SETTINGS}{}", deployment("web", "", &format!("env:\n- name: A\n  valueFrom: {text}")))
    };
    assert_findings(
        &from("{secretKeyRef: {name: nope, key: a}}"),
        &["valueFrom.secretKeyRef.name: there is no Secret `nope`"],
    );
    assert_findings(
        &from("{secretKeyRef: {name: login, key: pw}}"),
        &["has no such key (it has password, user)"],
    );
    assert_findings(
        &from("{fieldRef: {fieldPath: metadata.uid}}"),
        &["is not supported: pods have no unique id here"],
    );
    assert_findings(
        &from("{resourceFieldRef: {resource: limits.cpu}}"),
        &["the container sets no limits.cpu"],
    );
    let mount = |volume: &str, mount: &str| {
        let (pod, container) = (format!("volumes:\n- {volume}"), format!("volumeMounts:\n- {mount}"));
        format!("{SETTINGS}{}", deployment("web", &pod, &container))
    };
    let at = "{name: v, mountPath: /v}";
    assert_findings(&mount("{name: v, configMap: {name: nope}}", at), &["there is no ConfigMap `nope`"]);
    assert_findings(&mount("{name: v, secret: {secretName: nope}}", at), &["there is no Secret `nope`"]);
    assert_findings(
        &mount("{name: v, projected: {sources: [{configMap: {name: kube-root-ca.crt}}]}}", at),
        &["warning: spec.template.spec.volumes[0].projected.sources[0].configMap.name: has no effect"],
    );
    assert_findings(
        &mount("{name: v, persistentVolumeClaim: {claimName: nope}}", at),
        &["no PersistentVolumeClaim `nope`"],
    );
    assert_findings(
        &mount("{name: vol, emptyDir: {}}", "{name: vole, mountPath: /v}"),
        &["(did you mean `vol`?)"],
    );
    assert_findings(
        &mount("{name: v, hostPath: {path: a/b}}", at),
        &["must be an absolute path of the host"],
    );
    assert_findings(
        &mount("{name: v, hostPath: {path: /a, type: FileOrCreate}}", at),
        &["`FileOrCreate` is not supported"],
    );
    assert_findings(
        &mount("{name: v, configMap: {name: settings, items: [{key: mode, path: ../x}]}}", at),
        &["without `..`"],
    );
    assert_findings(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: \"%%%\"}\n",
        &["data.a: is not base64"],
    );
}

#[test]
fn no_value_of_a_secret_is_in_a_finding() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: hunter2-in-clear}\nstringData: {b: 3141592}\n";
    let all = findings(text).join("\n");
    assert!(!all.contains("hunter2") && !all.contains("3141592"), "{all}");
}

#[test]
fn volumes_become_content_docker_volumes_or_folders() {
    let pod = "volumes:\n- {name: all, configMap: {name: settings}}\n- {name: pw, secret: {secretName: login, items: \
               [{key: password, path: pw, mode: 0555}]}}\n- {name: data, persistentVolumeClaim: {claimName: files}}\n\
               - {name: tmp, emptyDir: {}}\n- {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}\n- {name: host, \
               hostPath: {path: /srv, type: Directory}}\n- {name: dev, hostPath: {path: /dev/null, type: CharDevice}}\n\
               - {name: mixed, projected: {sources: [{configMap: {name: settings, items: [{key: mode, path: m}]}}, \
               {secret: {name: login}}]}}";
    let container = "env: [{name: WHO, value: me}]\nvolumeMounts:\n- {name: all, mountPath: /all/}\n- {name: all, mountPath: \
                     /etc/a.conf, subPath: a.conf}\n- {name: pw, mountPath: /pw}\n- {name: data, mountPath: /data, \
                     readOnly: true}\n- {name: tmp, mountPath: /tmp}\n- {name: mem, mountPath: /mem}\n- {name: host, \
                     mountPath: /host, subPathExpr: $(WHO), mountPropagation: HostToContainer}\n- {name: dev, mountPath: \
                     /dev/nothing}\n- {name: mixed, mountPath: /mixed}";
    let claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: files}\nspec: {accessModes: \
                 [ReadWriteOnce]}\n";
    let (stack, rendered) = rendered(&format!("{SETTINGS}{claim}{}", deployment("web", pod, container)));
    let container = &web(&stack).container;
    let of = |target: &str| -> &Mount { container.mounts.iter().find(|it| it.target == target).unwrap() };
    let content = |id| match &rendered.contents[id] {
        Content::File { bytes, executable } => format!("{}{executable}", String::from_utf8_lossy(bytes)),
        Content::Owned { mode, .. } => panic!("mode {mode:o}"),
        Content::Folder(tree) => {
            let files = tree.iter().map(|(path, (bytes, access))| {
                format!(
                    "{path}={}{}",
                    String::from_utf8_lossy(bytes),
                    match access {
                        Access::Read => String::new(),
                        Access::Run => "*".to_owned(),
                        Access::Asked { mode, group } => format!(" {mode:04o} {group:?}"),
                    }
                )
            });
            files.collect::<Vec<_>>().join(",")
        }
    };
    let MountSource::Content(all) = &of("/all").source else { panic!("{:?}", of("/all")) };
    assert_eq!(content(all), "1up=yes please,a.conf=x=1,mode=fast");
    assert!(of("/all").read_only);
    let MountSource::Content(one) = &of("/etc/a.conf").source else { panic!() };
    assert_eq!(content(one), "x=1false");
    let MountSource::Secret(pw) = &of("/pw").source else { panic!("a Secret is never on a disk") };
    assert_eq!(content(pw), "pw=hunter2*");
    let MountSource::Secret(mixed) = &of("/mixed").source else {
        panic!("one secret makes all of it secret")
    };
    assert_eq!(content(mixed), "m=fast,password=hunter2,user=app");
    assert_eq!(of("/data").source, MountSource::Volume { name: "shop_files".into(), no_copy: true });
    assert!(of("/data").read_only);
    assert_eq!(stack.volumes.keys().collect::<Vec<_>>(), ["shop_files"]);
    assert_eq!(of("/tmp").source, MountSource::Empty);
    assert_eq!(of("/mem").source, MountSource::Empty);
    assert_eq!(container.host.mount_options["/mem"].tmpfs, ["mode=1777", "size=1048576"]);
    let bind = |it: &MountSource| match it {
        MountSource::Bind { path, create, propagation, .. } => (path.clone(), *create, propagation.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(bind(&of("/host").source), ("/srv/me".into(), false, Some("rslave".into())));
    assert_eq!(container.devices, [("/dev/null".to_owned(), "/dev/nothing".to_owned(), "rwm".to_owned())]);
}

#[test]
fn mounted_files_have_their_mode_and_the_group_of_the_pod() {
    let modes = |security: &str| {
        let pod = format!(
            "{security}volumes: [{{name: s, configMap: {{name: settings, defaultMode: 0600, items: [{{key: mode, \
             path: mode}}, {{key: a.conf, path: a, mode: 0644}}, {{key: 1up, path: run, mode: 0750}}]}}}}]"
        );
        let mounts = "volumeMounts: [{name: s, mountPath: /s}, {name: s, mountPath: /m, subPath: mode}]";
        let (stack, rendered) = rendered(&format!("{SETTINGS}{}", deployment("web", &pod, mounts)));
        let content = |target: &str| {
            let mounts = &web(&stack).container.mounts;
            let mount = mounts.iter().find(|it| it.target == target).unwrap();
            let MountSource::Content(id) = &mount.source else { panic!("{mount:?}") };
            rendered.contents[id].clone()
        };
        let Content::Folder(tree) = content("/s") else { panic!("a folder") };
        let Content::Owned { mode, uid, gid, .. } = content("/m") else { panic!("a file that is root's") };
        (["a", "mode", "run"].map(|it| tree[it].1), (mode, uid, gid))
    };
    let asked = |mode, group| Access::Asked { mode, group };
    // Nobody writes to what is mounted read-only.
    let alone = [Access::Read, asked(0o400, None), asked(0o550, None)];
    assert_eq!(modes(""), (alone, (0o400, 0, 0)));
    let group = Some(3000);
    let shared = [Access::Read, asked(0o440, group), asked(0o550, group)];
    assert_eq!(modes("securityContext: {fsGroup: 3000}\n"), (shared, (0o440, 0, 3000)));
}

#[test]
fn on_the_network_of_the_host_a_pod_has_its_name() {
    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: web, image: web:1}]\n";
    let pod =
        |network: &str| web(&stack_without_findings(&format!("{POD}{network}"))).container.hostname.clone();
    assert_eq!(pod("").as_deref(), Some("web"));
    assert_eq!(pod("  hostNetwork: true\n"), None);
    let named = render(&format!("{POD}  hostNetwork: true\n  hostname: front\n"));
    assert_eq!(
        lines(&named.findings),
        [
            "a.yaml:7:13: warning: spec.hostname: has no effect with `hostNetwork`: the pod has the name of the host"
        ]
    );
    assert_eq!(web(&named.stack.unwrap()).container.hostname, None);
}

#[test]
fn another_content_of_a_config_map_is_another_container() {
    let of = |mode: &str| {
        let pod = "volumes:\n- {name: all, configMap: {name: settings}}";
        let text =
            format!("{SETTINGS}{}", deployment("web", pod, "volumeMounts:\n- {name: all, mountPath: /all}"));
        web(&stack_without_findings(&text.replace("mode: fast", &format!("mode: {mode}")))).container.spec()
    };
    assert_eq!(of("fast"), of("fast"));
    assert_ne!(of("fast"), of("slow"));
}

#[test]
fn image_is_inspected_where_only_it_names_the_user() {
    let asks = |pod: &str, own: &str| {
        web(&stack_without_findings(&deployment(
            "web",
            &format!("securityContext: {pod}"),
            &format!("securityContext: {own}"),
        )))
        .container
        .host
        .non_root
    };
    assert!(asks("{runAsNonRoot: true}", "{}") && asks("{}", "{runAsNonRoot: true}"));
    assert!(!asks("{runAsNonRoot: true}", "{runAsNonRoot: false}"), "the container's word counts");
    assert!(!asks("{runAsNonRoot: true}", "{runAsUser: 1000}"), "it is the manifest that says it");
}

#[test]
fn volumes_are_given_to_the_group_of_the_pod() {
    let volumes = "volumes: [{name: e, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}, {name: c, persistentVolumeClaim: {claimName: c}}, {name: h, hostPath: {path: /h}}]";
    let mounts = "volumeMounts:\n- {name: e, mountPath: /e, subPath: a}\n- {name: e, mountPath: /f, subPath: b}\n- {name: m, mountPath: /m}\n- {name: c, mountPath: /c}\n- {name: c, mountPath: /r, readOnly: true}\n- {name: h, mountPath: /h}";
    let claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {}\n";
    let plain = format!("{claim}{}", deployment("web", volumes, mounts));
    let plain = stack_without_findings(&plain);
    let options = &web(&plain).container.host.mount_options;
    assert_eq!(options.keys().collect::<Vec<_>>(), ["/m"]);
    assert_eq!(options["/m"].tmpfs, ["mode=1777"]);
    let security = "securityContext: {fsGroup: 3000, fsGroupChangePolicy: OnRootMismatch}";
    let grouped = stack_without_findings(&format!(
        "{claim}{}",
        deployment("web", &format!("{security}\n{volumes}"), mounts)
    ));
    let container = &web(&grouped).container;
    assert_eq!(container.group_add, ["3000"]);
    let given = |target: &str| container.host.mount_options.get(target).and_then(|it| it.group);
    assert_eq!(
        ["/e", "/f", "/c", "/m", "/r", "/h"].map(given),
        [Some(3000), Some(3000), Some(3000), None, None, None]
    );
    assert_eq!(container.host.mount_options["/m"].tmpfs, ["gid=3000", "mode=3777"]);

    let twice = |mounts: &str| {
        deployment("web", "volumes: [{name: e, emptyDir: {}}]", &format!("volumeMounts:\n{mounts}"))
    };
    let seen = ["`e` is also mounted in line 15, and its files would be missing there"];
    assert_findings(&twice("- {name: e, mountPath: /a}\n- {name: e, mountPath: /b}"), &seen);
    assert_findings(
        &twice("- {name: e, mountPath: /a, subPath: x/y}\n- {name: e, mountPath: /b, subPath: x}"),
        &seen,
    );
    let always = deployment("web", "securityContext: {fsGroup: 1, fsGroupChangePolicy: Always}", "");
    assert_findings(
        &always,
        &["fsGroupChangePolicy: has no effect: the folder of the volume gets the group"],
    );
}

#[test]
fn claim_uses_the_path_of_its_persistent_volume() {
    let text = |volume: &str| {
        format!(
            "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: files}}\nspec: {{volumeName: \
             disk}}\n---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: disk}}\nspec: {volume}\n{}",
            deployment(
                "web",
                "volumes:\n- {name: v, persistentVolumeClaim: {claimName: files}}",
                "volumeMounts:\n- {name: v, mountPath: /v}",
            )
        )
    };
    let local = stack_without_findings(&text("{local: {path: /srv/files}}"));
    let bind =
        MountSource::Bind { path: "/srv/files".into(), create: false, propagation: None, selinux: None };
    assert_eq!(web(&local).container.mounts[0].source, bind);
    assert!(local.volumes.is_empty());
    let nfs = stack_without_findings(&text("{nfs: {server: nas, path: /x}}"));
    let options = &nfs.volumes["shop_files"].options;
    assert_eq!((options["o"].as_str(), options["device"].as_str()), ("addr=nas,rw", ":/x"));
    assert_findings(
        &text("{local: {path: /a}}").replace("name: disk}\nspec", "name: other}\nspec"),
        &["claims the PersistentVolume `disk`"],
    );
}

#[test]
fn service_is_a_network_alias_of_its_pods() {
    let text = format!(
        "{}{}{}{}",
        deployment("web", "", "ports: [{name: http, containerPort: 80}]"),
        deployment("api", "", ""),
        service("web", "{selector: {app: api}, ports: [{port: 80}]}"),
        service("front", "{selector: {app: web}, ports: [{port: 80, targetPort: http}]}"),
    );
    let stack = stack_without_findings(&text);
    let full = |name: &str| {
        [".default", ".default.svc", ".default.svc.cluster.local"].map(|it| format!("{name}{it}"))
    };
    let mut expected = vec!["front".to_owned()];
    expected.extend(full("front"));
    assert_eq!(
        aliases(&stack, "web", "shop_default"),
        expected,
        "its own name is that of a Service elsewhere"
    );
    let mut expected = vec!["api".to_owned(), "web".to_owned()];
    expected.extend(full("web"));
    assert_eq!(aliases(&stack, "api", "shop_default"), expected);
}

#[test]
fn short_names_hold_within_their_namespace() {
    let both = |namespace: &str| {
        format!(
            "{}{}",
            deployment("web", "", ""),
            service("db", "{selector: {app: web}, ports: [{port: 1}]}")
        )
        .replace("metadata: {name: web}", &format!("metadata: {{name: web, namespace: {namespace}}}"))
        .replace("metadata: {name: db}", &format!("metadata: {{name: db, namespace: {namespace}}}"))
    };
    let stack = stack_without_findings(&format!("{}{}", both("one"), both("two")));
    let networks: Vec<&str> = stack.networks.keys().map(String::as_str).collect();
    assert_eq!(networks, ["shop_default", "shop_namespace-one", "shop_namespace-two"]);
    assert_eq!(aliases(&stack, "web.one", "shop_namespace-one"), ["db", "web"]);
    let far = ["db.one", "db.one.svc", "db.one.svc.cluster.local", "web.one"];
    assert_eq!(aliases(&stack, "web.one", "shop_default"), far);
}

#[test]
fn ports_of_services_are_published_and_checked() {
    let with = |kind: &str, port: &str, replicas: u32| {
        let web = deployment("web", "", "ports: [{containerPort: 8080}]");
        let web = web.replace("spec:\n  selector", &format!("spec:\n  replicas: {replicas}\n  selector"));
        format!(
            "{web}{}",
            service("web", &format!("{{type: {kind}, selector: {{app: web}}, ports: [{port}]}}"))
        )
    };
    let direct = stack_without_findings(&with("NodePort", "{port: 8080, nodePort: 30080}", 1));
    assert_eq!(direct.workloads.len(), 1);
    let port = &web(&direct).container.ports[0];
    assert_eq!((port.container, port.host), (8080, Some(PortRange::one(30080))));
    assert!(web(&direct).container.expose.is_empty());
    assert_findings(
        &with("NodePort", "{port: 80, nodePort: 80}", 1),
        &["must be from 30000 to 32767, but is 80"],
    );
    assert_findings(
        &with("ClusterIP", "{port: 80, nodePort: 30080}", 1),
        &["must not be set when `type` is `ClusterIP`"],
    );
    assert_findings(
        &with("ClusterIP", "{port: 80, targetPort: nope}", 1),
        &["`web` has no port named `nope`"],
    );
    assert_findings(
        &with("ClusterIP", "{port: 1, protocol: SCTP, targetPort: 2}", 1),
        &["SCTP is forwarded to one instance only"],
    );
    assert_findings(&with("ExternalName", "{port: 80}", 1), &["`externalName` is missing"]);
    let lost = format!(
        "{}{}",
        deployment("web", "", ""),
        service("x", "{selector: {app: wbe}, ports: [{port: 1}]}")
    );
    assert_findings(
        &lost,
        &["`x` selects no workload of this application, so its name does not resolve (`web` has `app: web`"],
    );
    let none = format!("{}{}", deployment("web", "", ""), service("x", "{ports: [{port: 1}]}"));
    assert_findings(
        &none,
        &["warning: spec: has no effect: a Service without a selector needs hand-written endpoints"],
    );
    let with_field = |field: &str| {
        with("ClusterIP", "{port: 8080}", 2)
            .replace("selector: {app: web}, ports", &format!("{field}, selector: {{app: web}}, ports"))
    };
    assert_findings(
        &with_field("sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}"),
        &["must be from 1 to 86400"],
    );
    assert_findings(
        &with_field("sessionAffinityConfig: {clientIP: {timeoutSeconds: 1}}"),
        &["must not be set when `sessionAffinity` is `None`"],
    );
    assert_findings(&with_field("externalIPs: [0.0.0.0]"), &["`0.0.0.0` is not an IP address by which"]);
    assert_findings(
        &with_field("loadBalancerSourceRanges: [10.0.0.0/8, 0.0.0.0/0]"),
        &["warning: spec.loadBalancerSourceRanges: has no effect: a published port admits all clients"],
    );
    assert_findings(
        &with_field("loadBalancerSourceRanges: [10.0.0.0/8]"),
        &["error: spec.loadBalancerSourceRanges: is not supported yet"],
    );
    let both = with_field("type: LoadBalancer, clusterIP: None").replace("{type: ClusterIP, ", "{");
    assert_findings(&both, &["a Service without an address of its own cannot be published"]);
}

#[test]
fn service_gets_a_proxy_where_names_do_not_suffice() {
    let with = |spec: &str, replicas: u32| {
        let web = deployment("web", "", "ports: [{name: http, containerPort: 8080}]");
        let web = web.replace("spec:\n  selector", &format!("spec:\n  replicas: {replicas}\n  selector"));
        format!("{web}{}", service("front", &format!("{{selector: {{app: web}}, {spec}}}")))
    };
    let command =
        |stack: &Stack| stack.workloads.get(&"front_proxy_worker".into())?.container.command.clone();
    let words = |text: &[&str]| Some(text.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());

    let elsewhere = stack_without_findings(&with("ports: [{port: 80, targetPort: http}]", 3));
    assert_eq!(
        command(&elsewhere),
        words(&["proxy", "--ready-only", "--hand-over", "80/tcp=_front._web:8080"])
    );
    assert_eq!(aliases(&elsewhere, "web", "shop_default"), ["_front._web", "web"]);
    let names = ["front", "front.default", "front.default.svc", "front.default.svc.cluster.local"];
    assert_eq!(aliases(&elsewhere, "front_proxy", "shop_default"), names);
    let proxy = &elsewhere.workloads[&"front_proxy".into()];
    assert_eq!((proxy.replicas, proxy.container.ports.len()), (1, 0));
    assert!(proxy.container.read_only && proxy.container.cap_drop == ["ALL"]);
    assert_eq!(elsewhere.inventory.workloads[&"front_proxy".into()].to_string(), "Service default/front");

    let published = stack_without_findings(&with(
        "type: NodePort, externalIPs: [192.0.2.1], ports: [{port: 8080, nodePort: 30080}]",
        2,
    ));
    assert!(web(&published).container.ports.is_empty(), "the proxy holds the ports");
    let held = &published.workloads[&"front_proxy".into()].container.ports;
    let held: Vec<_> =
        held.iter().map(|it| (it.container, it.host_ip.map(|it| it.to_string()), it.host)).collect();
    let one = |port| Some(PortRange::one(port));
    assert_eq!(held, [(8080, None, one(30080)), (8080, Some("192.0.2.1".to_owned()), one(8080))]);
    let balanced = with("type: LoadBalancer, externalIPs: [192.0.2.1], ports: [{port: 8080}]", 2);
    let held = &stack_without_findings(&balanced).workloads[&"front_proxy".into()].container.ports;
    assert_eq!((held.len(), held[0].host), (1, one(8080)), "on all addresses of the host");

    let sticky = |replicas| {
        stack_without_findings(&with("sessionAffinity: ClientIP, ports: [{port: 8080}]", replicas))
    };
    let expected =
        words(&["proxy", "--affinity=10800", "--ready-only", "--hand-over", "8080/tcp=_front._web:8080"]);
    assert_eq!(command(&sticky(2)), expected);
    assert_eq!(command(&sticky(1)), None, "one instance is always the same");
    for direct in ["ports: [{port: 8080}]", "clusterIP: None, ports: [{port: 80, targetPort: http}]"] {
        assert_eq!(command(&stack_without_findings(&with(direct, 3))), None, "{direct}");
    }

    // Two workloads with the named port at different numbers, and one of them on the host's own network.
    let text = format!(
        "{}{}{}",
        deployment("one", "", "ports: [{name: http, containerPort: 1}]"),
        deployment("two", "hostNetwork: true", "ports: [{name: http, containerPort: 2}]"),
        service(
            "front",
            "{selector: {tier: all}, ports: [{name: a, port: 80, targetPort: http}, {name: b, port: 53, protocol: UDP}]}"
        ),
    );
    let both = stack_without_findings(
        &text
            .replace("labels: {app: one}", "labels: {app: one, tier: all}")
            .replace("labels: {app: two}", "labels: {app: two, tier: all}"),
    );
    let ends = ["80/tcp=_front._one:1,_host.two:2", "53/udp=_front._one:53,_host.two:53"];
    assert_eq!(command(&both), words(&["proxy", "--ready-only", "--hand-over", ends[0], ends[1]]));
    assert_eq!(both.workloads[&"front_proxy".into()].container.extra_hosts, ["_host.two:host-gateway"]);
}

#[test]
fn annotation_gives_a_service_a_proxy() {
    let annotated = |annotation: &str, spec: &str| {
        let head = format!("{{name: front, annotations: {{{annotation}}}}}");
        let front = service("front", &format!("{{selector: {{app: web}}, {spec}}}"));
        deployment("web", "", "tty: false") + &front.replace("{name: front}", &head)
    };
    let ports = "ports: [{port: 8080}]";
    let direct = stack_without_findings(&annotated("", ports));
    assert_eq!(aliases(&direct, "web", "shop_default")[0], "front");
    let asked = stack_without_findings(&annotated("driftless.proxy: 'true'", ports));
    assert!(asked.workloads.contains_key(&"front_proxy_worker".into()));
    assert_eq!(aliases(&asked, "front_proxy", "shop_default")[0], "front");
    assert_eq!(aliases(&asked, "web", "shop_default"), ["_front._web", "web"]);

    for (annotation, spec, expected) in [
        ("driftless.proxy: 'no'", ports, "driftless.proxy: `no` is not a value of this field"),
        ("driftless.proxy: true", ports, "driftless.proxy: must be a string, but it is a boolean"),
        ("driftless.proxi: 'true'", ports, "metadata.annotations: has no effect"),
        (
            "driftless.proxy: 'true'",
            "clusterIP: None, ports: [{port: 8080}]",
            "a headless Service has no proxy",
        ),
        ("driftless.proxy: 'true'", "ports: [{port: 8080, protocol: SCTP}]", "a proxy does not forward SCTP"),
        (
            "driftless.proxy: 'true'",
            "type: ExternalName, externalName: a.example, ports: [{port: 8080}]",
            "driftless.proxy: has no effect: an ExternalName has a proxy in any case",
        ),
    ] {
        assert_findings(&annotated(annotation, spec), &[expected]);
    }
    let of_pods = "metadata: {name: web, annotations: {driftless.proxy: 'true'}}";
    let text = deployment("web", "", "tty: false").replace("metadata: {name: web}", of_pods);
    assert_findings(&text, &["metadata.annotations: has no effect"]);
}

#[test]
fn services_of_probed_pods_forward_to_ready_pods_only() {
    let probe = "readinessProbe: {tcpSocket: {port: 8080}}";
    let init = "initContainers: [{name: first, image: a:1}]";
    let with = |controller: &str, pod: &str, container: &str, spec: &str| {
        let web = deployment("web", pod, container);
        let web = web.replace("spec:\n  selector", &format!("spec:\n  {controller}\n  selector"));
        let text = format!(
            "{web}{}",
            service("front", &format!("{{selector: {{app: web}}, {spec}, ports: [{{port: 8080}}]}}"))
        );
        let found = stack_without_findings(&text);
        let proxy = found.workloads.get(&"front_proxy_worker".into())?;
        Some((proxy.container.command.clone().unwrap(), proxy.container.image.clone()))
    };
    let ready = Some((
        ["proxy", "--ready-only", "--hand-over", "8080/tcp=_front._web:8080"].map(str::to_owned).to_vec(),
        PROXY_IMAGE.to_owned(),
    ));
    for (controller, pod, container) in [
        ("replicas: 2", "", probe),
        ("replicas: 2", "", "startupProbe: {tcpSocket: {port: 8080}}"),
        ("replicas: 2", init, "tty: false"),
        ("strategy: {type: RollingUpdate}", "", probe),
    ] {
        assert_eq!(
            with(controller, pod, container, "type: ClusterIP"),
            ready,
            "{controller} {pod} {container}"
        );
    }
    for (controller, container, spec) in [
        ("replicas: 2", "tty: false", "type: ClusterIP"),
        ("replicas: 2", probe, "publishNotReadyAddresses: true"),
        ("replicas: 2", probe, "clusterIP: None"),
        ("strategy: {type: Recreate}", probe, "type: ClusterIP"),
    ] {
        assert_eq!(with(controller, "", container, spec), None, "{controller} {container} {spec}");
    }
    // Pods on the host's network have the host's address; each workload is ready by itself.
    let on_host = with(
        "replicas: 1",
        "hostNetwork: true",
        &format!("ports: [{{containerPort: 8080}}]\n{probe}"),
        "type: ClusterIP",
    );
    assert_eq!(on_host.unwrap().0[3], "8080/tcp=_host.web:8080");
}

#[test]
fn pod_runs_on_linux_and_on_the_architecture_it_selects() {
    let of = |pod: &str| {
        let found = render(&deployment("web", pod, "tty: false"));
        (found.stack.as_ref().map(|it| web(it).architecture.clone()), lines(&found.findings))
    };
    for quiet in [
        "nodeSelector: {kubernetes.io/os: linux}",
        "os: {name: linux}",
        "serviceAccountName: web",
        "serviceAccount: web",
    ] {
        assert_eq!(of(quiet), (Some(None), Vec::new()), "{quiet}");
    }
    for selector in ["kubernetes.io/arch", "beta.kubernetes.io/arch"] {
        let selected = of(&format!("nodeSelector: {{{selector}: arm64}}"));
        assert_eq!(selected, (Some(Some("arm64".to_owned())), Vec::new()));
    }
    let (stack, said) = of("nodeSelector: {disk: ssd}");
    assert!(stack.is_some() && said[0].contains("nodeSelector.disk: has no effect"), "{said:?}");
    for windows in ["nodeSelector: {kubernetes.io/os: windows}", "os: {name: windows}"] {
        let (stack, said) = of(windows);
        assert!(stack.is_none() && said[0].contains("a.yaml:10:"), "{said:?}");
        assert!(said[0].contains("`windows` is not supported: containers run on Linux here"), "{said:?}");
    }
}

#[test]
fn services_set_variables_in_pods_that_ask_for_them() {
    let services = format!(
        "{}{}",
        service(
            "cache-db",
            "{selector: {app: web}, ports: [{name: sql, port: 80}, {name: dns, port: 53, protocol: UDP}]}"
        ),
        service("none", "{clusterIP: None, selector: {app: web}, ports: [{port: 80}]}"),
    );
    let container = "command: [a, $(CACHE_DB_SERVICE_HOST)]\nenv: [{name: CACHE_DB_PORT, value: own}, {name: URL, value: \
                     x:$(CACHE_DB_SERVICE_PORT)}]";
    let asked = stack_without_findings(&format!(
        "{}{services}",
        deployment("web", "enableServiceLinks: true", container)
    ));
    let own = &web(&asked).container;
    assert_eq!(own.entrypoint.as_deref(), Some(&["a".to_owned(), "cache-db".to_owned()][..]));
    let value = |name: &str| own.env.get(name).cloned().flatten().unwrap_or_default();
    for (name, expected) in [
        ("URL", "x:80"),
        ("CACHE_DB_SERVICE_HOST", "cache-db"),
        ("CACHE_DB_SERVICE_PORT", "80"),
        ("CACHE_DB_SERVICE_PORT_DNS", "53"),
        ("CACHE_DB_PORT", "own"),
        ("CACHE_DB_PORT_53_UDP", "udp://cache-db:53"),
        ("CACHE_DB_PORT_80_TCP_ADDR", "cache-db"),
        ("NONE_SERVICE_HOST", ""),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    for pod in ["hostPID: false", "enableServiceLinks: false"] {
        let text = format!("{}{services}", deployment("web", pod, "tty: false"));
        assert_eq!(web(&stack_without_findings(&text)).container.env, BTreeMap::new(), "{pod}");
        let refers = format!("{}{services}", deployment("web", pod, container));
        assert_findings(
            &refers,
            &["`$(CACHE_DB_SERVICE_HOST)` is not set: Services set variables only on request"],
        );
    }
}

#[test]
fn kinds_for_http_routes_name_the_alternative() {
    for kind in ["Ingress", "Gateway", "HTTPRoute"] {
        let found =
            render(&format!("apiVersion: networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: a}}\n"));
        let finding = &found.findings[0];
        assert!(
            finding.is_error() && finding.help.as_deref().is_some_and(|it| it.contains("reverse proxy")),
            "{finding}"
        );
    }
}

#[test]
fn kinds_of_extensions_name_the_alternative() {
    for (version, kind, expected) in [
        ("bitnami.com/v1alpha1", "SealedSecret", "encrypt its file with SOPS"),
        ("external-secrets.io/v1", "ExternalSecret", "`valuesFrom`"),
        ("cert-manager.io/v1", "Certificate", "obtain its certificates"),
        ("traefik.io/v1alpha1", "IngressRoute", "reverse proxy"),
        ("helm.cattle.io/v1", "HelmChart", "helm template"),
        ("helm.toolkit.fluxcd.io/v2", "HelmRelease", "helm template"),
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "names the repositories and folders"),
        ("argoproj.io/v1alpha1", "Application", "names the repositories and folders"),
        ("source.toolkit.fluxcd.io/v1", "GitRepository", "names the repositories and folders"),
        ("image.toolkit.fluxcd.io/v1", "ImagePolicy", "`driftless.update`"),
        ("notification.toolkit.fluxcd.io/v1beta3", "Alert", "the workloads that the operator would create"),
        ("argoproj.io/v1alpha1", "Rollout", "use a Deployment"),
        ("argoproj.io/v1alpha1", "CronWorkflow", "use a Job or CronJob"),
        ("argoproj.io/v1alpha1", "EventSource", "the workloads that the operator would create"),
        ("postgresql.cnpg.io/v1", "Cluster", "the workloads that the operator would create"),
        ("serving.knative.dev/v1", "Service", "the workloads that the operator would create"),
        ("apps/v2", "Deployment", "use `apiVersion: apps/v1`"),
        ("backstage.io/v1alpha1", "Component", "another tool reads this file"),
        ("k3d.io/v1alpha5", "Simple", "another tool reads this file"),
        ("kind.x-k8s.io/v1alpha4", "Cluster", "another tool reads this file"),
        ("skaffold/v4beta6", "Config", "another tool reads this file"),
        ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", "another tool reads this file"),
        ("v1", "Config", "another tool reads this file"),
    ] {
        let found = render(&format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n"));
        let finding = &found.findings[0];
        let helps = finding.help.as_deref().is_some_and(|help| help.contains(expected));
        assert!(finding.is_error() && helps, "{finding}");
    }
    // A group that only ends in the same letters is another one.
    let found = render("apiVersion: notargoproj.io/v1\nkind: Application\nmetadata: {name: a}\n");
    assert!(found.findings[0].to_string().contains("operator"), "{}", found.findings[0]);
    let rule = "---\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: a}\n";
    assert_findings(
        &format!("{}{rule}", deployment("web", "", "")),
        &["the kind PrometheusRule has no effect"],
    );
}

#[test]
fn gpus_of_other_forms_are_refused_with_help() {
    let class = deployment("web", "runtimeClassName: nvidia", "");
    assert_findings(&class, &["runtimeClassName: is not supported yet; for a GPU, remove it"]);
    let device = deployment("web", "", "resources: {limits: {gpu.intel.com/i915: 1}}");
    assert_findings(&device, &["the resource `gpu.intel.com/i915` is not supported yet"]);
    assert!(findings(&device)[0].contains("`hostPath` of type `CharDevice`"), "{:?}", findings(&device));
}

#[test]
fn services_on_one_host_port_name_each_other() {
    let balancer = "{type: LoadBalancer, selector: {app: web}, ports: [{port: 80}]}";
    let text = format!(
        "{}{}{}",
        deployment("web", "", "tty: false"),
        service("one", balancer),
        service("two", balancer)
    );
    let found = render(&text.replacen(
        "selector: {app: web}, ports: [{port: 80}]",
        "selector: {app: web}, ports: [{port: 80, targetPort: 8080}]",
        1,
    ));
    let finding = &found.findings[0];
    assert!(finding.message.contains("port 80 of the host is already taken by the Service of"), "{finding}");
    assert!(
        finding.help.as_deref().is_some_and(|it| it.contains("another `port` (LoadBalancer)")),
        "{finding}"
    );
}

#[test]
fn a_proxy_leads_to_the_pods_of_its_own_service_alone() {
    let set = "---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  replicas: 2\n  selector: \
               {matchLabels: {app: db}}\n  template:\n    metadata: {labels: {app: db}}\n    spec: {containers: [{name: \
               a, image: a:1}]}\n";
    let ports = "ports: [{port: 80, targetPort: 8080}]";
    let first = "selector: {statefulset.kubernetes.io/pod-name: db-0}";
    let text = format!(
        "{set}{}{}",
        service("first", &format!("{{{first}, {ports}}}")),
        service("all", &format!("{{selector: {{app: db}}, {ports}}}")),
    );
    let found = stack_without_findings(&text);
    let pods_of = |service: &str| -> Vec<&str> {
        let worker = &found.workloads[&format!("{service}_proxy_worker").as_str().into()];
        let command = worker.container.command.as_ref();
        let name = command.unwrap()[3].split(['=', ':']).nth(1).unwrap();
        let is_so = |pod: &&str| aliases(&found, pod, "shop_default").contains(&name);
        ["db-0", "db-1"].into_iter().filter(is_so).collect()
    };
    assert_eq!(pods_of("all"), ["db-0", "db-1"]);
    assert_eq!(pods_of("first"), ["db-0"]);
}

#[test]
fn owners_of_pods_say_how_often_and_how_long_they_run() {
    let owned = |kind: &str, version: &str, spec: &str, pod: &str| {
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web}}\nspec:\n  {spec}\n  template:\n    metadata: \
             {{labels: {{app: web}}}}\n    spec:\n      {pod}\n      containers: [{{name: a, image: a:1}}]\n"
        )
    };
    let selector = "selector: {matchLabels: {app: web}}";
    let one_by_one = Strategy::RollingUpdate { max_surge: 0, max_unavailable: 1 };
    let forever = "restartPolicy: Always";

    let daemon = stack_without_findings(&owned("DaemonSet", "apps/v1", selector, forever));
    assert_eq!((web(&daemon).replicas, web(&daemon).strategy), (1, one_by_one));

    let set = "selector: {matchLabels: {app: web}}\n  serviceName: db\n  volumeClaimTemplates: [{metadata: {name: data}, spec: {}}]";
    let text = owned("StatefulSet", "apps/v1", set, forever)
        .replace("image: a:1", "image: \"a:1\", volumeMounts: [{name: data, mountPath: /data}]");
    let stateful = stack_without_findings(&format!(
        "{text}{}",
        service("db", "{clusterIP: None, selector: {app: web}, ports: [{port: 1}]}")
    ));
    let pod = &stateful.workloads[&"web-0".into()].container;
    assert_eq!(pod.hostname.as_deref(), Some("web-0"));
    let volume = MountSource::Volume { name: "shop_data-web-0".into(), no_copy: true };
    assert_eq!(pod.mounts[0].source, volume);
    let names = aliases(&stateful, "web-0", "shop_default");
    assert!(
        names.contains(&"web-0.db") && names.contains(&"web-0.db.default.svc.cluster.local"),
        "{names:?}"
    );

    let job = stack_without_findings(&owned("Job", "batch/v1", "backoffLimit: 2", "restartPolicy: Never"));
    assert_eq!(
        (web(&job).container.restart, web(&job).completion),
        (RestartPolicy::No, Completion::OnSuccess)
    );
    let of = web(&job).job().unwrap();
    assert_eq!((of.backoff_limit, of.fresh, of.is_plain(&"web".into())), (2, true, true));
    let job = stack_without_findings(&owned("Job", "batch/v1", "suspend: true", "restartPolicy: OnFailure"));
    assert_eq!((web(&job).replicas, web(&job).job().unwrap().fresh), (0, false));
    assert_findings(
        &owned("Job", "batch/v1", "backoffLimit: 2", ""),
        &["a Job needs `restartPolicy: OnFailure` or `Never`"],
    );
    assert_findings(
        &owned("DaemonSet", "apps/v1", selector, "restartPolicy: Never"),
        &["must be `Always` in a DaemonSet"],
    );

    let pod = |policy: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{restartPolicy: {policy}, containers: [{{name: a, \
             image: \"a:1\"}}]}}\n"
        );
        let stack = stack_without_findings(&text);
        (web(&stack).container.restart, web(&stack).completion)
    };
    assert_eq!(pod("Always"), (RestartPolicy::UnlessStopped, Completion::Never));
    assert_eq!(pod("OnFailure"), (RestartPolicy::OnFailure { max_retries: None }, Completion::OnSuccess));
    assert_eq!(pod("Never"), (RestartPolicy::No, Completion::OnSuccess));

    let (replicas, replaced) =
        rendered(&owned("ReplicaSet", "apps/v1", &format!("{selector}\n  replicas: 2"), forever));
    assert_eq!(web(&replicas).replicas, 2);
    assert!(
        lines(&replaced.findings)[0].contains("replaced, as in a Deployment"),
        "{:?}",
        lines(&replaced.findings)
    );
}

#[test]
fn one_name_is_one_object() {
    let twice = format!("{SETTINGS}{SETTINGS}{}", deployment("web", "", ""));
    assert_findings(
        &twice,
        &["the ConfigMap `settings` is already defined at a.yaml:", "the Secret `login` is already defined"],
    );
    let service = service("x", "{selector: {app: web}, ports: [{port: 1}]}");
    assert_findings(
        &format!("{}{service}{service}", deployment("web", "", "")),
        &["the Service `x` is already defined at"],
    );
    let job = "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web}\nspec:\n  schedule: '0 2 * * *'\n  jobTemplate: \
               {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: nginx:1.27}]}}}}\n";
    assert_findings(
        &format!("{}{job}", deployment("web", "", "")),
        &["the CronJob `web` would have containers of the same name as the Deployment `web` at a.yaml:"],
    );
}

fn set(name: &str, spec: &str, pod: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: {name}}}
spec:
  serviceName: {name}
  selector: {{matchLabels: {{app: {name}}}}}
{spec}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
{pod}
"
    )
}

#[test]
fn claims_that_are_there_are_those_of_the_pods_of_a_set() {
    let persistent = |name: &str, path: &str, more: &str| {
        format!(
            "---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}}}
spec: {{hostPath: {{path: {path}}}, capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce]{more}}}
"
        )
    };
    let claimed = "---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-db-0}
spec: {volumeName: first, accessModes: [ReadWriteOnce]}
";
    let templates = "  replicas: 3
  volumeClaimTemplates:
    - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}";
    let pod = "      containers: [{name: db, image: 'db:1', volumeMounts: [{name: data, mountPath: /d}]}]";
    let db = set("db", templates, pod);
    let first = persistent("first", "/srv/first", "");
    let second = persistent("second", "/srv/second", ", claimRef: {name: data-db-1}");
    let stack = stack_without_findings(&format!("{db}{claimed}{first}{second}"));
    let source = |pod: &str| stack.workloads[&pod.into()].container.mounts[0].source.clone();
    let host = |path: &str| MountSource::Bind {
        path: path.to_owned(),
        create: true,
        propagation: None,
        selinux: None,
    };
    assert_eq!([source("db-0"), source("db-1")], [host("/srv/first"), host("/srv/second")]);
    let MountSource::Volume { name, no_copy: true } = source("db-2") else { panic!("{:?}", source("db-2")) };
    assert_eq!(name, "shop_data-db-2");
    // Nobody makes the claim that this one is kept for.
    let unused = persistent("second", "/srv/second", ", claimRef: {name: data-db-9}");
    assert_findings(&format!("{db}{unused}"), &["no claim of this application gets `second`"]);
    // Only one of two can be kept for it.
    let third = persistent("third", "/srv/third", ", claimRef: {name: data-db-1}");
    assert_findings(
        &format!("{db}{second}{third}"),
        &["the PersistentVolume `second` already", "gets `third`"],
    );
}

#[test]
fn claim_that_a_pod_only_reads_is_mounted_read_only() {
    let pod = "      containers: [{name: web, image: 'web:1', volumeMounts: [{name: files, mountPath: /d}]}]
      volumes: [{name: files, persistentVolumeClaim: {claimName: files, readOnly: true}}]";
    let claim = "---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: files}
spec: {accessModes: [ReadWriteOnce]}
";
    let read =
        |text: &str| stack_without_findings(text).workloads[&"web-0".into()].container.mounts[0].read_only;
    let text = format!("{}{claim}", set("web", "  replicas: 1", pod));
    assert!(read(&text) && !read(&text.replace("readOnly: true", "readOnly: false")));
}

#[test]
fn partition_of_a_set_counts_pods_from_its_first_ordinal() {
    let spec = "  replicas: 3
  ordinals: {start: 5}
  updateStrategy: {rollingUpdate: {partition: 2}}";
    let stack = stack_without_findings(&set("db", spec, "      containers: [{name: db, image: 'db:1'}]"));
    let held: Vec<&str> = stack
        .workloads
        .iter()
        .filter(|(_, it)| it.update == driftless_model::Update::Never)
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(held, ["db-5", "db-6"]);
}

#[test]
fn pods_of_a_set_have_their_own_host_names() {
    let pod = "      hostname: mq
      subdomain: mq
      containers: [{name: mq, image: 'mq:1'}]";
    let text = set("mq", "  replicas: 2", pod);
    assert_findings(&text, &["has no effect: the pods have names", "has no effect: the pods have names"]);
    let (stack, _) = rendered(&text);
    let names: Vec<_> = stack.workloads.values().map(|it| it.container.hostname.clone().unwrap()).collect();
    assert_eq!(names, ["mq-0", "mq-1"]);
}

#[test]
fn named_port_is_that_of_a_container_before_a_sidecar() {
    let text = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers:
        - {name: wait, image: 'wait:1', ports: [{name: http, containerPort: 1}]}
        - {name: auth, image: 'auth:1', restartPolicy: Always, ports: [{name: http, containerPort: 4180}, {name: login, containerPort: 4181}]}
      containers:
        - {name: web, image: 'web:1', ports: [{name: http, containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {type: NodePort, selector: {app: web}, ports: [{name: a, port: 80, nodePort: 30080, targetPort: http}, {name: b, port: 81, nodePort: 30081, targetPort: login}]}
";
    let stack = stack_without_findings(text);
    let commands: String = stack
        .subjects()
        .filter(|it| it.workload.container.image == PROXY_IMAGE)
        .flat_map(|it| it.workload.container.command.clone().unwrap_or_default())
        .collect::<Vec<_>>()
        .join(" ");
    assert!(commands.contains(":8080") && commands.contains(":4181"), "{commands}");
    assert!(!commands.contains(":4180"), "{commands}");
}
