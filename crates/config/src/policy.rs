//! The keys of a policy, on each level of the configuration and in `driftless.yaml` of a repository.

use std::time::Duration;

use driftless_model::{
    Adopt, After, AppCondition, AppDependency, AppName, EngineKind, FilesystemDrift, IgnoredDifferences,
    IgnoredField, ImageUpdate, ObjectsOfOthers, OnFailure, Otherwise, Policy, Schedule, SyncWindow,
    UpdateFields, WindowKind, WorkloadName, parse_duration,
};
use driftless_yaml::Kind;

use crate::{
    keys,
    origins::Origins,
    value::{Fields as _, Object, Value, each, variables},
};

/// The keys of a policy. A missing one is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyEntry {
    pub(super) engine: Option<EngineKind>,
    pub(super) suspend: Option<bool>,
    pub(super) self_heal: Option<bool>,
    pub(super) prune: Option<bool>,
    pub(super) max_prune_percent: Option<u8>,
    pub(super) adopt: Option<Adopt>,
    pub(super) filesystem_drift: Option<FilesystemDrift>,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) monitor: Option<Duration>,
    pub(super) progress_deadline: Option<Duration>,
    pub(super) sync_windows: Option<Vec<SyncWindow>>,
    pub(super) depends_on: Option<Vec<AppDependency>>,
    pub(super) after: Option<AfterSetting>,
    pub(super) image_update: Option<ImageUpdate>,
    pub(super) ignore_differences: Option<Vec<IgnoredDifferences>>,
    /// The places of the keys that are given.
    pub(super) origins: Origins,
}

/// Reads the keys of a policy, and `suspend` where the table has it.
pub(super) fn policy(object: &Object<'_>) -> PolicyEntry {
    let mut origins = Origins::default();
    for key in keys::names(keys::POLICY).chain(["suspend"]) {
        origins.note(object, key);
    }
    PolicyEntry {
        origins,
        engine: object.word("engine", &[("docker", EngineKind::Docker), ("swarm", EngineKind::Swarm)]),
        suspend: object.boolean("suspend"),
        self_heal: object.boolean("selfHeal"),
        prune: object.boolean("prune"),
        max_prune_percent: object.parsed("maxPrunePercent", |text| match text.parse() {
            Ok(percent @ 0..=100_u8) => Ok(percent),
            Ok(_) | Err(_) => Err("must be a whole number from 0 to 100, in percent".to_owned()),
        }),
        adopt: object.word("adopt", &[("ask", Adopt::Ask), ("auto", Adopt::Auto), ("never", Adopt::Never)]),
        filesystem_drift: object.word(
            "filesystemDrift",
            &[
                ("off", FilesystemDrift::Off),
                ("report", FilesystemDrift::Report),
                ("revert", FilesystemDrift::Revert),
            ],
        ),
        on_failure: object.word(
            "onFailure",
            &[("none", OnFailure::None), ("pause", OnFailure::Pause), ("rollback", OnFailure::Rollback)],
        ),
        monitor: object.parsed("monitor", whole_seconds),
        progress_deadline: object.parsed("progressDeadline", |text| match whole_seconds(text) {
            Ok(Duration::ZERO) => Err("must be at least `1s`".to_owned()),
            other => other,
        }),
        sync_windows: object.get("syncWindows").map(|_| each(object, "syncWindows", sync_window)),
        depends_on: object.get("dependsOn").map(|_| each(object, "dependsOn", dependency)),
        after: object.get("after").as_ref().and_then(after),
        image_update: object.get("imageUpdate").as_ref().and_then(image_update),
        ignore_differences: object
            .get("ignoreDifferences")
            .map(|_| each(object, "ignoreDifferences", ignored_differences)),
    }
}

/// One word, or the fields.
fn image_update(value: &Value<'_>) -> Option<ImageUpdate> {
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        let word = value.string()?;
        let update = ImageUpdate::of_word(word);
        if update.is_none() {
            value.error(format!(
                "`{word}` is no image update: use `off`, `report` or `digest`, or its fields"
            ));
        }
        return update;
    }
    let object = value.clone().object(&keys::IMAGE_UPDATE)?;
    let time = |key| object.parsed(key, whole_seconds);
    let fields = UpdateFields {
        mode: object.owned("mode"),
        semver: object.owned("semver"),
        tags: object.owned("tags"),
        min_age: time("minAge"),
        every: time("every"),
    };
    match ImageUpdate::of_fields(fields) {
        Ok(update) => Some(update),
        Err((field, message)) => {
            object.get(field).as_ref().unwrap_or(value).error(message);
            None
        }
    }
}

fn sync_window(value: Value<'_>) -> Option<SyncWindow> {
    let object = value.object(&keys::SYNC_WINDOW)?;
    for key in ["kind", "schedule", "duration"] {
        object.require(key);
    }
    let time_zone = object.owned("timeZone");
    let schedule = object
        .parsed("schedule", |text| Schedule::parse(text, time_zone.as_deref()).map(|_| text.to_owned()));
    let duration = object.parsed("duration", |text| match whole_seconds(text)? {
        duration if duration < Duration::from_mins(1) => Err("must be at least `1m`".to_owned()),
        duration if duration > Duration::from_hours(24 * 366) => Err("must be at most `366d`".to_owned()),
        duration => Ok(duration),
    });
    Some(SyncWindow {
        kind: object.word("kind", &[("allow", WindowKind::Allow), ("deny", WindowKind::Deny)])?,
        schedule: schedule?,
        time_zone,
        duration: duration?,
        manual_sync: object.boolean("manualSync").unwrap_or_default(),
    })
}

fn dependency(value: Value<'_>) -> Option<AppDependency> {
    let object = value.object(&keys::APP_DEPENDENCY)?;
    object.require("app");
    let words = [
        ("ready", AppCondition::Ready),
        ("healthy", AppCondition::Healthy),
        ("completed", AppCondition::Completed),
    ];
    let condition = match object.get("condition") {
        Some(_) => object.word("condition", &words)?,
        None => AppCondition::default(),
    };
    let app = object.parsed("app", |text| AppName::parse(text).map_err(|error| error.to_string()))?;
    Some(AppDependency { app, condition })
}

/// The setting `after`, where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AfterSetting {
    /// The word `none`: commits wait for nobody, also if an outer setting says so.
    None,
    Hosts(After),
}

impl AfterSetting {
    fn hosts(&self) -> Option<After> {
        match self {
            Self::None => None,
            Self::Hosts(after) => Some(after.clone()),
        }
    }
}

/// The word `none`, or the fields.
fn after(value: &Value<'_>) -> Option<AfterSetting> {
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        let word = value.string()?;
        if word != "none" {
            value.error_help(format!("`{word}` selects no hosts"), "write `after: {labels: …}`, or `none`");
        }
        return Some(AfterSetting::None);
    }
    let object = value.clone().object(&keys::AFTER)?;
    object.require("labels");
    let labels = variables(&object.get("labels")?);
    if labels.is_empty() {
        object.value.error_help("selects no hosts", "name the labels of the first hosts in `labels`");
    }
    let healthy_for = object.parsed("healthyFor", whole_seconds).unwrap_or(Duration::from_mins(10));
    let max_wait = object.parsed("maxWait", whole_seconds).unwrap_or(Duration::from_hours(2));
    if max_wait <= healthy_for {
        object.get("maxWait").as_ref().unwrap_or(value).error("must be longer than `healthyFor`");
    }
    let words = [("hold", Otherwise::Hold), ("proceed", Otherwise::Proceed)];
    let otherwise = match object.get("else") {
        Some(_) => object.word("else", &words)?,
        None => Otherwise::default(),
    };
    Some(AfterSetting::Hosts(After { labels, healthy_for, otherwise, max_wait }))
}

fn ignored_differences(value: Value<'_>) -> Option<IgnoredDifferences> {
    let place = Some(value.node.place.location());
    let object = value.object(&keys::IGNORED_DIFFERENCES)?;
    object.require("fields");
    let mut fields = Vec::new();
    for item in object.get("fields")?.items() {
        match IgnoredField::parse(item.string()?) {
            Ok(field) => fields.push(field),
            Err(error) => item.error(error.to_string()),
        }
    }
    Some(IgnoredDifferences { workload: object.owned("workload").map(WorkloadName), fields, place })
}

/// The API shows these times in seconds.
fn whole_seconds(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(parsed) if parsed.subsec_nanos() > 0 => Err("must be a number of whole seconds".to_owned()),
        other => other,
    }
}

/// A policy whose missing keys have the values of the outer one.
pub(super) fn inherit(outer: &Policy, own: &PolicyEntry) -> Policy {
    Policy {
        engine: own.engine.unwrap_or(outer.engine),
        self_heal: own.self_heal.unwrap_or(outer.self_heal),
        prune: own.prune.unwrap_or(outer.prune),
        max_prune_percent: own.max_prune_percent.unwrap_or(outer.max_prune_percent),
        suspended: own.suspend.unwrap_or(outer.suspended),
        adopt: own.adopt.unwrap_or(outer.adopt),
        filesystem_drift: own.filesystem_drift.unwrap_or(outer.filesystem_drift),
        on_failure: own.on_failure.unwrap_or(outer.on_failure),
        monitor: own.monitor.unwrap_or(outer.monitor),
        progress_deadline: own.progress_deadline.or(outer.progress_deadline),
        sync_windows: own.sync_windows.clone().unwrap_or_else(|| outer.sync_windows.clone()),
        depends_on: own.depends_on.clone().unwrap_or_else(|| outer.depends_on.clone()),
        after: own.after.as_ref().map_or_else(|| outer.after.clone(), AfterSetting::hosts),
        image_update: own.image_update.clone().unwrap_or_else(|| outer.image_update.clone()),
        // Rules of the admission policy.
        verify_images: Vec::new(),
        objects_of_others: ObjectsOfOthers::Allowed,
        ignore_differences: own
            .ignore_differences
            .clone()
            .unwrap_or_else(|| outer.ignore_differences.clone()),
    }
}
