//! Services of other applications in the same Swarm: as on one host, no service starts on data that one of them still writes to, unless
//! Git has the data in both applications.

use std::collections::BTreeSet;

use driftless_model::{
    AppName, HostSource, ManagedApplications, ObservedService, ObservedSwarm, WorkloadName, label,
    wanted_data,
};

use super::{
    job_tasks::is_active,
    ownership::workload_of,
    tasks::{may_go_back, place},
};
use crate::{
    decide::other_writers::wait_for_managed,
    facts::{
        Facts,
        places::{Place, is_common, is_given_to_services, place_of},
    },
    wait::Wait,
};

/// A service of another application, and the data that it may write to.
pub(super) struct OtherService<'a> {
    name: &'a str,
    owner: AppName,
    workload: WorkloadName,
    data: BTreeSet<String>,
    applications: &'a ManagedApplications,
}

/// The services of other applications of this agent.
pub(super) fn other_services<'a>(facts: &Facts<'a>, swarm: &'a ObservedSwarm) -> Vec<OtherService<'a>> {
    let Some(applications) = facts.observed.claims.applications.as_deref() else { return Vec::new() };
    let other = |(name, service): (&'a String, &'a ObservedService)| {
        let owner = AppName(service.label(label::APPLICATION)?.to_owned());
        let mut data = service.writes();
        let goes_back = may_go_back(swarm, service);
        for task in swarm.tasks_of(&service.id).filter(|task| goes_back || is_active(swarm, task)) {
            data.extend(task.writes.iter().cloned());
        }
        Some(OtherService { name, owner, workload: workload_of(name, service), data, applications })
    };
    swarm.other_services.iter().filter_map(other).collect()
}

impl OtherService<'_> {
    /// Whether the service of a workload of this application may not begin with this data now.
    pub(super) fn keeps(&self, facts: &Facts<'_>, name: &WorkloadName, data: &str) -> bool {
        if !self.data.contains(data) {
            return false;
        }
        let app = &facts.target.stack.app;
        let (owner, stacks) = (&self.owner, &self.applications.stacks);
        let Some(place) = place_in_git(data) else { return false };
        let is_shared = [owner, app].into_iter().all(|app| is_given_to_services(stacks, app, &place));
        // The other services of its application share nothing on its behalf.
        let is_left = stacks.get(owner).is_some_and(|stack| !stack.workloads.contains_key(&self.workload));
        // The commit that gives the volume to this application may take it from the other one, which has not read that yet.
        let is_unclear =
            self.applications.unread.contains(owner) && place.is_volume() && !had_data(facts, name, data);
        (!is_shared || is_left || is_unclear) && !is_common(stacks, [app, owner], &place)
    }

    /// Why a workload does not start on this data yet.
    pub(super) fn wait(&self, app: &AppName, name: &WorkloadName, data: &str) -> Wait {
        let (owner, by, applications) = (&self.owner, self.name, self.applications);
        let stacks = &applications.stacks;
        let shown = place(data);
        let has =
            |app: &AppName| place_in_git(data).is_some_and(|place| is_given_to_services(stacks, app, &place));
        if applications.is_gone(owner) {
            Wait::data_in_use_by_forgotten_service(name, &shown, by, owner)
        } else if has(owner) && stacks.contains_key(app) && !has(app) {
            Wait::data_given_away(name, &shown, by, owner, app)
        } else {
            wait_for_managed(applications, name, &shown, by, owner)
        }
    }
}

/// Whether Git gave this data to a workload already when the application was reached last: the present commit does not move it there.
fn had_data(facts: &Facts<'_>, name: &WorkloadName, data: &str) -> bool {
    let before = facts.target.reached.and_then(|before| before.workloads.get(name));
    facts.is_at_rest(name) || before.is_some_and(|before| wanted_data(before).any(|known| known == data))
}

/// A volume or folder of a task as a place of a stack.
fn place_in_git(data: &str) -> Option<Place> {
    let name = data.to_owned();
    place_of(&if data.starts_with('/') { HostSource::Path(name) } else { HostSource::Volume(name) })
}
