//! `driftless describe`: one object in full, with fields, conditions and events.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    age,
    args::DescribeArgs,
    columns,
    event_objects::EventObjects,
    jsonpath,
    objects::{Scope, Wanted, at, count, objects, path, say_missing, words},
    target::Target,
    unobserved::warn_of_unobserved,
};
use crate::{
    cli::Context, cli::Error, cli::ExitStatus, cli::client::Client, cli::output::print, cli::screen::Colours,
    cli::screen::plain, cli::table::Table,
};
use driftless_model::{Application, Event, Kind, Timestamp, WorkloadName, WorkloadStatus};

/// Width of the names of fields.
const NAMES: usize = 24;

/// Number of newest events that are searched.
const EVENTS: &str = "1000";

pub(in crate::cli) async fn describe(
    args: &DescribeArgs,
    context: &Context<'_>,
) -> Result<ExitStatus, Error> {
    let wanted = Wanted::parse(&args.what)?;
    let client = Client::new(&args.server, context.environment)?;
    let scope = Scope {
        namespace: args.scope.namespace.as_deref(),
        app: args.scope.app.as_deref(),
        selector: args.selector.as_deref(),
    };
    let mut exit_status = ExitStatus::Success;
    let mut texts = Vec::new();
    let mut items = Vec::new();
    for one in &wanted {
        let found = objects(&client, one, &scope).await?;
        if found.is_empty() && one.name.is_some() {
            say_missing(one, scope.app, &client, context).await;
            exit_status = ExitStatus::Negative;
        }
        for item in found {
            texts.push(text(&Target::of(item.clone()), &client, context).await?);
            items.push(item);
        }
    }
    if texts.is_empty() && exit_status == ExitStatus::Success {
        context.screen.say("No resources found");
    }
    print(&texts.join("\n\n"))?;
    if exit_status == ExitStatus::Success {
        warn_of_unobserved(scope.app, &items, &client, context).await;
    }
    Ok(exit_status)
}

async fn text(target: &Target, client: &Client, context: &Context<'_>) -> Result<String, Error> {
    let now = context.clock.now();
    let mut page = Description::default();
    page.head(target);
    match target.kind {
        Kind::Pod => page.pod(&target.item),
        Kind::Deployment
        | Kind::ReplicaSet
        | Kind::DaemonSet
        | Kind::StatefulSet
        | Kind::Job
        | Kind::CronJob => {
            page.workload(target);
            if !page.pod_template(&target.item) {
                page.block("Pod Template", &template(target, client).await?);
            }
        }
        Kind::Service => page.service(&target.item, &endpoints_of(target, client).await?),
        Kind::Endpoints => page.endpoints(&target.item),
        Kind::ConfigMap | Kind::Secret => page.data(&target.item),
        Kind::PersistentVolumeClaim => page.claim(&target.item),
        Kind::Namespace => page.field("Status", at(&target.item, "/status/phase")),
    }
    page.conditions(&target.item);
    if target.kind == Kind::Deployment {
        page.sets(target, client).await?;
    }
    let mut out = page.0;
    if !target.workload.is_empty() {
        out.push_str(&events(target, client, now).await?);
    }
    Ok(out)
}

/// The container in full, masked, as it is published. For an object of several workloads, such as a StatefulSet, it is that
/// of the first.
async fn template(target: &Target, client: &Client) -> Result<String, Error> {
    if target.workload.is_empty() {
        return Ok(String::new());
    }
    let application: Application = client.get(&target.route("")?).await?;
    let is_of_it = |(name, workload): &(&WorkloadName, &WorkloadStatus)| {
        workload.spec.whole.as_ref().unwrap_or(name).as_str() == target.workload
    };
    let workloads = application.status.workloads.iter().filter(is_of_it);
    let first =
        workloads.min_by_key(|(_, workload)| workload.spec.member.as_ref().map(|member| member.ordinal));
    Ok(first.map_or_else(String::new, |(_, workload)| workload.spec.template.to_string()))
}

/// The Endpoints of a Service: of its application, because another one may have a Service of the same name.
async fn endpoints_of(target: &Target, client: &Client) -> Result<Value, Error> {
    let wanted = Wanted::parse(&[format!("endpoints/{}", at(&target.item, "/metadata/name"))])?;
    let namespace = at(&target.item, "/metadata/namespace");
    let scope = Scope { namespace: Some(&namespace), app: Some(&target.app), selector: None };
    let Some(one) = wanted.first() else { return Ok(Value::Null) };
    Ok(objects(client, one, &scope).await?.into_iter().next().unwrap_or_default())
}

/// The ready addresses (`addresses`) or the others (`notReadyAddresses`) of Endpoints.
fn addresses(endpoints: &Value, which: &str) -> Vec<Value> {
    let subsets = endpoints["subsets"].as_array().into_iter().flatten();
    subsets.flat_map(|subset| subset[which].as_array().cloned().unwrap_or_default()).collect()
}

/// The ports of a container's specification.
fn ports(spec: &Value) -> String {
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports: Vec<String> =
        ports.map(|it| format!("{}/{}", at(it, "/containerPort"), at(it, "/protocol"))).collect();
    ports.join(", ")
}

#[derive(Default)]
struct Description(String);

impl Description {
    fn field(&mut self, name: &str, value: impl AsRef<str>) {
        let value = plain(value.as_ref()).replace('\n', " ");
        let value = if value.is_empty() { "<none>" } else { &value };
        let _ = writeln!(self.0, "{:<NAMES$}{value}", format!("{name}:"));
    }

    /// The first on the line of the name, the others below it.
    fn list(&mut self, name: &str, values: &[String]) {
        self.field(name, values.first().map_or("", String::as_str));
        for value in values.iter().skip(1) {
            let _ = writeln!(self.0, "{:<NAMES$}{}", "", plain(value));
        }
    }

    fn map(&mut self, name: &str, map: Option<&Value>, divider: &str) {
        let pairs = map.and_then(Value::as_object).into_iter().flatten();
        let lines: Vec<String> = pairs
            .map(|(key, value)| format!("{key}{divider}{}", value.as_str().unwrap_or_default()))
            .collect();
        self.list(name, &lines);
    }

    fn block(&mut self, name: &str, text: &str) {
        let _ = writeln!(self.0, "{name}:");
        for line in text.lines() {
            let _ = writeln!(self.0, "  {}", plain(line));
        }
    }

    fn head(&mut self, target: &Target) {
        let it = &target.item;
        self.field("Name", &target.name);
        if target.kind != Kind::Namespace {
            self.field("Namespace", &target.namespace);
        }
        if it.pointer("/metadata/creationTimestamp").is_some() {
            self.field("CreationTimestamp", at(it, "/metadata/creationTimestamp"));
        }
        self.map("Labels", it.pointer("/metadata/labels"), "=");
        self.map("Annotations", it.pointer("/metadata/annotations"), ": ");
        let owner = it.pointer("/metadata/ownerReferences/0");
        if let Some(owner) = owner {
            self.field("Controlled By", format!("{}/{}", at(owner, "/kind"), at(owner, "/name")));
        }
    }

    fn workload(&mut self, target: &Target) {
        let it = &target.item;
        let number = |pointer: &str| count(it, pointer);
        self.field("Selector", columns::labels(it.pointer("/spec/selector/matchLabels")));
        match target.kind {
            Kind::Deployment => {
                self.field(
                    "Replicas",
                    format!(
                        "{} desired | {} updated | {} total | {} available | {} unavailable",
                        number("/spec/replicas"),
                        number("/status/updatedReplicas"),
                        number("/status/replicas"),
                        number("/status/availableReplicas"),
                        number("/status/unavailableReplicas"),
                    ),
                );
                self.field("StrategyType", at(it, "/spec/strategy/type"));
                self.field("MinReadySeconds", at(it, "/spec/minReadySeconds"));
                if it.pointer("/spec/strategy/rollingUpdate").is_some() {
                    self.field(
                        "RollingUpdateStrategy",
                        format!(
                            "{} max unavailable, {} max surge",
                            number("/spec/strategy/rollingUpdate/maxUnavailable"),
                            number("/spec/strategy/rollingUpdate/maxSurge"),
                        ),
                    );
                }
                if it.pointer("/spec/paused") == Some(&Value::Bool(true)) {
                    self.field("Paused", "true");
                }
            }
            Kind::DaemonSet => {
                for (name, pointer) in [
                    ("Desired Number of Nodes Scheduled", "/status/desiredNumberScheduled"),
                    ("Current Number of Nodes Scheduled", "/status/currentNumberScheduled"),
                    ("Number of Nodes Scheduled with Up-to-date Pods", "/status/updatedNumberScheduled"),
                    ("Number of Nodes Scheduled with Available Pods", "/status/numberAvailable"),
                ] {
                    let _ = writeln!(self.0, "{name}: {}", number(pointer));
                }
            }
            Kind::Job => {
                self.field("Parallelism", at(it, "/spec/parallelism"));
                self.field("Completions", at(it, "/spec/completions"));
                for (name, pointer) in
                    [("Start Time", "/status/startTime"), ("Completed At", "/status/completionTime")]
                {
                    if it.pointer(pointer).is_some() {
                        self.field(name, at(it, pointer));
                    }
                }
                self.field(
                    "Pods Statuses",
                    format!(
                        "{} Active / {} Succeeded / {} Failed",
                        number("/status/active"),
                        number("/status/succeeded"),
                        number("/status/failed"),
                    ),
                );
            }
            Kind::CronJob => {
                self.field("Schedule", at(it, "/spec/schedule"));
                self.field("Time Zone", at(it, "/spec/timeZone"));
                self.field("Concurrency Policy", at(it, "/spec/concurrencyPolicy"));
                self.field("Suspend", at(it, "/spec/suspend"));
                self.field("Last Schedule Time", at(it, "/status/lastScheduleTime"));
                self.field("Last Successful Time", at(it, "/status/lastSuccessfulTime"));
                let active = it.pointer("/status/active").and_then(Value::as_array).into_iter().flatten();
                self.field("Active Jobs", active.map(|job| at(job, "/name")).collect::<Vec<_>>().join(", "));
            }
            Kind::ReplicaSet
            | Kind::StatefulSet
            | Kind::Pod
            | Kind::Service
            | Kind::Endpoints
            | Kind::ConfigMap
            | Kind::Secret
            | Kind::PersistentVolumeClaim
            | Kind::Namespace => {
                let (current, wanted) = (number("/status/replicas"), number("/spec/replicas"));
                self.field("Replicas", format!("{current} current / {wanted} desired"));
                let ready = number("/status/readyReplicas");
                self.field("Pods Ready", ready.to_string());
            }
        }
    }

    /// The pod template of a workload whose pods have several containers. `false`: they have one, which [`template`] tells with
    /// more detail.
    fn pod_template(&mut self, it: &Value) -> bool {
        let pointers = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
        let Some(pod) = pointers.into_iter().find_map(|pointer| it.pointer(pointer)) else { return false };
        let of = |kind: &str| pod[kind].as_array().map_or(&[][..], Vec::as_slice);
        if of("containers").len() + of("initContainers").len() < 2 {
            return false;
        }
        self.0.push_str("Pod Template:\n");
        for (title, kind) in [("Init Containers", "initContainers"), ("Containers", "containers")] {
            let all = of(kind);
            if !all.is_empty() {
                let _ = writeln!(self.0, "{title}:");
            }
            for spec in all {
                let _ = writeln!(self.0, "  {}:", plain(&at(spec, "/name")));
                self.field("    Image", at(spec, "/image"));
                self.field("    Ports", ports(spec));
                self.container_spec(spec);
            }
        }
        self.volumes(pod);
        true
    }

    fn pod(&mut self, it: &Value) {
        self.field("Node", at(it, "/spec/nodeName"));
        self.field("Start Time", at(it, "/status/startTime"));
        self.field("Status", columns::pod_status(it));
        self.field("IP", at(it, "/status/podIP"));
        if it.pointer("/status/message").is_some() {
            self.field("Message", at(it, "/status/message"));
        }
        let initial = it.pointer("/status/initContainerStatuses").and_then(Value::as_array);
        if initial.is_some_and(|it| !it.is_empty()) {
            self.0.push_str("Init Containers:\n");
            self.containers(it, "initContainer");
        }
        self.0.push_str("Containers:\n");
        self.containers(it, "container");
        self.volumes(&it["spec"]);
    }

    /// The volumes of a pod's specification, each with its kind and the fields of it.
    fn volumes(&mut self, pod: &Value) {
        let volumes = pod["volumes"].as_array();
        let Some(volumes) = volumes.filter(|volumes| !volumes.is_empty()) else { return };
        self.0.push_str("Volumes:\n");
        for volume in volumes {
            let kind = volume.as_object().into_iter().flatten().find(|(key, _)| *key != "name");
            let Some((kind, fields)) = kind else { continue };
            let fields: Vec<String> = fields
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| format!("{key}={}", jsonpath::text(value)))
                .collect();
            let text = format!("{kind} {}", fields.join(","));
            self.field(&format!("  {}", at(volume, "/name")), text.trim_end());
        }
    }

    fn containers(&mut self, it: &Value, kind: &str) {
        let statuses = it.pointer(&format!("/status/{kind}Statuses")).and_then(Value::as_array);
        let specs = it.pointer(&format!("/spec/{kind}s")).and_then(Value::as_array);
        for container in statuses.into_iter().flatten() {
            let name = at(container, "/name");
            let spec = specs.and_then(|all| all.iter().find(|it| it["name"] == name.as_str()));
            let _ = writeln!(self.0, "  {}:", plain(&name));
            let mut field = |name: &str, value: String| {
                self.field(&format!("    {name}"), value);
            };
            field("Container ID", at(container, "/containerID"));
            field("Image", at(container, "/image"));
            field("Ports", spec.map(ports).unwrap_or_default());
            for (title, pointer) in [("State", "/state"), ("Last State", "/lastState")] {
                for (name, value) in state(container.pointer(pointer)) {
                    field(if name.is_empty() { title } else { name }, value);
                }
            }
            field("Ready", if container["ready"] == true { "True" } else { "False" }.to_owned());
            field("Restart Count", at(container, "/restartCount"));
            if let Some(spec) = spec {
                self.container_spec(spec);
            }
        }
    }

    /// Command, limits, probes, environment and mounts of a container.
    fn container_spec(&mut self, spec: &Value) {
        for (title, pointer) in [("Command", "/command"), ("Args", "/args")] {
            let list = words(spec, pointer);
            if !list.is_empty() {
                self.list(&format!("    {title}"), &list);
            }
        }
        for (title, pointer) in [("Limits", "/resources/limits"), ("Requests", "/resources/requests")] {
            if spec.pointer(pointer).is_some() {
                self.map(&format!("    {title}"), spec.pointer(pointer), ": ");
            }
        }
        for (title, key) in
            [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")]
        {
            if let Some(probe) = spec.get(key) {
                self.field(&format!("    {title}"), probe_text(probe));
            }
        }
        let env = spec["env"].as_array().into_iter().flatten();
        let env: Vec<String> =
            env.map(|one| format!("{}: {}", at(one, "/name"), at(one, "/value"))).collect();
        self.list("    Environment", &env);
        let mounts = spec["volumeMounts"].as_array().into_iter().flatten();
        let mount = |one: &Value| {
            let access = if one["readOnly"] == true { "ro" } else { "rw" };
            format!("{} from {} ({access})", at(one, "/mountPath"), at(one, "/name"))
        };
        self.list("    Mounts", &mounts.map(mount).collect::<Vec<_>>());
    }

    fn service(&mut self, it: &Value, endpoints: &Value) {
        self.field("Selector", columns::labels(it.pointer("/spec/selector")));
        self.field("Type", at(it, "/spec/type"));
        self.field("IP", at(it, "/spec/clusterIP"));
        let ports = it.pointer("/spec/ports").and_then(Value::as_array);
        for port in ports.into_iter().flatten() {
            let name = at(port, "/name");
            let name = if name.is_empty() { "<unset>".to_owned() } else { name };
            let protocol = at(port, "/protocol");
            self.field("Port", format!("{name}  {}/{protocol}", at(port, "/port")));
            self.field("TargetPort", format!("{}/{protocol}", at(port, "/targetPort")));
            if port["nodePort"].is_u64() {
                self.field("NodePort", format!("{name}  {}/{protocol}", at(port, "/nodePort")));
            }
            let found = columns::endpoints(endpoints, "addresses", Some(&at(port, "/name")));
            let found = if found.is_empty() { "<none>".to_owned() } else { columns::first_three(&found) };
            self.field("Endpoints", found);
        }
        self.not_ready(endpoints);
    }

    fn endpoints(&mut self, it: &Value) {
        for address in addresses(it, "addresses") {
            self.field("Address", format!("{} ({})", at(&address, "/ip"), at(&address, "/targetRef/name")));
        }
        for subset in it["subsets"].as_array().into_iter().flatten() {
            for port in subset["ports"].as_array().into_iter().flatten() {
                self.field("Port", format!("{}/{}", at(port, "/port"), at(port, "/protocol")));
            }
        }
        self.not_ready(it);
    }

    /// The pods that take no traffic, each with the reason.
    fn not_ready(&mut self, endpoints: &Value) {
        for address in addresses(endpoints, "notReadyAddresses") {
            let reason = at(&address, "/driftless/message");
            let reason = if reason.is_empty() { "not ready".to_owned() } else { reason };
            let pod = at(&address, "/targetRef/name");
            self.field("No Traffic", format!("{} ({pod}): {reason}", at(&address, "/ip")));
        }
    }

    /// Names only: values are in Git, or secret.
    fn data(&mut self, it: &Value) {
        if it["type"].is_string() {
            self.field("Type", at(it, "/type"));
        }
        self.0.push_str("\nData\n====\n");
        for key in it["data"].as_object().into_iter().flatten().map(|(key, _)| key) {
            let _ = writeln!(self.0, "{}", plain(key));
        }
    }

    fn claim(&mut self, it: &Value) {
        self.field("Status", at(it, "/status/phase"));
        self.field("Volume", at(it, "/spec/volumeName"));
        self.field("Access Modes", words(it, "/spec/accessModes").join(","));
    }

    fn conditions(&mut self, it: &Value) {
        let Some(all) = it.pointer("/status/conditions").and_then(Value::as_array) else { return };
        if all.is_empty() {
            return;
        }
        self.0.push_str("Conditions:\n");
        let has_reasons = all.iter().any(|it| it["reason"].is_string());
        let heads: &[&str] =
            if has_reasons { &["Type", "Status", "Reason", "Message"] } else { &["Type", "Status"] };
        let mut table = Table::new(2, heads).spaced(2);
        for it in all {
            let pointers = ["/type", "/status", "/reason", "/message"].into_iter().take(heads.len());
            table.row(pointers.map(|pointer| at(it, pointer).into()));
        }
        self.0.push_str(&table.render(Colours::Off));
    }

    async fn sets(&mut self, target: &Target, client: &Client) -> Result<(), Error> {
        let selector = format!("driftless.application={},driftless.workload={}", target.app, target.workload);
        let wanted = Wanted { kinds: vec![Kind::ReplicaSet], name: None };
        let scope = Scope { selector: Some(&selector), ..Scope::default() };
        let sets = objects(client, &wanted, &scope).await?;
        let hash = at(&target.item, "/metadata/annotations/driftless.spec");
        let is_new = |it: &&Value| it["metadata"]["labels"]["pod-template-hash"] == hash.as_str();
        let line = |it: &Value| {
            let (current, wanted) = (count(it, "/status/replicas"), count(it, "/spec/replicas"));
            format!("{} ({current}/{wanted} replicas created)", at(it, "/metadata/name"))
        };
        let all = |is_wanted: &dyn Fn(&&Value) -> bool| {
            sets.iter().filter(|it| is_wanted(it)).map(line).collect::<Vec<_>>().join(", ")
        };
        let (old, new) = (all(&|it| !is_new(it)), all(&|it| is_new(it)));
        self.field("OldReplicaSets", old);
        self.field("NewReplicaSet", new);
        Ok(())
    }
}

/// A probe in kubectl's words: `http-get http://:80/ delay=0s timeout=1s period=10s #success=1 #failure=3`.
fn probe_text(probe: &Value) -> String {
    let port = |kind: &str| at(probe, &format!("/{kind}/port"));
    let host = |kind: &str| at(probe, &format!("/{kind}/host"));
    let action = if probe.get("httpGet").is_some() {
        let scheme = at(probe, "/httpGet/scheme").to_lowercase();
        format!("http-get {scheme}://{}:{}{}", host("httpGet"), port("httpGet"), at(probe, "/httpGet/path"))
    } else if probe.get("tcpSocket").is_some() {
        format!("tcp-socket {}:{}", host("tcpSocket"), port("tcpSocket"))
    } else if probe.get("grpc").is_some() {
        format!("grpc <pod>:{} {}", port("grpc"), at(probe, "/grpc/service"))
    } else {
        format!("exec [{}]", words(probe, "/exec/command").join(" "))
    };
    format!(
        "{action} delay={}s timeout={}s period={}s #success={} #failure={}",
        count(probe, "/initialDelaySeconds"),
        count(probe, "/timeoutSeconds"),
        count(probe, "/periodSeconds"),
        count(probe, "/successThreshold"),
        count(probe, "/failureThreshold"),
    )
}

/// The state of a container, field by field; the first field has no name.
fn state(state: Option<&Value>) -> Vec<(&'static str, String)> {
    let Some((word, it)) = state.and_then(Value::as_object).and_then(|it| it.iter().next()) else {
        return Vec::new();
    };
    let title = word.get(..1).map(|it| it.to_uppercase() + word.get(1..).unwrap_or_default());
    let mut fields = vec![("", title.unwrap_or_default())];
    for (name, key) in [
        ("  Reason", "/reason"),
        ("  Message", "/message"),
        ("  Exit Code", "/exitCode"),
        ("  Started", "/startedAt"),
        ("  Finished", "/finishedAt"),
    ] {
        let value = at(it, key);
        if !value.is_empty() {
            fields.push((name, value));
        }
    }
    fields
}

/// The events of the object, oldest first.
async fn events(target: &Target, client: &Client, now: Timestamp) -> Result<String, Error> {
    let pairs = [("app", target.app.as_str()), ("limit", EVENTS)];
    let all: Vec<Event> = client.get(&path("/api/v1/events", pairs)).await?;
    let application: Application = client.get(&target.route("")?).await?;
    let objects = EventObjects::of(target, &application);
    let mine: Vec<&Event> = all.iter().filter(|event| objects.contains(&event.object)).collect();
    if mine.is_empty() {
        return Ok(format!("{:<NAMES$}<none>\n", "Events:"));
    }
    let mut table = Table::new(2, &["Type", "Reason", "Age", "From", "Object", "Message"]).spaced(2);
    for it in mine {
        table.row([
            format!("{:?}", it.kind).into(),
            it.reason.as_str().into(),
            age::short(now.since(it.at)).into(),
            "driftless".into(),
            it.object.as_str().into(),
            it.message.as_str().into(),
        ]);
    }
    Ok(format!("Events:\n{}", table.render(Colours::Off)))
}
