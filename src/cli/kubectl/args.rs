//! Arguments of the kubectl-compatible commands.

use std::time::Duration;

use clap::{ArgAction, Args, Subcommand};

use super::jsonpath::{JsonPath, Template};
use crate::{cli::options::ServerArgs, cli::options::parse_span};

/// Selects objects if names alone are ambiguous.
#[derive(Debug, Args)]
pub(in crate::cli) struct ScopeArgs {
    /// Only this namespace [default: all]
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    /// Only objects of this application.
    #[arg(long, value_name = "APP")]
    pub(super) app: Option<String>,
}

/// List objects like kubectl: workloads, pods, services, config maps and more.
///
/// Kinds have kubectl's names, long and short: pods (po), deployments (deploy), statefulsets (sts), daemonsets (ds),
/// replicasets (rs), jobs, cronjobs (cj), services (svc), configmaps (cm), secrets, persistentvolumeclaims (pvc),
/// namespaces (ns) and all. A Compose service is a deployment in the namespace of its application. Events (ev) can only
/// be listed alone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless get pods -A
  driftless get deploy,po -n shop -o wide
  driftless get deploy/web -o jsonpath='{.status.readyReplicas}'
  driftless get po -l app=web \\
    -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image
  driftless get po --watch
  driftless get events --app shop")]
#[expect(clippy::struct_excessive_bools, reason = "kubectl's own switches")]
pub(in crate::cli) struct GetArgs {
    /// KIND[,KIND…] with or without names, or KIND/NAME…
    #[arg(required = true, value_name = "KIND|KIND/NAME")]
    pub(super) what: Vec<String>,
    #[command(flatten)]
    pub(super) scope: ScopeArgs,
    /// List all namespaces, with a column for the namespace.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
    /// Only objects with these labels: app=web, tier!=cache, env in (a, b), !canary.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(super) selector: Option<String>,
    /// Only objects with these fields: metadata.name=web, status.phase!=Running.
    #[arg(long, value_name = "FIELDS")]
    pub(super) field_selector: Option<String>,
    /// Print columns with these labels.
    #[arg(short = 'L', long, value_name = "LABEL,…", value_delimiter = ',')]
    pub(super) label_columns: Vec<String>,
    /// Exit with 0 and print nothing if a named object does not exist.
    #[arg(long)]
    pub(super) ignore_not_found: bool,
    /// Output format: wide, yaml, json, name, jsonpath=TEMPLATE or custom-columns=HEAD:PATH,…
    #[arg(short, long, value_name = "FORMAT", value_parser = parse_output)]
    pub(super) output: Option<GetOutput>,
    /// Sort by this path, such as .metadata.name.
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    pub(super) sort_by: Option<JsonPath>,
    /// Print no column headers.
    #[arg(long)]
    pub(super) no_headers: bool,
    /// Print a column with the labels.
    #[arg(long)]
    pub(super) show_labels: bool,
    /// Print objects again when they change, until interrupted.
    #[arg(short, long)]
    pub(super) watch: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Show objects in full: fields, conditions and events.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless describe pod shop-web-1
  driftless describe deploy/web -n shop")]
pub(in crate::cli) struct DescribeArgs {
    /// KIND with or without names, or KIND/NAME…
    #[arg(required = true, value_name = "KIND|KIND/NAME")]
    pub(super) what: Vec<String>,
    #[command(flatten)]
    pub(super) scope: ScopeArgs,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(super) selector: Option<String>,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Manage the rollout of a workload like kubectl: status, history, undo, pause, resume, restart.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum RolloutCommand {
    Status(RolloutStatusArgs),
    History(RolloutHistoryArgs),
    Undo(RolloutUndoArgs),
    /// Pause the rollouts of a deployment: it is still healed, but a commit replaces none of its instances.
    Pause(RolloutArgs),
    /// Resume the rollouts of a paused deployment.
    Resume(RolloutArgs),
    /// Restart a workload: replace every instance, as the update strategy allows, without a commit.
    Restart(RolloutArgs),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RolloutArgs {
    /// KIND/NAME, KIND NAME, or APP/WORKLOAD such as shop/web.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME|APP/WORKLOAD")]
    pub(super) what: Vec<String>,
    #[command(flatten)]
    pub(super) scope: ScopeArgs,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Wait until a rollout has finished; exit with 1 if it fails or takes too long.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless rollout status deployment/web
  driftless rollout status sts/db --timeout 2m")]
pub(in crate::cli) struct RolloutStatusArgs {
    #[command(flatten)]
    pub(super) on: RolloutArgs,
    /// Wait for the end; `--watch=false` only prints the progress.
    #[arg(short, long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) watch: bool,
    /// Maximum time to wait; 0s waits without limit.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_span)]
    pub(super) timeout: Duration,
}

/// Show the revisions of a workload's application, oldest first.
#[derive(Debug, Args)]
pub(in crate::cli) struct RolloutHistoryArgs {
    #[command(flatten)]
    pub(super) on: RolloutArgs,
    /// Show this revision in full.
    #[arg(long, value_name = "N")]
    pub(super) revision: Option<u64>,
}

/// Roll the application of a workload back to an earlier revision and pin it there.
///
/// Same as `driftless rollback`: a commit changes the whole application, so the rollback does too.
#[derive(Debug, Args)]
pub(in crate::cli) struct RolloutUndoArgs {
    #[command(flatten)]
    pub(super) on: RolloutArgs,
    /// Number of the revision; 0 is the newest one that succeeded and is not the current one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) to_revision: u64,
}

/// Print the logs of a pod, of one pod of a workload, or of all pods with certain labels.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless logs shop/web
  driftless logs shop-web-1
  driftless logs -l app=web --prefix
  driftless logs -f deployment/web --tail 20
  driftless logs job/migrate --timestamps
  driftless logs --all-containers --prefix shop-web-1
  driftless logs --previous shop-web-1")]
#[expect(clippy::struct_excessive_bools, reason = "kubectl's own switches")]
pub(in crate::cli) struct LogsArgs {
    /// Pod, KIND/NAME, or APP/WORKLOAD such as shop/web for the service `web` of the application `shop`.
    #[arg(value_name = "POD|KIND/NAME|APP/WORKLOAD", required_unless_present = "selector")]
    pub(super) what: Option<String>,
    /// All pods with these labels, such as app=web,tier!=cache; the last ten lines of each unless --tail is given.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "what")]
    pub(super) selector: Option<String>,
    /// Print the names of the pod and the container before each line.
    #[arg(long)]
    pub(super) prefix: bool,
    #[command(flatten)]
    pub(super) scope: ScopeArgs,
    /// Follow new output until the container ends.
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Number of last lines; -1 prints all [default: all]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) tail: Option<i64>,
    /// Only output within this duration, such as 10m, or after this time.
    #[arg(long, alias = "since-time", value_name = "TIME")]
    pub(super) since: Option<String>,
    /// Print a timestamp before each line.
    #[arg(long)]
    pub(super) timestamps: bool,
    /// Name of the container.
    #[arg(short, long, value_name = "NAME")]
    pub(super) container: Option<String>,
    /// Print the output of all containers of the pod, init containers first.
    #[arg(long, conflicts_with = "container")]
    pub(super) all_containers: bool,
    /// Print the output of runs before the current one.
    #[arg(short, long)]
    pub(super) previous: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Replace pods at once: each is stopped and removed, and a new one is created, because Git still contains it.
///
/// A Job is deleted with its pods: a run of a CronJob is over then, and a Job in Git is run again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless delete pod shop-web-1
  driftless delete job backup-29384756")]
pub(in crate::cli) struct DeleteArgs {
    /// pod NAME…, pod/NAME…, job NAME…, or job/NAME…
    #[arg(required = true, value_name = "POD")]
    pub(super) what: Vec<String>,
    #[command(flatten)]
    pub(super) scope: ScopeArgs,
    /// Wait until the container of a pod is gone.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) wait: bool,
    /// Maximum time to wait.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    pub(super) timeout: Duration,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Start a Job from a CronJob at once.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum CreateCommand {
    Job(CreateJobArgs),
}

/// Start a Job from the template of a CronJob, regardless of its schedule.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  driftless create job report-now --from=cronjob/report")]
pub(in crate::cli) struct CreateJobArgs {
    /// Name of the Job.
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// CronJob to start from, as cronjob/NAME.
    #[arg(long, value_name = "CRONJOB")]
    pub(super) from: String,
    #[command(flatten)]
    pub(super) scope: ScopeArgs,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Output format of `get`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GetOutput {
    Wide,
    Yaml,
    Json,
    Name,
    JsonPath(Template),
    Columns(Vec<(String, JsonPath)>),
}

fn parse_output(text: &str) -> Result<GetOutput, String> {
    let (form, rest) = text.split_once('=').map_or((text, None), |(form, rest)| (form, Some(rest)));
    match (form, rest) {
        ("wide", None) => Ok(GetOutput::Wide),
        ("yaml", None) => Ok(GetOutput::Yaml),
        ("json", None) => Ok(GetOutput::Json),
        ("name", None) => Ok(GetOutput::Name),
        ("jsonpath", Some(template)) => {
            Template::parse(template).map(GetOutput::JsonPath).map_err(|error| error.to_string())
        }
        ("custom-columns", Some(columns)) => parse_columns(columns),
        ("jsonpath" | "custom-columns", None) => Err(format!("write {form}=…")),
        _ => Err("the format must be wide, yaml, json, name, jsonpath=… or custom-columns=…".to_owned()),
    }
}

/// `NAME:.metadata.name,IMAGE:.spec.containers[0,1].image`: a comma within brackets does not separate columns.
fn parse_columns(text: &str) -> Result<GetOutput, String> {
    let mut columns = Vec::new();
    let mut depth = 0_u32;
    let is_divider = |letter: char| {
        match letter {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    for column in text.split(is_divider) {
        let (head, path) =
            column.split_once(':').filter(|(head, path)| !head.is_empty() && !path.is_empty()).ok_or_else(
                || format!("`{column}` is not a column: write HEAD:PATH, such as NAME:.metadata.name"),
            )?;
        columns.push((head.to_owned(), JsonPath::parse(path).map_err(|error| error.to_string())?));
    }
    Ok(GetOutput::Columns(columns))
}

fn parse_path(text: &str) -> Result<JsonPath, String> {
    JsonPath::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_divided_by_commas_outside_of_brackets() {
        let Ok(GetOutput::Columns(columns)) = parse_columns("A:.a,B:.b[0,1].c,C:.d[?(@.x==\"y\")].e") else {
            panic!("they can be read");
        };
        assert_eq!(columns.iter().map(|(head, _)| head.as_str()).collect::<Vec<_>>(), ["A", "B", "C"]);
        for wrong in ["", "A", "A:", ":.a", "A:.a,", "A:.a["] {
            assert!(parse_columns(wrong).is_err(), "{wrong}");
        }
        for wrong in ["jsonpath", "tree", "wide=1", "jsonpath={.a"] {
            assert!(parse_output(wrong).is_err(), "{wrong}");
        }
    }
}
