//! The Kubernetes objects that a stack stands for, and their names.

use driftless_model::{
    Format, Kind, ObjectRef, Record, ResourceStatus, Stack, Subject, Workload, WorkloadName,
};

/// The Kubernetes object of a workload. A Compose service is a Deployment in the namespace of its application.
pub(crate) fn object(stack: &Stack, name: &WorkloadName) -> ObjectRef {
    let named = stack.inventory.workloads.get(name).cloned();
    named.unwrap_or_else(|| {
        let namespace = match stack.format {
            Format::Compose => stack.app.to_string(),
            Format::Kubernetes => "default".to_owned(),
        };
        ObjectRef { kind: Kind::Deployment, namespace, name: name.to_string() }
    })
}

/// The object that it makes up with others.
pub(crate) fn whole(workload: &Workload) -> Option<WorkloadName> {
    let member = workload.member().map(|it| &it.of);
    member.or(workload.job_or_template().map(|it| &it.of)).cloned()
}

/// The name of an instance's pod, where it has one that stays.
pub(crate) fn pod(stack: &Stack, subject: Subject<'_>) -> Option<String> {
    let Subject { name, workload } = subject;
    let object = object(stack, name);
    if object.kind == Kind::Pod {
        return Some(object.name);
    }
    let ordinal = workload.member().map(|it| it.ordinal).or_else(|| {
        let job = workload.job_or_template().filter(|it| it.of != *name)?;
        Some(job.ordinal)
    })?;
    Some(format!("{}-{ordinal}", object.name))
}

/// All objects that Git asks for.
pub(crate) fn objects(stack: &Stack) -> impl Iterator<Item = ObjectRef> {
    let workloads = stack.workloads.keys().map(|it| object(stack, it));
    workloads.chain(stack.inventory.resources.iter().map(|it| it.object.clone()))
}

/// The objects of an application that are no workloads.
pub fn resources(stack: &Stack, record: &Record) -> Vec<ResourceStatus> {
    let status = |it: &driftless_model::Resource| ResourceStatus {
        created: record.since.get(&it.object.to_string()).copied(),
        resource: it.clone(),
    };
    stack.inventory.resources.iter().map(status).collect()
}
