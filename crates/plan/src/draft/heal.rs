//! Drift: each difference is reported, and undone if self-heal is on and has not tried too often.

use driftless_model::{Drift, DriftAction, IgnoredField, Subject, Timestamp, WorkloadName};

use crate::{
    backoff::heal_delay,
    cause::Cause,
    draft::Draft,
    facts::{
        heals::{TRIES, end_of_pause, heal_key, was_undone},
        ignored,
    },
    wait::{Wait, WaitObject},
};

/// One difference that somebody made, before the decision whether to undo it now.
pub(crate) struct Difference {
    kind: &'static str,
    /// The name in Docker.
    object: String,
    workload: Option<WorkloadName>,
    field: String,
    want: String,
    found: String,
    at: Option<Timestamp>,
    /// Its path in a diff, if `ignoreDifferences` can name it.
    path: Option<String>,
}

impl Difference {
    /// A difference of a container, by its name in Docker.
    pub(crate) fn container(
        object: &str,
        field: impl Into<String>,
        want: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            kind: "container",
            object: object.to_owned(),
            workload: None,
            field: field.into(),
            want: want.into(),
            found: found.into(),
            at: None,
            path: None,
        }
    }

    /// A difference of a service of a Swarm.
    pub(crate) fn service(
        object: &str,
        field: impl Into<String>,
        want: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self { kind: "service", ..Self::container(object, field, want, found) }
    }

    /// A network that does not exist.
    pub(crate) fn missing_network(object: &str) -> Self {
        Self { kind: "network", ..Self::container(object, "exists", "present", "missing") }
    }

    /// The workload that the object belongs to.
    pub(crate) fn of(self, workload: &WorkloadName) -> Self {
        Self { workload: Some(workload.clone()), ..self }
    }

    /// When the difference was made, if that is known.
    pub(crate) fn since(self, at: impl Into<Option<Timestamp>>) -> Self {
        Self { at: at.into(), ..self }
    }

    /// `ignoreDifferences` can name it, by this path in a diff.
    pub(crate) fn ignorable(self, path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..self }
    }

    fn wait_object(&self) -> WaitObject {
        match self.kind {
            "container" => {
                WaitObject::Container { name: self.object.clone(), workload: self.workload.clone() }
            }
            kind => WaitObject::Other { kind, name: self.object.clone() },
        }
    }

    fn drift(self, action: DriftAction) -> Drift {
        let Self { kind, object, workload, field, want, found, at, path: _ } = self;
        Drift { kind: kind.to_owned(), object, workload, field, want, found, at, action }
    }
}

impl Draft<'_> {
    /// Reports a difference, and decides whether to undo it now. Returns the cause of the steps that undo it.
    pub(crate) fn heal(&mut self, difference: Difference) -> Option<Cause> {
        if let Some(rule) = self.rule_to_ignore(&difference) {
            let Difference { field, want, found, .. } = &difference;
            self.wait(Wait::difference_ignored(difference.wait_object(), field, found, want, &rule));
            return None;
        }
        let action = self.heal_action(&difference);
        let drift = difference.drift(action);
        let Drift { field, found, want, .. } = drift.clone();
        // A limit that is reported may be one that only another container can lose.
        if !self.plan.drifts.contains(&drift) {
            self.plan.drifts.push(drift);
        }
        match action {
            DriftAction::Heal => Some(Cause::Drift { field, found, want }),
            DriftAction::BackOff | DriftAction::Ineffective => None,
            DriftAction::Report => {
                self.reported += 1;
                None
            }
        }
    }

    /// The ignored field that covers a difference, if there is one.
    fn rule_to_ignore(&self, difference: &Difference) -> Option<IgnoredField> {
        let (path, name) = (difference.path.as_ref()?, difference.workload.as_ref()?);
        self.is_ignored(name, path)
    }

    /// The ignored field that covers a path of a workload's containers, if there is one.
    pub(crate) fn is_ignored(&self, name: &WorkloadName, path: &str) -> Option<IgnoredField> {
        let target = self.facts.target;
        let workload = target.stack.workloads.get(name)?;
        ignored::rule(target.policy, Subject { name, workload }, path).cloned()
    }

    /// Reports a difference and leaves it, even with self-heal.
    pub(crate) fn report(&mut self, difference: Difference) {
        self.plan.drifts.push(difference.drift(DriftAction::Report));
    }

    /// The pauses between heals of the same field grow. A heal without effect is not repeated for ever.
    fn heal_action(&mut self, difference: &Difference) -> DriftAction {
        let facts = self.facts;
        if !facts.heals() {
            return DriftAction::Report;
        }
        let Difference { kind: _, object, workload, field, want, found, at, path: _ } = difference;
        let key = heal_key(object, workload.as_ref(), field);
        let Some(heal) = facts.record.heals.get(&key) else {
            return DriftAction::Heal;
        };
        if heal.revision != *facts.revision() {
            return DriftAction::Heal;
        }
        let had_effect = heal.had_effect || was_undone(heal, *at);
        let is_tried_enough = !had_effect && heal.ineffective + 1 >= TRIES;
        if is_tried_enough && heal.difference == format!("{found} -> {want}") {
            self.wait(Wait::heal_ineffective(difference.wait_object(), field, &heal.difference));
            return DriftAction::Ineffective;
        }
        let until = heal.ended.after(heal_delay(heal.count));
        let until = end_of_pause(facts.record, &key, facts.now).map_or(until, |end| until.min(end));
        if facts.now >= until {
            return DriftAction::Heal;
        }
        self.wait(Wait::heal_back_off(difference.wait_object(), field, heal.count, until));
        self.look_again(until);
        DriftAction::BackOff
    }
}
