//! The remark about an instance that its status shows.

use driftless_model::{Health, Instance, Readiness, State};

use crate::text;

/// A remark about an instance besides its state.
pub(crate) fn remark(instance: &Instance) -> String {
    match (&instance.state, &instance.readiness) {
        (State::Exited { out_of_memory: true, .. }, _) => "out of memory".to_owned(),
        (State::Exited { error, .. }, _) => text::one_line(error),
        (State::Restarting { code, .. }, _) => format!("exited with code {code}"),
        (State::Running { health: Health::Unhealthy, .. }, Readiness::NotReady { reason }) => {
            text::one_line(reason)
        }
        (State::Running { health: Health::Unhealthy, .. }, _) => "its health check fails".to_owned(),
        (State::Running { health: Health::Starting, .. }, _) => {
            "its health check has not succeeded yet".to_owned()
        }
        (
            State::Running { health: Health::Healthy, .. },
            Readiness::Starting { reason } | Readiness::NotReady { reason } | Readiness::Dead { reason },
        ) => text::one_line(reason),
        (State::Running { health: Health::Healthy, .. }, Readiness::Ready { .. })
        | (State::Created | State::Paused | State::Removing | State::Dead, _) => String::new(),
    }
}
