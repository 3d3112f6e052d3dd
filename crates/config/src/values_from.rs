//! `valuesFrom`: variables for Compose files that lie on the host and not in Git.

use std::{path::PathBuf, time::Duration};

use crate::{
    keys,
    url::folder,
    value::{Fields as _, Value},
};

/// The time for which the output of a program is used, unless the configuration says otherwise.
const INTERVAL: Duration = Duration::from_mins(5);

/// The time limit of a source, unless the configuration says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A source of variables for interpolation in Compose files. Files and environment are read again at every fetch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueSource {
    /// The origin of the values.
    pub origin: ValueOrigin,
    /// The variable that has the whole text as its value. `None`: the text is a dotenv file.
    pub name: Option<String>,
    /// The file that the text stands for where manifests read it, from the root of the repository. Git has no file there.
    /// `None`: the text is variables for Compose files.
    pub path: Option<String>,
    /// Whether the values are masked wherever they occur. Default: true.
    pub secret: bool,
    /// The time for which the output of a program is used. Default: 5 min.
    pub interval: Duration,
    /// The time limit of a reading. Default: 30 s. Only a program may have another one.
    pub timeout: Duration,
}

/// The origin of values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueOrigin {
    /// A file of this machine.
    File(PathBuf),
    /// The standard output of a program with its arguments, such as `op read`, `vault kv get` or `pass show`.
    Exec(Vec<String>),
    /// A variable of the agent's environment. Its name is that of the variable unless `name` says otherwise.
    Environment(String),
}

/// Reads one entry of `valuesFrom`.
pub(super) fn value_source(value: Value<'_>) -> Option<ValueSource> {
    let object = value.object(&keys::VALUES_FROM)?;
    let name = object.parsed("name", variable);
    let path = object.parsed("path", file_in_git);
    if name.is_some() && path.is_some() {
        object.value.error("has `name` and `path`: the text is the value of a variable, or a file");
    }
    let exec = object.strings("exec");
    let env = object.parsed("env", variable);
    let file = object.absolute("file");
    let (origin, name) = match (file, exec.is_empty(), env) {
        (Some(file), true, None) => (ValueOrigin::File(file), name),
        (None, false, None) => (ValueOrigin::Exec(exec), name),
        (None, true, Some(env)) => {
            let name = name.or_else(|| path.is_none().then(|| env.clone()));
            (ValueOrigin::Environment(env), name)
        }
        (_, _, _) => {
            object.value.error("needs exactly one of `file`, `exec` and `env`");
            return None;
        }
    };
    for key in ["interval", "timeout"] {
        if object.value.node.get(key).is_some() && !matches!(origin, ValueOrigin::Exec(_)) {
            object.value.error(format!("`{key}` is for `exec` only"));
        }
    }
    Some(ValueSource {
        origin,
        name,
        path,
        secret: object.boolean("secret").unwrap_or(true),
        interval: object.duration("interval").unwrap_or(INTERVAL),
        timeout: object.duration("timeout").unwrap_or(TIMEOUT),
    })
}

/// The path of a file, from the root of the repository.
fn file_in_git(text: &str) -> Result<String, String> {
    if text.ends_with('/') {
        return Err("must be the path of a file".to_owned());
    }
    match folder(text)? {
        path if path.is_empty() => Err("must be the path of a file".to_owned()),
        path => Ok(path),
    }
}

/// The name of a variable as Compose files can use it.
fn variable(text: &str) -> Result<String, String> {
    let is_start = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let is_name =
        text.starts_with(is_start) && text.chars().all(|letter| is_start(letter) || letter.is_ascii_digit());
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("must be the name of a variable: letters, digits and `_`, not beginning with a digit".to_owned())
    }
}
