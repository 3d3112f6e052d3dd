//! Merges one tree onto another: maps deeply, lists one after the other, scalars replaced, with the exceptions of the
//! specification's chapter on merging. Overrides, further documents, `extends` and `include` use it.
//!
//! Every value keeps the place where it was written. Duplicates in lists are removed later, in `unique.rs`.

use driftless_model::Finding;
use driftless_yaml::{Kind, Node};

use crate::spec::{
    canonical::{context_as_map, names_as_map, services_as_map},
    scalar::Plain,
    tree::{self, is_mapping},
};

/// The way in which a value is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Maps deeply, lists one after the other, scalars replaced.
    Deep,
    /// The later value replaces the earlier one.
    Replace,
    /// Maps become lists of `NAME=value`, a string a list of one.
    Sequence,
    /// As sequences, without items that exist already.
    Hosts,
    /// A list of names becomes a map without values.
    Names,
    /// A list of services becomes a map of dependencies.
    Dependencies,
    /// A string becomes a map with a context.
    Build,
    /// Replaced if the driver differs.
    Driver,
    /// Address pools, by their subnet.
    Pools,
}

/// Merges `over` onto `base`.
pub(crate) fn document(base: Node, over: Node, findings: &mut Vec<Finding>) -> Node {
    Merge { findings }.merge(base, over, &mut Vec::new())
}

/// As [`document`], for trees at `path`, such as one service.
pub(crate) fn part(base: Node, over: Node, path: &[&str], findings: &mut Vec<Finding>) -> Node {
    let mut path = path.iter().map(|it| (*it).to_owned()).collect();
    Merge { findings }.merge(base, over, &mut path)
}

struct Merge<'a> {
    findings: &'a mut Vec<Finding>,
}

impl Merge<'_> {
    fn merge(&mut self, base: Node, over: Node, path: &mut Vec<String>) -> Node {
        let rule = rule(path);
        if rule == Rule::Replace {
            return over;
        }
        if over.is_null() {
            return base;
        }
        match rule {
            Rule::Replace => over,
            Rule::Sequence => self.lists(into_sequence(base), into_sequence(over), path),
            Rule::Hosts => {
                let base = into_sequence(base);
                let mut over = into_sequence(over);
                if let Kind::Sequence(items) = &mut over.kind {
                    items.retain(|it| base.items().iter().all(|had| had.as_scalar() != it.as_scalar()));
                }
                self.lists(base, over, path)
            }
            Rule::Names => self.deep(names_as_map(base), names_as_map(over), path),
            Rule::Dependencies => self.deep(services_as_map(base), services_as_map(over), path),
            Rule::Build => self.deep(context_as_map(base), context_as_map(over), path),
            Rule::Driver if drivers_differ(&base, &over) => over,
            Rule::Pools => self.pools(base, over, path),
            Rule::Deep | Rule::Driver => self.deep(base, over, path),
        }
    }

    fn deep(&mut self, base: Node, over: Node, path: &mut Vec<String>) -> Node {
        if is_mapping(&base) && is_mapping(&over) {
            return self.maps(base, over, path);
        }
        match &base.kind {
            // The base decides the type, but anything replaces a scalar or null.
            Kind::Scalar { .. } => over,
            Kind::Sequence(_) | Kind::Mapping(_) => self.lists(base, over, path),
        }
    }

    fn lists(&mut self, base: Node, over: Node, path: &[String]) -> Node {
        match (base.kind, over.kind) {
            (Kind::Sequence(mut items), Kind::Sequence(more)) => {
                items.extend(more);
                Node { kind: Kind::Sequence(items), place: over.place, tag: over.tag }
            }
            (_, kind) => {
                let over = Node { kind, ..over };
                let message = "has another type than the value it overrides";
                let help = "use `!override` to replace the value";
                self.findings.push(over.finding(path.join("."), message).help(help));
                over
            }
        }
    }

    fn maps(&mut self, mut base: Node, over: Node, path: &mut Vec<String>) -> Node {
        let (Kind::Mapping(entries), Kind::Mapping(more)) = (&mut base.kind, over.kind) else { return base };
        for entry in more {
            match entries.iter_mut().find(|it| it.key == entry.key) {
                Some(had) => {
                    path.push(entry.key);
                    let place = had.value.place.clone();
                    let before = std::mem::replace(&mut had.value, tree::null(&place));
                    had.value = self.merge(before, entry.value, path);
                    path.pop();
                }
                None => entries.push(entry),
            }
        }
        base
    }

    /// Merges each pool of one side with each of the other that has the same subnet.
    fn pools(&mut self, base: Node, over: Node, path: &mut Vec<String>) -> Node {
        let (Kind::Sequence(pools), Kind::Sequence(more)) = (&base.kind, &over.kind) else {
            return self.lists(base, over, path);
        };
        let subnet = |it: &Node| it.get("subnet").and_then(Node::as_scalar).map(str::to_owned);
        let mut merged: Vec<Node> = Vec::new();
        for pool in pools {
            for other in more {
                let same = merged.iter().position(|it| subnet(it) == subnet(other));
                if subnet(pool) != subnet(other) && same.is_none() {
                    merged.push(other.clone());
                    continue;
                }
                let both = self.maps(pool.clone(), other.clone(), path);
                match merged.iter_mut().find(|it| subnet(it) == subnet(&both)) {
                    Some(had) => *had = both,
                    None => merged.push(both),
                }
            }
        }
        tree::sequence(&over.place, merged)
    }
}

fn rule(path: &[String]) -> Rule {
    let mut segments = [""; 8];
    let Some(known) = segments.get_mut(..path.len()) else { return Rule::Deep };
    for (segment, part) in known.iter_mut().zip(path) {
        *segment = part;
    }
    match &*known {
        ["services", _, rest @ ..] => match rest {
            ["command" | "entrypoint"] | ["healthcheck", "test"] | ["ulimits", _] => Rule::Replace,
            [
                "annotations" | "dns" | "dns_opt" | "dns_search" | "env_file" | "label_file" | "environment"
                | "labels" | "sysctls" | "tmpfs",
            ]
            | ["build", "args" | "additional_contexts" | "labels"]
            | ["deploy", "labels"] => Rule::Sequence,
            ["extra_hosts"] | ["build", "extra_hosts"] => Rule::Hosts,
            ["networks" | "models"] => Rule::Names,
            ["depends_on"] => Rule::Dependencies,
            ["build"] => Rule::Build,
            ["logging"] => Rule::Driver,
            _ => Rule::Deep,
        },
        ["networks", _, "ipam", "config"] => Rule::Pools,
        ["networks" | "volumes", _, "labels"] => Rule::Sequence,
        _ => Rule::Deep,
    }
}

fn drivers_differ(base: &Node, over: &Node) -> bool {
    let driver = |node: &Node| node.get("driver").and_then(Node::as_scalar).map(str::to_owned);
    driver(over).is_some_and(|it| driver(base).is_some_and(|before| before != it))
}

/// A map as sorted `NAME=value`, a string as a list of one. A map with other values than scalars stays as it is; the
/// strict check reports it.
fn into_sequence(node: Node) -> Node {
    match &node.kind {
        Kind::Sequence(_) => node,
        Kind::Scalar { .. } if node.is_null() => tree::sequence(&node.place, Vec::new()),
        Kind::Scalar { .. } => tree::sequence(&node.place.clone(), vec![node]),
        Kind::Mapping(entries) => {
            let mut items = Vec::with_capacity(entries.len());
            for entry in entries {
                let Some(values) = values(&entry.value) else { return node };
                items.extend(values.into_iter().map(|value| match value {
                    Some(value) => tree::text(&entry.value.place, format!("{}={value}", entry.key)),
                    None => tree::text(&entry.key_place, entry.key.clone()),
                }));
            }
            items.sort_by(|one, other| one.as_scalar().cmp(&other.as_scalar()));
            tree::sequence(&node.place, items)
        }
    }
}

/// The value of a key, or each of its values.
fn values(node: &Node) -> Option<Vec<Option<String>>> {
    let print = |node: &Node| Plain::of(node).map(|(text, plain)| plain.print(text));
    match &node.kind {
        Kind::Scalar { .. } => print(node).map(|it| vec![it]),
        Kind::Sequence(items) => items.iter().map(print).collect(),
        Kind::Mapping(_) => None,
    }
}
