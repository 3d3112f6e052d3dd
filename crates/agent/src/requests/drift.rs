//! The differences between the target and the live state, for a report: by a running agent, or with an engine alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use driftless_clock::Clock;
use driftless_config::DockerHost;
use driftless_docker::{Docker, Engine, ObserveScope};
use driftless_files::AppSpec;
use driftless_git::CommitSource;
use driftless_manifest as manifest;
use driftless_model::{
    Adopt, AgentId, AppName, CommitId, CommitInfo, EngineKind, Finding, Instance, Mask, MountSource,
    Observed, Policy, Record, Stack, StackHashes,
};
use driftless_plan as plan;
use driftless_plan::{Claim, Target};
use driftless_report as report;
use driftless_report::Context;

use super::{
    given_values::{content_path, with_public_mounts},
    handler::RequestHandler,
    without_agent::{connect_without_agent, nobody},
};
use crate::request::{Against, Inspection, RequestError};
use crate::{
    Error,
    error::chain,
    observe::observe_scope,
    random::random_key,
    revisions::{stored::policy_now, target::stack_with_runs},
    swarm,
};

/// A shorter number is a revision's, a longer one may be a commit's id.
const LONGEST_NUMBER: usize = 6;

/// A stack to compare the live state with.
struct Reference {
    stack: Arc<Stack>,
    commit: CommitInfo,
    policy: Policy,
    images: BTreeMap<String, String>,
}

impl<D: Docker, S: CommitSource> RequestHandler<'_, D, S> {
    /// Observes the engine now, and compares.
    pub(super) async fn inspect(&mut self, against: &Against) -> Result<Inspection, RequestError> {
        let name = self.context.name();
        let mut app = report::application(name, &self.desired.rendered().spec.path);
        app.sync_status = Some(self.publisher.status().sync);
        app.health = Some(self.publisher.status().health);
        app.error = self.unknown_desired_state(against);
        app.pinned = self.context.store().pin(name)?.map(|pin| pin.commit);
        let Some(mut reference) = self.reference(against).await? else {
            let text = || format!("{name} has nothing to compare with: {}", self.desired.why_nothing(name));
            app.error = app.error.or_else(|| Some(text()));
            return Ok(Inspection { app, unmanaged: BTreeSet::new() });
        };
        if let Some(whole) = stack_with_runs(&reference.stack, self.record.get()) {
            reference.stack = whole;
        }
        app.suspended = reference.policy.suspended;
        app.commit = Some(reference.commit.clone());
        let Reference { stack, images, policy, .. } = &reference;
        let is_swarm = policy.engine == EngineKind::Swarm;
        let observed = if is_swarm {
            self.observer.observe_services(self.context, stack, self.record.get()).await
        } else {
            self.observer.observe_stack(self.context, (stack, None), images, self.record.get()).await
        };
        let mut observed = match observed {
            Ok(observed) => observed,
            Err(error) => {
                app.error = Some(chain(&error));
                return Ok(Inspection { app, unmanaged: BTreeSet::new() });
            }
        };
        if is_swarm && observed.swarm.is_none() {
            app.error = Some(no_manager(name));
            return Ok(Inspection { app, unmanaged: BTreeSet::new() });
        }
        let mut record = self.record.get().clone();
        let (record, agent) = (&mut record, self.context.agent());
        plan::merge_adopted(&mut observed, record, agent);
        self.observer.add_scans(&mut observed);
        let mask = self.context.mask_with_kept(stack);
        let hashes = &StackHashes::of(stack);
        let fitted = plan::with_global_tasks(stack, &observed);
        let stack = fitted.as_ref().unwrap_or(stack);
        let target = Target { stack, hashes, reached: None, agent, policy, images, mask: &mask };
        plan::with_tasks(&target, &mut observed, record);
        let plan = plan::plan(&target, &observed, record, self.context.now());
        // They run, so none of them is missing. Services take no containers over.
        let unadopted = if is_swarm { Vec::new() } else { plan::suppose_adopted(record, &target, &observed) };
        plan::merge_adopted(&mut observed, record, agent);
        let to = format!("git@{}", reference.commit.short());
        let context = Context { from: "live", to: &to };
        report::of_live(&mut app, &target, &observed, record, &plan.drifts, context);
        if !unadopted.is_empty() {
            app.note = Some(unadopted_note(name, &unadopted));
            for item in app.items.iter_mut().filter(|item| is_claimed(&unadopted, &item.name)) {
                item.action = Some(report::Action::Report);
            }
        }
        Ok(Inspection { app, unmanaged: unmanaged(&observed) })
    }

    /// Why the newest desired state is unknown, if it is: findings, a rejected commit or a failed fetch.
    fn unknown_desired_state(&self, against: &Against) -> Option<String> {
        if matches!(against, Against::Revision(_)) {
            return None;
        }
        let errors: Vec<String> =
            self.desired.findings().filter(|finding| finding.is_error()).map(ToString::to_string).collect();
        let findings = Some(errors.join("\n")).filter(|text| !text.is_empty());
        let rejected = || self.desired.rejected().map(|rejected| rejected.sentence());
        let fetch = || {
            let error = self.desired.repository().error.as_ref()?;
            Some(format!("the newest desired state is unknown: {}", error.message))
        };
        findings.or_else(rejected).or_else(fetch)
    }

    async fn reference(&mut self, against: &Against) -> Result<Option<Reference>, RequestError> {
        let desired = Arc::clone(self.desired);
        match against {
            Against::Revision(text) => self.reference_of(text).await.map(Some),
            Against::Head if !desired.is_gone() => {
                let policy = policy_now(self.context, &desired)?;
                let rendered = desired.rendered();
                Ok(rendered.stack.clone().map(|stack| Reference {
                    stack: self.with_resolved_images(stack),
                    commit: rendered.commit.clone(),
                    policy,
                    images: BTreeMap::new(),
                }))
            }
            Against::Head | Against::Pin => {
                let target = self.revisions.target(self.context, &desired, self.record.get())?;
                Ok(target.map(|target| {
                    let is_gone = desired.is_gone() && target.pin.is_none();
                    let stack = if is_gone { Arc::new(target.stack.emptied()) } else { target.stack };
                    Reference { stack, commit: target.commit, policy: target.policy, images: target.images }
                }))
            }
        }
    }

    /// A revision by its number, or a commit by its id.
    async fn reference_of(&self, text: &str) -> Result<Reference, RequestError> {
        let name = self.context.name();
        let policy = policy_now(self.context, self.desired)?;
        if let (Ok(number), true) = (text.parse::<u64>(), text.len() <= LONGEST_NUMBER) {
            let revision = self.context.store().revision(name, number)?;
            let stack = self.context.store().stack(name, number)?;
            let (Some(revision), Some(stack)) = (revision, stack) else {
                return Err(RequestError::Refused(format!(
                    "{name} has no revision {number}; `driftless history {name}` lists them"
                )));
            };
            let (stack, commit) = (Arc::new(stack), revision.commit);
            return Ok(Reference { stack, commit, policy, images: BTreeMap::new() });
        }
        let Some(repository) = self.repository else {
            return Err(RequestError::Refused(format!("{name} has no repository any more")));
        };
        let commit = CommitId::parse(text).map_err(|error| {
            RequestError::Refused(format!("`{text}` {error}, or the number of a revision of {name}"))
        })?;
        let checkout = repository.source.local(&commit).await;
        let checkout = checkout.map_err(|error| RequestError::Refused(chain(&error)))?;
        let (newest, commit) = (self.desired.rendered().spec.clone(), checkout.commit.clone());
        let (older_commits, engine) = (repository.older_commits.clone(), policy.engine);
        let render = move || {
            let files = checkout.files.as_ref();
            manifest::render(files, &older_commits.app_on(engine, files, &newest))
        };
        let rendered = tokio::task::spawn_blocking(render).await;
        let rendered = rendered.map_err(|error| RequestError::Refused(error.to_string()))?;
        let Some(stack) = rendered.stack else {
            let errors = rendered.findings.iter().filter(|finding| finding.is_error());
            let errors: Vec<String> = errors.map(Finding::to_string).collect();
            return Err(RequestError::Refused(errors.join("\n")));
        };
        let stack = self.with_resolved_images(Arc::new(stack));
        Ok(Reference { stack, commit, policy, images: BTreeMap::new() })
    }

    /// The stack of a commit with the images that were resolved for its references: containers are made from these.
    fn with_resolved_images(&self, stack: Arc<Stack>) -> Arc<Stack> {
        let resolved = plan::with_resolved_images(&stack, &plan::resolved_images(self.record.get()));
        resolved.map_or(stack, Arc::new)
    }
}

/// Compares rendered applications with an engine, without an agent. Containers are known by their labels.
pub struct Inspector {
    engine: Engine,
    clock: Clock,
    mask: Mask,
}

impl Inspector {
    /// Connects to an engine. `state_dir` and `runtime_dir` are the directories of the host's agent, whose files
    /// containers mount.
    ///
    /// # Errors
    ///
    /// If the address of the engine is invalid.
    pub fn connect(host: &DockerHost, state_dir: &Path, runtime_dir: &Path) -> Result<Self, Error> {
        let clock = Clock::System;
        let engine = connect_without_agent(host, state_dir, runtime_dir, clock)?;
        Ok(Self { engine, clock, mask: Mask::new(random_key()) })
    }

    /// Compares one rendered application with its containers, which may belong to any agent, or with its services of a Swarm.
    pub async fn inspect(&self, spec: &AppSpec, stack: &Stack, context: Context<'_>) -> Inspection {
        let mut app = report::application(&stack.app, &spec.path);
        // No label says which containers of Docker Compose an agent has adopted. They are compared as if it had
        // adopted all of them, with a note.
        let policy = Policy { adopt: Adopt::Auto, ..swarm::default_policy(stack) };
        let is_swarm = policy.engine == EngineKind::Swarm;
        let images = BTreeMap::new();
        let scope = if is_swarm {
            ObserveScope::of_swarm(stack)
        } else {
            observe_scope(stack, &images, &Record::default())
        };
        let mut observed = match self.engine.observe(&stack.app, &scope).await {
            Ok(observed) => observed,
            Err(error) => {
                app.error = Some(chain(&error));
                return Inspection { app, unmanaged: BTreeSet::new() };
            }
        };
        if is_swarm && observed.swarm.is_none() {
            app.error = Some(no_manager(&stack.app));
            return Inspection { app, unmanaged: BTreeSet::new() };
        }
        if is_swarm {
            // Services take no containers over.
            observed.candidates.clear();
        }
        // Only the agent's record says which newer images were resolved, so it is read from the containers.
        let in_use = || plan::with_resolved_images(stack, &plan::images_in_use(stack, &observed));
        let resolved = if is_swarm { None } else { in_use() };
        if let Some(resolved) = &resolved {
            // The defaults of these images are needed, too.
            let scope = observe_scope(resolved, &images, &Record::default());
            observed = match self.engine.observe(&stack.app, &scope).await {
                Ok(observed) => observed,
                Err(error) => {
                    app.error = Some(chain(&error));
                    return Inspection { app, unmanaged: BTreeSet::new() };
                }
            };
        }
        let stack = resolved.as_ref().unwrap_or(stack);
        let public = with_public_mounts(spec, stack, &observed);
        let stack = public.as_ref().unwrap_or(stack);
        let (agent, mut record) = (owner(&observed), Record::default());
        let completed = swarm::completed_stack(stack, &observed, &mut record, self.clock.now());
        let stack = completed.as_deref().unwrap_or(stack);
        let mask = self.mask.with_stacks([stack]);
        let hashes = &StackHashes::of(stack);
        let (agent, policy, images, mask) = (&agent, &policy, &images, &mask);
        let target = Target { stack, hashes, reached: None, agent, policy, images, mask };
        // In an application that has reached its stack, each difference is drift, and drift has a time.
        record.settled = Some(hashes.stack.clone());
        plan::leave_out_ended_runs(&mut observed, stack);
        plan::with_tasks(&target, &mut observed, &mut record);
        match plan::adopt(&mut record, &target, &observed) {
            Ok(claims) if claims.is_empty() => {}
            Ok(claims) => {
                plan::merge_adopted(&mut observed, &record, agent);
                app.note = Some(adoption_note(&claims));
            }
            Err(obstacles) => {
                let obstacles = obstacles.join("; ");
                app.note = Some(format!(
                    "Docker Compose runs this project, and not all of it can be adopted: {obstacles}"
                ));
            }
        }
        let notes = app.note.take().into_iter().chain(directories_note(&observed));
        app.note = notes.reduce(|first, second| format!("{first}; {second}"));
        plan::note_observed(&mut record, &target, &observed, self.clock.now());
        let plan = plan::plan(&target, &observed, &record, self.clock.now());
        report::of_live(&mut app, &target, &observed, &record, &plan.drifts, context);
        // The next action depends on the policy of the host's agent, which is unknown here.
        app.items.iter_mut().for_each(|item| item.action = None);
        Inspection { app, unmanaged: unmanaged(&observed) }
    }

    /// The applications that have containers or networks on this host.
    ///
    /// # Errors
    ///
    /// If the engine does not answer.
    pub async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        self.engine.applications().await.map_err(Error::Docker)
    }
}

/// The error of an application of a Swarm, where the engine has none or is a worker.
fn no_manager(app: &AppName) -> String {
    format!("{app} has `engine: swarm`, and the engine is no manager of a Swarm")
}

/// Whether an object is among those that are not adopted.
fn is_claimed(unadopted: &[Claim], name: &str) -> bool {
    unadopted.iter().any(|claim| claim.name == name)
}

/// Says which objects are compared although nobody has adopted them.
fn unadopted_note(app: &AppName, unadopted: &[Claim]) -> String {
    let names: Vec<&str> = unadopted.iter().map(|claim| claim.name.as_str()).collect();
    format!(
        "not adopted, and compared as if they were: {}; `driftless plan {app}` shows what `driftless adopt {app}` would change",
        names.join(", ")
    )
}

/// Says which objects are compared although no label says that an agent has them.
fn adoption_note(claims: &[Claim]) -> String {
    let names: Vec<&str> = claims.iter().map(|claim| claim.name.as_str()).collect();
    format!(
        "created by Docker Compose: {}. Only the agent's record says whether they are adopted; they are compared as \
         if they were. Ask the agent with `--server` to be sure",
        names.join(", ")
    )
}

/// The note about the directories of the agent that the containers of an application belong to.
pub(super) fn directories_note(observed: &Observed) -> Option<String> {
    let mounts = observed.containers().flat_map(|instance| &instance.config.mounts);
    note_of_mounts(mounts.map(|mount| &mount.source))
}

/// Says that containers mount files of an agent with other directories than the options name. Such mounts are differences,
/// although the files may be those of Git.
fn note_of_mounts<'a>(mounts: impl Iterator<Item = &'a MountSource>) -> Option<String> {
    let options: BTreeSet<String> = mounts.filter_map(directory_option).collect();
    let options: Vec<String> = options.into_iter().collect();
    (!options.is_empty()).then(|| {
        format!(
            "the agent of these containers has other directories, so the files that they mount are differences: try \
             again with `{}`",
            options.join(" ")
        )
    })
}

/// The option that names the directory of an agent, if a path is that of a file which an agent mounts.
fn directory_option(source: &MountSource) -> Option<String> {
    let MountSource::Bind { path, .. } = source else { return None };
    let (folder, _) = content_path(path)?;
    let of = |option: &str, below: &str| {
        folder.strip_suffix(below).map(|directory| format!("{option} {directory}"))
    };
    of("--state-dir", "/contents").or_else(|| of("--runtime-dir", "/secrets"))
}

/// The containers of no application.
fn unmanaged(observed: &Observed) -> BTreeSet<String> {
    let managed: BTreeSet<&str> = observed.containers().map(|container| container.name.as_str()).collect();
    observed.claims.unmanaged().filter(|name| !managed.contains(name)).map(str::to_owned).collect()
}

/// The agent that most instances belong to.
fn owner(observed: &Observed) -> AgentId {
    let mut count: BTreeMap<&AgentId, usize> = BTreeMap::new();
    for Instance { agent, .. } in observed.instances.values() {
        *count.entry(agent).or_default() += 1;
    }
    let of_networks = observed.networks.values().find_map(|network| network.agent.as_ref());
    let most = count.into_iter().max_by_key(|(_, count)| *count).map(|(agent, _)| agent);
    most.or(of_networks).cloned().unwrap_or_else(nobody)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_another_agent_are_named() {
        let id = "96e2c227".repeat(8);
        let bind = |path: String| MountSource::Bind { path, create: false, propagation: None, selinux: None };
        let mounts = [
            bind("/srv/data".to_owned()),
            bind(format!("/run/two/secrets/{id}")),
            bind(format!("/srv/two/contents/{id}")),
        ];
        assert_eq!(note_of_mounts(mounts[..1].iter()), None);
        let note = note_of_mounts(mounts.iter()).unwrap();
        assert!(note.ends_with("with `--runtime-dir /run/two --state-dir /srv/two`"), "{note}");
    }
}
