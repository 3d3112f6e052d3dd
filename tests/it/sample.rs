//! Applications as an agent would publish them, a moment after `NOW`, and an agent's side that answers.

use std::{collections::BTreeMap, pin, sync::Arc};

use driftless_agent::{
    Answer, DryRun, Handle, Inbox, Inspection, Logs, Readiness, Request, RequestError, RequestKind,
};
use driftless_clock::Clock;
use driftless_docker::{LogOptions, LogStream};
use driftless_files::AppSpec;
use driftless_model::{
    Actor, ActorKind, Answered, AppName, Application, ApplicationSpec, ApplicationStatus, CommitId,
    CommitInfo, ConditionStatus, Drift, DriftAction, EffectiveSetting, Event, EventKind, ExitStatus, Finding,
    Format, HealthStatus, InstanceStatus, Location, Operation, OperationPhase, Pin, PinStatus, Policy,
    StatusCondition, SyncStatus, Timestamp, Until, WaitStatus, WorkloadStatus,
};
use driftless_report as report;
use driftless_store::{FleetBounds, FleetChange, Store, StoredHost};

/// 2026-01-01T12:00:00Z
pub(crate) const NOON: Timestamp = Timestamp(1_767_268_800_000);

pub(crate) const NOW: Timestamp = Timestamp(1_767_225_600_000);

pub(crate) fn before(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 - seconds * 1000)
}

pub(crate) fn commit(id: char, subject: &str) -> CommitInfo {
    CommitInfo {
        id: CommitId::from_stored(id.to_string().repeat(40)),
        author: "Ada <ada@example.com>".to_owned(),
        subject: subject.to_owned(),
        time: before(7200),
    }
}

/// The manifests of the application `shop`, which are in `path`.
pub(crate) fn manifests(path: &str, files: &[&str]) -> AppSpec {
    AppSpec { path: path.to_owned(), has_listed_files: false, ..AppSpec::kubernetes("shop", files) }
}

/// The condition of an application that left Git.
pub(crate) fn not_in_git() -> StatusCondition {
    let text = |it: &str| it.to_owned();
    StatusCondition {
        kind: text("InGit"),
        status: ConditionStatus::False,
        reason: text("NotInGit"),
        message: text("Git does not have it any more"),
        last_transition_time: before(60),
    }
}

/// All is well.
pub(crate) fn shop() -> Application {
    let instance = |slot: u32| InstanceStatus {
        name: format!("shop-web-{slot}"),
        container: slot.to_string().repeat(64),
        slot,
        state: "Running".to_owned(),
        ready: true,
        available: true,
        updated: true,
        restarts: slot - 1,
        since: Some(before(3600)),
        message: String::new(),
        spec: "0a1b2c3d".to_owned(),
        ports: vec![format!("127.0.0.1:808{slot}→8080/tcp")],
        ..InstanceStatus::default()
    };
    let web = WorkloadStatus {
        health: HealthStatus::Healthy,
        reason: String::new(),
        message: String::new(),
        image: "registry.example.com/shop/web:1.4.2".to_owned(),
        replicas: 2,
        updated_replicas: 2,
        ready_replicas: 2,
        available_replicas: 2,
        conditions: Vec::new(),
        instances: vec![instance(1), instance(2)],
        origin: "sites/shop/compose.yaml:3".to_owned(),
        ..WorkloadStatus::default()
    };
    let status = ApplicationStatus {
        observed_generation: 4,
        sync: SyncStatus::Synced,
        health: HealthStatus::Healthy,
        revision: Some(4),
        commit: Some(commit('a', "Serve the spring catalogue")),
        conditions: vec![StatusCondition {
            kind: "Available".to_owned(),
            status: ConditionStatus::True,
            reason: "MinimumReplicasAvailable".to_owned(),
            message: "2 of 2 are available".to_owned(),
            last_transition_time: before(3600),
        }],
        workloads: Arc::new(BTreeMap::from([("web".into(), web)])),
        last_plan: Arc::new(vec!["start shop-web-2: it was created and not yet started".to_owned()]),
        last_plan_at: Some(before(3600)),
        observed_at: Some(before(2)),
        fetched_at: Some(before(25)),
        ..ApplicationStatus::default()
    };
    Application { name: "shop".into(), spec: spec("sites/shop"), generation: 4, status }
}

/// The container of one instance ends again and again.
pub(crate) fn crashing() -> Application {
    let mut application = shop();
    application.name = "crash".into();
    application.status.health = HealthStatus::Degraded;
    application.status.message = "web: CrashLoopBackOff".to_owned();
    let workloads = Arc::make_mut(&mut application.status.workloads);
    for workload in workloads.values_mut() {
        workload.health = HealthStatus::Degraded;
        for instance in workload.instances.iter_mut().take(1) {
            (instance.ready, instance.available, instance.restarts) = (false, false, 7);
            instance.state = "Waiting".to_owned();
            instance.message = "exited with code 3; next start in 40s".to_owned();
            instance.exit = Some(ExitStatus { code: 3, finished: before(20), out_of_memory: false });
        }
    }
    application
}

/// Containers that print the same two lines.
pub(crate) struct LastWords;

impl Logs for LastWords {
    fn open<'a>(
        &'a self,
        _: &'a str,
        _: &'a LogOptions,
    ) -> pin::Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        let lines = ["connecting to db:5432\n", "fatal: password of <orders> was refused\n"];
        let lines: LogStream = Box::pin(futures_util::stream::iter(lines.map(|line| Ok(line.into()))));
        Box::pin(std::future::ready(Ok(lines)))
    }
}

/// A status in which everything that can be wrong is wrong.
pub(crate) fn blog() -> Application {
    let web = WorkloadStatus {
        health: HealthStatus::Degraded,
        reason: "ImagePullBackOff".to_owned(),
        message: "the new image is not there".to_owned(),
        image: "registry.example.com/blog:2.0.0".to_owned(),
        replicas: 1,
        updated_replicas: 0,
        ready_replicas: 1,
        available_replicas: 1,
        conditions: Vec::new(),
        instances: vec![InstanceStatus {
            name: "blog-web-1".to_owned(),
            container: "b".repeat(64),
            slot: 1,
            state: "Exited (137)".to_owned(),
            ready: false,
            available: false,
            updated: false,
            restarts: 7,
            since: Some(before(90)),
            message: "out of memory".to_owned(),
            spec: "99999999".to_owned(),
            ports: Vec::new(),
            ..InstanceStatus::default()
        }],
        origin: "sites/blog/compose.yaml:2".to_owned(),
        ..WorkloadStatus::default()
    };
    let status = ApplicationStatus {
        observed_generation: 2,
        sync: SyncStatus::OutOfSync,
        health: HealthStatus::Degraded,
        message: "web: image registry.example.com/blog:2.0.0 <cannot> be pulled".to_owned(),
        operation: Some(Operation {
            phase: OperationPhase::Waiting,
            revision: Some(2),
            message: "waiting for the image of web".to_owned(),
            started: before(60),
            finished: None,
            outcome: None,
            attempt: 3,
            next_retry_at: Some(NOW.after(std::time::Duration::from_secs(18))),
        }),
        revision: Some(1),
        commit: Some(commit('b', "First <script>alert('post')</script>")),
        pin: Some(PinStatus {
            revision: 1,
            commit: CommitId::from_stored("b".repeat(40)),
            reason: "orders fail".to_owned(),
            at: before(600),
            until: Until::NextCommit,
            behind: Some(2),
            actor: Some(Actor::new(ActorKind::User, "ada")),
        }),
        workloads: Arc::new(BTreeMap::from([("web".into(), web)])),
        findings: vec![
            Finding::warning(
                Location::new("sites/blog/compose.yaml", 9, 5),
                "services.web.links",
                "`links` is ignored",
            )
            .help("services of one network find each other by name"),
        ],
        waits: vec![WaitStatus {
            reason: "ImagePullBackOff".to_owned(),
            object: "web".to_owned(),
            message: "registry.example.com/blog:2.0.0: manifest unknown".to_owned(),
            attempt: Some(3),
            until: Some(NOW.after(std::time::Duration::from_secs(18))),
        }],
        drift: vec![Drift {
            kind: "container".to_owned(),
            object: "blog-web-1".to_owned(),
            workload: Some("web".into()),
            field: "state".to_owned(),
            want: "running".to_owned(),
            found: "exited".to_owned(),
            at: Some(before(3)),
            action: DriftAction::Heal,
        }],
        observed_at: Some(before(1)),
        fetched_at: Some(before(40)),
        ..ApplicationStatus::default()
    };
    Application { name: "blog".into(), spec: spec("sites/blog"), generation: 2, status }
}

fn spec(path: &str) -> ApplicationSpec {
    ApplicationSpec {
        repository: "infra".to_owned(),
        url: "https://git.example.com/me/infra.git".to_owned(),
        reference: "main".to_owned(),
        path: path.to_owned(),
        format: Some(Format::Compose),
        policy: Policy::default(),
        commit: None,
    }
}

/// A delivery of a webhook that is not fetched yet.
pub(crate) fn delivery(id: &str) -> driftless_model::Delivery {
    driftless_model::Delivery {
        id: id.to_owned(),
        at: NOW,
        provider: driftless_model::WebhookProvider::GitHub,
        event: "push".to_owned(),
        reference: Some("refs/heads/main".to_owned()),
        commit: None,
        maybe_other_branch: false,
        from: "192.0.2.1".to_owned(),
        result: driftless_model::DeliveryResult::Accepted,
        message: String::new(),
        outcome: None,
    }
}

pub(crate) fn event(app: &str, reason: &str, message: &str) -> Event {
    Event {
        sequence: 0,
        at: before(5),
        app: app.into(),
        kind: if reason == "BackOff" { EventKind::Warning } else { EventKind::Normal },
        reason: reason.to_owned(),
        object: "web.1".to_owned(),
        message: message.to_owned(),
        actor: None,
    }
}

/// The agent's side: what was published, and what is kept.
pub(crate) struct Agent {
    pub(crate) handle: Handle,
    pub(crate) store: Store,
    pub(crate) inbox: Inbox,
}

/// An agent that is ready and manages `applications`.
pub(crate) fn agent(applications: impl IntoIterator<Item = Application>) -> Agent {
    let (handle, inbox) = Handle::new();
    let store = Store::in_memory(Clock::starting_at(NOW)).unwrap();
    inbox.readiness.send_replace(Readiness {
        docker: true,
        repositories: true,
        state: true,
        message: String::new(),
    });
    publish(&inbox, applications);
    Agent { handle, store, inbox }
}

pub(crate) fn publish(inbox: &Inbox, applications: impl IntoIterator<Item = Application>) {
    let applications = applications.into_iter().map(|it| (it.name.clone(), Arc::new(it))).collect();
    inbox.applications.send_replace(Arc::new(applications));
}

/// Stores the last report of a host, as a collector does.
pub(crate) fn keep_report(store: &Store, host: StoredHost) {
    let bounds = FleetBounds { hosts: 10, bytes: 1 << 20 };
    let name = host.name.clone();
    store.change_fleet_host(&name, bounds, |_| (FleetChange::Report(host), Vec::new(), ())).unwrap().unwrap();
}

impl Agent {
    /// Keeps an event and tells it, as the agent does.
    pub(crate) fn happens(&self, event: Event) -> Event {
        let event = self.store.append_event(event).unwrap();
        let _ = self.inbox.events.send(event.clone());
        event
    }
}

/// A container that somebody stopped.
pub(crate) fn stopped() -> report::Item {
    report::Item {
        kind: "container".to_owned(),
        name: "blog-web-1".to_owned(),
        change: report::Type::Stopped,
        path: "state".to_owned(),
        want: "running".to_owned(),
        got: "exited (137)".to_owned(),
        masked: false,
        file: "sites/blog/compose.yaml".to_owned(),
        line: 2,
        action: Some(report::Action::Heal),
        first_seen: Some(before(30)),
        ignored: None,
        labels: BTreeMap::new(),
    }
}

/// Answers requests as an agent would that has nothing else to do, and lists them.
pub(crate) async fn answer(mut inbox: Inbox, seen: Arc<std::sync::Mutex<Vec<(AppName, RequestKind)>>>) {
    loop {
        let request = tokio::select! {
            Some(reply) = inbox.recoveries.recv() => {
                let _ = reply.send(Ok(vec!["new commits are applied again".to_owned()]));
                continue;
            }
            request = inbox.requests.recv() => request,
        };
        let Some(Request { app, kind, reply, .. }) = request else { return };
        seen.lock().unwrap().push((app.clone(), kind.clone()));
        let answer = match kind {
            RequestKind::Plan | RequestKind::PlanAfter(_) | RequestKind::Drift(_)
                if app.as_str() == "broken" =>
            {
                Err(RequestError::Refused(format!("{app} has no commit that can be applied")))
            }
            RequestKind::Sync => {
                let applications = inbox.applications.borrow().clone();
                // The commit that is fetched does not have this one any more.
                let is_kept = |known: &&Arc<Application>| known.name != app || app.as_str() != "leaving";
                let newer = applications.values().filter(is_kept).map(|application| {
                    let mut application = application.as_ref().clone();
                    application.status.fetched_at = Some(NOW);
                    application.status.answered = Answered { by_round: u64::MAX, by_fetch: u64::MAX };
                    application.status.observed_at = Some(NOW);
                    application
                });
                publish(&inbox, newer.collect::<Vec<_>>());
                Ok(Answer::Accepted)
            }
            RequestKind::Resume
            | RequestKind::AcceptRewrite(_)
            | RequestKind::Prune
            | RequestKind::Retry
            | RequestKind::Heal
            | RequestKind::UpdateImages
            | RequestKind::Remove(_)
            | RequestKind::ForceRemove(_)
            | RequestKind::Forget
            | RequestKind::Restart(_)
            | RequestKind::CreateJob(..)
            | RequestKind::DeleteJob(_)
            | RequestKind::Pause(_)
            | RequestKind::Unpause(_)
            | RequestKind::Scale(_)
            | RequestKind::ResetScale(_)
            | RequestKind::Promote(_)
            | RequestKind::Abort
            | RequestKind::DeleteInstance(_) => Ok(Answer::Accepted),
            RequestKind::Suspend => Err(RequestError::Refused(format!("`{app}` is suspended already"))),
            RequestKind::Rollback(rollback) => Ok(Answer::Pinned {
                note: (rollback.reason == "suspended").then(|| format!("{app} is suspended")),
                pin: Pin {
                    revision: rollback.to.and_then(|it| it.parse().ok()).unwrap_or(3),
                    commit: CommitId::from_stored("c".repeat(40)),
                    reason: rollback.reason,
                    at: NOW,
                    until: rollback.until,
                    skip: None,
                    skip_stack: None,
                    actor: None,
                },
            }),
            RequestKind::Drift(_) => {
                let mut it = report::application(&app, &format!("sites/{app}"));
                if app.as_str() == "blog" {
                    it.items.push(stopped());
                    it.diffs.push(report::ObjectDiff {
                        kind: "container".to_owned(),
                        name: "blog-web-1".to_owned(),
                        text: "--- live\n+++ git\n@@ -1 +1 @@\n-image: blog:1.0.0\n+image: blog:2.0.0\n"
                            .to_owned(),
                    });
                }
                let unmanaged = std::collections::BTreeSet::from(["pihole".to_owned()]);
                Ok(Answer::Drift(Box::new(Inspection { app: it, unmanaged })))
            }
            RequestKind::Adopt => {
                Ok(Answer::Adopted(vec!["container shop-web-1: as in Git, keeps running".to_owned()]))
            }
            RequestKind::Settings => Ok(Answer::Settings(vec![EffectiveSetting {
                key: "selfHeal".to_owned(),
                value: "false".to_owned(),
                origin: Some(Location::new("sites/driftless.yaml", 3, 5)),
                in_git: true,
            }])),
            RequestKind::Plan if app.as_str().starts_with("compose") => Ok(Answer::Plan(DryRun {
                adoption: vec![format!("container {app}-web-1: as in Git, keeps running")],
                adoption_obstacles: (app.as_str() == "compose-old")
                    .then(|| "compose-old-db-1 cannot be adopted".to_owned())
                    .into_iter()
                    .collect(),
                ..DryRun::default()
            })),
            RequestKind::Plan | RequestKind::PlanAfter(_) => Ok(Answer::Plan(DryRun {
                way_out: None,
                suspended: false,
                adoption: Vec::new(),
                rounds: vec![
                    vec!["pull image blog:2.0.0: Git asks for it and it is not there".to_owned()],
                    vec![
                        "stop blog-web-1: its specification in Git is another".to_owned(),
                        "create blog-web-1: its specification in Git is another".to_owned(),
                    ],
                ],
                adoption_obstacles: Vec::new(),
                waits: vec!["web: another container holds port 80".to_owned()],
            })),
        };
        let _ = reply.send(answer);
    }
}
