//! Adoption of what Docker Compose created: by request, or by the policy `adopt: auto`. The planner decides what can
//! be adopted and what happens to it.

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::{
    Actor, Adopt, Candidate, Container, EngineKind, EventKind, Mount, MountSource, Observed, Record, Workload,
};
use driftless_plan as plan;
use driftless_plan::{Claim, Claimed, Target};
use driftless_store::{ContentDir, Visibility};

use super::handler::RequestHandler;
use crate::request::{Answer, RequestError};
use crate::{
    context::AppContext, record::StoredRecord, revisions::last_version::reached_stack, state_loss::Loss,
};

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Adopts everything of this project that Docker Compose created, or nothing.
    pub(super) async fn adopt(&mut self) -> Result<Answer, RequestError> {
        let target = self.target()?;
        if self.revisions.lost().is_some_and(Loss::is_of_engine) {
            self.refuse_after_loss()?;
        }
        let name = self.context.name();
        if target.policy.adopt == Adopt::Never {
            let text = format!("`adopt` is `never` for {name}: allow it in the agent's configuration");
            return Err(RequestError::Refused(text));
        }
        if target.policy.engine == EngineKind::Swarm {
            return self.adopt_services(&target).await;
        }
        let scope = crate::observe::observe_scope(&target.stack, &target.images, self.record.get());
        let mut observed = self.observer.docker().observe(name, &scope).await?;
        let reached = reached_stack(self.context, &target, self.record.get())?;
        let mask = self.context.mask_with_kept(&target.stack);
        let planned = target.for_planner(reached.as_ref(), self.context.agent(), &mask);
        plan::merge_adopted(&mut observed, self.record.get(), self.context.agent());
        let mut record = self.record.get().clone();
        let mut claims = plan::adopt(&mut record, &planned, &observed).map_err(|obstacles| {
            RequestError::Refused(format!("{name} cannot be adopted: {}", obstacles.join("; ")))
        })?;
        leave_out_files(self.context.contents(), &mut claims);
        if !claims.is_empty() {
            self.store(record)?;
        }
        report_adoption(self.context, self.actor, &claims);
        Ok(Answer::Adopted(claims.iter().map(ToString::to_string).collect()))
    }
}

/// Adopts without a request if the policy says so. The plan names what prevents an adoption.
pub(crate) fn adopt_by_policy(
    context: &AppContext,
    record: &mut StoredRecord,
    target: &Target<'_>,
    observed: &Observed,
) {
    // Services cannot take containers over.
    let is_swarm = target.policy.engine == EngineKind::Swarm;
    if target.policy.adopt != Adopt::Auto || target.policy.suspended || is_swarm {
        return;
    }
    // A container that only has the right name may be meant for something else, and a folder of the host may have files that Git
    // ignores, such as keys: a user decides.
    let is_for_user = |candidate: &Candidate| {
        let Candidate { instance, by_name, defaults: _ } = candidate;
        let workload = target.stack.workloads.get(&instance.instance.workload);
        let has_folder =
            |workload: &Workload| has_folder_of_host(context.contents(), workload, &instance.config);
        *by_name || workload.is_some_and(has_folder)
    };
    if let Ok(mut claims) = plan::adopt_without(record.get_mut(), target, observed, is_for_user)
        && !claims.is_empty()
    {
        leave_out_files(context.contents(), &mut claims);
        // Stored before anything is done about it. If that fails, a restarted agent adopts again.
        record.save(context);
        report_adoption(context, &Actor::agent(), &claims);
    }
}

/// Whether a container mounts a path of the host where Git has a folder, of which it has the tracked files only.
fn has_folder_of_host(contents: &ContentDir, workload: &Workload, found: &Container) -> bool {
    let is_folder = |mount: &Mount| match &mount.source {
        MountSource::Content(id) => contents.path(id, Visibility::Public).is_dir(),
        MountSource::Secret(id) => contents.path(id, Visibility::Secret).is_dir(),
        MountSource::InPlace { secret: _, folder } => *folder,
        MountSource::Volume { .. }
        | MountSource::Anonymous
        | MountSource::Empty
        | MountSource::Bind { .. }
        | MountSource::Tmpfs { .. }
        | MountSource::Image(_)
        | MountSource::AppFolder(_) => false,
    };
    plan::mounts_in_place_of_binds(workload, found).any(|(mount, _)| is_folder(mount))
}

/// Leaves out the losses that are none: Git has all of a single file.
fn leave_out_files(contents: &ContentDir, claims: &mut [Claim]) {
    for claim in claims {
        claim.losses.retain(|loss| !is_file(contents, &loss.source));
    }
}

/// Whether a mount is known to be a single file of Git. One that is not on the disk may be a folder.
fn is_file(contents: &ContentDir, source: &MountSource) -> bool {
    match source {
        MountSource::Content(id) => contents.path(id, Visibility::Public).is_file(),
        MountSource::Secret(id) => contents.path(id, Visibility::Secret).is_file(),
        MountSource::InPlace { secret: _, folder } => !folder,
        MountSource::Volume { .. }
        | MountSource::Anonymous
        | MountSource::Empty
        | MountSource::Bind { .. }
        | MountSource::Tmpfs { .. }
        | MountSource::Image(_)
        | MountSource::AppFolder(_) => false,
    }
}

fn report_adoption(context: &AppContext, actor: &Actor, claims: &[Claim]) {
    for claim in claims {
        let kind = match claim.what {
            Claimed::Container { .. } => "container",
            Claimed::Network { .. } => "network",
            Claimed::Volume => "volume",
        };
        tracing::info!(kind, object = claim.name, "adopted");
        // The message of an event is one line.
        let fate = claim.to_string().replace("\n  ", "; ");
        let message = match claim.what {
            Claimed::Container { by_name: true, .. } => format!("adopted by its name; {fate}"),
            Claimed::Container { .. } | Claimed::Network { .. } | Claimed::Volume => {
                format!("adopted from Docker Compose; {fate}")
            }
        };
        context.event_by(actor, EventKind::Normal, "Adopted", &claim.name, &message);
    }
}

/// Adopts in a copy of the live state. Returns the objects that can be adopted, one sentence each, and the obstacles
/// because of which none of them would be. `contents` has the mounted files, if an agent asks.
pub(crate) fn adopt_in_dry_run(
    target: &Target<'_>,
    observed: &mut Observed,
    record: &mut Record,
    contents: Option<&ContentDir>,
) -> (Vec<String>, Vec<String>) {
    plan::merge_adopted(observed, record, target.agent);
    let mut claims = plan::survey(target, observed);
    if let Some(contents) = contents {
        leave_out_files(contents, &mut claims);
    }
    let sentences: Vec<String> = claims.iter().map(ToString::to_string).collect();
    if sentences.is_empty() {
        return (sentences, Vec::new());
    }
    let obstacles = match target.policy {
        policy if policy.adopt == Adopt::Never => vec!["the policy `adopt` is `never`".to_owned()],
        policy if policy.suspended => vec!["the application is suspended".to_owned()],
        _ => match plan::adopt(record, target, observed) {
            Ok(_) => {
                plan::merge_adopted(observed, record, target.agent);
                Vec::new()
            }
            Err(obstacles) => obstacles,
        },
    };
    (sentences, obstacles)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use driftless_model::{
        Access, Completion, Content, ContentTree, Contents, Location, PullPolicy, Strategy,
    };
    use serde_json::json;

    use super::*;
    use crate::context::tests::context;

    fn mounting(source: MountSource) -> Container {
        let mount = Mount { target: "/etc/nginx/certs".to_owned(), source, read_only: true };
        Container { mounts: vec![mount], ..Container::default() }
    }

    fn workload(source: MountSource) -> Workload {
        let workload = json!({
            "origin": Location::default(), "replicas": 1, "container": mounting(source),
            "strategy": Strategy::Recreate, "progressDeadline": Duration::from_mins(10),
            "pull": PullPolicy::IfNotPresent, "completion": Completion::OnSuccess,
        });
        serde_json::from_value(workload).unwrap()
    }

    #[test]
    fn folder_of_the_host_is_left_to_a_user() {
        let (context, _folder) = context();
        let tree: ContentTree =
            BTreeMap::from([("README".to_owned(), (b"keys".as_slice().into(), Access::of(false)))]);
        let (folder, file) = (Content::Folder(tree), Content::file(*b"worker_processes 1;"));
        let ids = [folder.id(), file.id()];
        let contents: Contents = [folder, file].into_iter().map(|content| (content.id(), content)).collect();
        context.contents().write(&contents, Visibility::Public).unwrap();
        let [folder, file] = ids.map(|id| workload(MountSource::Content(id)));
        let path = "/opt/proxy/certs".to_owned();
        let bind = mounting(MountSource::Bind { path, create: true, propagation: None, selinux: None });
        let is_left =
            |workload: &Workload, found: &Container| has_folder_of_host(context.contents(), workload, found);
        assert!(is_left(&folder, &bind));
        assert!(!is_left(&file, &bind), "Git has all of it");
        assert!(!is_left(&folder, &folder.container), "it is of Git already");

        // Nothing is lost of a single file, if it is known to be one.
        let is_file = |source: &MountSource| is_file(context.contents(), source);
        let in_place = |folder| MountSource::InPlace { secret: false, folder };
        let source_of = |workload: &Workload| workload.container.mounts[0].source.clone();
        let unknown = MountSource::Content(Content::file(*b"not written yet").id());
        assert!(is_file(&source_of(&file)) && is_file(&in_place(false)));
        assert!(!is_file(&source_of(&folder)) && !is_file(&in_place(true)) && !is_file(&unknown));
    }
}
