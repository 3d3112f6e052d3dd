//! Networks and volumes compared with their target, by name and by the hash they were made with.

use driftless_model::{AgentId, Mask, Observed, SpecHash, Stack, Volume};
use serde::Serialize;

use crate::{
    explain::objects::{Change, ObjectDifference, flatten, json, manifest, object, or_else},
    facts::ownership::is_as_wanted,
    fields::{
        diff::{self, FieldDifference},
        value::Fields,
    },
    target::Target,
};

/// The driver of volumes that name none.
const LOCAL: &str = "local";

/// The owner of the networks that are compared, and the driver of those that name none.
pub(crate) struct Owner<'a> {
    pub(crate) agent: &'a AgentId,
    pub(crate) driver: &'static str,
}

/// The networks of an application.
pub(crate) fn networks(
    target: &Target<'_>,
    observed: &Observed,
    owner: &Owner<'_>,
    all: &mut Vec<ObjectDifference>,
) {
    let (stack, mask) = (target.stack, target.mask);
    let ours = |agent: Option<&AgentId>| agent == Some(owner.agent);
    for (name, network) in &stack.networks {
        let there = observed.networks.get(name).map(|found| {
            let is_other = ours(found.agent.as_ref()) && !network.external && !is_as_wanted(network, found);
            There { spec: found.spec.as_ref().filter(|_| is_other) }
        });
        let yaml = || yaml_of(network, owner.driver, mask);
        let change = named(("network", name), stack, &SpecHash::of(network), there.as_ref(), yaml);
        all.extend(
            change.map(|it| ObjectDifference { labels: mask.labels(&network.labels, stack.format), ..it }),
        );
    }
    for (name, _) in observed.networks.iter().filter(|(_, it)| ours(it.agent.as_ref())) {
        if !stack.networks.contains_key(name) {
            all.push(object("network", name.clone(), manifest(stack), Change::Extra));
        }
    }
}

/// Volumes that Git does not name any more are kept for ever, and are no difference.
pub(crate) fn volumes(target: &Target<'_>, observed: &Observed, all: &mut Vec<ObjectDifference>) {
    let (stack, mask) = (target.stack, target.mask);
    for (name, volume) in &stack.volumes {
        let is_ours = |agent: Option<&AgentId>| agent == Some(target.agent) && !volume.external;
        let found = observed.volumes.get(name);
        let there = found.map(|it| There { spec: it.spec.as_ref().filter(|_| is_ours(it.agent.as_ref())) });
        let yaml = || yaml_of(volume, LOCAL, mask);
        let change = named(("volume", name), stack, &SpecHash::of(volume), there.as_ref(), yaml);
        let live = found.and_then(|it| it.compose.as_ref());
        let change = change.and_then(|it| match live.filter(|_| it.change == Change::Modified) {
            Some(live) => of_volumes(it, volume, live, mask),
            None => Some(it),
        });
        all.extend(
            change.map(|it| ObjectDifference { labels: mask.labels(&volume.labels, stack.format), ..it }),
        );
    }
}

/// Says in which fields a volume differs: the engine tells all of them. `None`: its key in the manifest is another, and nothing else.
fn of_volumes(
    difference: ObjectDifference,
    wanted: &Volume,
    live: &Volume,
    mask: &Mask,
) -> Option<ObjectDifference> {
    let (want, found) = (fields_of(wanted, LOCAL), fields_of(live, LOCAL));
    if want == found {
        return None;
    }
    let fields = diff::between(&want, &found, mask);
    let (want, found) = diff::both_as_yaml(&want, &found, mask);
    Some(ObjectDifference { fields, want, found, ..difference })
}

/// A network or volume on the host. What is not ours has no hash, and is taken as it is.
struct There<'a> {
    spec: Option<&'a SpecHash>,
}

/// A network or volume, by the hash it was made with: the engine does not tell all that went into it.
fn named(
    (kind, name): (&'static str, &str),
    stack: &Stack,
    want: &SpecHash,
    there: Option<&There<'_>>,
    yaml: impl Fn() -> String,
) -> Option<ObjectDifference> {
    let make = |change| object(kind, name.to_owned(), manifest(stack), change);
    let Some(There { spec }) = there else {
        return Some(ObjectDifference { want: yaml(), ..make(Change::Missing) });
    };
    let found = spec.filter(|it| *it != want)?;
    let (want, found) = (want.short().to_owned(), found.short().to_owned());
    let (want_text, found_text) = (format!("spec: {want}\n"), format!("spec: {found}\n"));
    let fields = vec![FieldDifference { field: "spec".to_owned(), want, found }];
    Some(ObjectDifference { fields, want: want_text, found: found_text, ..make(Change::Modified) })
}

fn yaml_of<T: Serialize>(value: &T, driver: &str, mask: &Mask) -> String {
    diff::both_as_yaml(&fields_of(value, driver), &Fields::new(), mask).0
}

fn fields_of<T: Serialize>(value: &T, driver: &str) -> Fields {
    let mut fields = Fields::new();
    flatten(&mut fields, &mut Vec::new(), json(value), &["key"]);
    or_else(&mut fields, "driver", driver);
    fields
}
