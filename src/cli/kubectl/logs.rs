//! `driftless logs`: what a container prints, passed on as it comes.

use std::io::{self, Write as _};

use serde_json::Value;

use super::{Error, Wanted, args::LogsArgs, at, path, target::Target};
use crate::{
    cli::{self, Context, Verdict, client::Client},
    model::Kind,
};

pub(in crate::cli) async fn logs(args: &LogsArgs, context: &Context<'_>) -> Result<Verdict, cli::Error> {
    let wanted = if args.what.contains('/') {
        Wanted::pair(&args.what)?
    } else {
        Wanted { kinds: vec![Kind::Pod], name: Some(args.what.clone()) }
    };
    let client = Client::new(&args.server, context.environment)?;
    let Some(target) = Target::find(&wanted, &args.scope, &client, context).await? else {
        return Ok(Verdict::No);
    };
    if target.workload.is_empty() {
        let text = format!("{} prints nothing: name a pod or what it is of", target.qualified());
        return Err(Error::Usage(text).into());
    }
    let Some(pod) = pod(&target, &client, context).await? else { return Ok(Verdict::No) };
    let name = at(&pod, "/metadata/name");
    let first = at(&pod, "/spec/containers/0/name");
    let container = args.container.clone().unwrap_or(first);
    let of = |list: &str| pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let mut statuses = of("/status/containerStatuses").chain(of("/status/initContainerStatuses"));
    let Some(status) = statuses.find(|it| it["name"] == container.as_str()) else {
        context.screen.say(format!("error: container {container} is not valid for pod {name}"));
        return Ok(Verdict::No);
    };
    let count = of("/spec/containers").count();
    if args.container.is_none() && count > 1 {
        let all: Vec<String> =
            of("/spec/containers").chain(of("/spec/initContainers")).map(|it| at(it, "/name")).collect();
        context.screen.say(format!("Defaulted container \"{container}\" out of: {}", all.join(", ")));
    }
    if status.get("containerID").is_none() {
        let reason = at(status, "/state/waiting/reason");
        context.screen.say(format!(
            "Error from server (BadRequest): container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"
        ));
        return Ok(Verdict::No);
    }
    let tail = u64::try_from(args.tail).ok().map(|it| it.to_string());
    let yes = |it: bool| it.then(|| "true".to_owned());
    let asked = [
        ("container", Some(container)),
        ("follow", yes(args.follow)),
        ("tail", tail),
        ("since", args.since.clone()),
        ("timestamps", yes(args.timestamps)),
        ("previous", yes(args.previous)),
    ];
    let pairs: Vec<(&str, &str)> =
        asked.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?))).collect();
    let route = target.route(&format!("/instances/{name}/logs"))?;
    let mut response = client.open(&path(&route, pairs)).await?;
    while let Some(bytes) = response.chunk().await.map_err(|error| client.broken_stream(&error))? {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&bytes)?;
        stdout.flush()?;
    }
    Ok(Verdict::Yes)
}

/// The Pod itself, or one of several. `None`: there is none, which was said.
async fn pod(target: &Target, client: &Client, context: &Context<'_>) -> Result<Option<Value>, cli::Error> {
    if target.kind == Kind::Pod {
        return Ok(Some(target.item.clone()));
    }
    let pods = target.pods(client).await?;
    let count = pods.len();
    let Some(first) = pods.into_iter().next() else {
        context.screen.say(format!("error: {} has no pods", target.qualified()));
        return Ok(None);
    };
    if count > 1 {
        context.screen.say(format!("Found {count} pods, using pod/{}", at(&first, "/metadata/name")));
    }
    Ok(Some(first))
}
