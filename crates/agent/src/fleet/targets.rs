//! The places that this agent reports to, as the API shows them.

use std::sync::{Arc, Mutex, PoisonError};

use driftless_config::{FleetPlace, FleetReports};
use driftless_fleet::TargetStatus;

/// The places of this agent with the results of their last reports. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FleetTargets(Arc<Mutex<Vec<TargetStatus>>>);

impl FleetTargets {
    pub(crate) fn new(settings: &FleetReports) -> Self {
        let target = |to: &FleetPlace| TargetStatus { to: to.url.clone(), ..TargetStatus::default() };
        Self(Arc::new(Mutex::new(settings.to.iter().map(target).collect())))
    }

    /// In the order of the configuration.
    pub fn list(&self) -> Vec<TargetStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One sentence about the places that take no reports until somebody does something. `None`: there is none.
    pub(crate) fn blocked(&self) -> Option<String> {
        let targets = self.list();
        let blocked = targets.iter().filter(|target| target.blocked);
        let sentences: Vec<String> =
            blocked.map(|target| format!("{}: {}", target.to, target.error)).collect();
        (!sentences.is_empty()).then(|| format!("could not report to {}", sentences.join("; ")))
    }

    pub(crate) fn update(&self, index: usize, change: impl FnOnce(&mut TargetStatus)) {
        if let Some(target) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index) {
            change(target);
        }
    }
}
