//! Applications that leave Git: when they are removed, by which request, and what the status says until then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use driftless_agent::{Answer, RequestError, RequestKind, Rollback, Supposed, release_notes};
use driftless_clock::Clock;
use driftless_config as config;
use driftless_docker::UserAction;
use driftless_model::{
    AppName, Application, Cause, ContainerId, HealthStatus, MountSource, Pin, Record, Removal, RepoUrl,
    SyncStatus, Until,
};
use driftless_store::{ContentDir, StateDir, Store};
use tokio::{task::yield_now, time::sleep};

use crate::sample::NOON;
use crate::simulation::{Git, Simulation, app, minutes};

const SHOP: &str = "services: {web: {image: 'web:1', volumes: ['data:/data']}}\nvolumes: {data: }\n";
const BLOG: &str = "services: {web: {image: 'blog:1'}}";

fn blog() -> AppName {
    "blog".into()
}

/// A running agent with these files in Git, and with `prune` as given.
async fn deployed(prune: bool, path: &str, files: &[(&str, &str)]) -> Simulation {
    let mut it = Simulation::idle();
    it.settings.policy.prune = prune;
    it.settings.path = path.to_owned();
    it.git.push_files("Ada", files);
    let it = it.begun();
    it.synced_with_tip().await;
    it
}

/// Deploys a shop with `prune: false`, and removes it from Git.
async fn kept_shop() -> Simulation {
    let it = deployed(false, "", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]).await;
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
    minutes(3).await;
    it
}

impl Simulation {
    fn listed(&self, name: &AppName) -> Option<Arc<Application>> {
        self.handle().applications().get(name).cloned()
    }

    fn containers(&self, name: &AppName) -> usize {
        self.docker.observed(name).instances.len()
    }

    /// The next life of the agent follows a second repository with these files.
    fn follow_another(&mut self, files: &[(&str, &str)]) {
        self.crash();
        let git = Git::default();
        git.push_files("Ada", files);
        let url = RepoUrl::parse("https://git.example/notes.git").unwrap();
        let mut settings = config::Repository::new(url, "", config::Reference::Head);
        (settings.poll, settings.policy) = (self.settings.poll, self.settings.policy.clone());
        self.other_repositories.push((settings, git));
        self.begin();
    }
}

#[tokio::test(start_paused = true)]
async fn last_application_of_a_repository_is_pruned() {
    for (path, folder) in [("", "shop"), ("", "."), ("apps", "apps/shop")] {
        let file = format!("{folder}/compose.yaml");
        let compose = format!("name: shop\n{SHOP}");
        let mut it = Simulation::idle();
        it.settings.policy.prune = true;
        it.settings.path = path.to_owned();
        it.settings.name = "shop".to_owned();
        it.git.push_files("Ada", &[(file.trim_start_matches("./"), &compose)]);
        let mut it = it.begun();
        it.synced_with_tip().await;
        it.git.push_files("Ada", &[("README.md", "empty")]);
        minutes(3).await;
        assert_eq!(it.containers(&app()), 0, "{folder}: {:#?}\n{}", it.listed(&app()), it.story());
        assert!(it.listed(&app()).is_none());
        // It is gone for the next life of the agent, too.
        it.crash();
        it.begin();
        minutes(3).await;
        assert!(it.listed(&app()).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn folder_that_was_never_searched_removes_nothing() {
    let mut it = deployed(true, "apps", &[("apps/shop/compose.yaml", SHOP)]).await;
    for path in ["app", "docs"] {
        it.crash();
        it.settings.path = path.to_owned();
        it.git.push_files("Ada", &[("apps/shop/compose.yaml", SHOP), ("docs/README.md", "none")]);
        it.begin();
        minutes(5).await;
        assert_eq!(it.containers(&app()), 1, "{path}: {}", it.story());
    }
}

/// As when small repositories are merged into one. Several applications move in one commit, too.
#[tokio::test(start_paused = true)]
async fn applications_move_out_of_a_repository_that_is_empty_then() {
    let shop = ("shop/compose.yaml", SHOP);
    let wiki = ("wiki/compose.yaml", BLOG);
    for prune in [false, true] {
        for moving in [&[shop][..], &[shop, wiki]] {
            let mut it = Simulation::idle();
            it.settings.policy.prune = prune;
            let url = RepoUrl::parse("https://git.example/old.git").unwrap();
            let mut settings = config::Repository::new(url, "", config::Reference::Head);
            settings.policy.prune = prune;
            let old = Git::default();
            old.push_files("Ada", moving);
            it.other_repositories.push((settings, old.clone()));
            it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
            let it = it.begun();
            minutes(3).await;
            let containers = || -> Vec<ContainerId> {
                let names = [app(), "wiki".into()];
                let instances = names.iter().map(|name| it.docker.observed(name).instances);
                instances.flat_map(BTreeMap::into_keys).collect()
            };
            let before = containers();
            assert_eq!(before.len(), moving.len(), "{}", it.story());
            it.git.push_files("Ada", &[&[("blog/compose.yaml", BLOG)][..], moving].concat());
            minutes(3).await;
            old.push_files("Ada", &[("README.md", "moved")]);
            minutes(5).await;
            assert_eq!(containers(), before, "{prune}: {}", it.story());
            let moved = it.listed(&app()).unwrap();
            assert_eq!(moved.spec.repository, "infra", "{moved:#?}");
            assert_eq!(moved.status.sync, SyncStatus::Synced, "{moved:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn limited_repository_gets_an_application_after_its_removal() {
    let (shop, blog) = (("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG));
    let mut it = Simulation::idle();
    it.settings.admission.other_applications = Some(false);
    let url = RepoUrl::parse("https://git.example/old.git").unwrap();
    let old = Git::default();
    old.push_files("Ada", &[shop]);
    it.other_repositories.push((config::Repository::new(url, "", config::Reference::Head), old.clone()));
    it.git.push_files("Ada", &[blog]);
    let it = it.begun();
    minutes(3).await;
    it.git.push_files("Ada", &[blog, shop]);
    minutes(3).await;
    old.push_files("Ada", &[("README.md", "left")]);
    minutes(5).await;
    let found = || {
        let repository = it.listed(&app()).unwrap().spec.repository.clone();
        (repository, it.containers(&app()))
    };
    assert_eq!(found(), ("old".to_owned(), 1), "{}", it.story());
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(found(), ("infra".to_owned(), 1), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn unreadable_file_above_an_application_removes_nothing() {
    let lock = format!("lockfileVersion: '9.0'\n# {}\n", "x".repeat(1 << 20));
    let manifest = "apiVersion: v1\nkind: Pod\nkind: Pod\n";
    for (file, text) in [("pnpm-lock.yaml", &*lock), ("values.yaml", "a: 1\na: 2\n"), ("pod.yaml", manifest)]
    {
        let it = deployed(true, "", &[("shop/compose.yaml", SHOP)]).await;
        it.git.push_files("Ada", &[("shop/compose.yaml", SHOP), (file, text)]);
        minutes(5).await;
        assert_eq!(it.containers(&app()), 1, "{file}: {}", it.story());
        let message = it.listed(&app()).unwrap().status.message.clone();
        assert!(!message.contains("driftless remove"), "{file}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn several_applications_are_not_pruned_at_once() {
    let mut it = deployed(true, "", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]).await;
    let empty = it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(5).await;
    assert_eq!((it.containers(&app()), it.containers(&blog())), (1, 1), "{}", it.story());
    let message = it.listed(&app()).unwrap().status.message.clone();
    let expected = format!(
        "{} is not applied: error: the commit removes all 2 applications of the repository at once (confirm with `driftless remove shop`, or restore it in Git)",
        &empty[..12]
    );
    assert_eq!(message, expected);
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(1).await;
    assert_eq!(it.containers(&app()), 0);
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    // The last one waits as well, also in another life of the agent and after a further empty commit.
    minutes(10).await;
    assert_eq!(it.containers(&blog()), 1, "{}", it.story());
    it.crash();
    it.begin();
    minutes(10).await;
    it.git.push_files("Ada", &[("README.md", "still empty")]);
    minutes(10).await;
    assert_eq!(it.containers(&blog()), 1, "{}", it.story());
    let message = it.listed(&blog()).unwrap().status.message.clone();
    assert!(message.contains("`driftless remove blog`"), "{message}");
    it.handle().request(blog(), RequestKind::Remove(Removal::KeepVolumes)).await.unwrap();
    minutes(2).await;
    assert_eq!(it.containers(&blog()), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn confirmed_removal_of_one_of_several_survives_restarts() {
    const WITH_HOOK: &str = "services:
  web: {image: 'web:1', volumes: ['data:/data']}
  save: {image: 'save:1', x-driftless: {hook: PreDelete}}
volumes: {data: }
";
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.prune = true;
    it.docker.faults(|faults| {
        faults.exits.insert("save:1".to_owned(), (Duration::from_mins(4), 0));
        faults.stop = Duration::from_mins(2);
    });
    it.git.push_files("Ada", &[("shop/compose.yaml", WITH_HOOK), ("blog/compose.yaml", BLOG)]);
    it.begin();
    it.synced_with_tip().await;
    it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(5).await;
    it.ask(RequestKind::Remove(Removal::WithVolumes)).await;
    minutes(2).await;
    assert_eq!(it.containers(&app()), 2, "the hook runs: {}", it.story());
    // During the hook, and while its containers are removed.
    for _ in 0..2 {
        it.crash();
        it.begin();
        minutes(3).await;
    }
    minutes(15).await;
    let observed = it.docker.observed(&app());
    assert!(observed.instances.is_empty(), "{}", it.story());
    assert!(!observed.volumes.contains_key("shop_data"), "{}", it.story());
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    assert_eq!(it.containers(&blog()), 1, "{}", it.story());
}

/// As a list `applications` in `driftless.yaml` that has only the new ones.
#[tokio::test(start_paused = true)]
async fn most_applications_are_not_pruned_at_once() {
    let names = ["shop", "blog", "chat", "feed", "mail", "wiki", "news"];
    let paths = names.map(|name| format!("{name}/compose.yaml"));
    let files = paths.each_ref().map(|path| (path.as_str(), BLOG));
    let mut it = deployed(true, "", &files).await;
    minutes(3).await;
    let running = |it: &Simulation| names.map(|name| it.containers(&name.into()));
    assert_eq!(running(&it), [1; 7], "{}", it.story());
    // Two of seven are few.
    it.git.push_files("Ada", &files[..5]);
    minutes(5).await;
    assert_eq!(running(&it), [1, 1, 1, 1, 1, 0, 0], "{}", it.story());
    let left = [files[4], ("new/compose.yaml", BLOG)];
    let most = it.git.push_files("Ada", &left);
    minutes(5).await;
    assert_eq!(running(&it), [1, 1, 1, 1, 1, 0, 0], "{}", it.story());
    assert_eq!(it.containers(&"new".into()), 1);
    let message = it.listed(&app()).unwrap().status.message.clone();
    let expected = format!(
        "{} is not applied: error: 4 applications of the repository left Git at once (confirm with `driftless remove shop`, or restore it in Git)",
        &most[..12]
    );
    assert_eq!(message, expected);
    // Another commit confirms nothing, also in another life of the agent.
    it.git.push_files("Ada", &[left[0], left[1], ("README.md", "more")]);
    minutes(5).await;
    it.crash();
    it.begin();
    minutes(10).await;
    assert_eq!(running(&it), [1, 1, 1, 1, 1, 0, 0], "{}", it.story());
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    it.git.push_files("Ada", &[left[0], left[1], files[1]]);
    minutes(10).await;
    assert_eq!(running(&it), [0, 1, 1, 1, 1, 0, 0], "{}", it.story());
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    let status = it.listed(&blog()).unwrap().status.clone();
    assert!(!status.findings.iter().any(driftless_model::Finding::is_error), "{status:#?}");
}

#[tokio::test(start_paused = true)]
async fn application_that_was_moved_too_deep_is_not_removed() {
    let files = [("media/shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)];
    let it = deployed(true, "", &files).await;
    it.git.push_files("Ada", &[("media/old/Shop/compose.yaml", SHOP), files[1]]);
    minutes(5).await;
    assert_eq!((it.containers(&app()), it.containers(&blog())), (1, 1), "{}", it.story());
    let message = it.listed(&app()).unwrap().status.message.clone();
    assert!(message.contains("`media/old/Shop` may be the application"), "{message}");
    it.git.push_files("Ada", &[("photos/shop/compose.yaml", SHOP), files[1]]);
    it.synced_with_tip().await;
    // A folder with another name is no reason to keep it.
    it.git.push_files("Ada", &[("media/old/wiki/compose.yaml", SHOP), files[1]]);
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn manifest_of_another_tool_removes_no_application() {
    let shop = ("shop/compose.yaml", SHOP);
    let catalog = ("catalog-info.yaml", "apiVersion: backstage.io/v1alpha1\nkind: Component\n");
    let it = deployed(true, "", &[shop]).await;
    it.git.push_files("Ada", &[shop, catalog]);
    it.synced_with_tip().await;
    assert_eq!(it.containers(&app()), 1, "{}", it.story());
    // It keeps no application that has left Git.
    it.git.push_files("Ada", &[catalog]);
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_replaced_by_files_of_other_kinds_is_kept() {
    let blog_files = ("blog/compose.yaml", BLOG);
    let below = ("shop/monitoring/compose.yaml", BLOG);
    for text in [
        "apiVersion: apps.example.com/v1\nkind: WebApp\nmetadata: {name: shop}\n",
        "apiVersion: skaffold/v4beta6\nkind: Config\n",
    ] {
        let it = deployed(true, "", &[("shop/compose.yaml", SHOP), blog_files, below]).await;
        it.git.push_files("Ada", &[("shop/shop.yaml", text), blog_files, below]);
        minutes(5).await;
        assert_eq!((it.containers(&app()), it.containers(&blog())), (1, 1), "{}", it.story());
        assert!(format!("{:?}", it.listed(&app()).unwrap().status).contains("shop/shop.yaml"));
    }
}

#[tokio::test(start_paused = true)]
async fn application_split_next_to_a_file_of_another_tool_goes() {
    let catalog = ("shop/catalog-info.yaml", "apiVersion: backstage.io/v1alpha1\nkind: Component\n");
    let blog_files = ("blog/compose.yaml", BLOG);
    let it = deployed(true, "", &[("shop/compose.yaml", SHOP), catalog, blog_files]).await;
    it.git.push_files("Ada", &[("shop/web/compose.yaml", SHOP), catalog, blog_files]);
    minutes(5).await;
    assert_eq!(it.containers(&app()), 1, "{}", it.story());
    let message = it.listed(&app()).unwrap().status.message.clone();
    assert!(message.contains("`shop/catalog-info.yaml` has only kinds of another tool"), "{message}");
    assert!(message.contains("`driftless remove shop`"), "{message}");
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_moved_to_the_folder_above_is_removed() {
    let blog_files = ("blog/compose.yaml", BLOG);
    let settings = ("media/shop/.config/shop.yaml", "a: b\n");
    let package = ("media/shop/package.json", r#"{"name": "shop"}"#);
    let metrics = ("media/shop/prometheus.yml", "global: {}\n");
    let variables = ("media/shop/.env", "TAG=1\n");
    let it = deployed(true, "", &[("media/shop/compose.yaml", SHOP), blog_files]).await;
    let moved = [("media/compose.yaml", BLOG), settings, package, metrics, variables, blog_files];
    it.git.push_files("Ada", &moved);
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
    assert_eq!(it.containers(&"media".into()), 1, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_below_a_new_one_with_errors_is_kept() {
    let shop = ("shop/compose.yaml", SHOP);
    for prune in [true, false] {
        let mut it = deployed(prune, "", &[shop]).await;
        let service = ("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: db}\n");
        it.git.push_files("Ada", &[shop, service]);
        minutes(5).await;
        it.crash();
        it.begin();
        minutes(5).await;
        assert_eq!(it.containers(&app()), 1, "{}", it.story());
        let status = it.listed(&app()).unwrap().status.clone();
        let text = format!("{status:?}");
        assert!(text.contains("the folder `shop` is now part of the application"), "{status:#?}");
        it.git.push_files("Ada", &[shop]);
        it.synced_with_tip().await;
    }
}

#[tokio::test(start_paused = true)]
async fn application_taken_in_by_one_above_waits_for_the_user() {
    let shop = ("shop/compose.yaml", SHOP);
    let mut it = deployed(true, "", &[shop]).await;
    // The second commit corrects the first one, as its error advises.
    let namespace = ("namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n");
    let pod =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: 'web:1'}]}\n";
    for files in [&[shop, namespace][..], &[shop, namespace, ("web.yaml", pod)]] {
        it.git.push_files("Ada", files);
        minutes(5).await;
        let status = it.listed(&app()).unwrap().status.clone();
        assert!(
            format!("{status:?}").contains("the folder `shop` is now part of the application"),
            "{status:#?}"
        );
    }
    it.crash();
    it.begin();
    minutes(5).await;
    assert_eq!((it.containers(&app()), it.containers(&"infra".into())), (1, 1), "{}", it.story());
    let message = it.listed(&app()).unwrap().status.message.clone();
    assert!(message.contains("`driftless remove shop`"), "{message}");
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn only_application_may_be_moved_deeper_and_deeper() {
    let it = deployed(true, "", &[("media/shop/compose.yaml", SHOP)]).await;
    // The agent does not look as deep as the second one.
    for folder in ["media/old/shop", "media/old/2025/x/shop"] {
        it.git.push_files("Ada", &[(&format!("{folder}/compose.yaml"), SHOP)]);
        minutes(5).await;
        assert_eq!(it.containers(&app()), 1, "{folder}: {}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn prune_that_is_turned_on_later_confirms_nothing() {
    let names = ["shop", "blog", "chat", "feed", "mail"];
    let paths = names.map(|name| format!("{name}/compose.yaml"));
    let files = paths.each_ref().map(|path| (path.as_str(), BLOG));
    let it = deployed(false, "", &files).await;
    minutes(3).await;
    let running = |it: &Simulation| names.map(|name| it.containers(&name.into()));
    it.git.push_files("Ada", &[files[4], ("driftless.yaml", "prune: false\n")]);
    minutes(5).await;
    assert_eq!(running(&it), [1; 5], "{}", it.story());
    it.git.push_files("Ada", &[files[4], ("driftless.yaml", "prune: true\n")]);
    minutes(5).await;
    assert_eq!(running(&it), [1; 5], "{}", it.story());
    let message = it.listed(&app()).unwrap().status.message.clone();
    assert!(message.contains("4 applications of the repository left Git at once"), "{message}");
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(running(&it), [0, 1, 1, 1, 1], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn new_application_does_not_confirm_that_all_others_go() {
    let it = deployed(true, "", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]).await;
    it.git.push_files("Ada", &[("new/compose.yaml", BLOG)]);
    minutes(5).await;
    let running = [app(), blog(), "new".into()].map(|name| it.containers(&name));
    assert_eq!(running, [1; 3], "{}", it.story());
    // After an empty commit, the first application that returns confirms nothing either.
    it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(5).await;
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
    minutes(5).await;
    assert_eq!((it.containers(&app()), it.containers(&blog())), (1, 1), "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_that_left_git_is_removed_by_one_request() {
    let mut it = kept_shop().await;
    // A restart of the agent is no other departure.
    it.crash();
    it.begin();
    minutes(3).await;
    let events = it.store.events(0, 1000, Some(&app())).unwrap();
    assert_eq!(events.iter().filter(|event| event.reason == "NotInGit").count(), 1, "{events:?}");
    assert_eq!(it.containers(&app()), 1, "{}", it.story());
    let advice = "`driftless remove shop`";
    let status = it.listed(&app()).unwrap().status.clone();
    assert!(status.message.contains(advice), "{status:#?}");
    for kind in [RequestKind::Prune, RequestKind::Resume, RequestKind::Heal] {
        let why = it.refusal(kind).await;
        assert!(why.contains(advice), "{why}");
    }
    // No rounds would follow after `driftless resume`, which is refused.
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), RequestKind::Plan).await else {
        panic!("no plan")
    };
    assert!(!plan.suspended && plan.rounds.is_empty() && plan.waits[0].contains(advice), "{plan:#?}");
    let answer = it.handle().request(app(), RequestKind::Remove(Removal::KeepVolumes)).await;
    let Ok(Answer::Noted(note)) = answer else { panic!("no note") };
    assert!(note.starts_with("volumes that stay: shop_data; "), "{note}");
    minutes(1).await;
    let observed = it.docker.observed(&app());
    assert!(observed.instances.is_empty() && observed.networks.is_empty(), "{}", it.story());
    assert!(observed.volumes.contains_key("shop_data"));
    assert!(it.listed(&app()).is_none());
}

#[tokio::test(start_paused = true)]
async fn volumes_are_removed_only_on_request() {
    let it = kept_shop().await;
    it.ask(RequestKind::Suspend).await;
    it.ask(RequestKind::Remove(Removal::WithVolumes)).await;
    minutes(1).await;
    let observed = it.docker.observed(&app());
    assert!(!observed.volumes.contains_key("shop_data"), "{}", it.story());
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
}

/// A shop with `prune: false` that was adopted from Docker Compose.
async fn adopted_shop() -> Simulation {
    let mut it = deployed(false, "", &[("shop/compose.yaml", SHOP)]).await;
    it.give_to_compose().await;
    it.ask(RequestKind::Adopt).await;
    it
}

#[tokio::test(start_paused = true)]
async fn adopted_volumes_that_stay_are_named() {
    let it = adopted_shop().await;
    it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(3).await;
    let answer = it.handle().request(app(), RequestKind::Remove(Removal::WithVolumes)).await;
    let Ok(Answer::Noted(note)) = &answer else { panic!("no note: {answer:?}") };
    assert!(note.contains("`docker volume rm shop_data`"), "{note}");
    let events = it.store.events(0, 1000, None).unwrap();
    let asked = events.iter().find(|event| event.reason == "RemovalRequested").unwrap();
    assert!(asked.message.contains("shop_data"), "{}", asked.message);
}

#[tokio::test(start_paused = true)]
async fn removal_of_an_adopted_volume_in_use_is_not_advised() {
    let it = adopted_shop().await;
    it.git.push_files("Ada", &[("store/compose.yaml", &store_with_data("web:1"))]);
    minutes(3).await;
    let answer = it.handle().request(app(), RequestKind::Remove(Removal::WithVolumes)).await;
    let Ok(Answer::Noted(note)) = &answer else { panic!("no note: {answer:?}") };
    assert_eq!(note, "volume shop_data stays, because application `store` uses it");
}

#[tokio::test(start_paused = true)]
async fn volumes_of_the_last_application_are_removed() {
    let mut it = deployed(false, "", &[("shop/compose.yaml", SHOP)]).await;
    it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(3).await;
    assert_eq!(it.containers(&app()), 1, "{}", it.story());
    it.ask(RequestKind::Remove(Removal::WithVolumes)).await;
    minutes(1).await;
    assert!(!it.docker.observed(&app()).volumes.contains_key("shop_data"), "{}", it.story());
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    // It is gone for the next life of the agent, too.
    it.crash();
    it.begin();
    minutes(3).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
}

#[tokio::test(start_paused = true)]
async fn empty_repository_does_not_delay_a_removal() {
    let mut it = kept_shop().await;
    it.follow_another(&[("README.md", "empty")]);
    minutes(3).await;
    it.ask(RequestKind::Remove(Removal::WithVolumes)).await;
    minutes(1).await;
    assert!(!it.docker.observed(&app()).volumes.contains_key("shop_data"), "{}", it.story());
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    assert!(it.listed(&blog()).is_some());
}

#[tokio::test(start_paused = true)]
async fn empty_repository_does_not_delay_a_rename() {
    let named = format!("name: shop\n{SHOP}");
    let mut it = deployed(true, "", &[("shop/compose.yaml", &named), ("blog/compose.yaml", BLOG)]).await;
    it.follow_another(&[("README.md", "empty")]);
    minutes(3).await;
    it.git.push_files("Ada", &[("store/compose.yaml", &named), ("blog/compose.yaml", BLOG)]);
    minutes(5).await;
    check_single_writer(&it);
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    let status = it.listed(&store()).unwrap().status.clone();
    assert_eq!(status.sync, SyncStatus::Synced, "{status:#?}\n{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn removal_of_a_held_application_frees_its_data_at_once() {
    let named = format!("name: shop\n{SHOP}");
    let mut it = deployed(true, "", &[("shop/compose.yaml", &named), ("blog/compose.yaml", BLOG)]).await;
    // Without a fetch, nothing but the removal has the applications of all repositories compared again.
    it.settings.poll = Duration::from_hours(5);
    it.follow_another(&[("store/compose.yaml", &named)]);
    minutes(3).await;
    it.git.push_files("Ada", &[("README.md", "empty")]);
    it.ask(RequestKind::Sync).await;
    minutes(3).await;
    assert_eq!((it.containers(&app()), it.containers(&blog())), (1, 1), "{}", it.story());
    assert_eq!(it.containers(&store()), 0, "the project is taken: {}", it.story());
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(3).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    check_single_writer(&it);
    let status = it.listed(&store()).unwrap().status.clone();
    assert_eq!(status.sync, SyncStatus::Synced, "{status:#?}\n{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_in_git_is_not_removed() {
    let it = deployed(false, "", &[("shop/compose.yaml", SHOP)]).await;
    let why = it.refusal(RequestKind::Remove(Removal::WithVolumes)).await;
    assert!(why.contains("is in Git (folder `shop`"), "{why}");
    minutes(1).await;
    assert_eq!(it.containers(&app()), 1);
}

/// Its folder has left Git, and a list of applications has it still.
#[tokio::test(start_paused = true)]
async fn removal_of_a_listed_application_names_its_entry() {
    let list = "applications:\n- {path: blog}\n- {path: shop}\n";
    let blog_alone = [("driftless.yaml", list), ("blog/compose.yaml", BLOG)];
    let all = [&blog_alone[..], &[("shop/compose.yaml", SHOP)]].concat();
    let mut it = deployed(false, "", &all).await;
    it.git.push_files("Ada", &blog_alone);
    for life in [1, 2] {
        minutes(3).await;
        let advice = "remove its entry from `applications` at driftless.yaml:3:";
        let message = it.listed(&app()).unwrap().status.message.clone();
        assert!(message.contains(advice), "{life}: {message}");
        for kind in [RequestKind::Remove(Removal::KeepVolumes), RequestKind::Forget] {
            let why = it.refusal(kind).await;
            assert!(why.starts_with("it is not known whether shop has left Git"), "{life}: {why}");
            assert!(why.contains("`shop` does not exist") && why.contains(advice), "{life}: {why}");
        }
        assert_eq!(it.containers(&app()), 1);
        it.crash();
        it.begin();
    }
    it.git.push_files(
        "Ada",
        &[("driftless.yaml", "applications: [{path: blog}]\n"), ("blog/compose.yaml", BLOG)],
    );
    minutes(3).await;
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(1).await;
    assert_eq!((it.containers(&app()), it.containers(&blog())), (0, 1), "{}", it.story());
}

/// A commit with a mistake in the settings of the repository, so that its applications are not known.
fn push_unreadable(it: &Simulation) {
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG), ("driftless.yaml", "prunes: true\n")]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_commit_brings_nothing_back_that_left_git() {
    let mut it = kept_shop().await;
    it.hand(&UserAction::Stop { name: "shop-web-1".into() });
    minutes(3).await;
    push_unreadable(&it);
    for life in [1, 2] {
        minutes(6).await;
        assert_eq!(it.images(), [""; 0], "{life}: {}", it.story());
        assert_eq!((it.containers(&app()), it.containers(&blog())), (1, 1), "{life}: {}", it.story());
        let message = it.listed(&app()).unwrap().status.message.clone();
        assert!(message.contains("is left alone until") && message.contains("prunes"), "{life}: {message}");
        let why = it.refusal(RequestKind::Remove(Removal::KeepVolumes)).await;
        assert!(why.starts_with("it is not known whether shop has left Git"), "{life}: {why}");
        it.crash();
        it.begin();
    }
    minutes(3).await;
    it.hand(&UserAction::Remove { name: "shop-web-1".into() });
    minutes(6).await;
    assert_eq!((it.containers(&app()), it.containers(&blog())), (0, 1), "{}", it.story());
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    // In Git again, it is deployed.
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG), ("shop/compose.yaml", SHOP)]);
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn removal_goes_on_after_an_unreadable_commit() {
    for lives in [1, 2] {
        let mut it = kept_shop().await;
        it.docker.faults(|faults| faults.stop = Duration::from_mins(3));
        it.ask(RequestKind::Remove(Removal::WithVolumes)).await;
        push_unreadable(&it);
        minutes(2).await;
        if lives == 2 {
            it.crash();
            it.begin();
        }
        minutes(10).await;
        let observed = it.docker.observed(&app());
        assert!(observed.instances.is_empty(), "{lives}: {}", it.story());
        assert!(observed.volumes.contains_key("shop_data"), "the other applications are not known");
        it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
        minutes(5).await;
        assert!(!it.docker.observed(&app()).volumes.contains_key("shop_data"), "{lives}: {}", it.story());
        assert!(it.listed(&app()).is_none(), "{lives}: {:#?}", it.listed(&app()));
    }
}

#[tokio::test(start_paused = true)]
async fn application_without_containers_leaves_the_status() {
    let mut it = kept_shop().await;
    it.docker.user_action(&app(), &UserAction::Remove { name: "shop-web-1".into() }).unwrap();
    minutes(6).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    assert!(it.listed(&blog()).is_some());
    it.crash();
    it.begin();
    minutes(6).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    // It is deployed again once Git has it again.
    it.git.push_files("Ada", &[("shop/compose.yaml", SHOP)]);
    it.synced_with_tip().await;
}

#[tokio::test(start_paused = true)]
async fn removed_application_leaves_no_record() {
    let it = kept_shop().await;
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    for _ in 0..120_000 {
        if it.containers(&app()) == 0 {
            break;
        }
        sleep(Duration::from_millis(1)).await;
    }
    let is_known = || it.store.known_applications().unwrap().iter().any(|known| known.app == app());
    let mut looks = 0;
    // The agent may end between any two of its turns.
    for turn in 0..90_000 {
        if !is_known() {
            looks += 1;
            assert_eq!(it.store.record(&app()).unwrap(), Record::default(), "{}", it.story());
        }
        if turn % 30 == 0 {
            sleep(Duration::from_millis(1)).await;
        } else {
            yield_now().await;
        }
    }
    assert!(looks > 0, "it was not forgotten: {}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_dropped_before_it_ran_is_forgotten() {
    let mut it = Simulation::prepared(BLOG, Clock::starting_at(NOON));
    it.docker.faults(|faults| faults.registry = Some(["blog:1".into()].into()));
    it.git.push_files("Ada", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]);
    it.begin();
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0);
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
    minutes(5).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    assert!(it.store.known_applications().unwrap().iter().all(|known| known.app != app()));
}

#[tokio::test(start_paused = true)]
async fn application_that_never_ran_and_left_git_is_forgotten() {
    let with_error = BLOG.replace("image", "imagee");
    let with_taken_port = "services: {web: {image: 'blog:1', ports: ['80:80']}}";
    let shop = "services: {web: {image: 'web:1', ports: ['80:80']}}";
    for prune in [true, false] {
        for never_runs in [with_error.as_str(), with_taken_port] {
            let files = [("shop/compose.yaml", shop), ("wiki/compose.yaml", BLOG)];
            let it = deployed(prune, "", &files).await;
            it.git.push_files("Ada", &[files[0], files[1], ("blog/compose.yaml", never_runs)]);
            minutes(5).await;
            let found = it.listed(&blog()).unwrap();
            assert!(found.status.findings.iter().any(driftless_model::Finding::is_error), "{found:#?}");
            it.git.push_files("Ada", &files);
            minutes(5).await;
            assert!(it.listed(&blog()).is_none(), "{:#?}", it.listed(&blog()));
            assert_eq!((it.containers(&app()), it.containers(&"wiki".into())), (1, 1));
            // In Git again, without the error, it is deployed.
            it.git.push_files("Ada", &[files[0], files[1], ("blog/compose.yaml", BLOG)]);
            minutes(5).await;
            assert_eq!(it.containers(&blog()), 1, "{}", it.story());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn application_kept_after_a_loss_of_state_says_so() {
    let files = [("blog/compose.yaml", BLOG), ("shop/compose.yaml", SHOP)];
    let mut it = deployed(true, "", &files).await;
    it.crash();
    it.store = Store::in_memory(it.clock).unwrap();
    it.begin();
    minutes(5).await;
    it.git.push_files("Ada", &files[..1]);
    minutes(5).await;
    let message = it.listed(&app()).unwrap().status.message.clone();
    assert!(message.contains("because state was lost"), "{message}");
    assert!(message.contains("driftless recover") && !message.contains("`prune`"), "{message}");
    assert_eq!(it.containers(&app()), 1);
    it.handle().recover().await.unwrap();
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn removed_application_stays_away_while_the_engine_is_down() {
    let it = kept_shop().await;
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(1).await;
    assert!(it.listed(&app()).is_none());
    it.docker.disconnect();
    minutes(10).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    let readiness = it.handle().readiness().message.clone();
    assert!(readiness.starts_with("the Docker Engine does not answer: connection refused"), "{readiness}");
    let messages: Vec<String> =
        it.store.events(0, 1000, Some(&app())).unwrap().into_iter().map(|event| event.message).collect();
    for message in ["removing the application, ", "the application is removed"] {
        assert!(messages.iter().any(|found| found.starts_with(message)), "{messages:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn removal_names_the_commit_without_the_application() {
    for prune in [true, false] {
        let files = [("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)];
        let it = deployed(prune, "", &files).await;
        let removing = it.git.push_files("Eve <e@v.e>", &files[1..]);
        minutes(5).await;
        if !prune {
            // Another commit comes before a user removes it.
            it.git.push_files("Ada", &[files[1], ("README.md", "notes")]);
            minutes(5).await;
            it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
            minutes(5).await;
        }
        assert_eq!(it.containers(&app()), 0, "{}", it.story());
        let removal = it.store.revisions(&app()).unwrap().remove(0);
        assert!(removal.is_removal() && removal.commit.id == removing, "{prune}: {removal:?}");
        assert_eq!(removal.commit.author, "Eve <e@v.e>");
        let events = it.store.events(0, 1000, Some(&app())).unwrap();
        let begun = events.iter().rfind(|event| event.reason == "SyncStarted").unwrap();
        let expected =
            format!("removing the application, which has left Git as of {} (push 1, Eve)", &removing[..12]);
        assert_eq!(begun.message, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn removal_after_a_restart_names_no_later_commit() {
    let files = [("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)];
    let mut it = deployed(false, "", &files).await;
    let applied = it.store.revisions(&app()).unwrap().remove(0).commit;
    it.git.push_files("Eve <e@v.e>", &files[1..]);
    minutes(5).await;
    it.git.push_files("Ada", &[files[1], ("README.md", "notes")]);
    minutes(5).await;
    it.crash();
    it.begin();
    minutes(5).await;
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
    let removal = it.store.revisions(&app()).unwrap().remove(0);
    assert!(removal.is_removal() && removal.commit == applied, "{removal:?}");
    let events = it.store.events(0, 1000, Some(&app())).unwrap();
    let begun = events.iter().rfind(|event| event.reason == "SyncStarted").unwrap();
    assert_eq!(begun.message, "removing the application");
}

#[tokio::test(start_paused = true)]
async fn repair_on_request_happens_once() {
    let mut it = Simulation::idle();
    it.settings.policy.self_heal = false;
    it.git.push_files("Ada", &[("shop/compose.yaml", SHOP)]);
    let it = it.begun();
    it.synced_with_tip().await;
    let remove = UserAction::Remove { name: "shop-web-1".into() };
    it.docker.user_action(&app(), &remove).unwrap();
    minutes(6).await;
    assert_eq!(it.containers(&app()), 0);
    let supposed = RequestKind::PlanAfter(Supposed::Heal);
    let Ok(Answer::Plan(plan)) = it.handle().request(app(), supposed).await else { panic!("no plan") };
    assert!(plan.rounds.iter().flatten().any(|step| step.contains("create")), "{plan:?}");
    minutes(6).await;
    assert_eq!(it.containers(&app()), 0, "the dry run changes nothing");
    it.ask(RequestKind::Heal).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:1"]);
    it.docker.user_action(&app(), &remove).unwrap();
    minutes(6).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn forgotten_application_keeps_its_containers() {
    let mut it = kept_shop().await;
    let before = it.docker.observed(&app());
    it.ask(RequestKind::Forget).await;
    minutes(6).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    it.docker.user_action(&app(), &UserAction::Stop { name: "shop-web-1".into() }).unwrap();
    it.crash();
    it.begin();
    minutes(6).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    let after = it.docker.observed(&app());
    assert_eq!(after.instances.keys().collect::<Vec<_>>(), before.instances.keys().collect::<Vec<_>>());
    assert_eq!(it.images(), [""; 0], "nobody starts the container again\n{}", it.story());
    assert!(it.store.known_applications().unwrap().iter().all(|known| known.app != app()));
    // In Git again, the same containers are managed again.
    it.git.push_files("Ada", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]);
    it.synced_with_tip().await;
    let again = it.docker.observed(&app());
    assert_eq!(again.instances.keys().collect::<Vec<_>>(), before.instances.keys().collect::<Vec<_>>());
}

/// `docker compose up` in a clone would start it on an empty folder.
#[tokio::test(start_paused = true)]
async fn forgotten_application_names_the_folder_it_writes_to() {
    let shop = "services: {web: {image: 'web:1', volumes: ['./data:/data']}}\n";
    let it = deployed(false, "", &[("shop/compose.yaml", shop), ("blog/compose.yaml", BLOG)]).await;
    let released = release_notes(&it.store);
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
    minutes(3).await;
    let answer = it.handle().request(app(), RequestKind::Forget).await.unwrap();
    let Answer::Noted(note) = answer else { panic!("{answer:?}") };
    assert!(note.starts_with("shop: its containers write to applications/shop, and "), "{note}");
    assert_eq!(released, [note], "only a shop has such a folder");
}

/// Nobody writes the secrets again after a restart of the host.
#[tokio::test(start_paused = true)]
async fn released_application_names_the_services_with_secrets() {
    let shop = "services:
  db: {image: 'db:1', secrets: [key]}
  web: {image: 'web:1'}
secrets: {key: {file: key.txt}}
";
    let (folder, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let state = StateDir::lock(&folder.path().join("state")).unwrap();
    let mut it = Simulation::idle();
    it.contents = ContentDir::open(&state, memory.path(), it.clock).unwrap();
    it.git.push_files(
        "Ada",
        &[("shop/compose.yaml", shop), ("shop/key.txt", "hunter2"), ("blog/compose.yaml", BLOG)],
    );
    let it = it.begun();
    it.synced_with_tip().await;
    let notes = release_notes(&it.store);
    let sentence = "shop: db: mounted secrets are in the memory of the host, ";
    assert!(notes.len() == 1 && notes[0].starts_with(sentence), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn known_application_is_not_missing_after_a_start() {
    let mut it = deployed(true, "", &[("shop/compose.yaml", SHOP)]).await;
    it.crash();
    it.begin();
    let handle = it.handle();
    assert_eq!(handle.application(&app()), Err(RequestError::Starting(app())));
    assert_eq!(handle.repository_of(&app()), Some(it.settings.name.clone()));
    assert_eq!(handle.application(&blog()), Err(RequestError::NoSuchApplication(blog())));
    it.synced_with_tip().await;
    assert_eq!(handle.application(&app()).map(|found| found.name.clone()), Ok(app()));
    // One that was removed since is missing.
    it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(6).await;
    assert_eq!(handle.application(&app()), Err(RequestError::NoSuchApplication(app())));
}

#[tokio::test(start_paused = true)]
async fn application_that_returns_was_in_sync_with_no_commit() {
    for lives in [1, 2] {
        let mut it = deployed(true, "", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]).await;
        it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
        minutes(5).await;
        assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
        if lives == 2 {
            it.crash();
            it.begin();
        }
        it.docker.faults(|faults| faults.registry = Some(["blog:1".into()].into()));
        let shop = SHOP.replace("web:1", "web:2");
        it.git.push_files("Ada", &[("shop/compose.yaml", &shop), ("blog/compose.yaml", BLOG)]);
        minutes(5).await;
        let status = it.listed(&app()).unwrap().status.clone();
        assert!(status.commit.is_none() && status.revision_commit.is_some(), "{lives}: {status:#?}");
    }
}

fn rollback(to: Option<&str>) -> RequestKind {
    let to = to.map(str::to_owned);
    RequestKind::Rollback(Rollback { to, reason: String::new(), until: Until::Manual })
}

#[tokio::test(start_paused = true)]
async fn rollback_does_not_go_back_to_a_removal() {
    for by_commit in [false, true] {
        let files = [("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)];
        let it = deployed(true, "", &files).await;
        let first = it.tip();
        it.git.push_files("Ada", &files[1..]);
        minutes(5).await;
        assert_eq!(it.containers(&app()), 0, "{}", it.story());
        let shop = SHOP.replace("web:1", "web:2");
        it.git.push_files("Ada", &[("shop/compose.yaml", &*shop), files[1]]);
        it.synced_with_tip().await;
        let revisions = it.store.revisions(&app()).unwrap().into_iter();
        let causes: Vec<Cause> = revisions.map(|revision| revision.cause).collect();
        assert_eq!(causes[1..], [Cause::Removal, Cause::Start]);
        let why = it.refusal(rollback(Some("2"))).await;
        assert!(why.contains("revision 2 of shop removed the application"), "{why}");
        it.ask(rollback(by_commit.then_some(&first[..12]))).await;
        minutes(5).await;
        let pin = it.listed(&app()).unwrap().status.pin.clone();
        assert_eq!(pin.unwrap().revision, 1);
        assert_eq!(it.images(), ["web:1"], "{}", it.story());
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_application_that_returns_is_missing() {
    for lives in [1, 2] {
        let files = [("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)];
        let mut it = deployed(true, "", &files).await;
        it.git.push_files("Ada", &files[1..]);
        minutes(5).await;
        if lives == 2 {
            it.crash();
            it.begin();
        }
        let invalid = SHOP.replace("web:1", "web:1', depends_on: ['none'], hostname: 'web");
        it.git.push_files("Ada", &[("shop/compose.yaml", &*invalid), files[1]]);
        minutes(5).await;
        let status = it.listed(&app()).unwrap().status.clone();
        let expected = (SyncStatus::Unknown, HealthStatus::Missing);
        assert_eq!((status.sync, status.health), expected, "{lives}: {status:#?}");
        assert!(status.message.contains("none"), "{lives}: {status:#?}");
        it.git.push_files("Ada", &files);
        it.synced_with_tip().await;
        assert_eq!(it.images(), ["web:1"], "{lives}: {}", it.story());
    }
}

/// An older release could pin it to that.
#[tokio::test(start_paused = true)]
async fn application_pinned_to_its_removal_is_missing() {
    let files = [("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)];
    let mut it = deployed(true, "", &files).await;
    it.git.push_files("Ada", &files[1..]);
    minutes(5).await;
    it.git.push_files("Ada", &files);
    it.synced_with_tip().await;
    it.crash();
    let removal = it.store.revision(&app(), 2).unwrap().unwrap();
    let pin = Pin {
        revision: removal.number,
        commit: removal.commit.id,
        reason: String::new(),
        at: NOON,
        until: Until::Manual,
        skip: None,
        skip_stack: None,
        actor: None,
    };
    it.store.set_pin(&app(), &pin).unwrap();
    it.begin();
    minutes(5).await;
    assert_eq!(it.containers(&app()), 0, "{}", it.story());
    let status = it.listed(&app()).unwrap().status.clone();
    assert_eq!(status.health, HealthStatus::Missing, "{status:#?}");
    assert!(it.store.current(&app()).unwrap().unwrap().is_removal(), "nothing goes back to it either");
    it.ask(RequestKind::Resume).await;
    it.synced_with_tip().await;
    assert_eq!(it.images(), ["web:1"], "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_in_git_is_not_forgotten() {
    let it = deployed(true, "", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]).await;
    let why = it.refusal(RequestKind::Forget).await;
    assert!(why.contains("is in Git (folder `shop`") && why.contains("driftless suspend shop"), "{why}");
    it.git.push_files("Ada", &[("README.md", "empty")]);
    minutes(5).await;
    let why = it.refusal(RequestKind::Forget).await;
    assert!(why.contains("set `prune: false` first"), "{why}");
    assert_eq!((it.containers(&app()), it.containers(&blog())), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn released_agent_manages_nothing_until_the_undo() {
    let mut it = deployed(true, "", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]).await;
    it.ask(RequestKind::Suspend).await;
    let before = it.docker.observed(&app());
    it.store.note_release().unwrap();
    it.crash();
    // Also killed before it starts again, and in its next life.
    it.docker.user_action(&blog(), &UserAction::Remove { name: "blog-web-1".into() }).unwrap();
    for _ in 0..2 {
        it.crash();
        it.begin();
        it.git.push_files("Ada", &[("README.md", "empty")]);
        let writes = it.writes();
        minutes(30).await;
        assert!(it.handle().applications().is_empty(), "{:#?}", it.handle().applications());
        assert!(it.handle().readiness().is_ready(), "{:?}", it.handle().readiness());
        assert!(it.store.known_applications().unwrap().is_empty());
        assert_eq!(it.writes(), writes, "{}", it.story());
        let problems = it.handle().agent_status().problems;
        assert!(problems[0].message.contains("`driftless release --undo`"), "{problems:?}");
    }
    assert_eq!(it.docker.observed(&app()).instances, before.instances, "the shop runs on as it was");
    it.git.push_files("Ada", &[("shop/compose.yaml", SHOP), ("blog/compose.yaml", BLOG)]);
    it.store.end_release().unwrap();
    it.crash();
    it.begin();
    it.synced_with_tip().await;
    minutes(5).await;
    assert_eq!((it.containers(&app()), it.containers(&blog())), (1, 1), "{}", it.story());
    assert_eq!(it.docker.observed(&app()).instances, before.instances, "without a restart");
    assert!(it.handle().agent_status().problems.is_empty());
}

#[tokio::test(start_paused = true)]
async fn new_application_is_unobserved_until_its_first_round() {
    let it = Simulation::idle();
    it.git.push_files("Ada", &[("shop/compose.yaml", SHOP)]);
    let it = it.begun();
    let mut handle = it.handle();
    while handle.repositories().iter().all(|repository| repository.commit.is_none()) {
        assert!(handle.published().await, "the agent has stopped");
    }
    let is_listed = handle.applications().contains_key(&app());
    assert!(is_listed || handle.agent_status().unobserved == [app()], "{:?}", handle.agent_status());
    it.synced_with_tip().await;
    assert!(it.handle().agent_status().unobserved.is_empty());
}

/// Otherwise the list of applications would seem complete while it has none of them.
#[tokio::test(start_paused = true)]
async fn repositories_stay_unread_without_known_applications() {
    let mut it = Simulation::idle();
    it.keep_on_disk();
    let database = it.database();
    database.execute_batch("INSERT INTO applications VALUES ('wiki', 'notes', 'damaged')").unwrap();
    it.git.push_files("Ada", &[("shop/compose.yaml", SHOP)]);
    let it = it.begun();
    minutes(3).await;
    let repositories = it.handle().repositories();
    let is_unread = repositories.iter().all(|repository| repository.commit.is_none());
    assert!(!repositories.is_empty() && is_unread, "{repositories:?}");
    database.execute_batch("DELETE FROM applications").unwrap();
    it.synced_with_tip().await;
    assert!(it.handle().repositories().iter().all(|repository| repository.commit.is_some()));
}

/// A shop that waits for a migration.
const WITH_JOB: &str = "services:
  web: {image: 'web:1', depends_on: {migrate: {condition: service_completed_successfully}}}
  migrate: {image: 'migrate:1', restart: 'no'}
";

/// It is a new application then: nothing of the former one is remembered.
#[tokio::test(start_paused = true)]
async fn removed_application_that_comes_back_runs_its_jobs() {
    let it = Simulation::idle();
    it.docker.faults(|faults| {
        faults.exits.insert("migrate:1".to_owned(), (Duration::from_secs(2), 0));
    });
    let both = [("shop/compose.yaml", WITH_JOB), ("blog/compose.yaml", BLOG)];
    it.git.push_files("Ada", &both);
    let it = it.begun();
    it.synced_with_tip().await;
    let created = || it.docker.transcript().iter().filter(|entry| entry.what.contains("migrate")).count();
    let first = created();
    assert!(first > 0, "{}", it.story());
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
    minutes(3).await;
    it.ask(RequestKind::Remove(Removal::KeepVolumes)).await;
    minutes(3).await;
    assert!(it.listed(&app()).is_none() && it.containers(&app()) == 0, "{}", it.story());
    it.git.push_files("Ada", &both);
    minutes(3).await;
    it.synced_with_tip().await;
    assert!(created() > first, "the Job does not run\n{}", it.story());
    assert_eq!(it.containers(&app()), 2);
}

/// Nothing is left of it, so there is nothing that its Jobs were done for.
#[tokio::test(start_paused = true)]
async fn forgotten_application_removed_by_hand_runs_its_jobs() {
    let mut it = Simulation::idle();
    it.settings.policy.prune = false;
    it.docker.faults(|faults| {
        faults.exits.insert("migrate:1".to_owned(), (Duration::from_secs(2), 0));
    });
    let both = [("shop/compose.yaml", WITH_JOB), ("blog/compose.yaml", BLOG)];
    it.git.push_files("Ada", &both);
    it.begin();
    it.synced_with_tip().await;
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
    minutes(3).await;
    it.ask(RequestKind::Forget).await;
    minutes(3).await;
    for name in ["shop-web-1", "shop-migrate-1"] {
        it.docker.user_action(&app(), &UserAction::Remove { name: name.to_owned() }).unwrap();
    }
    let created = |it: &Simulation| {
        it.docker.transcript().iter().filter(|entry| entry.what.contains("create shop-migrate")).count()
    };
    assert_eq!((created(&it), it.containers(&app())), (1, 0), "{}", it.story());
    it.crash();
    it.begin();
    minutes(3).await;
    it.git.push_files("Ada", &both);
    minutes(3).await;
    it.synced_with_tip().await;
    assert_eq!(created(&it), 2, "{}", it.story());
}

#[tokio::test(start_paused = true)]
async fn application_that_comes_back_does_not_repeat_its_runs() {
    const WITH_SCHEDULE: &str = "services:
  web: {image: 'web:1'}
  report: {image: 'report:1', x-driftless: {schedule: '30 * * * *'}}
";
    let mut it = Simulation::idle_at(Clock::starting_at(NOON));
    it.settings.policy.prune = true;
    it.docker.faults(|faults| {
        faults.exits.insert("report:1".to_owned(), (Duration::from_secs(2), 0));
    });
    let both = [("shop/compose.yaml", WITH_SCHEDULE), ("blog/compose.yaml", BLOG)];
    it.git.push_files("Ada", &both);
    let it = it.begun();
    it.synced_with_tip().await;
    let created = || {
        let transcript = it.docker.transcript();
        transcript.iter().filter(|entry| entry.what.contains("create shop-report")).count()
    };
    minutes(95).await;
    assert_eq!(created(), 2, "{}", it.story());
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
    minutes(5).await;
    assert!(it.listed(&app()).is_none() && it.containers(&app()) == 0, "{}", it.story());
    it.git.push_files("Ada", &both);
    minutes(5).await;
    it.synced_with_tip().await;
    assert_eq!(created(), 2, "{}", it.story());
    minutes(60).await;
    assert_eq!(created(), 3, "{}", it.story());
}

/// Another application with the volume of the shop.
fn store_with_data(image: &str) -> String {
    format!(
        "services: {{web: {{image: '{image}', volumes: ['data:/data']}}}}\nvolumes: {{data: {{external: true, name: shop_data}}}}\n"
    )
}

fn store() -> AppName {
    "store".into()
}

#[tokio::test(start_paused = true)]
async fn volume_of_another_application_outlives_a_removal() {
    let mut it = kept_shop().await;
    let with_store = |image: &str| {
        let text = store_with_data(image);
        it.git.push_files("Ada", &[("blog/compose.yaml", BLOG), ("store/compose.yaml", &text)]);
    };
    with_store("web:1");
    minutes(3).await;
    assert_eq!(it.containers(&store()), 0, "the shop still writes\n{}", it.story());
    it.ask(RequestKind::Remove(Removal::WithVolumes)).await;
    minutes(3).await;
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    assert_eq!(it.containers(&store()), 1, "{}", it.story());
    for image in ["web:2", "web:3"] {
        with_store(image);
        minutes(6).await;
        assert!(it.docker.observed(&app()).volumes.contains_key("shop_data"), "{}", it.story());
    }
    // Nor is it removed once nobody uses it any more, or in another life of the agent.
    it.git.push_files("Ada", &[("blog/compose.yaml", BLOG)]);
    minutes(3).await;
    it.handle().request(store(), RequestKind::Remove(Removal::KeepVolumes)).await.unwrap();
    minutes(6).await;
    assert_eq!(it.containers(&store()), 0, "{}", it.story());
    it.crash();
    it.begin();
    minutes(6).await;
    assert!(it.docker.observed(&app()).volumes.contains_key("shop_data"), "{}", it.story());
}

/// The applications with a running container that mounts the volume of the shop, after each change of the host.
fn check_single_writer(it: &Simulation) {
    let mut writing: BTreeSet<AppName> = BTreeSet::new();
    for entry in it.docker.transcript() {
        let mounts =
            |source: &MountSource| matches!(source, MountSource::Volume { name, .. } if name == "shop_data");
        let mut running = entry.after.instances.values().filter(|instance| instance.is_running());
        if running.any(|instance| instance.config.mounts.iter().any(|mount| mounts(&mount.source))) {
            writing.insert(entry.app);
        } else {
            writing.remove(&entry.app);
        }
        assert!(writing.len() <= 1, "{}", it.story());
    }
    assert_eq!(writing, BTreeSet::from([store()]), "{}", it.story());
}

/// A shop with data and a front, and with `prune`.
async fn shop_with_front() -> Simulation {
    let both = "services: {front: {image: 'front:1'}, web: {image: 'web:1', volumes: ['data:/data']}}\nvolumes: {data: }\n";
    let mut it = Simulation::idle();
    (it.settings.policy.prune, it.settings.policy.max_prune_percent) = (true, 100);
    it.settings.path = String::new();
    it.git.push_files("Ada", &[("shop/compose.yaml", both), ("blog/compose.yaml", BLOG)]);
    let it = it.begun();
    it.synced_with_tip().await;
    it
}

#[tokio::test(start_paused = true)]
async fn data_move_to_another_application_in_one_commit() {
    let it = shop_with_front().await;
    let (front, text) = ("services: {front: {image: 'front:1'}}\n", store_with_data("web:1"));
    let files = [("shop/compose.yaml", front), ("blog/compose.yaml", BLOG), ("store/compose.yaml", &*text)];
    it.git.push_files("Ada", &files);
    minutes(5).await;
    check_single_writer(&it);
    assert_eq!(it.listed(&store()).unwrap().status.sync, SyncStatus::Synced, "{}", it.story());
}

/// The service that stays still depends on the one that moves.
#[tokio::test(start_paused = true)]
async fn data_do_not_move_from_an_invalid_manifest() {
    let it = shop_with_front().await;
    let text = store_with_data("web:1");
    for (more, containers) in [(", depends_on: [web]", (0, 2)), ("", (1, 1))] {
        let front = format!("services: {{front: {{image: 'front:1'{more}}}}}\n");
        let files =
            [("shop/compose.yaml", &*front), ("blog/compose.yaml", BLOG), ("store/compose.yaml", &*text)];
        it.git.push_files("Ada", &files);
        minutes(5).await;
        assert_eq!((it.containers(&store()), it.containers(&app())), containers, "{}", it.story());
    }
    check_single_writer(&it);
}

#[tokio::test(start_paused = true)]
async fn renamed_folder_goes_on_with_the_data() {
    let named = format!("name: shop\n{SHOP}");
    let it = deployed(true, "", &[("shop/compose.yaml", &named), ("blog/compose.yaml", BLOG)]).await;
    it.git.push_files("Ada", &[("store/compose.yaml", &named), ("blog/compose.yaml", BLOG)]);
    minutes(5).await;
    check_single_writer(&it);
    assert!(it.listed(&app()).is_none(), "{:#?}", it.listed(&app()));
    let status = it.listed(&store()).unwrap().status.clone();
    assert_eq!(status.sync, SyncStatus::Synced, "{status:#?}\n{}", it.story());
    // A new application of the former name takes nothing from it.
    let (other, newer) = (format!("name: other\n{BLOG}"), named.replace("web:1", "web:2"));
    let files =
        [("store/compose.yaml", &*newer), ("shop/compose.yaml", &*other), ("blog/compose.yaml", BLOG)];
    it.git.push_files("Ada", &files);
    minutes(5).await;
    let status = it.listed(&store()).unwrap().status.clone();
    assert_eq!(status.sync, SyncStatus::Synced, "{status:#?}\n{}", it.story());
    assert_eq!((it.containers(&store()), it.containers(&app())), (1, 1), "{}", it.story());
}

/// The new application needs the project, which the old one has until it is removed.
#[tokio::test(start_paused = true)]
async fn several_renamed_applications_go_on_by_themselves() {
    let (shop, blog) = (format!("name: shop\n{SHOP}"), format!("name: blog\n{BLOG}"));
    let it = deployed(true, "", &[("shop/compose.yaml", &shop), ("blog/compose.yaml", &blog)]).await;
    minutes(2).await;
    it.git.push_files("Ada", &[("store/compose.yaml", &shop), ("diary/compose.yaml", &blog)]);
    minutes(5).await;
    check_single_writer(&it);
    for name in [app(), self::blog()] {
        assert!(it.listed(&name).is_none(), "{:#?}", it.listed(&name));
    }
    for name in [store(), "diary".into()] {
        let status = it.listed(&name).unwrap().status.clone();
        assert_eq!(status.sync, SyncStatus::Synced, "{status:#?}\n{}", it.story());
        assert_eq!(it.containers(&name), 1, "{}", it.story());
    }
}
