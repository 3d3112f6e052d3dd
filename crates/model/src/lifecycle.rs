//! Rules of the agent for a container that are no part of its specification: when its image is pulled, which exit ends its
//! work, which probes are made.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::defaults::is_default;

/// The meaning of an exit with code 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Completion {
    /// It must run: an exit, even a good one, is a failure (`restart: always`, `unless-stopped`, a Deployment).
    Never,
    /// An exit with code 0 is the end of its work (`restart: no`, `on-failure`).
    OnSuccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PullPolicy {
    /// Before every creation.
    Always,
    /// When the image is not on the host.
    IfNotPresent,
    Never,
    /// Before a creation, when the image was last tagged longer ago than this.
    Every(Duration),
}

/// Probes made by the agent, as Kubernetes defines them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probes {
    /// Until it succeeds, the others wait; failing for good, it restarts.
    #[serde(skip_serializing_if = "is_default")]
    pub startup: Option<Probe>,
    /// Gates availability.
    #[serde(skip_serializing_if = "is_default")]
    pub readiness: Option<Probe>,
    /// Failing for good, it restarts.
    #[serde(skip_serializing_if = "is_default")]
    pub liveness: Option<Probe>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    pub action: ProbeAction,
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub success_threshold: u32,
    pub failure_threshold: u32,
}

impl Probe {
    /// The time from the start of a container until it has failed for good, if it never succeeds.
    pub(crate) fn longest_time(&self) -> Duration {
        self.initial_delay.saturating_add(self.period.saturating_mul(self.failure_threshold))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProbeAction {
    /// A status from 200 to 399 succeeds.
    #[serde(rename_all = "camelCase")]
    HttpGet {
        path: String,
        port: u16,
        /// HTTPS without checking the certificate, as the kubelet does.
        #[serde(default, skip_serializing_if = "is_default")]
        https: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        host: Option<String>,
        #[serde(default, skip_serializing_if = "is_default")]
        headers: Vec<(String, String)>,
    },
    TcpSocket {
        port: u16,
        #[serde(default, skip_serializing_if = "is_default")]
        host: Option<String>,
    },
    /// `grpc.health.v1.Health/Check` without TLS: `SERVING` succeeds.
    Grpc {
        port: u16,
        /// One of the server's services; empty: the server as a whole.
        #[serde(default, skip_serializing_if = "is_default")]
        service: String,
    },
    /// Exit code 0 succeeds. Not through a shell.
    Exec { command: Vec<String> },
}
