//! The configuration file: defaults, inheritance, and the location of each mistake.

#![allow(clippy::unwrap_used, clippy::pedantic)]

use std::{path::PathBuf, time::Duration};

use driftless_config::{Auth, Proxy, RUNTIME_DIR, Reference, STATE_DIR, Secret, Settings, VerifyMode};
use driftless_model::{AdmissionPolicy, AppName, Finding, VersionRange};

fn mistakes(text: &str) -> Vec<Finding> {
    Settings::parse("driftless.yaml", text).expect_err("a mistake is found")
}

fn mistake(text: &str) -> String {
    let found = mistakes(text);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].to_string()
}

/// The repository of the tests about webhooks and commit statuses.
const URL: &str = "https://git.example.com/acme/infra.git";

const ONE: &str = "repositories:\n  - url: https://git.example.com/me/infra.git\n";

#[test]
fn filesystem_drift_policy_is_inherited() {
    use driftless_model::FilesystemDrift;
    let text = "filesystemDrift: off\nrepositories:\n- url: /srv/a\n  applications:\n  - path: one\n  - {path: two, \
                filesystemDrift: revert}\n- url: /srv/b\n  filesystemDrift: report\n";
    let settings = Settings::parse("driftless.yaml", text).unwrap();
    let [a, b] = settings.repositories.as_slice() else { panic!() };
    let of_applications: Vec<_> = a.applications.iter().map(|it| it.policy.filesystem_drift).collect();
    assert_eq!(of_applications, [FilesystemDrift::Off, FilesystemDrift::Revert]);
    assert_eq!(b.policy.filesystem_drift, FilesystemDrift::Report);
    assert!(Settings::parse("f", "filesystemDrift: heal\nrepositories: []").is_err());
}

#[test]
fn one_url_is_enough() {
    let settings = Settings::parse("driftless.yaml", ONE).unwrap();
    let mut built =
        Settings::for_repository("https://git.example.com/me/infra.git", "", Reference::Head).unwrap();
    built.protect_paths();
    assert_eq!(settings, built);
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8484");
    assert_eq!(settings.state_dir, PathBuf::from("/var/lib/driftless"));
    let repository = &settings.repositories[0];
    assert_eq!(repository.name, "infra");
    assert_eq!(repository.poll, Duration::from_secs(60));
    assert!(repository.policy.self_heal && !repository.policy.prune && !repository.policy.suspended);
}

#[test]
fn default_directories_of_the_agent_are_protected() {
    for directory in [STATE_DIR, RUNTIME_DIR] {
        assert!(AdmissionPolicy::PROTECTED.contains(&directory), "{directory}");
    }
}

#[test]
fn example_is_valid_and_shows_the_defaults() {
    let text = std::fs::read_to_string("../../config/driftless.yaml").unwrap();
    let settings = Settings::parse("config/driftless.yaml", &text).unwrap();
    let infra = &settings.repositories[0];
    assert_eq!(infra.reference, Reference::Branch("main".to_owned()));
    assert_eq!(infra.auth.password, Some(Secret::File("/etc/driftless/git-token".into())));
    let shop = &settings.repositories[1].applications[0];
    assert_eq!((shop.name.as_ref(), shop.path.as_str()), (Some(&AppName::from("shop")), "deploy/shop"));
    assert_eq!(shop.variables["TAG"], "1.4.2");
    assert_eq!(shop.profiles, ["metrics"]);

    // Its comments show the defaults.
    let shown: String = text
        .lines()
        .take_while(|it| !it.starts_with("repositories"))
        .filter_map(|it| it.strip_prefix("# "))
        .filter(|it| it.split_once(": ").is_some_and(|it| it.0.chars().all(char::is_alphabetic)))
        .filter(|it| !["tokenFile", "stateKeyFile", "progressDeadline"].iter().any(|key| it.starts_with(key)))
        .map(|it| format!("{it}\n"))
        .collect();
    assert_eq!(shown.lines().count(), 14, "{shown}");
    assert_eq!(Settings::parse("shown", &format!("{shown}{ONE}")), Settings::parse("one", ONE));
}

#[test]
fn inner_policies_override_outer_ones() {
    let settings = Settings::parse(
        "driftless.yaml",
        "selfHeal: false\nrepositories:\n- url: /srv/a\n  prune: true\n  path: sites\n  applications:\n  \
         - path: one\n  - {path: two, selfHeal: true, suspend: true, prune: false}\n- url: /srv/b\n",
    )
    .unwrap();
    let policy = |it: &driftless_model::Policy| (it.self_heal, it.prune, it.suspended);
    let [a, b] = &settings.repositories[..] else { panic!("two repositories") };
    assert_eq!(policy(&a.policy), (false, true, false));
    assert_eq!(a.applications[0].path, "sites/one");
    assert_eq!(policy(&a.applications[0].policy), (false, true, false));
    assert_eq!(policy(&a.applications[1].policy), (true, false, true));
    assert_eq!(policy(&b.policy), (false, false, false));
}

#[test]
fn max_prune_percent_is_inherited_and_checked() {
    let of = |text: &str| Settings::parse("driftless.yaml", text);
    let text = "maxPrunePercent: 20\nrepositories:\n- url: /srv/a\n  applications:\n  - path: one\n  - {path: two, \
                maxPrunePercent: 100}\n- {url: /srv/b, maxPrunePercent: 0}\n";
    let settings = of(text).unwrap();
    let [a, b] = &settings.repositories[..] else { panic!("two repositories") };
    let of_applications: Vec<u8> = a.applications.iter().map(|it| it.policy.max_prune_percent).collect();
    assert_eq!((of_applications, b.policy.max_prune_percent), (vec![20, 100], 0));
    assert_eq!(of("repositories: [{url: /srv/a}]").unwrap().repositories[0].policy.max_prune_percent, 50);
    for wrong in ["101", "-1", "half", "50%"] {
        let message = of(&format!("repositories: [{{url: /srv/a, maxPrunePercent: {wrong}}}]")).unwrap_err();
        assert!(format!("{message:?}").contains("from 0 to 100"), "{wrong}: {message:?}");
    }
}

#[test]
fn adopt_policy_defaults_to_ask() {
    use driftless_model::Adopt;
    let adopt = |text: &str| {
        let settings = Settings::parse("driftless.yaml", text).unwrap();
        let repository = &settings.repositories[0];
        (repository.policy.adopt, repository.applications[0].policy.adopt)
    };
    let one = "repositories:\n- url: /srv/a\n  applications:\n  - path: one\n";
    assert_eq!(adopt(one), (Adopt::Ask, Adopt::Ask));
    assert_eq!(adopt(&format!("adopt: auto\n{one}")), (Adopt::Auto, Adopt::Auto));
    assert_eq!(adopt(&format!("adopt: auto\n{one}    adopt: never\n")), (Adopt::Auto, Adopt::Never));
    let wrong = mistake(&format!("adopt: yes\n{one}"));
    assert!(wrong.contains("1:8") && wrong.contains("`ask`"), "{wrong}");
}

#[test]
fn unknown_key_is_reported_with_a_suggestion() {
    assert_eq!(
        mistake("repositories:\n  - url: /srv/a\n    pol: 60s\n"),
        "driftless.yaml:3:5: error: repositories[0].pol: unknown key `pol` (did you mean `poll`?)",
    );
    assert!(mistake("selfheal: true\nrepositories: []").ends_with("(did you mean `selfHeal`?)"));
    assert_eq!(
        mistake("repositories:\n  - url: /srv/a\n    variables: {TAG: '1'}\n"),
        "driftless.yaml:3:5: error: repositories[0].variables: unknown key `variables` (`variables` is a key of `applications`)",
    );
    let unlike = mistake("colour: red\nrepositories: []");
    assert!(unlike.contains("unknown key `colour`") && !unlike.contains("did you mean"), "{unlike}");
}

#[test]
fn invalid_values_are_reported_at_their_location() {
    for (text, place, message) in [
        ("listen: here\nrepositories: []", "1:9", "is not an address with a port"),
        ("stateDir: state\nrepositories: []", "1:11", "must be absolute"),
        ("docker: /var/run/docker.sock\nrepositories: []", "1:9", "unix:///var/run/docker.sock"),
        ("docker: {host: here}\nrepositories: []", "1:16", "unix:///var/run/docker.sock"),
        ("docker: {tls: {ca: /ca.pem}}\nrepositories: []", "1:9", "`host` is missing"),
        (
            "docker: {host: 'unix:///d.sock', tls: {ca: /ca.pem}}\nrepositories: []",
            "1:39",
            "TLS is for `tcp://` addresses only",
        ),
        ("docker: {host: 'tcp://h:2376', tls: {cert: /c}}\nrepositories: []", "1:37", "`ca` is missing"),
        (
            "docker: {host: 'tcp://h:2376', tls: {ca: /ca.pem, key: /k}}\nrepositories: []",
            "1:37",
            "`cert` and `key` belong together",
        ),
        ("docker: {host: 'tcp://h:2376', tls: {ca: ca.pem}}\nrepositories: []", "1:42", "must be absolute"),
        ("repositories:\n- url: ftp://example.com/x", "2:8", "not supported"),
        ("repositories:\n- url: ./here", "2:8", "absolute path"),
        ("repositories:\n- url: /srv/a\n  poll: 60", "3:9", "is not a duration"),
        ("repositories:\n- url: /srv/a\n  poll: 10ms", "3:9", "at least `1s`"),
        ("repositories:\n- url: /srv/a\n  path: ../b", "3:9", "`..`"),
        ("repositories:\n- url: /srv/a\n  commit: abc123", "3:11", "full id"),
        ("repositories:\n- url: /srv/a\n  prune: maybe", "3:10", "true or false"),
        (
            "repositories:\n- url: /srv/a\n  applications:\n  - {path: a, name: Shop}",
            "4:21",
            "not a valid application name",
        ),
        ("repositories:\n- url: /srv/a\n  applications:\n  - name: shop", "4:5", "`path` is missing"),
        ("repositories:\n- url: /srv/a\n  url: /srv/b", "3:3", "`url` is already defined"),
        ("repositories:\n- name: a", "2:3", "`url` is missing"),
        ("repositories: 5", "1:15", "must be a list"),
        ("repositories: [", "1:15", "not valid YAML"),
    ] {
        let found = mistakes(text);
        let shown = found[0].to_string();
        assert!(
            shown.starts_with(&format!("driftless.yaml:{place}: ")) && shown.contains(message),
            "{text}\n{shown}"
        );
    }
}

#[test]
fn empty_file_needs_a_repository() {
    for text in ["", "\n# nothing here\n"] {
        assert!(mistake(text).contains("name at least one repository"));
    }
    assert!(mistake("repositories: []").contains("there is no repository"));
}

#[test]
fn messages_repeat_no_secret() {
    for text in [
        "repositories:\n- url: https://me:hunter2@git.example.com/x",
        "repositories:\n- url: https://hunter2@git.example.com/x",
        "repositories:\n- url: /srv/a\n  auth: hunter2",
        "repositories:\n- url: /srv/a\n  auth: [hunter2]",
        "repositories:\n- url: /srv/a\n  auth: {password: hunter2}",
        "repositories:\n- url: https://example.com/a\n  auth: {tokenFile: hunter2}",
        "repositories: hunter2",
        "hunter2",
    ] {
        let message = mistakes(text).iter().map(ToString::to_string).collect::<String>();
        assert!(!message.contains("hunter2"), "{message}");
    }
    let message = mistake("repositories:\n- url: /srv/a\n  auth: {password: hunter2}");
    assert!(
        message.contains("did you mean `passwordEnv`") || message.contains("did you mean `passwordFile`"),
        "{message}"
    );
}

#[test]
fn all_inconsistent_values_are_reported_at_once() {
    let found = mistakes(
        "listen: 0.0.0.0:8484\nrepositories:\n\
         - {url: /srv/a, branch: main, tag: v1}\n\
         - {url: /other/a, auth: {tokenEnv: T}}\n\
         - {url: 'git@example.com:b', caFile: /ca.pem}\n\
         - {url: https://example.com/c, auth: {username: me}}\n\
         - {url: https://example.com/d, auth: {sshKeyFile: /key, tokenEnv: T, passwordEnv: P}}\n\
         - {url: /srv/e, applications: [{path: x/shop}, {path: shop}, {path: '.'}]}\n",
    );
    let message: Vec<String> = found.iter().map(|it| format!("{}: {}", it.path, it.message)).collect();
    for expected in [
        "listen: `0.0.0.0:8484` can be reached from other machines",
        "repositories[0]: `branch`, `tag`, `semver` and `commit` exclude",
        "repositories[1].auth: user names, passwords and tokens are for",
        "repositories[1].name: repositories[0] is named `a` already",
        "repositories[2].caFile: certificate",
        "repositories[3].auth: a user name needs",
        "repositories[4].auth: `sshKeyFile`",
        "repositories[4].auth: `passwordEnv`, `passwordFile`, `tokenEnv` and `tokenFile` exclude",
        "repositories[5].applications[1].name: repositories[5].applications[0] is named `shop` already",
        "repositories[5].applications[2]: the folder has no name",
    ] {
        assert!(message.iter().any(|it| it.starts_with(expected)), "{expected}\n{message:#?}");
    }
    assert_eq!(message.len(), 10, "{message:#?}");
}

#[test]
fn repository_is_not_named_after_files_of_a_mirror() {
    let of = |one: &str, other: &str| {
        let text =
            format!("repositories:\n- {{url: /srv/a, name: {one}}}\n- {{url: /srv/b, name: {other}}}\n");
        Settings::parse("x", &text)
    };
    for end in ["lock", "new", "old", "modules", "ssh-helper", "ssh-helper.new"] {
        let name = format!("infra.{end}");
        for found in [of("infra", &name), of(&name, "infra")] {
            let found = format!("{:?}", found.unwrap_err());
            assert!(
                found.contains(&format!("the mirror of the repository `infra` uses `{name}`")),
                "{found}"
            );
        }
        assert!(of("shop", &name).is_ok(), "{name}");
    }
    assert!(of("infra", "infra.git").is_ok());
}

#[test]
fn password_is_refused_for_a_url_in_clear() {
    let with = |url: &str| format!("repositories:\n- url: {url}\n  auth: {{tokenEnv: T}}\n");
    let found = mistakes(&with("http://example.com/a.git"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].path.as_str(), found[0].location.line), ("repositories[0].auth", 3));
    assert!(found[0].message.contains("`https` URL"), "{found:?}");
    assert!(Settings::parse("x", &with("https://example.com/a.git")).is_ok());
}

#[test]
fn listeners_with_overlapping_addresses_are_refused() {
    let of = |listen: &str, metrics: &str| {
        Settings::parse(
            "x",
            &format!("tokenFile: /t\nlisten: '{listen}'\nmetrics: {{listen: '{metrics}'}}\n{ONE}"),
        )
    };
    for (listen, metrics, expected) in [
        ("127.0.0.1:9000", "127.0.0.1:9000", "`listen` has the address 127.0.0.1:9000 already"),
        (
            "0.0.0.0:9000",
            "127.0.0.1:9000",
            "`listen` has the address 0.0.0.0:9000 already, which overlaps with 127.0.0.1:9000",
        ),
        ("127.0.0.1:9000", "[::]:9000", "overlaps with [::]:9000"),
    ] {
        let found = of(listen, metrics).unwrap_err();
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert!(finding.to_string().contains("metrics.listen: `listen`"), "{finding}");
        assert!(finding.to_string().contains(expected), "{finding}");
    }
    for (listen, metrics) in [("0.0.0.0:9000", "127.0.0.1:9001"), ("0.0.0.0:0", "0.0.0.0:0")] {
        of(listen, metrics).unwrap();
    }
    // The default address, which an option may replace.
    let mut settings = Settings::parse("x", &format!("metrics: {{listen: '0.0.0.0:8484'}}\n{ONE}")).unwrap();
    assert!(settings.check("x")[0].to_string().contains("overlaps with 0.0.0.0:8484"));
    settings.listen = "127.0.0.1:9000".parse().unwrap();
    assert_eq!(settings.check("x"), []);
}

#[test]
fn listening_beyond_loopback_needs_a_token() {
    let beyond = format!("listen: '[::]:8484'\n{ONE}");
    assert!(mistake(&beyond).contains("tokenFile"));
    assert!(Settings::parse("x", &format!("tokenFile: /etc/token\n{beyond}")).is_ok());
    assert!(Settings::parse("x", &format!("listen: '[::1]:1'\n{ONE}")).is_ok());
    // Also where an option has changed it after parsing.
    let mut settings = Settings::parse("x", ONE).unwrap();
    settings.listen = "192.0.2.1:80".parse().unwrap();
    assert_eq!(settings.check("the command line").len(), 1);
}

#[test]
fn variables_keep_their_spelling_and_are_unique() {
    let text = |variables: &str| {
        format!("repositories:\n- url: /srv/a\n  applications:\n  - path: shop\n    variables: {variables}\n")
    };
    let settings = Settings::parse("x", &text("{A: 1.10, B: yes, C: '', D: 007}")).unwrap();
    let variables = &settings.repositories[0].applications[0].variables;
    let values: Vec<&str> = variables.values().map(String::as_str).collect();
    assert_eq!(values, ["1.10", "yes", "", "007"]);
    assert!(mistake(&text("{A: 1, A: 2}")).contains("`A` is already defined"));
    assert!(mistake(&text("{A: [hunter2]}")).contains("must be a string, but it is a list"));
}

#[test]
fn command_line_is_checked_by_the_same_rules() {
    let refused =
        |url: &str, path: &str, reference| Settings::for_repository(url, path, reference).unwrap_err();
    assert!(
        refused("https://me:hunter2@example.com/x", "", Reference::Head)[0].message.contains("credential")
    );
    assert!(refused("/srv/a", "../b", Reference::Head)[0].path.ends_with("path"));
    let settings =
        Settings::for_repository("/srv/a.git", "./sites/", Reference::Tag("v1".to_owned())).unwrap();
    assert_eq!(
        (settings.repositories[0].path.as_str(), settings.repositories[0].name.as_str()),
        ("sites", "a")
    );
}

proptest::proptest! {
    #[test]
    fn no_text_is_too_strange(text in "([a-z]{1,6}|repositories|url|auth|poll|: |- |\\[|\\{|\\}|\\]|,|\n|  |&a|\\*a|<<|!t|'|\"|#|\t|é|\\||%|@|/srv/a|[0-9]s){0,40}") {
        // It must be read or refused, and every refusal must say something.
        if let Err(findings) = Settings::parse("driftless.yaml", &text) {
            assert!(!findings.is_empty() && findings.iter().all(|it| !it.message.is_empty()), "{text}");
        }
    }
}

#[test]
fn host_credentials_are_used_without_auth() {
    let text = r#"
credentials:
  - host: git.example.com
    caFile: /ca.pem
    proxy: http://proxy:3128
    auth: { tokenFile: /token, sshKeyFile: /key, hostKeys: ["SHA256:uNiVztksCsDhcc0u9e8BrDDnUnM2yUsgsdeYVkCkT5E="] }
  - host: "*"
    auth: { tokenEnv: OTHER, knownHosts: /hosts }
repositories:
  - url: https://git.example.com/a
  - url: git@git.example.com:b
  - url: https://elsewhere.example.com/c
  - { url: "https://git.example.com/d", auth: { tokenFile: /own }, proxy: direct }
  - url: /srv/e
  - url: http://elsewhere.example.com/f
"#;
    let settings = Settings::parse("c", text).unwrap();
    let [a, b, c, d, e, f] = settings.repositories.as_slice() else { panic!("six") };
    assert_eq!((&a.auth.password, &a.auth.ssh_key), (&Some(Secret::File("/token".into())), &None));
    assert_eq!((&a.ca_file, &a.proxy), (&Some("/ca.pem".into()), &Proxy::Url("http://proxy:3128".into())));
    assert_eq!((&b.auth.password, &b.auth.ssh_key), (&None, &Some(PathBuf::from("/key"))));
    assert_eq!(b.auth.host_keys, ["SHA256:uNiVztksCsDhcc0u9e8BrDDnUnM2yUsgsdeYVkCkT5E"]);
    assert_eq!((&b.ca_file, &c.ca_file), (&None, &None));
    assert_eq!(c.auth.password, Some(Secret::Environment("OTHER".into())));
    assert_eq!((&d.auth.password, &d.proxy), (&Some(Secret::File("/own".into())), &Proxy::Direct));
    assert_eq!((&e.auth, &f.auth), (&Auth::default(), &Auth::default()));
}

#[test]
fn keys_for_encrypted_files_can_be_those_of_a_repository() {
    let text = "sops: {keyFiles: [/keys/all]}\nrepositories:\n- url: https://h/a\n- {url: https://h/b, sops: {keyFiles: [/keys/b]}}\n\
                - {url: https://h/c, sops: {keyFiles: []}}\n";
    let settings = Settings::parse("c", text).unwrap();
    assert_eq!(settings.sops_key_files, [PathBuf::from("/keys/all")]);
    let own: Vec<_> = settings.repositories.iter().map(|it| it.sops_key_files.clone()).collect();
    assert_eq!(own, [None, Some(vec![PathBuf::from("/keys/b")]), Some(Vec::new())]);
    let relative = "repositories: [{url: https://h/b, sops: {keyFiles: [keys/b]}}]";
    assert!(Settings::parse("c", relative).is_err());
}

#[test]
fn verify_is_read_for_repositories_and_applications() {
    let text = r#"
repositories:
  - url: https://h/a
    semver: ">=1.2 <2"
    requireFastForward: true
    submodules: true
    submodulePaths: [/srv/git]
    verify:
      mode: both
      ssh: { allowedSigners: ["ada@example.com ssh-ed25519 AAAA"], revokedKeysFile: /revoked }
    auth: { githubApp: { appId: 12, installationId: 34, privateKeyFile: /app.pem } }
    applications:
      - { path: shop, verify: { openpgp: { keyringFile: /ring } } }
"#;
    let settings = Settings::parse("c", text).unwrap();
    let it = &settings.repositories[0];
    assert!(it.require_fast_forward && it.submodules);
    assert_eq!(it.submodule_paths, [PathBuf::from("/srv/git")]);
    assert_eq!(it.reference, Reference::Semver(VersionRange::parse(">=1.2 <2").unwrap()));
    let verify = it.verify.clone().unwrap();
    assert_eq!((verify.mode, verify.allowed_signers.len()), (VerifyMode::Both, 1));
    assert_eq!(it.applications[0].verify.clone().unwrap().keyring_file, Some("/ring".into()));
    let app = it.auth.github_app.clone().unwrap();
    assert_eq!(
        (app.app.as_str(), app.installation.as_str(), app.api.as_str()),
        ("12", "34", "https://api.github.com")
    );
}

#[test]
fn signatures_require_fast_forward_by_default() {
    let signed = "verify: { ssh: { allowedSignersFile: /signers } }";
    let of_app = "applications: [{ path: shop, verify: { openpgp: { keyringFile: /ring } } }]";
    for (more, wanted) in [
        ("branch: main", false),
        (signed, true),
        (of_app, true),
        (&format!("{signed}\n    tag: stable"), true),
        (&format!("{signed}\n    semver: '>=1'"), false),
        (&format!("{signed}\n    requireFastForward: false"), false),
        ("requireFastForward: true", true),
    ] {
        let settings =
            Settings::parse("c", &format!("repositories:\n  - url: https://h/a\n    {more}\n")).unwrap();
        assert_eq!(settings.repositories[0].require_fast_forward, wanted, "{more}");
    }
}

#[test]
fn impossible_verify_and_auth_are_rejected() {
    let with = |more: &str| mistake(&format!("{ONE}    {more}\n"));
    for (more, wanted) in [
        ("verify: {}", "no key is trusted"),
        ("verify: { mode: tag, openpgp: { keyringFile: /r } }", "if the agent follows a tag"),
        ("verify: { mode: all }", "mode"),
        ("verify: { ssh: { keys: [] } }", "unknown key"),
        ("semver: latest", "not a range of versions"),
        ("proxy: http://me:hunter2@h:1", "contains a credential"),
        ("proxy: socks5://h:1", "a proxy is"),
        ("auth: { githubApp: { appId: 1, installationId: 2 } }", "needs its `privateKeyFile`"),
        (
            "auth: { githubApp: { appId: 1, installationId: x, privateKeyFile: /k } }",
            "the numbers that GitHub shows",
        ),
        (
            "auth: { githubApp: { appId: 1, installationId: 2, privateKeyFile: /k, apiUrl: \"http://h\" } }",
            "`https://host`",
        ),
        (
            "auth: { tokenFile: /t, githubApp: { appId: 1, installationId: 2, privateKeyFile: /k } }",
            "give no others",
        ),
        ("auth: { sshPassphraseFile: /p }", "without `sshKeyFile`"),
        ("auth: { hostKeys: [\"MD5:00\"] }", "SHA256:"),
    ] {
        let message = with(more);
        assert!(message.contains(wanted) && !message.contains("hunter2"), "{more}: {message}");
    }
    let host = mistake(&format!("credentials: [{{ host: \"https://h\" }}]\n{ONE}"));
    assert!(host.contains("credentials[0].host"), "{host}");
}

#[test]
fn registry_login_needs_host_user_and_password_source() {
    let with = |text: &str| format!("registries: [{text}]\n{ONE}");
    let settings = Settings::parse(
        "driftless.yaml",
        &with(
            "{ host: ghcr.io/team, username: a, passwordEnv: P }, { host: \"*.example.com\", usernameFile: /u, passwordFile: /p }",
        ),
    );
    let registries = settings.unwrap().registries;
    assert_eq!(
        (registries[0].host.as_str(), &registries[0].username),
        ("ghcr.io/team", &Secret::Plain("a".into()))
    );
    assert_eq!(
        (&registries[0].password, &registries[1].password),
        (&Secret::Environment("P".into()), &Secret::File("/p".into()))
    );
    for (text, wanted) in [
        (
            "{ host: \"https://h\", username: a, passwordEnv: P }",
            "registries[0].host: must be a host such as",
        ),
        ("{ host: h, passwordEnv: P }", "registries[0].username: give one of"),
        (
            "{ host: h, username: a }",
            "registries[0].passwordFile: give one of `passwordEnv` and `passwordFile`",
        ),
        (
            "{ host: h, username: a, passwordEnv: P, passwordFile: /p }",
            "registries[0].passwordFile: give one of",
        ),
        (
            "{ host: h, username: a, passwordEnv: P }, { host: h, username: b, passwordEnv: P }",
            "registries[1].host: this host has a login",
        ),
        ("{ host: h, username: a, password: hunter2 }", "unknown key `password`"),
    ] {
        let message = mistake(&with(text));
        assert!(message.contains(wanted) && !message.contains("hunter2"), "{text}: {message}");
    }
}

#[test]
fn webhook_mistakes_are_reported() {
    let mistake = |hook: &str| {
        let text = format!("repositories:\n- url: {URL}\n  webhook: {hook}\n");
        let found = Settings::parse("driftless.yaml", &text).expect_err(hook);
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(mistake("{}").contains("needs a secret"));
    assert!(mistake("{secretFile: /a, secretEnv: B}").contains("exclude each other"));
    assert!(mistake("{secretFile: a}").contains("absolute"));
    assert!(mistake("{secretFile: /a, provider: githup}").contains("must be one of `auto`, `github`"));
    assert!(mistake("{secretFile: /a, id: short}").contains("16 to 128"));
    assert!(mistake("{secret: hunter2-hunter2}").contains("unknown key"));
    assert!(!mistake("{secret: hunter2-hunter2}").contains("hunter2"));
    let two = format!(
        "repositories:\n- {{url: {URL}, name: a, webhook: {{secretEnv: A, id: the-same-id-for-both}}}}\n- {{url: {URL}, name: b, webhook: {{secretEnv: A, id: the-same-id-for-both}}}}\n"
    );
    let found = Settings::parse("driftless.yaml", &two).unwrap_err();
    assert!(found[0].to_string().contains("same id"), "{found:?}");
    let one = |webhooks: &str| {
        Settings::parse("a", &format!("webhooks: {webhooks}\nrepositories:\n- url: {URL}\n"))
    };
    let good = one("{listen: 0.0.0.0:8485, url: 'https://hooks.example.com/a/'}").unwrap();
    assert_eq!(good.webhooks.url.as_deref(), Some("https://hooks.example.com/a"));
    for url in ["hooks.example.com", "https://", "https://me:pw@h", "https://h/$(id)", "ftp://h"] {
        assert!(one(&format!("{{url: '{url}'}}")).is_err(), "{url}");
    }
}

#[test]
fn commit_statuses_need_a_token_and_a_forge() {
    let parse = |url: &str, status: &str| {
        let text = format!("repositories:\n- url: {url}\n  status: {status}\n");
        Settings::parse("driftless.yaml", &text)
    };
    let good =
        parse(URL, "{provider: forgejo, tokenEnv: TOKEN}").unwrap().repositories.remove(0).status.unwrap();
    assert_eq!((good.api.as_str(), good.project.as_str()), ("https://git.example.com/api/v1", "acme/infra"));
    for (url, status, wanted) in [
        (URL, "{provider: gitea}", "needs a token"),
        (URL, "{provider: gitea, tokenEnv: A, tokenFile: /b}", "exclude each other"),
        (URL, "{provider: bitbucket, tokenEnv: A}", "must be one of `github`"),
        ("/srv/infra.git", "{provider: gitea, tokenEnv: A}", "does not name its forge"),
        (URL, "{provider: gitea, tokenEnv: A, url: 'https://me:pw@h'}", "is written as"),
        (URL, "{provider: gitea, tokenEnv: A, context: ''}", "short name"),
    ] {
        let found = parse(url, status).unwrap_err();
        assert!(found[0].to_string().contains(wanted), "{status}: {found:?}");
    }
}

#[test]
fn sync_windows_are_inherited_as_a_whole_and_checked() {
    let of = |text: &str| Settings::parse("driftless.yaml", text);
    let window =
        "{kind: deny, schedule: '0 22 * * *', duration: 8h, timeZone: Europe/Berlin, manualSync: true}";
    let text = format!(
        "syncWindows: [{window}]\nrepositories:\n- url: /srv/a\n- url: /srv/b\n  syncWindows: []\n- url: /srv/c\n  \
         applications:\n  - path: one\n    syncWindows: [{{kind: allow, schedule: '@daily', duration: 90m}}]\n"
    );
    let settings = of(&text).unwrap();
    let [a, b, c] = &settings.repositories[..] else { panic!("three repositories") };
    assert_eq!(a.policy.sync_windows[0].to_string(), "deny `0 22 * * *` (Europe/Berlin)");
    assert_eq!((b.policy.sync_windows.len(), c.policy.sync_windows.len()), (0, 1));
    assert_eq!(c.applications[0].policy.sync_windows[0].duration.as_secs(), 5400);
    for (wrong, expected) in [
        ("kind: never, schedule: '@daily', duration: 1h", "must be one of `allow`, `deny`"),
        ("kind: deny, schedule: '0 25 * * *', duration: 1h", "25"),
        ("kind: deny, schedule: '@daily', duration: 1h, timeZone: Berlin", "is not a time zone"),
        ("kind: deny, schedule: '@daily', duration: 30s", "at least `1m`"),
        ("kind: deny, schedule: '@daily'", "duration"),
        ("kind: deny, schedule: '@daily', duration: 1h, manual: true", "manual"),
    ] {
        let message =
            of(&format!("repositories: [{{url: /srv/a, syncWindows: [{{{wrong}}}]}}]")).unwrap_err();
        assert!(format!("{message:?}").contains(expected), "{wrong}: {message:?}");
    }
}

#[test]
fn ignored_differences_name_fields_of_live_containers() {
    let of = |text: &str| Settings::parse("driftless.yaml", text);
    let text = "ignoreDifferences: [{fields: [restart]}]\nrepositories:\n- url: /srv/a\n- url: /srv/b\n  applications:\n  - path: \
                one\n    ignoreDifferences: [{workload: web, fields: [resources.memory, networks.a]}]\n";
    let settings = of(text).unwrap();
    let [a, b] = &settings.repositories[..] else { panic!("two repositories") };
    assert_eq!(a.policy.ignore_differences[0].fields[0].to_string(), "restart");
    let own = &b.applications[0].policy.ignore_differences;
    assert_eq!((own.len(), own[0].fields.len()), (1, 2), "the inner list replaces the outer one");
    assert_eq!(own[0].workload.as_ref().map(ToString::to_string).as_deref(), Some("web"));
    for (wrong, expected) in [
        ("{fields: [image]}", "`image` is not a field that can be changed on a live container"),
        ("{workload: web}", "fields"),
        ("{fields: [restart], app: web}", "app"),
    ] {
        let message =
            of(&format!("ignoreDifferences: [{wrong}]\nrepositories: [{{url: /srv/a}}]")).unwrap_err();
        assert!(format!("{message:?}").contains(expected), "{wrong}: {message:?}");
        assert!(format!("{message:?}").contains("line: 1"), "{message:?}");
    }
}

#[test]
fn moved_lines_are_no_new_configuration() {
    let text = "ignoreDifferences: [{fields: [restart]}]\nrepositories:\n- url: /srv/a\n  selfHeal: false\n  applications:\n  - \
                path: one\n    variables: {TAG: '1'}\n    ignoreDifferences: [{workload: web, fields: [networks.a]}]\n";
    let before = Settings::parse("driftless.yaml", text).unwrap();
    let moved = Settings::parse("driftless.yaml", &format!("# A comment.\n{text}")).unwrap();
    assert_eq!(before, moved);
    assert_ne!(before, Settings::parse("driftless.yaml", &text.replace("networks.a", "networks.b")).unwrap());
}

#[test]
fn state_directory_is_known_despite_mistakes() {
    use driftless_config::named_state_dir;
    let of = |text: &str| named_state_dir("driftless.yaml", text);
    assert_eq!(of("listen: nowhere\nstateDir: /srv/state\n"), Some("/srv/state".into()));
    assert_eq!(of("stateDir: state\n"), None);
    assert_eq!(of("stateDir: {a: b}\n"), None);
    assert_eq!(of("listen: ["), None);
}

#[test]
fn files_that_name_their_engine_are_known() {
    use driftless_config::names_engine;
    let of = |text: &str| names_engine("driftless.yaml", text);
    assert!(
        of("docker: unix:///var/run/docker.sock\n") && of("listen: nowhere\ndocker: {host: 'tcp://a:1'}\n")
    );
    assert!(!of("listen: 127.0.0.1:1\n") && !of("# docker: unix:///a\n") && !of("listen: [") && !of(""));
}
