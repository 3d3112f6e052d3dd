//! The commands: how they print, and the program itself as a client of a real server.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::Path,
    process::{Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use driftless::{
    cli::Colours, cli::Detail, cli::PlanResult, cli::reference, cli::render_application,
    cli::render_findings, cli::render_history, cli::render_plan, cli::render_status, cli::summary,
};
use driftless_agent::{DryRun, RequestKind, Rollback, Supposed};
use driftless_model::{
    Actor, ActorKind, AppName, Application, Cause, DriftAction, Finding, HealthStatus, Location, Outcome,
    RepositoryStatus, Revision, StackHash, StatusCondition, Timestamp, Until, WaitStatus,
};
use driftless_web::{Access, Token, router, serve};
use insta::assert_snapshot;
use tokio::{
    net::TcpListener,
    process::Command,
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::{
    fleet::followed,
    ports::listen_again,
    preview::Clone,
    sample::{self, NOW, before, blog, commit, shop},
};

#[test]
fn status_has_one_line_per_application() {
    let text = render_status(&[blog(), shop()], None, NOW, Colours::Off);
    assert_snapshot!(text, @r"
    NAME  SYNC       HEALTH    REV  COMMIT        MESSAGE
    blog  OutOfSync  Degraded  #1   bbbbbbbbbbbb  web: image registry.example.com/blog:2.0.0 <cannot> be pulled
    shop  Synced     Healthy   #4   aaaaaaaaaaaa
    ");
}

#[test]
fn status_is_cut_to_the_width() {
    let applications: Vec<Application> = (0..12)
        .map(|number| {
            let mut application = if number % 2 == 0 { blog() } else { shop() };
            application.name = format!("application-{}{number}", "long-".repeat(number)).as_str().into();
            application
        })
        .collect();
    for width in [60, 80, 120] {
        let text = render_status(&applications, Some(width), NOW, Colours::Off);
        assert_eq!(text.lines().count(), 13, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
    let text = render_status(&applications[..1], Some(80), NOW, Colours::Off);
    assert_snapshot!(text, @r"
    NAME           SYNC       HEALTH    MESSAGE
    application-0  OutOfSync  Degraded  web: image registry.example.com/blog:2.0.0 …
    ");
    let mut broken = blog();
    broken.status.message = format!("{}/compose.yaml:3:9: error: unknown key", broken.spec.path);
    let text = render_status(&[broken], Some(80), NOW, Colours::Off);
    assert!(text.ends_with("  compose.yaml:3:9: error: unknown key\n"), "{text}");
}

#[test]
fn wait_that_the_message_names_is_not_repeated() {
    let wait = |reason: &str, sentence: &str, attempt: Option<u32>| {
        let until = attempt.map(|_| Timestamp(NOW.0 + 18_000));
        let next =
            attempt.map_or_else(String::new, |attempt| format!(", attempt {attempt}, next try 05:12:00 UTC"));
        let (reason, object, message) =
            (reason.to_owned(), "web".to_owned(), format!("web {sentence}{next}"));
        WaitStatus { reason, object, message, attempt, until }
    };
    let lines_of = |waits: Vec<WaitStatus>| {
        let mut shop = shop();
        let first = &waits[0];
        let sentence = first.message.trim_start_matches("web ");
        shop.status.message = format!("web: {}: {sentence}", first.reason);
        shop.status.waits = waits;
        render_application(&shop, Detail::Everything, None, NOW, Colours::Off)
    };
    let text = lines_of(vec![wait("Blocked", "needs host port 80/tcp, which nginx holds", None)]);
    assert_eq!(text.matches("needs host port 80/tcp").count(), 1, "{text}");
    assert!(!text.contains("Blocked web"), "{text}");
    let text = lines_of(vec![wait("ImagePullBackOff", "cannot pull web:2: no such host", Some(3))]);
    assert_eq!(text.matches("cannot pull web:2").count(), 1, "{text}");
    assert!(text.contains("  ImagePullBackOff web, attempt 3, next try in 18s\n"), "{text}");
    let text = lines_of(vec![
        wait("Blocked", "needs host port 80/tcp, which nginx holds", None),
        wait("CrashLoopBackOff", "exited with code 3: no database", Some(2)),
    ]);
    let line = "  CrashLoopBackOff web, attempt 2, next try in 18s: exited with code 3: no database\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn status_of_one_application_is_complete() {
    let text = render_application(&shop(), Detail::Everything, None, NOW, Colours::Off);
    assert_snapshot!(text, @r#"
    NAME  SYNC    HEALTH   REV  COMMIT
    shop  Synced  Healthy  #4   aaaaaaaaaaaa
      from https://git.example.com/me/infra.git (main), folder sites/shop
      revision 4: aaaaaaaaaaaa "Serve the spring catalogue" by Ada, 2h ago
      Git read 25s ago, Docker read 2s ago
      WORKLOAD      STATE    READY  RESTARTS  AGE  IMAGE                                PORTS                    MESSAGE
      web           Healthy  2/2                   registry.example.com/shop/web:1.4.2
        shop-web-1  Running  yes    0         60m                                       127.0.0.1:8081→8080/tcp
        shop-web-2  Running  yes    1         60m                                       127.0.0.1:8082→8080/tcp
      CONDITION  STATUS  REASON                    SINCE  MESSAGE
      Available  True    MinimumReplicasAvailable  60m    2 of 2 are available
      last plan, 60m ago:
        start shop-web-2: it was created and not yet started
    "#);
}

#[test]
fn status_contains_each_sentence_once() {
    let mut blog = blog();
    let sentence = "registry.example.com/blog:2.0.0: manifest unknown";
    blog.status.message = format!("web: {sentence}");
    blog.status.operation.as_mut().unwrap().message = sentence.to_owned();
    let web = Arc::make_mut(&mut blog.status.workloads).values_mut().next().unwrap();
    web.message = sentence.to_owned();
    web.instances[0].message = sentence.to_owned();
    blog.status.conditions = shop().status.conditions;
    blog.status.conditions[0].message = sentence.to_owned();
    let text = render_application(&blog, Detail::Everything, None, NOW, Colours::Off);
    assert_eq!(text.matches(sentence).count(), 1, "{text}");
    assert_snapshot!(text, @r#"
    NAME  SYNC       HEALTH    REV  COMMIT
    blog  OutOfSync  Degraded  #1   bbbbbbbbbbbb
      from https://git.example.com/me/infra.git (main), folder sites/blog
      revision 1: bbbbbbbbbbbb "First <script>alert('post')</script>" by Ada, 2h ago
      Git read 40s ago, Docker read 1s ago
      web: registry.example.com/blog:2.0.0: manifest unknown
      pinned to #1 bbbbbbbbbbbb by user ada, 2 behind, until next-commit: orders fail
      ImagePullBackOff web, attempt 3, next try in 18s
      explained in docs/troubleshooting.md#ImagePullBackOff
      drift: container blog-web-1 state: wanted running, found exited, 3s ago (being healed)
      1 warning about its manifests: `driftless status blog -o wide` lists them
      WORKLOAD      STATE               READY  RESTARTS  AGE  IMAGE                            PORTS  MESSAGE
      web           ImagePullBackOff    1/1                   registry.example.com/blog:2.0.0
        blog-web-1  Exited (137) (old)  no     7         90s
      CONDITION  STATUS  REASON                    SINCE  MESSAGE
      Available  True    MinimumReplicasAvailable  60m
    "#);
    // The operation and the headline name the object in other words.
    blog.status.message = format!("web: ImagePullBackOff: {sentence}, attempt 3");
    blog.status.waits[0].message = format!("web {sentence}, attempt 3");
    blog.status.operation.as_mut().unwrap().message = blog.status.waits[0].message.clone();
    let other = render_application(&blog, Detail::Everything, None, NOW, Colours::Off);
    assert_eq!(other.matches(sentence).count(), 1, "{other}");
    let all = render_application(&blog, Detail::Warnings, None, NOW, Colours::Off);
    assert!(all.contains("`links` is ignored") && !text.contains("`links` is ignored"), "{all}");
}

#[test]
fn changed_file_in_a_container_has_its_remedy() {
    let mut blog = blog();
    let drift = &mut blog.status.drift[0];
    drift.field = "files".to_owned();
    drift.workload = Some("web".into());
    drift.action = DriftAction::Report;
    let remedy = "(left alone); `driftless rollout restart blog/web` replaces the container\n";
    let text = render_application(&blog, Detail::Everything, None, NOW, Colours::Off);
    assert!(text.contains(remedy), "{text}");
    blog.spec.policy.suspended = true;
    let text = render_application(&blog, Detail::Everything, None, NOW, Colours::Off);
    assert!(text.contains("(left alone)\n"), "{text}");
}

#[test]
fn status_names_the_commit_that_changed_the_application() {
    let mut shop = shop();
    shop.status.revision_commit = Some(commit('e', "Raise the limits of the shop"));
    let text = render_application(&shop, Detail::Everything, None, NOW, Colours::Off);
    assert!(text.contains("  revision 4: eeeeeeeeeeee \"Raise the limits of the shop\" by Ada"), "{text}");
    assert!(text.contains("  unchanged since, up to commit aaaaaaaaaaaa\n"), "{text}");
    let row_of = |text: &str| text.lines().nth(1).map(str::to_owned).unwrap_or_default();
    assert!(row_of(&text).ends_with("#4   aaaaaaaaaaaa"), "{text}");
    let mut operation = blog().status.operation.unwrap();
    operation.outcome = Some(Outcome::Failed { reason: "dump-4-1 failed".to_owned() });
    shop.status.operation = Some(operation);
    let text = render_application(&shop, Detail::Everything, None, NOW, Colours::Off);
    assert!(text.contains("  last in sync with commit aaaaaaaaaaaa\n"), "{text}");
    assert!(row_of(&text).ends_with("#4   eeeeeeeeeeee"), "the commit of the revision in the row: {text}");
    let table = render_status(&[shop], None, NOW, Colours::Off);
    assert!(row_of(&table).contains("#4   eeeeeeeeeeee"), "{table}");
}

#[test]
fn colours_do_not_change_the_text() {
    let rendered = |colours| {
        let mut text = render_status(&[blog(), shop()], None, NOW, colours);
        text.push_str(&render_application(&blog(), Detail::Warnings, None, NOW, colours));
        text
    };
    let coloured = rendered(Colours::On);
    assert!(coloured.contains("\x1b[31mDegraded\x1b[0m") && coloured.contains("\x1b[32mSynced\x1b[0m"));
    let plain = rendered(Colours::Off);
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((text, code)) = rest.split_once('\x1b') {
        stripped.push_str(text);
        rest = code.split_once('m').unwrap().1;
    }
    assert_eq!(stripped + rest, plain);
}

#[test]
fn history_lists_the_newest_revision_first() {
    let revision = |number, outcome, cause, rollback_of| Revision {
        app: "shop".into(),
        number,
        commit: commit(if number == 2 { 'b' } else { 'a' }, "Serve the spring catalogue"),
        reference: "main".to_owned(),
        started: before(3600 * (10 - number)),
        finished: Some(before(3600 * (10 - number) - 12)),
        outcome,
        stack: StackHash("0".repeat(64)),
        changes: Vec::new(),
        images: BTreeMap::new(),
        rollback_of,
        actor: (cause == Cause::Rollback).then(|| Actor::new(ActorKind::Token, "ci")),
        was_reached: false,
        cause,
    };
    let failed = Outcome::Failed { reason: "web: not ready within 10 min".to_owned() };
    let revisions = [
        revision(4, Outcome::Succeeded, Cause::Removal, None),
        revision(3, Outcome::Succeeded, Cause::Rollback, Some(1)),
        revision(2, failed, Cause::Commit, None),
        revision(1, Outcome::Succeeded, Cause::Start, None),
    ];
    assert_snapshot!(render_history(&revisions, None, NOW, Colours::Off), @r"
    REVISION  COMMIT        AGE  CAUSE                       RESULT                                TOOK  AUTHOR  SUBJECT
    #4        aaaaaaaaaaaa  6h   removal                     succeeded                             12s   Ada     Serve the spring catalogue
    #3        aaaaaaaaaaaa  7h   rollback to #1 by token ci  succeeded                             12s   Ada     Serve the spring catalogue
    #2        bbbbbbbbbbbb  8h   commit                      failed: web: not ready within 10 min  12s   Ada     Serve the spring catalogue
    #1        aaaaaaaaaaaa  9h   start                       succeeded                             12s   Ada     Serve the spring catalogue
    ");
}

#[test]
fn plan_is_printed_round_by_round() {
    let adoption = vec!["container blog-web-1: replaced\n  image is blog:1, not blog:2.0.0".to_owned()];
    let waits = vec!["web: another container holds port 80".to_owned()];
    let full = DryRun {
        adoption: adoption.clone(),
        adoption_obstacles: Vec::new(),
        suspended: false,
        way_out: None,
        rounds: vec![
            vec!["pull image blog:2.0.0: it is not there".to_owned()],
            vec!["create blog-web-1: its specification is another".to_owned()],
        ],
        waits: waits.clone(),
    };
    let obstacles = vec!["pihole: cannot be adopted".to_owned()];
    let refused = DryRun { adoption, adoption_obstacles: obstacles, ..DryRun::default() };
    let plans = BTreeMap::from([
        (AppName::from("blog"), PlanResult::Plan(full)),
        (
            AppName::from("mail"),
            PlanResult::Failed { error: "mail/compose.yaml:3:5: error: unknown key".to_owned() },
        ),
        (
            AppName::from("quiet"),
            PlanResult::Plan(DryRun {
                suspended: true,
                rounds: vec![vec!["create quiet-web-1".to_owned()]],
                ..DryRun::default()
            }),
        ),
        (
            AppName::from("kept"),
            PlanResult::Plan(DryRun {
                suspended: true,
                way_out: Some("set `suspend: false` in its settings".to_owned()),
                rounds: vec![vec!["create kept-web-1".to_owned()]],
                ..DryRun::default()
            }),
        ),
        (AppName::from("pihole"), PlanResult::Plan(refused)),
        (AppName::from("proxy"), PlanResult::Plan(DryRun { waits, ..DryRun::default() })),
        (AppName::from("shop"), PlanResult::Plan(DryRun::default())),
    ]);
    assert_snapshot!(render_plan(&plans, Colours::Off), @r"
    blog: 1 object to adopt, 2 steps in 2 rounds
      to be adopted
        container blog-web-1: replaced
          image is blog:1, not blog:2.0.0
      round 1
        pull image blog:2.0.0: it is not there
      round 2
        create blog-web-1: its specification is another
      waits: web: another container holds port 80
    kept: suspended; after that: 1 step in 1 round
      set `suspend: false` in its settings
      round 1
        create kept-web-1
    mail: error: mail/compose.yaml:3:5: error: unknown key
    pihole: nothing is done: it cannot be adopted
      found running
        container blog-web-1: replaced
          image is blog:1, not blog:2.0.0
      not adopted: pihole: cannot be adopted
    proxy: nothing is done now, it waits
      waits: web: another container holds port 80
    quiet: suspended; after `driftless resume quiet`: 1 step in 1 round
      round 1
        create quiet-web-1
    shop: nothing to do
    ");
}

#[test]
fn findings_are_printed_with_source_line_and_marker() {
    let mut unknown =
        Finding::error(Location::new("shop/compose.yaml", 12, 5), "services.web.imag", "unknown field")
            .help("did you mean `image`?");
    unknown.excerpt = Some("    imag: nginx".to_owned());
    let mut tab =
        Finding::warning(Location::new("a.yaml", 3, 2), "", "a tab, and a control\u{1b}[31m character");
    tab.excerpt = Some("\tx: 1".to_owned());
    let whole = Finding::error(Location::file("shop"), "", "there is nothing to apply");
    let findings = [unknown, tab, whole];
    assert_snapshot!(render_findings(&findings, Colours::Off), @r"
    error: services.web.imag: unknown field
      --> shop/compose.yaml:12:5
       |
    12 |     imag: nginx
       |     ^^^^
       = help: did you mean `image`?

    warning: a tab, and a control�[31m character
     --> a.yaml:3:2
      |
    3 |  x: 1
      |  ^

    error: there is nothing to apply
    --> shop
    ");
    assert_eq!(summary(&findings), "2 errors, 1 warning");
}

#[test]
fn cli_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, reference()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == reference(), "docs/cli.md is out of date: UPDATE_DOCS=1 cargo test --test it cli::");
}

type Seen = Arc<Mutex<Vec<(AppName, RequestKind)>>>;

/// A real server with an agent behind it that answers.
async fn served(access: Access) -> (SocketAddr, Seen) {
    served_with(shop(), access).await
}

/// An agent with this application and the blog.
async fn served_with(shop: Application, access: Access) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let agent = sample::agent([shop, blog()]);
    for message in ["one", "two", "three"] {
        agent.happens(sample::event("shop", "Started", message));
    }
    agent.happens(sample::event("blog", "BackOff", "four"));
    let seen = Seen::default();
    tokio::spawn(serve(listener, router(agent.handle, agent.store, access), std::future::pending()));
    tokio::spawn(sample::answer(agent.inbox, seen.clone()));
    (address, seen)
}

/// The program itself, with nothing of this environment.
fn driftless(server: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    command.args(arguments).env_clear().env("DRIFTLESS_SERVER", format!("http://{server}"));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub(crate) async fn run(server: SocketAddr, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = driftless(server, arguments).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[tokio::test]
async fn status_is_printed_in_every_format() {
    let (server, _) = served(Access::loopback()).await;
    let (code, table, _) = run(server, &["status"]).await;
    assert_eq!(code, 0);
    assert!(
        table.starts_with("NAME  SYNC") && table.contains("shop  Synced") && table.lines().count() == 3,
        "{table}"
    );
    let (_, json, _) = run(server, &["status", "-o", "json"]).await;
    assert!(json.contains("\"observedGeneration\": 4") && json.starts_with('['), "{json}");
    let (_, yaml, _) = run(server, &["status", "shop", "-o", "yaml"]).await;
    assert!(yaml.contains("observedGeneration: 4") && yaml.starts_with("name: shop"), "{yaml}");
}

#[tokio::test]
async fn requests_print_the_answer_of_the_agent() {
    let (server, seen) = served(Access::loopback()).await;
    let (code, out, _) = run(server, &["rollback", "shop", "--to", "2", "--until", "next-commit"]).await;
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "shop: pinned to revision 2 (cccccccccccc), until the next commit, or `driftless resume shop`\n"
    );
    let (code, out, _) = run(server, &["rollback", "shop", "3f2a9c1", "--reason", "orders fail"]).await;
    assert_eq!((code, out.contains("shop: pinned to revision")), (0, true), "{out}");
    let asked = seen.lock().unwrap().last().cloned().unwrap();
    let to_commit =
        Rollback { to: Some("3f2a9c1".to_owned()), reason: "orders fail".to_owned(), until: Until::Manual };
    assert_eq!(asked, ("shop".into(), RequestKind::Rollback(to_commit)));
    let (code, _, error) = run(server, &["rollback", "shop", "3", "--to", "2"]).await;
    assert_eq!((code, error.contains("cannot be used with")), (2, true), "{error}");
    let suspended = ["rollback", "shop", "--reason", "suspended"];
    let (code, _, error) = run(server, &suspended).await;
    assert_eq!((code, error.as_str()), (0, "shop is suspended\n"));
    let (code, _, error) = run(server, &[&suspended[..], &["--wait"]].concat()).await;
    assert_eq!((code, error.as_str()), (1, "shop is suspended\n"), "it waits for nothing");
    let (code, out, _) = run(server, &["resume", "shop"]).await;
    assert_eq!((code, out.as_str()), (0, "shop: follows Git again\n"));
    let (code, _, error) = run(server, &["suspend", "shop"]).await;
    assert_eq!((code, error.as_str()), (2, "error: `shop` is suspended already\n"));
    assert_eq!(seen.lock().unwrap().len(), 6);
}

#[tokio::test]
async fn wait_ends_with_the_state_or_the_timeout() {
    let (server, _) = served(Access::loopback()).await;
    // The application is as wanted, but no status answers the rollback.
    let (code, out, error) = run(server, &["rollback", "shop", "--wait", "--timeout", "50ms"]).await;
    assert_eq!(code, 1, "{out}{error}");
    assert!(out.starts_with("shop: pinned to revision 3"), "{out}");
    assert!(error.contains("shop: not Synced and Healthy within 50ms"), "{error}");
    let (code, out, error) = run(server, &["sync", "shop", "--wait"]).await;
    assert_eq!(code, 0, "{error}");
    assert!(out.starts_with("shop: Synced and Healthy after"), "{out}");
    let (code, _, _) = run(server, &["wait", "shop", "--for", "synced"]).await;
    assert_eq!(code, 0);
    let (code, _, error) = run(server, &["rollback", "shop", "--wait"]).await;
    assert_eq!(code, 0, "{error}");
    let (code, _, error) = run(server, &["wait", "blog", "--timeout", "50ms"]).await;
    assert_eq!(code, 1);
    assert!(error.contains("blog: not Synced and Healthy within 50ms: OutOfSync, Degraded"), "{error}");
}

#[tokio::test]
async fn wait_for_a_failed_commit_ends_at_once() {
    let mut failed = shop();
    failed.status.obstacle = Some("aaaaaaaaaaaa failed: web exited with code 3".to_owned());
    let (server, _) = served_with(failed, Access::loopback()).await;
    for words in [&["sync", "shop", "--wait"][..], &["wait", "shop"]] {
        let (code, out, error) = run(server, words).await;
        assert_eq!((code, out.as_str()), (1, ""), "{error}");
        let expected = "shop: not Synced and Healthy: aaaaaaaaaaaa failed: web exited with code 3\n";
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(run(server, &["wait", "shop", "--for", "healthy"]).await.0, 0);
}

#[tokio::test]
async fn sentences_of_a_wait_are_folded() {
    let mut failed = shop();
    failed.status.obstacle = Some(["web exited with code 3"; 10].join(", "));
    let (server, _) = served_with(failed, Access::loopback()).await;
    let mut command = driftless(server, &["sync", "shop", "--wait"]);
    let Output { stderr, .. } = command.env("COLUMNS", "60").output().await.unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert!(text.contains("shop: not Synced and Healthy: ") && text.lines().count() > 4, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
}

#[tokio::test]
async fn earlier_failure_ends_only_a_wait_for_health() {
    let mut degraded = shop();
    degraded.status.health = HealthStatus::Degraded;
    degraded.status.lasting_failure = Some("setup.1 failed with code 3".to_owned());
    let (server, _) = served_with(degraded, Access::loopback()).await;
    let (code, _, error) = run(server, &["sync", "shop", "--wait"]).await;
    assert!(
        code == 1 && error.contains("shop: not Synced and Healthy: setup.1 failed with code 3\n"),
        "{error}"
    );
    assert_eq!(run(server, &["wait", "shop", "--for", "synced"]).await.0, 0);
}

#[tokio::test]
async fn only_a_suspended_application_refuses_a_sync() {
    let mut stopped = shop();
    stopped.status.health = HealthStatus::Suspended;
    let job = Arc::make_mut(&mut stopped.status.workloads).get_mut(&"web".into()).unwrap();
    (job.health, job.reason) = (HealthStatus::Suspended, "JobSuspended".to_owned());
    stopped.status.message = "web: it is suspended".to_owned();
    let mut suspended = stopped.clone();
    suspended.spec.policy.suspended = true;
    let (server, _) = served_with(stopped, Access::loopback()).await;
    let (code, out, error) = run(server, &["sync", "shop", "--wait"]).await;
    assert!(code == 0 && out.starts_with("shop: Synced and Healthy after"), "{code} {out}{error}");
    assert!(out.ends_with(" s (Suspended: web: it is suspended)\n"), "{out}");
    let (server, _) = served_with(suspended, Access::loopback()).await;
    let (code, _, error) = run(server, &["sync", "shop", "--wait"]).await;
    assert!(code == 1 && error.contains("shop: it is suspended"), "{code} {error}");
}

#[tokio::test]
async fn sync_does_not_advise_to_resume_outside_of_git() {
    let mut left = shop();
    left.spec.policy.suspended = true;
    left.status.conditions.push(sample::not_in_git());
    let (server, _) = served_with(left, Access::loopback()).await;
    for words in [&["sync", "shop", "--wait"][..], &["sync", "--wait", "--timeout", "300ms"]] {
        let (code, _, error) = run(server, words).await;
        assert!(code == 1 && error.contains("`driftless remove shop`"), "{code} {error}");
        assert!(!error.contains("driftless resume shop"), "{error}");
    }
}

#[tokio::test]
async fn wait_without_a_fetch_says_so() {
    let mut unfetched = shop();
    unfetched.status.conditions.push(StatusCondition {
        kind: "SourceReady".to_owned(),
        reason: "UnknownHost".to_owned(),
        ..sample::not_in_git()
    });
    unfetched.status.message = "the last good commit is kept: no such host".to_owned();
    let (server, _) = served_with(unfetched, Access::loopback()).await;
    let (code, _, error) = run(server, &["rollback", "shop", "--wait", "--timeout", "50ms"]).await;
    let expected =
        "within 50ms: the newest commit was not fetched; Synced, Healthy: the last good commit is kept";
    assert!(code == 1 && error.contains(expected), "{code} {error}");
}

#[tokio::test]
async fn pinned_application_is_not_as_the_newest_commit() {
    let mut pinned = shop();
    pinned.status.pin = blog().status.pin;
    let (server, _) = served_with(pinned, Access::loopback()).await;
    for words in [&["sync", "shop", "--wait"][..], &["sync", "--wait", "--timeout", "300ms"]] {
        let (code, out, error) = run(server, words).await;
        assert!(code == 1 && out.starts_with("shop: Synced and Healthy"), "{code} {out}{error}");
        assert!(error.contains("a rollback pinned it to revision #1, 2 commits behind"), "{error}");
    }
    assert_eq!(run(server, &["rollback", "shop", "--wait"]).await.0, 0);
}

#[tokio::test]
async fn sync_without_a_name_syncs_all() {
    let (server, seen) = served(Access::loopback()).await;
    let (code, out, error) = run(server, &["sync"]).await;
    assert_eq!(
        (code, out.as_str()),
        (0, "2 applications: sync asked for; `driftless status` shows it\n"),
        "{error}"
    );
    let asked: Vec<AppName> = seen.lock().unwrap().drain(..).map(|(app, _)| app).collect();
    assert_eq!(asked, ["blog".into(), "shop".into()]);
    // Each is waited for, also after one that takes too long.
    let (code, out, error) = run(server, &["sync", "--wait", "--timeout", "300ms"]).await;
    assert!(code == 1 && out.starts_with("shop: Synced and Healthy"), "{code} {out}{error}");
    assert!(error.contains("blog: not Synced and Healthy within 300ms: OutOfSync, Degraded"), "{error}");
    let (code, _, error) = run(server, &["sync", "--prune"]).await;
    assert_eq!((code, error.contains("<APP>")), (2, true), "{error}");
}

/// It may read all of them.
#[tokio::test]
async fn token_for_one_application_syncs_and_adopts_that_one() {
    const ADMIN: &str = "secret-of-nas-secret-of-nas-secret";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let named = |name: &str| Application { name: name.into(), ..shop() };
    let agent = sample::agent([named("compose-a"), named("compose-b"), named("compose-c")]);
    let routes = router(agent.handle, agent.store, Access::token(Token::new(ADMIN).unwrap()));
    tokio::spawn(serve(listener, routes, std::future::pending()));
    let seen = Seen::default();
    tokio::spawn(sample::answer(agent.inbox, seen.clone()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let with = async |secret: &str, words: &[&str]| {
        fs::write(&file, secret).unwrap();
        let output = driftless(server, words).env("DRIFTLESS_TOKEN_FILE", &file).output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let asked = |wanted: RequestKind| -> Vec<AppName> {
        let seen = seen.lock().unwrap();
        seen.iter().filter(|(_, kind)| *kind == wanted).map(|(app, _)| app.clone()).collect()
    };
    let create = ["token", "create", "ci", "--scope", "act:app/compose-b"];
    let (code, secret, error) = with(ADMIN, &create).await;
    assert_eq!(code, 0, "{error}");
    let (code, out, error) = with(secret.trim(), &["sync"]).await;
    assert_eq!(
        (code, out.as_str()),
        (0, "1 application: sync asked for; `driftless status` shows it\n"),
        "{error}"
    );
    assert_eq!(error, "not asked, because the token is not for them: compose-a, compose-c\n");
    assert_eq!(asked(RequestKind::Sync), ["compose-b".into()]);
    let (code, out, error) = with(secret.trim(), &["adopt", "--all"]).await;
    assert!(code == 1 && out.starts_with("compose-b: taken over\n"), "{code} {out}{error}");
    assert!(error.contains("2 of 3 applications cannot be adopted: compose-a, compose-c"), "{error}");
    assert_eq!(asked(RequestKind::Adopt), ["compose-b".into()]);
    // One for none of them is refused.
    let (_, secret, _) = with(ADMIN, &["token", "create", "other", "--scope", "act:app/blog"]).await;
    let (code, _, error) = with(secret.trim(), &["sync"]).await;
    assert!(code == 2 && error.starts_with("error: "), "{code} {error}");
}

#[tokio::test]
async fn application_that_a_sync_removes_is_as_git_says() {
    let leaving = Application { name: "leaving".into(), ..shop() };
    let (server, _) = served_with(leaving.clone(), Access::loopback()).await;
    let (code, out, error) = run(server, &["sync", "--wait", "--timeout", "300ms"]).await;
    assert_eq!(out, "leaving: removed, because it is not in Git any more\n", "{error}");
    assert!(code == 1 && error.contains("blog: not Synced and Healthy within"), "{error}");
    let (server, _) = served_with(leaving, Access::loopback()).await;
    let (code, out, error) = run(server, &["sync", "leaving", "--wait"]).await;
    assert_eq!(code, 0, "{error}");
    assert_eq!(out, "leaving: removed, because it is not in Git any more\n", "{error}");
}

#[tokio::test]
async fn diff_with_differences_exits_with_1() {
    let (server, _) = served(Access::loopback()).await;
    let (code, out, _) = run(server, &["diff", "blog"]).await;
    assert_eq!(code, 1);
    assert!(out.contains("+image: blog:2.0.0"), "{out}");
    let (code, drift, _) = run(server, &["drift", "--app", "blog", "-o", "diff"]).await;
    assert_eq!((code, drift), (1, out));
    let (code, out, _) = run(server, &["diff", "shop"]).await;
    assert_eq!((code, out.as_str()), (0, ""));
    let (code, _, error) = run(server, &["diff", "nothing"]).await;
    assert_eq!((code, error.lines().next()), (2, Some("error: there is no application `nothing`")));
    let (_, _, error) = run(server, &["sync", "shpo"]).await;
    assert_eq!(
        error,
        "shpo is not known yet: looking for it in the newest commits\nerror: there is no application `shpo`\nhelp: did you mean `shop`?\n"
    );
    let (code, out, _) = run(server, &["plan", "blog"]).await;
    assert_eq!(code, 0);
    assert!(out.starts_with("blog: 3 steps in 2 rounds\n"), "{out}");
}

#[tokio::test]
async fn dry_runs_ask_for_a_plan_only() {
    let (server, seen) = served(Access::loopback()).await;
    for (arguments, supposed) in [
        (&["rollback", "shop", "--to", "3", "--dry-run"][..], Supposed::Rollback(Some("3".to_owned()))),
        (&["rollback", "shop", "--dry-run"], Supposed::Rollback(None)),
        (&["sync", "shop", "--prune", "--dry-run"], Supposed::Prune),
    ] {
        seen.lock().unwrap().clear();
        let (code, out, error) = run(server, arguments).await;
        assert!(code == 0 && out.contains("shop: 3 steps"), "{out}{error}");
        assert_eq!(*seen.lock().unwrap(), [("shop".into(), RequestKind::PlanAfter(supposed))]);
    }
}

#[tokio::test]
async fn ui_prints_the_address_of_the_page() {
    let (server, _) = served(Access::loopback()).await;
    let (code, out, _) = run(server, &["ui"]).await;
    assert_eq!((code, out), (0, format!("http://{server}/\n")));
}

#[tokio::test]
async fn application_that_left_git_has_no_empty_place() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let mut gone = shop();
    (gone.spec.url, gone.spec.reference, gone.spec.path) = Default::default();
    let agent = sample::agent([gone]);
    let routes = router(agent.handle, agent.store, Access::loopback());
    tokio::spawn(serve(listener, routes, std::future::pending()));
    let (_, out, _) = run(server, &["status", "shop"]).await;
    assert!(out.contains("not in Git any more") && !out.contains("from  ("), "{out}");
}

#[tokio::test]
async fn plan_and_diff_go_on_past_a_broken_application() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let mut broken = shop();
    broken.name = "broken".into();
    let agent = sample::agent([blog(), broken, shop()]);
    let routes = router(agent.handle, agent.store, Access::loopback());
    tokio::spawn(serve(listener, routes, std::future::pending()));
    tokio::spawn(sample::answer(agent.inbox, Seen::default()));
    let (code, out, error) = run(server, &["plan"]).await;
    assert_eq!(code, 2, "{out}");
    for expected in
        ["blog: 3 steps", "broken: error: broken has no commit that can be applied", "shop: 3 steps"]
    {
        assert!(out.contains(expected), "{out}");
    }
    assert_eq!(error, "error: no plan for 1 of 3 applications: broken\n");
    let (code, out, _) = run(server, &["plan", "-o", "json"]).await;
    let plans: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, plans["broken"]["error"].is_string(), plans["blog"]["rounds"].is_array()),
        (2, true, true)
    );
    let (code, out, error) = run(server, &["diff"]).await;
    assert_eq!(code, 2, "{out}");
    assert!(
        out.contains("+image: blog:2.0.0") && out.contains("# broken: error: broken has no commit"),
        "{out}"
    );
    assert_eq!(error, "1 of 3 applications drifts: 1 modified; 1 error\n");
}

#[tokio::test]
async fn plan_fails_if_a_repository_was_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let agent = sample::agent([shop()]);
    let message = "the server refuses the token".to_owned();
    let unread = RepositoryStatus { name: "wiki".to_owned(), commit: None, message, ..followed() };
    agent.inbox.repositories.send_replace(Arc::new(vec![followed(), unread]));
    let routes = router(agent.handle, agent.store, Access::loopback());
    tokio::spawn(serve(listener, routes, std::future::pending()));
    tokio::spawn(sample::answer(agent.inbox, Seen::default()));
    let (code, out, error) = run(server, &["plan"]).await;
    assert!(code == 2 && out.starts_with("shop: "), "{code} {out}");
    assert_eq!(error, "error: repository wiki: the server refuses the token\n");
    let (code, _, error) = run(server, &["plan", "shop"]).await;
    assert_eq!((code, error.as_str()), (0, ""));
}

#[tokio::test]
async fn applications_without_a_first_round_are_errors() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let agent = sample::agent([shop()]);
    for name in ["blog", "shop"] {
        agent.handle.unpublished().add(name.into(), "infra".to_owned());
    }
    agent.inbox.repositories.send_replace(Arc::new(vec![followed()]));
    let routes = router(agent.handle, agent.store, Access::loopback());
    tokio::spawn(serve(listener, routes, std::future::pending()));
    tokio::spawn(sample::answer(agent.inbox, Seen::default()));
    let sentence = "the agent has not observed blog yet; try again in a moment";
    for command in ["drift", "plan"] {
        let (code, out, error) = run(server, &[command]).await;
        let said = out + &error;
        assert!(code == 2 && said.contains("shop") && said.contains(sentence), "{code} {said}");
    }
    for command in [&["status"][..], &["status", "-o", "json"], &["status", "-o", "yaml"], &["get", "deploy"]]
    {
        let (code, out, error) = run(server, command).await;
        let said = out + &error;
        assert!(code == 0 && said.contains(sentence), "{code} {said}");
    }
    let (code, out, error) = run(server, &["drift", "--app", "shop"]).await;
    assert!(code != 2 && !(out + &error).contains(sentence), "{code}");
}

#[tokio::test]
async fn host_of_the_users_file_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join(".config/driftless");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("nas.token"), "secret-of-nas-secret-of-nas-secret").unwrap();
    let (server, _) = served(Access::token(Token::new("secret-of-nas-secret-of-nas-secret").unwrap())).await;
    let file = config.join("hosts.yaml");
    let write = |text: String| fs::write(&file, text).unwrap();
    write(format!("hosts:\n- {{name: nas, server: '{server}', tokenFile: nas.token}}\n"));
    let ask = async |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        let command = command.args(arguments).env_clear().env("HOME", folder.path()).stdin(Stdio::null());
        let Output { status, stdout, stderr } = command.output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    };
    for words in [&["--host", "nas", "status"][..], &["status", "--host", "nas"], &["status", "--host=nas"]] {
        let (code, out, error) = ask(words).await;
        assert!(code == 0 && out.contains("shop  Synced"), "{words:?}: {out}{error}");
    }
    let (code, out, _) = ask(&["--server", &server.to_string(), "status"]).await;
    assert!(code == 2 && out.is_empty(), "without the token");
    let (code, _, error) = ask(&["--host", "nas", "healthcheck"]).await;
    assert!(code == 0, "{error}");
    let (code, _, error) = ask(&["drift", "--host", "nsa", "--detailed-exitcode"]).await;
    assert!(code == 1, "no difference was found: {error}");
    let (code, _, error) = ask(&["--host", "nsa", "status"]).await;
    assert!(code == 2 && error.contains("hosts.yaml has no host `nsa`; did you mean `nas`?"), "{error}");
    // The token of this machine's agent is for no other one.
    write(format!("hosts:\n- {{name: web, server: '{server}'}}\n"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    let command = command.args(["--host", "web", "status"]).env_clear().env("HOME", folder.path());
    let token = config.join("nas.token");
    let output = command.env("DRIFTLESS_TOKEN_FILE", token).stdin(Stdio::null()).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    write("hosts:\n- {name: nas, sever: x}\n".to_owned());
    let (code, _, error) = ask(&["--host", "nas", "status"]).await;
    assert!(code == 2 && error.contains("hosts.yaml:2:15: error: hosts[0].sever: unknown key"), "{error}");
    fs::remove_file(&file).unwrap();
    let (code, _, error) = ask(&["--host", "nas", "status"]).await;
    assert!(code == 2 && error.contains("could not read the file of hosts"), "{error}");
}

#[tokio::test]
async fn all_applications_are_adopted_but_the_impossible_ones() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let named = |name: &str| Application { name: name.into(), ..shop() };
    let agent = sample::agent([blog(), named("compose-new"), named("compose-old"), named("broken")]);
    let routes = router(agent.handle, agent.store, Access::loopback());
    tokio::spawn(serve(listener, routes, std::future::pending()));
    let seen = Seen::default();
    tokio::spawn(sample::answer(agent.inbox, seen.clone()));
    let (code, out, error) = run(server, &["adopt", "--all", "--dry-run"]).await;
    assert_eq!(code, 1, "{out}{error}");
    assert!(
        out.contains("compose-new: 1 object to adopt") && out.contains("not adopted: compose-old-db-1"),
        "{out}"
    );
    assert_eq!(error, "error: 2 of 3 applications cannot be adopted: broken, compose-old\n");
    let asked = || -> Vec<AppName> {
        let seen = seen.lock().unwrap();
        seen.iter().filter(|(_, kind)| *kind == RequestKind::Adopt).map(|(app, _)| app.clone()).collect()
    };
    assert!(asked().is_empty(), "{:?}", asked());
    let (code, out, _) = run(server, &["adopt", "--all"]).await;
    assert!(code == 1 && out.starts_with("compose-new: taken over\n"), "{out}");
    assert_eq!(asked(), ["compose-new".into()]);
    let (code, out, _) = run(server, &["adopt", "compose-old", "--dry-run"]).await;
    assert!(code == 1 && out.contains("compose-old-db-1 cannot be adopted"), "{out}");
    let (code, out, _) = run(server, &["adopt", "blog", "--dry-run"]).await;
    assert!(
        code == 0 && out.contains("blog: nothing of it was started by docker compose or docker stack"),
        "{out}"
    );
    let (code, _, error) = run(server, &["adopt"]).await;
    assert!(code == 2 && error.contains("<APP>"), "{error}");
    let (code, out, _) = run(server, &["sync", "blog", "--dry-run"]).await;
    assert!(code == 0 && out.starts_with("blog: 3 steps in 2 rounds\n"), "{out}");
    assert!(seen.lock().unwrap().iter().all(|(_, kind)| *kind != RequestKind::Sync));
    let (code, out, _) = run(server, &["forget", "blog"]).await;
    assert!(code == 0 && out.starts_with("blog: not managed any more; its containers"), "{out}");
    assert!(out.ends_with("\nblog: its containers are blog-web-1\n"), "{out}");
}

#[tokio::test]
async fn events_are_listed_and_followed() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let (server, _) = served(Access::loopback()).await;
    let (code, out, _) = run(server, &["events", "-n", "2"]).await;
    assert_eq!(code, 0);
    assert_snapshot!(out, @r"
    2025-12-31T23:59:55.000Z shop Started web.1: three
    2025-12-31T23:59:55.000Z blog BackOff web.1: four
    ");
    let (code, out, error) = run(server, &["events", "--since", "1h"]).await;
    assert_eq!((code, out.as_str(), error.as_str()), (0, "", "no events\n"), "all events are older");
    let (code, _, error) = run(server, &["events", "--app", "nothing"]).await;
    assert!(code == 2 && error.starts_with("error: there is no application `nothing`"), "{code} {error}");
    let (_, out, _) = run(server, &["events", "--since", "100000h"]).await;
    assert!(out.lines().count() >= 4, "{out}");
    let mut child = driftless(server, &["events", "--follow", "--app", "shop", "-o", "json", "-n", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.contains(r#""message":"three""#), "{line}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn events_of_a_restart_are_followed_without_a_first_event() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let agent = sample::agent([shop()]);
    agent.happens(sample::event("shop", "Started", "old"));
    let routes = router(agent.handle.clone(), agent.store.clone(), Access::loopback());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let before = tokio::spawn(serve(listener, routes.clone(), async { drop(stopped.await) }));
    let readers = agent.inbox.events.receiver_count();
    let mut child = driftless(address, &["events", "--follow", "-o", "json", "-n", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while agent.inbox.events.receiver_count() == readers {
        sleep(Duration::from_millis(20)).await;
    }
    stop.send(()).unwrap();
    before.await.unwrap();
    agent.happens(sample::event("shop", "Started", "after the restart"));
    let listener = listen_again(address).await;
    tokio::spawn(serve(listener, routes, std::future::pending()));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(Duration::from_mins(1), lines.next_line()).await.unwrap().unwrap().unwrap();
    assert!(line.contains("after the restart"), "{line}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn errors_name_the_next_step() {
    let (server, _) = served(Access::token(Token::new("correct-horse-battery").unwrap())).await;
    let (code, _, error) = run(server, &["status"]).await;
    assert_eq!(code, 2);
    assert!(error.contains("requires a token") && error.contains("--token-file"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "correct-horse-battery\n").unwrap();
    let (code, _, error) = run(server, &["status", "--token-file", token.to_str().unwrap()]).await;
    assert_eq!(code, 0, "{error}");
    let (code, _, error) =
        run(server, &["history", "nothing", "--token-file", token.to_str().unwrap()]).await;
    assert_eq!(code, 2);
    assert_eq!(
        error,
        "error: there is no application `nothing`\nhelp: `driftless status` lists the applications\n"
    );
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let (code, _, error) = run(nobody, &["status"]).await;
    assert_eq!(code, 2);
    assert!(error.starts_with(&format!("error: no agent answers at http://{nobody}: ")), "{error}");
    assert!(error.contains("help: is `driftless run` running?"), "{error}");
}

#[tokio::test]
async fn closed_output_ends_the_program_quietly() {
    let (server, _) = served(Access::loopback()).await;
    let mut child = driftless(server, &["status", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().await.unwrap();
    assert_eq!(String::from_utf8(stderr).unwrap(), "");
    assert_eq!(status.code(), Some(2));
}

#[tokio::test]
async fn wrong_usage_exits_with_2() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    for wrong in [
        &["run"][..],
        &["run", "https://example.com/a.git", "--branch", "a", "--tag", "b"],
        &["rollback", "shop", "--until", "soon"],
        &["status", "../events"],
        &["wait", "shop", "--for", "happy"],
        &["nothing"],
    ] {
        let (code, _, error) = run(nobody, wrong).await;
        assert_eq!(code, 2, "{wrong:?}");
        assert!(error.contains("error"), "{error}");
    }
}

#[tokio::test]
async fn agent_without_token_listens_on_loopback_only() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let (code, _, error) =
        run(nobody, &["run", "https://git.example.com/a.git", "--listen", "0.0.0.0:0"]).await;
    assert_eq!(code, 2);
    assert!(error.contains("there is no token") && error.contains("--token-file"), "{error}");
}

#[tokio::test]
async fn address_in_use_is_reported_before_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let state = tempfile::tempdir().unwrap();
    let folder = state.path().join("state");
    let arguments = [
        "run",
        "https://git.example.com/a.git",
        "--listen",
        &address.to_string(),
        "--state-dir",
        folder.to_str().unwrap(),
    ];
    let (code, _, error) = run(address, &arguments).await;
    assert_eq!(code, 2);
    assert!(error.contains("could not listen on") && error.contains("--listen"), "{error}");
    assert!(!folder.exists(), "nothing was touched");
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[tokio::test]
async fn validate_needs_no_agent() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let good = folder(&[("sites/shop/compose.yaml", "services:\n  web:\n    image: web:1\n")]);
    let path = good.path().to_str().unwrap();
    let (code, out, error) = run(nobody, &["validate", path]).await;
    let summary = "shop\n1 application, read from disk, because the folder is in no Git repository: 0 errors, 0 warnings\n";
    assert_eq!((code, out.as_str(), error.as_str()), (0, "", summary));
    let (code, out, _) = run(nobody, &["validate", path, "--path", "sites", "-o", "json"]).await;
    assert_eq!(code, 0);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["applications"][0]["name"], "shop");
    assert_eq!(report["applications"][0]["workloads"], 1);
}

#[tokio::test]
async fn links_that_lead_out_of_a_mounted_folder_are_warned_about() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let text = "services:\n  web:\n    image: web:1\n    volumes: ['./site:/srv:ro']\n";
    let one = folder(&[("shop/compose.yaml", text), ("shop/site/a.conf", "a")]);
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, one.path().join("shop/site").join(name)).unwrap();
    };
    link("a.conf", "same.conf");
    let (code, _, error) = run(nobody, &["validate", one.path().to_str().unwrap()]).await;
    assert!(code == 0 && error.contains("0 errors, 0 warnings"), "{error}");
    link("/etc/nginx/b.conf", "b.conf");
    link("missing.conf", "c.conf");
    let (code, _, error) = run(nobody, &["validate", one.path().to_str().unwrap()]).await;
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("shop/compose.yaml:4:15") && error.contains("and so is another one"), "{error}");
    assert!(error.contains("`shop/site/b.conf` is a symbolic link to `/etc/nginx/b.conf`"), "{error}");
}

#[tokio::test]
async fn ignored_files_of_a_mounted_folder_are_warned_about() {
    use std::os::unix::fs::PermissionsExt as _;

    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let text = |mode: &str| {
        format!("services:\n  web:\n    image: web:1\n    volumes: ['./certs:/etc/nginx/certs{mode}']\n")
    };
    let one = Clone::new();
    let read_only = text(":ro");
    let ignored = ("proxy/certs/.gitignore", Some("*\n!*/\n!.gitignore\n"));
    one.commit(&[("proxy/compose.yaml", Some(read_only.as_str())), ignored]);
    let path = one.path().to_str().unwrap();
    let (code, _, error) = run(nobody, &["validate", path, "--path", "proxy"]).await;
    assert!(code == 0 && error.contains("0 errors, 0 warnings"), "{error}");
    fs::create_dir_all(one.path().join("proxy/certs/live/shop")).unwrap();
    fs::write(one.path().join("proxy/certs/key.pem"), "key").unwrap();
    fs::write(one.path().join("proxy/certs/live/shop/key.pem"), "key").unwrap();
    for more in [&[][..], &["--worktree"]] {
        let (code, _, error) = run(nobody, &[&["validate", path, "--path", "proxy"], more].concat()).await;
        assert!(code == 0 && error.contains("proxy/compose.yaml:4:15"), "{error}");
        let message = "`proxy/certs/key.pem` is ignored by Git, so the mounted folder does not have it, and so is another one";
        assert!(error.contains(message) && error.contains("absolute path"), "{error}");
    }
    // Folders that only the user of a container may read. Root reads them all the same.
    let set_mode = |folder: &str, mode: u32| {
        fs::set_permissions(one.path().join(folder), fs::Permissions::from_mode(mode)).unwrap();
    };
    for folder in ["proxy/certs/live/shop", "proxy/certs/live"] {
        set_mode(folder, 0o000);
        let (code, _, error) = run(nobody, &["validate", path, "--path", "proxy"]).await;
        set_mode(folder, 0o700);
        assert!(code == 0 && error.contains("`proxy/certs/key.pem` is ignored by Git"), "{error}");
    }
    one.commit(&[("proxy/compose.yaml", Some(text("").as_str()))]);
    let (code, _, error) = run(nobody, &["validate", path, "--path", "proxy"]).await;
    assert!(code == 0 && !error.contains("is ignored by Git"), "{error}");
}

#[tokio::test]
async fn validate_checks_the_files_that_it_is_given() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let base = "services:\n  web:\n    image: web:1\n";
    let production = "services:\n  web:\n    ports: [nonsense]\n";
    let both = folder(&[("shop/base.yaml", base), ("shop/prod.yaml", production)]);
    let path = both.path().to_str().unwrap();
    let (code, out, error) =
        run(nobody, &["validate", path, "--path", "shop", "--file", "base.yaml", "-o", "json"]).await;
    assert_eq!(code, 0, "{error}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&report["applications"][0]["name"], &report["applications"][0]["workloads"]),
        (&"shop".into(), &1.into())
    );
    let files = ["--file", "base.yaml", "--file", "prod.yaml"];
    let (code, _, error) = run(nobody, &[&["validate", path, "--path", "shop"], &files[..]].concat()).await;
    assert!(code == 1 && error.contains("shop/prod.yaml:3"), "{error}");
    let (code, _, error) = run(nobody, &["validate", path, "--path", "shop", "--file", "missing.yaml"]).await;
    assert!(code == 1 && error.contains("missing.yaml"), "{error}");
}

#[tokio::test]
async fn files_that_git_ignores_do_not_count() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let compose =
        "services:\n  db:\n    image: db:1\n    environment:\n      POSTGRES_PASSWORD: ${DB_PASSWORD}\n";
    let one = Clone::new();
    one.commit(&[("db/compose.yaml", Some(compose)), (".gitignore", Some(".env\n"))]);
    fs::write(one.path().join("db/.env"), "DB_PASSWORD=hunter2\n").unwrap();
    let path = one.path().to_str().unwrap();
    let (code, _, error) = run(nobody, &["validate", path]).await;
    assert_eq!(code, 1);
    assert!(error.contains("db/.env\n") && error.contains("is ignored by Git, so it is not read"), "{error}");
    assert!(
        error.contains("the variable `DB_PASSWORD` is not set, so an empty password would be used"),
        "{error}"
    );
    assert!(
        error.matches("`valuesFrom`").count() >= 2 && error.contains("`--variable DB_PASSWORD="),
        "{error}"
    );
    let given = ["--host-file", "db/.env", "--variable", "DB_PASSWORD=x"];
    let (code, _, error) = run(nobody, &[&["validate", path], &given[..]].concat()).await;
    assert!(code == 0 && !error.contains("is ignored by Git"), "{error}");
    let (code, out, error) = run(nobody, &["config", path, "--path", "db", "--show-secrets"]).await;
    assert_eq!(code, 0, "the reference accepts an empty password: {error}");
    assert!(!out.contains("hunter2") && error.contains("is ignored by Git"), "{out}{error}");
    one.git(&["add", "--force", "db/.env"]);
    let (code, _, error) = run(nobody, &["validate", path]).await;
    assert_eq!(
        (code, error.as_str()),
        (0, "blog, db, shop\n3 applications, read from Git: 0 errors, 0 warnings\n")
    );
}

#[tokio::test]
async fn project_name_in_an_ignored_env_file_is_reported() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let one = Clone::new();
    let compose = "services: {web: {image: 'web:1'}}\n";
    one.commit(&[("notes/compose.yaml", Some(compose)), (".gitignore", Some(".env\n"))]);
    let env = one.path().join("notes/.env");
    fs::write(&env, "PORT=1\nCOMPOSE_PROJECT_NAME=lab-notes\nCOMPOSE_PROFILES=more\n").unwrap();
    let path = one.path().to_str().unwrap();
    for arguments in [&["validate", path][..], &["validate", path, "--worktree"]] {
        let (code, _, error) = run(nobody, arguments).await;
        assert_eq!(code, 0, "{error}");
        for text in [
            "the project is `notes` for the agent and `lab-notes` for Docker Compose\n --> notes/.env:2\n",
            "write `name: lab-notes` into notes/compose.yaml",
            "the agent does not have its variables `COMPOSE_PROFILES`",
        ] {
            assert!(error.contains(text), "{text}: {error}");
        }
    }
    let compose = format!("name: lab-notes\n{compose}");
    one.commit(&[("notes/compose.yaml", Some(compose.as_str()))]);
    let (_, _, error) = run(nobody, &["validate", path]).await;
    assert!(!error.contains("lab-notes"), "{error}");
}

#[tokio::test]
async fn validate_reads_the_index_of_git() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let one = Clone::new();
    one.commit(&[
        ("store/compose.yaml", Some("services:\n  web:\n    image: web:${TAG:-1}\n")),
        ("store/old.yaml", Some("services: {}\n")),
        (".gitignore", Some(".env\n")),
    ]);
    let path = one.path().to_str().unwrap();
    let sees = async |arguments: &[&str]| run(nobody, &[&["validate", path], arguments].concat()).await;
    // A mistake that is not added yet, a file that was forgotten, and variables that Git ignores.
    fs::write(one.path().join("store/compose.yaml"), "services:\n  web:\n    imag: web:${TAG:-1}\n").unwrap();
    fs::create_dir(one.path().join("new")).unwrap();
    fs::write(one.path().join("new/compose.yaml"), "services: {a: {image: 'a:1'}}\n").unwrap();
    fs::write(one.path().join("store/notes.txt"), "not read").unwrap();
    fs::write(one.path().join("store/.env"), "TAG=2\nUNUSED=1\n").unwrap();
    let (code, _, error) = sees(&[]).await;
    assert_eq!(code, 0, "{error}");
    for text in [
        "warning: differs on disk from what `git add` has seen, which is read\n--> store/compose.yaml\n",
        "warning: is not in Git, so it is not read: the agent would not have it\n--> new/\n",
        "the agent does not have its variables `TAG`, which the project uses\n--> store/.env\n",
        "3 applications, read from Git: 0 errors, 3 warnings",
    ] {
        assert!(error.contains(text), "{text}: {error}");
    }
    assert!(!error.contains("notes.txt"), "{error}");
    let new = one.path().join("new");
    for place in [&["validate", path, "--path", "new"][..], &["validate", new.to_str().unwrap()]] {
        let (code, _, error) = run(nobody, place).await;
        let expected = "error: is not in Git, so it is not read: the agent would not have it\n--> new\n = help: \
                        `git add new`, or check the files on disk with --worktree\n";
        assert!(code == 1 && error.contains(expected) && !error.contains("does not exist"), "{error}");
    }

    let (code, _, error) = sees(&["--worktree"]).await;
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("--> store/compose.yaml:3:5\n"), "{error}");
    assert!(error.contains("4 applications, read from disk: 2 errors, 1 warning"), "{error}");

    one.git(&["add", "new", "store/compose.yaml"]);
    let (code, _, error) = sees(&[]).await;
    assert_eq!(code, 1, "before the commit: {error}");
    assert!(error.contains("4 applications, read from Git: 2 errors, 1 warning"), "{error}");
    // A folder inside the clone, with paths from its root.
    let store = one.path().join("store");
    let (code, _, error) = run(nobody, &["validate", store.to_str().unwrap()]).await;
    assert!(code == 1 && error.contains("--> store/compose.yaml:3:5\n"), "{error}");
    assert!(error.contains("1 application, read from Git"), "{error}");

    fs::remove_file(one.path().join("new/compose.yaml")).unwrap();
    let (_, _, error) = sees(&["--path", "new"]).await;
    assert!(error.contains("is not on disk any more, and is still in Git\n--> new/compose.yaml"), "{error}");
}

/// Git gives such a hook the index of the commit that it makes, which is not always that of the clone.
#[test]
fn validate_in_a_pre_commit_hook_reads_the_new_commit() {
    use std::os::unix::fs::PermissionsExt as _;

    const FILE: &str = "sites/shop/compose.yaml";
    let one = Clone::new();
    let hook = one.path().join(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let program = env!("CARGO_BIN_EXE_driftless");
    fs::write(&hook, format!("#!/bin/sh\nexec '{program}' validate . --path sites\n")).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let commit = |words: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=Ops", "-c", "user.email=ops@example.com", "-c", "commit.gpgsign=false"])
            .args(["commit", "-q", "-m", "Change"])
            .args(words)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(one.path())
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let right = fs::read_to_string(one.path().join(FILE)).unwrap();
    let wrong = right.replace("image:", "imag:");
    let write = |text: &str| fs::write(one.path().join(FILE), text).unwrap();
    for (number, words) in [&["--all"][..], &[FILE]].into_iter().enumerate() {
        write(&wrong);
        let (is_made, error) = commit(words);
        assert!(!is_made && error.contains("--> sites/shop/compose.yaml:3:5"), "{words:?}: {error}");
        // The mistake is in the index of the clone, and not in the commit.
        one.git(&["add", FILE]);
        write(&format!("{right}# change {number}\n"));
        let (is_made, error) = commit(words);
        assert!(is_made && error.contains("2 applications, read from Git: 0 errors"), "{words:?}: {error}");
    }
    // The index of another repository is not read.
    let other = Clone::new();
    fs::write(&hook, format!("#!/bin/sh\nexec '{program}' validate '{}'\n", other.path().display())).unwrap();
    write(&wrong);
    let (is_made, error) = commit(&["--all"]);
    assert!(is_made && error.contains("2 applications, read from Git: 0 errors"), "{error}");
}

#[tokio::test]
async fn validate_warns_about_the_effect_on_the_host() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let text = "services:\n  web:\n    image: web:1\n    profiles: [debug]\n    volumes: ['./data:/data', './data/more:/more:ro']\n";
    let one = folder(&[("shop/compose.yaml", text)]);
    let path = one.path().to_str().unwrap();
    let (code, _, error) = run(nobody, &["validate", path]).await;
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("warning: nothing of this application would run"), "{error}");
    let (code, _, error) = run(nobody, &["validate", path, "--profile", "debug"]).await;
    assert_eq!(code, 0, "{error}");
    let place =
        "services.web.volumes: writes to `./data`, which will be /var/lib/driftless/applications/shop/data";
    assert!(error.contains(place) && !error.contains("nothing of this"), "{error}");
    let unset = folder(&[("shop/compose.yaml", "services:\n  web:\n    image: web:${TAG:?}\n")]);
    let path = unset.path().to_str().unwrap();
    assert_eq!(run(nobody, &["validate", path]).await.0, 1);
    let (code, _, error) = run(nobody, &["validate", path, "--variable", "TAG=1"]).await;
    assert_eq!(code, 0, "{error}");
}

#[tokio::test]
async fn written_folder_of_several_services_has_one_warning() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let text = "services:
  a: {image: 'a:1', volumes: ['./data:/data', './a.conf:/a.conf']}
  b: {image: 'a:1', volumes: ['./data:/data', './own:/own']}
  c: {image: 'a:1', volumes: ['./data:/data']}
";
    let one = folder(&[("shop/compose.yaml", text), ("shop/a.conf", "a")]);
    let (code, _, error) = run(nobody, &["validate", one.path().to_str().unwrap()]).await;
    assert_eq!(code, 0, "{error}");
    let warnings: Vec<&str> = error.lines().filter(|line| line.contains(": writes to ")).collect();
    let [data, own] = warnings.as_slice() else { panic!("{error}") };
    assert!(
        data.contains("services.a.volumes: writes to `./data` (as 2 other services do), which"),
        "{data}"
    );
    assert!(own.contains("services.b.volumes: writes to `./own`, which"), "{own}");
}

#[tokio::test]
async fn validate_prints_findings_of_all_applications() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let bad = folder(&[
        ("blog/compose.yaml", "services:\n  web:\n    imag: blog:1\n"),
        ("shop/compose.yaml", "services:\n  web:\n    image: web:1\n    prots: []\n"),
    ]);
    let path = bad.path().to_str().unwrap();
    let (code, _, error) = run(nobody, &["validate", path]).await;
    assert_eq!(code, 1);
    assert!(error.contains("--> blog/compose.yaml:3:5\n"), "{error}");
    assert!(error.contains("--> shop/compose.yaml:4:5\n"), "{error}");
    assert!(error.contains("2 applications, "), "{error}");
    let empty = folder(&[("README.md", "nothing here")]);
    let (code, _, error) = run(nobody, &["validate", empty.path().to_str().unwrap()]).await;
    assert_eq!(code, 1, "{error}");
    let (code, _, error) = run(nobody, &["validate", "/nonexistent/folder"]).await;
    assert_eq!(code, 2);
    assert_eq!(error, "error: could not open /nonexistent/folder: No such file or directory (os error 2)\n");
}

#[tokio::test]
async fn validate_warns_of_folders_that_the_list_leaves_out() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let compose = "services: {web: {image: 'web:1'}}\n";
    let with_base = "include: [../base/compose.yaml]\nservices: {api: {image: 'api:1'}}\n";
    let list = "applications: [{path: new}, {path: shop, hosts: {names: [nas]}}]\n";
    let files = ["shop", "blog", "base", "examples/wiki"].map(|name| format!("sites/{name}/compose.yaml"));
    let mut all: Vec<(&str, &str)> = files.iter().map(|path| (path.as_str(), compose)).collect();
    all.push(("sites/new/compose.yaml", with_base));
    let found = folder(&all);
    let path = found.path().to_str().unwrap();
    let validate =
        async |more: &[&str]| run(nobody, &[&["validate", path, "--path", "sites"], more].concat()).await;
    let (code, _, error) = validate(&[]).await;
    assert!(code == 0 && !error.contains("does not name"), "{error}");
    fs::write(found.path().join("sites/driftless.yaml"), list).unwrap();
    for host in [&[][..], &["--host", "web"], &["--host", "nas"]] {
        let (code, _, error) = validate(host).await;
        let warning = "warning: applications: does not name these folders with manifests, so they are not deployed: \
                       `sites/blog`\n--> sites/driftless.yaml\n";
        assert!(code == 0 && error.contains(warning), "{host:?}: {error}");
    }
}

/// Nobody says that an agent follows the folder that is checked.
#[tokio::test]
async fn folder_of_an_application_has_its_settings_above() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let settings = "hosts: [{name: nas}]\napplications: [{path: shop}]\n";
    let shop = ("sites/shop/compose.yaml", "services: {web: {image: 'web:1'}}\n");
    let found = folder(&[("sites/driftless.yaml", settings), shop]);
    let path = found.path().to_str().unwrap();
    let (code, _, error) = run(nobody, &["validate", path, "--path", "sites/shop"]).await;
    assert!(code == 0 && error.contains("0 errors, 0 warnings"), "{error}");
}

#[tokio::test]
async fn file_that_only_the_host_has_is_named_to_validate() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let compose = "services: {web: {image: 'web:1', env_file: [.env], restart: always}}\n";
    let folder = folder(&[("sites/shop/compose.yaml", compose), ("sites/blog/compose.yaml", compose)]);
    let path = folder.path().to_str().unwrap();
    let (code, _, error) = run(nobody, &["validate", path]).await;
    assert!(code == 1 && error.contains("--host-file"), "{error}");
    let (code, _, error) = run(nobody, &["validate", path, "--host-file", "sites/shop/.env"]).await;
    assert!(code == 1 && !error.contains("shop/.env") && error.contains("blog/.env"), "{error}");
    let both = ["validate", path, "--host-file", "sites/shop/.env", "--host-file", "./sites/blog/.env"];
    let (code, _, error) = run(nobody, &both).await;
    assert_eq!(code, 0, "{error}");
    let (code, _, error) = run(nobody, &["validate", path, "--host-file", "../.env"]).await;
    assert!(code == 2 && error.contains("from the root of the repository"), "{error}");
}

#[tokio::test]
async fn drift_asks_the_agent_for_each_application() {
    let (server, seen) = served(Access::loopback()).await;
    let (code, out, error) = run(server, &["drift", "--show-unmanaged"]).await;
    assert_eq!((code, error.as_str()), (1, ""));
    let since = before(30);
    assert_eq!(
        out,
        format!(
            "blog: 1 difference\n  ~ container blog-web-1 (sites/blog/compose.yaml:2)\n      \
             state: exited (137) -> running  [being healed, since {since}]\nno drift: shop\n\
             of no application: pihole\n1 of 2 applications drifts: 1 modified\n"
        )
    );
    assert_eq!(run(server, &["drift", "--app", "shop"]).await.0, 0);
    assert_eq!(run(server, &["drift", "shop"]).await.1, "no drift: shop\n1 application, no drift\n");
    let (code, of_two, _) = run(server, &["drift", "shop", "blog"]).await;
    assert!(code == 1 && of_two.ends_with("1 of 2 applications drifts: 1 modified\n"), "{of_two}");
    assert_eq!(run(server, &["drift", "--path", "sites/shop"]).await.0, 0);
    assert_eq!(run(server, &["drift", "--fail-on", "missing"]).await.0, 0);
    let (code, out, error) = run(server, &["drift", "--path", "stes"]).await;
    let (told, text) = (out + &error, "the agent has no application in the folder stes");
    assert!(code == 2 && told.contains(text), "{code} {told}");
    let (code, _, error) = run(server, &["drift", "--app", "nothing"]).await;
    assert_eq!((code, error.starts_with("error: there is no application `nothing`")), (2, true), "{error}");
    seen.lock().unwrap().clear();
    let (_, json, _) = run(server, &["drift", "--app", "blog", "--against", "head", "-o", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["schemaVersion"], &json["summary"]["modified"]), (&1.into(), &1.into()));
    let asked = RequestKind::Drift(driftless_agent::Against::Head);
    assert_eq!(*seen.lock().unwrap(), [(AppName::from("blog"), asked)]);
}

#[tokio::test]
async fn config_prints_a_kustomization_with_masked_secrets() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let base = "resources: [web.yaml]\nsecretGenerator: [{name: login, literals: [word=hunter2]}]\n";
    let web = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";
    let one = folder(&[
        ("base/kustomization.yaml", base),
        ("base/web.yaml", web),
        ("overlays/prod/kustomization.yaml", "resources: [../../base]\nnamePrefix: prod-\n"),
        ("overlays/wrong/kustomization.yaml", "resources: [../../base]\nnamePrefx: a\n"),
    ]);
    let path = one.path().to_str().unwrap();
    let (code, out, error) = run(nobody, &["config", path, "--path", "overlays/prod"]).await;
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(out.contains("name: prod-web\n") && out.contains("\n---\n"), "{out}");
    let secret = "aHVudGVyMg==";
    assert!(!out.contains(secret) && out.contains("••••"), "{out}");
    let shown = ["config", path, "--path", "overlays/prod", "--show-secrets", "-o", "json"];
    let (_, out, _) = run(nobody, &shown).await;
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&"List".into(), 2));
    assert!(out.contains(secret), "{out}");
    let (code, out, error) = run(nobody, &["config", path, "--path", "overlays/wrong"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("did you mean `namePrefix`?"), "{error}");
}

#[tokio::test]
async fn config_prints_a_compose_application() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let text = "services:\n  web:\n    image: web:${TAG}\n    environment: {DB_PASSWORD: hunter2, COST: 5$$}\n    ports: [80]\n";
    let one = folder(&[("shop/compose.yaml", text), ("shop/.env", "TAG=1")]);
    let path = one.path().to_str().unwrap();
    let (code, out, error) = run(nobody, &["config", path]).await;
    assert_eq!((code, error.as_str()), (0, ""));
    let project: serde_json::Value = serde_yaml::from_str(&out).unwrap();
    assert_eq!(project["services"]["web"]["image"], "web:1");
    assert_eq!(project["services"]["web"]["environment"]["COST"], "5$$", "it may be read again");
    assert_eq!(project["services"]["web"]["ports"][0]["target"], 80);
    assert!(!out.contains("hunter2"), "{out}");
    let (_, out, error) = run(
        nobody,
        &["config", path, "--path", "shop", "--variable", "TAG=2", "--show-secrets", "-o", "json"],
    )
    .await;
    assert!(out.contains("\"web:2\"") && out.contains("hunter2"), "{out}{error}");

    let more = folder(&[("shop/compose.yaml", text), ("blog/compose.yaml", "services: {web: {imag: a}}")]);
    let path = more.path().to_str().unwrap();
    let (code, _, error) = run(nobody, &["config", path]).await;
    assert_eq!((code, error.contains("several applications (blog, shop)")), (2, true), "{error}");
    let (code, out, error) = run(nobody, &["config", path, "--path", "blog"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("did you mean `image`?"), "{error}");
}

#[tokio::test]
async fn help_is_a_word_and_an_option() {
    let (server, _) = served(Access::loopback()).await;
    let (code, whole, _) = run(server, &["help"]).await;
    assert!(code == 0 && whole.contains("Commands:") && whole == run(server, &["--help"]).await.1, "{whole}");
    let (code, text, _) = run(server, &["help", "token", "create"]).await;
    assert!(code == 0 && text == run(server, &["token", "create", "--help"]).await.1, "{text}");
    let (code, _, error) = run(server, &["help", "stauts"]).await;
    assert!(code == 2 && error.contains("'status'"), "{error}");
}

#[tokio::test]
async fn completions_know_the_applications_of_the_agent() {
    let (server, _) = served(Access::loopback()).await;
    assert_eq!(run(server, &["names"]).await, (0, "blog\nshop\n".to_owned(), String::new()));
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("completion");
    fs::write(&script, run(server, &["completion", "bash"]).await.1).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_driftless")).parent().unwrap().display().to_string();
    let complete = async |words: &str, current: &str, before: &str| {
        let text = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _driftless_with_names driftless '{current}' '{before}'; echo \"${{COMPREPLY[*]}}\"",
            script.display()
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &text]).env_clear().env("DRIFTLESS_SERVER", format!("http://{server}"));
        let output = bash.env("PATH", format!("{program}:/usr/bin:/bin")).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert!(complete("driftless stat", "stat", "driftless").await.contains("status"));
    assert!(complete("driftless status ''", "", "status").await.ends_with("blog shop"));
    assert_eq!(complete("driftless rollback sh", "sh", "rollback").await, "shop");
    assert!(!complete("driftless sync shop --timeout s", "s", "--timeout").await.contains("shop"));
    let zsh = run(server, &["completion", "zsh"]).await.1;
    assert!(
        zsh.starts_with("#compdef driftless\n")
            && zsh.contains(":app -- Name of the application:_driftless_names'")
    );
    assert!(run(server, &["completion", "fish"]).await.1.contains("(driftless names 2>/dev/null)"));
}
