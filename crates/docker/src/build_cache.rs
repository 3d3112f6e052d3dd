//! The build cache of the engine.

use http::Method;
use serde::Deserialize;

use crate::{
    call_error::CallError,
    connection::Connection,
    deadline::{PRUNE, within},
    error::Error,
    transport::ApiVersion,
};

/// From this version of the API on the limit has another name.
const RENAMED: ApiVersion = ApiVersion { major: 1, minor: 48 };

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pruned {
    #[serde(default)]
    space_reclaimed: u64,
}

/// Cuts the build cache to this many bytes, and returns the bytes that were freed.
pub(crate) async fn prune(connection: &Connection, keep: u64) -> Result<u64, Error> {
    let pruned = call(connection, keep).await.map_err(|error| error.classify("cut the build cache"))?;
    Ok(pruned.space_reclaimed)
}

/// bollard knows only the newer name of the limit, and an older engine without a limit removes everything.
async fn call(connection: &Connection, keep: u64) -> Result<Pruned, CallError> {
    let api = connection.api_version().await?;
    let path = path(api, keep);
    within(PRUNE, connection.transport().send_json(Method::POST, &path, Vec::new())).await
}

fn path(api: ApiVersion, keep: u64) -> String {
    // The engine reads a signed number, and takes 0 for "no limit given".
    let keep = keep.clamp(1, i64::MAX as u64);
    let limit = if api < RENAMED { "keep-storage" } else { "max-used-space" };
    format!("/build/prune?all=true&{limit}={keep}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_named_as_the_engine_knows_it() {
        let path = |minor, keep| path(ApiVersion { major: 1, minor }, keep);
        assert_eq!(path(41, 5), "/build/prune?all=true&keep-storage=5");
        assert_eq!(path(51, 0), "/build/prune?all=true&max-used-space=1");
        assert_eq!(path(48, u64::MAX), "/build/prune?all=true&max-used-space=9223372036854775807");
    }
}
