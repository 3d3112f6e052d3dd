//! One login for a registry, in the forms that the engine takes.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE};

use driftless_model::ImageRef;

/// The engine's address of Docker Hub.
pub(crate) const HUB_ADDRESS: &str = "https://index.docker.io/v1/";

/// A user and a password, or a token in place of both. Has no `Debug`, so that it cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) token: Option<String>,
}

impl Login {
    /// The header of a pull.
    pub(crate) fn header(&self, image: &str) -> String {
        URL_SAFE.encode(self.json(&address_of(ImageRef::parse(image).registry())).to_string())
    }

    /// The header of a build with the classic builder.
    pub(crate) fn headers(all: &BTreeMap<String, Self>) -> String {
        let all: serde_json::Map<_, _> =
            all.iter().map(|(address, it)| (address.clone(), it.json(address))).collect();
        URL_SAFE.encode(serde_json::Value::from(all).to_string())
    }

    fn json(&self, address: &str) -> serde_json::Value {
        let Self { username, password, token } = self;
        match token {
            Some(token) => serde_json::json!({ "identitytoken": token, "serveraddress": address }),
            None => {
                serde_json::json!({ "username": username, "password": password, "serveraddress": address })
            }
        }
    }
}

/// The address of a registry as the Docker client and its helpers write it.
pub(crate) fn address_of(host: &str) -> String {
    if host == ImageRef::DOCKER_HUB { HUB_ADDRESS.to_owned() } else { host.to_owned() }
}
