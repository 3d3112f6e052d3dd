//! Secrets in configs and labels: kept in memory, and masked.

use driftless_compose::{load, render};
use driftless_files::{AppSpec, HostFile, HostValues, MemoryFiles, WithHostFiles};
use driftless_model::{Content, EncryptedTexts, EngineKind, Mask, MountSource, Stack, StackHash};

/// Values on the host: a password, a short one, and one that is no secret.
fn host_values() -> Vec<HostValues> {
    [("DB_PASSWORD", "s3cret-value", true), ("PIN", "12", true), ("DOMAIN", "example.com", false)]
        .map(|(name, text, is_secret)| HostValues {
            source: "/etc/driftless/shop.env".to_owned(),
            name: Some(name.to_owned()),
            text: text.into(),
            is_shared: false,
            is_secret,
        })
        .into()
}

/// Renders `shop/compose.yaml` with the files of Git and secret files of the host.
fn stack(git: &[(&str, &str)], host: &[(&str, &str)], engine: EngineKind) -> Stack {
    let git = MemoryFiles::new(git.iter().copied());
    let host: Vec<HostFile> = host
        .iter()
        .map(|(path, text)| HostFile {
            path: (*path).to_owned(),
            source: format!("/etc/{path}"),
            content: Ok(text.as_bytes().into()),
            is_secret: true,
        })
        .collect();
    let mut app = AppSpec { engine, ..AppSpec::compose("shop", &["shop/compose.yaml"]) };
    app.host_values = host_values();
    let rendered = render(&WithHostFiles::new(&git, &host), &app);
    rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings))
}

/// Whether the only config of `web` is kept in memory.
fn is_in_memory(stack: &Stack) -> bool {
    match &stack.workloads[&"web".into()].container.mounts[..] {
        [mount] => matches!(mount.source, MountSource::Secret(_)),
        mounts => panic!("{mounts:?}"),
    }
}

fn project(config: &str) -> String {
    format!("services: {{web: {{image: a, configs: [app]}}}}\nconfigs: {{app: {config}}}\n")
}

#[test]
fn configs_with_a_secret_variable_are_kept_in_memory() {
    // A value of `.env` that has the one of the host inside.
    let dotenv = ("shop/.env", "URL=postgres://u:${DB_PASSWORD}@db\nTAG=1.29\n");
    for (config, expected) in [
        ("{environment: DB_PASSWORD}", true),
        ("{environment: PIN}", true),
        ("{environment: URL}", true),
        ("{content: 'password=${DB_PASSWORD}'}", true),
        ("{content: 'pin=${PIN}'}", true),
        ("{content: 'url=${URL}'}", true),
        ("{content: 'the word is s3cret-value'}", false),
        ("{content: 'number 12 of ${DOMAIN}'}", false),
        ("{environment: DOMAIN}", false),
        ("{environment: TAG}", false),
        ("{content: 'PIN $${DB_PASSWORD}'}", false),
    ] {
        let text = project(config);
        let git = [("shop/compose.yaml", text.as_str()), dotenv];
        assert_eq!(is_in_memory(&stack(&git, &[], EngineKind::Docker)), expected, "{config}");
        let files = &stack(&git, &[], EngineKind::Swarm).swarm[&"web".into()].files;
        assert_eq!(files[0].secret, expected, "{config}");
    }
}

#[test]
fn configs_of_an_encrypted_compose_file_are_kept_in_memory() {
    let text = project("{content: plain}");
    let found = stack(&[], &[("shop/compose.yaml", &text)], EngineKind::Docker);
    assert!(is_in_memory(&found));
    // An encrypted file that is merged onto a plain one.
    let text = "include: [{path: [main.yaml, secret.yaml]}]\n";
    let main = project("{content: plain}");
    let git = [("shop/compose.yaml", text), ("shop/main.yaml", main.as_str())];
    let with = |secret: &str| stack(&git, &[("shop/secret.yaml", secret)], EngineKind::Docker);
    assert!(is_in_memory(&with("configs: {app: {content: 'password=1234'}}\n")));
    assert!(!is_in_memory(&with("services: {web: {labels: {a: b}}}\n")));
}

#[test]
fn secret_variables_of_included_projects_stay_secret() {
    let text = "include: [../db/compose.yaml]\nservices: {web: {image: a, configs: [app]}}\n";
    let git = [
        ("shop/compose.yaml", text),
        ("db/compose.yaml", "services: {db: {image: b}}\nconfigs: {app: {environment: OWN}}\n"),
    ];
    let with = |own: &str| stack(&git, &[("db/.env", own)], EngineKind::Docker);
    assert!(is_in_memory(&with("OWN=12\n")));
    let git = [&git[..], &[("db/.env", "OWN=12\n")]].concat();
    assert!(!is_in_memory(&stack(&git, &[], EngineKind::Docker)));
}

#[test]
fn labels_of_an_encrypted_file_are_masked() {
    let text = "services: {web: {image: a, label_file: web.labels}}\n";
    let labels = "traefik.users=admin:hash-of-it\ntraefik.enable=true\n";
    let found = stack(&[("shop/compose.yaml", text)], &[("shop/web.labels", labels)], EngineKind::Docker);
    let label = &found.workloads[&"web".into()].container.labels["traefik.users"];
    assert_eq!(label, "admin:hash-of-it");
    assert!(!Mask::new([1; 32]).with_stacks([&found]).value("traefik.users", label).contains("hash"));
    assert_eq!(found.secret_values.iter().collect::<Vec<_>>(), ["admin:hash-of-it"], "`true` is no secret");
    let plain = stack(&[("shop/compose.yaml", text), ("shop/web.labels", labels)], &[], EngineKind::Docker);
    assert!(plain.secret_values.is_empty());
}

/// A dashboard has thousands of lines, which would be searched in each message.
#[test]
fn contents_of_an_encrypted_compose_file_are_masked_as_a_whole() {
    let text = project("{content: \"restart: always\\ndoor: geheim4711\\n\"}");
    let found = stack(&[], &[("shop/compose.yaml", &text)], EngineKind::Docker);
    assert_eq!(found.encrypted, EncryptedTexts::default());
    let host = [HostFile {
        path: "shop/compose.yaml".to_owned(),
        source: "/etc/shop/compose.yaml".to_owned(),
        content: Ok(text.as_bytes().into()),
        is_secret: true,
    }];
    let git = MemoryFiles::default();
    let mask = Mask::new([1; 32]);
    let app = AppSpec::compose("shop", &["shop/compose.yaml"]);
    let printed = load(&WithHostFiles::new(&git, &host), &app, "/shop", Some(&mask)).model.unwrap();
    assert_eq!(printed["configs"]["app"]["content"], mask.hide("restart: always\ndoor: geheim4711\n"));
}

#[test]
fn short_values_of_encrypted_files_leave_messages_readable() {
    let text = "services:\n  web:\n    image: shop/web\n    environment: {PORT: '8080', LOG_LEVEL: info, RELAY: geheim4711, \
                DB_PASSWORD: 'pw7'}\n";
    let found = stack(&[], &[("shop/compose.yaml", text)], EngineKind::Docker);
    let mask = Mask::new([1; 32]).with_stacks([&found]);
    for (name, value) in [("PORT", "8080"), ("LOG_LEVEL", "info"), ("RELAY", "geheim4711")] {
        assert_eq!(mask.value(name, value), mask.hide(value), "{name}");
        assert!(mask.is_secret(name));
    }
    assert_eq!(mask.message("no answer at port 8080, level info"), "no answer at port 8080, level info");
    for secret in ["geheim4711", "pw7"] {
        assert_eq!(
            mask.message(&format!("no login with {secret}")),
            format!("no login with {}", mask.hide(secret))
        );
    }
}

#[test]
fn texts_of_an_encrypted_compose_file_are_masked() {
    let include = ("shop/compose.yaml", "include: [{path: [main.yaml, secret.yaml]}]\n");
    let main = ("shop/main.yaml", "services: {web: {image: shop/web, environment: {OPEN: visible-text}}}\n");
    let secret = (
        "shop/secret.yaml",
        "services:\n  web:\n    environment: {RELAY: bot hunter2xyz, PIN: '88'}\n    labels: {a.users: 'ada:geheim99'}\n    \
         command: [app, geheim4711]\n    healthcheck: {test: [CMD, check, pw7]}\n",
    );
    let found = stack(&[include, main], &[secret], EngineKind::Docker);
    let mask = Mask::new([1; 32]).with_stacks([&found]);
    let container = &found.workloads[&"web".into()].container;
    for (name, value) in [("RELAY", "bot hunter2xyz"), ("PIN", "88")] {
        assert_eq!(container.env[name].as_deref(), Some(value));
        assert_eq!(mask.value(name, value), mask.hide(value), "{name}");
    }
    let label = &container.labels["a.users"];
    assert_eq!(mask.value("a.users", label), mask.hide("ada:geheim99"));
    let words = |words: &[&str]| words.iter().map(|word| mask.hide(word)).collect::<Vec<_>>();
    assert_eq!(mask.arguments(container.command.as_ref().unwrap()), words(&["app", "geheim4711"]));
    let test = mask.arguments(&container.healthcheck.as_ref().unwrap().test);
    assert_eq!((&*test[0], &test[1..]), ("CMD", &words(&["check", "pw7"])[..]));
    let message = mask.message("no login with geheim4711 as bot hunter2xyz");
    assert!(!message.contains("geheim") && !message.contains("hunter2"), "{message}");
    // Plain values, names, and short words of sentences.
    assert_eq!(mask.value("OPEN", "visible-text"), "visible-text");
    assert_eq!(mask.name("shop/web"), "shop/web");
    assert_eq!(mask.message("could not check the app"), "could not check the app");
    // Nothing is rolled out because a file has become encrypted.
    let plain = stack(&[include, main, secret], &[], EngineKind::Docker);
    assert_eq!(StackHash::of(&found), StackHash::of(&plain));
    assert!(plain.encrypted == Default::default() && found.encrypted != plain.encrypted);
}

/// A build gives a secret to a step, and the step says which owner and mode the file has.
#[test]
fn owner_and_mode_of_a_build_secret_have_no_effect() {
    let compose = "services: {web: {build: {context: ., secrets: [{source: cert, uid: '103', gid: '103', mode: 0440}]}}}\nsecrets: {cert: \
                   {file: cert.pem}}\n";
    let git = MemoryFiles::new([
        ("shop/compose.yaml", compose),
        ("shop/Dockerfile", "FROM scratch\n"),
        ("shop/cert.pem", "certificate"),
    ]);
    let rendered = render(&git, &AppSpec::compose("shop", &["shop/compose.yaml"]));
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    let build = stack.workloads[&"web".into()].build.as_ref().unwrap();
    let content = &rendered.contents[&build.secrets["cert"]];
    assert!(matches!(content, Content::File { bytes, .. } if **bytes == *b"certificate"), "{content:?}");
    let messages: Vec<&str> = rendered.findings.iter().map(|it| it.message.as_str()).collect();
    let ignored =
        |key| format!("`{key}` is ignored: it is an option of `RUN --mount=type=secret` in the Dockerfile");
    assert_eq!(messages, ["uid", "gid", "mode"].map(ignored));
}
