//! Takes the values of secrets out of a stack before it is converted: commands, probes, labels and files may contain the value
//! of a variable.

use std::{collections::BTreeSet, sync::Arc};

use driftless_model::{
    Container, Content, Contents, Finding, Hook, HostSettings, Mask, ProbeAction, Probes, Stack, Subject,
    Workload,
};

use super::output::{Lost, NOT_WRITTEN, PLACEHOLDER_OF_SECRET};

/// A stack and the contents that it mounts without the values of its secrets, and a finding for each field that had one.
pub(super) fn without_secrets(stack: &Stack, contents: &Contents) -> (Stack, Contents, Vec<Finding>) {
    let (mut clean, mut lost) = (stack.clone(), Lost::default());
    let values = Values::of(stack);
    for (name, workload) in &mut clean.workloads {
        let Workload { container, probes, parts, .. } = workload;
        let mut fields = values.hide_in(container, probes);
        for part in parts {
            fields.extend(values.hide_in(&mut part.container, &mut part.probes));
        }
        for field in fields {
            lost.field(Subject { name, workload }, field, NOT_WRITTEN);
        }
    }
    let contents = contents.iter().map(|(id, content)| (id.clone(), values.without(content)));
    (clean, contents.collect(), lost.sorted())
}

struct Values<'a> {
    /// The values of secrets, longer ones first, because one may contain another.
    anywhere: Vec<&'a str>,
    /// The texts of encrypted manifests. A short one may be a part of any other text.
    whole: &'a BTreeSet<String>,
}

impl<'a> Values<'a> {
    fn of(stack: &'a Stack) -> Self {
        let of_container = |container: &'a Container, workload: &'a Workload| {
            let encrypted = &stack.encrypted.variables;
            let is_secret =
                move |name: &String| workload.secret_env.contains(name) || encrypted.contains(name);
            let secret = container.env.iter().filter(move |&(name, _)| is_secret(name));
            secret.filter_map(|(_, value)| value.as_deref())
        };
        let of_workload = |workload: &'a Workload| {
            let containers = workload.containers();
            containers.flat_map(move |container| of_container(container, workload)).collect::<Vec<_>>()
        };
        let declared = stack.workloads.values().flat_map(of_workload);
        let all = declared.chain(stack.secret_values.iter().map(String::as_str)).map(str::trim);
        let mut values: Vec<&str> =
            all.filter(|value| Mask::is_findable(value)).collect::<BTreeSet<_>>().into_iter().collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { anywhere: values, whole: &stack.encrypted.texts }
    }

    /// The text with the placeholder for each value. `None`: it has none.
    fn hide(&self, text: &str) -> Option<String> {
        if self.whole.contains(text) {
            return Some(PLACEHOLDER_OF_SECRET.to_owned());
        }
        let found: Vec<&&str> = self.anywhere.iter().filter(|value| text.contains(**value)).collect();
        let hidden =
            || found.iter().fold(text.to_owned(), |text, value| text.replace(**value, PLACEHOLDER_OF_SECRET));
        (!found.is_empty()).then(hidden)
    }

    /// Hides the values in the texts that people write freely. All other fields are names, sizes and switches, in which a word like
    /// `nextcloud` is no secret only because it is also a password. Returns the names of the fields that had one.
    fn hide_in(&self, container: &mut Container, probes: &mut Probes) -> BTreeSet<&'static str> {
        let mut found = BTreeSet::new();
        for (field, text) in texts_of_container(container).into_iter().chain(texts_of_probes(probes)) {
            if let Some(hidden) = self.hide(text) {
                *text = hidden;
                found.insert(field);
            }
        }
        found
    }

    fn without(&self, content: &Content) -> Content {
        let clean = |bytes: &Arc<[u8]>| {
            let hidden = std::str::from_utf8(bytes).ok().and_then(|text| self.hide(text));
            hidden.map_or_else(|| Arc::clone(bytes), |text| text.into_bytes().into())
        };
        match content {
            Content::File { bytes, executable } => {
                Content::File { bytes: clean(bytes), executable: *executable }
            }
            Content::Owned { bytes, mode, uid, gid } => {
                Content::Owned { bytes: clean(bytes), mode: *mode, uid: *uid, gid: *gid }
            }
            Content::Folder(tree) => {
                let files =
                    tree.iter().map(|(path, (bytes, access))| (path.clone(), (clean(bytes), *access)));
                Content::Folder(files.collect())
            }
        }
    }
}

/// The texts that people write freely, with the names of their fields.
fn texts_of_container(container: &mut Container) -> Vec<(&'static str, &mut String)> {
    let Container { entrypoint, command, env, labels, healthcheck, logging, host, .. } = container;
    let mut texts: Vec<(&'static str, &mut String)> = Vec::new();
    texts.extend(entrypoint.iter_mut().flatten().map(|text| ("entrypoint", text)));
    texts.extend(command.iter_mut().flatten().map(|text| ("command", text)));
    texts.extend(env.values_mut().flatten().map(|text| ("env", text)));
    texts.extend(labels.values_mut().map(|text| ("labels", text)));
    texts.extend(healthcheck.iter_mut().flat_map(|it| &mut it.test).map(|text| ("healthcheck", text)));
    texts.extend(
        logging.iter_mut().flat_map(|(_, options)| options.values_mut()).map(|text| ("logging", text)),
    );
    if **host == HostSettings::default() {
        return texts;
    }
    let HostSettings { annotations, post_start, pre_stop, .. } = &mut **host;
    texts.extend(annotations.values_mut().map(|text| ("annotations", text)));
    for (field, hooks) in [("postStart", post_start), ("preStop", pre_stop)] {
        for Hook { command, http, .. } in hooks {
            texts.extend(command.iter_mut().map(|text| (field, text)));
            if let Some(http) = http {
                texts.push((field, &mut http.path));
                texts.extend(http.headers.iter_mut().map(|(_, text)| (field, text)));
            }
        }
    }
    texts
}

fn texts_of_probes(probes: &mut Probes) -> Vec<(&'static str, &mut String)> {
    let Probes { startup, readiness, liveness } = probes;
    let mut texts: Vec<&mut String> = Vec::new();
    for probe in [startup, readiness, liveness].into_iter().flatten() {
        match &mut probe.action {
            ProbeAction::Exec { command } => texts.extend(command),
            ProbeAction::HttpGet { path, headers, .. } => {
                texts.push(path);
                texts.extend(headers.iter_mut().map(|(_, text)| text));
            }
            ProbeAction::TcpSocket { .. } | ProbeAction::Grpc { .. } => {}
        }
    }
    texts.into_iter().map(|text| ("probes", text)).collect()
}
