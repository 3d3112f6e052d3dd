//! Rules for every stack of either format, and between the stacks of one host.
//!
//! It looks at the model alone: what a format has to say about its own fields is said when it is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use crate::{
    AppName, CanaryStep, Finding, Format, ImageUpdate, MountSource, NetworkMode, Port, PortPlace, Protocol,
    PullPolicy, Stack, Strategy, Subject, UpdateMode, Workload, WorkloadName, addresses_overlap,
    network_size,
};

/// Findings about one stack by itself. Conflicts of host ports are reported at the port, if its place is known.
pub fn check(stack: &Stack) -> Vec<Finding> {
    let mut findings = Vec::new();
    for subject in stack.subjects() {
        // The replicas of a Swarm run on several nodes, which distribute the connections to a port.
        if stack.swarm.is_empty() {
            check_replicas(subject, &mut findings);
        }
        check_canary(subject, &mut findings);
        check_references(stack, subject, &mut findings);
        check_targets(subject, &mut findings);
    }
    check_cycles(stack, &mut findings);
    check_shared_claims(stack, &mut findings);
    check_image_updates(stack, &mut findings);
    findings.extend(network_size::check(stack));
    findings
}

/// Steps of a canary that cannot be made with the number of replicas and the strategy of a workload.
fn check_canary(Subject { name, workload }: Subject<'_>, findings: &mut Vec<Finding>) {
    if workload.canary.is_empty() {
        return;
    }
    let mut error = |message: String, help: &str| {
        findings.push(Finding::error(workload.origin.clone(), path(name), message).help(help));
    };
    if workload.strategy == Strategy::Recreate {
        error(
            "a canary needs old and new instances at the same time, and the strategy `Recreate` removes all old ones first"
                .to_owned(),
            "use the strategy `RollingUpdate`, or remove the canary",
        );
    } else if let Some((message, help)) = CanaryStep::obstacle(&workload.canary, workload.replicas) {
        error(message, help);
    }
}

/// The setting of one workload counts for all that have the image, so two different ones are an error. One without an image that can get
/// newer has no effect, which would be taken for updates.
fn check_image_updates(stack: &Stack, findings: &mut Vec<Finding>) {
    let mut known: BTreeMap<&str, (&Workload, &ImageUpdate)> = BTreeMap::new();
    for Subject { name, workload } in stack.subjects() {
        let Some(update) = &workload.image_update else { continue };
        if update.mode != UpdateMode::Off && workload.registry_images().next().is_none() {
            let reason = if workload.build.is_some() {
                "is built from the repository"
            } else if workload.pull == PullPolicy::Never {
                "is never pulled"
            } else {
                "is named by a digest"
            };
            let message = format!("`update` has no effect: the image {reason}");
            let finding = Finding::warning(workload.origin.clone(), path(name), message);
            findings.push(finding.help("name an image of a registry by its tag, or remove `update`"));
        }
        for image in workload.containers().map(|container| container.image.as_str()) {
            let (first, other) = known.entry(image).or_insert((workload, update));
            if *other != update {
                let message = format!(
                    "the update of the image `{image}` is not the one at {}, and an image is followed once in an application",
                    first.origin
                );
                let finding = Finding::error(workload.origin.clone(), path(name), message);
                findings.push(finding.help("give both the same settings, or remove one of them"));
            }
        }
    }
}

/// The stacks that applications were last given. An application keeps the names and ports of that stack.
pub struct Held<'a> {
    /// The last stack of a wanted application. Only asked for applications that claim what another one claims.
    pub of: &'a dyn Fn(&AppName) -> Option<Arc<Stack>>,
    /// The last stacks of applications that have containers and are in no repository now.
    pub absent: &'a [Arc<Stack>],
}

/// Findings about stacks that claim the same project name, container name or host port.
///
/// The application that holds the name or port keeps it. Between two that do not hold it, the first by name
/// gets it. Each of the others gets an error at its own manifest that names the manifest of the holder.
pub fn conflicts(stacks: &[&Stack], held: &Held<'_>) -> Vec<(AppName, Finding)> {
    let mut claims: BTreeMap<Thing<'_>, Vec<Claimant<'_>>> = BTreeMap::new();
    let absent = held.absent.iter().map(|stack| (Standing::Absent, stack.as_ref()));
    let wanted = stacks.iter().map(|stack| (Standing::Wanted, *stack));
    for (standing, stack) in absent.chain(wanted) {
        for (thing, workload, port) in things(stack) {
            claims.entry(thing).or_default().push(Claimant { standing, stack, workload, port });
        }
    }
    let mut held_stacks = BTreeMap::new();
    let mut found = Vec::new();
    for (thing, mut claimants) in claims {
        if claimants.iter().all(|one| claimants.iter().all(|other| one.stack.app == other.stack.app)) {
            continue;
        }
        claimants.sort_by_cached_key(|claimant| {
            let app = &claimant.stack.app;
            let is_holder = claimant.standing == Standing::Absent || {
                let stack = held_stacks.entry(app.clone()).or_insert_with(|| (held.of)(app));
                let claims_it = |stack: &Arc<Stack>| things(stack).iter().any(|(held, ..)| *held == thing);
                stack.as_ref().is_some_and(claims_it)
            };
            (!is_holder, claimant.standing != Standing::Absent, app.clone())
        });
        let mut holders: Vec<Claimant<'_>> = Vec::new();
        for claimant in claimants {
            let other = holders.iter().find(|holder| holder.is_in_the_way_of(&claimant));
            if let (Some(other), Standing::Wanted) = (other, claimant.standing) {
                found.push((claimant.stack.app.clone(), claimant.refusal(&thing, other)));
            } else {
                holders.push(claimant);
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// A thing that only one application of a host can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing<'a> {
    Project(&'a str),
    ContainerName(&'a str),
    /// On any address: two addresses of the host can have the same port.
    Port(u16, Protocol),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Wanted,
    /// In no repository now, and its containers still have what they had.
    Absent,
}

/// An application that claims a thing.
struct Claimant<'a> {
    standing: Standing,
    stack: &'a Stack,
    workload: Option<Subject<'a>>,
    port: Option<Claim>,
}

impl Claimant<'_> {
    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let overlaps = match (&self.port, &other.port) {
            (Some(one), Some(other)) => one.overlaps(other),
            _ => true,
        };
        self.stack.app != other.stack.app && overlaps
    }

    /// `application `shop` (sites/shop/compose.yaml:3:5)`.
    fn whereabouts(&self) -> String {
        let place = match (self.workload, &self.port) {
            (Some(subject), Some(claim)) => place_of(self.stack, subject, claim).location.to_string(),
            (Some(subject), None) => subject.workload.origin.to_string(),
            (None, _) => self.stack.project_location().to_string(),
        };
        let since = match self.standing {
            Standing::Wanted => "",
            Standing::Absent => " of its last revision",
        };
        format!("application `{}` ({place}{since})", self.stack.app)
    }

    /// Whether it looks like the holder under a new name, and would not have its volumes, whose names begin with the project.
    fn may_be_renamed(&self, holder: &Self) -> bool {
        let (new, old) = (self.stack, holder.stack);
        let are_compose = [new, old].iter().all(|stack| stack.format == Format::Compose);
        are_compose
            && new.project != old.project
            && new.workloads.keys().eq(old.workloads.keys())
            && old.volumes.iter().any(|(name, volume)| !volume.external && !new.volumes.contains_key(name))
    }

    fn refusal(&self, thing: &Thing<'_>, holder: &Self) -> Finding {
        let (by, app) = (holder.whereabouts(), &holder.stack.app);
        let message = match (thing, &self.port) {
            (Thing::Project(name), _) => format!("the project name `{name}` is taken by {by}"),
            (Thing::ContainerName(name), _) => format!("the container name `{name}` is taken by {by}"),
            (Thing::Port(..), Some(claim)) => format!("the host port {claim} is taken by {by}"),
            (Thing::Port(port, protocol), None) => {
                format!("the host port {port}/{} is taken by {by}", protocol.as_str())
            }
        };
        if let Some(subject @ Subject { name, workload }) = self.workload {
            let PortPlace { location, path } = match &self.port {
                Some(claim) => place_of(self.stack, subject, claim),
                None => PortPlace { location: workload.origin.clone(), path: path(name) },
            };
            let finding = Finding::error(location, path, message);
            return match holder.standing {
                Standing::Wanted => finding,
                Standing::Absent => {
                    let remedy = format!("if {app} has left Git, `driftless remove {app}` frees it");
                    finding.help(if self.may_be_renamed(holder) {
                        let project = &holder.stack.project;
                        format!(
                            "if this is {app} under a new name, write `name: {project}` first, or it begins with empty volumes: \
                             docs/rollouts.md#rename-or-move-an-application; {remedy}"
                        )
                    } else {
                        remedy
                    })
                }
            };
        }
        let location = self.stack.project_location();
        let path = if is_named_by_variable(self.stack) { "COMPOSE_PROJECT_NAME" } else { "name" };
        Finding::error(location, path, message).help(format!(
            "if {app} has left Git, `driftless remove {app}` frees the name, and this application goes on with its volumes; another `name:` begins with empty ones"
        ))
    }
}

/// Whether the name of the project is that of a variable, and not that of a Compose file or of the application.
fn is_named_by_variable(stack: &Stack) -> bool {
    match &stack.project_place {
        Some(place) => !stack.manifests.contains(&place.file),
        None => stack.project != stack.app.as_str(),
    }
}

/// One thing that a workload of a stack claims, or the stack itself.
type Wish<'a> = (Thing<'a>, Option<Subject<'a>>, Option<Claim>);

fn things(stack: &Stack) -> Vec<Wish<'_>> {
    let mut things = vec![(Thing::Project(&stack.project), None, None)];
    for subject in stack.subjects() {
        let (workload, of_it) = (subject.workload, Some(subject));
        if let Some(wanted) = &workload.container_name {
            things.push((Thing::ContainerName(wanted), of_it, None));
        }
        if workload.replicas > 0 {
            let ports = workload.container.ports.iter().filter_map(Claim::of);
            things.extend(ports.map(|port| (Thing::Port(port.port, port.protocol), of_it, Some(port))));
        }
    }
    things
}

fn check_replicas(Subject { name, workload }: Subject<'_>, findings: &mut Vec<Finding>) {
    if workload.replicas < 2 {
        return;
    }
    let mut tell = |message: String| {
        findings.push(Finding::error(workload.origin.clone(), path(name), message));
    };
    let replicas = workload.replicas;
    if let Some(wanted) = &workload.container_name {
        tell(format!("{replicas} replicas cannot all have the container name `{wanted}`"));
    }
    for port in &workload.container.ports {
        if port.host.is_some_and(|it| it.len() < replicas) {
            let claim = Claim::of(port).map_or_else(String::new, |it| it.to_string());
            tell(format!("{replicas} replicas cannot share the host port {claim}"));
        }
    }
    for (network, attachment) in workload.container.networks() {
        for address in attachment.fixed_addresses() {
            tell(format!("{replicas} replicas cannot all have the address {address} on `{network}`"));
        }
    }
}

/// Dependencies, networks and volumes must be there.
fn check_references(stack: &Stack, subject: Subject<'_>, findings: &mut Vec<Finding>) {
    let Subject { name, workload } = subject;
    let mut tell = |message: String| {
        findings.push(Finding::error(workload.origin.clone(), path(name), message));
    };
    for dependency in &workload.after {
        if dependency.required && !stack.workloads.contains_key(&dependency.workload) {
            tell(format!("depends on `{}`, which does not exist", dependency.workload));
        }
    }
    if let NetworkMode::Networks(networks) = &workload.container.network_mode {
        for network in networks.keys().filter(|it| !stack.networks.contains_key(*it)) {
            tell(format!("joins the network `{network}`, which is not defined"));
        }
    }
    for mount in &workload.container.mounts {
        if let MountSource::Volume { name: volume, no_copy: _ } = &mount.source
            && !stack.volumes.contains_key(volume)
        {
            tell(format!("mounts the volume `{volume}`, which is not defined"));
        }
    }
}

fn check_targets(Subject { name, workload }: Subject<'_>, findings: &mut Vec<Finding>) {
    let mut targets = BTreeSet::new();
    for mount in &workload.container.mounts {
        let target = mount.target.as_str();
        let mut tell = |message: String| {
            findings.push(Finding::error(workload.origin.clone(), path(name), message));
        };
        if !targets.insert(target) {
            tell(format!("two mounts have the same target `{target}`"));
        }
        if !target.starts_with('/') || target == "/" {
            tell(format!("`{target}` cannot be mounted on: a target is an absolute path below `/`"));
        }
    }
}

/// Reports each cycle of dependencies once, at its first workload.
fn check_cycles(stack: &Stack, findings: &mut Vec<Finding>) {
    let mut done: BTreeSet<&WorkloadName> = BTreeSet::new();
    for start in stack.workloads.keys() {
        // Depth first without recursion: the path, and for each on it how many dependencies were followed.
        let mut trail: Vec<(&WorkloadName, usize)> = vec![(start, 0)];
        while let Some((name, next)) = trail.last().copied() {
            let dependency = stack.workloads.get(name).and_then(|it| it.after.get(next));
            let Some(dependency) = dependency.filter(|_| !done.contains(name)) else {
                done.insert(name);
                trail.pop();
                continue;
            };
            if let Some(last) = trail.last_mut() {
                last.1 += 1;
            }
            let on = &dependency.workload;
            if let Some(at) = trail.iter().position(|(it, _)| *it == on) {
                let mut names: Vec<&str> = trail.iter().skip(at).map(|(it, _)| it.as_str()).collect();
                names.push(on.as_str());
                let origin = stack.workloads.get(on).map(|it| it.origin.clone()).unwrap_or_default();
                let message = format!("dependencies go round in a circle: {}", names.join(" → "));
                findings.push(Finding::error(origin, path(on), message));
            } else if !done.contains(on) {
                trail.push((on, 0));
            }
        }
    }
}

/// Two workloads of one stack must not want the same host port or container name.
fn check_shared_claims(stack: &Stack, findings: &mut Vec<Finding>) {
    let mut ports = PortTable::default();
    let mut names: BTreeMap<&str, &WorkloadName> = BTreeMap::new();
    for (name, workload) in &stack.workloads {
        if let Some(wanted) = &workload.container_name {
            match names.get(wanted.as_str()) {
                Some(other) => {
                    let message = format!("the container name `{wanted}` is taken by `{other}`");
                    findings.push(Finding::error(workload.origin.clone(), path(name), message));
                }
                None => drop(names.insert(wanted, name)),
            }
        }
        if workload.replicas == 0 {
            continue;
        }
        for claim in workload.container.ports.iter().filter_map(Claim::of) {
            let Some((_, by)) = ports.taken(&claim) else {
                ports.take(claim, stack, workload);
                continue;
            };
            let PortPlace { location, path } = place_of(stack, Subject { name, workload }, &claim);
            let message = if by.origin == workload.origin {
                format!("the host port {claim} is published twice")
            } else {
                let holder = stack.workloads.iter().find(|(_, other)| std::ptr::eq(*other, by));
                let other =
                    holder.map(|(name, workload)| place_of(stack, Subject { name, workload }, &claim));
                let other = other.map_or_else(|| by.origin.clone(), |place| place.location);
                format!("the host port {claim} is taken already ({other})")
            };
            findings.push(Finding::error(location, path, message));
        }
    }
}

/// The place of a host port in the manifests, or else of its workload.
fn place_of(stack: &Stack, Subject { name, workload }: Subject<'_>, claim: &Claim) -> PortPlace {
    let known = stack.port_places.get(&(name.clone(), claim.port, claim.protocol)).cloned();
    known.unwrap_or_else(|| PortPlace { location: workload.origin.clone(), path: path(name) })
}

fn path(name: &WorkloadName) -> String {
    format!("workload {name}")
}

/// A single host port. A range leaves the engine a choice, so it claims nothing for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    port: u16,
    protocol: Protocol,
    /// `None`: on every address.
    ip: Option<IpAddr>,
}

impl Claim {
    fn of(port: &Port) -> Option<Self> {
        let range = port.host.filter(|it| it.first == it.last && it.first != 0)?;
        Some(Self { port: range.first, protocol: port.protocol, ip: port.host_ip })
    }

    fn overlaps(&self, other: &Self) -> bool {
        (self.port, self.protocol) == (other.port, other.protocol) && addresses_overlap(self.ip, other.ip)
    }
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ip {
            Some(ip) if ip.is_ipv6() => write!(f, "[{ip}]:{}/{}", self.port, self.protocol.as_str()),
            Some(ip) => write!(f, "{ip}:{}/{}", self.port, self.protocol.as_str()),
            None => write!(f, "{}/{}", self.port, self.protocol.as_str()),
        }
    }
}

/// The owners of host ports, by number and protocol.
#[derive(Default)]
struct PortTable<'a>(BTreeMap<(u16, Protocol), Vec<Holder<'a>>>);

/// A claim, and who makes it.
type Holder<'a> = (Claim, &'a Stack, &'a Workload);

impl<'a> PortTable<'a> {
    fn taken(&self, claim: &Claim) -> Option<(&'a Stack, &'a Workload)> {
        let holders = self.0.get(&(claim.port, claim.protocol))?;
        holders
            .iter()
            .find(|(other, ..)| claim.overlaps(other))
            .map(|(_, stack, workload)| (*stack, *workload))
    }

    fn take(&mut self, claim: Claim, stack: &'a Stack, workload: &'a Workload) {
        self.0.entry((claim.port, claim.protocol)).or_default().push((claim, stack, workload));
    }
}
