//! Rendering: each folder under `tests/it/compose` is one application, and its snapshot has its stack, findings and
//! contents.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_manifest::{discover, render};
use driftless_model::{Content, Finding, MountSource, Severity, Workload, is_proxy_image};

use crate::files::folder;

/// All fixtures as one repository, each in `sites/<name>`.
fn repository() -> MemoryFiles {
    folder(Path::new("tests/it/compose"), "sites")
}

fn app(files: &MemoryFiles, path: &str) -> AppSpec {
    let found = discover(files, path, "repository", &[]);
    assert_eq!(found.findings, [], "{path}");
    found.apps.into_iter().next().unwrap()
}

/// One file as an application of its own.
fn render_text(text: &str) -> Rendered {
    let files = MemoryFiles::new([("compose.yaml", text)]);
    render(&files, &app(&files, ""))
}

fn describe(rendered: &Rendered) -> String {
    let mut out = String::new();
    for finding in &rendered.findings {
        writeln!(out, "{finding}").unwrap();
    }
    if let Some(stack) = &rendered.stack {
        writeln!(out, "{}", serde_json::to_string_pretty(stack).unwrap()).unwrap();
    }
    for (id, content) in &rendered.contents {
        let what = match content {
            Content::File { bytes, executable } => {
                format!("{:?} executable: {executable}", String::from_utf8_lossy(bytes))
            }
            Content::Owned { bytes, mode, uid, gid } => {
                format!("{:?} mode {mode:04o} of {uid}:{gid}", String::from_utf8_lossy(bytes))
            }
            Content::Folder(tree) => format!("folder of {:?}", tree.keys().collect::<Vec<_>>()),
        };
        writeln!(out, "{}: {what}", &id.0[..8]).unwrap();
    }
    out
}

#[test]
fn every_fixture_renders_to_its_snapshot() {
    let files = repository();
    insta::glob!("compose/*/compose.yaml", |path| {
        let name = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let rendered = render(&files, &app(&files, &format!("sites/{name}")));
        let has_error = rendered.findings.iter().any(|it| it.severity == Severity::Error);
        assert_eq!(rendered.stack.is_none(), has_error, "{name}");
        insta::assert_snapshot!(describe(&rendered));
    });
}

#[test]
fn network_with_the_name_of_a_network_mode_is_refused() {
    for network in [
        "{name: 'container:agent'}",
        "{name: 'ns:/proc/1/ns/net'}",
        "{external: true, name: 'container:agent'}",
    ] {
        let text = format!("services: {{web: {{image: app, networks: [n]}}}}\nnetworks: {{n: {network}}}\n");
        let rendered = render_text(&text);
        let findings: Vec<_> = rendered.findings.iter().map(ToString::to_string).collect();
        assert!(findings.len() == 1 && findings[0].contains("for a network mode"), "{findings:?}");
        assert!(rendered.stack.is_none(), "{network}");
    }
    let allowed = "services: {web: {image: app, networks: [n]}}\nnetworks: {n: {name: My Net-1.x}}\n";
    assert_eq!(render_text(allowed).findings, []);
}

#[test]
fn labels_of_the_agent_are_refused_on_its_objects() {
    let render_labels = |label: &str| {
        let text = format!(
            "services: {{web: {{image: app, volumes: [vol:/v], networks: [n]}}}}\nvolumes: {{vol: {{labels: {{{label}}}}}}}\n\
             networks: {{n: {{labels: {{{label}}}}}}}\n"
        );
        render_text(&text)
    };
    for name in ["driftless.application", "driftless.agent", "driftless.spec", "driftless.empty"] {
        let findings: Vec<_> =
            render_labels(&format!("{name}: shop")).findings.iter().map(ToString::to_string).collect();
        let expected = format!("only the agent gives the label `{name}`");
        assert!(findings.len() == 2 && findings.iter().all(|it| it.contains(&expected)), "{findings:?}");
    }
    for label in ["driftless.prune: 'false'", "com.example.team: shop"] {
        assert_eq!(render_labels(label).findings, [], "{label}");
    }
}

#[test]
fn build_is_no_image_of_the_agent() {
    let findings = |image: &str, rest: &str| -> Vec<String> {
        let build = format!("{{context: ., dockerfile_inline: FROM scratch, {rest}}}");
        let text = format!("services: {{web: {{image: '{image}', build: {build}}}}}\n");
        render_text(&text).findings.iter().map(ToString::to_string).collect()
    };
    for (image, rest, expected) in [
        ("driftless/helper:2", "", "an image that the agent makes itself"),
        ("docker.io/driftless/helper:proxy-0123", "", "an image that the agent makes itself"),
        ("web", "tags: ['driftless/helper:9']", "an image that the agent makes itself"),
        ("web", "labels: {driftless.helper: 'driftless/helper:2'}", "only the agent gives the label"),
    ] {
        let found = findings(image, rest);
        assert!(found.len() == 1 && found[0].contains(expected), "{image} {rest}: {found:?}");
    }
    for (image, rest) in [
        ("ghcr.io/team/web:1", "tags: ['postgres:17', web]"),
        ("driftless/web", "labels: {driftless.ignore-files: /app, team: a}"),
    ] {
        assert_eq!(findings(image, rest), [] as [String; 0], "{image} {rest}");
    }
}

#[test]
fn labels_for_selinux_with_options_that_lose_them_are_refused() {
    let findings = |bind: &str| -> Vec<String> {
        let mount = format!("{{type: bind, source: /srv/x, target: /x, bind: {{{bind}}}}}");
        let rendered = render_text(&format!("services: {{web: {{image: app, volumes: [{mount}]}}}}\n"));
        assert_eq!(rendered.stack.is_none(), rendered.findings.iter().any(Finding::is_error));
        rendered.findings.iter().map(ToString::to_string).collect()
    };
    for bind in ["create_host_path: false, selinux: Z", "recursive: disabled, selinux: Z"] {
        let found = findings(bind);
        let expected = "compose.yaml:1:40: error: services.web.volumes[0]: the engine labels no mount with `create_host_path: \
                        false` or `recursive`: `selinux: Z` is not possible here";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{bind}: {found:?}");
        assert!(found[0].contains("chcon -Rt container_file_t /srv/x"), "{found:?}");
    }
    for bind in
        ["selinux: z", "create_host_path: false", "recursive: disabled", "selinux: z, recursive: enabled"]
    {
        assert_eq!(findings(bind), [""; 0], "{bind}");
    }
}

#[test]
fn labels_for_selinux_without_effect_have_one_warning() {
    let text = "services:\n  a: {image: a, volumes: ['./a:/a:z', './b:/b:Z']}\n  b: {image: a, volumes: ['./a:/a:z', \
                '/srv:/srv:z']}\n";
    let findings = render_text(text).findings;
    let found: Vec<String> = findings.iter().map(|it| format!("{}: {}", it.path, it.message)).collect();
    let expected = "services.a.volumes[0]: a relative path is mounted from the state directory of the agent, without the \
                    effect of `z` and `Z`, and so are 2 others";
    assert_eq!(found, [expected]);
}

#[test]
fn options_of_paths_on_named_volumes_are_warnings() {
    let findings = |mounts: &str| {
        let text = format!("services:\n  a: {{image: a, volumes: {mounts}}}\nvolumes: {{data: }}\n");
        let all = render_text(&text).findings;
        all.iter().map(|it| format!("{}: {}", it.path, it.message)).collect::<Vec<_>>()
    };
    for mount in ["['data:/a:Z']", "[{type: volume, source: data, target: /a, bind: {selinux: Z}}]"] {
        assert_eq!(
            findings(mount),
            ["services.a.volumes[0]: `Z` has no effect on a named volume"],
            "{mount}"
        );
    }
    assert_eq!(
        findings("['data:/a:rshared']"),
        ["services.a.volumes[0]: `rshared` has no effect on a named volume"]
    );
    assert_eq!(findings("['data:/a:z,ro']"), [""; 0]);
}

#[test]
fn encrypted_file_next_to_a_missing_one_is_named() {
    for (name, other) in [(".env", ".env.sops"), ("db.env", "db.enc.env"), ("db", "db.age")] {
        let text = format!(
            "services: {{web: {{image: a, env_file: {name}, secrets: [key]}}}}\nsecrets: {{key: {{file: {name}}}}}\n"
        );
        let other = format!("app/{other}");
        let files = MemoryFiles::new([("app/compose.yaml", text.as_str()), (other.as_str(), "A=b\n")]);
        let findings = render(&files, &app(&files, "app")).findings;
        let start = format!("`{other}` is next to it");
        let helps: Vec<&str> = findings.iter().filter_map(|it| it.help.as_deref()).collect();
        assert!(helps.len() == 2 && helps.iter().all(|help| help.starts_with(&start)), "{findings:?}");
    }
}

#[test]
fn refused_path_has_no_warning_about_its_options() {
    let findings =
        render_text("services: {a: {image: a, volumes: ['~/x:/x:shared', '~/y:/y:z']}}\n").findings;
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings.iter().all(|it| it.message.starts_with("`~` is not supported")), "{findings:?}");
}

#[test]
fn comments_change_no_spec_hash() {
    let text = "services: {web: {image: app, environment: {B: '1', A: '2'}, ports: ['80:80', '79:79']}}\n";
    let one = render_text(text).stack.unwrap();
    let other = render_text(&format!("# a comment\n{text}")).stack.unwrap();
    let spec = |stack: &driftless_model::Stack| stack.workloads[&"web".into()].container.spec();
    assert_eq!(spec(&one), spec(&other));
    assert_eq!(one, render_text(text).stack.unwrap());
}

#[test]
fn changed_file_changes_the_hash_of_its_workloads_only() {
    let render_with = |conf: &str| {
        let files = MemoryFiles::new([
            ("compose.yaml", "services: {web: {image: a, volumes: ['./c:/c:ro']}, db: {image: b}}"),
            ("c/conf", conf),
        ]);
        render(&files, &app(&files, "")).stack.unwrap()
    };
    let (one, other) = (render_with("1"), render_with("2"));
    let spec = |stack: &driftless_model::Stack, name: &str| stack.workloads[&name.into()].container.spec();
    assert_ne!(spec(&one, "web"), spec(&other, "web"));
    assert_eq!(spec(&one, "db"), spec(&other, "db"));
}

#[test]
fn changed_content_of_a_config_changes_the_spec_hash() {
    let render_with = |content: &str| {
        let text = format!(
            "services: {{web: {{image: a, configs: [page]}}, api: {{image: a, secrets: [word]}}, db: {{image: b}}}}\n\
             configs: {{page: {{content: {content}}}}}\nsecrets: {{word: {{environment: WORD}}}}\n"
        );
        let word = format!("WORD={content}\n");
        let files = MemoryFiles::new([("compose.yaml", text.as_str()), (".env", word.as_str())]);
        render(&files, &app(&files, "")).stack.unwrap()
    };
    let (one, other) = (render_with("one"), render_with("two"));
    let spec = |stack: &driftless_model::Stack, name: &str| stack.workloads[&name.into()].container.spec();
    assert_ne!(spec(&one, "web"), spec(&other, "web"));
    assert_ne!(spec(&one, "api"), spec(&other, "api"));
    assert_eq!(spec(&one, "db"), spec(&other, "db"));
}

#[test]
fn mount_of_a_missing_file_is_an_error_or_a_warning() {
    let refused = render_text(
        "services:\n  web:\n    image: a\n    configs: [page]\n    volumes:\n    - {type: bind, source: ./conf, \
         target: /c, read_only: true, bind: {create_host_path: false}}\nconfigs: {page: {file: ./page}}\n",
    );
    let messages: Vec<String> = refused.findings.iter().map(ToString::to_string).collect();
    assert!(refused.stack.is_none() && messages.len() == 2, "{messages:?}");
    assert!(messages.iter().all(|it| it.contains("does not exist in the repository")), "{messages:?}");
    // Docker mounts an empty folder as well, but without a warning.
    let warned = render_text("services: {web: {image: a, volumes: ['./conf:/c:ro']}}\n");
    assert!(warned.stack.is_some());
    assert!(warned.findings[0].message.contains("an empty folder is mounted"), "{:?}", warned.findings);
}

#[test]
fn mount_in_another_letter_case_than_in_git_is_a_warning() {
    for (path, similar) in [
        ("./Config", "shop/config"),
        ("./config/App.conf", "shop/config/app.conf"),
        ("./M\u{fc}ller", "shop/Mu\u{308}ller"),
    ] {
        let strict = format!("{{type: bind, source: {path}, target: /c, bind: {{create_host_path: false}}}}");
        for (mount, is_error) in
            [(format!("'{path}:/c'"), false), (format!("'{path}:/c:ro'"), false), (strict, true)]
        {
            let text = format!("services: {{web: {{image: a, volumes: [{mount}]}}}}\n");
            let files = MemoryFiles::new([
                ("shop/compose.yaml", text.as_str()),
                ("shop/config/app.conf", "1"),
                ("shop/Mu\u{308}ller/a", "2"),
            ]);
            let rendered = render(&files, &app(&files, "shop"));
            assert_eq!(rendered.stack.is_none(), is_error, "{mount}");
            let messages: Vec<&str> = rendered.findings.iter().map(|it| it.message.as_str()).collect();
            assert!(
                messages.len() == 1 && messages[0].contains(&format!("but `{similar}` ")),
                "{messages:?}"
            );
        }
    }
    let files = MemoryFiles::new([
        ("compose.yaml", "services: {web: {image: a, volumes: ['./data:/c']}}\n"),
        ("database/a", "1"),
    ]);
    assert_eq!(render(&files, &app(&files, "")).findings, []);
}

/// The sources of the mounts of services, which are written as `NAME: [MOUNT, …]`, and the warnings.
fn sources(services: &str) -> (BTreeMap<String, Vec<MountSource>>, Vec<String>) {
    let services = services.replace(": [", ": {image: a, volumes: [").replace(']', "]}");
    let text = format!("services: {{{services}}}\n");
    let files = MemoryFiles::new([
        ("sites/shop/compose.yaml", text.as_str()),
        ("sites/shop/data/.gitkeep", ""),
        ("sites/shop/data/conf/app.conf", "1"),
        ("sites/shop/src/index.php", "2"),
        ("sites/shop/src/uploads/.gitkeep", ""),
    ]);
    let rendered = render(&files, &app(&files, "sites/shop"));
    let findings = rendered.findings.iter().map(ToString::to_string).collect();
    let stack = rendered.stack.unwrap_or_else(|| panic!("{findings:?}"));
    let of = |workload: &Workload| workload.container.mounts.iter().map(|it| it.source.clone()).collect();
    (stack.workloads.iter().map(|(name, workload)| (name.to_string(), of(workload))).collect(), findings)
}

#[test]
fn folder_that_a_service_writes_to_is_one_for_its_readers() {
    let own = |path: &str| vec![MountSource::AppFolder(path.to_owned())];
    for (reader, expected) in [
        ("./data:/d:ro", "data"),
        ("./data/conf:/d:ro", "data/conf"),
        // Nothing of it is in Git, but it is no empty folder.
        ("./data/new:/d:ro", "data/new"),
        (".:/d:ro", "."),
    ] {
        let (found, warnings) = sources(&format!("app: ['./data:/data'], backup: ['{reader}']"));
        assert_eq!((&found["app"], &found["backup"]), (&own("data"), &own(expected)));
        assert_eq!(warnings, [""; 0], "{reader}");
    }
    // Its own mount at that place hides what others write there.
    let (found, _) = sources(
        "php: ['./src:/src:ro', './src/uploads:/src/uploads'], web: ['./src:/src:ro'], cli: ['./data:/d:ro']",
    );
    assert!(matches!(found["php"][0], MountSource::Content(_)), "{found:?}");
    assert_eq!(found["web"], own("src"));
    assert!(matches!(found["cli"][0], MountSource::Content(_)), "nobody writes there: {found:?}");
}

#[test]
fn file_of_a_shared_folder_is_warned_about() {
    let (found, warnings) = sources("app: ['.:/app'], web: ['./data/conf/app.conf:/app.conf:ro']");
    assert_eq!(found["web"], [MountSource::AppFolder("data/conf/app.conf".to_owned())]);
    let expected = "a commit that changes `sites/shop/data/conf/app.conf` replaces no container, because `app` writes to this place; \
                    for an update, add `x-driftless: {on-change: recreate}` to the mount or to the service";
    assert!(warnings.len() == 1 && warnings[0].contains(expected), "{warnings:?}");
}

#[test]
fn files_that_are_mounted_read_write_are_warned_about_once() {
    let (found, warnings) = sources(
        "app: ['./data/conf/app.conf:/app.conf', './data:/data'], \
         web: ['./data/conf/app.conf:/a.conf', './src/index.php:/index.php']",
    );
    assert_eq!(found["app"][0], MountSource::AppFolder("data/conf/app.conf".to_owned()));
    let expected = "the file `sites/shop/data/conf/app.conf` is mounted read-write, and so is another one: a commit that changes \
                    such a file restarts no container";
    assert!(warnings.len() == 1 && warnings[0].contains(expected), "{warnings:?}");
    let (_, warnings) = sources("app: ['./data/conf/app.conf:/app.conf:ro', './data/.gitkeep:/k:ro']");
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn on_change_of_a_service_keeps_files_of_git() {
    let source = |mount: &str, change: &str| {
        let text = format!(
            "services: {{certs: {{image: a, volumes: ['./conf/tls:/tls']}}, nginx: {{image: b, \
             volumes: ['{mount}'], x-driftless: {{on-change: {change}}}}}}}"
        );
        let conf = ("conf/site.conf", "1");
        let files = MemoryFiles::new([("compose.yaml", text.as_str()), conf, ("conf/tls/ca.pem", "2")]);
        let rendered = render(&files, &app(&files, ""));
        let warnings: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
        let stack = rendered.stack.unwrap();
        (stack.workloads[&"nginx".into()].container.mounts[0].source.clone(), warnings)
    };
    let (folder, warnings) = source("./conf:/etc/nginx/conf.d:ro", "signal SIGHUP");
    assert_eq!(folder, MountSource::InPlace { secret: false, folder: true });
    assert!(warnings.len() == 1 && warnings[0].contains("without what `certs` writes there"), "{warnings:?}");
    let (file, warnings) = source("./conf/tls/ca.pem:/ca.pem:ro", "recreate");
    assert!(matches!(file, MountSource::Content(_)), "{file:?}");
    assert_eq!(warnings, [""; 0], "a file is there in any case");
}

#[test]
fn files_of_readers_are_copied_into_the_shared_folder() {
    let files = MemoryFiles::new([
        (
            "compose.yaml",
            "services: {app: {image: a, volumes: ['./data/new:/d']}, web: {image: b, volumes: ['./data:/d:ro']}}",
        ),
        ("data/a", "1"),
        ("data/b/c", "2"),
    ]);
    let stack = render(&files, &app(&files, "")).stack.unwrap();
    assert_eq!(stack.app_files.keys().collect::<Vec<_>>(), ["data/a", "data/b/c"]);
}

#[test]
fn reader_that_cannot_share_the_folder_is_warned_about() {
    let is_warned = |warnings: &[String]| {
        warnings
            .iter()
            .any(|it| it.contains("has only the files of Git here, without what `app` writes there"))
    };
    // The folder of all applications is not one of this application.
    let (found, warnings) = sources("app: ['./data:/data'], web: ['..:/sites:ro']");
    assert!(matches!(found["web"][0], MountSource::Content(_)) && is_warned(&warnings), "{warnings:?}");
    let files = MemoryFiles::new([
        (
            "compose.yaml",
            "services: {app: {image: a, volumes: ['./data:/d']}, web: {image: b, volumes: [{type: bind, source: ./data, \
             target: /d, read_only: true, x-driftless: {on-change: signal HUP}}]}}",
        ),
        ("data/a", "1"),
    ]);
    let rendered = render(&files, &app(&files, ""));
    let warnings: Vec<String> = rendered.findings.iter().map(ToString::to_string).collect();
    let stack = rendered.stack.unwrap();
    let source = &stack.workloads[&"web".into()].container.mounts[0].source;
    assert!(matches!(source, MountSource::InPlace { .. }) && is_warned(&warnings), "{warnings:?}");
}

#[test]
fn paths_that_differ_in_case_only_are_two_files() {
    let files = MemoryFiles::new([
        (
            "compose.yaml",
            "services: {web: {image: a, volumes: ['./conf:/c:ro', './Conf:/d:ro', './one:/one:ro', './ONE:/two:ro']}}",
        ),
        ("conf/a", "1"),
        ("conf/A", "2"),
        ("Conf/a", "3"),
        ("one", "4"),
        ("ONE", "5"),
    ]);
    let rendered = render(&files, &app(&files, ""));
    assert_eq!(rendered.findings, []);
    let mut found: Vec<Vec<String>> = rendered
        .contents
        .values()
        .map(|it| match it {
            Content::Folder(tree) => tree
                .iter()
                .map(|(name, (bytes, _))| format!("{name} {}", String::from_utf8_lossy(bytes)))
                .collect(),
            Content::File { bytes, .. } | Content::Owned { bytes, .. } => {
                vec![String::from_utf8_lossy(bytes).into_owned()]
            }
        })
        .collect();
    found.sort();
    assert_eq!(found, [vec!["4"], vec!["5"], vec!["A 2", "a 1"], vec!["a 3"]]);
}

/// A changed spec hash recreates the container. If this snapshot changes, the release recreates every user's containers
/// at its first start. So a new field must leave out its default.
#[test]
fn every_project_has_the_hashes_that_it_had() {
    let mut files = folder(Path::new("../../tests/e2e/projects"), "sites");
    let flat: Vec<String> = files.0.keys().filter(|it| it.matches('/').count() == 1).cloned().collect();
    for path in flat {
        let bytes = files.0.remove(&path).unwrap();
        if let Some(folder) = path.strip_suffix(".yaml") {
            files.0.insert(format!("{folder}/compose.yaml"), bytes);
        }
    }
    let found = discover(&files, "sites", "repository", &[]);
    assert_eq!(found.findings, []);
    assert!(found.apps.len() > 75, "{}", found.apps.len());
    let mut out = String::new();
    for spec in &found.apps {
        let Rendered { stack, findings, .. } = render(&files, spec);
        let stack = stack.unwrap_or_else(|| panic!("{}: {findings:#?}", spec.name));
        for (name, workload) in &stack.workloads {
            let mut container = workload.container.clone();
            if is_proxy_image(&container.image) {
                // Its tag follows the proxy's source code.
                "proxy".clone_into(&mut container.image);
            }
            writeln!(out, "{} {name} {}", spec.name, container.spec().short()).unwrap();
        }
    }
    insta::assert_snapshot!(out);
}

#[test]
fn secrets_appear_in_no_finding() {
    let text = "services:\n  web:\n    image: app\n    environment: {A: 'hunter2${', B: [hunter2]}\n    hunter: hunter2\n";
    let rendered = render_text(text);
    assert!(rendered.findings.len() >= 3);
    let shown = format!("{:?}", rendered.findings);
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn too_large_manifests_are_refused() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nservices: {web: {image: *e}}\n";
    let deep = format!("services: {}", "[".repeat(10_000));
    let long = format!("services: {{web: {{image: app}}}}\n# {}", "x".repeat(2 << 20));
    let addresses: String = (0..100).map(|it| format!("'127.0.0.{it}::1-65535',")).collect();
    let many = format!("services: {{web: {{image: app, ports: [{addresses}]}}}}");
    let growing =
        format!("services: {{web: {{image: app, command: ['{}']}}}}", "$COMPOSE_PROJECT_NAME".repeat(40_000));
    let all = [bomb.to_owned(), deep, long, many];
    for text in &all {
        let files = MemoryFiles::new([("compose.yaml", text.as_str())]);
        let variables = [("COMPOSE_PROJECT_NAME".to_owned(), "x".repeat(1000))].into();
        let spec = AppSpec { variables, ..AppSpec::compose("app", &["compose.yaml"]) };
        let rendered = render(&files, &spec);
        assert!(rendered.stack.is_none(), "{}", &text[..60]);
        assert!(
            rendered.findings.iter().all(|it| it.location.file == "compose.yaml"),
            "{:?}",
            rendered.findings
        );
    }
    assert!(render_text(&growing).stack.is_some());
}

#[test]
fn too_large_mounted_folder_is_refused() {
    let mut files =
        MemoryFiles::new([("compose.yaml", "services: {web: {image: a, volumes: ['./c:/c:ro']}}")]);
    for name in 0..3 {
        files.0.insert(format!("c/{name}"), vec![0; 30 << 20].into());
    }
    let rendered = render(&files, &app(&files, ""));
    assert!(rendered.findings[0].message.contains("more than 64 MiB"), "{:?}", rendered.findings);
}

#[test]
fn more_than_1000_replicas_are_refused() {
    for (field, place) in [("scale: 100000", "3:12"), ("deploy: {replicas: 4294967295}", "3:24")] {
        let rendered = render_text(&format!("services:\n  web:\n    {field}\n    image: web:1\n"));
        assert!(rendered.stack.is_none(), "{field}");
        let text = describe(&rendered);
        assert!(text.starts_with(&format!("compose.yaml:{place}: ")), "{text}");
        assert!(
            text.contains("more than 1000 replicas of a service are not supported on one host"),
            "{text}"
        );
    }
}

#[test]
fn invalid_image_references_are_errors_at_their_location() {
    for (image, message) in [
        ("'nginx:${TAG}'", "the tag after `:` is empty"),
        ("Nginx:latest", "names of images are in lower case"),
        ("nginx latest", "it contains a space"),
    ] {
        let text = format!("services:\n  web:\n    image: {image}\n");
        let rendered = render_text(&text);
        let errors: Vec<String> =
            rendered.findings.iter().filter(|it| it.is_error()).map(ToString::to_string).collect();
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(error.starts_with("compose.yaml:3:12: error: services.web.image: "), "{error}");
        assert!(error.contains(message), "{error}");
        assert!(rendered.stack.is_none());
    }
    let mounted =
        "services:\n  web:\n    image: a\n    volumes:\n      - {type: image, source: 'b:', target: /b}\n";
    let error = render_text(mounted).findings.remove(0).to_string();
    assert!(error.starts_with("compose.yaml:5:31: error: services.web.volumes[0].source: "), "{error}");
    // A service that is not used may have anything.
    let unused = "services:\n  web: {image: a}\n  old: {image: 'b:', profiles: [never]}\n";
    assert!(render_text(unused).stack.is_some());
}

#[test]
fn platform_of_another_system_is_an_error() {
    let rendered = render_text("services: {web: {image: a, platform: windows/amd64}}\n");
    let error = rendered.findings[0].to_string();
    assert!(error.contains("platform: `windows/amd64` cannot run: containers run on Linux here"), "{error}");
}

#[test]
fn settings_of_an_external_network_are_ignored() {
    let network =
        "external: true, name: traefik, driver: bridge, attachable: true, ipam: {driver: default}, x-note: a";
    let text =
        format!("services: {{web: {{image: a, networks: [proxy]}}}}\nnetworks: {{proxy: {{{network}}}}}\n");
    let rendered = render_text(&text);
    let messages: Vec<&str> = rendered.findings.iter().map(|it| it.message.as_str()).collect();
    let ignored = |key| format!("`{key}` is ignored: the network is external");
    assert_eq!(messages, ["driver", "attachable", "ipam"].map(ignored));
    assert_eq!(rendered.findings[0].path, "networks.proxy.driver");
    let plain = "services: {web: {image: a, networks: [proxy]}}\nnetworks: {proxy: {external: true, name: traefik}}\n";
    assert_eq!(rendered.stack.unwrap().networks, render_text(plain).stack.unwrap().networks);
}

/// The messages about a network with this entry of `ipam.config`, and whether they are errors.
fn of_pool(network: &str) -> (Vec<String>, bool) {
    let text =
        format!("services: {{web: {{image: a, networks: [lan]}}}}\nnetworks: {{lan: {{{network}}}}}\n");
    let rendered = render_text(&text);
    let messages = rendered.findings.iter().map(|it| it.message.clone()).collect();
    (messages, rendered.stack.is_none())
}

#[test]
fn ranges_that_each_engine_refuses_are_errors() {
    for (pool, expected) in [
        ("{subnet: 172.28.0.0}", "`172.28.0.0` is no subnet"),
        ("{subnet: 172.28.0.0/33}", "`172.28.0.0/33` is no subnet"),
        ("{subnet: 172.28.0.0/16, gateway: here}", "`here` is no IP address"),
        (
            "{subnet: 172.28.0.0/16, gateway: 172.29.0.1}",
            "the gateway 172.29.0.1 is not in the subnet 172.28.0.0/16",
        ),
        ("{gateway: 172.28.0.1}", "`gateway` and `ip_range` need their `subnet`"),
    ] {
        let network = format!("ipam: {{config: [{pool}]}}");
        assert_eq!(of_pool(&network), (vec![expected.to_owned()], true), "{pool}");
        // Another program gives the addresses.
        let other = format!("ipam: {{driver: infoblox, config: [{pool}]}}");
        assert_eq!(of_pool(&other), (Vec::new(), false), "{pool}");
    }
    // They ran before Docker 25.
    let outside = "is not in the subnet 172.28.0.0/16, which Docker 25 and later refuse";
    for (pool, end) in [
        ("{subnet: 172.20.0.1/16}", "write `172.20.0.0/16`"),
        ("{subnet: 172.28.0.0/16, ip_range: 172.29.0.0/24}", outside),
        ("{subnet: 172.28.0.0/16, ip_range: 172.0.0.0/8}", outside),
    ] {
        let (messages, is_refused) = of_pool(&format!("ipam: {{config: [{pool}]}}"));
        assert!(messages.len() == 1 && messages[0].ends_with(end), "{messages:?}");
        assert!(!is_refused, "{pool}");
    }
    for pool in
        ["{subnet: 172.28.0.0/16, gateway: 172.28.0.1}", "{subnet: 'fd00:1::/64', ip_range: 'fd00:1::/80'}"]
    {
        assert_eq!(of_pool(&format!("ipam: {{config: [{pool}]}}")), (Vec::new(), false), "{pool}");
    }
}

#[test]
fn values_that_each_engine_refuses_are_errors() {
    for (key, expected) in [
        ("cap_add: [NET_ADMIN, NET_ADMN]", "`NET_ADMN` is not a capability"),
        ("cap_drop: [CAP_SYS]", "`CAP_SYS` is not a capability"),
        ("extra_hosts: ['db:db']", "`db` of `db` is no address"),
        ("networks: {default: {ipv4_address: 172.20.0}}", "`172.20.0` is no IPv4 address"),
        ("networks: {default: {ipv4_address: 172.20.0.2/16}}", "`172.20.0.2/16` is no IPv4 address"),
        ("networks: {default: {ipv6_address: 172.20.0.2}}", "`172.20.0.2` is no IPv6 address"),
    ] {
        let rendered = render_text(&format!("services: {{web: {{image: a, {key}}}}}\n"));
        let messages: Vec<&str> = rendered.findings.iter().map(|it| it.message.as_str()).collect();
        assert_eq!((messages, rendered.stack.is_none()), (vec![expected], true), "{key}");
    }
    for key in [
        "cap_add: [ALL, cap_bpf, checkpoint_restore]",
        "extra_hosts: ['a:host-gateway', 'b:::1', 'c=[fd00::1]']",
        "networks: {default: {ipv4_address: 172.20.0.2, ipv6_address: 'fd00::2'}}",
        "mem_limit: 64m, mem_reservation: 64m",
    ] {
        let rendered = render_text(&format!("services: {{web: {{image: a, {key}}}}}\n"));
        assert!(rendered.findings.is_empty() && rendered.stack.is_some(), "{:?}", rendered.findings);
    }
}

#[test]
fn address_that_its_network_cannot_give_is_an_error() {
    let messages = |address: &str, network: &str| -> Vec<String> {
        let text = format!(
            "services: {{web: {{image: a, networks: {{lan: {{{address}}}}}}}}}\nnetworks: {{lan: {{{network}}}}}\n"
        );
        let findings = render_text(&text).findings;
        assert!(findings.iter().all(|it| it.path.ends_with("_address")), "{findings:?}");
        findings.into_iter().map(|it| it.message).collect()
    };
    let pool =
        "ipam: {config: [{subnet: 172.30.7.0/24, gateway: 172.30.7.1, aux_addresses: {router: 172.30.7.2}}]}";
    for (address, expected) in [
        ("ipv4_address: 172.30.8.10", "172.30.8.10 is in no subnet of the network `lan` (172.30.7.0/24)"),
        (
            "ipv4_address: 172.30.7.1",
            "172.30.7.1 is the gateway or one of the `aux_addresses` of the network `lan`",
        ),
        (
            "ipv4_address: 172.30.7.2",
            "172.30.7.2 is the gateway or one of the `aux_addresses` of the network `lan`",
        ),
    ] {
        assert_eq!(messages(address, pool), [expected]);
    }
    for (address, network) in [
        ("ipv4_address: 172.30.7.10", pool),
        // The engine chooses the range.
        ("ipv6_address: 'fd00::10'", pool),
        ("ipv4_address: 172.30.8.10", "driver: macvlan"),
        ("ipv4_address: 172.30.8.10", "external: true"),
        ("ipv4_address: 172.30.8.10", "ipam: {driver: infoblox, config: [{subnet: 172.30.7.0/24}]}"),
    ] {
        assert_eq!(messages(address, network), [""; 0], "{address} in {network}");
    }
}

/// A host whose kernel does not limit memory runs it.
#[test]
fn reservation_above_the_limit_is_a_warning() {
    let rendered = render_text("services: {web: {image: a, mem_limit: 64m, mem_reservation: 128m}}\n");
    let [finding] = rendered.findings.as_slice() else { panic!("{:?}", rendered.findings) };
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.path, "services.web.mem_reservation");
    assert!(finding.message.contains("reserve more memory than the limit"), "{finding}");
    assert!(rendered.stack.is_some());
}

#[test]
fn host_with_several_addresses_has_an_entry_for_each() {
    let rendered =
        render_text("services: {web: {image: a, extra_hosts: ['db=10.0.0.1,10.0.0.2', 'a:::1']}}\n");
    let stack = rendered.stack.unwrap();
    assert_eq!(stack.workloads[&"web".into()].container.extra_hosts, ["a:::1", "db:10.0.0.1", "db:10.0.0.2"]);
}

#[test]
fn mac_address_is_that_of_the_first_network_by_key() {
    let on = |networks: &str| -> Vec<String> {
        let text = format!(
            "name: pihole\nservices: {{web: {{image: a, mac_address: '02:42:ac:11:00:02', networks: {networks}}}}}\nnetworks: {{a_lan: \
             {{external: true, name: zlan}}}}\n"
        );
        let stack = render_text(&text).stack.unwrap();
        let networks = stack.workloads[&"web".into()].container.networks();
        let with_address = networks.iter().filter(|(_, attachment)| attachment.mac_address.is_some());
        with_address.map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(on("[a_lan, default]"), ["zlan"]);
    assert_eq!(on("{a_lan: , default: {priority: 1}}"), ["pihole_default"]);
    assert_eq!(on("[default]"), ["pihole_default"]);
}

#[test]
fn replicas_cannot_share_an_address_of_a_network() {
    let is_refused = |fixed: &str, replicas: u32| {
        let rendered = render_text(&format!(
            "services: {{web: {{image: a, deploy: {{replicas: {replicas}}}, networks: {{default: {{{fixed}}}}}}}}}\n"
        ));
        let mut messages = rendered.findings.iter().map(|it| it.message.as_str());
        messages.any(|it| it.starts_with("2 replicas cannot all have the address"))
    };
    for fixed in
        ["mac_address: '02:42:ac:11:00:02'", "ipv4_address: 172.20.0.2", "link_local_ips: [169.254.0.2]"]
    {
        assert!(is_refused(fixed, 2), "{fixed}");
        assert!(!is_refused(fixed, 1), "{fixed}");
    }
}

#[test]
fn volume_hides_a_config_or_secret_with_its_target() {
    let text = "services: {web: {image: a, configs: [{source: conf, target: /etc/app.conf}], secrets: [key], volumes: \
                ['/srv/app.conf:/etc/app.conf', '/srv/key:/run/secrets/key']}}\nconfigs: {conf: {content: a}}\nsecrets: {key: {file: \
                /srv/other}}\n";
    let rendered = render_text(text);
    let messages: Vec<&str> = rendered.findings.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(messages, ["is not mounted: an entry of `volumes` has the same target"; 2]);
    let stack = rendered.stack.unwrap();
    let targets: Vec<&str> =
        stack.workloads[&"web".into()].container.mounts.iter().map(|it| it.target.as_str()).collect();
    assert_eq!(targets, ["/etc/app.conf", "/run/secrets/key"]);
}

/// The findings about a service that depends on another one.
fn dependency_findings(dependency: &str, service: &str) -> Vec<String> {
    let text = format!(
        "services:\n  db: {{image: a, {service}}}\n  web: {{image: a, depends_on: {{db: {{{dependency}}}}}}}\n"
    );
    render_text(&text).findings.iter().map(ToString::to_string).collect()
}

#[test]
fn healthy_dependency_needs_a_health_check() {
    let healthy = "condition: service_healthy";
    for check in ["healthcheck: {disable: true}", "healthcheck: {test: [NONE]}"] {
        let found = dependency_findings(healthy, check);
        assert_eq!(found.len(), 1, "{check}: {found:?}");
        assert!(found[0].starts_with("compose.yaml:3:"), "{found:?}");
        assert!(
            found[0].contains("error: services.web.depends_on.db: waits until `db` is healthy"),
            "{found:?}"
        );
        for dependency in ["condition: service_started", "condition: service_healthy, required: false"] {
            assert_eq!(dependency_findings(dependency, check), [""; 0], "{dependency}");
        }
    }
    // The image may have one.
    assert_eq!(dependency_findings(healthy, "init: true"), [""; 0]);
    assert_eq!(dependency_findings(healthy, "healthcheck: {test: [CMD, check]}"), [""; 0]);
}

#[test]
fn completion_of_an_always_restarted_service_is_an_error() {
    let completed = "condition: service_completed_successfully";
    for service in
        ["restart: always", "restart: unless-stopped", "deploy: {restart_policy: {condition: any}}"]
    {
        let found = dependency_findings(completed, service);
        assert_eq!(found.len(), 1, "{service}: {found:?}");
        assert!(found[0].starts_with("compose.yaml:3:"), "{found:?}");
        let expected =
            "error: services.web.depends_on.db: waits until `db` has completed, and `db` is always restarted";
        assert!(found[0].contains(expected), "{found:?}");
        assert_eq!(dependency_findings("condition: service_started", service), [""; 0], "{service}");
    }
    for service in ["init: true", "restart: on-failure", "restart: 'no'"] {
        assert_eq!(dependency_findings(completed, service), [""; 0], "{service}");
    }
}

#[test]
fn secret_that_others_cannot_read_belongs_to_the_user() {
    let owner = |user: &str, settings: &str| {
        let text = format!(
            "services: {{web: {{image: a, user: '{user}', secrets: [{{source: key, {settings}}}]}}}}\nsecrets: {{key: {{file: ./key}}}}\n"
        );
        let files = MemoryFiles::new([("compose.yaml", text.as_str()), ("key", "1")]);
        let rendered = render(&files, &app(&files, ""));
        let messages: Vec<String> = rendered.findings.iter().map(|it| it.message.clone()).collect();
        let owner = rendered.contents.values().find_map(|content| match content {
            Content::Owned { uid, gid, .. } => Some((*uid, *gid)),
            Content::File { .. } | Content::Folder(_) => None,
        });
        (owner, messages)
    };
    for (user, settings, expected) in [
        ("1000", "mode: 0400", Some((1000, 0))),
        ("1000:100", "mode: 0440", Some((1000, 100))),
        ("1000:100", "mode: 0400, gid: '7'", Some((1000, 7))),
        // The user can read it as it is, or the file names an owner.
        ("1000", "target: other", None),
        ("1000", "mode: 0404", Some((0, 0))),
        ("1000:0", "mode: 0440", Some((0, 0))),
        ("1000", "mode: 0440, gid: '7'", Some((0, 7))),
        ("1000", "mode: 0400, uid: '0'", Some((0, 0))),
        ("0:100", "mode: 0400", Some((0, 0))),
        ("root", "mode: 0400", Some((0, 0))),
    ] {
        assert_eq!(owner(user, settings), (expected, Vec::new()), "{user} {settings}");
    }
    let warning = "only root can read it, and the service runs as `app`".to_owned();
    assert_eq!(owner("app", "mode: 0400"), (Some((0, 0)), vec![warning]));
}

#[test]
fn owner_and_mode_of_a_file_of_the_host_are_warned_about() {
    for (settings, is_warned) in
        [("mode: 0400", true), ("uid: '5'", true), ("gid: '5'", true), ("target: token", false)]
    {
        let text = format!(
            "services: {{web: {{image: a, secrets: [{{source: key, {settings}}}]}}}}\nsecrets: {{key: {{file: /srv/key}}}}\n"
        );
        let rendered = render_text(&text);
        let messages: Vec<&str> = rendered.findings.iter().map(|it| it.message.as_str()).collect();
        let warning = "a file of the host is mounted as it is: `uid`, `gid` and `mode` have no effect";
        assert_eq!(messages, if is_warned { vec![warning] } else { Vec::new() }, "{settings}");
        assert!(rendered.stack.is_some(), "{settings}");
    }
}

#[test]
fn pull_policy_of_a_build_without_image_is_a_warning() {
    let messages = |service: &str| -> Vec<String> {
        let build = "build: {context: ., dockerfile_inline: FROM scratch, pull: true}";
        let rendered = render_text(&format!("services: {{web: {{{build}, {service}}}}}\n"));
        let workload = &rendered.stack.as_ref().unwrap().workloads[&"web".into()];
        assert_eq!(workload.build.is_some(), !service.contains("image"), "{service}");
        rendered.findings.iter().map(|it| it.message.clone()).collect()
    };
    for policy in ["always", "daily", "refresh"] {
        let found = messages(&format!("pull_policy: {policy}"));
        assert!(
            found.len() == 1 && found[0].starts_with("`pull_policy` is ignored without `image`"),
            "{found:?}"
        );
    }
    assert_eq!(messages("pull_policy: build"), [""; 0]);
    let found = messages("image: 'web:1', pull_policy: always");
    assert!(found.len() == 1 && found[0].starts_with("`build` is ignored"), "{found:?}");
}

#[test]
fn runs_of_hooks_and_schedules_have_a_deadline() {
    let services = "services:
  dump: {image: a, x-driftless: {hook: {phase: PreSync, deadline: 10m}}}
  bill: {image: a, x-driftless: {schedule: {cron: '@daily', deadline: 1h30m}}}
  warm: {image: a, x-driftless: {hook: PostSync}}
";
    let rendered = render_text(services);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    for (name, seconds) in [("dump", Some(600)), ("bill", Some(5400)), ("warm", None)] {
        let job = stack.workloads[&name.into()].job_or_template().unwrap();
        assert_eq!(job.active_deadline.map(|deadline| deadline.as_secs()), seconds, "{name}");
    }
    for (setting, expected) in [
        ("hook: {deadline: 10m}", "needs `phase`"),
        ("hook: {phase: PreSync, deadline: 0s}", "must be longer than 0"),
        ("schedule: {cron: '@daily', deadline: 0s}", "must be longer than 0"),
    ] {
        let found = render_text(&format!("services: {{dump: {{image: a, x-driftless: {{{setting}}}}}}}"));
        assert!(found.findings.iter().any(|finding| finding.to_string().contains(expected)), "{setting}");
    }
}
