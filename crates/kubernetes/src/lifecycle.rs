//! Lifecycle hooks: a command, an HTTP request or a sleep, after each start and before each stop.

use std::time::Duration;

use super::{
    fields,
    ports::NamedPorts,
    probe,
    reader::{Object, Value},
};
use driftless_model::{Container, Hook};

/// The longest `sleep`, in seconds.
const LONGEST_SLEEP: i64 = 0x7FFF_FFFF;

/// Reads `lifecycle` into the container.
pub(super) fn read(container: &Object<'_>, ports: &NamedPorts, into: &mut Container) {
    let Some(lifecycle) = container.object("lifecycle", fields::LIFECYCLE) else { return };
    into.stop_signal = lifecycle.get("stopSignal").and_then(|it| stop_signal(&it));
    let hook = |key| lifecycle.object(key, fields::LIFECYCLE_HANDLER).and_then(|it| handler(&it, ports));
    into.host.post_start = hook("postStart").into_iter().collect();
    into.host.pre_stop = hook("preStop").into_iter().collect();
}

fn handler(object: &Object<'_>, ports: &NamedPorts) -> Option<Hook> {
    match (object.get("exec"), object.get("httpGet"), object.get("sleep")) {
        (Some(exec), None, None) => {
            let command = exec.object(fields::EXEC)?.require("command")?;
            let words = command.strings();
            if words.is_empty() {
                command.error("must name a program to run");
            }
            Some(Hook { command: words, ..Hook::default() })
        }
        (None, Some(http), None) => {
            let http = probe::http_get(&http.object(fields::HTTP_GET)?, ports)?;
            Some(Hook { http: Some(http), ..Hook::default() })
        }
        (None, None, Some(sleep)) => {
            let seconds = sleep.object(fields::SLEEP)?.require("seconds")?.integer(0..=LONGEST_SLEEP)?;
            let sleep = Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()));
            Some(Hook { sleep, ..Hook::default() })
        }
        (None, None, None) => {
            // Refused fields are already reported.
            if object.get("tcpSocket").is_none() {
                object.value.error_help("the hook has no action", "give it `exec`, `httpGet` or `sleep`");
            }
            None
        }
        _ => {
            object.value.error("must have one of `exec`, `httpGet` and `sleep`, but has several");
            None
        }
    }
}

/// The name of a signal, with `SIG`.
fn stop_signal(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let is_signal = text.strip_prefix("SIG").is_some_and(|name| {
        !name.is_empty()
            && name.bytes().all(|byte| {
                byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'+' || byte == b'-'
            })
    });
    if !is_signal {
        value.error_help(format!("`{text}` is not a signal"), "use a name such as `SIGTERM`");
    }
    Some(text.to_owned())
}
