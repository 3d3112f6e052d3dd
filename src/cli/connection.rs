//! Options about the connection to an agent that stand before the command, and `--host NAME`, which stands for the address
//! and token of an agent in the user's file of hosts.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::Read as _,
    path::PathBuf,
};

use clap::Command;
use driftless_config::{ClientHost, client_hosts};
use driftless_model::Finding;

/// Commands for which `--host` is the host to render for, and the option with which they ask no agent, if they need one for that.
const RENDERING: [(&str, Option<&str>); 5] = [
    ("validate", None),
    ("preview", None),
    ("plan", Some("--dir")),
    ("diff", Some("--dir")),
    ("drift", Some("--docker")),
];

/// The options that may stand before the command, each with a value.
const VALUE_OPTIONS: [&str; 3] = ["--server", "--token-file", "--server-ca-file"];

/// The largest file of hosts, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

/// Why the options cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`--host` needs the name of a host")]
    NoName,
    #[error("there is no folder for the file of hosts: neither XDG_CONFIG_HOME nor HOME is set")]
    NoFolder,
    #[error("could not read the file of hosts {path}, which docs/configuration.md#several-agents describes")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Findings(Vec<Finding>),
    #[error("{path} has no host `{name}`{}", .similar.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    NoSuchHost { path: PathBuf, name: String, similar: Option<String> },
}

/// The same arguments with the options about the connection behind the command, and with the address and token of a host
/// instead of `--host`. A group without one of its commands gets none of them: it prints its help.
pub(super) fn arrange(arguments: Vec<OsString>, definition: &Command) -> Result<Vec<OsString>, Error> {
    let mut words = arguments.into_iter();
    let mut arranged: Vec<OsString> = words.next().into_iter().collect();
    let (mut options, mut host, mut rest) = (Vec::new(), None, Vec::new());
    while let Some(word) = words.next() {
        match word.to_str() {
            Some(text) if VALUE_OPTIONS.contains(&text) => {
                options.push(word);
                options.extend(words.next());
            }
            Some(text) if text.split_once('=').is_some_and(|(name, _)| VALUE_OPTIONS.contains(&name)) => {
                options.push(word);
            }
            Some("--host") => host = Some(words.next().ok_or(Error::NoName)?),
            Some(text) if text.starts_with("--host=") => host = Some(text["--host=".len()..].into()),
            Some(_) | None => {
                rest.push(word);
                break;
            }
        }
    }
    let words: Vec<OsString> = words.collect();
    let renders = rest.first().is_some_and(|command| asks_no_agent(command, &words));
    let mut words = words.into_iter();
    let mut is_option = true;
    while let Some(word) = words.next() {
        is_option &= word != "--";
        match word.to_str() {
            Some("--host") if is_option && !renders => host = Some(words.next().ok_or(Error::NoName)?),
            Some(text) if is_option && !renders && text.starts_with("--host=") => {
                host = Some(text["--host=".len()..].into());
            }
            Some(_) | None => rest.push(word),
        }
    }
    match host {
        Some(name) if renders => options.extend(["--host".into(), name]),
        Some(name) => options.extend(options_of(&name.to_string_lossy())?),
        None => {}
    }
    if !lacks_command(&rest, definition) {
        let end = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
        rest.splice(end..end, options);
    }
    arranged.extend(rest);
    Ok(arranged)
}

/// Whether these words name no command, or only a group of commands, such as `fleet`.
fn lacks_command(words: &[OsString], definition: &Command) -> bool {
    let mut command = definition;
    for word in words {
        let Some(found) = command.find_subcommand(word) else { break };
        command = found;
    }
    command.is_subcommand_required_set()
}

/// Whether a command renders manifests itself. `words` stand behind it.
fn asks_no_agent(command: &OsStr, words: &[OsString]) -> bool {
    let is_given = |option: &str| {
        let options = words.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str());
        options.map(|text| text.split_once('=').map_or(text, |(name, _)| name)).any(|name| name == option)
    };
    RENDERING.iter().any(|(name, option)| command == *name && option.is_none_or(is_given))
}

/// The options for the agent of a host.
fn options_of(name: &str) -> Result<Vec<OsString>, Error> {
    let folder = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || folder("HOME").map(|home| home.join(".config"));
    let folder = folder("XDG_CONFIG_HOME").or_else(home).ok_or(Error::NoFolder)?.join("driftless");
    let path = folder.join("hosts.yaml");
    let mut text = String::new();
    fs::File::open(&path)
        .and_then(|file| file.take(LARGEST_FILE).read_to_string(&mut text))
        .map_err(|source| Error::Read { path: path.clone(), source })?;
    let hosts = client_hosts(&path.display().to_string(), &text).map_err(Error::Findings)?;
    let Some(ClientHost { server, token_file, ca_file, .. }) = hosts.iter().find(|host| host.name == name)
    else {
        let names = hosts.iter().map(|host| host.name.as_str());
        let similar = driftless_yaml::closest(name, names).map(str::to_owned);
        return Err(Error::NoSuchHost { path, name: name.to_owned(), similar });
    };
    let mut options: Vec<OsString> = vec!["--server".into(), server.into()];
    for (option, file) in [("--token-file", token_file), ("--server-ca-file", ca_file)] {
        // An empty one means none: those of the environment are for another agent.
        let file = file.as_ref().map(|file| folder.join(file)).unwrap_or_default();
        options.extend([option.into(), file.into()]);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line::definition;

    fn arranged(text: &str) -> String {
        let words = text.split(' ').map(OsString::from).collect();
        let words: Vec<_> = arrange(words, &definition())
            .unwrap()
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        words.join(" ")
    }

    #[test]
    fn connection_options_may_stand_before_the_command() {
        for (given, expected) in [
            ("driftless --server a:1 status -o json", "driftless status -o json --server a:1"),
            (
                "driftless --server=a:1 --token-file t get pods",
                "driftless get pods --server=a:1 --token-file t",
            ),
            (
                "driftless --server-ca-file=ca.pem --server a:1 status",
                "driftless status --server-ca-file=ca.pem --server a:1",
            ),
            ("driftless --server a:1 logs x -- --host", "driftless logs x --server a:1 -- --host"),
            ("driftless --host nas validate .", "driftless validate . --host nas"),
            ("driftless preview --host nas --base main", "driftless preview --host nas --base main"),
            ("driftless --host nas diff shop --dir .", "driftless diff shop --dir . --host nas"),
            (
                "driftless drift --host nas --docker=tcp://nas:1",
                "driftless drift --host nas --docker=tcp://nas:1",
            ),
            ("driftless --server a:1 fleet status", "driftless fleet status --server a:1"),
            ("driftless --server a:1 fleet", "driftless fleet"),
            ("driftless --server a:1", "driftless"),
            ("driftless --version", "driftless --version"),
            ("driftless", "driftless"),
        ] {
            assert_eq!(arranged(given), expected);
        }
        let unnamed = arrange(vec!["driftless".into(), "--host".into()], &definition());
        assert!(matches!(unnamed, Err(Error::NoName)));
    }
}
