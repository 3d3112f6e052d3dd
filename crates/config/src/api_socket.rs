//! The Unix socket of the API, for programs of this machine.

use std::path::PathBuf;

use driftless_model::Scope;

use crate::{
    keys,
    trusted_proxy::scope,
    value::{Fields as _, Value},
};

/// The Unix socket of the API. The kernel tells which user connects, so it needs no token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiSocket {
    /// Its place. Default: in the folder that systemd has made for it, else there is no socket.
    pub place: SocketPlace,
    /// The group whose members may connect, besides root and the agent's own user. Default: none.
    pub group: Option<SocketGroup>,
}

/// The place of the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SocketPlace {
    /// In the folder that the service manager has made for it. Without one there is no socket.
    #[default]
    ServiceManager,
    /// There is no socket.
    None,
    /// At this path.
    Path(PathBuf),
}

/// A group of users of this machine, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketGroup {
    /// The name or number of the group.
    pub name: String,
    /// The scopes of each member.
    pub scopes: Vec<Scope>,
}

/// The folder of the socket, by its name among those that the service manager has made.
pub const SOCKET_FOLDER: &str = "driftless-api";

/// The name of the socket in its folder.
pub const SOCKET_NAME: &str = "agent.sock";

/// Reads the value of `socket`: a path, `none`, or a map.
pub(super) fn api_socket(value: Value<'_>) -> Option<ApiSocket> {
    if value.node.as_scalar().is_some() {
        return Some(ApiSocket { place: place(&value)?, group: None });
    }
    let object = value.object(&keys::SOCKET)?;
    let place = object.get("path").map_or(Some(SocketPlace::default()), |value| place(&value))?;
    let scopes: Vec<Scope> = object.items("scopes").iter().filter_map(scope).collect();
    let name = object.parsed("group", group_name);
    if object.get("group").is_some() && scopes.is_empty() {
        object.value.error("`group` needs `scopes`, such as `[act]`");
    }
    if object.get("group").is_none() && object.get("scopes").is_some() {
        object.value.error("`scopes` has no effect without `group`");
    }
    if place == SocketPlace::None && name.is_some() {
        object.value.error("`group` has no effect with `path: none`");
    }
    Some(ApiSocket { place, group: name.map(|name| SocketGroup { name, scopes }) })
}

fn place(value: &Value<'_>) -> Option<SocketPlace> {
    match value.string()? {
        "none" => Some(SocketPlace::None),
        text if text.starts_with('/') && !text.ends_with('/') => Some(SocketPlace::Path(PathBuf::from(text))),
        _ => {
            value.error("must be an absolute path, such as `/run/driftless-api/agent.sock`, or `none`");
            None
        }
    }
}

/// A name as `groupadd` takes it, or a number.
fn group_name(text: &str) -> Result<String, String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if text.is_empty() || text.len() > 32 || !text.chars().all(is_letter) {
        return Err("must be the name or number of a group of this machine".to_owned());
    }
    Ok(text.to_owned())
}
