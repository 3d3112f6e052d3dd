//! The report as a value: applications, differences and their types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use driftless_model::{
    AppName, CommitId, CommitInfo, HealthStatus, SyncStatus, Timestamp, digest_hex, is_unprintable,
};

/// Version of the JSON format. It rises when a reader of the previous version would misread the report.
const SCHEMA_VERSION: u32 = 1;

/// More hosts of an application are only counted in a title.
const MOST_HOSTS: usize = 3;

/// The kind of a change of an application as a whole.
pub(crate) const APPLICATION: &str = "application";

/// The commits or the host that were compared, and every difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub schema_version: u32,
    pub kind: Kind,
    /// When a live comparison was made. A preview has no time, so that it stays equal when it is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated_at: Option<Timestamp>,
    /// The address of the agent that made the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The Docker Engine that was read when no agent was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The commits: both for a preview; `head` for a live comparison with one repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<CommitInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitInfo>,
    pub summary: Summary,
    /// Errors because of which applications may be missing. With one of them the report is incomplete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Preview only: such errors that the base has too. They are not the fault of the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_errors: Vec<String>,
    /// By name.
    pub apps: Vec<App>,
    /// Containers on the host that belong to no application, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Git against what runs.
    Drift,
    /// One commit against another.
    Preview,
}

/// Counts over all applications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub apps: usize,
    pub apps_with_drift: usize,
    pub apps_with_errors: usize,
    pub missing: usize,
    pub extra: usize,
    pub modified: usize,
    /// Differences that a rule of the ignore file or `ignoreDifferences` excludes.
    pub ignored: usize,
    /// Preview only: volumes that the head does not define any more. They stay.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept: usize,
    /// Preview only: applications with errors that the base has too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub apps_with_known_errors: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct App {
    pub name: AppName,
    /// Its folder in the repository.
    pub path: String,
    /// The commit it was compared with, if applications differ in that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_status: Option<SyncStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthStatus>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// The commit that a rollback pinned the application to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<CommitId>,
    pub has_drift: bool,
    /// Why it could not be rendered or read; whether it drifts is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Preview only: errors that the base has too, because of which the changes are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_error: Option<String>,
    /// Remarks that a reader needs to judge the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Preview only: the hosts that this is about, if the repository names any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// By kind, name and path.
    pub items: Vec<Item>,
    /// One unified diff per object, sorted by kind and name.
    pub diffs: Vec<ObjectDiff>,
}

impl App {
    /// Its name, with the hosts that this is about, as `shop (on nas, web-1, web-2 and 2 more)`.
    pub(crate) fn title(&self) -> String {
        match self.hosts.split_at(self.hosts.len().min(MOST_HOSTS)) {
            ([], _) => self.name.to_string(),
            (hosts, []) => format!("{} (on {})", self.name, hosts.join(", ")),
            (hosts, more) => format!("{} (on {} and {} more)", self.name, hosts.join(", "), more.len()),
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// `container`, `service`, `config`, `secret`, `workload`, `network`, `volume`, `file` or `application`.
    pub kind: String,
    pub name: String,
    #[serde(rename = "type")]
    pub change: Type,
    /// The field, such as `env.PORT`; empty for the object as a whole.
    pub path: String,
    /// The value in Git; in a preview, that of the head.
    pub want: String,
    /// The value on the host; in a preview, that of the base.
    pub got: String,
    /// Whether a value is masked. Equal values have equal masks.
    pub masked: bool,
    /// The file of the manifest that defines the object; empty if none does.
    pub file: String,
    /// Line in that file; 0 for the whole file.
    pub line: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<Timestamp>,
    /// File and line of the rule that ignores it, or `ignoreDifferences` and the field that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
    /// Labels of the object in the manifest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Type {
    /// In Git, and not on the host.
    Missing,
    /// On the host, and not in Git.
    Extra,
    Modified,
    /// The image differs.
    Image,
    /// The container exists and does not run.
    Stopped,
    /// Preview only: the head has it, the base does not.
    Added,
    /// Preview only: the base has it, the head does not.
    Removed,
    /// Preview only: a volume that the base defines and the head does not. It is never removed with its application.
    Kept,
}

impl Type {
    pub const ALL: [Self; 8] = [
        Self::Missing,
        Self::Extra,
        Self::Modified,
        Self::Image,
        Self::Stopped,
        Self::Added,
        Self::Removed,
        Self::Kept,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Modified => "modified",
            Self::Image => "image",
            Self::Stopped => "stopped",
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Kept => "kept",
        }
    }

    /// One sentence that explains the type in a report of this kind.
    pub fn meaning(self, kind: Kind) -> &'static str {
        match self {
            Self::Modified if kind == Kind::Preview => "The head configures it otherwise than the base.",
            Self::Image if kind == Kind::Preview => "The head has another image than the base.",
            Self::Missing => "Git has it, and it does not exist on the host.",
            Self::Extra => "It exists on the host, and Git does not have it.",
            Self::Modified => "It is not configured as Git says.",
            Self::Image => "It runs another image than Git says.",
            Self::Stopped => "It exists and does not run.",
            Self::Added => "The head has it, and the base has not.",
            Self::Removed => "The base has it, and the head has not.",
            Self::Kept => "The head does not define the volume any more. It stays, with its data.",
        }
    }
}

/// The agent's action for a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// A sync in progress will remove it.
    Sync,
    /// Drift that self-heal is undoing.
    Heal,
    /// Will be healed after a pause.
    BackOff,
    /// Left alone: self-heal is off, or the application is suspended.
    Report,
    /// Not healed any more: healing had no effect.
    Ineffective,
}

impl Action {
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Self::Sync => "being applied",
            Self::Heal => "being healed",
            Self::BackOff => "will be healed after a pause",
            Self::Report => "left alone",
            Self::Ineffective => "given up: healing has no effect",
        }
    }
}

/// The unified diff of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDiff {
    pub kind: String,
    pub name: String,
    /// Unified, with three lines of context; masked.
    pub text: String,
}

impl Report {
    /// A report without applications.
    pub fn new(kind: Kind) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            kind,
            generated_at: None,
            agent: None,
            host: None,
            base: None,
            head: None,
            summary: Summary::default(),
            errors: Vec::new(),
            known_errors: Vec::new(),
            apps: Vec::new(),
            unmanaged: Vec::new(),
        }
    }

    /// The name of an application in fingerprints. It has the hosts only where several applications have that name: else an alert would
    /// become another one with each host that is added.
    pub(crate) fn key(&self, app: &App) -> String {
        let is_only = self.apps.iter().filter(|it| it.name == app.name).count() < 2;
        if is_only || app.hosts.is_empty() {
            app.name.to_string()
        } else {
            format!("{}@{}", app.name, app.hosts.join(","))
        }
    }

    /// Whether anything could not be rendered or read. Errors that the base of a preview has too do not count.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty() || self.apps.iter().any(|it| it.error.is_some())
    }

    /// Whether a preview has errors that the base has too.
    pub fn has_known_errors(&self) -> bool {
        !self.known_errors.is_empty() || self.apps.iter().any(|it| it.known_error.is_some())
    }

    /// Whether there is a difference of one of these types.
    pub fn has_drift(&self, types: &[Type]) -> bool {
        self.apps.iter().flat_map(App::counted).any(|it| types.contains(&it.change))
    }
}

impl App {
    /// Whether it is shown with its details: it drifts, is pinned, suspended, or has an error or remark.
    pub(crate) fn is_listed(&self) -> bool {
        let is_said = self.error.is_some()
            || self.known_error.is_some()
            || self.note.is_some()
            || !self.items.is_empty();
        self.has_drift || is_said || self.suspended || self.pinned.is_some()
    }

    /// The differences that no rule ignores.
    pub fn counted(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|it| it.ignored.is_none())
    }
}

impl Item {
    /// `env.PORT: 9 -> 8080`, `missing`.
    pub fn sentence(&self) -> String {
        match self.change {
            Type::Missing => "missing".to_owned(),
            Type::Extra => "not in Git".to_owned(),
            Type::Added => "added".to_owned(),
            Type::Removed => "removed".to_owned(),
            Type::Kept => "not defined any more; it stays, with its data".to_owned(),
            Type::Modified | Type::Image | Type::Stopped => {
                format!("{}: {} -> {}", self.path, on_one_line(&self.got), on_one_line(&self.want))
            }
        }
    }

    /// Whether no diff shows it: a change of an application as a whole, other than one of its settings.
    pub(crate) fn has_no_diff(&self) -> bool {
        self.kind == APPLICATION && !self.path.starts_with("settings.")
    }

    /// A stable identifier of the difference that does not depend on its line. `app` is that of [`Report::key`].
    pub(crate) fn fingerprint(&self, app: &str) -> String {
        digest_hex(format!("{app}|{}|{}|{}", self.kind, self.name, self.path).as_bytes())
    }
}

/// A value on one line, shortened, without control characters. The JSON and the diff have the full value.
fn on_one_line(value: &str) -> String {
    const LONGEST: usize = 300;
    let mut out = String::new();
    for it in value.chars().take(LONGEST) {
        match it {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            letter if is_unprintable(letter) => out.push('\u{fffd}'),
            it => out.push(it),
        }
    }
    if value.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}

/// Splits a finding `FILE:LINE:COLUMN: error: MESSAGE` into file, line and message; other text is only a message.
pub(crate) fn located(error: &str) -> (&str, u32, &str) {
    let Some((place, message)) = error.split_once(": error: ") else { return ("", 0, error) };
    let mut parts = place.rsplitn(3, ':');
    let numbers = (parts.next().map(str::parse::<u32>), parts.next().map(str::parse::<u32>), parts.next());
    match numbers {
        (Some(Ok(_)), Some(Ok(line)), Some(file)) => (file, line, message),
        _ => (place, 0, message),
    }
}
