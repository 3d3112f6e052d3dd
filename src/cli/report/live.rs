//! The comparison of Git with the live state: by a running agent, or directly at an engine. `driftless drift` and
//! `driftless diff` print its report.

use std::{collections::BTreeSet, path::Path, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::{error::Error, selection::Selection};
use crate::{
    cli::Context, cli::Error as CliError, cli::client::Client, cli::client::SUMMARIES,
    cli::client::application_path, cli::missing::Missing, cli::options::ServerArgs,
};
use driftless_agent::{Inspection, Inspector};
use driftless_config::DockerHost;
use driftless_files::AppSpec;
use driftless_model::{AppName, Application, CommitInfo, Stack};
use driftless_report as report;
use driftless_report::{Kind, Report};

/// Number of parallel requests for applications.
const PARALLEL: usize = 8;

/// The end of the time for a comparison.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    pub(in crate::cli) fn after(timeout: Duration) -> Self {
        Self { at: Instant::now() + timeout, timeout }
    }

    /// Waits for work, but not longer than the deadline.
    pub(in crate::cli) async fn limit<T>(self, work: impl Future<Output = T>) -> Result<T, Error> {
        timeout_at(self.at, work).await.map_err(|_| Error::Timeout(self.timeout))
    }

    fn exceeded(self) -> String {
        format!("it was not observed within {:?}", self.timeout)
    }
}

/// One application to compare with an engine.
pub(in crate::cli) struct Rendered {
    pub(in crate::cli) spec: AppSpec,
    /// The stack, or why it cannot be rendered.
    pub(in crate::cli) stack: Result<Stack, String>,
}

/// Asks an agent for the comparison of each selected application. `against` is the revision to compare with.
pub(in crate::cli) async fn compare_by_agent(
    server: &ServerArgs,
    selection: &Selection,
    against: Option<&str>,
    deadline: Deadline,
    context: &Context<'_>,
) -> Result<Report, CliError> {
    let client = Client::new(server, context.environment)?;
    let mut missing = None;
    if selection.apps.is_empty() {
        missing = Some(deadline.limit(Missing::read(&client)).await??);
    }
    let all = deadline.limit(client.get::<Vec<Application>>(SUMMARIES)).await??;
    selection.check(all.iter().map(|application| application.name.as_str()))?;
    let mut report = Report::new(Kind::Drift);
    report.agent = Some(client.address());
    let mut requests = Vec::new();
    for app in all.iter().filter(|app| selection.includes(app.name.as_str(), &app.spec.path)) {
        let mut path = application_path(app.name.as_str(), "/drift")?;
        if let Some(against) = against {
            path.push_str("?against=");
            path.push_str(&escape(against));
        }
        requests.push((app, path));
    }
    report.errors = missing.map(|missing| uncompared(selection, &missing, &all)).unwrap_or_default();
    let answers: Vec<_> = stream::iter(requests)
        .map(|(app, path)| {
            let client = &client;
            async move { (app, timeout_at(deadline.at, client.get::<Inspection>(&path)).await) }
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    let mut unmanaged = Vec::new();
    for (app, answer) in answers {
        match answer {
            Ok(Ok(inspection)) => {
                unmanaged.extend(unmanaged_by(&inspection));
                report.apps.push(inspection.app);
            }
            Ok(Err(error)) => report.apps.push(failed(&app.name, &app.spec.path, error.to_string())),
            Err(_) => report.apps.push(failed(&app.name, &app.spec.path, deadline.exceeded())),
        }
    }
    report.unmanaged = in_all(unmanaged);
    report.head = common_commit(&report);
    Ok(report)
}

/// The selected things that could not be compared: a folder without applications, applications that the agent does not list.
fn uncompared(selection: &Selection, missing: &Missing, all: &[Application]) -> Vec<String> {
    let mut errors = missing.sentences(all);
    let is_inside = |app: &Application| selection.includes(app.name.as_str(), &app.spec.path);
    match &selection.path {
        Some(folder) if errors.is_empty() && !all.iter().any(is_inside) => {
            errors.push(format!("the agent has no application in the folder {folder}"));
        }
        Some(_) | None => {}
    }
    errors
}

/// An engine to observe without an agent.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct ObservedEngine<'a> {
    pub(in crate::cli) host: &'a DockerHost,
    /// State directory of that host's agent, from which containers mount files.
    pub(in crate::cli) state_dir: &'a Path,
    /// Runtime directory of that host's agent, from which containers mount secrets.
    pub(in crate::cli) runtime_dir: &'a Path,
}

/// Compares rendered applications with an engine. `to` names their version in the diffs.
pub(in crate::cli) async fn compare_with_engine(
    engine: ObservedEngine<'_>,
    applications: Vec<Rendered>,
    to: &str,
    deadline: Deadline,
) -> Result<Report, CliError> {
    let inspector = Inspector::connect(engine.host, engine.state_dir, engine.runtime_dir);
    let inspector = inspector.map_err(Error::Observe)?;
    // Check that the engine answers before reporting its containers.
    deadline.limit(Box::pin(inspector.applications())).await?.map_err(Error::Observe)?;
    let mut report = Report::new(Kind::Drift);
    report.host = Some(engine.host.address.clone());
    let mut unmanaged = Vec::new();
    for Rendered { spec, stack } in applications {
        let stack = match stack {
            Ok(stack) => stack,
            Err(error) => {
                report.apps.push(failed(&spec.name, &spec.path, error));
                continue;
            }
        };
        let labels = report::Context { from: "live", to };
        match timeout_at(deadline.at, Box::pin(inspector.inspect(&spec, &stack, labels))).await {
            Ok(inspection) => {
                unmanaged.extend(unmanaged_by(&inspection));
                report.apps.push(inspection.app);
            }
            Err(_) => report.apps.push(failed(&spec.name, &spec.path, deadline.exceeded())),
        }
    }
    report.unmanaged = in_all(unmanaged);
    Ok(report)
}

/// The containers of no application as one comparison has them. One that failed has not seen the host.
fn unmanaged_by(inspection: &Inspection) -> Option<BTreeSet<String>> {
    let Inspection { app, unmanaged } = inspection;
    (app.error.is_none() || !unmanaged.is_empty()).then(|| unmanaged.clone())
}

/// The containers that each comparison counts as nobody's. Adopted ones carry no label, so without an agent only their own
/// application knows them.
fn in_all(unmanaged: Vec<BTreeSet<String>>) -> Vec<String> {
    let common = unmanaged.into_iter().reduce(|common, names| &common & &names);
    common.unwrap_or_default().into_iter().collect()
}

fn failed(name: &AppName, path: &str, error: String) -> report::App {
    report::App { error: Some(error), ..report::application(name, path) }
}

/// If all applications are compared with the same commit, the report names it once.
fn common_commit(report: &Report) -> Option<CommitInfo> {
    let mut commits = report.apps.iter().map(|it| it.commit.as_ref());
    let first = commits.next()??;
    commits.all(|it| it == Some(first)).then(|| first.clone())
}

/// Escapes a value for the query of a URL.
pub(in crate::cli) fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspection(error: Option<&str>, unmanaged: &[&str]) -> Inspection {
        let app = failed(&"shop".into(), "shop", String::new());
        let app = report::App { error: error.map(str::to_owned), ..app };
        Inspection { app, unmanaged: unmanaged.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn adopted_container_of_another_application_is_not_unmanaged() {
        let shop = inspection(None, &["media-tv-1", "pihole"]);
        let media = inspection(None, &["pihole", "shop-web-1"]);
        let unread = inspection(Some("the engine does not answer"), &[]);
        let seen = [shop, media, unread].iter().filter_map(unmanaged_by).collect();
        assert_eq!(in_all(seen), ["pihole"]);
        assert!(in_all(Vec::new()).is_empty());
    }
}
