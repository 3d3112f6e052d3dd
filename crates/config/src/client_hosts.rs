//! The hosts of a user: the agents that `driftless --host NAME` talks to.

use std::path::PathBuf;

use driftless_model::{Finding, HostIdentity};
use driftless_yaml::{Limits, Report, parse};

use crate::{
    keys,
    value::{Fields as _, Value, each},
};

/// The agent of one host, as a client reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHost {
    /// The name for `--host`.
    pub name: String,
    /// The address of the agent, as in `--server`.
    pub server: String,
    /// The file with its token. A relative path starts at the folder of the file that names it.
    pub token_file: Option<PathBuf>,
    /// The file with the certificate authorities of the agent, in the same way.
    pub ca_file: Option<PathBuf>,
}

/// Reads a file with `hosts`. `file` is its name for findings.
///
/// # Errors
/// All mistakes of the file.
pub fn client_hosts(file: &str, text: &str) -> Result<Vec<ClientHost>, Vec<Finding>> {
    let documents = parse(file, text.as_bytes(), &Limits::default()).map_err(|finding| vec![finding])?;
    let report = Report::default();
    let hosts = documents.iter().filter_map(|root| {
        let object = Value::new(root, "", &report).object(&keys::CLIENT_FILE)?;
        Some(each(&object, "hosts", client_host))
    });
    let hosts: Vec<ClientHost> = hosts.flatten().collect();
    if report.has_errors() { Err(report.into_findings()) } else { Ok(hosts) }
}

fn client_host(value: Value<'_>) -> Option<ClientHost> {
    let object = value.object(&keys::CLIENT_HOST)?;
    object.require("name");
    object.require("server");
    Some(ClientHost {
        name: object.parsed("name", HostIdentity::parse_name)?,
        server: object.owned("server")?,
        token_file: object.owned("tokenFile").map(PathBuf::from),
        ca_file: object.owned("caFile").map(PathBuf::from),
    })
}
