//! A fleet without a centre: what each host reports about itself, and the rules by which a collector judges it.
//!
//! A [`HostReport`] is the whole picture of one host: no values, no logs. A collector keeps the last one of each host and
//! shows them as [`HostView`]s, worst first. The age of a report is part of the state: a host that has not been heard is
//! never healthy. An enrolled host signs its requests with the key of its agent. This crate reads and sends nothing; the agent sends reports, the store keeps them, the API shows them.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use driftless_fleet::{HostReport, HostState, LastReport, RepositoryReport, view};
//! use driftless_model::{CommitId, Timestamp};
//!
//! // A repository without applications for this host.
//! let commit = Some(CommitId::parse("3f2a9c1d0b7e3f2a9c1d0b7e3f2a9c1d0b7e3f2a").unwrap());
//! let repositories = vec![RepositoryReport { name: "infra".to_owned(), commit, ..RepositoryReport::default() }];
//! let (host, instance) = ("nas".to_owned(), "a1".to_owned());
//! let report = HostReport { host, instance, repositories, ..HostReport::default() };
//! let heard = Timestamp(1_000_000);
//! let last = LastReport { report: Arc::new(report), received: heard, conflict: None };
//!
//! let expected = ["nas".to_owned(), "web".to_owned()];
//! let hosts = view(vec![last.clone()], &expected, heard.after(Duration::from_secs(30)));
//! assert_eq!((hosts[0].name.as_str(), hosts[0].state), ("web", HostState::NeverReported));
//! assert_eq!((hosts[1].name.as_str(), hosts[1].state), ("nas", HostState::Healthy));
//!
//! let hosts = view(vec![last], &[], heard.after(Duration::from_mins(10)));
//! assert_eq!(hosts[0].state, HostState::Lost);
//! ```

mod answer;
mod behind;
mod drift;
mod first_hosts;
mod freshness;
mod goal;
mod history;
mod join;
mod keys;
mod report;
mod signed;
mod status;
mod view;

pub use answer::ReportAnswer;
pub use behind::BehindCommit;
pub use drift::{ApplicationDrift, FleetDrift, UnknownHost, fleet_drift};
pub use first_hosts::{
    AfterDecision, AfterHold, AfterReason, KnownHosts, WaitingCommit, WaitingImages, decide_after,
};
pub use freshness::{Freshness, LOST_AFTER, freshness};
pub use goal::{FleetGoal, unreached};
pub use history::{FleetHistoryEntry, FleetHistoryEvent, history_of};
pub use join::{InviteToken, JoinAnswer, JoinRequest};
pub use keys::{AgentKey, InvalidKey, PublicKey};
pub use report::{
    ApplicationReport, HostReport, InvalidReport, LARGEST_COMPRESSED, LARGEST_REPORT, RepositoryReport,
    SCHEMA,
};
pub use signed::{HostSignature, SIGNATURE_HEADER, SignedParts};
pub use status::{FleetStatus, SourceStatus, TargetStatus};
pub use view::{HostState, HostView, LastReport, NameConflict, mark_unread, merge, view};
