//! Which workloads are the pods of one StatefulSet.

use driftless_model::{Instance, Member};

use crate::facts::{Facts, subject::Subject};

/// One pod of a StatefulSet.
#[derive(Clone, Copy)]
pub(crate) struct Sibling<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) member: &'a Member,
}

/// All desired pods of the same StatefulSet, including this one.
pub(crate) fn siblings<'a>(facts: &Facts<'a>, member: &Member) -> Vec<Sibling<'a>> {
    let sibling = |(name, workload)| {
        let subject: Subject<'a> = Subject { name, workload };
        Some(Sibling { subject, member: subject.workload.member()? })
    };
    let all = facts.target.stack.workloads.iter().filter_map(sibling);
    all.filter(|it| it.member.of == member.of && it.subject.workload.replicas > 0).collect()
}

/// The place of an instance in its StatefulSet, now or when Git last had it.
pub(crate) fn member_of<'a>(facts: &Facts<'a>, instance: &Instance) -> Option<&'a Member> {
    let name = &instance.instance.workload;
    let before = || facts.target.fallback.and_then(|it| it.workloads.get(name));
    facts.target.stack.workloads.get(name).or_else(before)?.member()
}
