//! Applications that wait for each other: none of them could ever be applied.

use std::collections::{BTreeMap, BTreeSet};

use driftless_model::{AppName, Finding, Location};

/// A finding for each application that is part of a cycle. `dependencies` are the names that each one depends on.
pub(crate) fn dependency_cycles(
    dependencies: &BTreeMap<&AppName, BTreeSet<&AppName>>,
) -> Vec<(AppName, Finding)> {
    let cycle = |name: &AppName| {
        let way = way_back(dependencies, name)?;
        let way: Vec<&str> = way.into_iter().map(AppName::as_str).collect();
        let message = format!("the applications wait for each other: {}", way.join(" waits for "));
        let finding = Finding::error(Location::default(), "dependsOn", message);
        Some((name.clone(), finding.help("remove one of these dependencies from `dependsOn`")))
    };
    dependencies.keys().filter_map(|name| cycle(name)).collect()
}

/// The shortest way from an application over its dependencies back to itself.
fn way_back<'a>(
    dependencies: &BTreeMap<&'a AppName, BTreeSet<&'a AppName>>,
    name: &AppName,
) -> Option<Vec<&'a AppName>> {
    let (start, _) = dependencies.get_key_value(name)?;
    let mut ways: Vec<Vec<&AppName>> = vec![vec![*start]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let next = way.last().and_then(|last| dependencies.get(*last));
            for on in next.into_iter().flatten().copied() {
                let extended: Vec<&AppName> = way.iter().copied().chain([on]).collect();
                if on == name {
                    return Some(extended);
                }
                if seen.insert(on) {
                    longer.push(extended);
                }
            }
        }
        ways = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_of_a_cycle_are_found_and_no_others() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(AppName::from);
        let dependencies = BTreeMap::from([
            (&a, BTreeSet::from([&b])),
            (&b, BTreeSet::from([&c, &d])),
            (&c, BTreeSet::from([&a])),
            (&d, BTreeSet::new()),
        ]);
        let found = dependency_cycles(&dependencies);
        let messages: Vec<String> =
            found.iter().map(|(app, finding)| format!("{app}: {}", finding.message)).collect();
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert_eq!(
            messages[0],
            "a: the applications wait for each other: a waits for b waits for c waits for a"
        );
        assert!(dependency_cycles(&BTreeMap::from([(&d, BTreeSet::from([&a]))])).is_empty());
    }
}
