//! `driftless fleet request`: asks an enrolled host to do something.

use std::collections::BTreeSet;

use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser as _};

use driftless_fleet::FleetStatus;
use driftless_model::{AppName, HostIdentity, HostRequestKind, matches_star_and_question};
use driftless_web::{FleetKeys, FleetRequest, FleetRequestBody};

use super::remove::NoHostName;
use crate::cli::{
    client::{self, Client},
    context::{Context, ExitStatus},
    error::{CommandError, Error},
    options::ServerArgs,
    screen::plain,
};

/// Ask enrolled hosts to sync, suspend, resume or roll back applications.
///
/// Runs on the collector and needs the scope admin. A host gets the request with the answer to its next report. It does only
/// what `fleet.allowRequests` in its configuration allows, and each request at most once. `driftless fleet requests` shows the
/// results.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0  every request was made
  2  error: one request or more was not made

Examples:
  driftless fleet request nas sync shop mail
  driftless fleet request 'edge-*' suspend shop --dry-run
  driftless fleet request nas rollback shop --to 3 --expires 10m")]
pub(in crate::cli) struct FleetRequestArgs {
    /// Name of the host, or a pattern with `*` and `?`: all enrolled hosts that match and have the application.
    host: String,
    /// Kind of the request.
    #[arg(value_parser = PossibleValuesParser::new(HostRequestKind::ALL.map(|(word, _)| word)).map(|word| kind(&word)))]
    kind: HostRequestKind,
    /// Names of the applications.
    #[arg(value_name = "APP", required = true)]
    apps: Vec<String>,
    /// Revision or commit of a rollback [default: the one before]
    #[arg(long, value_name = "REVISION")]
    to: Option<String>,
    /// Time in which the request is sent, at most 7d.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    expires: String,
    /// Show which hosts would be asked, and ask none.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// A pattern that no enrolled host with these applications matches. Nothing was requested.
#[derive(Debug, thiserror::Error)]
#[error("no enrolled host that matches `{pattern}` has {applications}")]
struct NoHostMatches {
    pattern: String,
    applications: String,
}

impl CommandError for NoHostMatches {
    fn help(&self) -> Option<String> {
        Some("`driftless fleet keys` lists the enrolled hosts, and `driftless fleet status` their applications".to_owned())
    }
}

/// Requests that were not made. The reasons were shown.
#[derive(Debug, thiserror::Error)]
#[error("{refused} of {all} requests were not made")]
struct NotAllMade {
    refused: usize,
    all: usize,
}

impl CommandError for NotAllMade {
    fn help(&self) -> Option<String> {
        let help = "the others were: `driftless fleet requests` lists them, and `--cancel` cancels one";
        (self.refused < self.all).then(|| help.to_owned())
    }
}

/// The kind of a word that the parser has accepted.
fn kind(word: &str) -> HostRequestKind {
    let found = HostRequestKind::ALL.into_iter().find(|(known, _)| *known == word);
    found.map_or(HostRequestKind::Sync, |(_, kind)| kind)
}

pub(super) async fn request(args: &FleetRequestArgs, context: &Context<'_>) -> Result<ExitStatus, Error> {
    let is_pattern = args.host.contains(['*', '?']);
    if !is_pattern && !HostIdentity::is_name(&args.host) {
        return Err(NoHostName(args.host.clone()).into());
    }
    for app in &args.apps {
        AppName::parse(app)?;
    }
    let client = Client::new(&args.server, context.environment)?;
    let wanted = if is_pattern || args.dry_run {
        let keys: FleetKeys = client.get("/api/v1/fleet/keys").await?;
        let status: FleetStatus = client.get("/api/v1/fleet/hosts").await?;
        let enrolled: BTreeSet<&str> = keys.hosts.iter().map(|host| host.host.as_str()).collect();
        wanted_by_pattern(&args.host, &args.apps, &enrolled, &status)
    } else {
        args.apps.iter().map(|app| (args.host.clone(), app.clone())).collect()
    };
    // A mistyped name is no reason to do half of it.
    let of_nobody: Vec<&str> = without_host(&args.apps, &wanted);
    if !of_nobody.is_empty() {
        let (pattern, applications) = (args.host.clone(), of_nobody.join(" or "));
        return Err(NoHostMatches { pattern, applications }.into());
    }
    let mut refused = 0;
    for (host, app) in &wanted {
        let kind = args.kind.word();
        if args.dry_run {
            context.screen.say(format!("would ask {}: {kind} {app}", plain(host)));
            continue;
        }
        match make(&client, args, host, app).await {
            Ok(id) => context.screen.say(format!(
                "{kind} {app} waits for the next report of {} (request {})",
                plain(host),
                plain(&id)
            )),
            Err(error) if wanted.len() == 1 || error.is_absence() => return Err(error.into()),
            Err(error) => {
                refused += 1;
                context.screen.say(format!("{kind} {app} on {} was not requested: {error}", plain(host)));
            }
        }
    }
    if refused > 0 {
        return Err(NotAllMade { refused, all: wanted.len() }.into());
    }
    Ok(ExitStatus::Success)
}

/// The enrolled hosts that match a pattern, with each of the applications that they have.
fn wanted_by_pattern(
    pattern: &str,
    apps: &[String],
    enrolled: &BTreeSet<&str>,
    status: &FleetStatus,
) -> Vec<(String, String)> {
    let mut wanted = Vec::new();
    for host in &status.hosts {
        let Some(report) = host.report.as_deref() else { continue };
        if !enrolled.contains(host.name.as_str()) || !matches_star_and_question(pattern, &host.name) {
            continue;
        }
        let has = |app: &&String| report.applications.iter().any(|it| it.name.as_str() == **app);
        wanted.extend(apps.iter().filter(has).map(|app| (host.name.clone(), app.clone())));
    }
    wanted.sort();
    wanted
}

/// The applications that no wanted host has.
fn without_host<'a>(apps: &'a [String], wanted: &[(String, String)]) -> Vec<&'a str> {
    let is_wanted = |app: &&String| wanted.iter().any(|(_, found)| found == *app);
    apps.iter().filter(|app| !is_wanted(app)).map(String::as_str).collect()
}

/// Makes one request. Returns its id.
async fn make(
    client: &Client,
    args: &FleetRequestArgs,
    host: &str,
    app: &str,
) -> Result<String, client::Error> {
    let body = FleetRequestBody {
        kind: args.kind,
        application: app.to_owned(),
        to: args.to.clone(),
        expires_in: Some(args.expires.clone()),
    };
    let path = format!("/api/v1/fleet/hosts/{host}/requests");
    let created: FleetRequest = client.post(&path, Some(&body)).await?;
    Ok(created.request.id)
}

#[cfg(test)]
mod tests {
    use driftless_fleet::{ApplicationReport, HostReport, HostView};
    use serde_json::json;

    use super::*;

    fn application(name: &str) -> ApplicationReport {
        let report = json!({ "name": name, "repository": "infra", "sync": "Synced", "health": "Healthy" });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn pattern_names_the_enrolled_hosts_with_the_application() {
        let host = |name: &str, apps: &[&str]| {
            let applications = apps.iter().map(|app| application(app)).collect();
            let report = HostReport { applications, ..HostReport::default() };
            HostView::unknown(name, String::new(), Some(report.into()), None)
        };
        let hosts = vec![
            host("edge-2", &["shop"]),
            host("edge-1", &["shop", "mail"]),
            host("edge-3", &["mail"]),
            host("edge-4", &["shop"]),
            host("nas", &["shop"]),
            HostView::unknown("edge-5", String::new(), None, None),
        ];
        let status = FleetStatus { accepts: true, hosts, targets: Vec::new(), source: None };
        let enrolled = BTreeSet::from(["edge-1", "edge-2", "edge-3", "edge-5", "nas"]);
        let wanted = |pattern: &str, apps: &[&str]| {
            let apps: Vec<String> = apps.iter().map(|app| (*app).to_owned()).collect();
            let wanted = wanted_by_pattern(pattern, &apps, &enrolled, &status);
            wanted.into_iter().map(|(host, app)| format!("{host} {app}")).collect::<Vec<_>>()
        };
        assert_eq!(wanted("edge-*", &["shop"]), ["edge-1 shop", "edge-2 shop"]);
        assert_eq!(
            wanted("edge-?", &["shop", "mail"]),
            ["edge-1 mail", "edge-1 shop", "edge-2 shop", "edge-3 mail"]
        );
        assert_eq!(wanted("*", &["shop"]), ["edge-1 shop", "edge-2 shop", "nas shop"]);
        assert_eq!(wanted("web-*", &["shop"]), [""; 0]);
        assert_eq!(wanted("edge-1", &["shop"]), ["edge-1 shop"], "of a dry run");
    }

    #[test]
    fn application_that_no_host_has_is_named() {
        let apps = ["shop", "mial"].map(str::to_owned);
        let wanted = [("edge-1".to_owned(), "shop".to_owned())];
        assert_eq!(without_host(&apps, &wanted), ["mial"]);
        assert!(without_host(&apps[..1], &wanted).is_empty());
    }

    #[test]
    fn advice_names_other_requests_only_if_there_are_some() {
        let help = |refused| NotAllMade { refused, all: 2 }.help();
        assert!(help(1).is_some_and(|help| help.contains("the others were")));
        assert_eq!(help(2), None);
    }
}
