//! Requests to a container that its manifest wants made after each start and before each stop: see
//! [`driftless_model::HttpHook`].

use std::collections::BTreeMap;

use bollard::{models as api, query_parameters as query};
use reqwest::{Client, header, redirect};

use crate::{
    call_error::CallError,
    engine::{DEADLINE, Inner},
};
use driftless_model::{ContainerId, HttpHook};

impl Inner {
    /// Makes it, at the container's own address unless another is asked for.
    pub(crate) async fn http_hook(&self, id: &ContainerId, hook: &HttpHook) -> Result<(), String> {
        let host = match &hook.host {
            Some(host) => host.clone(),
            None => self.address(id).await.map_err(|it| it.to_string())?.ok_or("it has no address")?,
        };
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .http1_only()
            .tls_danger_accept_invalid_certs(true)
            .build()
            .map_err(|it| innermost(&it))?;
        let mut request = client.get(hook.url(&host)).header(header::CONNECTION, "close");
        for (name, value) in &hook.headers {
            request = request.header(name, value);
        }
        request.send().await.map(drop).map_err(|it| innermost(&it))
    }

    /// Where a container is reached. One in a pod has the address of that.
    async fn address(&self, id: &ContainerId) -> Result<Option<String>, CallError> {
        let mut found = self.inspected(id.as_str()).await?;
        let mode = found.host_config.as_ref().and_then(|it| it.network_mode.clone()).unwrap_or_default();
        if let Some(other) = mode.strip_prefix("container:") {
            found = self.inspected(other).await?;
        }
        let mode = found.host_config.as_ref().and_then(|it| it.network_mode.as_deref());
        Ok(if mode == Some("host") { Some("127.0.0.1".to_owned()) } else { first_address(&found) })
    }

    async fn inspected(&self, id: &str) -> Result<api::ContainerInspectResponse, CallError> {
        let options = None::<query::InspectContainerOptions>;
        self.call(DEADLINE, self.docker.inspect_container(id, options)).await
    }
}

/// On the first of its networks on which it has one, by their names.
fn first_address(found: &api::ContainerInspectResponse) -> Option<String> {
    let networks: BTreeMap<_, _> = found.network_settings.as_ref()?.networks.as_ref()?.iter().collect();
    networks.into_values().find_map(|it| it.ip_address.clone().filter(|it| !it.is_empty()))
}

/// The innermost cause is what people understand: `connection refused`.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
