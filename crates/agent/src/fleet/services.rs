//! The parts of the fleet that the API and the page read.

use std::{fmt, sync::Arc};

use driftless_config::Fleet;
use driftless_fleet::HostReport;

use crate::fleet::{
    enrolments::Enrolments, parsed_reports::ParsedReports, peers::Peers, source::FleetSource,
    targets::FleetTargets,
};

/// Makes the report of this host.
pub type OwnReport = Arc<dyn Fn() -> HostReport + Send + Sync>;

/// The hosts that report to this agent, and the collectors that it reports to. Clones share what changes while the agent runs.
#[derive(Clone, Default)]
pub struct FleetServices {
    settings: Arc<Fleet>,
    targets: FleetTargets,
    source: FleetSource,
    enrolments: Enrolments,
    parsed_reports: ParsedReports,
    peers: Peers,
    own_report: Option<OwnReport>,
}

impl fmt::Debug for FleetServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetServices").finish_non_exhaustive()
    }
}

impl FleetServices {
    /// Without settings, so no host reports, and this agent reports to nobody.
    pub(crate) fn with_peers(peers: Peers) -> Self {
        Self { peers, ..Self::default() }
    }

    pub(crate) fn with_settings(self, settings: Fleet) -> Self {
        Self { settings: Arc::new(settings), ..self }
    }

    pub(crate) fn with_targets(self, targets: FleetTargets) -> Self {
        Self { targets, ..self }
    }

    pub(crate) fn with_source(self, source: FleetSource) -> Self {
        Self { source, ..self }
    }

    pub(crate) fn with_enrolments(self, enrolments: Enrolments) -> Self {
        Self { enrolments, ..self }
    }

    pub(crate) fn with_own_report(self, own_report: OwnReport) -> Self {
        Self { own_report: Some(own_report), ..self }
    }

    /// The settings of the fleet that reports to this agent.
    pub fn settings(&self) -> &Fleet {
        &self.settings
    }

    /// The collectors that this agent reports to.
    pub fn targets(&self) -> &FleetTargets {
        &self.targets
    }

    /// The place where this agent reads the reports of hosts.
    pub fn source(&self) -> &FleetSource {
        &self.source
    }

    /// The collectors that this agent has joined.
    pub fn enrolments(&self) -> &Enrolments {
        &self.enrolments
    }

    /// The reports that this agent accepted, parsed.
    pub fn parsed_reports(&self) -> &ParsedReports {
        &self.parsed_reports
    }

    /// The reports of the other hosts, for commits that wait for the first hosts.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The report of this host at this moment.
    pub(crate) fn own_report(&self) -> Option<HostReport> {
        self.own_report.as_ref().map(|report| report())
    }
}
