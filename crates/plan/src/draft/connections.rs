//! The order in which containers are connected to a network: fixed addresses first.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use driftless_model::Attachment;

use crate::{
    action::{Action, ContainerRef},
    draft::Draft,
    steps::Step,
};

impl Draft<'_> {
    /// Connects containers without a fixed address after those with one: the engine gives the first one that comes an address which
    /// another one may have in Git. A container whose last step failed holds up no other one.
    pub(crate) fn connect_fixed_addresses_first(&mut self) {
        let failures = &self.facts.record.failures;
        let mut fixed: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, step) in self.plan.steps.iter().enumerate() {
            if let Some((container, network, attachment)) = connection(step)
                && is_fixed(attachment)
                && !failures.contains_key(container.name())
            {
                fixed.entry(network.clone()).or_default().push(index);
            }
        }
        for step in &mut self.plan.steps {
            let first = connection(step).filter(|(_, _, attachment)| !is_fixed(attachment));
            let Some(first) = first.and_then(|(_, network, _)| fixed.get(network)) else { continue };
            step.after.extend(first);
            step.after.sort_unstable();
            step.after.dedup();
        }
        if !fixed.is_empty() {
            sort(&mut self.plan.steps);
        }
    }
}

/// The container, the network and the attachment of a step that connects them.
fn connection(step: &Step) -> Option<(&ContainerRef, &String, &Attachment)> {
    match &step.action {
        Action::Connect { container, network, attachment } => Some((container, network, attachment)),
        _ => None,
    }
}

fn is_fixed(attachment: &Attachment) -> bool {
    attachment.ipv4.is_some() || attachment.ipv6.is_some()
}

/// Sorts steps so that each comes after those that it depends on, and changes their order as little as possible.
fn sort(steps: &mut Vec<Step>) {
    let (mut order, mut done) = (Vec::new(), BTreeSet::new());
    while order.len() < steps.len() {
        let count = order.len();
        for (index, step) in steps.iter().enumerate() {
            if !done.contains(&index) && step.after.iter().all(|earlier| done.contains(earlier)) {
                done.insert(index);
                order.push(index);
            }
        }
        if order.len() == count {
            // Steps that wait for each other have no order.
            return;
        }
    }
    let positions: BTreeMap<usize, usize> = order.iter().enumerate().map(|(new, old)| (*old, new)).collect();
    let mut unsorted: Vec<Option<Step>> = mem::take(steps).into_iter().map(Some).collect();
    for old in order {
        let Some(mut step) = unsorted[old].take() else { continue };
        step.after = step.after.iter().map(|earlier| positions[earlier]).collect();
        step.after.sort_unstable();
        steps.push(step);
    }
}
