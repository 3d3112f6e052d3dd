//! The fleet: the collectors that this agent reports to, and the hosts whose reports it accepts. The token stays the name
//! of a file or variable.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use crate::{
    host, keys,
    secret::Secret,
    value::{Fields as _, Value},
};

/// The fastest and the slowest heartbeat. A host must be stale, after three missed ones, before it is lost after ten minutes.
const EVERY: [Duration; 2] = [Duration::from_secs(5), Duration::from_mins(3)];

/// Reports of the state of this host to collectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetReports {
    /// The addresses of the collectors, without a slash at the end. Empty: none.
    pub to: Vec<String>,
    /// The token that the collectors know this host by. Default: none, which a collector on loopback accepts.
    pub token: Option<Secret>,
    /// A PEM file of the certificate authorities of the collectors. Default: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The time between two heartbeats. Default: 30 s.
    pub every: Duration,
}

/// The fleet that reports to this agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Whether reports are accepted. Default: no.
    pub accept: bool,
    /// The names of hosts that are shown also if they have never reported.
    pub expected: Vec<String>,
}

impl FleetReports {
    /// The collectors to which everybody on the way can read the token: it crosses the network over plain http.
    pub fn exposed(&self) -> Vec<&str> {
        let is_exposed = |to: &&str| self.token.is_some() && is_exposed(to);
        self.to.iter().map(String::as_str).filter(is_exposed).collect()
    }
}

/// Whether a URL leads beyond loopback without TLS.
fn is_exposed(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let server = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_loopback = server.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    server != "localhost" && !is_loopback
}

impl Default for FleetReports {
    fn default() -> Self {
        Self { to: Vec::new(), token: None, ca_file: None, every: Duration::from_secs(30) }
    }
}

/// Reads the value of `report`.
pub(super) fn fleet_reports(value: Value<'_>) -> Option<FleetReports> {
    let object = value.object(&keys::REPORT)?;
    object.require("to");
    let (token_file, token_env) = (object.absolute("tokenFile"), object.owned("tokenEnv"));
    if token_file.is_some() && token_env.is_some() {
        object.value.error("`tokenEnv` and `tokenFile` exclude each other: give one of them");
    }
    let every = object.duration("every").unwrap_or(FleetReports::default().every);
    if !(EVERY[0]..=EVERY[1]).contains(&every)
        && let Some(value) = object.get("every")
    {
        value.error("must be from `5s` to `3m`");
    }
    let to = object.get("to").map(|to| match to.node.as_scalar() {
        Some(_) => vec![to],
        None => to.items(),
    });
    let mut targets = Vec::new();
    for item in to.unwrap_or_default() {
        let Some(url) = item.string().map(target) else { continue };
        match url {
            Ok(url) if targets.contains(&url) => item.error("this collector is in the list already"),
            Ok(url) => targets.push(url),
            Err(message) => item.error(message),
        }
    }
    let token = token_file.map(Secret::File).or_else(|| token_env.map(Secret::Environment));
    Some(FleetReports { to: targets, token, ca_file: object.absolute("caFile"), every })
}

/// Reads the value of `fleet`.
pub(super) fn fleet(value: Value<'_>) -> Option<Fleet> {
    let object = value.object(&keys::FLEET)?;
    let accept = object.boolean("accept").unwrap_or_default();
    let mut expected = Vec::new();
    for item in object.items("expected") {
        match item.string().map(host::name) {
            Some(Ok(name)) if expected.contains(&name) => item.error("this host is in the list already"),
            Some(Ok(name)) => expected.push(name),
            Some(Err(message)) => item.error(message),
            None => {}
        }
    }
    if !accept && !expected.is_empty() {
        object.value.error("`expected` has no effect without `accept: true`");
    }
    Some(Fleet { accept, expected })
}

fn target(text: &str) -> Result<String, &'static str> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b":/.-_[]~%".contains(&byte);
    let has_host = rest.is_some_and(|rest| !rest.trim_matches('/').is_empty() && !rest.starts_with('/'));
    if has_host && text.bytes().all(is_letter) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("the address of another agent is written as `https://hub.example.com`, without a user or a query")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_beyond_loopback_exposes_a_token() {
        let to = [
            "http://hub:8484",
            "http://10.0.0.7",
            "http://[fd00::1]:8484",
            "http://localhost:8484",
            "http://127.0.0.1:8484",
            "http://[::1]:8484",
            "https://hub.example.com",
        ];
        let to = to.map(str::to_owned).to_vec();
        let token = Some(Secret::Environment("TOKEN".to_owned()));
        let reports = FleetReports { to, token, ..FleetReports::default() };
        assert_eq!(reports.exposed(), ["http://hub:8484", "http://10.0.0.7", "http://[fd00::1]:8484"]);
        assert!(FleetReports { token: None, ..reports }.exposed().is_empty());
    }
}
