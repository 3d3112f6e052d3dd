//! The folder of an application that goes on under another name, as after the rename of its folder in Git.
//!
//! The paths of its relative mounts begin with the name of the application. Volumes are found by the project, and so is the folder:
//! a new application with the project of one that is gone would else begin without the files that its containers have written.

use driftless_model::{AppName, EventKind, Format, Observed, Policy, Stack, Timestamp};

use crate::{context::AppContext, disk_turn::DiskTurn, error::chain};

/// Gives an application without a folder that of the last application with the same project, if that one is gone. Returns the
/// application if it is not gone yet: nothing may be written to a folder before that is known. Where the policy forbids objects of
/// others, only an application of the same repository counts, and an event names a folder that is left for that reason. An error is in
/// words.
pub(crate) async fn take_over(
    context: &AppContext,
    disk: &DiskTurn,
    stack: &Stack,
    policy: &Policy,
    observed: &Observed,
) -> Result<Option<AppName>, String> {
    let (own, contents) = (context.name(), context.contents());
    let is_mounted = || observed.containers().any(|found| found.config.app_folders().next().is_some());
    if stack.format != Format::Compose
        || observed.swarm.is_some()
        || stack.app_folders().is_empty()
        || is_mounted()
    {
        return Ok(None);
    }
    let Some(managed) = observed.claims.applications.as_deref() else { return Ok(None) };
    let folder = contents.app_folder(own);
    let (directory, app) = (contents.clone(), own.clone());
    let look =
        move || (!directory.has_app_folder(&app)).then(|| directory.owners_of_app_folders()).transpose();
    let Some(owners) = disk.call(&folder, look).await? else { return Ok(None) };
    let (mut former, mut forbidden): (Option<(Timestamp, AppName)>, Option<AppName>) = (None, None);
    let may_take =
        |app: &AppName| !policy.forbids_objects_of_others() || managed.are_of_one_repository(own, app);
    let owners = owners.into_iter().filter(|app| app != own && !managed.stacks.contains_key(app));
    for app in owners {
        let current = context.store().current_stack(&app).map_err(|error| chain(&error))?;
        let Some((revision, last)) = current else { continue };
        if last.format == stack.format && last.project == stack.project {
            if may_take(&app) {
                former = former.max(Some((revision.started, app)));
            } else {
                forbidden = Some(app);
            }
        }
    }
    let Some((_, app)) = former else {
        if let Some(app) = forbidden {
            let message = format!(
                "begins without the folder of {app}, which had the project `{}`: `otherApplications: false` allows only one of the \
                 same repository; to go on with it, move applications/{app} by hand (docs/rollouts.md#rename-or-move-an-application)",
                stack.project
            );
            context.event(EventKind::Warning, "FolderNotTakenOver", own.as_str(), &message);
        }
        return Ok(None);
    };
    if !observed.claims.is_gone(&app) {
        return Ok(Some(app));
    }
    let (directory, from, to) = (contents.clone(), app.clone(), own.clone());
    disk.call(&folder, move || directory.rename_app_folder(&from, &to)).await?;
    let message = format!(
        "goes on with the folder of {app}, which had the project `{}` and is gone: applications/{app} is applications/{own} now",
        stack.project
    );
    context.event(EventKind::Normal, "FolderTakenOver", own.as_str(), &message);
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::BTreeSet, fs, sync::Arc, time::Duration};

    use driftless_model::{
        Completion, Container, ContainerId, Event, Location, ManagedApplications, Mount, MountSource,
        NameHolder, ObjectsOfOthers, PullPolicy, Strategy,
    };
    use serde_json::json;

    use super::*;
    use crate::{
        context::tests::{context, new_revision},
        desired::tests::stack,
    };

    /// A stack of the project `one` that mounts a folder.
    pub(crate) fn mounting() -> Stack {
        let source = MountSource::AppFolder("data".to_owned());
        let mount = Mount { target: "/data".to_owned(), source, read_only: false };
        let workload = json!({
            "origin": Location::default(), "replicas": 1,
            "container": Container { mounts: vec![mount], ..Container::default() },
            "strategy": Strategy::Recreate, "progressDeadline": Duration::from_mins(10),
            "pull": PullPolicy::IfNotPresent, "completion": Completion::OnSuccess,
        });
        let mut stack = stack("one");
        stack.workloads.insert("web".into(), serde_json::from_value(workload).unwrap());
        stack
    }

    /// A host whose agent has these applications apart from those in Git.
    fn observed(known: &[&str]) -> Observed {
        let names: BTreeSet<AppName> = known.iter().map(|name| AppName::from(*name)).collect();
        let applications = ManagedApplications { is_complete: true, names, ..ManagedApplications::default() };
        let mut observed = Observed::default();
        observed.claims.applications = Some(Arc::new(applications));
        observed
    }

    /// An application whose folder has a file.
    fn deploy(context: &AppContext, name: &str, stack: &Stack) {
        let app = AppName::from(name);
        let new = new_revision(&app);
        context.store().begin_revision(&new, stack).unwrap();
        let contents = context.contents();
        contents.ensure_app_folder(&app, "data").unwrap();
        fs::write(contents.app_folder(&app).join("data/rows"), name).unwrap();
    }

    #[tokio::test]
    async fn folder_of_a_gone_application_is_taken_over() {
        let (context, _folder) = context();
        let disk = DiskTurn::default();
        let contents = context.contents();
        let deploy = |name: &str, stack: &Stack| deploy(&context, name, stack);
        let wanted = mounting();
        let take = async |observed: &Observed| {
            take_over(&context, &disk, &wanted, &Policy::default(), observed).await.unwrap()
        };
        deploy("other", &stack("two"));
        contents.ensure_app_folder(&"unknown".into(), "data").unwrap();
        assert_eq!(take(&observed(&[])).await, None);
        assert!(!contents.has_app_folder(context.name()), "none of them had the project");
        // The last stack of an application that was removed is empty.
        deploy("former", &stack("one").emptied());
        let mut left = observed(&[]);
        let holder =
            NameHolder { id: ContainerId("left".to_owned()), app: Some("former".into()), project: None };
        left.claims.hold_name("former-web-1", holder);
        for waiting in [observed(&["former"]), left] {
            assert_eq!(take(&waiting).await, Some("former".into()));
            assert!(!contents.has_app_folder(context.name()));
        }
        let rows = || fs::read_to_string(contents.app_folder(context.name()).join("data/rows")).unwrap();
        assert_eq!((take(&observed(&[])).await, rows()), (None, "former".to_owned()));
        deploy("later", &stack("one"));
        assert_eq!(
            (take(&observed(&["later"])).await, rows()),
            (None, "former".to_owned()),
            "it has a folder"
        );
    }

    #[tokio::test]
    async fn folder_of_another_repository_needs_the_policy() {
        let (context, _folder) = context();
        deploy(&context, "former", &stack("one"));
        let policy = Policy { objects_of_others: ObjectsOfOthers::Forbidden, ..Policy::default() };
        for (repository, is_taken) in [("infra", false), ("team", true)] {
            let mut observed = observed(&[]);
            let managed = Arc::make_mut(observed.claims.applications.as_mut().unwrap());
            let own = context.name().clone();
            managed.repositories =
                [(own, "team".to_owned()), ("former".into(), repository.to_owned())].into();
            let taken = take_over(&context, &DiskTurn::default(), &mounting(), &policy, &observed).await;
            assert_eq!(taken.unwrap(), None);
            assert_eq!(context.contents().has_app_folder(context.name()), is_taken, "{repository}");
            let events = context.store().events(0, 10, None).unwrap();
            let is_warning = |event: &Event| {
                event.reason == "FolderNotTakenOver" && event.message.contains("applications/former")
            };
            assert_eq!(events.last().is_some_and(is_warning), !is_taken, "{events:?}");
        }
    }

    #[tokio::test]
    async fn application_without_relative_mounts_takes_no_folder() {
        let (context, _folder) = context();
        context.contents().ensure_app_folder(&"former".into(), "data").unwrap();
        let (disk, policy) = (DiskTurn::default(), Policy::default());
        let taken = take_over(&context, &disk, &stack("one"), &policy, &observed(&["former"])).await;
        assert_eq!(taken.unwrap(), None);
        assert!(context.contents().has_app_folder(&"former".into()));
    }
}
