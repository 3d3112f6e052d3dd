//! Facts about a container that are known only when it is created: its pod's name and address, the host's name and
//! address.
//!
//! Its variables and words hold a mark in place of each, which becomes the value when the engine is asked for the
//! container. So the specification is the same wherever and however often it is made, and what was told is no drift.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Container;
use crate::defaults::is_default;

/// One fact about the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Downward {
    PodName,
    NodeName,
    PodIp,
    HostIp,
}

/// The values that a container got.
pub type DownwardValues = BTreeMap<Downward, String>;

/// No variable and no word of a command can hold it, so that nobody can have written a mark.
const FENCE: char = '\0';

impl Downward {
    const ALL: [Self; 4] = [Self::PodName, Self::NodeName, Self::PodIp, Self::HostIp];

    /// The name of the field in Kubernetes.
    pub fn path(self) -> &'static str {
        match self {
            Self::PodName => "metadata.name",
            Self::NodeName => "spec.nodeName",
            Self::PodIp => "status.podIP",
            Self::HostIp => "status.hostIP",
        }
    }

    /// The placeholder until the value is known.
    pub fn mark(self) -> String {
        format!("{FENCE}{}{FENCE}", self.path())
    }

    /// Whether it is known of a pod only that holds the network for others.
    pub fn is_address(self) -> bool {
        match self {
            Self::PodIp | Self::HostIp => true,
            Self::PodName | Self::NodeName => false,
        }
    }

    /// All that a container wants to be told.
    pub fn wanted_by(container: &Container) -> Vec<Self> {
        let texts = || {
            let values = container.env.values().flatten();
            values.chain(container.entrypoint.iter().flatten()).chain(container.command.iter().flatten())
        };
        if !texts().any(|it| is_marked(it)) {
            return Vec::new();
        }
        Self::ALL.into_iter().filter(|it| texts().any(|text| text.contains(&it.mark()))).collect()
    }
}

/// The label of a pod with the name of its Job.
const JOB_NAME: &str = "metadata.labels['batch.kubernetes.io/job-name']";

/// The placeholder for the name of the Job in the template of a CronJob. Each run has a name of its own.
pub fn job_name_mark() -> String {
    format!("{FENCE}{JOB_NAME}{FENCE}")
}

/// Puts the name of the Job into a container of a run.
pub fn fill_job_name(container: &mut Container, name: &str) {
    let mark = job_name_mark();
    let words = container.entrypoint.iter_mut().chain(&mut container.command).flatten();
    let texts = container.env.values_mut().flatten().chain(words);
    for text in texts.filter(|text| text.contains(&mark)) {
        *text = text.replace(&mark, name);
    }
}

/// Whether something in it is known only when the container is created.
pub fn is_of_pod(text: &str) -> bool {
    is_marked(text) && is_marked(&text.replace(&job_name_mark(), ""))
}

/// Whether something in it is still to be told.
pub fn is_marked(text: &str) -> bool {
    text.contains(FENCE)
}

/// With each mark as people read it: `<metadata.name>`.
pub fn shown(text: &str) -> String {
    let readable = |it: Downward| (it, format!("<{}>", it.path()));
    if !is_marked(text) {
        return text.to_owned();
    }
    let text = filled(text, &Downward::ALL.map(readable).into());
    text.replace(&job_name_mark(), &format!("<{JOB_NAME}>"))
}

fn filled(text: &str, values: &DownwardValues) -> String {
    values.iter().fold(text.to_owned(), |text, (told, value)| text.replace(&told.mark(), value))
}

fn all_filled(words: &[String], values: &DownwardValues) -> Vec<String> {
    words.iter().map(|it| filled(it, values)).collect()
}

/// The container with all that is known of it in its place.
pub fn fill(container: &Container, values: &DownwardValues) -> Container {
    let words = |it: &Option<Vec<String>>| it.as_ref().map(|it| all_filled(it, values));
    let value = |it: &Option<String>| it.as_ref().map(|it| filled(it, values));
    Container {
        env: container.env.iter().map(|(name, it)| (name.clone(), value(it))).collect(),
        entrypoint: words(&container.entrypoint),
        command: words(&container.command),
        ..container.clone()
    }
}

/// Texts with marks, and the values that replaced the marks. A label stores both, because the engine reports only the
/// values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Templates {
    #[serde(skip_serializing_if = "is_default")]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_default")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_default")]
    pub command: Option<Vec<String>>,
    #[serde(skip_serializing_if = "is_default")]
    pub values: DownwardValues,
}

impl Templates {
    pub fn of(container: &Container) -> Self {
        let words = |it: &Option<Vec<String>>| it.clone().filter(|it| it.iter().any(|it| is_marked(it)));
        let marked = container.env.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        Self {
            env: marked.filter(|(_, value)| is_marked(value)).collect(),
            entrypoint: words(&container.entrypoint),
            command: words(&container.command),
            values: DownwardValues::new(),
        }
    }

    /// Puts the marks back where the container has what they became, and nowhere else: what is different was not told by
    /// us.
    pub fn restore(&self, container: &mut Container) {
        let Self { env, entrypoint, command, values } = self;
        for (name, template) in env {
            if let Some(Some(found)) = container.env.get_mut(name)
                && *found == filled(template, values)
            {
                found.clone_from(template);
            }
        }
        for (template, found) in [(entrypoint, &mut container.entrypoint), (command, &mut container.command)]
        {
            if let Some(template) = template
                && found.as_ref() == Some(&all_filled(template, values))
            {
                *found = Some(template.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Container {
        Container {
            env: BTreeMap::from([
                ("NAME".to_owned(), Some(Downward::PodName.mark())),
                ("URL".to_owned(), Some(format!("http://{}:80", Downward::PodIp.mark()))),
                ("PLAIN".to_owned(), Some("a".to_owned())),
                ("GONE".to_owned(), None),
            ]),
            command: Some(vec!["serve".to_owned(), format!("--name={}", Downward::PodName.mark())]),
            ..Container::default()
        }
    }

    #[test]
    fn replaced_marks_are_found_again() {
        let container = wanted();
        assert_eq!(Downward::wanted_by(&container), [Downward::PodName, Downward::PodIp]);
        let values = DownwardValues::from([
            (Downward::PodName, "web-1".to_owned()),
            (Downward::PodIp, "10.0.0.2".to_owned()),
        ]);
        let mut made = fill(&container, &values);
        assert_eq!(made.env["URL"].as_deref(), Some("http://10.0.0.2:80"));
        assert_eq!(made.command, Some(vec!["serve".to_owned(), "--name=web-1".to_owned()]));
        assert!(Downward::wanted_by(&made).is_empty());
        let templates = Templates { values, ..Templates::of(&container) };
        assert!(!templates.env.contains_key("PLAIN"));
        templates.restore(&mut made);
        assert_eq!(made, container);
    }

    #[test]
    fn name_of_the_job_is_filled_in_for_a_run() {
        let mut container = wanted();
        container.env.insert("JOB".to_owned(), Some(job_name_mark()));
        container.command = Some(vec![format!("/{}.sql", job_name_mark())]);
        assert!(is_of_pod(&Downward::PodName.mark()) && !is_of_pod(&job_name_mark()) && !is_of_pod("a"));
        assert_eq!(shown(&job_name_mark()), "<metadata.labels['batch.kubernetes.io/job-name']>");
        fill_job_name(&mut container, "report-7");
        assert_eq!(container.env["JOB"].as_deref(), Some("report-7"));
        assert_eq!(container.env["NAME"], wanted().env["NAME"]);
        assert_eq!(container.command, Some(vec!["/report-7.sql".to_owned()]));
    }

    #[test]
    fn other_text_is_left_unchanged() {
        let container = wanted();
        let values = DownwardValues::from([(Downward::PodName, "web-1".to_owned())]);
        let templates = Templates { values: values.clone(), ..Templates::of(&container) };
        let mut forged = fill(&container, &values);
        forged.env.insert("NAME".to_owned(), Some("another".to_owned()));
        templates.restore(&mut forged);
        assert_eq!(forged.env["NAME"].as_deref(), Some("another"));
        assert_eq!(shown(&Downward::PodIp.mark()), "<status.podIP>");
    }
}
