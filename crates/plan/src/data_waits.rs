//! Waits about data, which workloads and applications share or hand over: volumes and folders of the host. And about ports that they
//! hand over.

use std::collections::BTreeSet;

use driftless_model::{AppName, WorkloadName};

use crate::{
    facts::places::Place,
    wait::{Wait, WaitObject, WaitReason},
};

impl Wait {
    /// The container `by`, which Git does not have any more and which stays for now, writes to `place`.
    pub(crate) fn data_in_use(workload: &WorkloadName, place: &Place, by: &str) -> Self {
        let sentence = format!(
            "needs {place}, and {by}, which is not in Git any more, still writes to it: it starts when {by} is removed"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The container `by`, which Docker Compose runs and which is not adopted, writes to `place`.
    pub(crate) fn data_in_use_by_compose(workload: &WorkloadName, place: &Place, by: &str) -> Self {
        let sentence = format!(
            "needs {place}, and {by}, a container of Docker Compose that is not adopted, writes to it: it starts when {by} has ended ({})",
            end_for_good(by)
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The container `by`, which Docker Compose runs for a service of this name in another project, writes to `place`. `adoptable` is that
    /// project, if the application could adopt it.
    pub(crate) fn data_in_use_by_other_project(
        workload: &WorkloadName,
        place: &Place,
        by: &str,
        project: &str,
        adoptable: Option<&str>,
    ) -> Self {
        let adoption = adoptable.map(|project| {
            format!("write `name: {project}` in the Compose file to adopt that project; otherwise ")
        });
        let adoption = adoption.unwrap_or_default();
        let sentence = format!(
            "needs {place}, and {by}, its container of the Compose project `{project}`, writes to it: {adoption}it starts when {by} has ended ({}), or under another name if both are to share it",
            end_for_good(by)
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The container `by` of the application `owner` has the port `what`, which that application does not have in Git any more.
    pub(crate) fn port_given_up(workload: &WorkloadName, what: &str, by: &str, owner: &AppName) -> Self {
        let sentence = format!(
            "needs {what}, which application `{owner}` gives up in Git, and {by} still holds it: it starts when {by} has stopped \
             (`driftless status {owner}` shows what keeps it); if `{owner}` waits for a port of this application at the same time, \
             move one of the two to a free port in a first commit"
        );
        Self::workload(workload, WaitReason::Blocked, sentence)
    }

    /// The container `by`, which stays at its older version because a person or the manifest wants it, writes to `place`.
    pub(crate) fn data_kept(workload: &WorkloadName, place: &Place, by: &str) -> Self {
        let sentence = format!(
            "needs {place}, and {by}, which is kept at its older version, still writes to it: it starts when {by} is replaced"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The container `by` of another application of this agent writes to `place`, and Git does not have it so any more. It is about to
    /// be stopped.
    pub(crate) fn data_handed_over(
        workload: &WorkloadName,
        place: &Place,
        by: &str,
        owner: &AppName,
    ) -> Self {
        let sentence = format!(
            "waits for application `{owner}`: {by} still writes to {place}, which Git does not give to its service; it starts when {by} has ended (`driftless status {owner}` shows what keeps it)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// Git has given `place` to the application `owner`, whose container `by` writes to it, and an older version of the application `app`
    /// needs it.
    pub(crate) fn data_given_away(
        workload: &WorkloadName,
        place: &Place,
        by: &str,
        owner: &AppName,
        app: &AppName,
    ) -> Self {
        let sentence = format!(
            "needs {place}, which Git has given to application `{owner}`, and {by} writes to it: this older version starts when {by} has ended; a newer commit, or `driftless resume {app}` after a rollback by hand, ends the wait"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// Git has given `place` to the application `owner`, which may start on it at any moment, and a container of an older version of the
    /// application `app`, which is down, needs it.
    pub(crate) fn data_promised(
        workload: &WorkloadName,
        place: &Place,
        owner: &AppName,
        app: &AppName,
    ) -> Self {
        let sentence = format!(
            "is not started again: Git has given {place} to application `{owner}`, which starts on it (`driftless status {owner}` shows its state); the newer version of `{app}` comes when its commit is complete"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The container `by` writes to `place`, and it is not known whether the newest manifests of its application still do so.
    pub(crate) fn data_in_use_by_unread(
        workload: &WorkloadName,
        place: &Place,
        by: &str,
        owner: &AppName,
    ) -> Self {
        let sentence = format!(
            "needs {place}, and {by} of application `{owner}`, whose newest manifests cannot be read, writes to it: it starts when they can be read and share it, or when {by} has ended (`driftless status {owner}` shows the error)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The container `by` of an application that is not in Git any more, and was not removed yet, writes to `place`.
    pub(crate) fn data_in_use_by_leaving(
        workload: &WorkloadName,
        place: &Place,
        by: &str,
        owner: &AppName,
    ) -> Self {
        let sentence = format!(
            "needs {place}, and {by} of application `{owner}`, which is not in Git any more, still writes to it: it starts when {by} is removed (`driftless remove {owner}`, unless `prune` does it)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The workload goes on with the folder of the application `owner`, which is not in Git any more, and is not gone yet.
    pub(crate) fn folder_of_leaving(workload: &WorkloadName, owner: &AppName) -> Self {
        let sentence = format!(
            "goes on with the folder of application `{owner}`, which had the same project: it starts when no container of that one is left and the agent does not have it any more (`driftless remove {owner}`, unless `prune` does it)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The same, while it is not known whether Git still has the application `owner`.
    pub(crate) fn folder_of_unread(workload: &WorkloadName, owner: &AppName) -> Self {
        let sentence = format!(
            "goes on with the folder of application `{owner}`, which had the same project and whose newest manifests cannot be read: it starts when they can be read and Git does not have that one any more, and no container of it is left (`driftless status {owner}` shows the error)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The same, while one of these repositories may have the application `owner`.
    pub(crate) fn folder_of_unknown(
        workload: &WorkloadName,
        owner: &AppName,
        repositories: &BTreeSet<String>,
    ) -> Self {
        let names: Vec<String> = repositories.iter().map(|repository| format!("`{repository}`")).collect();
        let names = names.join(", ");
        let sentence = format!(
            "goes on with the folder of application `{owner}`, which had the same project: it starts when all repositories were read, because one may have that application; not read since the agent was started: {names} (`driftless doctor` shows the error)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The same, while the host has these containers of the application `owner`, which this agent does not manage any more.
    pub(crate) fn folder_of_forgotten(workload: &WorkloadName, owner: &AppName, containers: &[&str]) -> Self {
        let (listed, names) = (containers.join(", "), containers.join(" "));
        let sentence = format!(
            "goes on with the folder of application `{owner}`, which had the same project and which this agent does not manage any more: it starts when {listed} is removed (`docker stop {names}`, then `docker rm {names}`)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The containers write to a folder of the workload in another state directory, whose path is `place`.
    pub(crate) fn folder_moved(workload: &WorkloadName, place: &str, containers: &[&str]) -> Self {
        let (listed, names) = (containers.join(", "), containers.join(" "));
        let sentence = format!(
            "needs the folder of the application in the present state directory, and {listed} writes to {place} in another one: nothing is created, started or replaced until {listed} is removed (`docker stop {names}`, copy the newer files to the present directory, then `docker rm {names}`), or until `stateDir` is as before (docs/state.md#move-the-state-directory)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The container `by` of an application that this agent does not manage any more writes to `place`.
    pub(crate) fn data_in_use_by_forgotten(
        workload: &WorkloadName,
        place: &Place,
        by: &str,
        owner: &AppName,
    ) -> Self {
        let sentence = format!(
            "needs {place}, and {by} of application `{owner}`, which this agent does not manage any more, writes to it: it starts when {by} has ended ({})",
            end_for_good(by)
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// The same for a service of a Swarm.
    pub(crate) fn data_in_use_by_forgotten_service(
        workload: &WorkloadName,
        place: &Place,
        by: &str,
        owner: &AppName,
    ) -> Self {
        let sentence = format!(
            "needs {place}, and service {by} of application `{owner}`, which this agent does not manage any more, writes to it: it starts when {by} is removed (`docker service rm {by}`)"
        );
        Self::workload(workload, WaitReason::DataInUse, sentence)
    }

    /// No container is created that uses it.
    pub(crate) fn of_another_application(kind: &'static str, name: &str, owner: &AppName) -> Self {
        let sentence = format!(
            "belongs to application `{owner}`: give the {kind} or the project another `name`, or declare the {kind} `external: true` to share it"
        );
        Self::new(
            WaitObject::Other { kind, name: name.to_owned() },
            WaitReason::OfAnotherApplication,
            sentence,
        )
    }

    /// The policy does not allow to use the network or volume.
    pub(crate) fn forbidden(kind: &'static str, name: &str, owner: &AppName) -> Self {
        let sentence = format!(
            "was created for application `{owner}`, and the policy does not allow to use it: take another {kind}, or allow it with \
             `policy.otherApplications` in the agent's configuration"
        );
        let object = WaitObject::Other { kind, name: name.to_owned() };
        Self::new(object, WaitReason::OfAnotherApplication, sentence)
    }

    pub(crate) fn shared_volume(name: &str, owner: &AppName) -> Self {
        let object = WaitObject::Other { kind: "volume", name: name.to_owned() };
        let sentence = format!("is external and belongs to application `{owner}`, which shares it");
        Self::new(object, WaitReason::SharedVolume, sentence)
    }

    /// The application that the network or volume was created for is gone, and this one cannot go on with it by itself.
    pub(crate) fn of_former_application(kind: &'static str, name: &str, owner: &AppName) -> Self {
        let way = if kind == "volume" {
            "declare it `external: true` to go on with its data; under another `name` it begins empty"
                .to_owned()
        } else {
            format!("remove it with `docker {kind} rm {name}`")
        };
        let sentence =
            format!("was created for application `{owner}`, which this agent does not have any more: {way}");
        let object = WaitObject::Other { kind, name: name.to_owned() };
        Self::new(object, WaitReason::OfAnotherApplication, sentence)
    }

    /// The volume of an application that is removed with its volumes stays. `user` uses it.
    pub(crate) fn volume_in_use(name: &str, user: &str) -> Self {
        let sentence = format!(
            "is used by {user}, so it stays; when nothing needs it any more, `docker volume rm {name}` removes it"
        );
        Self::new(
            WaitObject::Other { kind: "volume", name: name.to_owned() },
            WaitReason::VolumeInUse,
            sentence,
        )
    }

    /// The volumes of an application that is removed wait until it is known who else uses them.
    pub(crate) fn volumes_unclear() -> Self {
        let sentence = "waits with the removal of its volumes until all repositories were read: other applications may use them";
        Self::application(WaitReason::Dependency, sentence)
    }
}

/// The commands that end a container for good. One that is only stopped would write together with its successor after a restart of the
/// engine, if its restart policy is `always`.
fn end_for_good(container: &str) -> String {
    format!(
        "`docker stop {container}`, then `docker rm {container}`: one that is only stopped may come back with the engine"
    )
}
