//! `driftless logs`: streams the output of a container, or the output of several pods line by line.

use std::io::{self, Write as _};

use futures_util::future::try_join_all;
use serde_json::Value;

use super::{
    args::LogsArgs,
    objects::{Error, Scope, Wanted, at, objects, path, say_missing},
    target::{Target, app_and_workload, workloads},
    unobserved::warn_of_unobserved,
};
use crate::{cli::Context, cli::Error as CliError, cli::ExitStatus, cli::client::Client};
use driftless_model::{Kind, Selector};

/// Number of last lines of each pod if `--tail` is not given.
const TAIL_OF_EACH: i64 = 10;

/// The most pods that are followed at once.
const MOST_FOLLOWED: usize = 5;

/// A container whose output is printed.
struct Source {
    route: String,
    /// `pod/web-1/web`
    name: String,
}

pub(in crate::cli) async fn logs(args: &LogsArgs, context: &Context<'_>) -> Result<ExitStatus, CliError> {
    let client = Client::new(&args.server, context.environment)?;
    let Some(what) = &args.what else { return of_selected(args, &client, context).await };
    let Some(target) = find(what, args, &client, context).await? else { return Ok(ExitStatus::Negative) };
    if target.workload.is_empty() {
        let text = format!("{} has no logs: name a pod or a workload", target.qualified());
        return Err(Error::Usage(text).into());
    }
    let Some(pod) = pod(&target, &client, context).await? else { return Ok(ExitStatus::Negative) };
    let Some(sources) = sources(args, args.tail, &target, &pod, context)? else {
        return Ok(ExitStatus::Negative);
    };
    print_all(&sources, args, sources.len() > 1, &client).await?;
    Ok(ExitStatus::Success)
}

/// The object that `POD`, `KIND/NAME` or `APP/WORKLOAD` names. `None`: there is none, which was reported.
async fn find(
    what: &str,
    args: &LogsArgs,
    client: &Client,
    context: &Context<'_>,
) -> Result<Option<Target>, CliError> {
    if let Some((app, workload)) = app_and_workload(what) {
        return Target::of_application(app, workload, &args.scope, client, context).await;
    }
    let wanted = if what.contains('/') {
        Wanted::pair(what)?
    } else {
        Wanted { kinds: vec![Kind::Pod], name: Some(what.to_owned()) }
    };
    if !what.contains('/') && pods_named(what, args, client).await?.is_empty() {
        say_missing(&wanted, args.scope.app.as_deref(), client, context).await;
        if let Some(hint) = hint(what, client).await? {
            context.screen.say(format!("help: {hint}"));
        }
        return Ok(None);
    }
    Target::find(&wanted, &args.scope, client, context).await
}

async fn pods_named(name: &str, args: &LogsArgs, client: &Client) -> Result<Vec<Value>, CliError> {
    let wanted = Wanted { kinds: vec![Kind::Pod], name: Some(name.to_owned()) };
    let (namespace, app) = (args.scope.namespace.as_deref(), args.scope.app.as_deref());
    Ok(objects(client, &wanted, &Scope { namespace, app, selector: None }).await?)
}

/// The next step if a name is not a pod but an application or a workload.
async fn hint(name: &str, client: &Client) -> Result<Option<String>, CliError> {
    let of_app = workloads(Some(name), client).await?;
    let as_command = |item: &Value| {
        let target = Target::of(item.clone());
        format!("`driftless logs {}/{}`", target.app, target.name)
    };
    if !of_app.is_empty() {
        let commands: Vec<String> = of_app.iter().map(as_command).collect();
        return Ok(Some(format!("{name} is an application: {}", commands.join(", "))));
    }
    let all = workloads(None, client).await?;
    let named: Vec<String> =
        all.iter().filter(|item| at(item, "/metadata/name") == name).map(as_command).collect();
    Ok((!named.is_empty()).then(|| format!("{name} is a workload: {}", named.join(", "))))
}

/// Prints the output of several containers, one after the other, or all at once when following.
async fn print_all(
    sources: &[Source],
    args: &LogsArgs,
    is_one_of_several: bool,
    client: &Client,
) -> Result<(), CliError> {
    let printer = |source| LinePrinter::new(source, args.prefix, is_one_of_several);
    let mut printers: Vec<LinePrinter> = sources.iter().map(printer).collect();
    let result = pass_all_on(sources, &mut printers, args, client).await;
    // The output may have broken off within a line.
    printers.iter_mut().try_for_each(LinePrinter::finish)?;
    result
}

async fn pass_all_on(
    sources: &[Source],
    printers: &mut [LinePrinter],
    args: &LogsArgs,
    client: &Client,
) -> Result<(), CliError> {
    let outputs = sources.iter().zip(printers);
    if args.follow {
        try_join_all(outputs.map(|(source, printer)| pass_on(source, printer, client))).await?;
        return Ok(());
    }
    for (source, printer) in outputs {
        pass_on(source, printer, client).await?;
    }
    Ok(())
}

/// The selected container of a Pod, or all of them in the order of their start, without those that have not started. `None`:
/// one cannot be read, which was reported.
fn sources(
    args: &LogsArgs,
    tail: Option<i64>,
    target: &Target,
    pod: &Value,
    context: &Context<'_>,
) -> Result<Option<Vec<Source>>, CliError> {
    if !args.all_containers {
        return Ok(source(args, args.container.as_deref(), tail, target, pod, context)?.map(|one| vec![one]));
    }
    let of = |list: &str| pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let statuses = of("/status/initContainerStatuses").chain(of("/status/containerStatuses"));
    let mut all = Vec::new();
    for status in statuses.filter(|status| status.get("containerID").is_some()) {
        let name = at(status, "/name");
        match source(args, Some(&name), tail, target, pod, context)? {
            Some(source) => all.push(source),
            None => return Ok(None),
        }
    }
    Ok(Some(all))
}

/// Prints the output of all pods with the labels, one after the other, or all at once when following.
async fn of_selected(
    args: &LogsArgs,
    client: &Client,
    context: &Context<'_>,
) -> Result<ExitStatus, CliError> {
    let selector = args.selector.as_deref().unwrap_or_default();
    Selector::parse(selector).map_err(Error::from)?;
    let (namespace, app) = (args.scope.namespace.as_deref(), args.scope.app.as_deref());
    let wanted = Wanted { kinds: vec![Kind::Pod], name: None };
    let scope = Scope { namespace, app, selector: Some(selector) };
    let pods = objects(client, &wanted, &scope).await?;
    if pods.is_empty() {
        context.screen.say("No resources found");
        warn_of_unobserved(app, &[], client, context).await;
        return Ok(ExitStatus::Success);
    }
    if args.follow && pods.len() > MOST_FOLLOWED {
        let text =
            format!("{} pods have these labels, but at most {MOST_FOLLOWED} can be followed", pods.len());
        return Err(Error::Usage(text).into());
    }
    let tail = args.tail.or(Some(TAIL_OF_EACH));
    let mut all = Vec::new();
    let mut exit_status = ExitStatus::Success;
    for pod in pods {
        let target = Target::of(pod.clone());
        match sources(args, tail, &target, &pod, context)? {
            Some(found) => all.extend(found),
            // The others have output.
            None => exit_status = ExitStatus::Negative,
        }
    }
    print_all(&all, args, true, client).await?;
    Ok(exit_status)
}

/// The selected container of a Pod and the parameters for its output. `None`: it cannot be read, which was reported.
fn source(
    args: &LogsArgs,
    wanted: Option<&str>,
    tail: Option<i64>,
    target: &Target,
    pod: &Value,
    context: &Context<'_>,
) -> Result<Option<Source>, CliError> {
    let name = at(pod, "/metadata/name");
    let first = at(pod, "/spec/containers/0/name");
    let container = wanted.map_or(first, str::to_owned);
    let of = |list: &str| pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let mut statuses = of("/status/containerStatuses").chain(of("/status/initContainerStatuses"));
    let Some(status) = statuses.find(|it| it["name"] == container.as_str()) else {
        context.screen.say(format!("error: container {container} is not valid for pod {name}"));
        return Ok(None);
    };
    let count = of("/spec/containers").count();
    if wanted.is_none() && count > 1 {
        let all: Vec<String> =
            of("/spec/containers").chain(of("/spec/initContainers")).map(|it| at(it, "/name")).collect();
        context.screen.say(format!("Defaulted container \"{container}\" out of: {}", all.join(", ")));
    }
    if status.get("containerID").is_none() {
        let reason = at(status, "/state/waiting/reason");
        context.screen.say(format!(
            "Error from server (BadRequest): container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"
        ));
        return Ok(None);
    }
    let tail = tail.and_then(|it| u64::try_from(it).ok()).map(|it| it.to_string());
    let yes = |it: bool| it.then(|| "true".to_owned());
    let asked = [
        ("container", Some(container.clone())),
        ("namespace", Some(at(pod, "/metadata/namespace"))),
        ("follow", yes(args.follow)),
        ("tail", tail),
        ("since", args.since.clone()),
        ("timestamps", yes(args.timestamps)),
        ("previous", yes(args.previous)),
    ];
    let pairs: Vec<(&str, &str)> =
        asked.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?))).collect();
    let route = target.route(&format!("/instances/{name}/logs"))?;
    Ok(Some(Source { route: path(&route, pairs), name: format!("pod/{name}/{container}") }))
}

/// Streams the output of one container.
async fn pass_on(source: &Source, printer: &mut LinePrinter, client: &Client) -> Result<(), CliError> {
    let mut response = client.open(&source.route).await?;
    while let Some(bytes) = response.chunk().await.map_err(|error| client.broken_stream(&error))? {
        printer.push(&bytes)?;
    }
    printer.finish()?;
    Ok(())
}

/// Prints the output of one container.
struct LinePrinter {
    /// The prefix of each line.
    mark: String,
    /// Whether it prints whole lines only, since several containers print or lines have a prefix.
    is_by_line: bool,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl LinePrinter {
    fn new(source: &Source, is_marked: bool, is_one_of_several: bool) -> Self {
        let mark = if is_marked { format!("[{}] ", source.name) } else { String::new() };
        Self { mark, is_by_line: is_marked || is_one_of_several, rest: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_by_line {
            return write(bytes);
        }
        self.rest.extend_from_slice(bytes);
        if self.rest.len() > LONGEST_LINE && !self.rest.contains(&b'\n') {
            self.rest.push(b'\n');
        }
        let Some(end) = self.rest.iter().rposition(|it| *it == b'\n') else { return Ok(()) };
        let more = self.rest.split_off(end + 1);
        write(&marked(&self.mark, &std::mem::replace(&mut self.rest, more)))
    }

    /// Prints a last line without its end, such as a prompt.
    fn finish(&mut self) -> io::Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        self.rest.push(b'\n');
        write(&marked(&self.mark, &std::mem::take(&mut self.rest)))
    }
}

/// The longest line; a longer one is split.
const LONGEST_LINE: usize = 1024 * 1024;

/// Whole lines, each with the prefix.
fn marked(mark: &str, lines: &[u8]) -> Vec<u8> {
    lines.split_inclusive(|it| *it == b'\n').flat_map(|it| [mark.as_bytes(), it].concat()).collect()
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// The named Pod, or one Pod of the workload. `None`: there is none, which was reported.
async fn pod(target: &Target, client: &Client, context: &Context<'_>) -> Result<Option<Value>, CliError> {
    if target.kind == Kind::Pod {
        return Ok(Some(target.item.clone()));
    }
    let pods = target.pods(client).await?;
    let count = pods.len();
    let Some(first) = pods.into_iter().next() else {
        let name = target.qualified();
        context.screen.say(format!("error: {name} has no pods; `driftless describe {name}` says why"));
        return Ok(None);
    };
    if count > 1 {
        context.screen.say(format!("Found {count} pods, using pod/{}", at(&first, "/metadata/name")));
    }
    Ok(Some(first))
}
