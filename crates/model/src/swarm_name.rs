//! Names that a Swarm refuses.

use super::{WorkloadKind, WorkloadName, swarm::swarm_service_name};

/// The most letters of the name of a service in a Swarm.
pub const LONGEST_SWARM_NAME: usize = 63;

/// The longest name of a service of a workload, if a Swarm would refuse it. Runs of CronJobs and hooks have services whose names end
/// with the minute, or with a hash and a number.
pub fn refused_swarm_name(project: &str, workload: &WorkloadName, kind: &WorkloadKind) -> Option<String> {
    let end = match kind {
        WorkloadKind::CronJob { .. } => "-29384756",
        WorkloadKind::Hook { .. } => "-1a2b3c4d-10",
        WorkloadKind::Replicas | WorkloadKind::StatefulSetPod(_) | WorkloadKind::Job(_) => "",
    };
    let name = swarm_service_name(project, workload) + end;
    (name.len() > LONGEST_SWARM_NAME).then_some(name)
}
