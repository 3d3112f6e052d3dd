//! Kustomizations: what they make, compared with what kustomize itself makes of the same, and where each refusal points.
//!
//! `kustomize/**/expected.yaml` is what kustomize 5.5 prints for the folder that it lies in, and with
//! `UPDATE_KUSTOMIZE=1` what the installed `kubectl` prints.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use driftless_files::{AppSpec, Files, MemoryFiles, Recorder, Rendered};
use driftless_kubernetes as kubernetes;
use driftless_manifest::{discover, render};
use driftless_model::{Finding, Mask};
use serde_json::{Value, json};

const FOLDER: &str = "tests/it/kustomize";

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { below(&path, found) } else { found.push(path) }
    }
}

/// All files of the projects, from their common folder.
fn projects() -> MemoryFiles {
    let mut paths = Vec::new();
    below(Path::new(FOLDER), &mut paths);
    let mut files = MemoryFiles::default();
    for path in paths.iter().filter(|it| it.file_name().unwrap() != "expected.yaml") {
        let inside = path.strip_prefix(FOLDER).unwrap().to_str().unwrap().to_owned();
        files.0.insert(inside, fs::read(path).unwrap().into());
    }
    files
}

fn spec(kustomization: &str) -> AppSpec {
    AppSpec::kubernetes("shop", &[kustomization])
}

fn lines(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

/// By kind, namespace and name, since the order means nothing.
fn by_id(documents: impl IntoIterator<Item = Value>) -> BTreeMap<String, Value> {
    let id = |it: &Value| {
        let metadata = &it["metadata"];
        format!("{} {} {}", it["kind"], metadata["namespace"], metadata["name"])
    };
    documents.into_iter().map(|it| (id(&it), it)).collect()
}

fn built(files: &MemoryFiles, kustomization: &str) -> BTreeMap<String, Value> {
    let found = kubernetes::documents(files, &spec(kustomization), None);
    assert!(found.documents.is_some(), "{kustomization}: {:#?}", lines(&found.findings));
    by_id(found.documents.unwrap())
}

#[test]
fn kustomizations_build_as_with_kustomize() {
    let mut paths = Vec::new();
    below(Path::new(FOLDER), &mut paths);
    let expected: Vec<_> = paths.iter().filter(|it| it.file_name().unwrap() == "expected.yaml").collect();
    assert!(expected.len() >= 10);
    let files = projects();
    for path in expected {
        let folder = path.parent().unwrap();
        if env::var_os("UPDATE_KUSTOMIZE").is_some() {
            let place = folder.to_str().unwrap();
            let out = Command::new("kubectl")
                .args(["kustomize", "--load-restrictor", "LoadRestrictionsNone", place])
                .output()
                .unwrap();
            assert!(out.status.success(), "{place}: {}", String::from_utf8_lossy(&out.stderr));
            fs::write(path, out.stdout).unwrap();
        }
        let text = fs::read_to_string(path).unwrap();
        let documents = serde_yaml::Deserializer::from_str(&text)
            .map(|it| <Value as serde::Deserialize>::deserialize(it).unwrap());
        let wanted = by_id(documents);
        let inside = folder.strip_prefix(FOLDER).unwrap().to_str().unwrap();
        let names = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
        let name =
            names.iter().map(|it| format!("{inside}/{it}")).find(|it| files.0.contains_key(it)).unwrap();
        let found = built(&files, &name);
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{inside}");
        for (id, value) in &found {
            assert_eq!(value, &wanted[id], "{inside}: {id}");
        }
    }
}

#[test]
fn an_overlay_is_an_application_and_its_base_is_none() {
    let files = projects();
    let found = |path: &str| {
        let found = discover(&files, path, "repository", &[]);
        assert_eq!(lines(&found.findings), [""; 0], "{path}");
        found.apps.iter().map(|it| format!("{} {}", it.name, it.files.join(" "))).collect::<Vec<_>>()
    };
    let (dev, prod) =
        ("dev shop/overlays/dev/kustomization.yaml", "prod shop/overlays/prod/kustomization.yaml");
    assert_eq!(found("shop"), [dev, prod]);
    assert_eq!(found("shop/overlays"), [dev, prod]);
    assert_eq!(found("shop/overlays/prod"), [prod]);
    assert_eq!(found("shop/base"), ["base shop/base/kustomization.yaml"]);
    assert_eq!(found("diamond"), ["both diamond/both/Kustomization"]);

    let rendered = render(&files, &spec("shop/overlays/prod/kustomization.yaml"));
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:#?}", lines(&rendered.findings)));
    let web = &stack.workloads[&"web-prod.shop".into()];
    assert_eq!(web.container.image, "registry.example.com:5000/shop/web:1.4.2");
    assert_eq!((web.replicas, web.container.env["MODE"].as_deref()), (3, Some("prod")));
    assert_eq!(web.origin.to_string(), "shop/base/deployment.yaml:4:9");
    assert_eq!(stack.manifests[0], "shop/overlays/prod/kustomization.yaml");
    assert!(stack.manifests.contains(&"shop/overlays/prod/web.env".to_owned()), "{:?}", stack.manifests);
}

#[test]
fn kustomization_wins_over_manifests_but_not_over_compose() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
    let files = MemoryFiles::new([
        ("a/kustomization.yaml", "resources: [web.yaml]"),
        ("a/web.yaml", deployment),
        ("a/patch.yaml", deployment),
        ("a/below/web.yaml", deployment),
        ("b/kustomization.yml", "resources: [web.yaml]"),
        ("b/compose.yaml", "services: {web: {image: a}}"),
        ("c/kustomization.yaml", "kind: Component"),
        // Patches that another application names are none of their own.
        (
            "d/over/kustomization.yaml",
            "resources: [../loose/web.yaml]\npatches: [{path: ../loose/patch.yaml}]",
        ),
        ("d/loose/web.yaml", deployment),
        ("d/loose/patch.yaml", deployment),
    ]);
    let found = discover(&files, "", "repository", &[]);
    let names: Vec<_> =
        found.apps.iter().map(|it| format!("{} {:?} {:?}", it.name, it.format, it.files)).collect();
    assert_eq!(
        names,
        [
            "a Kubernetes [\"a/kustomization.yaml\"]",
            "b Compose [\"b/compose.yaml\"]",
            "over Kubernetes [\"d/over/kustomization.yaml\"]",
        ]
    );
    assert_eq!(
        lines(&render(&files, &found.apps[1]).findings),
        [
            "b/kustomization.yml: error: is a Kubernetes manifest in the folder of `b/compose.yaml`, but a folder is one application (move one of them to a folder of its own)"
        ]
    );
    let alone = discover(&files, "c", "repository", &[]);
    let rendered = render(&files, &alone.apps[0]);
    assert_eq!(
        lines(&rendered.findings),
        [
            "c/kustomization.yaml: error: a component is a part of other kustomizations, not an application (choose the folder of a kustomization that lists it)"
        ]
    );
}

#[test]
fn broken_overlay_does_not_make_its_base_an_application() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
    for broken in ["resources: [../bse]", "resources: [", "resource: [../base]\n"] {
        let files = MemoryFiles::new([
            ("base/kustomization.yaml", "resources: [web.yaml]"),
            ("base/web.yaml", deployment),
            ("overlays/prod/kustomization.yaml", broken),
            ("overlays/dev/kustomization.yaml", "resources: [../../common]"),
            ("common/kustomization.yaml", "resources: [web.yaml]"),
            ("common/web.yaml", deployment),
        ]);
        let found = discover(&files, "", "repository", &[]);
        let names: Vec<_> = found.apps.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(names, ["overlays/dev", "overlays/prod"], "{broken}");
        let told = lines(&found.findings);
        assert_eq!(told.len(), 1, "{broken}: {told:?}");
        assert!(
            told[0].starts_with("overlays/prod/kustomization.yaml: error:") && told[0].contains("`base`"),
            "{told:?}"
        );
    }
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web:1}]}}
";

#[test]
fn broken_kustomization_hides_no_other_application() {
    for broken in [
        "resources: [web.yaml, missing.yaml]",
        "resources: [../bass]",
        "resorces: [web.yaml]",
        "resources: [web.yaml\nnamePrefix: shop",
        "resources: [https://example.com/shop/base]",
    ] {
        let files = MemoryFiles::new([
            ("shop/kustomization.yaml", "resources: [web.yaml]"),
            ("shop/web.yaml", DEPLOYMENT),
            ("blog/kustomization.yaml", "resources: [../common]"),
            ("common/kustomization.yaml", "resources: [web.yaml]"),
            ("common/web.yaml", DEPLOYMENT),
            ("broken/kustomization.yaml", broken),
            ("broken/web.yaml", DEPLOYMENT),
        ]);
        let discovery = discover(&files, "", "repo", &[]);
        let names: Vec<&str> = discovery.apps.iter().map(|app| app.name.as_str()).collect();
        assert_eq!(names, ["blog", "broken", "shop"], "{broken}");
        assert_eq!(lines(&discovery.findings), [""; 0], "{broken}");
        let findings = render(&files, &discovery.apps[1]).findings;
        assert!(findings.iter().any(Finding::is_error), "{broken}: {findings:?}");
        assert!(render(&files, &discovery.apps[2]).stack.is_some());
    }
}

#[test]
fn build_reports_exactly_the_files_that_it_read() {
    let files = projects();
    let recorder = Recorder::new(&files);
    let rendered = render(&recorder, &spec("shop/overlays/prod/kustomization.yaml"));
    assert!(rendered.stack.is_some());
    let reads = recorder.finish();
    assert!(reads.hold_in(&files));
    let changed = |path: &str| {
        let mut after = files.clone();
        after.0.insert(path.to_owned(), b"a: 1".as_slice().into());
        !reads.hold_in(&after)
    };
    for path in [
        "shop/base/deployment.yaml",
        "shop/base/pages/index.html",
        "shop/overlays/prod/web.env",
        "shop/components/cache/cache.yaml",
        // It would be one too many.
        "shop/base/Kustomization",
    ] {
        assert!(changed(path), "{path}");
    }
    for path in ["shop/overlays/dev/level.yaml", "shop/base/README.md", "other.yaml"] {
        assert!(!changed(path), "{path}");
    }
    assert!(files.id("shop/base/deployment.yaml").unwrap().is_some());
}

const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: web:1
          ports: [{name: http, containerPort: 80}]
";

fn rendered(kustomization: &str, more: &[(&str, &str)]) -> Rendered {
    let base = [
        ("app/over/kustomization.yaml", kustomization),
        ("app/base/kustomization.yaml", "resources: [web.yaml]"),
    ];
    let files =
        MemoryFiles::new(base.into_iter().chain([("app/base/web.yaml", WEB)]).chain(more.iter().copied()));
    render(&files, &spec("app/over/kustomization.yaml"))
}

fn told(kustomization: &str, more: &[(&str, &str)]) -> Vec<String> {
    lines(&rendered(kustomization, more).findings)
}

#[test]
fn errors_in_the_result_point_to_their_source() {
    let inline = "resources: [../base]
patches:
  - patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec:
        template:
          spec:
            containers:
              - name: web
                imag: web:2
";
    assert_eq!(
        told(inline, &[]),
        [
            "app/over/kustomization.yaml:12:17: error: spec.template.spec.containers[0].imag: unknown field `imag` (did you mean `image`?)"
        ]
    );
    let file = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: -1}\n";
    assert_eq!(
        told("resources: [../base]\npatches: [{path: p.yaml}]", &[("app/over/p.yaml", file)]),
        ["app/over/p.yaml:4:18: error: spec.replicas: must be 0 or more, but is -1"]
    );
    let json = "resources: [../base]
patches:
  - target: {kind: Deployment}
    patch: |

      - op: add
        path: /spec/template/spec/containers/0/ports/-
        value: {name: http, containerPort: 99999}
";
    let found = told(json, &[]);
    assert!(
        found.iter().all(|it| it.starts_with("app/over/kustomization.yaml:8:")) && !found.is_empty(),
        "{found:?}"
    );
    // In one line there is one place.
    let quoted = "resources: [../base]\npatches: [{target: {kind: Deployment}, patch: '[{\"op\": \"add\", \"path\": \"/spec/replicas\", \"value\": -1}]'}]";
    assert_eq!(
        told(quoted, &[]),
        ["app/over/kustomization.yaml:2:47: error: spec.replicas: must be 0 or more, but is -1"]
    );
    let labels = "resources: [../base]\nlabels:\n  - pairs: {team: a b}\n    includeSelectors: true\n";
    let found = told(labels, &[]);
    assert!(!found.is_empty());
    assert!(found.iter().all(|it| it.starts_with("app/over/kustomization.yaml:3:19: error: ")), "{found:?}");
    let image = "resources: [../base]\nimages: [{name: web, newTag: 'a b'}]";
    assert!(
        told(image, &[])[0].starts_with("app/over/kustomization.yaml:2:30: error:"),
        "{:?}",
        told(image, &[])
    );
    // Said once, though it is on every object.
    let annotations =
        "resources: [../base]\ncommonAnnotations: {a: b}\nconfigMapGenerator: [{name: c}, {name: d}]";
    assert_eq!(
        told(annotations, &[]),
        [
            "app/over/kustomization.yaml:2:24: warning: metadata.annotations: has no effect: only annotations of the pod template are kept, as labels"
        ]
    );
}

#[test]
fn unsupported_kustomize_fields_are_refused_in_place() {
    let other = [("app/other/kustomization.yaml", "resources: [web.yaml]"), ("app/other/web.yaml", WEB)];
    let circle = [("app/two/kustomization.yaml", "resources: [../over]")];
    let component = [("app/part/kustomization.yaml", "kind: Component"), ("app/two/x", "")];
    let base = "resources: [../base]\n";
    let with = |text: &str| format!("{base}{text}");
    let cases: &[(String, &[(&str, &str)], &str)] = &[
        (
            with("namePrefx: a"),
            &[],
            "2:1: error: namePrefx: unknown field `namePrefx` (did you mean `namePrefix`?)",
        ),
        (
            with("images: [{name: web, newtag: 1}]"),
            &[],
            "2:22: error: images[0].newtag: unknown field `newtag` (did you mean `newTag`?)",
        ),
        (
            with("images: [{name: web, newTag: 1.0}]"),
            &[],
            "2:30: error: images[0].newTag: must be a string, but it is a number (put it in quotes)",
        ),
        (
            with("patchesStrategicMerge: [empty.yaml]"),
            &[("app/over/empty.yaml", "")],
            "2:25: error: patchesStrategicMerge[0]: the patch is empty (remove the entry, or write the patch)",
        ),
        (
            with("patches: [{path: empty.yaml}]"),
            &[("app/over/empty.yaml", "")],
            "2:11: error: patches[0]: the patch is empty (remove the entry, or write the patch)",
        ),
        (
            with("patches: [{path: empty.yaml, target: {kind: Deployment}}]"),
            &[("app/over/empty.yaml", "# nothing\n")],
            "2:11: error: patches[0]: the patch is empty (remove the entry, or write the patch)",
        ),
        (
            with("apiVersion: v1"),
            &[],
            "2:13: error: apiVersion: `v1` is not a value of this field (use `kustomize.config.k8s.io/v1beta1`)",
        ),
        (
            with("helmCharts: [{name: a}]"),
            &[],
            "2:1: error: helmCharts: is not supported: charts are not rendered",
        ),
        (
            with("transformers: [a.yaml]"),
            &[],
            "2:1: error: transformers: is not supported: plugins are not run",
        ),
        (
            with("vars: [{name: A}]"),
            &[],
            "2:1: error: vars: is not supported: it is deprecated; use `replacements`",
        ),
        (with("crds: [a.yaml]"), &[], "2:1: error: crds: is not supported"),
        (with("openapi: {path: a}"), &[], "2:1: error: openapi: is not supported"),
        (
            "resources: ['https://user:hunter2@example.com/a.git?ref=v1']".into(),
            &[],
            "1:13: error: resources[0]: is remote, and a build downloads nothing (copy it",
        ),
        ("resources: ['github.com/org/repo//base']".into(), &[], "1:13: error: resources[0]: is remote"),
        ("resources: ['git@example.com:org/repo']".into(), &[], "1:13: error: resources[0]: is remote"),
        (
            "resources: [/etc/web.yaml]".into(),
            &[],
            "1:13: error: resources[0]: `/etc/web.yaml` is outside of the repository",
        ),
        (
            "resources: [../../../web.yaml]".into(),
            &[],
            "1:13: error: resources[0]: `../../../web.yaml` is outside of the repository",
        ),
        (
            "resources: [web.yaml]".into(),
            &[],
            "1:13: error: resources[0]: `app/over/web.yaml` does not exist in the repository",
        ),
        (
            "resources: [../two]".into(),
            &component,
            "1:13: error: resources[0]: `app/two` holds no kustomization (add",
        ),
        (
            "resources: [../part]".into(),
            &component,
            "1:13: error: resources[0]: `app/part/kustomization.yaml` is a component (list it under `components`)",
        ),
        (
            "components: [../base]".into(),
            &[],
            "1:14: error: components[0]: `app/base/kustomization.yaml` is not a component",
        ),
        (
            "resources: [../base/kustomization.yaml]".into(),
            &[],
            "1:13: error: resources[0]: names a kustomization file (name its folder)",
        ),
        (
            "resources: [.]".into(),
            &[],
            "1:13: error: resources[0]: kustomizations list each other in a circle: app/over → app/over",
        ),
        (
            "resources: [../base, ../other]".into(),
            &other,
            "1:22: error: resources[1]: adds the Deployment `web` of app/other/web.yaml:4:9, which is already registered from app/base/web.yaml:4:9 (list each",
        ),
        (with("patches: [{}]"), &[], "2:11: error: patches[0]: has no patch"),
        (with("patches: [{path: a, patch: b}]"), &[], "2:11: error: patches[0]: has both `patch` and `path`"),
        (
            with("patches: [{path: none.yaml}]"),
            &[],
            "2:18: error: patches[0].path: `app/over/none.yaml` does not exist",
        ),
        (
            with("patches: [{patch: '[]', target: {name: '('}}]"),
            &[],
            "2:40: error: patches[0].target.name: `(` is not a regular expression",
        ),
        (
            with("patches: [{patch: '[]', target: {labelSelector: 'a b'}}]"),
            &[],
            "2:49: error: patches[0].target.labelSelector: `a b` is not a selector",
        ),
        (
            with("patches: [{patch: '[{op: remove, path: /spec/replicas}]', target: {kind: Deployment}}]"),
            &[],
            "2:19: error: [0].path: `/spec/replicas` does not exist in the Deployment `web` of app/base/web.yaml:4:9",
        ),
        (
            with("patches: [{patch: '[{op: test, path: /kind, value: x}]', target: {kind: Deployment}}]"),
            &[],
            "2:19: error: [0].path: `/kind` of the Deployment `web` of app/base/web.yaml:4:9 has another value",
        ),
        (
            with("patches: [{patch: '[{op: ad, path: /a}]', target: {kind: Deployment}}]"),
            &[],
            "2:19: error: [0].op: is not an operation",
        ),
        (
            with("patches: [{patch: '[{op: add, path: a, value: b}]', target: {kind: Deployment}}]"),
            &[],
            "2:19: error: [0].path: must begin with `/`",
        ),
        (
            with("patches: [{patch: '[{op: remove, path: /a}]'}]"),
            &[],
            "2:11: error: patches[0]: a JSON patch needs a `target`",
        ),
        (
            with("patches: [{patch: 'kind: Deployment'}]"),
            &[],
            "2:19: error: metadata.name: the Deployment has no name",
        ),
        (
            with("patches: [{patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: wep}}'}]"),
            &[],
            "2:19: error: metadata.name: there is no Deployment `wep` to patch (did you mean `web`?)",
        ),
        (
            with("patches: [{patch: '{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: web}}'}]"),
            &[],
            "2:19: error: metadata.name: there is no Deployment `web` to patch (the one at app/base/web.yaml:4:9 has `apiVersion: apps/v1`)",
        ),
        (
            with(
                "patches: [{patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: []}}'}]",
            ),
            &[],
            "2:19: error: spec.template: is a list, but the value that it patches at app/base/web.yaml:8:5 is a map",
        ),
        (
            with(
                "patches: [{patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {$patch: drop}}'}]",
            ),
            &[],
            "2:19: error: spec.$patch: is not a directive",
        ),
        (
            with(
                "patches: [{patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {containers: [{image: b}]}}}}'}]",
            ),
            &[],
            "2:19: error: spec.template.spec.containers[0]: `name` is missing, which identifies",
        ),
        (
            with("patches: [{target: {kind: Service}, patch: '[{op: remove, path: /a}]'}]"),
            &[],
            "2:11: warning: patches[0].target: the target selects nothing, so the patch changes nothing",
        ),
        (
            with("configMapGenerator: [{name: a, literals: [hunter2]}]"),
            &[],
            "2:43: error: configMapGenerator[0].literals[0]: must be `key=value`",
        ),
        (
            with("configMapGenerator: [{name: a, literals: [a=1, a=2]}]"),
            &[],
            "2:48: error: configMapGenerator[0].literals[1]: the key `a` already exists",
        ),
        (
            with("configMapGenerator: [{name: a, files: [../../../x]}]"),
            &[],
            "2:40: error: configMapGenerator[0].files[0]: `../../../x` is outside of the repository",
        ),
        (
            with("configMapGenerator: [{name: a, behavior: merge}]"),
            &[],
            "2:29: error: configMapGenerator[0].name: there is no ConfigMap `a` to change",
        ),
        (
            with("configMapGenerator: [{name: a}, {name: a}]"),
            &[],
            "2:40: error: configMapGenerator[1].name: the ConfigMap `a` is already there, from app/over/kustomization.yaml:2:29",
        ),
        (
            with("secretGenerator: [{name: a, behavior: mix}]"),
            &[],
            "2:39: error: secretGenerator[0].behavior: `mix` is not a value of this field",
        ),
        (
            with("replicas: [{name: wep, count: 2}]"),
            &[],
            "2:19: error: replicas[0].name: no object with replicas is named `wep`",
        ),
        (
            with("replacements: [{source: {kind: Service}, targets: []}]"),
            &[],
            "2:25: error: replacements[0].source: selects nothing",
        ),
        (
            with(
                "replacements: [{sourceValue: a, targets: [{select: {kind: Deployment}, fieldPaths: [spec.none]}]}]",
            ),
            &[],
            "2:85: error: replacements[0].targets[0].fieldPaths[0]: `spec.none` does not exist in the Deployment `web` of app/base/web.yaml:4:9",
        ),
        ("{}".into(), &circle, ": error: the manifests hold no workload"),
        ("".into(), &circle, ": error: the kustomization is empty"),
        (
            "resources: [../base]\n---\nresources: []".into(),
            &[],
            "3:1: error: a kustomization is one document",
        ),
    ];
    let mut wrong = Vec::new();
    for (text, more, expected) in cases {
        let found = told(text, more);
        let begins = |it: &String| {
            it.strip_prefix("app/over/kustomization.yaml")
                .is_some_and(|it| it.trim_start_matches(':').starts_with(expected.trim_start_matches(':')))
                || it.strip_prefix("app/over").is_some_and(|it| it.starts_with(expected))
        };
        if found.len() != 1 || !begins(&found[0]) {
            wrong.push(format!("{text}\nexpected: {expected}\n   found: {found:#?}"));
        }
        assert!(!found.join("").contains("hunter2"), "{found:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn bases_that_multiply_come_to_an_end() {
    let mut files =
        MemoryFiles::new([("n0/kustomization.yaml", "resources: [web.yaml]"), ("n0/web.yaml", WEB)]);
    for level in 1..=16 {
        for side in ["a", "b"] {
            let text = format!("namePrefix: {side}-\nresources: [../n{}]", level - 1);
            files.0.insert(format!("{side}{level}/kustomization.yaml"), text.into_bytes().into());
        }
        let text = format!("resources: [../a{level}, ../b{level}]");
        files.0.insert(format!("n{level}/kustomization.yaml"), text.into_bytes().into());
    }
    let found = lines(&render(&files, &spec("n16/kustomization.yaml")).findings);
    assert!(found.iter().any(|it| it.contains("more than 1000 kustomizations are read")), "{found:?}");
    assert_eq!(built(&files, "n3/kustomization.yaml").len(), 8);

    let deep: Vec<_> = (0..40)
        .map(|it| (format!("d{it}/kustomization.yaml"), format!("resources: [../d{}]", it + 1)))
        .collect();
    let files = MemoryFiles::new(deep.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    let found = lines(&render(&files, &spec("d0/kustomization.yaml")).findings);
    assert_eq!(
        found,
        ["d31/kustomization.yaml:1:13: error: resources[0]: kustomizations are nested deeper than 32 levels"]
    );
    let doubling: String =
        (0..40).map(|it| format!("- {{op: copy, from: /spec, path: /spec/x{it}}}\n")).collect();
    let found = told(
        "resources: [../base]\npatches: [{target: {kind: Deployment}, path: p.yaml}]",
        &[("app/over/p.yaml", doubling.as_str())],
    );
    assert!(
        found.len() == 1 && found[0].contains("makes the Deployment `web`") && found[0].contains("too large"),
        "{found:?}"
    );
}

#[test]
fn texts_that_multiply_come_to_an_end() {
    let map = |text: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{a: '{text}'}}\n")
    };
    let told = |kustomization: &str, files: &[(&str, &str)]| {
        let found = told(&format!("resources: [../base, a.yaml]\n{kustomization}"), files);
        found.into_iter().next().unwrap()
    };
    // Each time, the first part becomes the whole.
    let double = "- {source: {kind: ConfigMap, fieldPath: data.a}, targets: [{select: {kind: ConfigMap}, fieldPaths: \
                  [data.a], options: {delimiter: ':', index: 0}}]}\n";
    let found = told(&format!("replacements:\n{}", double.repeat(60)), &[("app/over/a.yaml", &map("x:x"))]);
    assert!(found.contains("too large") || found.contains("is written to too many places"), "{found}");
    let long = map(&"x".repeat(500_000));
    let copies: String =
        (0..2000).map(|it| format!("- {{op: copy, from: /data/a, path: /data/b{it}}}\n")).collect();
    let found = told(
        "patches: [{target: {kind: ConfigMap}, path: p.yaml}]",
        &[("app/over/a.yaml", &long), ("app/over/p.yaml", &copies)],
    );
    assert!(found.contains("makes the ConfigMap `a`") && found.contains("too large"), "{found}");
    let list =
        format!("apiVersion: v1\nkind: List\nmetadata: {{name: b}}\nx: [{}]\n", "{y: z}, ".repeat(5000));
    let all = "replacements: [{source: {kind: ConfigMap, fieldPath: data.a}, targets: [{select: {name: b}, fieldPaths: \
               ['x.*.y']}]}]";
    let found = told(all, &[("app/over/a.yaml", &format!("{long}---\n{}", list.replace("List", "Other")))]);
    assert!(found.contains("is written to too many places"), "{found}");
}

#[test]
fn a_changed_literal_changes_only_those_that_read_it() {
    let text = |mode: &str| {
        format!(
            "resources: [../base, other.yaml]\nconfigMapGenerator: [{{name: c, literals: [MODE={mode}]}}]\npatches: [{{path: p.yaml}}]\n"
        )
    };
    let other = WEB.replace("name: web", "name: other");
    let patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: web, envFrom: [{configMapRef: {name: c}}]}]}}}\n";
    let more = [("app/over/other.yaml", other.as_str()), ("app/over/p.yaml", patch)];
    let workloads = |mode: &str| rendered(&text(mode), &more).stack.unwrap().workloads;
    let (one, two) = (workloads("one"), workloads("two"));
    assert_eq!(one[&"other".into()].container, two[&"other".into()].container);
    assert_ne!(one[&"web".into()].container, two[&"web".into()].container);
}

#[test]
fn printed_kustomization_hides_secrets() {
    let files = projects();
    let mask = Mask::new([7; 32]);
    let found = kubernetes::documents(&files, &spec("shop/base/kustomization.yaml"), Some(&mask));
    let documents = by_id(found.documents.unwrap());
    let secret = documents.iter().find(|(id, _)| id.starts_with("\"Secret\"")).unwrap().1;
    assert_eq!(secret["data"]["password"], json!(mask.hide("b25seS1mb3ItdGVzdHM=")));
    let settings = documents.iter().find(|(id, _)| id.contains("web-settings")).unwrap().1;
    assert_eq!(settings["data"]["MODE"], "base");
}

#[test]
fn last_of_two_equal_keys_of_a_kustomization_counts() {
    let more = [("app/over/more.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n")];
    let twice = "resources: [more.yaml]\nnamespace: one\nresources: [../base]\nlabels:\n- {pairs: {a: b}, pairs: {c: d}}\nnamespace: two";
    let found = rendered(twice, &more);
    let stack = found.stack.unwrap();
    let names: Vec<&str> = stack.workloads.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["web.two"]);
    let warnings = lines(&found.findings);
    let expected = [
        "app/over/kustomization.yaml:1:1: warning: resources: has no effect: `resources` is defined again at line 3",
        "app/over/kustomization.yaml:2:1: warning: namespace: has no effect: `namespace` is defined again at line 6",
        "app/over/kustomization.yaml:5:4: warning: pairs: has no effect: `pairs` is defined again at line 5",
    ];
    for warning in expected {
        assert!(warnings.iter().any(|line| line.starts_with(warning)), "{warnings:#?}");
    }
    // Manifests are read strictly, as kustomize reads them.
    let strict = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\nmetadata: {name: less}\n";
    let told = told("resources: [more.yaml]", &[("app/over/more.yaml", strict)]);
    assert!(told[0].contains("`metadata` is already defined at line 3"), "{told:#?}");
}
