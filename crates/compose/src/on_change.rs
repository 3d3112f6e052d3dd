//! `x-driftless: {on-change: …}`: what a changed file of the repository brings about. Of a service it is the default of
//! its mounts, and each mount may say something else.

use std::collections::BTreeMap;

use super::{
    lower::Lowering,
    reader::{Path, Placed, Reader},
    schema::Change,
};
use driftless_model::{Content, InPlace, Mount, MountSource, OnChange};
use driftless_yaml::Node;

/// What may be sent. Those that end or halt a process whatever it wants are no message.
const SIGNALS: &[&str] = &[
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGCONT", "SIGURG", "SIGWINCH", "SIGPWR",
];

const HELP: &str = "use `recreate`, `restart`, `none`, or `signal` with a name, such as `signal SIGHUP`";

/// Reads the value of `x-driftless`.
pub(super) fn on_change(reader: &mut Reader, node: &Node, path: &Path<'_>) -> Option<Placed<Change>> {
    let mut found = None;
    for entry in reader.mapping(node, path) {
        let (at, node) = (&path.key(&entry.key), &entry.value);
        if entry.key != "on-change" {
            reader.unknown(entry, path, "on-change");
            continue;
        }
        let Some(text) = reader.string(node, at) else { continue };
        match change(&text) {
            Ok(change) => found = Some(Reader::placed(node, at, change)),
            Err(message) => {
                let finding =
                    driftless_model::Finding::error(Reader::location(node), at.to_string(), message);
                reader.findings.push(finding.help(HELP));
            }
        }
    }
    found
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
                Err(format!("`{name}` is no signal that can be sent here; those are: {}", SIGNALS.join(", ")))
            }
        }
        ["signal"] => Err("`signal` needs the name of one".to_owned()),
        _ => Err(format!("`{text}` is not known here")),
    }
}

impl Lowering<'_> {
    /// Makes of what a mount holds by its content what is rewritten in place, if the mount or its service asks for it.
    pub(super) fn rewrite(
        &mut self,
        mount: &mut Mount,
        own: Option<&Placed<Change>>,
        service: Option<&Change>,
        in_place: &mut BTreeMap<String, InPlace>,
    ) {
        let (content, secret) = match &mount.source {
            MountSource::Content(id) => (id.clone(), false),
            MountSource::Secret(id) => (id.clone(), true),
            MountSource::Volume { .. }
            | MountSource::Anonymous
            | MountSource::Empty
            | MountSource::Bind { .. }
            | MountSource::Tmpfs { .. }
            | MountSource::Image(_)
            | MountSource::InPlace { .. }
            | MountSource::AppFolder(_) => {
                if let Some(own) = own {
                    let finding = own.error("is for what comes from the repository and is mounted read-only");
                    self.findings.push(match mount.source {
                        MountSource::AppFolder(_) => finding.help("add `read_only: true`"),
                        _ => finding,
                    });
                }
                return;
            }
        };
        let Some(Change::InPlace(on_change)) = own.map(|it| &it.value).or(service) else { return };
        let folder = matches!(self.shelf.contents.get(&content), Some(Content::Folder(_)));
        mount.source = MountSource::InPlace { secret, folder };
        let on_change = on_change.clone();
        in_place.insert(mount.target.clone(), InPlace { content, secret, on_change });
    }
}
