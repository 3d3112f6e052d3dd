//! Tests of the commit statuses.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::{Condvar, Mutex},
};

use super::*;
use driftless_config::Secret;
use driftless_model::{Cause, Location, StackHash, Timestamp, Until};
use tokio::time::{sleep, timeout};

fn commit(id: &str) -> CommitInfo {
    CommitInfo { id: CommitId::from_stored(id.repeat(40)), ..CommitInfo::default() }
}

pub(crate) fn revision(id: &str, outcome: Outcome) -> Revision {
    Revision {
        app: "shop".into(),
        number: 4,
        commit: commit(id),
        reference: "main".to_owned(),
        started: Timestamp(1),
        finished: None,
        cause: Cause::Commit,
        outcome,
        stack: StackHash(String::new()),
        changes: Vec::new(),
        images: BTreeMap::new(),
        rollback_of: None,
        actor: None,
        was_reached: false,
    }
}

fn failed_commit(commit: &CommitId) -> FailedCommit {
    FailedCommit {
        commit: commit.clone(),
        stack: StackHash("s".to_owned()),
        revision: 4,
        reason: "web: no progress".to_owned(),
        at: Timestamp(1),
        back_to: Some(3),
        was_reached: false,
        action: None,
        images: None,
    }
}

#[test]
fn pending_status_ends_with_an_application_that_left_git() {
    let status = |state| AppCommitStatus {
        repository: "infra".to_owned(),
        commit: commit("a").id,
        is_older: false,
        state,
        description: "runs".to_owned(),
    };
    let mut statuses = CommitStatuses::from([
        ("shop".into(), status(State::Pending)),
        ("wiki".into(), status(State::Success)),
    ]);
    assert!(end_status(&mut statuses, &"shop".into()));
    assert_eq!(statuses[&"shop".into()].state, State::Error);
    assert_eq!(statuses[&"shop".into()].description, "the application is not in Git any more");
    for app in ["shop", "wiki", "blog"] {
        assert!(!end_status(&mut statuses, &app.into()), "{app}");
    }
    assert_eq!(statuses[&"wiki".into()], status(State::Success));
}

#[test]
fn numbers_in_a_pending_status_are_no_news() {
    let status = |state, description: &str| AppCommitStatus {
        repository: "infra".to_owned(),
        commit: commit("a").id,
        is_older: false,
        state,
        description: description.to_owned(),
    };
    let pending = |description: &str| status(State::Pending, description);
    let third = pending("web: cannot pull its image: denied, attempt 3, next try 03:12:44 UTC");
    let fourth = pending("web: cannot pull its image: denied, attempt 4, next try 03:18:02 UTC");
    assert!(!third.is_news_after(&third) && !fourth.is_news_after(&third));
    assert!(pending("web: cannot pull its image: no such host, attempt 4").is_news_after(&third));
    let of_newer = AppCommitStatus { commit: commit("b").id, ..fourth.clone() };
    assert!(of_newer.is_news_after(&third));
    let failed = |number: u32| status(State::Failure, &format!("revision {number} failed"));
    assert!(failed(4).is_news_after(&third) && failed(5).is_news_after(&failed(4)));
    // The forge gets 140 characters.
    let long = |end: &str| pending(&format!("{}{end}", "web waits; ".repeat(20)));
    assert!(!long("db waits").is_news_after(&long("")));
}

#[test]
fn commit_is_pending_until_it_runs_or_fails() {
    let status = |facts: &StatusFacts<'_>| {
        let CommitResult { of, state, description } = commit_status(facts).unwrap();
        assert_eq!(of, facts.changed);
        (state, description)
    };
    let (a, b) = (commit("a"), commit("b"));
    let in_progress = revision("b", Outcome::InProgress);
    let succeeded = revision("b", Outcome::Succeeded);
    let failed = revision("b", Outcome::Failed { reason: "deadline".to_owned() });
    let applying = StatusFacts {
        invalid: &b.id,
        rendered: &b.id,
        changed: &b.id,
        findings: &[],
        pin: None,
        is_suspended: false,
        health: HealthStatus::Progressing,
        reached: Some(&a),
        revision: Some(&in_progress),
        failed: None,
        held: None,
        message: "manifest unknown",
    };
    assert_eq!(status(&applying), (State::Pending, "being applied".to_owned()));
    let stuck = StatusFacts { health: HealthStatus::Degraded, ..applying.clone() };
    assert_eq!(status(&stuck), (State::Pending, "manifest unknown".to_owned()));
    let reached = StatusFacts {
        reached: Some(&b),
        revision: Some(&succeeded),
        health: HealthStatus::Healthy,
        ..applying.clone()
    };
    assert_eq!(status(&reached), (State::Success, "runs as revision 4".to_owned()));
    // A failure after the rollout is not the commit's fault.
    let degraded = StatusFacts { health: HealthStatus::Degraded, ..reached.clone() };
    assert_eq!(status(&degraded).0, State::Success);
    let failed = StatusFacts { revision: Some(&failed), ..reached.clone() };
    assert_eq!(status(&failed), (State::Failure, "revision 4 failed: deadline".to_owned()));
    let bad = failed_commit(&b.id);
    let rolled_back = StatusFacts { failed: Some(&bad), reached: Some(&a), ..failed.clone() };
    let expected = "revision 4 failed, back at revision 3: web: no progress".to_owned();
    assert_eq!(status(&rolled_back), (State::Failure, expected));
    let waits = "b waits for a sync window".to_owned();
    let held = StatusFacts { held: Some(waits.clone()), ..applying.clone() };
    assert_eq!(status(&held), (State::Pending, waits));
    let unchanged = StatusFacts { revision: None, ..reached.clone() };
    assert_eq!(commit_status(&unchanged), None, "the commit changes nothing for this application");
    let findings = [Finding::error(Location::file("compose.yaml"), "services", "no")];
    let invalid = StatusFacts { findings: &findings, ..reached.clone() };
    assert!(status(&invalid).1.contains("compose.yaml"));
    assert_eq!(status(&invalid).0, State::Failure);
    let pin = PinStatus {
        revision: 3,
        commit: a.id.clone(),
        reason: "orders fail".to_owned(),
        at: Timestamp(1),
        until: Until::Manual,
        behind: None,
        actor: None,
    };
    let pinned = StatusFacts { pin: Some(&pin), ..applying.clone() };
    assert_eq!(status(&pinned), (State::Pending, "pinned to revision 3: orders fail".to_owned()));
    let words = "the application is suspended".to_owned();
    let suspended = StatusFacts { is_suspended: true, ..applying.clone() };
    assert_eq!(status(&suspended), (State::Pending, words.clone()));
    let suspended_and_held = StatusFacts { is_suspended: true, ..held };
    assert_eq!(status(&suspended_and_held), (State::Pending, words));
    let unadopted =
        StatusFacts { health: HealthStatus::Suspended, message: "not adopted", ..applying.clone() };
    assert_eq!(status(&unadopted), (State::Pending, "not adopted".to_owned()));
}

/// A workload that is paused in Git, and a suspension that comes later, change no result.
#[test]
fn result_of_a_commit_outlives_a_pause_and_a_suspension() {
    let (a, b) = (commit("a"), commit("b"));
    let (succeeded, bad) = (revision("b", Outcome::Succeeded), failed_commit(&b.id));
    for is_suspended in [false, true] {
        let good = StatusFacts {
            invalid: &b.id,
            rendered: &b.id,
            changed: &b.id,
            findings: &[],
            pin: None,
            is_suspended,
            health: HealthStatus::Suspended,
            reached: Some(&b),
            revision: Some(&succeeded),
            failed: None,
            held: None,
            message: "web is paused",
        };
        assert_eq!(commit_status(&good).unwrap().state, State::Success);
        let failed = StatusFacts { failed: Some(&bad), reached: Some(&a), ..good };
        assert_eq!(commit_status(&failed).unwrap().state, State::Failure);
    }
}

#[test]
fn commit_that_cannot_be_rendered_has_the_failure_itself() {
    let (a, b) = (commit("a"), commit("b"));
    let succeeded = revision("a", Outcome::Succeeded);
    let findings = [Finding::error(Location::file("driftless.yaml"), "applications", "unknown key")];
    let facts = StatusFacts {
        invalid: &b.id,
        rendered: &a.id,
        changed: &a.id,
        findings: &findings,
        pin: None,
        is_suspended: false,
        health: HealthStatus::Healthy,
        reached: Some(&a),
        revision: Some(&succeeded),
        failed: None,
        held: None,
        message: "",
    };
    let found = commit_status(&facts).unwrap();
    assert_eq!((found.of, found.state), (&b.id, State::Failure));
    // The commit before it runs as it did.
    let found = commit_status(&StatusFacts { findings: &[], ..facts }).unwrap();
    assert_eq!((found.of, found.state), (&a.id, State::Success));
}

#[test]
fn commit_of_other_applications_gets_no_status() {
    let (a, b) = (commit("a"), commit("b"));
    let in_progress = revision("a", Outcome::InProgress);
    // The commit `b` came during the rollout of `a`, and changes nothing for this application.
    let applying = StatusFacts {
        invalid: &b.id,
        rendered: &b.id,
        changed: &a.id,
        findings: &[],
        pin: None,
        is_suspended: false,
        health: HealthStatus::Progressing,
        reached: None,
        revision: Some(&in_progress),
        failed: None,
        held: None,
        message: "",
    };
    let is_of_a = |facts: &StatusFacts<'_>, state: State| {
        let found = commit_status(facts).unwrap();
        assert_eq!((found.of, found.state), (&a.id, state));
    };
    is_of_a(&applying, State::Pending);
    let succeeded = revision("a", Outcome::Succeeded);
    let reached = StatusFacts { reached: Some(&b), revision: Some(&succeeded), ..applying.clone() };
    is_of_a(&reached, State::Success);
    // Drift that is being undone is no rollout.
    is_of_a(&StatusFacts { reached: Some(&a), ..reached.clone() }, State::Success);
    let failed = revision("a", Outcome::Failed { reason: "deadline".to_owned() });
    is_of_a(&StatusFacts { revision: Some(&failed), ..applying.clone() }, State::Failure);
    let bad = failed_commit(&a.id);
    let rolled_back = StatusFacts { failed: Some(&bad), ..applying.clone() };
    is_of_a(&rolled_back, State::Failure);
    let description = commit_status(&rolled_back).unwrap().description;
    assert_eq!(description, "revision 4 failed, back at revision 3: web: no progress");
    is_of_a(&StatusFacts { held: Some("a window".to_owned()), ..applying.clone() }, State::Pending);
    is_of_a(&StatusFacts { is_suspended: true, ..applying.clone() }, State::Pending);
    let pin = PinStatus {
        revision: 1,
        commit: commit("0").id,
        reason: String::new(),
        at: Timestamp(1),
        until: Until::Manual,
        behind: None,
        actor: None,
    };
    is_of_a(&StatusFacts { pin: Some(&pin), revision: None, ..applying.clone() }, State::Pending);
}

#[test]
fn older_commit_gets_a_status_only_if_it_has_one() {
    let (reporter, statuses, _errors) = reporter("http://127.0.0.1:1");
    let publish = |state: State, is_older: bool| {
        let status = AppCommitStatus {
            repository: "infra".to_owned(),
            commit: commit("a").id,
            is_older,
            state,
            description: String::new(),
        };
        statuses.send_replace([("shop".into(), status)].into());
        reporter.store_statuses(&mut CommitStatuses::new());
        let unposted = reporter.store.unposted_statuses("infra").unwrap();
        unposted.into_iter().map(|stored| stored.state).collect::<Vec<_>>()
    };
    assert_eq!(publish(State::Success, true), Vec::<String>::new());
    assert_eq!(publish(State::Pending, false), ["pending"]);
    assert_eq!(publish(State::Success, true), ["success"]);
}

#[test]
fn only_statuses_that_have_changed_are_stored_again() {
    let (reporter, statuses, _errors) = reporter("http://127.0.0.1:1");
    let pending = AppCommitStatus {
        repository: "infra".to_owned(),
        commit: commit("a").id,
        is_older: false,
        state: State::Pending,
        description: String::new(),
    };
    let ended = AppCommitStatus { state: State::Success, ..pending.clone() };
    let both = |shop: &AppCommitStatus| {
        CommitStatuses::from([("blog".into(), pending.clone()), ("shop".into(), shop.clone())])
    };
    let mut known = both(&pending);
    statuses.send_replace(both(&ended));
    reporter.store_statuses(&mut known);
    let unposted = reporter.store.unposted_statuses("infra").unwrap();
    let contexts: Vec<&str> = unposted.iter().map(|stored| stored.context.as_str()).collect();
    assert_eq!(contexts, ["driftless/shop"]);
    assert_eq!(known, both(&ended));
}

/// A forge that answers a status of each commit, by the first letter of its id, with this code; others with 201.
#[derive(Clone, Default)]
struct AnsweringForge {
    codes: Arc<Mutex<BTreeMap<char, u16>>>,
    /// The first letter of each commit that a status was posted for.
    posted: Arc<Mutex<String>>,
    /// Lines of the head of each answer.
    headers: Arc<Mutex<String>>,
    /// Whether the next answer is held back.
    held: Arc<(Mutex<bool>, Condvar)>,
}

impl AnsweringForge {
    fn start() -> (Self, String) {
        let forge = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let answering = forge.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answering.answer(stream.unwrap());
            }
        });
        (forge, api)
    }

    fn answer(&self, mut stream: std::net::TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut length, mut commit) = (0, ' ');
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some((_, id)) = line.split_once("/statuses/") {
                commit = id.chars().next().unwrap();
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        self.posted.lock().unwrap().push(commit);
        let (held, released) = &*self.held;
        drop(released.wait_while(held.lock().unwrap(), |is_held| *is_held).unwrap());
        let code = self.codes.lock().unwrap().get(&commit).copied().unwrap_or(201);
        let headers = self.headers.lock().unwrap().clone();
        let answer =
            format!("HTTP/1.1 {code} Answer\r\n{headers}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        stream.write_all(answer.as_bytes()).unwrap();
    }

    fn refuse(&self, commit: char, code: u16) {
        self.codes.lock().unwrap().insert(commit, code);
    }

    /// Refuses a status of this commit, with these lines in the head of the answer.
    fn limit(&self, commit: char, code: u16, headers: &str) {
        self.refuse(commit, code);
        headers.clone_into(&mut self.headers.lock().unwrap());
    }

    fn hold(&self, is_held: bool) {
        *self.held.0.lock().unwrap() = is_held;
        self.held.1.notify_all();
    }

    fn has_got(&self, posts: &str) -> bool {
        *self.posted.lock().unwrap() == posts
    }

    fn take(&self) -> String {
        std::mem::take(&mut self.posted.lock().unwrap())
    }
}

fn reporter(api: &str) -> (StatusReporter, watch::Sender<CommitStatuses>, watch::Receiver<StatusErrors>) {
    let (statuses, of_applications) = watch::channel(CommitStatuses::default());
    let (errors, published) = watch::channel(StatusErrors::default());
    let reporter = StatusReporter {
        repository: "infra".to_owned(),
        settings: CommitStatus {
            provider: StatusProvider::GitHub,
            token: Secret::Environment("TOKEN".to_owned()),
            api: api.to_owned(),
            project: "me/infra".to_owned(),
            context: "driftless".to_owned(),
        },
        connection: Connection::default(),
        statuses: of_applications,
        errors: Arc::new(errors),
        store: Store::in_memory(Clock::System).unwrap(),
        environment: Arc::new(|_| Some("t0ken".to_owned())),
        clock: Clock::System,
    };
    (reporter, statuses, published)
}

impl StatusReporter {
    fn set(&self, commit: &str, app: &str, state: State) {
        let status = StoredStatus {
            commit: CommitId::from_stored(commit.repeat(40)),
            context: format!("driftless/{app}"),
            state: state_name(state).to_owned(),
            description: String::new(),
        };
        self.store.set_status("infra", &status).unwrap();
    }
}

#[tokio::test]
async fn status_of_a_commit_that_the_forge_lacks_is_given_up() {
    let (forge, api) = AnsweringForge::start();
    let (reporter, _statuses, _errors) = reporter(&api);
    for code in [400, 404, 422] {
        let app = format!("app-{code}");
        forge.refuse('a', code);
        reporter.set("a", &app, State::Success);
        // Alone, it may be the fault of the token.
        reporter.post().await.unwrap_err();
        reporter.post().await.unwrap_err();
        reporter.set("b", &app, State::Success);
        reporter.post().await.unwrap();
        reporter.set("b", &app, State::Failure);
        reporter.post().await.unwrap();
        assert_eq!(forge.take(), "aaabb", "{code}");
    }
    // A forge that is busy or forbids to write accepts the status later.
    for code in [403, 503] {
        forge.refuse('c', code);
        reporter.set("c", &format!("app-{code}"), State::Success);
        reporter.set("d", &format!("app-{code}"), State::Success);
        reporter.post().await.unwrap_err();
        forge.refuse('c', 201);
        reporter.post().await.unwrap();
        assert_eq!(forge.take(), "cdc", "{code}");
    }
}

#[tokio::test]
async fn forge_that_limits_requests_is_left_alone() {
    let (forge, api) = AnsweringForge::start();
    let (reporter, _statuses, errors) = reporter(&api);
    for app in ["blog", "shop", "wiki"] {
        reporter.set("a", app, State::Success);
    }
    let date = "Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
    let by_date = format!("{date}Retry-After: Thu, 01 Jan 2026 00:10:00 GMT\r\n");
    let used_up = format!("{date}X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1767226500\r\n");
    for (code, headers, pause) in [
        (429, "Retry-After: 60\r\n", Duration::from_mins(1)),
        (403, by_date.as_str(), Duration::from_mins(10)),
        (403, used_up.as_str(), Duration::from_mins(15)),
        (503, "Retry-After: 86400\r\n", Duration::from_hours(1)),
    ] {
        forge.limit('a', code, headers);
        let error = reporter.post().await.unwrap_err();
        assert_eq!(forge.take(), "a", "one request: {headers}");
        assert_eq!(reporter.fail(&error, 1), pause, "{headers}");
        let shown = errors.borrow().get("infra").map(|error| error.reason);
        let is_long = pause >= LONG_PAUSE;
        assert_eq!(shown, is_long.then_some("ForgeUnavailable"), "a short limit passes: {headers}");
        reporter.set_error(None);
    }
    // Short ones add up.
    forge.limit('a', 429, "Retry-After: 60\r\n");
    let error = reporter.post().await.unwrap_err();
    reporter.fail(&error, 5);
    assert!(errors.borrow().is_empty(), "{errors:?}");
    reporter.fail(&error, 6);
    assert_eq!(errors.borrow()["infra"].reason, "ForgeUnavailable");
    // One that does not say for how long is a limit as well.
    forge.limit('a', 429, "");
    reporter.post().await.unwrap_err();
    assert_eq!(forge.take(), "aa");
    // The limit is over.
    forge.limit('a', 201, "");
    reporter.post().await.unwrap();
    assert_eq!(forge.take(), "aaa");
}

#[tokio::test]
async fn forge_that_refuses_the_token_gets_one_request_each_time() {
    let (forge, api) = AnsweringForge::start();
    let (reporter, _statuses, errors) = reporter(&api);
    for app in ["blog", "shop", "wiki"] {
        reporter.set("a", app, State::Success);
    }
    forge.refuse('a', 401);
    let error = reporter.post().await.unwrap_err();
    assert_eq!(forge.take(), "a");
    assert_eq!(reporter.fail(&error, 1), REFUSED_PAUSE);
    assert_eq!(errors.borrow()["infra"].reason, "Refused");
}

/// Waits until something is so, for at most ten seconds.
async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), wait).await.unwrap();
}

#[tokio::test]
async fn status_that_ends_during_a_post_keeps_its_result() {
    let (forge, api) = AnsweringForge::start();
    let (reporter, statuses, _errors) = reporter(&api);
    let store = reporter.store.clone();
    let publish = |app: &str, id: &str, state: State| {
        let status = AppCommitStatus {
            repository: "infra".to_owned(),
            commit: commit(id).id,
            is_older: false,
            state,
            description: String::new(),
        };
        statuses.send_modify(|all| _ = all.insert(app.into(), status));
    };
    let waiting = || {
        let unposted = store.unposted_statuses("infra").unwrap();
        let shop = unposted.into_iter().filter(|stored| stored.context == "driftless/shop");
        shop.map(|stored| (stored.commit.short().to_owned(), stored.state)).collect::<Vec<_>>()
    };
    let entry = |id: &str, state: &str| (commit(id).id.short().to_owned(), state.to_owned());
    publish("shop", "a", State::Pending);
    let stop = CancellationToken::new();
    let running = tokio::spawn(reporter.run(stop.clone()));
    until(|| forge.has_got("a") && waiting().is_empty()).await;
    // The forge is slow with the status of another application.
    forge.hold(true);
    publish("blog", "c", State::Pending);
    until(|| forge.has_got("ac")).await;
    publish("shop", "a", State::Success);
    until(|| waiting() == [entry("a", "success")]).await;
    publish("shop", "b", State::Pending);
    until(|| waiting().contains(&entry("b", "pending"))).await;
    assert!(waiting().contains(&entry("a", "success")), "{:?}", waiting());
    // Both are posted without another change.
    forge.hold(false);
    until(|| waiting().is_empty()).await;
    assert_eq!(forge.take(), "acab");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn refused_end_of_an_older_status_is_given_up() {
    let (forge, api) = AnsweringForge::start();
    let (reporter, _statuses, _errors) = reporter(&api);
    reporter.set("a", "shop", State::Pending);
    reporter.post().await.unwrap();
    // The token has lost its right: nothing is given up.
    reporter.set("b", "shop", State::Pending);
    forge.refuse('a', 404);
    forge.refuse('b', 404);
    reporter.post().await.unwrap_err();
    assert_eq!(reporter.store.unposted_statuses("infra").unwrap().len(), 2);
    // The forge failed before it got the first one, and has the second one.
    forge.refuse('a', 503);
    forge.refuse('b', 201);
    reporter.post().await.unwrap_err();
    forge.refuse('a', 404);
    reporter.post().await.unwrap();
    assert_eq!(reporter.store.unposted_statuses("infra").unwrap(), []);
    assert_eq!(forge.take(), "aababa");
}

#[tokio::test(start_paused = true)]
async fn forge_that_stays_unreachable_is_reported_until_it_answers() {
    let (mut reporter, statuses, mut errors) = reporter("http://127.0.0.1:1");
    reporter.connection.proxy = config::Proxy::Direct;
    reporter.set("a", "shop", State::Success);
    let store = reporter.store.clone();
    let stop = CancellationToken::new();
    let running = tokio::spawn(reporter.run(stop.clone()));
    sleep(Duration::from_mins(2)).await;
    assert!(errors.borrow().is_empty(), "a short interruption is not reported: {errors:?}");
    let shown = errors.wait_for(|errors| !errors.is_empty());
    let shown = timeout(Duration::from_mins(30), shown).await.unwrap().unwrap().clone();
    let error = &shown["infra"];
    assert_eq!(error.reason, "ForgeUnavailable");
    assert!(error.message.contains("127.0.0.1 is unreachable"), "{}", error.message);
    // There is nothing to post any more, which ends the failures as an accepted status does.
    store.give_up_status("infra", &store.unposted_statuses("infra").unwrap()[0]).unwrap();
    let ended = errors.wait_for(BTreeMap::is_empty);
    timeout(Duration::from_mins(30), ended).await.unwrap().unwrap();
    stop.cancel();
    running.await.unwrap();
    drop(statuses);
}
