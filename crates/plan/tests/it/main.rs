//! Tests of the planner: scenarios, convergence from any state, and one file for each subject.
//! Helpers may unwrap: `allow-unwrap-in-tests` covers test functions alone.

#![allow(clippy::unwrap_used, clippy::pedantic, clippy::type_complexity)]

// Adopting what Docker Compose started.
mod adoption;
// Canaries: their share and their limits, with faults and scaling.
mod canaries;
// Files rewritten in place: the order in which they are read, and missing images.
mod changed_files;
// Networks that a commit writes in another way, and networks that it changes.
mod changed_networks;
// Jobs that have completed, and are not run again.
mod completed_jobs;
// From any state of a host, with a cut at any step: the target is reached without harm.
mod convergence;
// CronJobs, over days that take milliseconds.
mod cron;
// Runs of CronJobs that the engine refuses, or that hang.
mod cron_runs;
// Deadlines and counts while the time or the work stands.
mod deadlines;
// Fields of containers that differ from Git.
mod diff;
// Endpoints of proxies.
mod endpoints;
// One application on an in-memory Docker.
mod fixture;
// Pauses between heals: fights and storms.
mod heals;
// Services that Git does not have any more and that have to stay for now.
mod held_orphans;
// CronJobs of a commit that is held.
mod held_schedules;
// Newer images of a registry.
mod image_updates;
// Images that nothing needs any more.
mod image_uses;
// Incidents of applications that are well for moments only.
mod incidents;
// Jobs: begun, tried again, and done.
mod jobs;
// Folders in another state directory than the present one.
mod moved_folder;
// Slots and names of instances.
mod names;
// Services that run in another Compose project.
mod other_projects;
// Images that the agent makes itself.
mod own_images;
// The container that the agent runs in.
mod own_update;
// Hooks, waves, and the order of a removal.
mod order;
// Dry runs and single rounds.
mod plans;
// Pulls of images that are here.
mod refreshes;
// Platforms of images, and limits that a host cannot apply.
mod host_abilities;
// Pods of several containers, round by round.
mod pods;
// Prune protection.
mod proportion;
mod prune;
// Scripts of events, and the plans that follow.
mod scenarios;
// Data that applications share, hand over or leave behind.
mod shared_data;
// Sync, health and conditions.
mod status;
// StatefulSets, round by round.
mod stateful_sets;
// Docker Swarm.
mod swarm;
// Containers that the engine cannot start any more.
mod unstartable;
// Workers of proxies, of which one takes over from another.
mod workers;
