//! Decides what to do next, as data. Pure: no input or output, no clock, and no memory except the
//! [`Record`](driftless_model::Record) that the caller passes.
//!
//! A [`Plan`] is the safe next round, not the whole rollout. It has the steps that are safe *now*, a [`Wait`] for
//! everything else, and the time of the next look. A rolling update advances because every round observes the effect of
//! the last one, so a crash or a newer commit in the middle needs no special handling.
//!
//! | module | what it holds |
//! |---|---|
//! | `facts` | the inputs, and what each container is, classified once |
//! | `draft` | the plan while it is written: steps, waits, heals |
//! | `next_round` | the plan of a round, on one host or on a Swarm |
//! | `decide` | which steps are safe now on one host |
//! | `swarm` | which changes a Swarm needs now |
//! | `status` | health, counts, conditions |
//! | `record` | what is remembered from one round to the next |
//! | `fields`, `explain` | differences, for people |
//!
//! # Example
//!
//! The first round of an application on an empty host. The container is created as soon as its image is there:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use driftless_files::MemoryFiles;
//! use driftless_manifest::{discover, render};
//! use driftless_model::{AgentId, Mask, Observed, Policy, Record, StackHashes, Timestamp};
//! use driftless_plan::{Action, Target, World, plan};
//!
//! let files = MemoryFiles::new([("shop/compose.yaml", "services: {web: {image: 'nginx:1.29'}}")]);
//! let stack = render(&files, &discover(&files, "", "apps", &[]).apps[0]).stack.unwrap();
//! let (agent, policy, images) = (AgentId("a1".to_owned()), Policy::default(), BTreeMap::new());
//! let mask = Mask::new([7; 32]);
//! let (stack, hashes) = (&stack, &StackHashes::of(&stack));
//! let target = Target { stack, hashes, reached: None, agent: &agent, policy: &policy, images: &images, mask: &mask };
//!
//! let now = Timestamp::parse("2026-01-31T12:00:00Z").unwrap();
//! let mut world = World::new(Observed::default());
//! let round = plan(&target, &world.observed, &Record::default(), now);
//! assert!(round.steps.iter().any(|step| matches!(&step.action, Action::PullImage { image, .. } if image == "nginx:1.29")));
//!
//! for step in &round.steps {
//!     world.apply(&agent, &step.action, now)?;
//! }
//! assert!(world.observed.instances.values().any(|instance| instance.is_running()));
//! # Ok::<_, driftless_plan::Refusal>(())
//! ```

mod action;
mod backoff;
mod cause;
mod data_waits;
mod decide;
mod draft;
mod dry_run;
mod explain;
mod facts;
mod fields;
mod image_updates;
mod image_uses;
mod incident_facts;
mod incidents;
mod names;
mod next_round;
mod record;
mod recovery;
mod status;
mod steps;
mod swarm;
mod sync_window;
mod target;
mod text;
mod wait;
mod world;

pub use action::{Action, AgentReplacement, ContainerRef, Creation, RequiredSignature};
pub use backoff::{docker_delay, poll_with_jitter, reconnect_delay, remote_delay, sync_delay};
pub use cause::Cause;
pub use decide::writers::hands_over;
pub use dry_run::dry_run;
pub use explain::{
    live::compare_live,
    objects::{Change, ObjectDifference},
    preview::compare_stacks,
    step::describe_steps,
    unified::unified_diff,
};
pub use facts::{
    adoption::{Activity, Claim, Claimed, Loss, mounts_in_place_of_binds, survey},
    cron::{has_cron_job, leave_out_ended_runs, run_name, run_of, with_runs, without_runs},
    fs_changes::{FOLLOWED, watched},
    hooks::{has_hook, is_held_by_hooks},
    in_force::is_in_force,
    limits::exclusive,
    objects::resources,
    pods::whole,
    scales::with_scales,
    standing::is_stuck,
};
pub use fields::diff::{FieldDifference, canonical_yaml, differences};
pub use image_updates::{
    RegistryAnswer, differ_in_images_only, followed_images, image_check, image_update_status, images_in_use,
    limit_image_pause, new_digests, next_image_update, note_failed_check, note_image_check,
    note_newest_image, note_proven_images, note_returned_image, note_running_images,
    resolve_available_images, resolve_images, resolved_digests, resolved_images, running_digests,
    unproven_digests, with_resolved_images,
};
pub use image_uses::image_uses;
pub use incident_facts::{IncidentFacts, IncidentTimes};
pub use incidents::{IncidentChange, incidents};
pub use names::container_name;
pub use next_round::plan;
pub use record::{
    adoption::{adopt, adopt_without, merge_adopted, suppose_adopted},
    canary::promote,
    cron::{CronEvent, schedule},
    executed::note_executed,
    files::suppose_delivered,
    health::recall_health,
    hooks::{begin_attempt, begin_removal, has_post_synced, may_be_deleted},
    jobs::suppose_completed,
    jump::leave_out_jump,
    observed::{note_observed, note_settled},
    outcome::StepOutcome,
    planned::note_planned,
};
pub use status::{
    assess::{Assessment, assess},
    endpoints::{
        Drain, ProxyEndpoints, drains, has_proxies, proxy_endpoints, stopped_at_once, stops_of,
        undecided_stops,
    },
    failure::{CommitFailure, CommitSpan, Round, has_ended_for_good, has_failed},
    pod_spec::pod_spec,
};
pub use steps::{Plan, Step};
pub use swarm::{
    PresentFile, SwarmAction, SwarmResult, adoptable_services, follow_runs, is_of_application, left_on_host,
    service_digests, with_global_tasks, with_tasks,
};
pub use sync_window::{ClosedWindow, closed_window};
pub use target::Target;
pub use text::{differs_in_numbers_only, one_line, output as masked_output};
pub use wait::{Wait, WaitObject, WaitReason, WaitSeverity};
pub use world::{Refusal, World};
