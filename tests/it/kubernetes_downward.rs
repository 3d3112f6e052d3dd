//! The downward API: values known from the manifest are set at once, the others when the container is created.

use std::collections::BTreeMap;

use driftless_model::{Container, Content, Downward, HELPER_IMAGE, MountSource, downward};

use crate::kubernetes_manifests::{findings, render, stack_without_findings};

fn deployment(pod: &str, container: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  selector: {{matchLabels: {{app: web}}}}\n\
         \x20 template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {{{pod} containers: [{{name: web, image: 'web:1', \
         {container}}}]}}\n"
    )
}

fn variable(name: &str, path: &str) -> String {
    format!("{{name: {name}, valueFrom: {{fieldRef: {{fieldPath: {path}}}}}}}")
}

fn shown(container: &Container) -> BTreeMap<&str, String> {
    let all = container
        .env
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), downward::shown(value.as_ref()?))));
    all.collect()
}

#[test]
fn values_known_after_creation_are_set_then() {
    let env = [variable("NAME", "metadata.name"), variable("NODE", "spec.nodeName")].join(", ");
    let url = "{name: URL, value: 'http://$(NODE)/$(NAME)'}";
    let found = stack_without_findings(&deployment(
        "",
        &format!("env: [{env}, {url}], args: ['--id=$(NAME)', '$$(NAME)']"),
    ));
    let web = &found.workloads[&"web".into()];
    assert!(web.parts.is_empty(), "one container is the pod");
    let expected = [
        ("NAME", "<metadata.name>".to_owned()),
        ("NODE", "<spec.nodeName>".to_owned()),
        ("URL", "http://<spec.nodeName>/<metadata.name>".to_owned()),
    ];
    assert_eq!(shown(&web.container), BTreeMap::from(expected));
    assert_eq!(Downward::wanted_by(&web.container), [Downward::PodName, Downward::NodeName]);
    let words = web.container.command.as_ref().unwrap();
    assert_eq!(downward::shown(&words[0]), "--id=<metadata.name>");
    assert_eq!(words[1], "$(NAME)");
}

#[test]
fn container_that_needs_its_address_gets_a_pod_with_one() {
    let env =
        [variable("IP", "status.podIP"), variable("IPS", "status.podIPs"), variable("HOST", "status.hostIP")];
    let found = stack_without_findings(&deployment("", &format!("env: [{}]", env.join(", "))));
    let web = &found.workloads[&"web".into()];
    assert_eq!(web.container.image, HELPER_IMAGE);
    let [part] = &web.parts[..] else { panic!("one container in it") };
    let expected = [("HOST", "<status.hostIP>"), ("IP", "<status.podIP>"), ("IPS", "<status.podIP>")]
        .map(|(a, b)| (a, b.to_owned()));
    assert_eq!(shown(&part.container), BTreeMap::from(expected));

    let on_host =
        findings(&deployment("hostNetwork: true,", &format!("env: [{}]", variable("IP", "status.podIP"))));
    assert!(on_host[0].contains("is not a single address: a pod in the network of the host"), "{on_host:?}");
}

#[test]
fn pod_fields_are_rejected_where_the_pod_does_not_exist_yet() {
    let volume =
        "volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}],";
    let found = findings(&deployment(volume, ""));
    assert!(found[0].contains("is not known before the pod runs, and files are written before"), "{found:?}");
    let expression = format!(
        "env: [{}], volumeMounts: [{{name: v, mountPath: /v, subPathExpr: 'a/$(NAME)'}}]",
        variable("NAME", "metadata.name")
    );
    let found = findings(&deployment("volumes: [{name: v, hostPath: {path: /srv}}],", &expression));
    assert!(found[0].contains("`a/<metadata.name>` is not known before the pod runs"), "{found:?}");
}

#[test]
fn name_of_the_job_is_no_file_of_a_cron_job() {
    let text = |pod: &str, container: &str| {
        format!(
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: report}}\nspec:\n  schedule: '@daily'\n  jobTemplate:\n    \
             spec:\n      template:\n        spec: {{{pod} restartPolicy: Never, containers: [{{name: report, image: 'a:1', \
             {container}}}]}}\n"
        )
    };
    let path = "\"metadata.labels['batch.kubernetes.io/job-name']\"";
    let env = format!("env: [{}], args: ['$(JOB)']", variable("JOB", path));
    let found = stack_without_findings(&text("", &env));
    let template = &found.workloads[&"report".into()].container;
    let expected = "<metadata.labels['batch.kubernetes.io/job-name']>".to_owned();
    assert_eq!(shown(template), BTreeMap::from([("JOB", expected)]));
    // The label itself is that of the CronJob until a run is begun.
    assert_eq!(template.labels["job-name"], "report");

    let item = format!("{{path: a, fieldRef: {{fieldPath: {path}}}}}");
    let found = findings(&text(&format!("volumes: [{{name: v, downwardAPI: {{items: [{item}]}}}}],"), ""));
    assert!(found[0].contains("is not known before the pod runs, and files are written before"), "{found:?}");
    let expression = format!("{env}, volumeMounts: [{{name: v, mountPath: /v, subPathExpr: '$(JOB)'}}]");
    let found = findings(&text("volumes: [{name: v, hostPath: {path: /srv}}],", &expression));
    assert!(found[0].contains("is not known before the pod runs"), "{found:?}");
}

#[test]
fn resources_are_those_of_the_container_that_is_named() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: one\n    image: a:1\n    env:\n    \
                - {name: MINE, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}\n    - {name: OTHER, \
                valueFrom: {resourceFieldRef: {containerName: two, resource: limits.memory, divisor: 1Mi}}}\n    resources: \
                {limits: {memory: 64Mi}}\n    volumeMounts: [{name: v, mountPath: /v}]\n  - {name: two, image: a:1, resources: \
                {limits: {memory: 128Mi}}}\n  volumes:\n  - name: v\n    downwardAPI: {items: [{path: cpu, resourceFieldRef: \
                {containerName: two, resource: limits.memory}}]}\n";
    let found = stack_without_findings(text);
    let part = &found.workloads[&"a".into()].parts[0];
    let expected = [("MINE", "64".to_owned()), ("OTHER", "128".to_owned())];
    assert_eq!(shown(&part.container), BTreeMap::from(expected));
    let rendered = render(text);
    let files: Vec<String> = rendered.contents.values().map(|it| format!("{it:?}")).collect();
    assert_eq!(files.len(), 1, "one folder of files: {files:?}");
    let wrong = findings(&text.replace(
        "containerName: two, resource: limits.memory}}",
        "containerName: six, resource: limits.memory}}",
    ));
    assert!(wrong[0].contains("the pod has no container with this name"), "{wrong:?}");
    let missing = findings(
        &text.replace("{containerName: two, resource: limits.memory}}]}", "{resource: limits.memory}}]}"),
    );
    assert!(missing[0].contains("`containerName` is missing"), "{missing:?}");
}

#[test]
fn container_selinux_options_override_those_of_the_pod() {
    let pod = "securityContext: {seLinuxOptions: {level: 's0:c1', type: a_t}},";
    let options = |container: &str| {
        stack_without_findings(&deployment(pod, container)).workloads[&"web".into()]
            .container
            .security_opt
            .clone()
    };
    assert_eq!(options(""), ["label=level:s0:c1", "label=type:a_t"]);
    let own = "securityContext: {seLinuxOptions: {user: u, role: r}}";
    assert_eq!(options(own), ["label=role:r", "label=user:u"]);
}

#[test]
fn container_that_reads_its_namespace_has_the_file() {
    const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    let wait =
        format!("command: [sh, -c, 'until nslookup db.$(cat {PATH}).svc.cluster.local; do sleep 2; done']");
    let found = render(&deployment("", &wait));
    let container = &found.stack.as_ref().unwrap().workloads[&"web".into()].container;
    let [mount] = &container.mounts[..] else { panic!("{:?}", container.mounts) };
    assert_eq!((mount.target.as_str(), mount.read_only), (PATH, true));
    let MountSource::Content(id) = &mount.source else { panic!("{mount:?}") };
    let Content::File { bytes, .. } = &found.contents[id] else { panic!("no file") };
    assert_eq!(&**bytes, b"default");

    let mounts = |pod: &str, container: &str| {
        let stack = render(&deployment(pod, container)).stack.unwrap();
        stack.workloads[&"web".into()].container.mounts.len()
    };
    assert_eq!(mounts("", "command: [cat, /etc/namespace]"), 0);
    assert_eq!(mounts("automountServiceAccountToken: false,", &wait), 0);
    let at = |folder: &str| format!("{wait}, volumeMounts: [{{name: v, mountPath: {folder}}}]");
    assert_eq!(mounts("volumes: [{name: v, emptyDir: {}}],", &at("/var/run")), 2);
    assert_eq!(mounts("volumes: [{name: v, hostPath: {path: /run}}],", &at("/var/run")), 1);
    // `/var/run` is a link to `/run` in most images.
    assert_eq!(mounts("volumes: [{name: v, emptyDir: {}}],", &at("/run")), 2);
    assert_eq!(mounts("volumes: [{name: v, hostPath: {path: /run}}],", &at("/run")), 1);
    let files =
        "volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.namespace}}]}}],";
    assert_eq!(mounts(files, &at("/srv")), 2);
    assert_eq!(mounts(files, &at("/run/secrets")), 1);
    let folder = PATH.strip_suffix("/namespace").unwrap();
    assert_eq!(mounts("volumes: [{name: v, emptyDir: {}}],", &at(folder)), 1);
}
