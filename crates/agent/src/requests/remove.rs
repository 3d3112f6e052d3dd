//! Requests to remove an application that has left Git.

use std::collections::BTreeSet;

use driftless_docker::Docker;
use driftless_git::CommitSource;
use driftless_model::{EngineKind, Format, HookPhase, HookRecord, JobRecord, Record, Removal, Stack, label};
use driftless_plan::has_hook;
use driftless_store::Suspension;

use super::handler::RequestHandler;
use crate::{
    hooks::{skip_pre_delete, try_removal_again},
    request::{Answer, RequestError},
};

/// Whether the `PreDelete` hooks run before a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hooks {
    Run,
    Skip,
}

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Removes the containers and networks of an application that Git does not have any more, and on request its
    /// volumes. A pin and a suspension end.
    pub(super) async fn remove(&mut self, removal: Removal, hooks: Hooks) -> Result<Answer, RequestError> {
        let name = self.context.name();
        self.refuse_unless_gone("it would be created again: remove it there first")?;
        if self.desired.rendered().policy.suspended {
            return Err(RequestError::Refused(format!(
                "{name} is suspended in the agent's configuration: remove `suspend` there first"
            )));
        }
        self.refuse_removal_in_swarm(removal).await?;
        let mut record = self.record.get().clone();
        record.removal = Some(removal);
        // A user who asks again means those as well that were used then.
        record.spared_volumes.clear();
        let mut skipped = String::new();
        let last = self.last_stack()?;
        if let Some(stack) = last.as_ref().filter(|stack| has_hook(&stack.stack, HookPhase::PreDelete)) {
            match hooks {
                Hooks::Skip => {
                    skip_pre_delete(&mut record, &stack.stack, stack.revision);
                    let names =
                        stack.stack.subjects().filter(|it| it.workload.hook() == Some(HookPhase::PreDelete));
                    let names: Vec<&str> = names.map(|it| it.name.as_str()).collect();
                    skipped = format!("; without its PreDelete hooks ({})", names.join(", "));
                }
                Hooks::Run if has_failed_hook(&record) => try_removal_again(&mut record),
                Hooks::Run => {}
            }
        }
        self.context.store().clear_pin(name)?;
        self.context.store().set_suspended(name, Suspension::Active)?;
        self.accept(record)?;
        let message = match removal {
            Removal::KeepVolumes => "containers and networks are removed, volumes are kept",
            Removal::WithVolumes => "containers, networks and the volumes that the agent created are removed",
        };
        let stack = last.as_ref().map(|last| &last.stack);
        let spared = match removal {
            Removal::KeepVolumes => Vec::new(),
            Removal::WithVolumes => self.spared_volumes(stack),
        };
        let said: Vec<&str> = std::iter::once(message).chain(spared.iter().map(String::as_str)).collect();
        self.event("RemovalRequested", name.as_str(), &format!("{}{skipped}", said.join("; ")));
        let note = match removal {
            Removal::KeepVolumes => stack.and_then(kept_volumes),
            Removal::WithVolumes => Some(spared.join("; ")).filter(|sentences| !sentences.is_empty()),
        };
        Ok(note.map_or(Answer::Accepted, Answer::Noted))
    }

    /// The volumes that stay although an application is removed with its volumes: a sentence for each reason. One that is protected or
    /// that another application uses is never among those that the user may remove.
    fn spared_volumes(&self, stack: Option<&Stack>) -> Vec<String> {
        let record = self.record.get();
        let mut sentences = Vec::new();
        let protected: Vec<&str> = record.protected_volumes.iter().map(String::as_str).collect();
        if !protected.is_empty() {
            sentences.push(format!(
                "volumes that stay, because their label `{}` is `false`: {}",
                label::PRUNE,
                protected.join(", ")
            ));
        }
        let adopted = record.adopted.volumes.keys().map(String::as_str);
        let all: BTreeSet<&str> = stack.into_iter().flat_map(own_volumes).chain(adopted).collect();
        let managed = self.context.managed();
        let mut removable = Vec::new();
        for volume in all.into_iter().filter(|volume| !record.protected_volumes.contains(*volume)) {
            if let Some(app) = managed.user_of_volume(volume, self.context.name()) {
                sentences.push(format!("volume {volume} stays, because application `{app}` uses it"));
            } else if record.adopted.volumes.contains_key(volume) {
                removable.push(volume);
            }
        }
        if !removable.is_empty() {
            sentences.push(format!(
                "volumes that stay, because Docker Compose created them: {} (`docker volume rm {}` removes them and their data)",
                removable.join(", "),
                removable.join(" ")
            ));
        }
        sentences
    }

    /// On a Swarm, the agent on the leader removes an application, and nobody its volumes: they are on the nodes.
    async fn refuse_removal_in_swarm(&mut self, removal: Removal) -> Result<(), RequestError> {
        let target = self.revisions.target(self.context, self.desired, self.record.get())?;
        let Some(target) = target.filter(|target| target.policy.engine == EngineKind::Swarm) else {
            return Ok(());
        };
        if removal == Removal::WithVolumes {
            let name = self.context.name();
            return Err(RequestError::Refused(format!(
                "the volumes of {name} are on the nodes of its Swarm, and no agent removes them: run `driftless remove {name}`, and then `docker volume rm` on each node"
            )));
        }
        self.led_swarm(&target, "applications of a Swarm are removed").await?;
        Ok(())
    }

    /// The stack of the newest revision.
    fn last_stack(&self) -> Result<Option<LastStack>, RequestError> {
        let Some(revision) = self.revisions.current().map(|current| current.number) else { return Ok(None) };
        let stack = self.context.store().stack(self.context.name(), revision)?;
        Ok(stack.map(|stack| LastStack { revision, stack }))
    }
}

struct LastStack {
    revision: u64,
    stack: Stack,
}

/// The way to go on with the volumes of a removed application under another name.
fn under_another_name(format: Format) -> &'static str {
    match format {
        Format::Compose => "an application under another name goes on with them if it has the same project",
        Format::Kubernetes => {
            "an application under another name begins on empty ones, to which their data can be copied"
        }
    }
}

/// The volumes that stay because an application is removed without them, and the way to go on with them.
fn kept_volumes(stack: &Stack) -> Option<String> {
    let kept: Vec<&str> = own_volumes(stack).collect();
    let note = format!(
        "volumes that stay: {}; {}: docs/rollouts.md#rename-or-move-an-application",
        kept.join(", "),
        under_another_name(stack.format)
    );
    (!kept.is_empty()).then_some(note)
}

/// The names of the volumes that are not external.
fn own_volumes(stack: &Stack) -> impl Iterator<Item = &str> {
    let own = stack.volumes.iter().filter(|(_, volume)| !volume.external);
    own.map(|(name, _)| name.as_str())
}

/// Whether a hook of the removal has failed for good.
fn has_failed_hook(record: &Record) -> bool {
    let hooks = record.hooks.as_deref().filter(|hooks| hooks.begun.contains(&HookPhase::PreDelete));
    let runs = hooks.into_iter().flat_map(HookRecord::begun_runs);
    runs.into_iter().any(|(name, _)| record.jobs.get(name).is_some_and(JobRecord::has_failed))
}
