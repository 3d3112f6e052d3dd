//! The API of a manager of a Swarm: that of an engine, or of the Swarm in memory.

use std::future::Future;

use http::Method;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use crate::{
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    mount_paths::MountPaths,
};

/// A manager that answers calls of the API.
pub(crate) trait ManagerApi: Send + Sync {
    /// One call, with its answer. The path has the query and no version.
    fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, CallError>> + Send;

    /// The agent's folders, from which configs and secrets are read.
    fn paths(&self) -> &MountPaths;
}

/// Reads an object or a list.
pub(super) async fn get<T: DeserializeOwned>(manager: &impl ManagerApi, path: &str) -> Result<T, CallError> {
    let body = manager.send(Method::GET, path, &[], Vec::new()).await?;
    serde_json::from_slice(&body).map_err(|error| CallError::unreachable(&error))
}

impl ManagerApi for Connection {
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<Vec<u8>, CallError> {
        self.api_version().await?;
        let body = futures_util::stream::iter((!body.is_empty()).then(|| Ok(body.into())));
        let sent = self.transport().upload(method, path, "application/json", headers, body);
        within(DEADLINE, async {
            let response = sent.await?;
            let bytes =
                response.into_body().collect().await.map_err(|error| CallError::unreachable(&error))?;
            Ok(bytes.to_bytes().to_vec())
        })
        .await
    }

    fn paths(&self) -> &MountPaths {
        self.local_paths()
    }
}
