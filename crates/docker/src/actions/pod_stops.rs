//! The grace period of a pod, which its containers share. Sidecars stop after the others and have what those leave.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use driftless_model::{ContainerId, PartOf, Role};
use tokio::time::Instant;

use super::hooks::rest_of;

/// The time beyond the grace period after which a stop of a sidecar is not taken for a part of the same stop of the pod.
const MARGIN: Duration = Duration::from_secs(30);

/// The stops of pods that have begun, by the first container of the pod. Thread-safe.
#[derive(Debug, Default)]
pub(super) struct PodStops {
    begun: Mutex<BTreeMap<ContainerId, PodStop>>,
}

#[derive(Debug)]
struct PodStop {
    begun: Instant,
    grace: Duration,
}

impl PodStops {
    /// The grace period of a container of a pod that stops now. `grace` is that of the pod.
    pub(super) fn grace_of(&self, part: &PartOf, grace: Duration) -> Duration {
        let mut stops = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        stops.retain(|_, stop| stop.begun.elapsed() < stop.grace.saturating_add(MARGIN));
        if part.role == Role::Sidecar {
            return stops.get(&part.pod).map_or(grace, |stop| rest_of(grace, stop.begun.elapsed()));
        }
        stops.insert(part.pod.clone(), PodStop { begun: Instant::now(), grace });
        grace
    }

    /// Forgets the stop of a pod, because one of its containers starts: only that container was stopped, and the pod stays.
    pub(super) fn forget(&self, pod: &ContainerId) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).remove(pod);
    }
}

#[cfg(test)]
mod tests {
    use driftless_model::DownwardValues;

    use super::*;

    fn part(pod: &str, role: Role) -> PartOf {
        PartOf {
            pod: ContainerId(pod.to_owned()),
            name: "log".to_owned(),
            role,
            downward: DownwardValues::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sidecars_have_the_rest_of_the_grace_period() {
        let stops = PodStops::default();
        let seconds = Duration::from_secs;
        assert_eq!(stops.grace_of(&part("a", Role::App), seconds(30)), seconds(30));
        tokio::time::advance(seconds(10)).await;
        assert_eq!(stops.grace_of(&part("a", Role::Sidecar), seconds(30)), seconds(20));
        assert_eq!(stops.grace_of(&part("b", Role::Sidecar), seconds(30)), seconds(30), "of another pod");
        tokio::time::advance(seconds(25)).await;
        assert_eq!(stops.grace_of(&part("a", Role::Sidecar), seconds(30)), seconds(2), "as in a cluster");
        tokio::time::advance(seconds(60)).await;
        assert_eq!(stops.grace_of(&part("a", Role::Sidecar), seconds(30)), seconds(30), "another stop");
    }

    #[tokio::test(start_paused = true)]
    async fn sidecar_has_its_grace_period_after_a_restart_of_the_app() {
        let stops = PodStops::default();
        let seconds = Duration::from_secs;
        assert_eq!(stops.grace_of(&part("a", Role::App), seconds(60)), seconds(60));
        stops.grace_of(&part("b", Role::App), seconds(60));
        stops.forget(&ContainerId("a".to_owned()));
        tokio::time::advance(seconds(65)).await;
        assert_eq!(stops.grace_of(&part("a", Role::Sidecar), seconds(60)), seconds(60));
        assert_eq!(stops.grace_of(&part("b", Role::Sidecar), seconds(60)), seconds(2), "it still stops");
    }
}
