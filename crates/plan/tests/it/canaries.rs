//! Canaries: with failing images, lost instances, interrupted rounds, promotions and scaling, a canary never has more
//! new instances than its step allows, and never leaves the limits of its update, which [`Stage`] checks at each step.

use std::{collections::BTreeSet, time::Duration};

use driftless_model::{CanaryStep, Health, Instance, State, Strategy as Rollout, Subject, Timestamp};
use driftless_plan::promote;
use proptest::prelude::*;

use crate::{
    convergence::cases,
    fixture::{Stage, listing, stack, workload},
};

/// The version of the image that the canary brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Good,
    /// Its health check never succeeds.
    Sick,
    /// It ends as soon as it runs.
    Crashing,
}

/// Something that happens between two rounds. Numbers choose an instance.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Nothing,
    Removed(usize),
    Exited(usize),
    Unhealthy(usize),
    Promoted,
    Scaled(u32),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        5 => Just(Happening::Nothing),
        1 => any::<usize>().prop_map(Happening::Removed),
        1 => any::<usize>().prop_map(Happening::Exited),
        1 => any::<usize>().prop_map(Happening::Unhealthy),
        1 => Just(Happening::Promoted),
        1 => (1..6_u32).prop_map(Happening::Scaled),
    ]
}

fn any_steps() -> impl Strategy<Value = Vec<CanaryStep>> {
    let step = prop_oneof![
        Just("1"),
        Just("2"),
        Just("9"),
        Just("20%"),
        Just("50%"),
        Just("99%"),
        Just("1 for 30s"),
        Just("50% for 1m")
    ];
    prop::collection::vec(step.prop_map(|text| CanaryStep::parse(text).unwrap()), 1..4)
}

/// The instances of the new version that are not on their way out.
fn new_instances(stage: &Stage) -> Vec<&Instance> {
    let spec = stage.stack.workloads[&"a".into()].spec();
    let all = stage.world.observed.instances.values();
    all.filter(|instance| instance.spec == spec && instance.state != State::Removing).collect()
}

/// The largest number of new instances that the canary allows now. `None`: it has no step left.
fn share(stage: &Stage) -> Option<usize> {
    let wanted = &stage.stack.workloads[&"a".into()];
    let passed = stage.record.canaries.get(&"a".into())?.passed;
    Some(wanted.canary.get(passed as usize)?.instances(wanted.replicas) as usize)
}

fn happen(stage: &mut Stage, happening: Happening) {
    let now = stage.now;
    let chosen = |stage: &Stage, number: usize| {
        let count = stage.world.observed.instances.len();
        stage.world.observed.instances.keys().nth(number.checked_rem(count)?).cloned()
    };
    let (number, state) = match happening {
        Happening::Nothing => return,
        Happening::Promoted => {
            let workload = stage.stack.workloads[&"a".into()].clone();
            promote(&mut stage.record, Subject { name: &"a".into(), workload: &workload }, false);
            return;
        }
        Happening::Scaled(replicas) => {
            let workload = stage.stack.workloads.get_mut(&"a".into()).unwrap();
            // Others are refused with their place.
            if CanaryStep::obstacle(&workload.canary, replicas).is_none() {
                workload.replicas = replicas;
            }
            return;
        }
        Happening::Removed(number) => {
            if let Some(id) = chosen(stage, number) {
                stage.world.observed.instances.remove(&id);
            }
            return;
        }
        Happening::Exited(number) => {
            let state =
                State::Exited { code: 137, finished: now, out_of_memory: false, error: String::new() };
            (number, state)
        }
        Happening::Unhealthy(number) => {
            (number, State::Running { since: Timestamp(now.0 - 1000), health: Health::Unhealthy })
        }
    };
    let found = chosen(stage, number).and_then(|id| stage.world.observed.instances.get_mut(&id));
    if let Some(instance) = found.filter(|instance| instance.is_running()) {
        instance.state = state;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(250), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canary_keeps_its_share_and_its_limits(
        size in (2..6_u32, 0..3_u32, 0..3_u32, prop_oneof![Just(0_u64), Just(5)]),
        steps in any_steps(),
        version in prop_oneof![3 => Just(Version::Good), 1 => Just(Version::Sick), 1 => Just(Version::Crashing)],
        happenings in prop::collection::vec((any_happening(), 0..8_usize, any::<usize>()), 25),
    ) {
        let (replicas, surge, unavailable, ready) = size;
        let mut wanted = workload("a:1", replicas);
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        wanted.strategy = Rollout::RollingUpdate { max_surge: surge, max_unavailable: unavailable };
        wanted.min_ready = Duration::from_secs(ready);
        wanted.canary = steps;
        while CanaryStep::obstacle(&wanted.canary, replicas).is_some() {
            wanted.canary.pop();
        }
        let mut stage = Stage::new(stack([("a", wanted)]));
        while !stage.round().is_settled() {
            stage.tick(Duration::from_secs(10));
        }
        stage.stack.workloads.get_mut(&"a".into()).unwrap().container.image = "a:2".into();
        match version {
            Version::Good => {}
            Version::Sick => drop(stage.sick.insert("a:2".into())),
            Version::Crashing => drop(stage.crashing.insert("a:2".into())),
        }
        for (happening, cut, seed) in happenings {
            happen(&mut stage, happening);
            let before = new_instances(&stage).len();
            stage.round_cut_short(cut, |count| seed % count);
            let new = new_instances(&stage).len();
            if let Some(share) = share(&stage) {
                prop_assert!(new <= share.max(before), "{new} of {share}\n{}", listing(&stage.world.observed));
            }
            let observed = &stage.world.observed;
            let slots: BTreeSet<_> = observed.instances.values().map(|it| &it.instance).collect();
            prop_assert_eq!(slots.len(), observed.instances.len(), "twice:\n{}", listing(observed));
            stage.tick(Duration::from_secs(20));
        }
        // Nothing happens any more, so the canary reaches its step and stays there, or is over.
        for _ in 0..40 {
            stage.round();
            stage.tick(Duration::from_secs(20));
        }
        let wanted = stage.stack.workloads[&"a".into()].replicas as usize;
        let all = listing(&stage.world.observed);
        if let Some(share) = share(&stage) {
            prop_assert!(new_instances(&stage).len() <= share, "more than {share}:\n{all}");
            prop_assert!(
                version != Version::Good || new_instances(&stage).len() == share,
                "fewer than {share}:\n{all}"
            );
        }
        if version == Version::Good {
            prop_assert_eq!(stage.available(&"a".into()), wanted, "{}", all);
            prop_assert_eq!(stage.world.observed.instances.len(), wanted, "too many:\n{}", all);
            while promote(
                &mut stage.record,
                Subject { name: &"a".into(), workload: &stage.stack.workloads[&"a".into()].clone() },
                true,
            ) {}
            for _ in 0..40 {
                stage.round();
                stage.tick(Duration::from_secs(20));
            }
            prop_assert!(stage.round().is_settled(), "{}", listing(&stage.world.observed));
            prop_assert_eq!(new_instances(&stage).len(), wanted);
        }
    }
}
