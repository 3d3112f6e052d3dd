//! The unified diff of one application, from the live state to Git: `driftless diff APP`.

use std::{collections::BTreeMap, fmt::Write};

use driftless_model::{Mask, Observed, Stack, Workload, WorkloadName};
use similar::TextDiff;

use crate::fields::{
    container::fields,
    diff::{both_as_yaml, extra_yaml, image_defaults, instance_config},
};

/// The change from one text to another as a unified diff with three lines of context; empty when they are equal.
pub fn unified_diff(from_label: &str, from: &str, to_label: &str, to: &str) -> String {
    if from == to {
        return String::new();
    }
    TextDiff::from_lines(from, to).unified_diff().context_radius(3).header(from_label, to_label).to_string()
}

/// Everything of an application that is not as in Git, as a unified diff from what runs to what Git wants,
/// masked; empty when there is nothing.
pub fn stack_diff(stack: &Stack, observed: &Observed, mask: &Mask) -> String {
    let app = &stack.app;
    let mut out = unified_diff(
        &format!("live/{app}"),
        &found_outline(stack, observed),
        &format!("git/{app}"),
        &outline(stack),
    );
    for (name, workload) in &stack.workloads {
        out.push_str(&workload_diff(stack, name, workload, observed, mask));
        for part in &workload.parts {
            let one = workload.of_part(part);
            out.push_str(&workload_diff(stack, &name.part(&part.name), &one, observed, mask));
        }
    }
    for instance in observed.containers() {
        if !stack.workloads.contains_key(&instance.instance.workload.whole()) {
            let from = extra_yaml(&instance.config, stack.format, mask);
            out.push_str(&unified_diff(&format!("live/{app}/{}", instance.name), &from, "/dev/null", ""));
        }
    }
    out
}

/// Equal instances are shown once.
fn workload_diff(
    stack: &Stack,
    name: &WorkloadName,
    workload: &Workload,
    observed: &Observed,
    mask: &Mask,
) -> String {
    let label = format!("git/{}/{name}", stack.app);
    let mut by_text: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for instance in observed.containers().filter(|it| it.instance.workload == *name) {
        let want = workload.container.effective(image_defaults(workload, instance, observed));
        let found = instance_config(instance, &want);
        let (want, found) = (fields(&want), fields(&found));
        if want != found {
            let (want, found) = both_as_yaml(&want, &found, mask);
            by_text.entry((found, want)).or_default().push(&instance.name);
        }
    }
    let mut out = String::new();
    for ((found, want), mut names) in by_text {
        names.sort_unstable();
        let live = format!("live/{}/{}", stack.app, names.join(","));
        out.push_str(&unified_diff(&live, &found, &label, &want));
    }
    out
}

/// Everything except the configuration of containers: networks, volumes, replicas.
fn outline(stack: &Stack) -> String {
    let mut out = String::new();
    for name in stack.networks.keys() {
        line(&mut out, &format!("network {name}"));
    }
    for name in stack.volumes.keys() {
        line(&mut out, &format!("volume {name}"));
    }
    for (name, workload) in &stack.workloads {
        let (replicas, spec) = (workload.replicas, workload.spec());
        if replicas > 0 {
            line(&mut out, &format!("workload {name}: {replicas} at {spec}"));
        }
    }
    out
}

fn found_outline(stack: &Stack, observed: &Observed) -> String {
    let mut out = String::new();
    for (name, network) in &observed.networks {
        if stack.networks.contains_key(name) || network.agent.is_some() {
            line(&mut out, &format!("network {name}"));
        }
    }
    // Volumes that Git does not name any more are kept for ever, and are no difference.
    for name in observed.volumes.keys().filter(|it| stack.volumes.contains_key(*it)) {
        line(&mut out, &format!("volume {name}"));
    }
    let mut count: BTreeMap<(&WorkloadName, &str), u32> = BTreeMap::new();
    for it in observed.instances.values() {
        *count.entry((&it.instance.workload, it.spec.short())).or_default() += 1;
    }
    for ((name, spec), count) in count {
        line(&mut out, &format!("workload {name}: {count} at {spec}"));
    }
    out
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a string cannot fail");
}
