//! Top-level networks, volumes, configs and secrets.

use driftless_model::{Finding, Network, Volume};
use driftless_yaml::{Entry, join};

use crate::{
    read::{
        common::{object_labels, options},
        ipam,
        types::{FileSource, Named, Source},
    },
    spec::{
        keys::{CONFIG, NETWORK, SECRET, VOLUME},
        shape::Object,
        value::{Placed, Read as _, Value},
    },
};

pub(crate) fn network(entry: &Entry, value: &Value<'_>) -> Named<Network> {
    let mut network = Named { name: None, spec: Network { key: entry.key.clone(), ..Network::default() } };
    if value.node.is_null() {
        return network;
    }
    let mut pools = Vec::new();
    for (key, value) in value.fields(&NETWORK) {
        let spec = &mut network.spec;
        match key {
            "name" => network.name = value.owned(),
            "external" => spec.external = external(&mut network.name, &value),
            "driver" => spec.driver = value.filled(),
            "driver_opts" => spec.options = options(&value),
            "ipam" => pools = ipam::ipam(spec, &value),
            "internal" => spec.internal = value.boolean().unwrap_or_default(),
            "attachable" => spec.attachable = value.boolean().unwrap_or_default(),
            "enable_ipv6" => spec.enable_ipv6 = value.boolean(),
            "enable_ipv4" => spec.disable_ipv4 = value.boolean() == Some(false),
            "labels" => spec.labels = object_labels(&value),
            _ => value.refuse("is not supported yet"),
        }
    }
    check_network_name(entry, value, network.name.as_deref());
    if network.spec.external {
        // The network is found by its name alone, so nothing else of it may have an effect later.
        network.spec = Network { key: entry.key.clone(), external: true, ..Network::default() };
        for Entry { key, key_place, .. } in settings_of_external(value) {
            let message = format!("`{key}` is ignored: the network is external");
            let path = join(&value.path, key);
            value.report().say(Finding::warning(key_place.location(), path, message));
        }
    } else if network.spec.ipam_driver.is_none() {
        pools.iter().for_each(ipam::check);
    }
    network
}

/// The engine has the networks of a container and its network mode in one field: with a network named `container:db` a container
/// would join the network of the container `db`.
fn check_network_name(entry: &Entry, value: &Value<'_>, name: Option<&str>) {
    if let Some(name) = name.filter(|name| name.contains(':')) {
        let place = Placed { value: (), place: entry.key_place.clone(), path: value.path.clone() };
        let finding = place.error(format!("the engine takes the name `{name}` for a network mode"));
        value.report().say(finding.help("give the network a name without `:`"));
    }
}

pub(crate) fn volume(entry: &Entry, value: &Value<'_>) -> Named<Volume> {
    let mut volume = Named { name: None, spec: Volume { key: entry.key.clone(), ..Volume::default() } };
    if value.node.is_null() {
        return volume;
    }
    for (key, value) in value.fields(&VOLUME) {
        let spec = &mut volume.spec;
        match key {
            "name" => volume.name = value.owned(),
            "external" => spec.external = external(&mut volume.name, &value),
            "driver" => spec.driver = value.filled(),
            "driver_opts" => spec.options = options(&value),
            "labels" => spec.labels = object_labels(&value),
            _ => value.refuse("is not supported yet"),
        }
    }
    // The reference parser refuses it for volumes alone.
    if volume.spec.external && settings_of_external(value).next().is_some() {
        let place = Placed { value: (), place: entry.key_place.clone(), path: value.path.clone() };
        value.report().say(place.error("an external object can only have a `name`"));
    }
    check_bound_folder(entry, value, &volume.spec);
    volume
}

/// A volume of the local driver that binds a folder of the host. The engine takes a relative one for one of its own.
fn check_bound_folder(entry: &Entry, value: &Value<'_>, volume: &Volume) {
    let is_local = volume.driver.as_deref().is_none_or(|it| it == "local");
    let is_bind =
        volume.options.get("o").is_some_and(|o| o.split(',').any(|it| it == "bind" || it == "rbind"));
    let relative = volume.options.get("device").filter(|it| !it.is_empty() && !it.starts_with('/'));
    if let Some(device) = relative.filter(|_| is_local && is_bind) {
        let place = Placed { value: (), place: entry.key_place.clone(), path: value.path.clone() };
        let finding =
            place.error(format!("`driver_opts.device: {device}` is not an absolute path of the host"));
        let help = "write the absolute path of the folder that has the data, such as `/srv/shop/data`";
        value.report().say(finding.help(help));
    }
}

pub(crate) fn config(entry: &Entry, value: &Value<'_>) -> FileSource {
    file_source(entry, value, &CONFIG, "a config needs one of `file`, `content` and `environment`")
}

pub(crate) fn secret(entry: &Entry, value: &Value<'_>) -> FileSource {
    file_source(entry, value, &SECRET, "a secret needs one of `file` and `environment`")
}

/// Configs and secrets differ only in their mounts.
fn file_source(entry: &Entry, value: &Value<'_>, object: &Object, needs: &str) -> FileSource {
    let mut sources = Vec::new();
    let mut name = None;
    for (key, value) in value.fields(object) {
        match key {
            "file" => sources.extend(value.owned().map(Source::File)),
            "content" => sources.extend(value.owned().map(|text| Source::Content(value.placed(text)))),
            "environment" => sources.extend(value.owned().map(Source::Environment)),
            "external" => {
                if external(&mut name, &value) {
                    sources = vec![Source::External(String::new())];
                }
            }
            "name" => name = value.owned(),
            _ => value.refuse("is not supported yet"),
        }
    }
    let origin = Placed { value: (), place: entry.key_place.clone(), path: value.path.clone() };
    if sources.len() != 1 {
        value.report().say(origin.error(needs));
        sources.clear();
    }
    let source = match sources.pop().unwrap_or(Source::Missing) {
        Source::External(_) => {
            Source::External(name.filter(|it| !it.is_empty()).unwrap_or_else(|| entry.key.clone()))
        }
        own => own,
    };
    FileSource { origin, source }
}

/// `true`, or the obsolete `{name: …}`.
fn external(name: &mut Option<String>, value: &Value<'_>) -> bool {
    if value.node.entries().is_empty() {
        return value.boolean().unwrap_or_default();
    }
    for (_, inner) in value.fields(["name"].as_slice()) {
        *name = inner.owned();
    }
    value.warning("the form `external: {name: …}` is obsolete; write `external: true` and `name`");
    true
}

/// The settings of an external object that only its owner can make.
fn settings_of_external<'a>(value: &Value<'a>) -> impl Iterator<Item = &'a Entry> + use<'a> {
    let is_own = |key: &str| !matches!(key, "name" | "external") && !key.starts_with("x-");
    value.node.entries().iter().filter(move |entry| is_own(&entry.key))
}
