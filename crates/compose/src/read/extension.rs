//! `x-driftless` of a service: the default of its mounts, the proxy of its published ports, hooks, waves, schedules, canaries and image updates.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    read::{
        on_change::read_change,
        types::{Change, JobCause, JobSetting, ProxySetting},
    },
    spec::{
        keys::{SERVICE_EXTENSION, SERVICE_HOOK, SERVICE_PROXY, SERVICE_SCHEDULE, SERVICE_UPDATE},
        scalar::Compose,
        value::{Placed, Read as _, Value},
    },
};
use driftless_model::{
    CanaryStep, Concurrency, Cron, ForwardLimits, HookPhase, IgnoredField, ImageUpdate, Schedule,
    UpdateFields,
};
use driftless_yaml::{Dialect as _, Kind};

/// The extension of a service.
#[derive(Debug, Default)]
pub(crate) struct Extension {
    pub(crate) on_change: Option<Change>,
    pub(crate) proxy: Option<Placed<ProxySetting>>,
    pub(crate) job: Option<Placed<JobSetting>>,
    pub(crate) wave: i32,
    pub(crate) update: Option<ImageUpdate>,
    pub(crate) ignore_differences: BTreeSet<IgnoredField>,
    pub(crate) canary: Option<Placed<Vec<CanaryStep>>>,
}

pub(crate) fn extension(value: &Value<'_>) -> Extension {
    let mut extension = Extension::default();
    for (key, value) in value.fields(&SERVICE_EXTENSION) {
        let job = match key {
            "hook" => hook(&value),
            "schedule" => schedule(&value),
            _ => None,
        };
        if job.is_some() && extension.job.is_some() {
            value.error("cannot be combined: a service is either a hook or has a schedule");
        }
        extension.job = job.map(|job| value.placed(job)).or(extension.job);
        match key {
            "hook" | "schedule" => {}
            "wave" => extension.wave = value.whole().unwrap_or_default(),
            "ignore-differences" => extension.ignore_differences = ignored_fields(&value),
            "canary" => extension.canary = Some(value.placed(canary(&value))),
            "on-change" => extension.on_change = read_change(&value).map(|change| change.value),
            "update" => extension.update = update(&value),
            "proxy" => extension.proxy = proxy(&value).map(|setting| value.placed(setting)),
            _ => value.refuse("is not supported yet"),
        }
    }
    extension
}

/// One word, or the settings of image updates. `None`: a mistake was reported.
fn update(value: &Value<'_>) -> Option<ImageUpdate> {
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        let word = value.owned()?;
        let update = ImageUpdate::of_word(&word);
        if update.is_none() {
            let help = "use `off`, `report` or `digest`, or settings such as `semver: \"~1.4\"`";
            value.error_help(format!("`{word}` is no image update"), help);
        }
        return update;
    }
    let mut fields = UpdateFields::default();
    for (key, value) in value.fields(&SERVICE_UPDATE) {
        match key {
            "mode" => fields.mode = value.owned(),
            "semver" => fields.semver = value.owned(),
            "tags" => fields.tags = value.owned(),
            "min-age" => fields.min_age = value.duration(),
            "every" => fields.every = value.duration(),
            _ => value.refuse("is not supported yet"),
        }
    }
    let update = ImageUpdate::of_fields(fields);
    if let Err((field, message)) = &update {
        let field = if *field == "minAge" { "min-age" } else { field };
        value.error(format!("`{field}`: {message}"));
    }
    update.ok()
}

/// A list of paths, or one. Each that names no field is reported at its place.
fn ignored_fields(value: &Value<'_>) -> BTreeSet<IgnoredField> {
    let items = match &value.node.kind {
        Kind::Sequence(_) => value.items(),
        Kind::Scalar { .. } | Kind::Mapping(_) => vec![value.clone()],
    };
    let field = |item: Value<'_>| match IgnoredField::parse(&item.owned()?) {
        Ok(field) => Some(field),
        Err(error) => {
            item.error(error.to_string());
            None
        }
    };
    items.into_iter().filter_map(field).collect()
}

/// A list of steps, or one. Each mistake is reported at its place.
fn canary(value: &Value<'_>) -> Vec<CanaryStep> {
    let items = match &value.node.kind {
        Kind::Sequence(_) => value.items(),
        Kind::Scalar { .. } | Kind::Mapping(_) => vec![value.clone()],
    };
    let step = |item: Value<'_>| {
        let Some(text) = item.node.as_scalar() else {
            item.wrong_type("a step such as `20% for 10m`");
            return None;
        };
        let step = CanaryStep::parse(text);
        if let Err(error) = &step {
            item.error(error.to_string());
        }
        step.ok()
    };
    items.into_iter().filter_map(step).collect()
}

/// The phase of a hook, or its settings. `None`: a mistake was reported.
fn hook(value: &Value<'_>) -> Option<JobSetting> {
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        return Some(JobSetting { cause: JobCause::Hook(phase(value)?), deadline: None });
    }
    let (mut cause, mut deadline) = (None, None);
    for (key, value) in value.fields(&SERVICE_HOOK) {
        match key {
            "phase" => cause = Some(JobCause::Hook(phase(&value)?)),
            "deadline" => deadline = longer_than_zero(&value),
            _ => value.refuse("is not supported yet"),
        }
    }
    if cause.is_none() {
        value.error_help("needs `phase`", "such as `phase: PreSync`");
    }
    Some(JobSetting { cause: cause?, deadline })
}

fn phase(value: &Value<'_>) -> Option<HookPhase> {
    let text = value.owned()?;
    let phase = HookPhase::parse(&text);
    if phase.is_none() {
        let help = "use `PreSync`, `PostSync`, `SyncFail` or `PreDelete`";
        value.error_help(format!("`{text}` is not a hook"), help);
    }
    phase
}

fn longer_than_zero(value: &Value<'_>) -> Option<Duration> {
    let time = value.duration();
    if time.is_some_and(|time| time.is_zero()) {
        value.error("must be longer than 0");
    }
    time
}

/// The times as in cron, or the settings of a CronJob. `None`: a mistake was reported.
fn schedule(value: &Value<'_>) -> Option<JobSetting> {
    let mut cron = Cron {
        schedule: String::new(),
        zone: None,
        concurrency: Concurrency::Allow,
        starting_deadline: None,
        suspended: false,
        keep_successful: 3,
        keep_failed: 1,
    };
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        cron.schedule = times(value)?;
        return Some(JobSetting { cause: JobCause::Schedule(Box::new(cron)), deadline: None });
    }
    let (mut has_times, mut deadline) = (false, None);
    for (key, value) in value.fields(&SERVICE_SCHEDULE) {
        match key {
            "cron" => {
                has_times = true;
                cron.schedule = times(&value)?;
            }
            "time-zone" => {
                let zone = value.owned()?;
                if let Err(error) = Schedule::parse("@daily", Some(&zone)) {
                    value.error(error);
                }
                cron.zone = Some(zone);
            }
            "concurrency" => match value.owned()?.as_str() {
                "Allow" => cron.concurrency = Concurrency::Allow,
                "Forbid" => cron.concurrency = Concurrency::Forbid,
                "Replace" => cron.concurrency = Concurrency::Replace,
                other => value.error_help(
                    format!("`{other}` does not say what happens while an earlier run goes on"),
                    "use `Allow`, `Forbid` or `Replace`",
                ),
            },
            "starting-deadline" => cron.starting_deadline = value.duration(),
            "deadline" => deadline = longer_than_zero(&value),
            "suspend" => cron.suspended = Compose::boolean(value.node).unwrap_or_default(),
            "successful-history" => cron.keep_successful = value.whole()?,
            "failed-history" => cron.keep_failed = value.whole()?,
            _ => value.refuse("is not supported yet"),
        }
    }
    if !has_times {
        value.error_help("needs `cron`", "such as `cron: \"0 2 * * *\"`");
    }
    has_times.then(|| JobSetting { cause: JobCause::Schedule(Box::new(cron)), deadline })
}

fn times(value: &Value<'_>) -> Option<String> {
    let text = value.owned()?;
    if let Err(error) = Schedule::parse(&text, None) {
        value.error_help(error, "such as `*/15 8-18 * * mon-fri`");
        return None;
    }
    Some(text)
}

/// `true`, `false`, or the settings of the proxy. `None`: a mistake was reported.
fn proxy(value: &Value<'_>) -> Option<ProxySetting> {
    if !matches!(value.node.kind, Kind::Mapping(_)) {
        let setting = match Compose::boolean(value.node) {
            Some(true) => ProxySetting::On { limits: ForwardLimits::default(), proxy_protocol: false },
            Some(false) => ProxySetting::Off,
            None => {
                value.error("is not a setting of the proxy; write `true`, `false`, or its settings");
                return None;
            }
        };
        return Some(setting);
    }
    let (mut limits, mut proxy_protocol) = (ForwardLimits::default(), false);
    for (key, value) in value.fields(&SERVICE_PROXY) {
        match key {
            "max-connections" => {
                limits.connections = value.whole::<u32>();
                if limits.connections == Some(0) {
                    value.error("must be at least 1");
                }
            }
            "idle-timeout" => limits.idle = value.duration(),
            "connect-timeout" => limits.connect = longer_than_zero(&value),
            "proxy-protocol" => match value.owned().as_deref() {
                Some("v2") => proxy_protocol = true,
                Some(other) => {
                    value.error(format!("`{other}` is not a version of the PROXY protocol; use `v2`"));
                }
                None => {}
            },
            _ => value.refuse("is not supported yet"),
        }
    }
    Some(ProxySetting::On { limits, proxy_protocol })
}
