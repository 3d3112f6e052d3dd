//! The agent: makes a Docker host equal to Git, and keeps it so.
//!
//! One task per repository fetches and renders. One task per application chooses its
//! target, observes the engine, plans, publishes its status and performs the steps, again and again. A supervisor starts
//! these tasks and passes requests on. Everything else talks to them through a [`Handle`].
//!
//! ```
//! use driftless_agent::{Answer, Handle, Request, RequestKind};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let (handle, mut inbox) = Handle::new();
//! // The agent's side. `launch` starts it on an engine and repositories.
//! let agent = tokio::spawn(async move {
//!     let Request { app, kind, reply, .. } = inbox.requests.recv().await.unwrap();
//!     assert_eq!((app.as_str(), kind), ("shop", RequestKind::Sync));
//!     reply.send(Ok(Answer::Accepted)).unwrap();
//! });
//! // The client's side.
//! assert_eq!(handle.request("shop".into(), RequestKind::Sync).await, Ok(Answer::Accepted));
//! agent.await.unwrap();
//! # });
//! ```

mod agent;
mod agent_finder;
mod agent_replacer;
mod app;
mod auditor;
mod build_context;
mod canary_events;
mod claims;
mod commit_failure;
mod commit_holds;
mod commit_status;
mod container_memory;
mod context;
mod cron_runs;
mod decryption;
mod defect;
mod deliveries;
mod departures;
mod dependency_cycles;
mod desired;
mod endpoints;
mod engine_state;
mod enrolments;
mod error;
mod execute;
mod expiries;
mod expiry_watch;
mod failed_reads;
mod fleet_collector;
mod fleet_hosts;
mod fleet_join;
mod fleet_leave;
mod fleet_objects;
mod fleet_reader;
mod fleet_reports;
mod fleet_source;
mod fleet_targets;
mod former_folder;
mod fs_scan;
mod handle;
mod held;
mod hooks;
mod host_requests;
mod host_values;
mod image_calls;
mod image_cleanup;
mod image_tasks;
mod image_updates;
mod images;
mod incident_watch;
mod last_observation;
mod last_version;
mod log_span;
mod logs;
mod managed;
mod masked_target;
mod measured_engine;
mod mounts;
mod notifications;
mod observe;
mod older_commits;
mod other_owner;
mod outcomes;
mod own_update;
mod ownership;
mod parsed_reports;
mod peers;
mod pins;
pub mod probe;
mod probe_targets;
mod problems;
mod proxy_counters;
mod publish;
mod random;
mod reconcile;
mod record;
mod registry_logins;
mod release;
mod render;
mod reopened;
mod report_error;
mod repository;
mod request;
mod requests;
mod resolved_stack;
mod revision_changes;
mod revisions;
mod socket_watch;
mod stale_queues;
mod state_loss;
mod status;
mod stored_reports;
mod supervisor;
mod swarm;
mod swarm_fetch;
mod swarm_state;
mod target_revision;
mod ticket;
mod trust;
mod turns;
mod unpublished;
mod wakes;

pub use agent::{Agent, Parts, Running, launch};
pub use agent_replacer::replace_agent;
pub use auditor::Auditor;
pub use claims::{Contender, conflicts_on_a_host};
pub use enrolments::{Enrolments, KeyError};
pub use error::Error;
pub use expiries::Expiries;
pub use fleet_collector::INSTANCE_HEADER;
pub use fleet_hosts::{expected_by, fleet_hosts};
pub use fleet_join::{JoinError, Joined, join_fleet};
pub use fleet_leave::{LeaveError, LeftCollector, leave_fleet};
pub use fleet_reader::{FleetPicture, FleetReader};
pub use fleet_reports::{ReportSource, start_fleet_reports};
pub use fleet_source::{FleetSource, start_fleet_source};
pub use fleet_targets::FleetTargets;
pub use handle::{Applications, Handle, Inbox, OwnReport, Readiness, Recovery, Repositories};
pub use host_requests::RequestSettings;
pub use image_cleanup::start_image_cleanup;
pub use images::Images;
pub use incident_watch::start_notifications;
pub use logs::Logs;
pub use notifications::{Notifications, TestDelivery};
pub use parsed_reports::ParsedReports;
pub use peers::{PeerAccess, PeerSources, Peers, start_peers};
pub use problems::Problems;
pub use proxy_counters::ProxyCounters;
pub use random::random_key;
pub use release::{PENDING_RELEASE, RELEASED};
pub use render::{discover_at, discover_elsewhere};
pub use report_error::ReportError;
pub use request::{
    Against, Answer, DryRun, Inspection, InstanceName, Promotion, Request, RequestError, RequestKind,
    Rollback, Scale, Supposed,
};
pub use requests::{Inspector, plan_stack};
pub use stored_reports::last_report;
pub use ticket::{InvalidTicket, Ticket};
pub use unpublished::Unpublished;
