//! Fixed addresses on networks, which pass from one workload to another as host ports do: the engine refuses to start a container whose
//! address another one has, also if it chose the address for that one itself.

use std::{fmt, net::IpAddr};

use driftless_model::{Container, Instance, Subject, WorkloadName};

use crate::{draft::Draft, facts::standing::is_up};

/// A fixed address on a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedAddress<'a> {
    network: &'a String,
    address: &'a String,
}

impl FixedAddress<'_> {
    fn is_among_those_of(self, container: &Container) -> bool {
        fixed(container).any(|other| other.network == self.network && is_same(other.address, self.address))
    }
}

impl fmt::Display for FixedAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, address } = self;
        write!(f, "the address {address} on {network}")
    }
}

/// The fixed addresses of a container.
pub(crate) fn fixed(container: &Container) -> impl Iterator<Item = FixedAddress<'_>> {
    container.networks().iter().flat_map(|(network, attachment)| {
        let addresses = attachment.ipv4.iter().chain(&attachment.ipv6);
        addresses.map(move |address| FixedAddress { network, address })
    })
}

/// The containers of ours that have a fixed address which a workload needs, without its own.
pub(crate) fn holders<'a>(
    draft: &Draft<'a>,
    name: &WorkloadName,
    wanted: FixedAddress<'_>,
) -> Vec<&'a Instance> {
    let own = draft.facts.instances.members_of(name);
    let is_own = |holder: &Instance| own.iter().any(|own| own.id == holder.id);
    let all = draft.facts.observed.instances.values();
    all.filter(|holder| !is_own(holder) && has(draft, holder, wanted)).collect()
}

/// The container of ours that has a fixed address of a workload on a network, and that address as a wait for it says.
pub(crate) fn holder_on<'a>(
    draft: &Draft<'a>,
    subject: Subject<'_>,
    network: &str,
) -> Option<(&'a Instance, String)> {
    let mut wanted = fixed(&subject.workload.container).filter(|wanted| wanted.network == network);
    wanted.find_map(|wanted| {
        let holder = holders(draft, subject.name, wanted).into_iter().next()?;
        Some((holder, described(draft, holder, wanted)))
    })
}

/// Whether a container has an address now, or gets it again. On a network that is created in this round, nobody has one yet.
pub(crate) fn has(draft: &Draft<'_>, holder: &Instance, wanted: FixedAddress<'_>) -> bool {
    let FixedAddress { network, address } = wanted;
    let is_holder = is_up(holder) || draft.returning.contains(&holder.id);
    if !is_holder || draft.provided.contains_key(network) {
        return false;
    }
    let Some(endpoint) = holder.networks.get(network) else { return false };
    let present = draft.facts.observed.networks.get(network).map(|it| &it.id);
    if !endpoint.network_id.is_empty() && present != Some(&endpoint.network_id) {
        return false;
    }
    let asked = holder.config.networks().get(network);
    // Between two runs it has none, and gets the one that it asks for.
    let ipv4 =
        endpoint.ip.as_ref().filter(|_| is_up(holder)).or_else(|| asked.and_then(|it| it.ipv4.as_ref()));
    let ipv6 = asked.and_then(|it| it.ipv6.as_ref());
    ipv4.into_iter().chain(ipv6).any(|held| is_same(held, address))
}

/// Whether an older container has an address that its workload does not fix in Git. One that is as Git says keeps the address that the
/// engine chose for it: nothing else replaces it, and its successor may get the same one.
pub(crate) fn gives_up(draft: &Draft<'_>, holder: &Instance, wanted: FixedAddress<'_>) -> bool {
    let Some(subject) = subject_of(draft, holder) else { return false };
    let is_current = holder.spec == draft.facts.spec(subject);
    !is_current && !wanted.is_among_those_of(&subject.workload.container)
}

/// The address that a container has, as a wait for it says. Nothing frees one that the engine chose for a container which is as Git says,
/// so the text says what to do.
pub(crate) fn described(draft: &Draft<'_>, holder: &Instance, wanted: FixedAddress<'_>) -> String {
    let is_chosen = |subject: &Subject<'_>| {
        holder.agent == *draft.facts.target.agent
            && holder.spec == draft.facts.spec(*subject)
            && !wanted.is_among_those_of(&subject.workload.container)
    };
    match subject_of(draft, holder).filter(is_chosen) {
        Some(Subject { name, .. }) => format!(
            "{wanted}, which the engine chose for it: give {name} an `ipv4_address` of its own in its Compose file"
        ),
        None => wanted.to_string(),
    }
}

/// The workload of a container as Git has it.
fn subject_of<'a>(draft: &Draft<'a>, holder: &Instance) -> Option<Subject<'a>> {
    let workloads = &draft.facts.target.stack.workloads;
    let (name, workload) = workloads.get_key_value(&holder.instance.workload)?;
    Some(Subject { name, workload })
}

/// The workload that has a fixed address of an older definition by now: Git has given it to that one, and its containers have been made
/// already. They may be down just now, and would not get it again.
pub(crate) fn taken_over<'a>(
    draft: &Draft<'a>,
    name: &WorkloadName,
    held: &Container,
) -> Option<(&'a WorkloadName, String)> {
    let workloads = &draft.facts.target.stack.workloads;
    let wanted = workloads.get(name);
    let is_given_up = |address: &FixedAddress<'_>| {
        wanted.is_none_or(|wanted| !address.is_among_those_of(&wanted.container))
    };
    fixed(held).filter(is_given_up).find_map(|address| {
        let is_made = |taker: &WorkloadName| {
            let mut made = draft.facts.instances.members_of(taker).iter();
            made.any(|member| address.is_among_those_of(&member.config))
        };
        let mut takers = workloads.iter().filter(|(taker, _)| *taker != name);
        let (taker, _) =
            takers.find(|(taker, wanted)| address.is_among_those_of(&wanted.container) && is_made(taker))?;
        Some((taker, address.to_string()))
    })
}

/// Whether the commit gives a fixed address of an older definition of a workload to another one.
pub(crate) fn is_given_away(draft: &Draft<'_>, subject: Subject<'_>, held: &Container) -> bool {
    let others = draft.facts.target.stack.workloads.iter().filter(|(other, _)| *other != subject.name);
    fixed(held)
        .filter(|address| !address.is_among_those_of(&subject.workload.container))
        .any(|address| others.clone().any(|(_, workload)| address.is_among_those_of(&workload.container)))
}

/// Whether two texts mean the same address. IPv6 has several ways to write one.
fn is_same(one: &str, other: &str) -> bool {
    let parsed = |text: &str| text.parse::<IpAddr>().ok();
    one == other || parsed(one).is_some_and(|address| parsed(other) == Some(address))
}
