//! The Jobs that have completed, with the contents that they had then: none of them is run again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{SpecHash, Timestamp, WorkloadName};

/// The most Jobs that are remembered, and the most contents of each. There are as many revisions.
const MOST: Limits = Limits { jobs: 200, contents: 20 };

/// The same for those that the agents of a Swarm share: they have to fit into a label.
const MOST_SHARED: Limits = Limits { jobs: 100, contents: 5 };

/// Completed Jobs by name, and by content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CompletedJobs(BTreeMap<WorkloadName, Vec<CompletedJob>>);

/// A Job that completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CompletedJob {
    /// The hash of its template.
    spec: SpecHash,
    at: Timestamp,
}

#[derive(Clone, Copy)]
struct Limits {
    jobs: usize,
    contents: usize,
}

impl CompletedJobs {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When a Job with this content completed. `None`: it did not, or that is forgotten.
    pub fn completed_at(&self, name: &WorkloadName, spec: &SpecHash) -> Option<Timestamp> {
        let mut contents = self.0.get(name)?.iter();
        contents.find(|done| done.spec == *spec).map(|done| done.at)
    }

    /// Remembers a Job that has completed. The first time counts.
    pub fn insert(&mut self, name: &WorkloadName, spec: &SpecHash, at: Timestamp) {
        if self.completed_at(name, spec).is_none() {
            let done = CompletedJob { spec: spec.clone(), at };
            self.0.entry(name.clone()).or_default().push(done);
            self.limit(MOST);
        }
    }

    /// Forgets a Job, so that it is run again.
    pub fn remove(&mut self, name: &WorkloadName) {
        self.0.remove(name);
    }

    /// Remembers the Jobs that another agent saw completed, with the times at which it did.
    pub fn take_over(&mut self, others: &Self) {
        self.add(others);
        self.limit(MOST);
    }

    /// Those that the agents of a Swarm share: the newest ones.
    #[must_use]
    pub fn shared(&self) -> Self {
        let mut shared = self.clone();
        shared.limit(MOST_SHARED);
        shared
    }

    /// The shared ones of this agent and of all others.
    #[must_use]
    pub fn merged(mut self, found: &Self) -> Self {
        self.add(found);
        self.limit(MOST_SHARED);
        self
    }

    fn add(&mut self, others: &Self) {
        for (name, contents) in &others.0 {
            let own = self.0.entry(name.clone()).or_default();
            own.retain(|done| contents.iter().all(|other| other.spec != done.spec));
            own.extend(contents.iter().cloned());
        }
    }

    /// Forgets the oldest ones. The order is the same for all agents.
    fn limit(&mut self, most: Limits) {
        for contents in self.0.values_mut() {
            contents.sort_by(|one, other| (one.at, &one.spec).cmp(&(other.at, &other.spec)));
            contents.drain(..contents.len().saturating_sub(most.contents));
        }
        while self.0.len() > most.jobs {
            let newest = |contents: &Vec<CompletedJob>| contents.iter().map(|done| done.at).max();
            let oldest = self.0.iter().min_by_key(|(_, contents)| newest(contents));
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { return };
            self.0.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(all: &[(&str, &str, u64)]) -> CompletedJobs {
        let mut jobs = CompletedJobs::default();
        for (name, spec, at) in all {
            jobs.insert(&(*name).into(), &SpecHash((*spec).to_owned()), Timestamp(*at));
        }
        jobs
    }

    #[test]
    fn oldest_contents_and_jobs_are_forgotten() {
        let mut jobs = CompletedJobs::default();
        for at in 0..300 {
            jobs.insert(
                &WorkloadName(format!("job-{at:03}")),
                &SpecHash("a".to_owned()),
                Timestamp(300 - at),
            );
        }
        let at = |name: &str, spec: &str, jobs: &CompletedJobs| {
            jobs.completed_at(&name.into(), &SpecHash(spec.to_owned()))
        };
        // By time, and not by name.
        assert_eq!((jobs.0.len(), jobs.shared().0.len()), (200, 100));
        assert_eq!(at("job-000", "a", &jobs), Some(Timestamp(300)));
        assert_eq!(at("job-250", "a", &jobs), None);
        for at in 0..30 {
            jobs.insert(&"job-000".into(), &SpecHash(format!("b{at}")), Timestamp(400 + at));
        }
        assert_eq!(at("job-000", "b9", &jobs), None);
        assert_eq!(at("job-000", "b10", &jobs), Some(Timestamp(410)));
        assert_eq!(at("job-000", "b24", &jobs.shared()), None);
        assert_eq!(at("job-000", "b25", &jobs.shared()), Some(Timestamp(425)));
        jobs.insert(&"job-000".into(), &SpecHash("b29".to_owned()), Timestamp(900));
        assert_eq!(at("job-000", "b29", &jobs), Some(Timestamp(429)), "the first time counts");
    }

    /// Each agent has seen the end of a Job at another time. They come to the same in any order.
    #[test]
    fn agents_agree_about_completed_jobs() {
        let (one, other) = (
            completed(&[("migrate", "a", 10), ("migrate", "b", 20), ("seed", "a", 5)]),
            completed(&[("migrate", "b", 21), ("report", "a", 7)]),
        );
        let mut agents = [one.clone(), other];
        let mut shared = one.shared();
        for turn in [1, 0, 1, 0] {
            let agent = &mut agents[turn];
            let merged = agent.shared().merged(&shared);
            agent.take_over(&merged);
            assert_eq!(agent.shared(), merged);
            shared = merged;
        }
        let expected =
            completed(&[("migrate", "a", 10), ("migrate", "b", 20), ("report", "a", 7), ("seed", "a", 5)]);
        assert_eq!(agents, [expected.clone(), expected.clone()]);
        assert_eq!(shared, expected);
    }
}
