//! `x-driftless: {on-change: …}`: the consequence of a changed file of the repository. On a service it is the default of
//! its mounts; a mount may have its own.

use driftless_model::OnChange;

use crate::{
    read::types::Change,
    spec::{
        keys::X_DRIFTLESS,
        value::{Placed, Read as _, Value},
    },
};

/// The signals that may be sent. Signals that end or stop a process in any case are left out.
const SIGNALS: &[&str] = &[
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGCONT", "SIGURG", "SIGWINCH", "SIGPWR",
];

const HELP: &str = "use `recreate`, `restart`, `none`, or `signal` with a name, such as `signal SIGHUP`";

/// Reads the value of `x-driftless`.
pub(crate) fn on_change(value: &Value<'_>) -> Option<Placed<Change>> {
    let mut found = None;
    for (_, value) in value.fields(&X_DRIFTLESS) {
        found = read_change(&value).or(found);
    }
    found
}

/// Reads the value of `on-change`.
pub(crate) fn read_change(value: &Value<'_>) -> Option<Placed<Change>> {
    match change(&value.owned()?) {
        Ok(change) => Some(value.placed(change)),
        Err(message) => {
            value.error_help(message, HELP);
            None
        }
    }
}

fn change(text: &str) -> Result<Change, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match *words {
        ["recreate"] => Ok(Change::Recreate),
        ["restart"] => Ok(Change::InPlace(OnChange::Restart)),
        ["none"] => Ok(Change::InPlace(OnChange::None)),
        ["signal", name] => {
            let name = name.to_ascii_uppercase();
            let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
            if SIGNALS.contains(&name.as_str()) {
                Ok(Change::InPlace(OnChange::Signal(name)))
            } else {
                Err(format!("the signal `{name}` cannot be sent; use one of {}", SIGNALS.join(", ")))
            }
        }
        ["signal"] => Err("`signal` needs the name of a signal".to_owned()),
        _ => Err(format!("`{text}` is not a value of `on-change`")),
    }
}
