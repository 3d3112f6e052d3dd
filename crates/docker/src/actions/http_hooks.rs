//! HTTP requests to a container after its start or before its stop: see [`driftless_model::HttpHook`].

use std::collections::BTreeMap;

use bollard::models as api;
use driftless_model::{ContainerId, HttpHook, root_cause};
use reqwest::{Client, header, redirect};

use crate::{call_error::CallError, connection::Connection};

/// Sends the request, to the container's own address unless the hook names a host. Any answer is a success.
pub(super) async fn send(
    connection: &Connection,
    container: &ContainerId,
    hook: &HttpHook,
) -> Result<(), String> {
    let host = if let Some(host) = &hook.host {
        host.clone()
    } else {
        let address = address(connection, container).await.map_err(|error| error.to_string())?;
        address.ok_or("the container has no address")?
    };
    let client = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .http1_only()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .map_err(|error| reason(&error))?;
    let mut request = client.get(hook.url(&host)).header(header::CONNECTION, "close");
    for (name, value) in &hook.headers {
        request = request.header(name, value);
    }
    request.send().await.map(drop).map_err(|error| reason(&error))
}

/// The address of a container. A container in a pod has that of the pod.
async fn address(connection: &Connection, container: &ContainerId) -> Result<Option<String>, CallError> {
    let mut found = connection.inspect_container(container.as_str()).await?;
    if let Some(pod) = network_mode(&found).and_then(|mode| mode.strip_prefix("container:")) {
        found = connection.inspect_container(pod).await?;
    }
    let is_host = network_mode(&found) == Some("host");
    Ok(if is_host { Some("127.0.0.1".to_owned()) } else { first_address(&found) })
}

fn network_mode(found: &api::ContainerInspectResponse) -> Option<&str> {
    found.host_config.as_ref()?.network_mode.as_deref()
}

/// On the first network, by name, on which the container has an address.
fn first_address(found: &api::ContainerInspectResponse) -> Option<String> {
    let networks: BTreeMap<_, _> = found.network_settings.as_ref()?.networks.as_ref()?.iter().collect();
    networks.into_values().find_map(|it| it.ip_address.clone().filter(|it| !it.is_empty()))
}

/// The innermost cause, such as `connection refused`: the others only name layers of the HTTP client.
fn reason(error: &reqwest::Error) -> String {
    root_cause(error).unwrap_or_else(|| error.to_string())
}
