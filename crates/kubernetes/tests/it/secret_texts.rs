//! Texts of Secrets and encrypted files that no finding shows.

use driftless_files::{AppSpec, HostFile, MemoryFiles, WithHostFiles};
use driftless_kubernetes::render;
use driftless_model::{Finding, Mask, Stack, StackHash};

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web:1}]}
";

/// The findings about a Deployment and a further file. The file is encrypted in Git if `is_encrypted`.
fn findings((path, text): (&str, &str), manifest: &str, is_encrypted: bool) -> Vec<Finding> {
    let kustomization = "resources: [web.yaml, secret.yaml]\n";
    let files = MemoryFiles::new([("web.yaml", DEPLOYMENT)]);
    let host = |path: &str, text: &str| HostFile {
        path: path.to_owned(),
        source: path.to_owned(),
        content: Ok(text.as_bytes().into()),
        is_secret: is_encrypted,
    };
    let host = [host("kustomization.yaml", kustomization), host(path, text)];
    render(&WithHostFiles::new(&files, &host), &AppSpec::kubernetes("shop", &[manifest])).findings
}

#[track_caller]
fn assert_hidden(findings: &[Finding], texts: &[&str]) {
    assert!(findings.iter().any(Finding::is_error), "{findings:#?}");
    let all = format!("{findings:#?}");
    assert!(texts.iter().all(|text| !all.contains(text)), "{all}");
}

#[test]
fn errors_of_syntax_show_no_line_of_a_secret() {
    let twice = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  admin: hunter2horse\n  admin: hunter3horse\n";
    let shifted = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  tls.key: |\n    BEGIN\nMIIEvAIBADAN: x: y\n";
    for text in [twice, shifted] {
        for is_encrypted in [true, false] {
            for manifest in ["secret.yaml", "kustomization.yaml"] {
                let found = findings(("secret.yaml", text), manifest, is_encrypted);
                assert_hidden(&found, &["hunter", "MIIE"]);
            }
        }
    }
    // An encrypted file of another kind, too.
    let found = findings(("a.yaml", "note: one: hidden-text\n"), "a.yaml", true);
    assert_hidden(&found, &["hidden-text"]);
    let found = findings(("a.yaml", "note: one: text\n"), "a.yaml", false);
    assert_eq!(found[0].excerpt.as_deref(), Some("note: one: text"));
}

/// The stack of one manifest, which is encrypted in the repository or not.
fn stack_of(text: &str, is_secret: bool) -> Stack {
    let host = [HostFile {
        path: "web.yaml".to_owned(),
        source: "web.yaml".to_owned(),
        content: Ok(text.as_bytes().into()),
        is_secret,
    }];
    let app = AppSpec::kubernetes("shop", &["web.yaml"]);
    render(&WithHostFiles::new(&MemoryFiles::default(), &host), &app).stack.unwrap()
}

#[test]
fn texts_of_an_encrypted_manifest_are_masked() {
    let container = "{name: web, image: 'web:1', env: [{name: RELAY, value: bot hunter2xyz}], args: [serve, 'pw:$(RELAY):geheim99']}";
    let text = DEPLOYMENT.replace("{name: web, image: web:1}", container);
    let found = stack_of(&text, true);
    let mask = Mask::new([1; 32]).with_stacks([&found]);
    let container = &found.workloads[&"web".into()].container;
    assert_eq!(mask.value("RELAY", "bot hunter2xyz"), mask.hide("bot hunter2xyz"));
    let arguments = mask.arguments(container.command.as_ref().unwrap());
    assert_eq!(arguments[0], mask.hide("serve"));
    assert!(!arguments[1].contains("hunter2") && !arguments[1].contains("geheim"), "{arguments:?}");
    assert_eq!(mask.message("web cannot serve"), "web cannot serve");
    let plain = stack_of(&text, false);
    assert_eq!(StackHash::of(&found), StackHash::of(&plain));
    assert_ne!(found.encrypted, plain.encrypted);
}

#[test]
fn labels_of_an_encrypted_manifest_can_be_selected() {
    let text = DEPLOYMENT
        .replace(
            "{labels: {app: web}}",
            "{labels: {app: web, tier: frontend}, annotations: {note: open-sesame}}",
        )
        .replace("image: web:1}", "image: 'web:1', args: [frontend]}");
    let found = stack_of(&text, true);
    let mask = Mask::new([1; 32]).with_stacks([&found]);
    let shown = mask.labels(&found.workloads[&"web".into()].container.labels, found.format);
    assert_eq!((&*shown["app"], &*shown["tier"]), ("web", "frontend"));
    assert_eq!(shown["annotation.note"], mask.hide("open-sesame"));
}

/// The value may have been written in the place of the key.
#[test]
fn invalid_keys_without_a_value_are_not_shown() {
    let of = |entries: &str| {
        let secret = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {entries}\n");
        let text = format!("{DEPLOYMENT}---\n{secret}");
        let found = findings(("secret.yaml", text.as_str()), "secret.yaml", false);
        assert!(found.iter().any(|it| it.message.starts_with("has no value")), "{found:#?}");
        format!("{found:#?}")
    };
    assert!(!of("{qhki/BAQE=}").contains("qhki"));
    assert!(of("{password: }").contains("stringData.password"));
}

#[test]
fn lines_of_a_variable_file_are_never_shown_as_keys() {
    let kustomization = "resources: [web.yaml]\nsecretGenerator: [{name: s, envs: [app.env]}]\n";
    let of = |text: &str| {
        let files = MemoryFiles::new([
            ("web.yaml", DEPLOYMENT),
            ("kustomization.yaml", kustomization),
            ("app.env", text),
        ]);
        render(&files, &AppSpec::kubernetes("shop", &["kustomization.yaml"])).findings
    };
    for text in
        ["A=1\nTLS_KEY=\"-----BEGIN KEY-----\nqhkiG9w0BAQE\n-----END KEY-----\"\n", "A=1\nqhkiG9w0/BAQE\n"]
    {
        let found = of(text);
        assert_hidden(&found, &["qhki", "BEGIN"]);
        assert_eq!(found[0].location.to_string(), "app.env:2:1");
        assert!(found[0].help.as_deref().unwrap().contains("`files`"), "{found:#?}");
    }
    assert_hidden(&of("qhkiG9w0/BAQE==\n"), &["qhki"]);
    assert_eq!(of("A=1\nBARE\n"), []);
}
