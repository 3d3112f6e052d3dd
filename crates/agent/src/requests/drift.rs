//! What of an application is not as Git says, for a report: asked of a running agent, or of an engine alone.
//! Nothing is done about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use driftless_clock::Clock;
use driftless_docker::{Docker, Engine, EngineOptions, RegistryLogins};
use driftless_git::Source;
use driftless_manifest as manifest;
use driftless_model::{
    Adopt, AgentId, AppName, CommitInfo, Instance, Mask, Observed, Policy, Record, Stack, StackHash,
};
use driftless_plan as plan;
use driftless_plan::{Claim, Target};
use driftless_report as report;
use driftless_report::Context;
use driftless_store as store;

use crate::{
    Against, Error, Inspection, RequestError,
    app::{App, interest_in},
    cron_runs::add_runs,
    desired::Presence,
    error::chain,
    probe_targets,
};

/// What an application is held against.
struct Measure {
    stack: Arc<Stack>,
    commit: CommitInfo,
    policy: Policy,
    images: BTreeMap<String, String>,
}

impl<D: Docker, S: Source> App<D, S> {
    /// Looks at Docker now, and compares.
    pub(crate) async fn inspect(&mut self, against: &Against) -> Result<Inspection, RequestError> {
        let wanted = Arc::clone(&self.orders.wanted);
        let mut app = report::application(&self.name, &wanted.spec.path);
        app.sync_status = Some(self.status.sync);
        app.health = Some(self.status.health);
        app.error = self.cannot_tell(against);
        let refused = |error: &dyn std::error::Error| RequestError::Refused(chain(error));
        let pin = self.shared.store.pin(&self.name).map_err(|it| refused(&it))?;
        app.pinned = pin.map(|it| it.commit);
        let Some(mut measure) = self.measure(against).await? else {
            let nothing = || format!("{} has nothing to be compared with: see its findings", self.name);
            app.error = app.error.or_else(|| Some(nothing()));
            return Ok(Inspection { app, unmanaged: BTreeSet::new() });
        };
        add_runs(&mut measure.stack, &self.record);
        app.suspended = measure.policy.suspended;
        app.commit = Some(measure.commit.clone());
        let wanted = interest_in(&measure.stack, &measure.images, &self.record);
        let mut observed = match self.shared.docker.observe(&self.name, &wanted).await {
            Ok(observed) => observed,
            Err(error) => {
                app.error = Some(chain(&error));
                return Ok(Inspection { app, unmanaged: BTreeSet::new() });
            }
        };
        probe_targets::overlay(&self.shared.prober, &measure.stack, &self.name, &mut observed);
        self.looks.overlay(&mut observed);
        plan::embrace(&mut observed, &self.record, &self.shared.agent);
        let mask = self.mask_of(&measure.stack, None);
        let target = Target {
            stack: &measure.stack,
            fallback: None,
            agent: &self.shared.agent,
            policy: &measure.policy,
            images: &measure.images,
            mask: &mask,
        };
        let plan = plan::plan(&target, &observed, &self.record, self.shared.clock.now());
        let to = format!("git@{}", measure.commit.short());
        let context = Context { from: "live", to: &to };
        report::of_live(&mut app, &target, &observed, &self.record, &plan.drifts, context);
        Ok(Inspection { app, unmanaged: nobodys(&observed) })
    }

    /// Why what Git says now is not known: it cannot be asked, its newest commit is refused, or it
    /// cannot be rendered.
    fn cannot_tell(&self, against: &Against) -> Option<String> {
        let is_of_now = !matches!(against, Against::Revision(_));
        let trouble = self.orders.trouble.as_ref().map(|it| format!("what Git says now is not known: {it}"));
        let refused = self.orders.refused.as_ref().map(|it| it.sentence());
        let wanted = &self.orders.wanted;
        let findings = wanted.findings.iter().chain(&self.orders.objections).filter(|it| it.is_error());
        let findings: Vec<String> = findings.map(ToString::to_string).collect();
        let findings = Some(findings.join("\n")).filter(|it| !it.is_empty());
        findings.or(refused).or(trouble).filter(|_| is_of_now)
    }

    async fn measure(&mut self, against: &Against) -> Result<Option<Measure>, RequestError> {
        let refused = |error: store::Error| RequestError::Refused(chain(&error));
        let wanted = Arc::clone(&self.orders.wanted);
        match against {
            Against::Revision(text) => self.measure_of(text).await.map(Some),
            Against::Head if self.orders.presence == Presence::Present => {
                let policy = self.policy_now().map_err(refused)?;
                Ok(wanted.stack.clone().map(|stack| Measure {
                    stack,
                    commit: wanted.commit.clone(),
                    policy,
                    images: BTreeMap::new(),
                }))
            }
            Against::Head | Against::Pin => {
                let Some(goal) = self.goal().map_err(refused)? else { return Ok(None) };
                let is_gone = self.orders.presence == Presence::Gone && goal.pin.is_none();
                let stack = if is_gone { Arc::new(emptied(&goal.stack)) } else { goal.stack };
                Ok(Some(Measure { stack, commit: goal.commit, policy: goal.policy, images: goal.images }))
            }
        }
    }

    /// Of a revision's number or a commit's id.
    async fn measure_of(&self, text: &str) -> Result<Measure, RequestError> {
        let refused = |error: store::Error| RequestError::Refused(chain(&error));
        let policy = self.policy_now().map_err(refused)?;
        if let (Ok(number), true) = (text.parse::<u64>(), text.len() < 7) {
            let revision = self.shared.store.revision(&self.name, number).map_err(refused)?;
            let stack = self.shared.store.stack(&self.name, number).map_err(refused)?;
            let (Some(revision), Some(stack)) = (revision, stack) else {
                let known = format!("`driftless history {}` lists them", self.name);
                return Err(RequestError::Refused(format!(
                    "{} has no revision {number}; {known}",
                    self.name
                )));
            };
            let (commit, images) = (revision.commit, BTreeMap::new());
            return Ok(Measure { stack: Arc::new(stack), commit, policy, images });
        }
        let Some(source) = &self.source else {
            return Err(RequestError::Refused(format!("{} has no repository any more", self.name)));
        };
        let checkout = source.local(text).await.map_err(|it| RequestError::Refused(chain(&it)))?;
        let (spec, commit) = (self.orders.wanted.spec.clone(), checkout.commit.clone());
        let rendered =
            tokio::task::spawn_blocking(move || manifest::render(checkout.files.as_ref(), &spec)).await;
        let rendered = rendered.map_err(|it| RequestError::Refused(it.to_string()))?;
        let Some(stack) = rendered.stack else {
            let findings: Vec<String> =
                rendered.findings.iter().filter(|it| it.is_error()).map(ToString::to_string).collect();
            return Err(RequestError::Refused(findings.join("\n")));
        };
        Ok(Measure { stack: Arc::new(stack), commit, policy, images: BTreeMap::new() })
    }

    fn policy_now(&self) -> Result<Policy, store::Error> {
        let mut policy = self.orders.wanted.policy.clone();
        policy.suspended |= self.shared.store.suspended(&self.name)?;
        Ok(policy)
    }
}

/// Git does not have it any more, so all that runs of it is too much.
fn emptied(stack: &Stack) -> Stack {
    let mut stack = stack.clone();
    stack.workloads.clear();
    stack.networks.clear();
    stack.volumes.clear();
    stack.app_files.clear();
    stack
}

/// Looks at an engine without an agent. What runs is known by its labels.
pub struct Inspector {
    engine: Engine,
    clock: Clock,
    mask: Mask,
}

impl Inspector {
    /// `state_dir` and `runtime_dir` are those of the agent of that host: from there containers mount files.
    pub fn connect(host: &str, state_dir: &Path, runtime_dir: &Path) -> Result<Self, Error> {
        let clock = Clock::System;
        let engine = Engine::connect(EngineOptions {
            host: host.to_owned(),
            // An agent of this name never runs, so nothing is taken to be ours.
            agent: AgentId(String::new()),
            content_dir: state_dir.join("contents"),
            secret_dir: runtime_dir.join("secrets"),
            app_dir: state_dir.join("applications"),
            registries: RegistryLogins::default(),
            clock,
        })
        .map_err(Error::Docker)?;
        Ok(Self { engine, clock, mask: Mask::new(crate::random_key()) })
    }

    /// One rendered application against what runs of it. Whoever runs it is taken for its agent.
    pub async fn inspect(&self, stack: &Stack, path: &str, context: Context<'_>) -> Inspection {
        let mut app = report::application(&stack.app, path);
        // Which containers of Docker Compose were taken over stands in no label. They are held against Git as if they
        // were, and it is said.
        let policy = Policy { adopt: Adopt::Auto, ..Policy::default() };
        let images = BTreeMap::new();
        let wanted = interest_in(stack, &images, &Record::default());
        let mut observed = match self.engine.observe(&stack.app, &wanted).await {
            Ok(observed) => observed,
            Err(error) => {
                app.error = Some(chain(&error));
                return Inspection { app, unmanaged: BTreeSet::new() };
            }
        };
        let agent = owner(&observed);
        let mask = self.mask.with_stacks([stack]);
        let target =
            Target { stack, fallback: None, agent: &agent, policy: &policy, images: &images, mask: &mask };
        // With the stack taken for reached, all that differs is drift, and the time of it is told.
        let mut record = Record { settled: Some(StackHash::of(stack)), ..Record::default() };
        match plan::adopt(&mut record, &target, &observed) {
            Ok(claims) if claims.is_empty() => {}
            Ok(claims) => {
                plan::embrace(&mut observed, &record, &agent);
                app.note = Some(unlabelled(&claims));
            }
            Err(obstacles) => {
                let obstacles = obstacles.join("; ");
                app.note = Some(format!(
                    "Docker Compose runs this project, and not all of it can be taken over: {obstacles}"
                ));
            }
        }
        plan::note_observed(&mut record, &target, &observed, self.clock.now());
        let plan = plan::plan(&target, &observed, &record, self.clock.now());
        report::of_live(&mut app, &target, &observed, &record, &plan.drifts, context);
        // What an agent would do about it is not for us to say.
        app.items.iter_mut().for_each(|it| it.action = None);
        Inspection { app, unmanaged: nobodys(&observed) }
    }

    /// The applications that have something on this host.
    pub async fn applications(&self) -> Result<BTreeSet<AppName>, Error> {
        self.engine.applications().await.map_err(Error::Docker)
    }
}

/// What is compared although no label says whose it is.
fn unlabelled(claims: &[Claim]) -> String {
    let names: Vec<&str> = claims.iter().map(|it| it.name.as_str()).collect();
    format!(
        "made by Docker Compose: {}. No label tells whether an agent has taken that over, only the agent's own \
         record: it is compared as if it had. Ask the agent with `--server` to be sure",
        names.join(", ")
    )
}

/// What was taken over carries no label of ours.
fn nobodys(observed: &Observed) -> BTreeSet<String> {
    let ours: BTreeSet<&str> = observed.containers().map(|it| it.name.as_str()).collect();
    observed.claims.nobodys.iter().filter(|it| !ours.contains(it.as_str())).cloned().collect()
}

/// The agent that owns most of what runs.
fn owner(observed: &Observed) -> AgentId {
    let mut count: BTreeMap<&AgentId, usize> = BTreeMap::new();
    for Instance { agent, .. } in observed.instances.values() {
        *count.entry(agent).or_default() += 1;
    }
    let of_networks = observed.networks.values().find_map(|it| it.agent.as_ref());
    let most = count.into_iter().max_by_key(|(_, count)| *count).map(|(agent, _)| agent);
    most.or(of_networks).cloned().unwrap_or_else(|| AgentId(String::new()))
}
