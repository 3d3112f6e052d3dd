//! The log: its lines in a test, as `driftless run --log-format json` writes them, and the fields that they have.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, LazyLock, Mutex},
};

use driftless::cli::{LogFormat, LogLine};
use driftless_agent::{RequestKind, Rollback};
use driftless_docker::UserAction;
use driftless_model::{Actor, ActorKind, Application, Until};
use serde_json::Value;
use tracing::{
    Dispatch,
    subscriber::{DefaultGuard, NoSubscriber},
};
use tracing_subscriber::fmt::{MakeWriter, format::JsonFields};

use crate::simulation::{Simulation, minutes};

/// The lines of the log of this thread, while the guard lives.
#[derive(Clone, Default)]
pub(crate) struct LogLines(Arc<Mutex<Vec<u8>>>);

/// A second dispatcher, which takes nothing. With a single one `tracing` asks the thread that reaches a callsite first, and if
/// that is one of another test, which has no subscriber, the callsite stays off for this thread, too.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

impl LogLines {
    pub(crate) fn of_this_thread() -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND);
        let lines = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .fmt_fields(JsonFields::new())
            .event_format(LogLine::new(LogFormat::Json))
            .with_writer(lines.clone());
        let guard = tracing::subscriber::set_default(subscriber.finish());
        (lines, guard)
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        let text = self.0.lock().unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }
}

impl io::Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

const COMPOSE: &str = "services:\n  web:\n    image: web:1\n    healthcheck: {test: check}\n";

/// Lines about the agent, the engine or a repository, which concern every application.
const OF_NO_APPLICATION: [&str; 3] =
    ["the engine does not answer", "the engine answers again", "could not read the repository"];

#[tokio::test(start_paused = true)]
async fn line_about_an_application_names_it_with_its_round() {
    let (log, _guard) = LogLines::of_this_thread();
    let it = Simulation::of(COMPOSE);
    it.synced_with_tip().await;
    it.git.push(&COMPOSE.replace("web:1", "web:2"));
    it.synced_with_tip().await;
    // Drift, a rollback by somebody, a start that fails, an engine and a Git server that do not answer, a failed commit.
    let by = async |person: &str, kind: RequestKind| {
        let handle = it.handle().acting_for(&Actor::new(ActorKind::User, person));
        handle.request(it.app(), kind).await.unwrap();
    };
    let name = it.docker.observed(&it.app()).instances.values().next().unwrap().name.clone();
    it.hand(&UserAction::Stop { name });
    minutes(1).await;
    let rollback = Rollback { to: None, reason: "orders fail".to_owned(), until: Until::Manual };
    by("ada", RequestKind::Rollback(rollback)).await;
    minutes(1).await;
    by("bob", RequestKind::Resume).await;
    minutes(1).await;
    it.docker.faults(|faults| faults.failing_starts = Some((2, "no room for it".to_owned())));
    it.git.push(&COMPOSE.replace("web:1", "web:3"));
    minutes(3).await;
    it.docker.faults(|faults| faults.failing_calls = 3);
    it.git.down(true);
    let name = it.docker.observed(&it.app()).instances.values().next().unwrap().name.clone();
    it.hand(&UserAction::Remove { name });
    minutes(3).await;
    it.git.down(false);
    it.docker.faults(|faults| _ = faults.unhealthy.insert("web:4".to_owned()));
    it.git.push(&COMPOSE.replace("web:1", "web:4"));
    let failed = |shop: &Application| shop.status.waits.iter().any(|it| it.reason == "CommitFailed");
    it.until("the commit has failed", failed).await;

    let lines: Vec<Value> = log.all().into_iter().filter(|line| line["level"] != "DEBUG").collect();
    let mut said = BTreeSet::new();
    for line in &lines {
        let message = line["message"].as_str().unwrap();
        said.insert(message.to_owned());
        if OF_NO_APPLICATION.contains(&message) || line.get("repository").is_some() {
            assert!(line.get("app").is_none() && line.get("round").is_none(), "{line}");
            continue;
        }
        assert_eq!(line["app"], "shop", "{line}");
        assert!(line["round"].is_u64() && line["revision"].is_u64(), "{line}");
        let actor = match line["revision"].as_u64().unwrap() {
            3 => Some("user ada"),
            4 => Some("user bob"),
            _ => None,
        };
        assert_eq!(line.get("actor").and_then(Value::as_str), actor, "{line}");
    }
    for expected in [
        "revision begun",
        "revision synced",
        "revision failed",
        "step done",
        "step failed",
        "drift detected",
        "the commit failed",
    ] {
        assert!(said.contains(expected), "{expected}: {said:#?}");
    }
}
