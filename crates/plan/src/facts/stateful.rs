//! The workloads that are the pods of one StatefulSet.

use driftless_model::{Instance, Member, Subject};

use crate::facts::Facts;

/// One pod of a StatefulSet.
#[derive(Clone, Copy)]
pub(crate) struct Sibling<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) member: &'a Member,
}

/// All desired pods of the same StatefulSet, including this one.
pub(crate) fn siblings<'a>(facts: &Facts<'a>, member: &Member) -> Vec<Sibling<'a>> {
    let sibling = |subject: Subject<'a>| Some(Sibling { subject, member: subject.workload.member()? });
    let all = facts.target.stack.subjects().filter_map(sibling);
    all.filter(|it| it.member.of == member.of && it.subject.workload.replicas > 0).collect()
}

/// The place of an instance in its StatefulSet, now or when Git last had it.
pub(crate) fn member_of<'a>(facts: &Facts<'a>, instance: &Instance) -> Option<&'a Member> {
    let name = &instance.instance.workload;
    let before = || facts.target.reached.and_then(|it| it.workloads.get(name));
    facts.target.stack.workloads.get(name).or_else(before)?.member()
}
