//! What Docker Compose made and the stack has a place for: how it differs, whether it may be taken over, and the
//! taking over.
//!
//! Labels of a live container cannot be changed, so being ours is a fact of the [`Record`] alone. What is equal to
//! what Git asks for is entered with the hash of that, and is left as it is; what differs is entered with the hash
//! of what it is, and is then outdated like anything else of ours. What Git has no service for is never taken.

use std::{collections::BTreeSet, fmt};

use driftless_model::{
    AdoptedContainer, AdoptedNetwork, AgentId, Candidate, Container, ContainerId, Format, InstanceId,
    MountSource, Network, Observed, Record, SpecHash, Volume, Workload, WorkloadName,
};

use super::{Target, Wait, census::Census, container_name, diff, diff::FieldDifference, round::Round};

/// One thing that Docker Compose made and the stack has a place for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name in Docker.
    pub name: String,
    pub what: Claimed,
    /// Where it is not as Git says, masked.
    pub differences: Vec<FieldDifference>,
    /// Why it must not be taken over as it is.
    pub obstacle: Option<String>,
    /// What is remembered of it.
    spec: SpecHash,
    /// It need not be made anew.
    stays: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    Container { id: ContainerId, instance: InstanceId },
    Network { id: String },
    Volume,
}

/// Takes everything over, or nothing and says what is in the way.
pub fn adopt(
    record: &mut Record,
    target: &Target<'_>,
    observed: &Observed,
) -> Result<Vec<Claim>, Vec<String>> {
    let claims = survey(target, observed);
    let obstacles: Vec<String> = claims
        .iter()
        .filter_map(|it| it.obstacle.as_ref().map(|obstacle| format!("{}: {obstacle}", it.name)))
        .collect();
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    for Claim { name, what, spec, .. } in &claims {
        match what {
            Claimed::Container { id, instance } => {
                let taken = AdoptedContainer { instance: instance.clone(), spec: spec.clone() };
                record.adopted.containers.insert(id.clone(), taken);
                record.ledger.insert(id.clone());
            }
            Claimed::Network { id } => {
                let taken = AdoptedNetwork { id: id.clone(), spec: spec.clone() };
                record.adopted.networks.insert(name.clone(), taken);
            }
            Claimed::Volume => drop(record.adopted.volumes.insert(name.clone(), spec.clone())),
        }
    }
    Ok(claims)
}

/// Puts what was taken over where what we made ourselves is, as if it carried our labels.
pub fn embrace(observed: &mut Observed, record: &Record, agent: &AgentId) {
    for (id, taken) in &record.adopted.containers {
        let Some(Candidate { mut instance, defaults: _ }) = observed.candidates.remove(id) else { continue };
        instance.agent = agent.clone();
        instance.instance = taken.instance.clone();
        instance.spec = taken.spec.clone();
        observed.claims.names.retain(|_, holder| holder != id);
        observed.claims.ports.retain(|it| it.by != instance.name);
        for network in observed.networks.values_mut() {
            network.foreign.retain(|it| *it != instance.name);
        }
        observed.instances.insert(id.clone(), instance);
    }
    for (name, taken) in &record.adopted.networks {
        let found = observed.networks.get_mut(name).filter(|it| it.agent.is_none() && it.id == taken.id);
        if let Some(network) = found {
            network.agent = Some(agent.clone());
            network.spec = Some(taken.spec.clone());
        }
    }
    for (name, spec) in &record.adopted.volumes {
        if let Some(volume) = observed.volumes.get_mut(name).filter(|it| it.agent.is_none()) {
            volume.agent = Some(agent.clone());
            volume.spec = Some(spec.clone());
        }
    }
}

/// All that could be taken over, in the order of kinds and names. What was taken over already is not among it.
pub fn survey(target: &Target<'_>, observed: &Observed) -> Vec<Claim> {
    if target.stack.format != Format::Compose {
        return Vec::new();
    }
    let mut claims: Vec<Claim> =
        observed.candidates.values().filter_map(|it| container_claim(target, it)).collect();
    for (name, wanted) in target.stack.networks.iter().filter(|(_, it)| !it.external) {
        let Some(found) = observed.networks.get(name).filter(|it| it.agent.is_none()) else { continue };
        if let Some(made) = &found.compose {
            let differences = network_differences(wanted, made);
            let stays = differences.is_empty();
            let spec = SpecHash::of(if stays { wanted } else { made });
            let what = Claimed::Network { id: found.id.clone() };
            let name = name.clone();
            claims.push(Claim { name, what, differences, obstacle: None, spec, stays });
        }
    }
    for (name, wanted) in target.stack.volumes.iter().filter(|(_, it)| !it.external) {
        let Some(found) = observed.volumes.get(name).filter(|it| it.agent.is_none()) else { continue };
        if let Some(made) = &found.compose {
            let differences = volume_differences(wanted, made);
            let spec = SpecHash::of(if differences.is_empty() { wanted } else { made });
            let (what, name) = (Claimed::Volume, name.clone());
            claims.push(Claim { name, what, differences, obstacle: None, spec, stays: true });
        }
    }
    claims
}

/// Holds back what nobody let us take over. True: nothing of the application is ours yet, and nothing at all is to
/// be done before that is decided.
pub(super) fn hold(round: &mut Round<'_>, census: &Census<'_>) -> bool {
    let claims = survey(round.target, round.observed);
    let stack = round.target.stack;
    let mut waiting: BTreeSet<&WorkloadName> = BTreeSet::new();
    for name in stack.workloads.keys() {
        let of = |it: &&Claim| matches!(&it.what, Claimed::Container { instance, .. } if instance.workload == *name);
        let mine: Vec<&Claim> = claims.iter().filter(of).collect();
        if mine.is_empty() {
            continue;
        }
        waiting.insert(name);
        round.wait(Wait::NotAdopted {
            app: stack.app.clone(),
            project: stack.project.clone(),
            workload: name.clone(),
            containers: mine.iter().map(|it| it.name.clone()).collect(),
            obstacle: mine.iter().find_map(|it| it.obstacle.clone()),
            policy: round.target.policy.adopt,
        });
    }
    for claim in claims.iter().filter(|it| !it.differences.is_empty()) {
        let kind = match claim.what {
            Claimed::Container { .. } => continue,
            Claimed::Network { .. } => "network",
            Claimed::Volume => "volume",
        };
        round.wait(Wait::NotAsInGit {
            kind: kind.to_owned(),
            name: claim.name.clone(),
            fields: claim.differences.iter().map(|it| it.field.clone()).collect(),
        });
    }
    let is_new = census.members.is_empty() && census.orphans.is_empty();
    let holds_all = is_new && !waiting.is_empty();
    round.untaken = waiting.into_iter().cloned().collect();
    holds_all
}

fn container_claim(target: &Target<'_>, candidate: &Candidate) -> Option<Claim> {
    let Candidate { instance, defaults } = candidate;
    let InstanceId { workload: name, slot } = &instance.instance;
    let workload = target.stack.workloads.get(name)?;
    let mut differences = diff::differences(&workload.container, defaults, &instance.config, target.mask);
    // A rollback makes containers from the digest in place of the manifest's reference.
    let pinned = target.images.get(&workload.container.image);
    differences.retain(|it| it.field != "image" || pinned != Some(&instance.config.image));
    let stays = differences.iter().all(is_live);
    let want = container_name(target.stack, name, *slot);
    if instance.name != want {
        let found = instance.name.clone();
        differences.push(FieldDifference { field: "name".into(), want, found });
    }
    Some(Claim {
        name: instance.name.clone(),
        what: Claimed::Container { id: instance.id.clone(), instance: instance.instance.clone() },
        differences,
        obstacle: data_elsewhere(workload, &instance.config),
        spec: if stays { workload.spec() } else { instance.config.spec() },
        stays,
    })
}

/// What is set right on a container while it runs.
fn is_live(difference: &FieldDifference) -> bool {
    let field = &difference.field;
    let is_network =
        field.starts_with("networks.") && [".attached", ".aliases"].iter().any(|it| field.ends_with(it));
    is_network || field.starts_with("resources.") || field == "restart"
}

/// A relative path that the container writes to is a folder of the application's own here, and is empty. To replace
/// a container whose data lie elsewhere would look like the loss of all of them.
fn data_elsewhere(workload: &Workload, found: &Container) -> Option<String> {
    let clean = |it: &str| it.trim_end_matches('/').to_owned();
    workload.container.mounts.iter().find_map(|wanted| {
        let MountSource::AppFolder(folder) = &wanted.source else { return None };
        let there = found.mounts.iter().find(|it| clean(&it.target) == clean(&wanted.target))?;
        let MountSource::Bind { path, .. } = &there.source else { return None };
        Some(format!(
            "what it keeps at {} lies in {path} on the host, while `./{folder}` in Git is a folder of the agent's own; name {path} in Git instead",
            wanted.target
        ))
    })
}

/// Between a network that Git asks for and one that is there. Where Git names no addresses, the engine chose them.
fn network_differences(want: &Network, found: &Network) -> Vec<FieldDifference> {
    let Network {
        key: _,
        external: _,
        driver,
        options,
        internal,
        attachable: _,
        enable_ipv6,
        disable_ipv4,
        ipam,
        ipam_driver,
        ipam_options,
        aux_addresses,
        labels,
    } = want;
    let driver_of = |it: &Option<String>| it.clone().unwrap_or_else(|| "bridge".to_owned());
    let mut out = Differences::default();
    out.compare("driver", driver_of(driver), driver_of(&found.driver));
    // What newer engines and releases of Compose write down by themselves.
    let is_implied = |it: &&String| it.starts_with("com.docker.network.enable_ipv");
    for name in options.keys().chain(found.options.keys()).filter(|it| !is_implied(it)) {
        out.compare_set(&format!("options.{name}"), options.get(name), found.options.get(name));
    }
    out.compare("internal", internal.to_string(), found.internal.to_string());
    out.compare("enableIpv6", enable_ipv6.to_string(), found.enable_ipv6.to_string());
    out.compare("disableIpv4", disable_ipv4.to_string(), found.disable_ipv4.to_string());
    let plain = |it: &Option<String>| it.clone().unwrap_or_else(|| "default".to_owned());
    out.compare("ipam.driver", plain(ipam_driver), plain(&found.ipam_driver));
    for (name, value) in ipam_options {
        out.compare_set(&format!("ipam.options.{name}"), Some(value), found.ipam_options.get(name));
    }
    for (subnet, kept) in aux_addresses {
        for (name, address) in kept {
            let there = found.aux_addresses.get(subnet).and_then(|it| it.get(name));
            out.compare_set(&format!("ipam.auxAddresses.{name}"), Some(address), there);
        }
    }
    for (subnet, gateway, range) in ipam {
        let there = found.ipam.iter().find(|it| it.0 == *subnet);
        out.compare_set("ipam.subnet", subnet.as_ref(), there.and_then(|it| it.0.as_ref()));
        if let Some((_, found_gateway, found_range)) = there {
            if gateway.is_some() {
                out.compare_set("ipam.gateway", gateway.as_ref(), found_gateway.as_ref());
            }
            out.compare_set("ipam.ipRange", range.as_ref(), found_range.as_ref());
        }
    }
    for name in labels.keys().chain(found.labels.keys()) {
        out.compare_set(&format!("labels.{name}"), labels.get(name), found.labels.get(name));
    }
    out.done()
}

pub(super) fn volume_differences(want: &Volume, found: &Volume) -> Vec<FieldDifference> {
    let Volume { key: _, external: _, driver, options, labels } = want;
    let driver_of = |it: &Option<String>| it.clone().unwrap_or_else(|| "local".to_owned());
    let mut out = Differences::default();
    out.compare("driver", driver_of(driver), driver_of(&found.driver));
    for name in options.keys().chain(found.options.keys()) {
        out.compare_set(&format!("options.{name}"), options.get(name), found.options.get(name));
    }
    for name in labels.keys().chain(found.labels.keys()) {
        out.compare_set(&format!("labels.{name}"), labels.get(name), found.labels.get(name));
    }
    out.done()
}

/// Collects what differs, each field once.
#[derive(Default)]
struct Differences(Vec<FieldDifference>);

impl Differences {
    fn compare(&mut self, field: &str, want: String, found: String) {
        if want != found && self.0.iter().all(|it| it.field != field) {
            self.0.push(FieldDifference { field: field.to_owned(), want, found });
        }
    }

    fn compare_set(&mut self, field: &str, want: Option<&String>, found: Option<&String>) {
        let text = |it: Option<&String>| it.map_or_else(|| "unset".to_owned(), Clone::clone);
        self.compare(field, text(want), text(found));
    }

    fn done(self) -> Vec<FieldDifference> {
        self.0
    }
}

/// One line of what becomes of it, and one for each field that differs.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, fate) = match (&self.what, self.differences.is_empty(), self.stays) {
            (Claimed::Container { .. }, true, _) => ("container", "as in Git, keeps running"),
            (Claimed::Container { .. }, false, true) => ("container", "keeps running, set right in place"),
            (Claimed::Container { .. }, false, false) => ("container", "replaced"),
            (Claimed::Network { .. }, true, _) => ("network", "as in Git, kept"),
            (Claimed::Network { .. }, false, _) => ("network", "made anew"),
            (Claimed::Volume, true, _) => ("volume", "as in Git, kept"),
            (Claimed::Volume, false, _) => ("volume", "kept as it is, although it is not as in Git"),
        };
        write!(f, "{kind} {}: {fate}", self.name)?;
        for FieldDifference { field, want, found } in &self.differences {
            // A value of the environment may be a secret whatever its variable is called.
            if field.starts_with("env.") || field.starts_with("labels.") {
                write!(f, "\n  {field} differs")?;
            } else {
                write!(f, "\n  {field} is {found}, not {want}")?;
            }
        }
        match &self.obstacle {
            Some(obstacle) => write!(f, "\n  cannot be taken over: {obstacle}"),
            None => Ok(()),
        }
    }
}
