//! Applications with files that SOPS encrypted.

use std::{fs, path::Path, sync::Arc};

use driftless_files::{AppSpec, MemoryFiles, Rendered};
use driftless_manifest::render;
use driftless_model::{Finding, Mask, MountSource};
use driftless_sops::{DecryptedFiles, Keys};

const FIXTURES: &str = "crates/sops/tests/files";

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(FIXTURES).join(name)).unwrap()
}

/// Renders `app/FILE` together with the encrypted files.
fn rendered(spec: &AppSpec, manifest: (&str, &str), keys: &[&str]) -> Rendered {
    let mut files = MemoryFiles::new([manifest]);
    for name in ["app.env", "token.bin", "secret.yaml"] {
        files.0.insert(format!("app/{name}"), fixture(name).into());
    }
    let paths: Vec<_> = keys.iter().map(|name| Path::new(FIXTURES).join(name)).collect();
    let keys = Arc::new(Keys::load(&paths).unwrap());
    render(&DecryptedFiles::new(Arc::new(files), keys), spec)
}

fn compose(text: &str, keys: &[&str]) -> Rendered {
    let spec = AppSpec::compose("app", &["app/compose.yaml"]);
    rendered(&spec, ("app/compose.yaml", text), keys)
}

#[test]
fn encrypted_env_file_sets_variables() {
    let rendered = compose("services: {web: {image: nginx, env_file: app.env}}\n", &["age-key.txt"]);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    let web = &stack.workloads[&"web".into()];
    assert!(web.secret_env.contains("GREETING"), "its value is masked");
    let env = &web.container.env;
    assert_eq!(env["GREETING"].as_deref(), Some("hello"));
    assert_eq!(env.keys().filter(|name| name.starts_with("sops")).count(), 0);
}

#[test]
fn interpolated_values_of_an_encrypted_file_are_masked() {
    let mut spec = AppSpec::compose("app", &["app/compose.yaml"]);
    spec.env_files = vec!["app/app.env".to_owned()];
    let text = "services: {web: {image: 'nginx:1', command: 'say ${GREETING}', labels: {x: '${GREETING}'},\
                environment: {PLAIN: 'to ${GREETING}'}, ports: ['${GREETING}x:80']}}\n";
    let refused = rendered(&spec, ("app/compose.yaml", text), &["age-key.txt"]);
    let messages: Vec<String> = refused.findings.iter().map(ToString::to_string).collect();
    assert!(
        messages.iter().any(|message| message.contains("••••x")),
        "the value is not quoted: {messages:?}"
    );
    assert!(!messages.iter().any(|message| message.contains("hello")), "{messages:?}");

    let text = text.replace("${GREETING}x:80", "80");
    let rendered = rendered(&spec, ("app/compose.yaml", &text), &["age-key.txt"]);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    let mask = Mask::new([1; 32]).with_stacks([&stack]);
    let web = &stack.workloads[&"web".into()].container;
    let shown = [
        mask.value("PLAIN", web.env["PLAIN"].as_deref().unwrap()),
        mask.value("x", &web.labels["x"]),
        mask.arguments(web.command.as_deref().unwrap()).join(" "),
    ];
    assert!(shown.iter().all(|text| text.contains("••••") && !text.contains("hello")), "{shown:?}");
    assert_eq!(mask.text("it says hello to nginx"), format!("it says {} to nginx", mask.hide("hello")));
}

#[test]
fn encrypted_files_are_mounted_from_memory() {
    let text = "
services:
  web:
    image: nginx
    configs: [token]
    volumes: ['./token.bin:/etc/token:ro']
configs: {token: {file: token.bin}}
";
    let rendered = compose(text, &["pgp-key.asc"]);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    let mounts = &stack.workloads[&"web".into()].container.mounts;
    assert_eq!(mounts.len(), 2);
    assert!(mounts.iter().all(|mount| matches!(mount.source, MountSource::Secret(_))), "{mounts:?}");
}

#[test]
fn configs_with_a_decrypted_variable_are_mounted_from_memory() {
    let mut spec = AppSpec::compose("app", &["app/compose.yaml"]);
    spec.env_files = vec!["app/app.env".to_owned()];
    let text = "
services: {web: {image: nginx, configs: [variable, text, plain]}}
configs:
  variable: {environment: GREETING}
  text: {content: 'say ${GREETING}'}
  plain: {content: 'say nothing'}
";
    let rendered = rendered(&spec, ("app/compose.yaml", text), &["age-key.txt"]);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    let mounts = &stack.workloads[&"web".into()].container.mounts;
    let is_in_memory = |target: &str| {
        let mount = mounts.iter().find(|mount| mount.target == target).unwrap();
        matches!(mount.source, MountSource::Secret(_))
    };
    assert!(is_in_memory("/variable") && is_in_memory("/text") && !is_in_memory("/plain"), "{mounts:?}");
}

#[test]
fn labels_of_an_encrypted_label_file_are_masked() {
    let rendered = compose("services: {web: {image: nginx, label_file: app.env}}\n", &["age-key.txt"]);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    let label = &stack.workloads[&"web".into()].container.labels["GREETING"];
    assert_eq!(label, "hello");
    assert!(!Mask::new([1; 32]).with_stacks([&stack]).value("GREETING", label).contains("hello"));
}

#[test]
fn writable_mount_of_an_encrypted_file_is_refused() {
    let text = "services: {web: {image: nginx, volumes: ['./token.bin:/etc/token']}}\n";
    let rendered = compose(text, &["pgp-key.asc"]);
    assert!(rendered.stack.is_none());
    let finding = rendered.findings.iter().find(|finding| finding.is_error()).unwrap();
    assert!(finding.message.contains("`app/token.bin` is encrypted"), "{finding}");
}

#[test]
fn encrypted_file_in_a_shared_folder_stays_in_memory() {
    let text = "services: {web: {image: nginx, volumes: ['.:/app:ro']}, db: {image: db, volumes: ['./data:/data']}}\n";
    let rendered = compose(text, &["pgp-key.asc", "age-key.txt"]);
    let stack = rendered.stack.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    let mounts = &stack.workloads[&"web".into()].container.mounts;
    assert!(matches!(mounts[0].source, MountSource::Secret(_)), "{mounts:?}");
    assert!(stack.app_files.is_empty());
    let is_warning = |finding: &Finding| finding.message.contains("without what `db` writes there");
    assert!(rendered.findings.iter().any(is_warning), "{:?}", rendered.findings);
}

#[test]
fn encrypted_file_without_a_key_stops_the_application() {
    let rendered = compose("services: {web: {image: nginx, env_file: app.env}}\n", &["other-key.txt"]);
    assert!(rendered.stack.is_none());
    let finding = rendered.findings.iter().find(|finding| finding.is_error()).unwrap().to_string();
    assert!(finding.contains("no key of the agent opens it") && finding.contains("age1"), "{finding}");
}

#[test]
fn encrypted_config_map_is_refused() {
    let spec = AppSpec::kubernetes("app", &["app/kustomization.yaml"]);
    let text = "configMapGenerator:\n- {name: settings, envs: [app.env]}\n";
    let rendered = rendered(&spec, ("app/kustomization.yaml", text), &["age-key.txt"]);
    let found =
        rendered.findings.iter().map(ToString::to_string).find(|text| text.contains("encrypted file"));
    let found = found.unwrap_or_else(|| panic!("{:?}", rendered.findings));
    assert!(found.contains("secretGenerator") && !found.contains("hello"), "{found}");
}

#[test]
fn findings_quote_no_line_of_an_encrypted_file() {
    let spec = AppSpec::kubernetes("app", &["app/secret.yaml"]);
    let rendered = rendered(&spec, ("app/unused.txt", ""), &["age-key.txt"]);
    assert!(!rendered.findings.is_empty());
    assert!(!format!("{:?}", rendered.findings).contains("s3cret"), "{:?}", rendered.findings);
}
