//! Proportional scaling: a rollout that is stuck is scaled as by Kubernetes' deployment controller, and what is lost
//! meanwhile comes back, although each round may be cut short.

use std::time::Duration;

use driftless_model::{Instance, State, Strategy as Rollout};
use proptest::prelude::*;

use crate::{
    convergence::cases,
    fixture::{Stage, listing, stack, workload},
};

/// Kubernetes' deployment controller with two ReplicaSets: all pods of the old one are available, and none of the new one
/// ever is.
#[derive(Clone, Copy, Debug)]
struct Controller {
    old: u32,
    new: u32,
    replicas: u32,
    surge: u32,
    unavailable: u32,
}

impl Controller {
    /// `NewRSNewReplicas` and `reconcileOldReplicaSets`, until nothing changes.
    fn roll(&mut self) {
        loop {
            let before = (self.old, self.new);
            let most = self.replicas + self.surge;
            if self.new > self.replicas {
                self.new = self.replicas;
            } else if self.old + self.new < most {
                self.new += (most - self.old - self.new).min(self.replicas - self.new);
            }
            let least = self.replicas.saturating_sub(self.unavailable);
            if self.old + self.new > least + self.new && self.old > least {
                self.old = least;
            }
            if before == (self.old, self.new) {
                return;
            }
        }
    }

    /// `scale`, except that the old ones that the minimum needs stay: Kubernetes removes some of them for new ones that are
    /// not available.
    fn scale_within_limits(&mut self, replicas: u32) {
        let needed = replicas.saturating_sub(self.unavailable).min(self.old);
        self.scale(replicas);
        self.roll();
        if self.old < needed {
            self.old = needed;
            self.new = self.new.min(self.replicas + self.surge - self.old);
        }
    }

    /// `scale`: with two active ReplicaSets each gets its share, and the larger one the rest.
    fn scale(&mut self, replicas: u32) {
        if replicas == self.replicas {
            return;
        }
        let (was, most) = (self.replicas + self.surge, replicas + self.surge);
        self.replicas = replicas;
        match (self.old, self.new) {
            (0, _) => self.new = replicas,
            (_, 0) => self.old = replicas,
            (old, new) => {
                let to_add = i64::from(most) - i64::from(old) - i64::from(new);
                let mut sets = [(i64::from(old), false), (i64::from(new), true)];
                // By size; of equal ones the newer first when it grows, and the older first when it shrinks.
                sets.sort_by_key(|(size, is_new)| (-size, *is_new != (to_add > 0)));
                let mut added = 0;
                for (size, _) in &mut sets {
                    let share = (2 * *size * i64::from(most) + i64::from(was)) / (2 * i64::from(was));
                    let fraction = share - *size;
                    let allowed = to_add - added;
                    let part = if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) };
                    *size += part;
                    added += part;
                }
                sets[0].0 = (sets[0].0 + to_add - added).max(0);
                for (size, is_new) in sets {
                    *(if is_new { &mut self.new } else { &mut self.old }) = u32::try_from(size).unwrap();
                }
            }
        }
    }
}

/// Instances of the version before and of the new one.
fn sizes(stage: &Stage) -> (u32, u32) {
    let spec = stage.stack.workloads[&"a".into()].spec();
    let all = || stage.world.observed.instances.values().filter(|it| it.state != State::Removing);
    let new = all().filter(|it| it.spec == spec).count();
    let number = |count: usize| u32::try_from(count).unwrap();
    (number(all().count() - new), number(new))
}

/// Rounds of which each may be cut short, and then some that are not.
fn proceed(stage: &mut Stage, cuts: &[(usize, usize)]) {
    for (cut, seed) in cuts {
        stage.round_cut_short(*cut, |count| seed % count);
        stage.tick(Duration::from_secs(20));
    }
    for _ in 0..6 {
        stage.round();
        stage.tick(Duration::from_secs(20));
    }
}

/// `a` at its first version, and then at one that is never available.
fn stuck(replicas: u32, surge: u32, unavailable: u32, cuts: &[(usize, usize)]) -> Stage {
    let mut wanted = workload("a:1", replicas);
    wanted.strategy = Rollout::RollingUpdate { max_surge: surge, max_unavailable: unavailable };
    let mut stage = Stage::new(stack([("a", wanted)]));
    while !stage.round().is_settled() {
        stage.tick(Duration::from_secs(10));
    }
    stage.stack.workloads.get_mut(&"a".into()).unwrap().container.image = "a:2".into();
    stage.sick.insert("a:2".into());
    proceed(&mut stage, cuts);
    stage
}

fn any_cuts() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0..8_usize, any::<usize>()), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(250), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stuck_rollout_is_scaled_as_by_kubernetes(
        (replicas, surge, unavailable) in (1..12_u32, 0..5_u32, 0..5_u32),
        cuts in any_cuts(),
        scales in prop::collection::vec((1..20_u32, any_cuts()), 1..4),
    ) {
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        let mut stage = stuck(replicas, surge, unavailable, &cuts);
        let mut controller = Controller { old: replicas, new: 0, replicas, surge, unavailable };
        controller.roll();
        prop_assert_eq!(sizes(&stage), (controller.old, controller.new), "{}", listing(&stage.world.observed));
        for (replicas, cuts) in scales {
            stage.stack.workloads.get_mut(&"a".into()).unwrap().replicas = replicas;
            controller.scale_within_limits(replicas);
            proceed(&mut stage, &cuts);
            let all = listing(&stage.world.observed);
            prop_assert_eq!(sizes(&stage), (controller.old, controller.new), "{:?}\n{}", controller, all);
        }
    }

    #[test]
    fn lost_instance_comes_back_in_its_version(
        (replicas, surge, unavailable) in (1..8_u32, 1..4_u32, 0..3_u32),
        cuts in any_cuts(),
        lost in prop::collection::vec((any::<usize>(), any_cuts()), 1..4),
        is_paused in any::<bool>(),
    ) {
        let mut stage = stuck(replicas, surge, unavailable, &cuts);
        let wanted = stage.stack.workloads.get_mut(&"a".into()).unwrap();
        wanted.paused = is_paused;
        proceed(&mut stage, &[]);
        let before = sizes(&stage);
        for (number, cuts) in lost {
            let all: Vec<_> = stage.world.observed.instances.keys().cloned().collect();
            stage.world.observed.instances.remove(&all[number % all.len()]);
            proceed(&mut stage, &cuts);
            prop_assert_eq!(sizes(&stage), before, "{}", listing(&stage.world.observed));
        }
        // Once the new version works, it takes over.
        stage.sick.clear();
        stage.stack.workloads.get_mut(&"a".into()).unwrap().paused = false;
        for _ in 0..40 {
            stage.round();
            stage.tick(Duration::from_secs(20));
        }
        prop_assert!(stage.round().is_settled(), "{}", listing(&stage.world.observed));
        prop_assert_eq!(sizes(&stage), (0, replicas));
        prop_assert!(stage.record.rollouts.is_empty());
        let is_running = |it: &Instance| it.is_running();
        prop_assert!(stage.world.observed.instances.values().all(is_running));
    }
}
