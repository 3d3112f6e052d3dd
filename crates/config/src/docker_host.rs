//! The address of the engine, and the certificates of a connection with TLS.

use std::{net::IpAddr, path::PathBuf};

use crate::{
    keys, url,
    value::{Fields as _, Value},
};

/// An engine to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerHost {
    /// `unix:///path`, `tcp://host` or `tcp://host:port`.
    pub address: String,
    /// The files of TLS. `None`: the connection is not encrypted.
    pub tls: Option<DockerTls>,
}

/// The PEM files of a TLS connection. They are read for each connection, so they can be rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerTls {
    /// The certificate authorities that the engine's certificate must come from.
    pub ca: PathBuf,
    /// The certificate of this client and its private key. `None`: the engine asks for none.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// The local engine.
impl Default for DockerHost {
    fn default() -> Self {
        Self::from("unix:///var/run/docker.sock")
    }
}

/// Without TLS.
impl From<&str> for DockerHost {
    fn from(address: &str) -> Self {
        Self { address: address.to_owned(), tls: None }
    }
}

impl DockerHost {
    /// An address with the TLS files that the environment names, as for the Docker CLI.
    ///
    /// `DOCKER_TLS_VERIFY` turns TLS on for `tcp://`. The files `ca.pem`, `cert.pem` and `key.pem` are in the folder
    /// `DOCKER_CERT_PATH`, else in `DOCKER_CONFIG`, else in `~/.docker`. Without `cert.pem` and `key.pem` the client has no
    /// certificate. <https://docs.docker.com/reference/cli/docker/#environment-variables>
    pub fn with_environment(address: &str, environment: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        if variable("DOCKER_TLS_VERIFY").is_none() || !address.starts_with("tcp://") {
            return Self::from(address);
        }
        let folder = variable("DOCKER_CERT_PATH")
            .or_else(|| variable("DOCKER_CONFIG"))
            .map(PathBuf::from)
            .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".docker")))
            .unwrap_or_default();
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        let client = (cert.exists() || key.exists()).then_some((cert, key));
        Self { address: address.to_owned(), tls: Some(DockerTls { ca: folder.join("ca.pem"), client }) }
    }

    /// The path of the socket, if the engine is on this host.
    pub fn socket(&self) -> Option<String> {
        self.address.strip_prefix("unix://").map(str::to_owned)
    }

    /// Whether everybody on the way to the engine can read the traffic, and act as root on its host.
    pub fn is_exposed(&self) -> bool {
        let Some(authority) = self.address.strip_prefix("tcp://") else { return false };
        let authority = authority.trim_end_matches('/');
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => host,
            Some(_) | None => authority,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.tls.is_none() && !is_loopback
    }

    /// Reads `docker: ADDRESS` or `docker: {host: ADDRESS, tls: {ca: …, cert: …, key: …}}`.
    pub(super) fn read(value: Value<'_>) -> Option<Self> {
        if value.node.as_scalar().is_some() {
            return Some(Self::from(address(&value)?.as_str()));
        }
        let object = value.object(&keys::DOCKER)?;
        object.require("host");
        let address = address(&object.get("host")?)?;
        let tls = object.get("tls");
        if let Some(tls) = &tls
            && !address.starts_with("tcp://")
        {
            tls.error("TLS is for `tcp://` addresses only");
        }
        Some(Self { address, tls: tls.as_ref().and_then(DockerTls::read) })
    }
}

impl DockerTls {
    fn read(value: &Value<'_>) -> Option<Self> {
        let object = value.clone().object(&keys::DOCKER_TLS)?;
        object.require("ca");
        let client = match (object.absolute("cert"), object.absolute("key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                value.error("`cert` and `key` belong together: give both, or neither");
                None
            }
        };
        Some(Self { ca: object.absolute("ca")?, client })
    }
}

fn address(value: &Value<'_>) -> Option<String> {
    let text = value.string()?;
    match url::check_docker(text) {
        Ok(()) => Some(text.to_owned()),
        Err(message) => {
            value.error(message);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unencrypted_addresses_beyond_loopback_are_exposed() {
        for (address, is_exposed) in [
            ("unix:///var/run/docker.sock", false),
            ("tcp://127.0.0.1:2375", false),
            ("tcp://localhost:2375/", false),
            ("tcp://[::1]:2375", false),
            ("tcp://[::1]", false),
            ("tcp://localhost/", false),
            ("tcp://nas", true),
            ("tcp://10.0.0.7:2375", true),
            ("tcp://docker.example.com:2375", true),
        ] {
            assert_eq!(DockerHost::from(address).is_exposed(), is_exposed, "{address}");
        }
        let tls = DockerTls { ca: "/ca.pem".into(), client: None };
        assert!(!DockerHost { address: "tcp://10.0.0.7:2376".into(), tls: Some(tls) }.is_exposed());
    }

    #[test]
    fn environment_of_the_docker_cli_names_the_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let of = |address: &str, variables: &[(&str, &str)]| {
            let variables: Vec<_> =
                variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            DockerHost::with_environment(address, move |name| {
                variables.iter().find(|(it, _)| it == name).map(|(_, value)| value.clone())
            })
        };
        let path = folder.path().to_str().unwrap();
        let verified = [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", path)];
        assert_eq!(of("tcp://h:2376", &[("DOCKER_CERT_PATH", path)]).tls, None);
        assert_eq!(of("tcp://h:2376", &[("DOCKER_TLS_VERIFY", ""), verified[1]]).tls, None);
        assert_eq!(of("unix:///run/docker.sock", &verified).tls, None);
        let without_client = DockerTls { ca: folder.path().join("ca.pem"), client: None };
        assert_eq!(of("tcp://h:2376", &verified).tls, Some(without_client));
        std::fs::write(folder.path().join("cert.pem"), "").unwrap();
        let client = Some((folder.path().join("cert.pem"), folder.path().join("key.pem")));
        assert_eq!(of("tcp://h:2376", &verified).tls.unwrap().client, client);
        let at_home = of("tcp://h:2376", &[("DOCKER_TLS_VERIFY", "1"), ("HOME", "/home/me")]).tls.unwrap();
        assert_eq!(at_home.ca, PathBuf::from("/home/me/.docker/ca.pem"));
    }
}
