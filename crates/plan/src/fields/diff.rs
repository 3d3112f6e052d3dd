//! The differences between two configurations, field by field.
//!
//! Spec hashes decide what is outdated. This comparison explains why, and it finds containers that only carry the
//! agent's labels. Both sides are effective configurations in a normal form, so a container shows no difference right
//! after it was created. Values are compared as they are, and printed masked.

use std::collections::BTreeSet;

use driftless_model::{
    Container, EngineTraits, Format, Healthcheck, Instance, Mask, Namespace, NetworkMode, Observed, Peer,
    Workload,
};

use crate::fields::{
    container::{ANONYMOUS, fields, normal_image},
    host,
    value::{Fields, Value},
};

/// One field that is not as it should be. Both sides are masked; `unset` is the engine's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDifference {
    /// `image`, `env.PORT`, `mounts./data`, `ports.80/tcp`, `networks.shop_default.aliases`, `resources.memory`.
    pub field: String,
    pub want: String,
    pub found: String,
}

impl FieldDifference {
    /// `driver is local, not nfs`; without the values if all that differs is hidden.
    pub(crate) fn sentence(&self) -> String {
        let Self { field, want, found } = self;
        if want == found { format!("{field} differs") } else { format!("{field} is {found}, not {want}") }
    }
}

/// The fields in which `found`, as the engine reports it, differs from `desired` on an image with these `defaults`.
pub fn differences(
    desired: &Container,
    defaults: &Container,
    found: &Container,
    mask: &Mask,
) -> Vec<FieldDifference> {
    let want = desired.effective(defaults);
    let found = fields(&without_engine_defaults(found, &want, &EngineTraits::default()));
    between(&fields(&want), &found, mask)
}

/// The same for a container of an engine with these traits.
pub(crate) fn instance_differences(
    (desired, format): (&Container, Format),
    defaults: &Container,
    instance: &Instance,
    traits: &EngineTraits,
    mask: &Mask,
) -> Vec<FieldDifference> {
    let want = effective(desired, format, defaults);
    let found = fields(&instance_config(instance, (&want, format), traits));
    between(&fields(&want), &found, mask)
}

/// The configuration that a container of this format gets on an image with these defaults. The health check of an image does
/// not count in Kubernetes.
pub(crate) fn effective(desired: &Container, format: Format, defaults: &Container) -> Container {
    let mut all = desired.effective(defaults);
    if format == Format::Kubernetes {
        all.healthcheck.clone_from(&desired.healthcheck);
    }
    all
}

/// The configuration of a container without what the engine filled in. The engine resolves the name of a container on all
/// its networks, so it does not tell whether the name is also an alias that was asked for.
pub(crate) fn instance_config(
    instance: &Instance,
    (want, format): (&Container, Format),
    traits: &EngineTraits,
) -> Container {
    let mut found = without_engine_defaults(&instance.config, want, traits);
    // A container of an older agent has the health check of its image, which does not count.
    if format == Format::Kubernetes && want.healthcheck.is_none() {
        found.healthcheck = None;
    }
    let NetworkMode::Networks(networks) = &mut found.network_mode else { return found };
    for (network, attachment) in networks {
        let wanted = want.networks().get(network).is_some_and(|it| it.aliases.contains(&instance.name));
        if wanted && !attachment.aliases.contains(&instance.name) {
            attachment.aliases.push(instance.name.clone());
        }
    }
    found
}

/// The differences between any two sides.
pub(crate) fn between(want: &Fields, found: &Fields, mask: &Mask) -> Vec<FieldDifference> {
    let mask = knowing_both(mask, want, found);
    let paths: BTreeSet<&Vec<String>> = want.keys().chain(found.keys()).collect();
    let show = |side: &Fields, path: &Vec<String>| match side.get(path) {
        Some(value) => value.shown(path, &mask),
        None => "unset".to_owned(),
    };
    paths
        .into_iter()
        .filter(|path| want.get(*path) != found.get(*path))
        .map(|path| FieldDifference {
            field: path.join("."),
            want: show(want, path),
            found: show(found, path),
        })
        .collect()
}

/// An effective configuration as YAML with sorted keys, masked. What is at its default is left out.
pub fn canonical_yaml(container: &Container, mask: &Mask) -> String {
    let fields = fields(container);
    yaml(&fields, &knowing(mask, [&fields]))
}

/// The configuration of a container that Git does not name any more, as [`canonical_yaml`]. The agent no longer knows
/// which of its variables come from a Secret, so where there are Secrets it hides all of them.
pub(crate) fn extra_yaml(container: &Container, format: Format, mask: &Mask) -> String {
    match format {
        Format::Compose => canonical_yaml(container, mask),
        Format::Kubernetes => canonical_yaml(container, &mask.with_names(container.env.keys())),
    }
}

/// Both sides as canonical YAML, masked, and what is hidden on one side hidden on the other too.
pub(crate) fn both_as_yaml(want: &Fields, found: &Fields, mask: &Mask) -> (String, String) {
    let mask = knowing_both(mask, want, found);
    (yaml(want, &mask), yaml(found, &mask))
}

/// Takes away what the engine, its daemon's configuration or its kernel filled in where nobody asked.
fn without_engine_defaults(found: &Container, want: &Container, traits: &EngineTraits) -> Container {
    let mut found = found.clone();
    let is_host = want.network_mode == NetworkMode::Host;
    if want.hostname.is_none() && (is_host || found.hostname.as_deref().is_some_and(is_short_id)) {
        found.hostname = None;
    }
    let is_shared = is_host || matches!(want.network_mode, NetworkMode::Of(_));
    // An engine that was killed while it made the container has the name of the cluster, and not the aliases that it follows from.
    let is_of_cluster = found.domainname.as_deref() == want.cluster_domain();
    if want.domainname.is_none() && (is_shared || is_of_cluster) {
        found.domainname = None;
    }
    // The daemon's configuration says which log driver, limits and size of `/dev/shm` a container has that asks for none.
    daemon_logging(&mut found, want, traits);
    found.ulimits.retain(|name, _| want.ulimits.contains_key(name));
    found.shm_size = found.shm_size.filter(|_| want.shm_size.is_some());
    traits.copy_unsupported_limits(&want.resources, &mut found.resources);
    traits.copy_exceeding_cpus(&want.resources, &mut found.resources);
    // A kernel that cannot limit swap makes the engine write -1 for every requested value.
    if want.resources.memory_swap.is_none_or(|it| it == 0) && found.resources.memory_swap == Some(-1) {
        found.resources.memory_swap = None;
    }
    host::forgive(&mut found.host, &want.host);
    // The engine gives every end of a network an address, and tells of none that it was asked for.
    if let (NetworkMode::Networks(found), NetworkMode::Networks(want)) =
        (&mut found.network_mode, &want.network_mode)
    {
        for (network, attachment) in found {
            let asked = want.get(network).and_then(|it| it.mac_address.clone());
            attachment.mac_address = attachment.mac_address.take().or(asked);
        }
    }
    let host_mode = |mode: &Option<Namespace>| mode.as_ref().is_some_and(Namespace::is_host);
    same_peers(&mut found, want);
    if want.privileged || host_mode(&want.pid_mode) || host_mode(&want.ipc_mode) {
        let disabled = |it: &String| matches!(it.as_str(), "label=disable" | "label:disable");
        found.security_opt.retain(|it| !disabled(it) || want.security_opt.iter().any(disabled));
    }
    found
}

/// Takes away the log driver and its options where Git names none. The daemon adds its own options (`log-opts`) to those of a
/// container with its log driver, and to those of any other driver the ones of its cache. An option that Git has dropped
/// looks the same. In a container of the agent it is noticed all the same, by its spec hash.
fn daemon_logging(found: &mut Container, want: &Container, traits: &EngineTraits) {
    let Some((wanted_driver, wanted)) = &want.logging else {
        found.logging = None;
        return;
    };
    let Some((driver, options)) = &mut found.logging else {
        // The driver of the daemon without an option is not told at all.
        let is_of_daemon = |own: &String| own == wanted_driver || wanted_driver.is_empty();
        if wanted.is_empty() && traits.log_driver.as_ref().is_some_and(is_of_daemon) {
            found.logging.clone_from(&want.logging);
        }
        return;
    };
    if wanted_driver.is_empty() {
        driver.clear();
    }
    let may_be_daemon = |own: &String| wanted_driver.is_empty() || own == wanted_driver;
    let has_own_options = traits.log_driver.as_ref().is_none_or(may_be_daemon);
    options.retain(|name, _| wanted.contains_key(name) || !(has_own_options || name.starts_with("cache-")));
}

/// The engine tells of the very container that something is shared with, and Git of whose it is. Whether it is still
/// the right one is a question of its own: `decide/namespaces.rs`. Only another workload is another configuration.
fn same_peers(found: &mut Container, want: &Container) {
    let is_same = |one: &Peer, other: &Peer| match (one, other) {
        (Peer::Workload(one), Peer::Workload(other)) => one == other,
        (Peer::Container(_), _) | (_, Peer::Container(_)) => true,
    };
    if let (NetworkMode::Of(is), NetworkMode::Of(wanted)) = (&found.network_mode, &want.network_mode)
        && is_same(is, wanted)
    {
        found.network_mode.clone_from(&want.network_mode);
    }
    for (is, wanted) in [(&mut found.pid_mode, &want.pid_mode), (&mut found.ipc_mode, &want.ipc_mode)] {
        if let (Some(Namespace::Of(one)), Some(Namespace::Of(other))) = (&is, wanted)
            && is_same(one, other)
        {
            is.clone_from(wanted);
        }
    }
    for (is, wanted) in found.volumes_from.iter_mut().zip(&want.volumes_from) {
        if is_same(&is.peer, &wanted.peer) {
            is.peer.clone_from(&wanted.peer);
        }
    }
}

/// Whether a host name is the engine's default: the short id of the container.
fn is_short_id(name: &str) -> bool {
    name.len() == 12 && name.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
}

/// A mask that hides the values of secret variables and labels of these containers in free text too.
pub(crate) fn knowing<'a>(mask: &Mask, sides: impl IntoIterator<Item = &'a Fields>) -> Mask {
    let texts = sides.into_iter().flatten().filter_map(|(path, value)| match value {
        Value::Text(text) => Some((path, text.as_str())),
        Value::Flag | Value::List(_) | Value::Words(_) | Value::Secrets { .. } => None,
    });
    let (names, entries): (Vec<_>, Vec<_>) = texts.partition(|(path, _)| path.len() == 1);
    mask.with_public_names(names.into_iter().map(|(_, text)| text))
        .with_variables(entries.into_iter().filter_map(|(path, text)| Some((path.last()?.as_str(), text))))
}

/// The same for two sides that are shown together: what is hidden on one side is hidden on the other. The other value of a
/// secret is a secret as well, such as the one before a rotation, and nothing else tells so.
fn knowing_both(mask: &Mask, want: &Fields, found: &Fields) -> Mask {
    let mask = knowing(mask, [want, found]);
    let common = want.iter().filter_map(|(path, value)| Some((path, [value, found.get(path)?])));
    let differing = common.filter(|(_, [one, other])| one != other);
    let others: BTreeSet<&str> = differing
        .flat_map(|(path, [one, other])| {
            [one.counterparts(other, path, &mask), other.counterparts(one, path, &mask)].concat()
        })
        .collect();
    mask.with_secret_values(others)
}

fn yaml(fields: &Fields, mask: &Mask) -> String {
    let mut root = serde_yaml::Mapping::new();
    for (path, value) in fields {
        if let Some((name, folders)) = path.split_last() {
            put(&mut root, folders, name, value.yaml(path, mask));
        }
    }
    serde_yaml::to_string(&root).expect("text, lists and maps of text are YAML")
}

fn put(map: &mut serde_yaml::Mapping, folders: &[String], name: &str, value: serde_yaml::Value) {
    let text = |it: &str| serde_yaml::Value::String(it.to_owned());
    let Some((first, rest)) = folders.split_first() else {
        map.insert(text(name), value);
        return;
    };
    let entry = map.entry(text(first)).or_insert_with(|| serde_yaml::Mapping::new().into());
    if let serde_yaml::Value::Mapping(inner) = entry {
        put(inner, rest, name, value);
    }
}

/// The defaults of the image that an instance runs if Git names that image, or else those of Git's image. `None`: the host does
/// not have Git's image yet, or its name means another image since the instance was created, and that one gave it nothing.
pub(crate) fn image_defaults<'a>(
    workload: &Workload,
    instance: &Instance,
    observed: &'a Observed,
) -> Option<&'a Container> {
    let wanted = &workload.container.image;
    let image = if normal_image(&instance.config.image) == normal_image(wanted) {
        observed.images.values().find(|image| image.id == instance.image_id)
    } else {
        observed.images.get(wanted)
    };
    image.map(|image| &*image.defaults)
}

/// Takes away what an image may have given a container, where Git names nothing. While the image is not known, nobody knows
/// which of it that image gives too.
pub(crate) fn without_inherited(found: &mut Fields, want: &Fields, desired: &Container) {
    let anonymous = Value::Text(ANONYMOUS.to_owned());
    found.retain(|path, value| {
        let kind = path.first().map(String::as_str).unwrap_or_default();
        let name = path.get(1).map(String::as_str).unwrap_or_default();
        if let Some(wanted) = want.get(path) {
            // The ports of the image come on top of those of Git.
            if let ("expose", Value::List(wanted), Value::List(all)) = (kind, wanted, value) {
                all.retain(|it| wanted.contains(it));
            }
            return true;
        }
        let is_inherited = match kind {
            "entrypoint" => desired.entrypoint.is_none(),
            "command" => desired.entrypoint.as_ref().is_none_or(Vec::is_empty),
            // Git takes a variable without a value away.
            "env" => !desired.env.contains_key(name),
            "mounts" => *value == anonymous,
            "healthcheck" => !desired.healthcheck.as_ref().is_some_and(Healthcheck::is_disabled),
            "labels" | "user" | "workingDir" | "stopSignal" | "expose" => true,
            _ => false,
        };
        !is_inherited
    });
}
