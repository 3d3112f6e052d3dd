//! Errors of applications of a repository that one host cannot run together, as the agent reports them.

use std::collections::BTreeMap;

use driftless_agent::{Contender, conflicts_on_a_host};
use driftless_config::{ApplicationSettings, Repository};
use driftless_model::{AppName, Finding, Location, Stack};

/// The advice where no host is known: all applications are then compared with each other.
const HOST_UNKNOWN: &str = "if they run on different hosts, say so with `hosts` in driftless.yaml";

/// The errors of each application, from the comparison with the others that a host has at a commit. An application without a
/// stack has errors of its own. `before` has the stacks of the commit before.
pub(super) fn conflicts<'a>(
    settings: &Repository,
    applications: impl Iterator<Item = (&'a AppName, Option<&'a Stack>)>,
    before: &BTreeMap<&AppName, &'a Stack>,
) -> BTreeMap<AppName, Vec<Finding>> {
    let contender = |(name, stack): (&'a AppName, Option<&'a Stack>)| {
        let before = before.get(name).copied();
        Contender { name, stack, before, policy: settings.policy_of(name) }
    };
    // Those for other hosts may be for different ones.
    let elsewhere: Vec<AppName> =
        settings.elsewhere.iter().filter_map(ApplicationSettings::app_name).collect();
    let of_host = applications.filter(|(name, _)| !elsewhere.contains(name));
    let contenders: Vec<Contender<'_>> = of_host.map(contender).collect();
    let mut found: BTreeMap<AppName, Vec<Finding>> = BTreeMap::new();
    for (app, mut finding) in conflicts_on_a_host(&contenders) {
        // The dependencies are settings, which have no place in a manifest.
        if finding.location == Location::default() {
            finding.location = place_of(settings, &app, &finding.path);
        }
        if settings.host.name.is_empty() && finding.help.is_none() {
            finding = finding.help(HOST_UNKNOWN);
        }
        found.entry(app).or_default().push(finding);
    }
    found
}

/// The place of a setting of an application.
fn place_of(settings: &Repository, app: &AppName, key: &str) -> Location {
    let all = settings.policy_settings(app);
    all.into_iter().find(|setting| setting.key == key).and_then(|setting| setting.origin).unwrap_or_default()
}
