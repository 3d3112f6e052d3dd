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

mod absence;
mod agent;
mod app;
mod auditor;
mod canary_events;
mod claims;
mod commits;
mod container_memory;
mod context;
mod cron_runs;
mod decryption;
mod defect;
mod deliveries;
mod dependency_cycles;
mod desired;
mod disk_turn;
mod endpoints;
mod engine_state;
mod error;
mod execute;
mod expiries;
mod expiry_watch;
mod failed_reads;
mod failure_events;
mod fleet;
mod former_folder;
mod fs_scan;
mod handle;
mod hooks;
mod host_values;
mod images;
mod incident_watch;
mod interrupt;
mod known_engine;
mod last_observation;
mod lasting_tasks;
mod log_span;
mod logs;
mod managed;
mod masked_target;
mod measured_engine;
mod mounts;
mod notifications;
mod observe;
mod other_agents;
mod outbox;
mod outcomes;
pub mod probe;
mod probe_targets;
mod problems;
mod proxy_counters;
mod publish;
mod random;
mod reconcile;
mod record;
mod release;
mod render;
mod reopened;
mod repository;
mod repository_events;
mod repository_view;
mod request;
mod requests;
mod revisions;
mod self_update;
mod socket_watch;
mod stale_queues;
mod state_loss;
mod status;
mod supervisor;
mod swarm;
mod ticket;
mod trials;
mod turns;
mod unpublished;
mod wakes;

pub use agent::{Agent, Parts, Running, launch};
pub use auditor::Auditor;
pub use claims::{Contender, conflicts_on_a_host};
pub use error::Error;
pub use expiries::Expiries;
pub use fleet::collector_client::INSTANCE_HEADER;
pub use fleet::enrolments::{Enrolments, KeyError};
pub use fleet::host_requests::RequestSettings;
pub use fleet::hosts::{expected_by, fleet_hosts};
pub use fleet::join::{JoinError, Joined, join_fleet};
pub use fleet::leave::{LeaveError, LeftCollector, leave_fleet};
pub use fleet::parsed_reports::ParsedReports;
pub use fleet::peers::{PeerAccess, PeerSources, Peers, start_peers};
pub use fleet::reader::{FleetPicture, FleetReader};
pub use fleet::report_error::ReportError;
pub use fleet::reports::{ReportSource, start_fleet_reports};
pub use fleet::services::{FleetServices, OwnReport};
pub use fleet::source::{FleetSource, start_fleet_source};
pub use fleet::stored_reports::last_report;
pub use fleet::targets::FleetTargets;
pub use handle::{Applications, Handle, Inbox, Readiness, Recovery, Repositories};
pub use images::cleanup::start_image_cleanup;
pub use images::kept_images::Images;
pub use incident_watch::start_notifications;
pub use logs::Logs;
pub use notifications::{Notifications, TestDelivery};
pub use problems::Problems;
pub use proxy_counters::ProxyCounters;
pub use random::random_key;
pub use release::{PENDING_RELEASE, RELEASED, release_notes};
pub use render::{discover_at, discover_elsewhere};
pub use request::{
    Against, Answer, DryRun, Inspection, InstanceName, Promotion, Request, RequestError, RequestKind,
    Rollback, Scale, Supposed,
};
pub use requests::{Inspector, StackPlan, plan_stack};
pub use self_update::helper::replace_agent;
pub use ticket::{InvalidTicket, Ticket};
pub use unpublished::Unpublished;
