//! Workers of a proxy. The one that was started last in a network takes the sockets and connections over from the others,
//! which stay idle until it ends.

use driftless_model::{Forwards, Instance, Timestamp, is_proxy_image};

/// The running worker that was started last in the network of this one, if that is another one.
pub(crate) fn successor<'a>(
    worker: &Instance,
    all: impl Iterator<Item = &'a Instance>,
    now: Timestamp,
) -> Option<&'a Instance> {
    if !hands_over(worker) {
        return None;
    }
    let start = |worker: &Instance| worker.started.map(|started| started.in_order(now));
    let is_later =
        |other: &&Instance| hands_over(other) && other.hosts == worker.hosts && start(other) > start(worker);
    all.filter(is_later).max_by_key(|other| start(other))
}

/// Whether a worker carries the connections in place of another one that runs.
pub(crate) fn has_taken_over(worker: &Instance, all: &[&Instance], now: Timestamp) -> bool {
    let is_succeeded =
        |other: &Instance| successor(other, all.iter().copied(), now).is_some_and(|it| it.id == worker.id);
    hands_over(worker) && all.iter().copied().any(is_succeeded)
}

/// Whether a container runs that hands over to a later one in its network.
fn hands_over(instance: &Instance) -> bool {
    let container = &instance.config;
    if !instance.is_running() || instance.hosts.is_empty() || !is_proxy_image(&container.image) {
        return false;
    }
    let words = container.command.iter().flatten().skip(1).map(String::as_str);
    Forwards::parse(words).is_ok_and(|forwards| forwards.hand_over)
}
