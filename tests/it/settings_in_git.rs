//! `driftless.yaml` in Git: precedence, selection by host, what a host does not allow, and mistakes.

use std::collections::BTreeMap;

use driftless_agent::{Answer, RequestKind};
use driftless_config as config;
use driftless_docker::UserAction;
use driftless_files::MemoryFiles;
use driftless_model::{AppName, EffectiveSetting, Finding, HostIdentity, Mask, OnFailure, Removal};

use crate::simulation::{Simulation, app, minutes};

const SHOP: &str = "services: {web: {image: 'web:${TAG:-1}'}}\n";
const BLOG: &str = "services: {web: {image: 'blog:1', environment: {HOST: '${DRIFTLESS_HOST}'}}}\n";

/// The configuration of a host with a name, for one repository.
fn host(text: &str) -> config::Repository {
    let text = format!("repositories:\n- url: /srv/infra.git\n  path: sites\n{text}");
    let mut settings = config::Settings::parse("host.yaml", &text).unwrap();
    settings.identify("nas");
    settings.repositories.remove(0)
}

fn at(settings: &config::Repository, file: &str) -> Result<config::AtCommit, Vec<String>> {
    let files = MemoryFiles::new([("sites/driftless.yaml", file)]);
    settings.at_commit(&files).map_err(|findings| findings.iter().map(ToString::to_string).collect())
}

/// A link that counted as no file would give each host all applications of the folder, also suspended ones.
#[test]
fn settings_behind_a_broken_link_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir_all(root.join("sites/shop")).unwrap();
    std::fs::write(root.join("sites/shop/compose.yaml"), SHOP).unwrap();
    std::os::unix::fs::symlink("../driftless.yaml", root.join("sites/driftless.yaml")).unwrap();
    let settings = host("");
    let listed = || {
        let files = driftless_git::Directory::open(root).unwrap();
        let at_commit = settings.at_commit(&files);
        at_commit.map(|found| (found.discover, found.repository.applications.len()))
    };
    let found = listed().unwrap_err();
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert!(finding.is_error() && finding.location.file == "sites/driftless.yaml", "{finding}");
    assert!(finding.message.starts_with("is a symbolic link to `../driftless.yaml`, which"), "{finding}");
    std::fs::write(root.join("driftless.yaml"), "applications: [{path: shop}]\n").unwrap();
    assert_eq!(listed(), Ok((false, 1)));
    std::fs::remove_file(root.join("sites/driftless.yaml")).unwrap();
    assert_eq!(listed(), Ok((true, 0)));
}

fn effective(settings: &config::Repository, app: &str) -> BTreeMap<String, EffectiveSetting> {
    let all = settings.effective_settings(&app.into(), &Mask::new([7; 32]));
    all.into_iter().map(|setting| (setting.key.clone(), setting)).collect()
}

#[test]
fn inner_level_wins_and_the_host_has_the_last_word() {
    let file = "onFailure: none\nmonitor: 5m\nselfHeal: false\napplications:\n- path: shop\n  monitor: 10m\n  \
                variables: {TAG: '2', SITE: git}\n  perHost:\n  - hosts: {names: [nas]}\n    variables: {TAG: '3'}\n    \
                progressDeadline: 2m\n  - hosts: {names: [other]}\n    variables: {TAG: '4'}\n";
    let own = "  prune: true\n  selfHeal: true\n  applications:\n  - path: shop\n    onFailure: rollback\n    \
               variables: {SITE: host, DB_PASSWORD: hunter2hunter2}\n";
    let settings = at(&host(own), file).unwrap().repository;
    let [shop] = settings.applications.as_slice() else { panic!() };
    assert_eq!(shop.policy.on_failure, OnFailure::Rollback);
    let pairs: Vec<(&str, &str)> =
        shop.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("DB_PASSWORD", "hunter2hunter2"), ("SITE", "host"), ("TAG", "3")]);
    let effective = effective(&settings, "shop");
    let shown = |key: &str| {
        let EffectiveSetting { value, origin, in_git, .. } = &effective[key];
        let place = origin.as_ref().map(|place| format!("{}:{}", place.file, place.line));
        (value.as_str(), place.unwrap_or_default(), *in_git)
    };
    assert_eq!(shown("onFailure"), ("\"rollback\"", "host.yaml:8".to_owned(), false));
    assert_eq!(shown("selfHeal"), ("false", "sites/driftless.yaml:3".to_owned(), true));
    assert_eq!(shown("monitor"), ("\"600s\"", "sites/driftless.yaml:6".to_owned(), true));
    assert_eq!(shown("progressDeadline"), ("\"120s\"", "sites/driftless.yaml:11".to_owned(), true));
    assert_eq!(shown("prune"), ("true", "host.yaml:4".to_owned(), false));
    assert_eq!(shown("maxPrunePercent"), ("50", String::new(), false));
    assert_eq!(shown("variables.TAG"), ("\"3\"", "sites/driftless.yaml:10".to_owned(), true));
    assert_eq!(shown("variables.SITE").1, "host.yaml:9");
    assert!(!effective["variables.DB_PASSWORD"].value.contains("hunter2"), "{effective:?}");
}

#[test]
fn only_allowed_settings_may_be_in_git() {
    let file =
        "maxPrunePercent: 100\napplications:\n- path: shop\n  adopt: auto\n  verify: {}\n  selfHea: true\n";
    let findings = at(&host(""), file).unwrap_err();
    assert_eq!(
        findings,
        [
            "sites/driftless.yaml:1:1: error: maxPrunePercent: the configuration of this host does not let a repository \
             set `maxPrunePercent` (name it in `allow` there, or set it there)",
            "sites/driftless.yaml:6:3: error: applications[0].selfHea: unknown key `selfHea` (did you mean `selfHeal`?)",
            "sites/driftless.yaml:4:3: error: applications[0].adopt: the configuration of this host does not let a \
             repository set `adopt` (name it in `allow` there, or set it there)",
            "sites/driftless.yaml:5:3: error: applications[0].verify: `verify` is not supported: only the configuration \
             of a host may set it",
        ]
    );
    let file = "maxPrunePercent: 100\n";
    let allowed = at(&host("  allow: [default, maxPrunePercent]\n"), file).unwrap();
    assert_eq!(allowed.repository.policy.max_prune_percent, 100);
    assert!(at(&host("  allow: []\n"), "selfHeal: false\n").unwrap_err()[0].contains("does not let"));
    let wrong = "allow: [selfHeel]\nrepositories: [{url: /srv/a}]\n";
    let found = config::Settings::parse("host.yaml", wrong).unwrap_err();
    assert!(found[0].to_string().contains("did you mean `selfHeal`?"), "{found:?}");
}

/// A name decides which signatures and rules apply.
#[test]
fn commit_cannot_rename_an_application_of_the_host() {
    let own = "  applications:\n  - path: shop\n    verify: {ssh: {allowedSigners: [a b c]}}\n    policy: {privileged: \
               false}\n";
    let file = "applications:\n- {path: shop, name: other}\n- {path: blog}\n";
    let settings = at(&host(own), file).unwrap().repository;
    let [shop] = settings.applications.as_slice() else { panic!("{settings:?}") };
    assert_eq!(shop.app_name(), Some("shop".into()));
    assert!(shop.verify.is_some() && shop.admission.privileged == Some(false));
}

#[test]
fn labels_of_a_host_come_from_both_files() {
    let file = "hosts:\n- {name: nas, labels: {role: media, arch: riscv64}}\n- {name: web-1}\napplications:\n- {path: \
                shop, hosts: {labels: {role: media}}}\n- {path: blog, hosts: {names: ['web-*']}}\n- {path: wiki, hosts: \
                {labels: {arch: riscv64}}}\n";
    let found = at(&host(""), file).unwrap();
    let names = |all: &[config::ApplicationSettings]| -> Vec<AppName> {
        all.iter().filter_map(config::ApplicationSettings::app_name).collect()
    };
    assert_eq!(names(&found.repository.applications), ["shop".into()]);
    assert_eq!(
        names(&found.repository.elsewhere),
        ["blog".into(), "wiki".into()],
        "arch is that of the machine"
    );
    let hosts: Vec<&str> = found.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["nas", "web-1"]);
}

#[test]
fn configuration_of_an_agent_in_git_is_ignored_with_a_warning() {
    let found = at(&host(""), "repositories: [{url: /srv/a}]\n").unwrap();
    assert!(found.discover && found.findings.len() == 1);
    assert!(
        found.findings[0].to_string().contains("is the configuration of an agent"),
        "{:?}",
        found.findings
    );
}

#[test]
fn settings_that_are_not_read_are_named_in_a_warning() {
    const HOSTS: &str = "hosts: [{name: nas}]\n";
    let all = |files: &[(&str, &str)]| {
        let files = MemoryFiles::new(files.iter().copied());
        let mut findings = host("").at_commit(&files).unwrap().findings;
        findings.extend(host("").settings_above(&files));
        findings
    };
    let found =
        |files: &[(&str, &str)]| -> Vec<String> { all(files).iter().map(ToString::to_string).collect() };
    for (file, text, help) in [
        ("sites/driftless.yml", "prune: true\n", "rename it to `sites/driftless.yaml`"),
        ("sites/driftless.yml", "{ broken", "rename it to `sites/driftless.yaml`"),
        ("driftless.yaml", HOSTS, "move it to `sites/driftless.yaml`"),
        ("driftless.yml", "applications: []\n", "move it to `sites/driftless.yaml`"),
    ] {
        let warnings = found(&[(file, text)]);
        let [warning] = warnings.as_slice() else { panic!("{file}: {warnings:?}") };
        let start = format!("{file}: warning: `{file}` is not read: the settings of this repository are in");
        assert!(warning.starts_with(&start), "{warning}");
        let at_commit = host("").at_commit(&MemoryFiles::new([(file, text)])).unwrap();
        let advice = all(&[(file, text)]).remove(0).help;
        assert!(advice.is_some_and(|advice| advice.starts_with(help)), "{at_commit:?}");
        assert!(at_commit.discover, "{file}");
    }
    let both = [("sites/driftless.yml", HOSTS), ("sites/driftless.yaml", HOSTS)];
    assert_eq!(found(&both).len(), 1);
    // The configuration of an agent, a file of something else, and one for those who follow the root.
    let agent = "host: {name: nas}\nrepositories: [{url: /srv/a}]\napplications: []\n";
    let none = Vec::<String>::new();
    assert_eq!(found(&[("driftless.yaml", agent), ("sites/driftless.yml", agent)]), none);
    assert_eq!(found(&[("driftless.yaml", "a: 1\n"), ("other/driftless.yml", HOSTS)]), none);
    assert_eq!(found(&[("driftless.yaml", HOSTS), ("sites/driftless.yaml", "")]), none);
}

#[test]
fn path_has_the_name_of_the_host() {
    let text = "host: {name: web-1}\nrepositories: [{url: /srv/a, path: 'hosts/${host}', applications: [{path: \
                '${host}-app'}]}]\n";
    let mut settings = config::Settings::parse("host.yaml", text).unwrap();
    settings.identify("nas");
    let [repository] = settings.repositories.as_slice() else { panic!() };
    assert_eq!(repository.path, "hosts/web-1");
    assert_eq!(repository.applications[0].path, "hosts/web-1/web-1-app");
    assert_eq!(repository.host.labels["os"], "linux");
    let wrong =
        config::Settings::parse("host.yaml", "repositories: [{url: /srv/a, path: '${hots}'}]\n").unwrap_err();
    assert!(wrong[0].to_string().contains("the only variable of a path is `${host}`"), "{wrong:?}");
}

/// A repository whose applications are below `sites`, followed by the host `nas`.
async fn deployed(prune: bool, settings: &str) -> Simulation {
    let mut it = Simulation::idle();
    it.settings.path = "sites".to_owned();
    it.settings.policy.prune = prune;
    it.settings.host = HostIdentity { name: "nas".to_owned(), labels: BTreeMap::new() };
    push(&it, settings);
    let it = it.begun();
    it.synced_with_tip().await;
    it
}

fn push(it: &Simulation, settings: &str) {
    it.git.push_files(
        "Ada",
        &[
            ("sites/driftless.yaml", settings),
            ("sites/shop/compose.yaml", SHOP),
            ("sites/blog/compose.yaml", BLOG),
        ],
    );
}

fn containers(it: &Simulation, app: &str) -> usize {
    it.docker.observed(&app.into()).instances.len()
}

const BOTH: &str = "applications: [{path: shop, variables: {TAG: '2'}}, {path: blog}]\n";

#[tokio::test(start_paused = true)]
async fn change_of_settings_is_applied_like_any_other_commit() {
    let it = deployed(false, BOTH).await;
    assert_eq!(it.images(), ["web:2"]);
    let blog = it.docker.observed(&"blog".into());
    let hosts: Vec<_> = blog.instances.values().filter_map(|one| one.config.env["HOST"].clone()).collect();
    assert_eq!(hosts, ["nas"]);
    push(&it, "applications: [{path: shop, variables: {TAG: '3'}}, {path: blog}]\n");
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:3"]);
    assert_eq!(it.store.revisions(&app()).unwrap().len(), 2);
    // The stack is the same now, and only the policy changes.
    push(&it, "selfHeal: false\napplications: [{path: shop, variables: {TAG: '3'}}, {path: blog}]\n");
    it.synced_with_tip().await;
    let observed = it.docker.observed(&app());
    let name = &observed.instances.values().next().unwrap().name;
    it.hand(&UserAction::Stop { name: name.clone() });
    minutes(5).await;
    assert_eq!(it.images(), [""; 0], "self-heal is off\n{}", it.story());
    let Ok(Answer::Settings(settings)) = it.handle().request(app(), RequestKind::Settings).await else {
        panic!()
    };
    let self_heal = settings.iter().find(|setting| setting.key == "selfHeal").unwrap();
    assert_eq!((self_heal.value.as_str(), self_heal.in_git), ("false", true));
}

#[tokio::test(start_paused = true)]
async fn settings_with_a_mistake_change_nothing_that_runs() {
    let mut it = deployed(true, BOTH).await;
    for wrong in ["applications: [{path: shop, prun: true}]\n", "applications: {\n", "a: 1\n---\nb: 1\n"] {
        push(&it, wrong);
        minutes(3).await;
        assert_eq!((it.images(), containers(&it, "blog")), (vec!["web:2".to_owned()], 1), "{wrong}");
        let message = it.handle().applications()[&app()].status.message.clone();
        assert!(message.contains("sites/driftless.yaml:"), "{wrong}: {message}");
        // The same for an agent that has never read anything else.
        it.crash();
        it.begin();
        minutes(3).await;
        assert_eq!((it.images(), containers(&it, "blog")), (vec!["web:2".to_owned()], 1), "{wrong}");
    }
    push(&it, BOTH);
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn application_for_other_hosts_is_removed_like_from_git() {
    let elsewhere =
        "applications: [{path: shop, variables: {TAG: '2'}}, {path: blog, hosts: {names: [web]}}]\n";
    for prune in [false, true] {
        let it = deployed(prune, BOTH).await;
        push(&it, elsewhere);
        minutes(3).await;
        assert_eq!(containers(&it, "blog"), usize::from(!prune), "{}", it.story());
        assert_eq!(containers(&it, "shop"), 1);
    }
    // The policy of its entry counts, although it is for other hosts.
    let it = deployed(false, BOTH).await;
    push(&it, &elsewhere.replace("{path: blog,", "{path: blog, prune: true,"));
    minutes(3).await;
    assert_eq!(containers(&it, "blog"), 0, "{}", it.story());
}

/// No commit says that they leave, and a hostname changes by accident.
#[tokio::test(start_paused = true)]
async fn changed_host_name_removes_no_application() {
    let settings = "hosts: [{name: nas, labels: {role: media}}]\napplications: [{path: shop}, {path: blog, hosts: \
                    {labels: {role: media}}}]\n";
    let mut it = deployed(true, settings).await;
    it.end().await;
    it.settings.host.name = "nas.home.lan".to_owned();
    it.begin();
    minutes(3).await;
    assert_eq!((containers(&it, "shop"), containers(&it, "blog")), (1, 1), "{}", it.story());
    let message = it.handle().applications()[&"blog".into()].status.message.clone();
    assert!(message.contains("then `nas`, now `nas.home.lan`"), "{message}");
    // A further commit confirms nothing, also if it leaves out the application.
    for later in [settings.replace("{path: shop}", "{path: shop, variables: {TAG: '2'}}"), BOTH.to_owned()] {
        push(&it, &later.replace(", {path: blog}", ""));
        minutes(3).await;
        assert_eq!((it.images(), containers(&it, "blog")), (vec!["web:2".to_owned()], 1), "{}", it.story());
    }
    push(&it, settings);
    it.end().await;
    it.settings.host.name = "nas".to_owned();
    it.begin();
    minutes(3).await;
    let blog = it.handle().applications()[&"blog".into()].status.clone();
    assert!(!blog.findings.iter().any(Finding::is_error), "{blog:#?}");
    push(&it, "applications: [{path: shop}]\n");
    minutes(3).await;
    assert_eq!(containers(&it, "blog"), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn removal_after_a_changed_host_name_can_be_confirmed() {
    let mut it = deployed(true, "applications: [{path: shop}, {path: blog, hosts: {names: [nas]}}]\n").await;
    it.end().await;
    it.settings.host.name = "web".to_owned();
    it.begin();
    minutes(3).await;
    assert_eq!(containers(&it, "blog"), 1, "{}", it.story());
    it.handle().request("blog".into(), RequestKind::Remove(Removal::KeepVolumes)).await.unwrap();
    minutes(3).await;
    assert_eq!((containers(&it, "shop"), containers(&it, "blog")), (1, 0), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn only_application_that_waits_is_not_removed_later() {
    let mut it = deployed(true, "applications: [{path: shop, hosts: {names: [nas]}}]\n").await;
    it.end().await;
    it.settings.host.name = "nas.home.lan".to_owned();
    it.begin();
    minutes(3).await;
    assert_eq!(containers(&it, "shop"), 1, "{}", it.story());
    // The host does not have it under its former name either.
    push(&it, "applications: [{path: shop, hosts: {names: [web]}}]\n");
    for _ in 0..2 {
        minutes(3).await;
        assert_eq!(containers(&it, "shop"), 1, "{}", it.story());
        let message = it.handle().applications()[&app()].status.message.clone();
        assert!(message.contains("while its removal waited for you"), "{message}");
        it.end().await;
        it.begin();
    }
    minutes(3).await;
    it.handle().request(app(), RequestKind::Remove(Removal::KeepVolumes)).await.unwrap();
    minutes(3).await;
    assert_eq!(containers(&it, "shop"), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn host_that_loses_all_applications_keeps_them() {
    let it = deployed(true, BOTH).await;
    push(&it, "applications: [{path: shop, hosts: {names: [web]}}, {path: blog, hosts: {names: [web]}}]\n");
    minutes(3).await;
    assert_eq!((containers(&it, "shop"), containers(&it, "blog")), (1, 1));
    let message = it.handle().applications()[&app()].status.message.clone();
    assert!(message.contains("removes all 2 applications"), "{message}");
    let found = at(&it.settings, "applications: [{path: shop, hosts: {names: [web]}}]\n").unwrap();
    let warning = found.findings[0].to_string();
    assert!(warning.contains("warning: applications: no application is for this host (`nas`)"), "{warning}");
    // As docs/fleet.md advises for a collector.
    assert_eq!(at(&it.settings, "applications: []\n").unwrap().findings, []);
}

#[tokio::test(start_paused = true)]
async fn host_without_applications_has_no_error() {
    let it = deployed(true, "applications: [{path: shop}]\n").await;
    push(&it, "applications: [{path: shop, hosts: {names: [web]}}]\n");
    minutes(3).await;
    assert_eq!(containers(&it, "shop"), 0, "{}", it.story());
    assert_eq!(it.handle().repositories()[0].message, "");
}
