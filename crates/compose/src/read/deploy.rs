//! `deploy` of a service: replicas, resources, restarts and updates.

use driftless_model::{FailureAction, RestartPolicy};

use crate::{
    read::{
        host::{Capabilities, device_requests},
        types::{Deploy, DeployRestart, Order, UpdateConfig},
    },
    spec::{
        keys::{DEPLOY, LIMITS, RESERVATIONS, RESOURCES, RESTART_POLICY, ROLLBACK, UPDATE},
        scalar,
        value::{Placed, Read as _, Value},
    },
};

pub(crate) fn deploy(value: &Value<'_>) -> Deploy {
    let mut deploy = Deploy::default();
    if value.node.is_null() {
        return deploy;
    }
    let mut is_global = false;
    for (key, value) in value.fields(&DEPLOY) {
        match key {
            "replicas" => deploy.replicas = value.whole().map(|number| value.placed(number)),
            "resources" => resources(&mut deploy, &value),
            "restart_policy" => deploy.restart = restart_policy(&value),
            "update_config" => deploy.update = Some(update(&value, Phase::Update)),
            "rollback_config" => deploy.rollback = Some(update(&value, Phase::Rollback)),
            "mode" => match value.owned().as_deref() {
                Some("replicated" | "") | None => {}
                Some("global") => is_global = true,
                Some(mode) => {
                    value
                        .warning(format!("`{mode}` has no effect: whether it is a job depends on `restart`"));
                }
            },
            _ => value.refuse("is not supported yet"),
        }
    }
    // One replica on each host, and there is one host.
    if is_global && let Some(replicas) = deploy.replicas.take_if(|replicas| replicas.value > 1) {
        let message = "has no effect with `mode: global`: one replica runs on this host";
        value.report().say(replicas.warning(message));
    }
    deploy
}

/// Billionths of a processor.
pub(crate) fn cpus(value: &Value<'_>) -> Option<u64> {
    let billionths = scalar::billionths(value.float()?);
    if billionths.is_none() {
        value.error("is not a number of processors");
    }
    billionths
}

fn resources(deploy: &mut Deploy, value: &Value<'_>) {
    for (key, value) in value.fields(&RESOURCES) {
        match key {
            "limits" => limits(deploy, &value),
            "reservations" => reservations(deploy, &value),
            _ => value.refuse("is not supported yet"),
        }
    }
}

fn limits(deploy: &mut Deploy, value: &Value<'_>) {
    for (key, value) in value.fields(&LIMITS) {
        match key {
            "cpus" => deploy.cpus = limit(&value, cpus(&value)),
            "memory" => deploy.memory = limit(&value, memory(&value)),
            "pids" => deploy.pids = value.whole().map(|pids| value.placed(pids)),
            _ => value.refuse("is not supported yet"),
        }
    }
}

fn reservations(deploy: &mut Deploy, value: &Value<'_>) {
    for (key, value) in value.fields(&RESERVATIONS) {
        match key {
            "memory" => deploy.memory_reservation = limit(&value, memory(&value)),
            "devices" => deploy.devices = device_requests(&value, Capabilities::Required),
            _ => value.refuse("is not supported yet"),
        }
    }
}

/// A limit at its place. 0 is none, as for the engine.
fn limit(value: &Value<'_>, number: Option<u64>) -> Option<Placed<u64>> {
    number.filter(|number| *number > 0).map(|number| value.placed(number))
}

/// A size. The schema accepts strings only.
fn memory(value: &Value<'_>) -> Option<u64> {
    value.string()?;
    value.bytes()
}

fn restart_policy(value: &Value<'_>) -> Option<Placed<DeployRestart>> {
    let (mut condition, mut max_retries) = (None, None);
    for (key, value) in value.fields(&RESTART_POLICY) {
        match key {
            "condition" => condition = value.filled().map(|text| value.placed(text)),
            "max_attempts" => max_retries = value.whole::<u32>().filter(|number| *number > 0),
            _ => value.refuse("is not supported yet"),
        }
    }
    let Some(condition) = condition else {
        return Some(value.placed(DeployRestart::NoCondition { has_limit: max_retries.is_some() }));
    };
    let policy = match condition.value.as_str() {
        "none" | "no" => RestartPolicy::No,
        "on-failure" => RestartPolicy::OnFailure { max_retries },
        "any" | "always" => RestartPolicy::Always,
        "unless-stopped" => RestartPolicy::UnlessStopped,
        other => {
            let message = format!("`{other}` is not a restart condition; use `none`, `on-failure` or `any`");
            value.report().say(condition.error(message));
            return None;
        }
    };
    Some(value.placed(DeployRestart::Policy(policy)))
}

/// The phase of a rollout that settings are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Update,
    Rollback,
}

fn update(value: &Value<'_>, phase: Phase) -> UpdateConfig {
    let mut update = UpdateConfig::default();
    let keys = match phase {
        Phase::Update => &UPDATE,
        Phase::Rollback => &ROLLBACK,
    };
    for (key, value) in value.fields(keys) {
        match key {
            "parallelism" => update.parallelism = value.whole(),
            "monitor" => update.monitor = value.duration(),
            "delay" => update.delay = value.duration(),
            "order" => match value.owned().as_deref() {
                Some("start-first") => update.order = Some(Order::StartFirst),
                Some("stop-first") => update.order = Some(Order::StopFirst),
                Some(_) => value.error("is not an order; use `start-first` or `stop-first`"),
                None => {}
            },
            "failure_action" => update.failure.action = failure_action(&value, phase),
            "max_failure_ratio" => update.failure.max_ratio = ratio(&value),
            _ => value.refuse("is not supported yet"),
        }
    }
    update
}

fn failure_action(value: &Value<'_>, phase: Phase) -> Option<FailureAction> {
    match (value.filled()?.as_str(), phase) {
        ("pause", _) => Some(FailureAction::Pause),
        ("continue", _) => Some(FailureAction::Continue),
        ("rollback", Phase::Update) => Some(FailureAction::Rollback),
        ("rollback", Phase::Rollback) => {
            value.error("a rollback that fails does not go back any further; use `pause` or `continue`");
            None
        }
        (_, Phase::Update) => {
            value.error("is not a failure action; use `pause`, `continue` or `rollback`");
            None
        }
        (_, Phase::Rollback) => {
            value.error("is not a failure action; use `pause` or `continue`");
            None
        }
    }
}

/// A share from 0 to 1, in millionths.
fn ratio(value: &Value<'_>) -> Option<u32> {
    let number = value.float()?;
    if !(0.0..=1.0).contains(&number) {
        value.error("is not a share of the instances; use a number from 0 to 1, such as `0.25`");
        return None;
    }
    let millionths = scalar::billionths(number)? / 1000;
    u32::try_from(millionths).ok()
}
