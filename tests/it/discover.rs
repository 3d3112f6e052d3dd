//! Folders of a repository that are applications, and the errors if none is.

use std::{collections::BTreeSet, sync::Arc};

use driftless_files::{AppSpec, HostFile, MemoryFiles};
use driftless_manifest::{Configured, Discovery, discover, discover_for, may_hide, render, unlisted};
use driftless_model::{AppName, Format, Held, HostIdentity, Location, Stack, check, conflicts};

const COMPOSE: &str = "services: {web: {image: app}}\n";
const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";

fn apps(found: &Discovery) -> Vec<(String, String, Format)> {
    found.apps.iter().map(|it| (it.name.0.clone(), it.files.join(" "), it.format)).collect()
}

fn findings(found: &Discovery) -> Vec<String> {
    found.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn folders_to_depth_two_are_applications_named_after_them() {
    let files = MemoryFiles::new([
        ("sites/Shop/compose.yaml", COMPOSE),
        ("sites/Shop/below/compose.yaml", COMPOSE),
        ("sites/group/blog/docker-compose.yml", COMPOSE),
        ("sites/group/deep/er/compose.yaml", COMPOSE),
        ("sites/orders/deployment.yaml", DEPLOYMENT),
        ("sites/orders/values.yaml", "a: 1"),
        ("sites/orders/service.yml", DEPLOYMENT),
        ("sites/.hidden/compose.yaml", COMPOSE),
        ("sites/empty/README.md", "nothing"),
    ]);
    let found = discover(&files, "/sites/", "repository", &[]);
    let text = "sites/group/deep/er: warning: `sites/group/deep/er` has a Compose file, but lies more than 2 folders below the path";
    assert!(matches!(findings(&found).as_slice(), [one] if one.starts_with(text)), "{found:#?}");
    let compose = |name: &str, file: &str| (name.to_owned(), file.to_owned(), Format::Compose);
    assert_eq!(
        apps(&found),
        [
            compose("blog", "sites/group/blog/docker-compose.yml"),
            (
                "orders".to_owned(),
                "sites/orders/deployment.yaml sites/orders/service.yml".to_owned(),
                Format::Kubernetes
            ),
            compose("shop", "sites/Shop/compose.yaml"),
        ]
    );
}

/// The usual layout of kustomize, with the overlays a folder deeper than the base.
#[test]
fn base_of_a_deeper_overlay_is_no_application() {
    const BASE: &str = "resources: [web.yaml]\n";
    let layout = |top: &str, resources: &str| {
        let at = |path: &str| format!("{top}{path}");
        [
            (at("base/kustomization.yaml"), BASE.to_owned()),
            (at("base/web.yaml"), DEPLOYMENT.to_owned()),
            (at("overlays/prod/kustomization.yaml"), format!("resources: [{resources}]\n")),
            ("db/compose.yaml".to_owned(), COMPOSE.to_owned()),
        ]
    };
    let files = |all: &[(String, String)]| {
        MemoryFiles::new(all.iter().map(|(path, text)| (path.as_str(), text.as_str())))
    };
    let found = discover(&files(&layout("shop/", "../../base")), "", "infra", &[]);
    assert_eq!(apps(&found), [("db".into(), "db/compose.yaml".into(), Format::Compose)]);
    let deep = "has a kustomization, but lies more than 2 folders below the path, so it is not read";
    assert!(
        findings(&found).iter().any(|it| it.contains(&format!("`shop/overlays/prod` {deep}"))),
        "{found:#?}"
    );
    // With that folder as the path it is near enough.
    let found = discover(&files(&layout("shop/", "../../base")), "shop", "infra", &[]);
    assert_eq!(
        apps(&found),
        [("prod".into(), "shop/overlays/prod/kustomization.yaml".into(), Format::Kubernetes)]
    );
    assert_eq!(findings(&found), Vec::<String>::new());
    // Nothing is found at all.
    let found = discover(&files(&layout("apps/shop/", "../../base")[..3]), "", "infra", &[]);
    assert!(apps(&found).is_empty() && findings(&found).iter().any(|it| it.contains(deep)), "{found:#?}");
    // One that uses no application is not meant.
    let found = discover(&files(&layout("shop/", "other.yaml")), "", "infra", &[]);
    assert_eq!(apps(&found).len(), 2, "{found:#?}");
    assert_eq!(findings(&found), Vec::<String>::new());
}

#[test]
fn manifests_below_the_depth_are_named_in_warnings() {
    const BASE: &str = "resources: [web.yaml]\n";
    let kustomized = [
        ("sites/kz/base/kustomization.yaml", BASE),
        ("sites/kz/base/web.yaml", DEPLOYMENT),
        ("sites/kz/overlays/prod/kustomization.yaml", "resources: [../../base]\n"),
        ("sites/shop/compose.yaml", COMPOSE),
    ];
    let warned = |files: &[(&str, &str)]| -> Vec<String> {
        let found = discover(&MemoryFiles::new(files.iter().copied()), "", "infra", &[]);
        assert!(
            !found.apps.is_empty() && !found.findings.iter().any(driftless_model::Finding::is_error),
            "{found:#?}"
        );
        assert_eq!(found.empty_folder, None);
        found.findings.into_iter().map(|it| it.location.file).collect()
    };
    assert_eq!(warned(&kustomized), ["sites/kz/overlays/prod"], "the base is not meant");
    assert_eq!(warned(&[("a/b/c/compose.yaml", COMPOSE), ("db/compose.yaml", COMPOSE)]), ["a/b/c"]);
    // Folders of an application, those that are seldom meant, and files that others may use.
    let none: &[&str] = &[];
    assert_eq!(warned(&[("db/compose.yaml", COMPOSE), ("db/b/c/compose.yaml", COMPOSE)]), none);
    assert_eq!(warned(&[("db/compose.yaml", COMPOSE), ("src/tests/a/compose.yaml", COMPOSE)]), none);
    assert_eq!(
        warned(&[("db/compose.yaml", COMPOSE), ("src/tests/a/kustomization.yaml", "resources: []\n")]),
        none
    );
    let using = "include: [../lib/a/b/compose.yaml]\n";
    let files =
        [("db/compose.yaml", using), ("lib/a/b/compose.yaml", COMPOSE), ("x/y/z/compose.yaml", COMPOSE)];
    assert_eq!(warned(&files[..2]), none);
    assert_eq!(warned(&files), ["x/y/z"], "only the other one is used");
    assert_eq!(discover(&MemoryFiles::new(files), "", "infra", &[]).too_deep, ["lib/a/b", "x/y/z"]);
    let commented = "services: {web: {image: 'web:1'}}\n# extends: ../x/y/z/compose.yaml\n";
    assert_eq!(warned(&[("db/compose.yaml", commented), files[2]]), ["x/y/z"], "a comment uses nothing");

    // Without an application, it stays that error, because an empty list must not remove anything.
    let found = discover(&MemoryFiles::new([("a/b/c/compose.yaml", COMPOSE)]), "", "infra", &[]);
    assert_eq!((found.apps.len(), found.findings.len(), found.empty_folder.as_deref()), (0, 1, Some("")));
    let one = &found.findings[0];
    assert!(
        one.is_error() && one.help.as_ref().is_some_and(|it| it.contains("`a/b/c` has a Compose file")),
        "{one}"
    );
}

#[test]
fn manifests_in_json_are_read_with_the_others() {
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "once"}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}"#;
    let files = MemoryFiles::new([
        ("a/web.yaml", pod.replace("once", "web").as_str()),
        ("a/pod.json", pod),
        ("a/package.json", "{\"name\": \"shop\"}"),
        ("a/broken.json", "{"),
        ("alone/pod.json", pod.replace("once", "alone").as_str()),
        ("none/package.json", "{\"name\": \"shop\", \"apiVersion\": \"1\"}"),
    ]);
    let found = discover(&files, "", "infra", &[]);
    assert_eq!(apps(&found).len(), 2, "{found:#?}");
    assert_eq!(found.apps[1].files, ["alone/pod.json"]);
    assert_eq!(found.apps[0].files, ["a/pod.json", "a/web.yaml"]);
    let rendered = render(&files, &found.apps[0]);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    assert!(stack.workloads.keys().any(|it| it.as_str() == "once"));
    assert_eq!(findings(&found), Vec::<String>::new());
}

#[test]
fn root_application_is_named_after_the_repository() {
    let files = MemoryFiles::new([
        ("docker-compose.yml", COMPOSE),
        ("compose.yml", COMPOSE),
        ("compose.override.yml", COMPOSE),
        ("prometheus.yml", "global: {}"),
        ("template.yaml", "{{ not: yaml"),
    ]);
    let found = discover(&files, "", "infra.git", &[]);
    assert_eq!(findings(&found), Vec::<String>::new());
    let wanted = ("infragit".to_owned(), "compose.yml compose.override.yml".to_owned(), Format::Compose);
    assert_eq!(apps(&found), [wanted]);
}

#[test]
fn override_file_of_any_name_is_merged() {
    let files = |names: &[&str]| {
        let files = MemoryFiles::new(names.iter().map(|name| (*name, COMPOSE)));
        let found = discover(&files, "", "shop", &[]);
        let rendered = render(&files, &found.apps[0]);
        assert!(rendered.stack.is_some(), "{:?}", rendered.findings);
        let warnings: Vec<String> = rendered.findings.iter().map(|it| it.location.to_string()).collect();
        (found.apps[0].files.join(" "), warnings.join(" "))
    };
    let pair = |read: &str, warned: &str| (read.to_owned(), warned.to_owned());
    for names in [
        ["compose.yaml", "docker-compose.override.yml"],
        ["compose.yml", "docker-compose.override.yaml"],
        ["docker-compose.yml", "compose.override.yaml"],
        ["docker-compose.yaml", "compose.override.yml"],
    ] {
        assert_eq!(files(&names), pair(&names.join(" "), ""));
    }
    let found = files(&[
        "compose.yaml",
        "compose.override.yaml",
        "compose.override.yml",
        "docker-compose.override.yml",
    ]);
    let warned = "compose.override.yaml docker-compose.override.yml";
    assert_eq!(found, pair("compose.yaml compose.override.yml", warned));
    let found = files(&["docker-compose.yaml", "docker-compose.yml"]);
    assert_eq!(found, pair("docker-compose.yml", "docker-compose.yaml"));
}

#[test]
fn two_formats_in_one_folder_are_an_error_of_the_application() {
    let files = MemoryFiles::new([("a/compose.yaml", COMPOSE), ("a/web.yaml", DEPLOYMENT)]);
    let found = discover(&files, "a", "repository", &[]);
    assert_eq!(apps(&found).len(), 1);
    let rendered = render(&files, &found.apps[0]);
    let text: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
    let text = text.join("\n");
    assert!(text.starts_with("a/web.yaml: error:") && text.contains("a/compose.yaml"), "{text}");
    assert!(rendered.stack.is_none());
}

#[test]
fn a_missing_path_an_empty_one_and_a_broken_file_are_errors() {
    let files =
        MemoryFiles::new([("a/README.md", "x"), ("b/web.yaml", "a: [1"), ("c/compose.yaml", COMPOSE)]);
    for (path, part) in [("nowhere", "does not exist"), ("a", "contains no application")] {
        let found = discover(&files, path, "repository", &[]);
        assert_eq!(apps(&found), []);
        assert!(findings(&found).join("\n").contains(part), "{:?}", found.findings);
    }
    // A broken application is still listed, and does not hide the next one.
    let found = discover(&files, "", "repository", &[]);
    assert_eq!((found.apps.len(), found.findings.len()), (2, 0));
    let rendered = render(&files, &found.apps[0]);
    assert!(rendered.stack.is_none());
    assert!(rendered.findings[0].to_string().starts_with("b/web.yaml:"), "{:?}", rendered.findings);
}

/// Files that are no manifests and cannot be read as one: too large, with a key twice, and a template.
fn unreadable_files() -> [(&'static str, String); 3] {
    [
        ("pnpm-lock.yaml", format!("lockfileVersion: '9.0'\n# {}\n", "x".repeat(1 << 20))),
        ("values.yaml", "a: 1\na: 2\n".to_owned()),
        ("template.yaml", "{{ if .tls }}\nport: 443\n{{ end }}\n".to_owned()),
    ]
}

#[test]
fn unreadable_file_hides_no_application_below_its_folder() {
    for (name, text) in unreadable_files() {
        for (folder, called) in [("", "infra"), ("sites/", "sites")] {
            let path = format!("{folder}{name}");
            let file = (path.as_str(), text.as_str());
            let below = [file, ("sites/shop/compose.yaml", COMPOSE), ("sites/blog/compose.yaml", COMPOSE)];
            let found = discover(&MemoryFiles::new(below), "", "infra", &[]);
            let names: Vec<&str> = found.apps.iter().map(|app| app.name.as_str()).collect();
            assert_eq!(names, ["blog", "shop"], "{path}");
            // A lock file was never a manifest. For the others it is not known, so nothing may be removed.
            let errors: Vec<&str> = found.findings.iter().map(|it| it.location.file.as_str()).collect();
            let expected = Some(path.as_str()).filter(|_| name != "pnpm-lock.yaml");
            assert_eq!(errors, expected.into_iter().collect::<Vec<_>>(), "{path}: {:?}", found.findings);
            assert!(found.findings.iter().all(driftless_model::Finding::is_error), "{:?}", found.findings);

            let alone = MemoryFiles::new([file]);
            let found = discover(&alone, "", "infra", &[]);
            assert_eq!(apps(&found), [(called.to_owned(), path.clone(), Format::Kubernetes)]);
            assert_eq!(findings(&found), Vec::<String>::new());
            assert!(render(&alone, &found.apps[0]).stack.is_none());
        }
        // Next to a manifest it counts as one, and next to a Compose file it is not read.
        let path = format!("shop/{name}");
        let [file, below] = [(path.as_str(), text.as_str()), ("shop/dev/compose.yaml", COMPOSE)];
        let found =
            discover(&MemoryFiles::new([file, ("shop/web.yaml", DEPLOYMENT), below]), "", "infra", &[]);
        assert_eq!(apps(&found), [("shop".into(), format!("{path} shop/web.yaml"), Format::Kubernetes)]);
        assert_eq!(findings(&found), Vec::<String>::new());
        let found =
            discover(&MemoryFiles::new([file, ("shop/compose.yaml", COMPOSE), below]), "", "infra", &[]);
        assert_eq!(apps(&found), [("shop".into(), "shop/compose.yaml".into(), Format::Compose)]);
        assert_eq!(findings(&found), Vec::<String>::new());
    }
}

#[test]
fn folder_with_a_broken_manifest_stays_that_application() {
    for text in [
        format!("{DEPLOYMENT}# {}\n", "x".repeat(1 << 20)),
        format!("{DEPLOYMENT}kind: Deployment\n"),
        DEPLOYMENT.replace("web", "{ {{ .name }}-web"),
    ] {
        let own = [("shop/web.yaml", text.as_str()), ("blog/compose.yaml", COMPOSE)];
        for has_below in [false, true] {
            let below = [("shop/dev/compose.yaml", COMPOSE)];
            let files = MemoryFiles::new(own.into_iter().chain(below.into_iter().filter(|_| has_below)));
            let found = discover(&files, "", "infra", &[]);
            let expected = [
                ("blog".to_owned(), "blog/compose.yaml".to_owned(), Format::Compose),
                ("shop".to_owned(), "shop/web.yaml".to_owned(), Format::Kubernetes),
            ];
            assert_eq!(apps(&found), expected);
            assert!(render(&files, &found.apps[1]).stack.is_none());
            // Nothing is removed, because the folder below may have been an application.
            let texts = findings(&found);
            assert_eq!(texts.len(), usize::from(has_below), "{texts:?}");
            let names_both = |it: &String| it.starts_with("shop/web.yaml") && it.contains("`shop/dev`");
            assert!(texts.iter().all(names_both), "{texts:?}");
        }
        // No warning says that folders below are read.
        let tool = ("shop/lab/kind.yaml", "apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\n");
        let files = own.into_iter().chain([tool, ("shop/lab/dev/compose.yaml", COMPOSE)]);
        let texts = findings(&discover(&MemoryFiles::new(files), "shop", "infra", &[]));
        assert!(texts.len() == 1 && texts[0].contains("`shop/lab/dev`"), "{texts:?}");
    }
}

#[test]
fn manifest_of_another_tool_hides_no_application_below() {
    const CATALOG: &str = "apiVersion: backstage.io/v1alpha1\nkind: Component\nmetadata: {name: infra}\n";
    for (name, text) in [
        ("catalog-info.yaml", CATALOG.to_owned()),
        ("skaffold.yaml", "apiVersion: skaffold/v4beta6\nkind: Config\n".to_owned()),
        ("cluster.yaml", "apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\n".to_owned()),
        ("k3d.yaml", "apiVersion: k3d.io/v1alpha5\nkind: Simple\n".to_owned()),
        ("template.yaml", "apiVersion: scaffolder.backstage.io/v1beta3\nkind: Template\n".to_owned()),
        ("kubeconfig.yaml", "apiVersion: v1\nkind: Config\nclusters: []\n".to_owned()),
        ("kubeadm.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n".to_owned()),
        ("catalog.json", r#"{"apiVersion": "backstage.io/v1alpha1", "kind": "Component"}"#.to_owned()),
    ] {
        let files = [(name, text.as_str()), ("shop/compose.yaml", COMPOSE), ("web/web.yaml", DEPLOYMENT)];
        let found = discover(&MemoryFiles::new(files), "", "infra", &[]);
        let names: Vec<&str> = found.apps.iter().map(|app| app.name.as_str()).collect();
        assert_eq!(names, ["shop", "web"], "{name}");
        let [warning] = found.findings.as_slice() else { panic!("{name}: {found:#?}") };
        assert!(!warning.is_error() && warning.location.file == name, "{warning}");
        assert_eq!(found.unsearched, [name], "it may have replaced a manifest");
        // Without an application below, rendering names the kind.
        let alone = MemoryFiles::new([(name, text.as_str())]);
        let found = discover(&alone, "", "infra", &[]);
        assert_eq!(apps(&found), [("infra".to_owned(), name.to_owned(), Format::Kubernetes)]);
        assert!(render(&alone, &found.apps[0]).stack.is_none() && found.unsearched.is_empty());
    }
    // Next to a Compose file it is not read, next to a manifest it may be an object that the application needs.
    let files = MemoryFiles::new([
        ("shop/compose.yaml", COMPOSE),
        ("shop/catalog-info.yaml", CATALOG),
        ("web/catalog-info.yaml", CATALOG),
        ("web/web.yaml", DEPLOYMENT),
    ]);
    let found = discover(&files, "", "infra", &[]);
    assert!(render(&files, &found.apps[0]).stack.is_some(), "{found:#?}");
    assert_eq!(found.apps[1].files, ["web/catalog-info.yaml", "web/web.yaml"]);
    // A typing error in a kind of Kubernetes is one.
    let typo = DEPLOYMENT.replace("kind: Deployment", "kind: Deploymnt");
    let files = MemoryFiles::new([("web.yaml", typo.as_str()), ("shop/compose.yaml", COMPOSE)]);
    let found = discover(&files, "", "infra", &[]);
    assert_eq!(apps(&found), [("infra".to_owned(), "web.yaml".to_owned(), Format::Kubernetes)]);
    assert_eq!(found.unsearched, ["shop/compose.yaml"]);
}

#[test]
fn many_files_below_an_application_hide_no_other_one() {
    let mut files = MemoryFiles::new([("api/compose.yaml", COMPOSE), ("web/compose.yaml", COMPOSE)]);
    for number in 0..=200_000 {
        files.0.insert(format!("api/assets/{number}.txt"), [].into());
    }
    let found = discover(&files, "", "infra", &[]);
    assert_eq!(apps(&found).len(), 2, "{:?}", findings(&found));
    assert_eq!(findings(&found), [""; 0]);
    assert_eq!(found.unsearched, ["api/assets", "web"], "the limit is used up before the folders below web");
}

#[test]
fn only_manifests_below_an_application_are_doubts() {
    let files = MemoryFiles::new([
        ("compose.yaml", COMPOSE),
        ("shop/.env", "TAG=1\n"),
        ("shop/package.json", "{\"name\": \"shop\"}"),
        ("shop/prometheus.yml", "global: {}\n"),
        ("blog/.env", "COMPOSE_FILE=blog.compose.yaml\n"),
        ("blog/blog.compose.yaml", COMPOSE),
        ("web/config.yaml", "a: b\n"),
        ("web/deployment.yaml", DEPLOYMENT),
    ]);
    let found = discover(&files, "", "infra", &[]);
    let unsearched: BTreeSet<&str> = found.unsearched.iter().map(String::as_str).collect();
    assert_eq!(unsearched, BTreeSet::from(["blog/.env", "web/deployment.yaml"]));
    assert!(may_hide("blog/.env", "blog") && may_hide("web/deployment.yaml", "web"));
}

#[test]
fn kind_of_an_operator_makes_its_folder_an_application() {
    const OPERATED: &str = "apiVersion: apps.example.com/v1\nkind: WebApp\nmetadata: {name: shop}\n";
    let files =
        MemoryFiles::new([("shop/shop.yaml", OPERATED), ("shop/monitoring/grafana.yaml", DEPLOYMENT)]);
    let found = discover(&files, "", "infra", &[]);
    assert_eq!(apps(&found), [("shop".to_owned(), "shop/shop.yaml".to_owned(), Format::Kubernetes)]);
    assert!(render(&files, &found.apps[0]).stack.is_none());
}

#[test]
fn file_of_another_tool_makes_a_folder_of_tests_an_application() {
    const CLUSTER: &str = "apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\n";
    let files = MemoryFiles::new([
        ("test/kind.yaml", CLUSTER),
        ("test/fixture/compose.yaml", COMPOSE),
        ("shop/compose.yaml", COMPOSE),
    ]);
    let found = discover(&files, "", "infra", &[]);
    let names: Vec<&str> = found.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["shop", "test"]);
    assert_eq!(found.unsearched, ["test/fixture/compose.yaml"]);
    // The user chose this folder.
    let found = discover(&files, "test", "infra", &[]);
    let names: Vec<&str> = found.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["fixture"]);
}

#[test]
fn folders_beyond_the_named_ones_are_counted() {
    let paths: Vec<String> = (1..=8).map(|number| format!("stacks/apps/{number}/x/compose.yaml")).collect();
    let files = paths.iter().map(|path| (path.as_str(), COMPOSE)).chain([("db/compose.yaml", COMPOSE)]);
    let found = discover(&MemoryFiles::new(files), "", "infra", &[]);
    let texts = findings(&found);
    assert_eq!(texts.len(), 6, "{texts:?}");
    let rest = "the same holds for 3 more, such as `stacks/apps/6/x`; all are below `stacks/apps`";
    assert!(texts[5].contains(rest), "{texts:?}");
}

#[test]
fn compose_file_of_another_name_is_named() {
    let other = ("mealie/mealie.compose.yaml", COMPOSE);
    let alone = discover(&MemoryFiles::new([other]), "mealie", "infra", &[]);
    let [error] = alone.findings.as_slice() else { panic!("{alone:#?}") };
    let names_it = |text: &str| text.contains("`mealie/mealie.compose.yaml` looks like a Compose file");
    assert!(error.is_error() && names_it(&error.to_string()), "{error}");
    let listed = Configured { path: "mealie".to_owned(), ..Configured::default() };
    let configured = discover(&MemoryFiles::new([other]), "", "infra", &[listed]);
    assert!(names_it(&findings(&configured).join("\n")), "{configured:#?}");
    let warned = |shop: &str, name: &str, text: &str| {
        let files = MemoryFiles::new([("shop/compose.yaml", shop), (name, text)]);
        let found = discover(&files, "", "infra", &[]);
        assert!(found.findings.iter().all(|finding| !finding.is_error()), "{found:#?}");
        found.findings.len()
    };
    assert_eq!(warned(COMPOSE, other.0, COMPOSE), 1);
    assert_eq!(warned(COMPOSE, "mealie/stack.yml", COMPOSE), 1);
    assert_eq!(warned("include: [../mealie/mealie.compose.yaml]\n", other.0, COMPOSE), 0, "it is used");
    assert_eq!(warned(COMPOSE, other.0, "stack: none\n"), 0, "it has no services");
    assert_eq!(warned(COMPOSE, "docs/mealie/stack.yml", COMPOSE), 0);
}

#[test]
fn helm_chart_is_no_application() {
    const CHART: &str = "apiVersion: v2\nname: guestbook\nversion: 0.1.0\n";
    let template = DEPLOYMENT.replace("web", "{{ .Release.Name }}");
    let files = [
        ("one/Chart.yaml", CHART),
        ("one/values.yaml", "replicas: 1\n"),
        ("one/templates/web.yaml", template.as_str()),
        ("two/Chart.yaml", CHART),
        ("two/templates/web.yaml", template.as_str()),
        ("two/crds/web.yaml", DEPLOYMENT),
        ("shop/compose.yaml", COMPOSE),
    ];
    let found = discover(&MemoryFiles::new(files), "", "infra", &[]);
    assert_eq!(apps(&found), [("shop".into(), "shop/compose.yaml".into(), Format::Compose)]);
    let texts = findings(&found);
    assert!(texts.len() == 2 && texts[0].contains("warning: `one` is a Helm chart"), "{texts:?}");
    // Applications that were found there before do not count as removed.
    assert!(found.unread_files.iter().any(|it| may_hide(&it.location.file, "one/templates")), "{found:#?}");
    let alone = discover(&MemoryFiles::new(files), "one", "infra", &[]);
    assert!(findings(&alone).join("\n").contains("`helm template`"), "{alone:#?}");
    // Those of a larger chart lie in folders of their own.
    let template = ("templates/web/web.yaml", template.as_str());
    let files = [("Chart.yaml", CHART), template, ("shop/compose.yaml", COMPOSE)];
    assert_eq!(apps(&discover(&MemoryFiles::new(files), "", "infra", &[])).len(), 1);
    // Manifests without templates, and folders of other names, are read as before.
    let files = [("Chart.yaml", CHART), ("templates/web.yaml", DEPLOYMENT), ("shop/compose.yaml", COMPOSE)];
    assert_eq!(apps(&discover(&MemoryFiles::new(files), "", "infra", &[])).len(), 2);
}

#[test]
fn compose_file_of_two_applications_is_reported() {
    const COMMON: &str = "services: {db: {image: 'postgres:17', volumes: ['/srv/db:/data']}}\n";
    const INCLUDE: &str = "include: [../commons/compose.yaml]\nservices: {web: {image: 'app:1'}}\n";
    const EXTEND: &str = "services:\n  web:\n    extends: {file: ../commons/compose.yaml, service: db}\n";
    const INDIRECT: &str = "include: [{path: [../lib/all.yaml]}]\nservices: {web: {image: 'app:1'}}\n";
    for (using, place) in [
        (INCLUDE, "sites/shop/compose.yaml:1:11: warning: include[0]"),
        (EXTEND, "sites/shop/compose.yaml:3:21: warning: services.web.extends.file"),
        (INDIRECT, "sites/lib/all.yaml:1:11: warning: include[0]"),
    ] {
        let files = MemoryFiles::new([
            ("sites/commons/compose.yaml", COMMON),
            ("sites/lib/all.yaml", "include: [../commons/compose.yaml]\n"),
            ("sites/shop/compose.yaml", using),
        ]);
        let found = discover(&files, "sites", "repository", &[]);
        assert_eq!(findings(&found), Vec::<String>::new());
        let [commons, shop] = found.apps.as_slice() else { panic!("{found:#?}") };
        assert!(commons.findings.is_empty(), "{commons:#?}");
        let [warning] = shop.findings.as_slice() else { panic!("{shop:#?}") };
        let warning = warning.to_string();
        assert!(warning.starts_with(place) && warning.contains("the application `commons`"), "{warning}");
        assert!(render(&files, shop).stack.is_some() && render(&files, commons).stack.is_some());

        // Somebody who lists both wants both.
        let listed = ["sites/commons", "sites/shop"]
            .map(|path| Configured { path: path.to_owned(), ..Configured::default() });
        let found = discover(&files, "sites", "repository", &listed);
        assert!(found.apps.iter().all(|app| app.findings.is_empty()), "{found:#?}");
    }
}

#[test]
fn two_folders_of_one_name_is_an_error_naming_both() {
    let files = MemoryFiles::new([("a/web/compose.yaml", COMPOSE), ("b/Web/compose.yaml", COMPOSE)]);
    let found = discover(&files, "", "repository", &[]);
    assert_eq!(apps(&found), []);
    assert_eq!(found.findings.len(), 2);
    assert!(found.findings[0].message.contains("`a/web`, `b/Web`"), "{:?}", found.findings);
    assert!(found.findings[0].help.as_ref().unwrap().contains("`path: ${host}`"), "{:?}", found.findings);
}

#[test]
fn configured_applications_keep_their_settings() {
    let files = MemoryFiles::new([("a/compose.yaml", COMPOSE), ("b/compose.yaml", COMPOSE)]);
    let configured = [
        Configured {
            name: Some(AppName::from("first")),
            path: "a".to_owned(),
            variables: [("TAG".to_owned(), "1".to_owned())].into(),
            profiles: vec!["debug".to_owned()],
            ..Configured::default()
        },
        Configured {
            path: "missing".to_owned(),
            place: Some(Location::file("driftless.yaml")),
            ..Configured::default()
        },
    ];
    let found = discover(&files, "", "repository", &configured);
    assert_eq!(apps(&found), [("first".to_owned(), "a/compose.yaml".to_owned(), Format::Compose)]);
    assert_eq!(found.apps[0].variables["TAG"], "1");
    assert_eq!(found.apps[0].profiles, ["debug"]);
    let all = findings(&found);
    let missing = &all[0];
    assert!(missing.contains("`missing` does not exist"), "{missing}");
    assert!(missing.contains("remove its entry from `applications` at driftless.yaml"), "{missing}");
}

#[test]
fn conflicting_applications_are_reported_with_both_files() {
    let text = |port: &str| {
        format!("name: same\nservices: {{web: {{image: a, container_name: front, ports: ['{port}']}}}}\n")
    };
    let (one, other) = (text("0.0.0.0:80:80"), text("127.0.0.1:80:80"));
    let udp = "services: {web: {image: a, ports: ['80:80/udp']}}\n";
    let files =
        MemoryFiles::new([("a/compose.yaml", &*one), ("b/compose.yaml", &*other), ("c/compose.yaml", udp)]);
    let found = discover(&files, "", "repository", &[]);
    let stacks: Vec<_> = found.apps.iter().map(|it| render(&files, it).stack.unwrap()).collect();
    let stacks: Vec<&Stack> = stacks.iter().collect();
    assert!(stacks.iter().all(|stack| check(stack).is_empty()));
    let told: Vec<String> =
        conflicts(&stacks, &nothing_held()).iter().map(|(app, it)| format!("{app}: {it}")).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    for (told, part) in
        told.iter().zip(["project name `same`", "container name `front`", "host port 127.0.0.1:80/tcp"])
    {
        assert!(told.starts_with("b: b/compose.yaml"), "{told}");
        assert!(told.contains(part) && told.contains("application `a` (a/compose.yaml"), "{told}");
    }
}

#[test]
fn port_conflict_of_two_applications_points_at_both_ports() {
    let compose = "services:\n  web:\n    image: a\n    ports:\n      - '443:443'\n      - '80:80'\n";
    let pod = "apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
    - name: web
      image: a
      ports:
        - containerPort: 80
          hostPort: 80
";
    let files = MemoryFiles::new([("a/compose.yaml", compose), ("b/pod.yaml", pod)]);
    let found = discover(&files, "", "repository", &[]);
    let stacks: Vec<_> = found.apps.iter().map(|spec| render(&files, spec).stack.unwrap()).collect();
    let stacks: Vec<&Stack> = stacks.iter().collect();
    let told: Vec<String> =
        conflicts(&stacks, &nothing_held()).iter().map(|(_, finding)| finding.to_string()).collect();
    let expected = "b/pod.yaml:10:21: error: spec.containers[0].ports[0].hostPort: the host port 80/tcp is taken by \
                    application `a` (a/compose.yaml:6:9)";
    assert_eq!(told, [expected]);
}

fn nothing_held() -> Held<'static> {
    Held { of: &|_| None, absent: &[] }
}

/// Findings as `application: finding` for these manifests by folder, some of which were deployed before.
fn conflicts_with(manifests: &[(&str, &str)], deployed: &[(&str, &str)], absent: &[&str]) -> Vec<String> {
    let render_all = |manifests: &[(&str, &str)]| -> Vec<Arc<Stack>> {
        let named: Vec<(String, &str)> =
            manifests.iter().map(|(folder, text)| (format!("{folder}/compose.yaml"), *text)).collect();
        let files = MemoryFiles::new(named.iter().map(|(path, text)| (path.as_str(), *text)));
        let found = discover(&files, "", "repository", &[]);
        found.apps.iter().map(|spec| Arc::new(render(&files, spec).stack.unwrap())).collect()
    };
    let wanted = render_all(manifests);
    let held = render_all(deployed);
    let gone: Vec<Arc<Stack>> =
        held.iter().filter(|stack| absent.contains(&stack.app.as_str())).map(Arc::clone).collect();
    let of = |app: &AppName| held.iter().find(|stack| stack.app == *app).map(Arc::clone);
    let stacks: Vec<&Stack> = wanted.iter().map(Arc::as_ref).collect();
    let found = conflicts(&stacks, &Held { of: &of, absent: &gone });
    found.iter().map(|(app, finding)| format!("{app}: {finding}")).collect()
}

#[test]
fn running_application_keeps_project_name_and_port() {
    let newcomer = "name: tshop\nservices: {web: {image: a, container_name: front, ports: ['80:80']}}\n";
    let running = "name: tshop\nservices: {web: {image: b, container_name: front, ports: ['80:80']}}\n";
    let wanted = [("aaa", newcomer), ("shop", running)];
    for absent in [&[][..], &["shop"][..]] {
        let wanted = if absent.is_empty() { &wanted[..] } else { &wanted[..1] };
        let found = conflicts_with(wanted, &[("shop", running)], absent);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].contains("compose.yaml:1:7: error: name: the project name `tshop` is taken"),
            "{found:?}"
        );
        assert!(
            found.iter().all(|it| it.starts_with("aaa: ") && it.contains("application `shop`")),
            "{found:?}"
        );
    }
    let found = conflicts_with(&wanted[..1], &[("shop", running)], &["shop"]);
    let port = found.iter().find(|it| it.contains("host port")).unwrap();
    let remedy = " of its last revision) (if shop has left Git, `driftless remove shop` frees it)";
    assert!(port.ends_with(remedy), "{port}");
    // It held another name before, so it is a newcomer to this one.
    let before = "name: other\nservices: {web: {image: b}}\n";
    let found = conflicts_with(&wanted, &[("shop", before)], &[]);
    assert!(found.iter().all(|it| it.starts_with("shop: ")), "{found:?}");
}

#[test]
fn renamed_application_is_led_to_its_volumes() {
    let blog =
        "services: {blog: {image: a, ports: ['80:80'], volumes: ['posts:/p']}}\nvolumes: {posts: {}}\n";
    let found = conflicts_with(&[("journal", blog)], &[("blog", blog)], &["blog"]);
    let port = found.iter().find(|it| it.contains("host port")).unwrap();
    assert!(port.contains("if this is blog under a new name, write `name: blog` first"), "{port}");
    assert!(port.contains("docs/rollouts.md#rename-or-move-an-application"), "{port}");
    let others = [
        "services: {web: {image: a, ports: ['80:80']}}\n".to_owned(),
        // With the project of the old one, it goes on with its volumes.
        format!("name: blog\n{blog}"),
    ];
    for other in &others {
        let found = conflicts_with(&[("journal", other)], &[("blog", blog)], &["blog"]);
        let port = found.iter().find(|it| it.contains("host port")).unwrap();
        assert!(!port.contains("under a new name"), "{port}");
    }
}

#[test]
fn ports_can_move_between_running_applications() {
    let on = |port: &str| format!("services: {{web: {{image: a, ports: ['{port}:80']}}}}\n");
    let (one, other) = (on("81"), on("80"));
    let found = conflicts_with(&[("a", &one), ("b", &other)], &[("a", &other), ("b", &one)], &[]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn files_of_a_host_are_merged_onto_the_others() {
    let files = MemoryFiles::new([
        (
            "shop/compose.yaml",
            "services: {web: {image: 'web:${TAG}', environment: {H: '${DRIFTLESS_HOST}'}}}\n",
        ),
        ("shop/compose.override.yaml", "services: {web: {command: [a]}}\n"),
        ("shop/compose.nas.yaml", "services: {web: {command: [b, '${DRIFTLESS_LABEL_ROLE}']}}\n"),
        ("shop/.env", "TAG=1\n"),
        ("shop/.env.nas", "TAG=2\n"),
        ("blog/docker-compose.yml", "services: {web: {image: 'blog:${TAG-none}'}}\n"),
        ("blog/.env.nas", "TAG=3\n"),
        ("blog/docker-compose.nas.yml", "services: {web: {command: [c]}}\n"),
    ]);
    let labels = [("role".to_owned(), "media".to_owned())].into();
    let host = HostIdentity { name: "nas".to_owned(), labels };
    let on = |host: &HostIdentity| -> Vec<(String, Option<Vec<String>>)> {
        let found = discover_for(host, &files, "", "repository", &[]);
        let stacks = found.apps.iter().map(|app| render(&files, app).stack.unwrap());
        stacks
            .map(|stack| {
                let web = stack.workloads.values().next().unwrap();
                (web.container.image.clone(), web.container.command.clone())
            })
            .collect()
    };
    let command = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    assert_eq!(
        on(&host),
        [("blog:3".to_owned(), command(&["c"])), ("web:2".to_owned(), command(&["b", "media"]))]
    );
    let other = HostIdentity { name: "web".to_owned(), ..HostIdentity::default() };
    assert_eq!(on(&other), [("blog:none".to_owned(), None), ("web:1".to_owned(), command(&["a"]))]);
    // A host that is called like a conventional file does not merge it twice.
    let strange = HostIdentity { name: "override".to_owned(), ..HostIdentity::default() };
    assert_eq!(on(&strange)[1].1, command(&["a"]));
}

#[test]
fn settings_of_a_repository_are_no_manifest() {
    let files = MemoryFiles::new([("driftless.yaml", "{ broken"), ("shop/compose.yaml", COMPOSE)]);
    let found = discover(&files, "", "repository", &[]);
    assert_eq!(apps(&found).len(), 1, "{found:?}");
}

#[test]
fn env_file_names_the_files_of_a_folder_without_others() {
    let files = MemoryFiles::new([
        ("sites/one/.env", "COMPOSE_FILE=x/c.yaml\n"),
        ("sites/one/x/c.yaml", COMPOSE),
        ("sites/two/.env", "COMPOSE_FILE=a/compose.yaml:b/compose.yaml\n"),
        ("sites/two/a/compose.yaml", COMPOSE),
        ("sites/two/b/compose.yaml", COMPOSE),
        ("sites/three/.env", "TAG=1\n"),
    ]);
    let found = discover(&files, "sites", "repository", &[]);
    assert_eq!(findings(&found), Vec::<String>::new());
    let names: Vec<&str> = found.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "one"]);
    assert!(found.apps.iter().all(|app| render(&files, app).stack.is_some()));
    // The folder itself, as `driftless validate one` searches it.
    let found = discover(&files, "sites/one", "repository", &[]);
    assert_eq!((found.apps.len(), findings(&found)), (1, Vec::new()));
}

fn write_below(root: &std::path::Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Docker Compose mounts what the link leads to.
#[test]
fn mount_through_a_link_out_of_the_repository_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mounts = ["./data:/a", "./data:/a:ro", "./disk/films:/a", "./gone/x:/a", "./inside:/a", "./new:/a"];
    for (number, mount) in mounts.iter().enumerate() {
        let text = format!("services: {{web: {{image: 'web:1', volumes: ['{mount}']}}}}\n");
        write_below(root, &format!("shop{number}/compose.yaml"), &text);
        for (target, name) in
            [("/mnt/tank", "data"), ("../../disk", "disk"), ("nothing", "gone"), ("../films", "inside")]
        {
            std::os::unix::fs::symlink(target, root.join(format!("shop{number}/{name}"))).unwrap();
        }
    }
    write_below(root, "films/a.txt", "a");
    let files = driftless_git::Directory::open(root).unwrap();
    let errors = |number: usize| -> Vec<String> {
        let spec = AppSpec::compose("shop", &[&format!("shop{number}/compose.yaml")]);
        let findings = render(&files, &spec).findings;
        findings.iter().filter(|it| it.is_error()).map(ToString::to_string).collect()
    };
    for (number, link) in [(0, "data"), (1, "data"), (2, "disk"), (3, "gone")] {
        let found = errors(number);
        let sentence = format!("`shop{number}/{link}` is a symbolic link to `");
        assert!(found.len() == 1 && found[0].contains(&sentence), "{}: {found:?}", mounts[number]);
        assert!(found[0].contains(&format!("shop{number}/compose.yaml:1:")), "{found:?}");
    }
    assert!(
        errors(4).is_empty() && errors(5).is_empty(),
        "a link within the repository, and a folder of the container"
    );
}

/// Applications behind links, as the folder of a host has them.
#[test]
fn manifest_that_is_a_broken_link_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let write = |path: &str, text: &str| write_below(root, path, text);
    let link = |target: &str, path: &str| std::os::unix::fs::symlink(target, root.join(path)).unwrap();
    let found = || {
        let files = driftless_git::Directory::open(root).unwrap();
        let host = HostIdentity { name: "nas".to_owned(), ..HostIdentity::default() };
        discover_for(&host, &files, "hosts/nas", "infra", &[])
    };
    let errors = |found: &Discovery, app: &str| -> Vec<String> {
        let spec = found.apps.iter().find(|it| it.name.0 == app).unwrap();
        let files = driftless_git::Directory::open(root).unwrap();
        let rendered = render(&files, spec);
        assert!(rendered.stack.is_none(), "{app}");
        let errors = rendered.findings.into_iter().filter(driftless_model::Finding::is_error);
        errors.map(|it| it.location.file).collect()
    };
    for app in ["blog", "db", "mail", "wiki"] {
        write(&format!("hosts/nas/{app}/compose.yaml"), COMPOSE);
    }
    write("hosts/nas/shop/below/compose.yaml", COMPOSE);
    write("hosts/nas/ok/compose.yaml", COMPOSE);
    link("../../../apps/shop/compose.yaml", "hosts/nas/shop/compose.yaml");
    link("../../../common/volumes.yaml", "hosts/nas/db/compose.override.yaml");
    link("../../../common/nas.yaml", "hosts/nas/blog/compose.nas.yaml");
    link("../../../common/.env", "hosts/nas/mail/.env");
    link("../../../common/.env", "hosts/nas/wiki/.env.nas");
    std::fs::create_dir_all(root.join("hosts/nas/radio")).unwrap();
    link("../../../apps/radio/compose.yaml", "hosts/nas/radio/compose.yaml");
    link("../../apps/forum", "hosts/nas/forum");
    // Nobody looks for these.
    link("../../../common/other.yaml", "hosts/nas/ok/compose.other.yaml");
    link("/nix/store/nothing", "hosts/nas/ok/result");
    link("../docs/README.md", "hosts/nas/README.md");
    let all = found();
    let names: Vec<&str> = all.apps.iter().map(|app| app.name.0.as_str()).collect();
    assert_eq!(names, ["blog", "db", "mail", "ok", "radio", "shop", "wiki"]);
    assert_eq!(findings(&all), Vec::<String>::new());
    for (app, file) in [
        ("shop", "compose.yaml"),
        ("radio", "compose.yaml"),
        ("db", "compose.override.yaml"),
        ("blog", "compose.nas.yaml"),
        ("mail", ".env"),
        ("wiki", ".env.nas"),
    ] {
        assert_eq!(errors(&all, app), [format!("hosts/nas/{app}/{file}")]);
    }
    let ok = all.apps.iter().find(|app| app.name.0 == "ok").unwrap();
    assert!(render(&driftless_git::Directory::open(root).unwrap(), ok).stack.is_some());
    let may_hide = |path: &str| all.unread_files.iter().any(|it| may_hide(&it.location.file, path));
    assert!(may_hide("hosts/nas/forum") && !may_hide("hosts/nas/former"), "{:?}", all.unread_files);

    // The followed folder itself.
    std::fs::rename(root.join("hosts/nas"), root.join("nas")).unwrap();
    link("../hosts-of-2024/nas", "hosts/nas");
    let none = found();
    assert_eq!((none.apps.len(), none.findings.len(), none.empty_folder.as_deref()), (0, 1, None));
}

#[test]
fn submodule_above_the_followed_folder_is_named() {
    let clone = crate::preview::Clone::new();
    let id = clone.git(&["rev-parse", "HEAD"]);
    clone.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{id},hosts")]);
    clone.git(&["commit", "-q", "-m", "hosts"]);
    let files = driftless_git::LocalRepository::open(clone.path()).unwrap().commit("HEAD").unwrap().files;
    let listed = Configured {
        path: "hosts/nas/shop".to_owned(),
        place: Some(Location::new("driftless.yaml", 2, 5)),
        ..Configured::default()
    };
    for (path, configured) in [("hosts", Vec::new()), ("hosts/nas", Vec::new()), ("", vec![listed])] {
        let found = discover(files.as_ref(), path, "infra", &configured);
        assert_eq!((found.apps.len(), found.empty_folder.as_deref()), (0, None), "{path}");
        let [error] = found.findings.as_slice() else { panic!("{path}: {found:#?}") };
        assert!(error.is_error() && error.message.starts_with("`hosts` is a submodule"), "{error}");
        assert!(error.help.as_ref().unwrap().contains("`submodules: true`"), "{error}");
    }
}

/// Links to secrets that Git ignores, as repositories of Home Assistant or Ansible have them.
#[test]
fn broken_link_without_a_manifest_is_no_application() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let write = |path: &str, text: &str| write_below(root, path, text);
    let link = |target: &str, path: &str| std::os::unix::fs::symlink(target, root.join(path)).unwrap();
    write("hosts/nas/apps/esphome/compose.yaml", COMPOSE);
    write("hosts/nas/esphome/README.md", "Devices\n");
    write("hosts/nas/orders/deployment.yaml", DEPLOYMENT);
    link("/run/all.yaml", "hosts/nas/secrets.yaml");
    link("../all.yaml", "hosts/nas/esphome/secrets.yaml");
    link("../common.yaml", "hosts/nas/esphome/compose.override.yaml");
    link("../all.json", "hosts/nas/esphome/secrets.json");
    link("../service.yaml", "hosts/nas/orders/service.yaml");
    let files = driftless_git::Directory::open(root).unwrap();
    let found = discover(&files, "hosts/nas", "infra", &[]);
    let paths: Vec<&str> = found.apps.iter().map(|app| app.path.as_str()).collect();
    assert_eq!(paths, ["hosts/nas/apps/esphome", "hosts/nas/orders"]);
    assert_eq!(findings(&found), Vec::<String>::new());
    let none = unlisted(&files, "hosts/nas", &paths.iter().map(|&path| path.to_owned()).collect(), &[]);
    assert_eq!(none, Vec::<String>::new());
    let errors = |app: &AppSpec| -> Vec<String> {
        let errors = render(&files, app).findings.into_iter().filter(driftless_model::Finding::is_error);
        errors.map(|error| error.location.file).collect()
    };
    assert_eq!(errors(&found.apps[0]), Vec::<String>::new());
    assert_eq!(errors(&found.apps[1]), ["hosts/nas/orders/service.yaml"], "next to a manifest it is one");
    for file in ["secrets.yaml", "secrets.json"] {
        assert!(may_hide(&format!("hosts/nas/esphome/{file}"), "hosts/nas/esphome"), "{file}");
    }
    for (link, folder) in
        [("orders/below/a.yaml", "orders"), ("orders/result", "orders"), ("a.yaml", "orders")]
    {
        assert!(!may_hide(link, folder), "{link}");
    }

    // The configuration says that this folder is an application.
    let listed = Configured { path: "hosts/nas/esphome".to_owned(), ..Configured::default() };
    let found = discover(&files, "hosts/nas", "infra", &[listed]);
    assert!(errors(&found.apps[0]).contains(&"hosts/nas/esphome/secrets.yaml".to_owned()));
}

#[test]
fn variables_behind_a_broken_link_can_lie_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let compose = "services:\n  web:\n    image: app:1\n    environment: ['LEVEL=${LEVEL:-low}']\n    \
                   env_file: [.env, {path: ../local.env, required: false}]\n";
    std::fs::create_dir_all(root.join("apps/shop")).unwrap();
    std::fs::write(root.join("apps/shop/compose.yaml"), compose).unwrap();
    std::os::unix::fs::symlink("../../.env", root.join("apps/shop/.env")).unwrap();
    std::os::unix::fs::symlink("../private/local.env", root.join("apps/local.env")).unwrap();
    let files = driftless_git::Directory::open(root).unwrap();
    let found = discover(&files, "apps", "infra", &[]);
    let rendered = render(&files, &found.apps[0]);
    assert!(rendered.stack.is_none());
    for finding in rendered.findings.iter().filter(|it| it.is_error()) {
        assert_eq!(finding.location.file, "apps/shop/.env", "{finding}");
        assert!(finding.help.as_ref().unwrap().contains("`valuesFrom`"), "{finding}");
    }
    let host = HostFile {
        path: "apps/shop/.env".to_owned(),
        source: "/etc/shop.env".to_owned(),
        content: Ok(b"LEVEL=high\n".as_slice().into()),
        is_secret: true,
    };
    let rendered = render(&files, &AppSpec { host_files: vec![host], ..found.apps[0].clone() });
    assert!(rendered.stack.is_some(), "{:?}", rendered.findings);
}
