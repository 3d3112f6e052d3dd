//! Annotations that order a sync: hooks and waves, by the names of Argo CD, Driftless or Helm; ignored differences, and canaries.

use std::collections::BTreeSet;

use super::{
    helm_hooks,
    reader::Value,
    sync_annotations::{
        BEFORE_CREATION, CANARY, DELETE_POLICY, HELM_BEFORE_CREATION, HELM_DELETE_POLICY, HELM_HOOK,
        HELM_WEIGHT, HOOKS, IGNORE_DIFFERENCES, UPDATE, UPDATE_EVERY, UPDATE_MIN_AGE, UPDATE_TAGS, WAVES,
        is_known,
    },
    workload::ReadWorkload,
};
use driftless_model::{
    CanaryStep, HookPhase, IgnoredField, ImageUpdate, UpdateFields, UpdateMode, Workload, WorkloadKind,
    parse_duration,
};
use driftless_yaml::{Entry, join};

/// Gives the workloads of an object their wave, and makes a Job the template of a hook.
pub(super) fn apply(value: &Value<'_>, mut read: Vec<ReadWorkload>) -> Vec<ReadWorkload> {
    let order = Order { value };
    if let Some(wave) = order.wave().or_else(|| order.helm_weight()) {
        for found in &mut read {
            found.workload.wave = wave;
        }
    }
    if let Some(update) = order.image_update() {
        for found in &mut read {
            found.workload.image_update = Some(update.clone());
        }
    }
    let ignored = order.ignored_fields();
    for found in &mut read {
        found.workload.ignore_differences.clone_from(&ignored);
    }
    order.set_canary(&mut read);
    order.check_delete_policy();
    // A Secret for such a Job often has its annotation, too.
    if !read.is_empty()
        && let Some((entry, phase)) = order.hook()
    {
        order.make_hook(&mut read, entry, phase);
    }
    read
}

/// Whether an object is a hook of Helm for nothing that happens here, such as `helm test`. It is reported, and not read.
pub(super) fn is_left_out(value: &Value<'_>, kind: &str) -> bool {
    let order = Order { value };
    let Some((entry, events)) = order.helm_hook() else { return false };
    let is_left_out = helm_hooks::phases(events).is_some_and(|phases| phases.is_empty());
    if is_left_out {
        let message = format!("the {kind} is left out: the hook `{events}` of Helm never runs here");
        value.report().say(entry.value.warning(path(entry), message));
    }
    is_left_out
}

/// Reports annotations of an object that is no workload.
pub(super) fn refuse(value: &Value<'_>) {
    let order = Order { value };
    for entry in order.annotations().iter().filter(|entry| is_known(&entry.key)) {
        let message = "has no effect here: only workloads have waves, hooks, image updates, ignored differences and canaries; everything else is there before the first one";
        value.report().say(entry.value.warning(path(entry), message));
    }
}

struct Order<'v, 'a> {
    value: &'v Value<'a>,
}

fn path(entry: &Entry) -> String {
    join("metadata.annotations", &entry.key)
}

impl<'a> Order<'_, 'a> {
    fn annotations(&self) -> &'a [Entry] {
        let annotations = self.value.node.get("metadata").and_then(|metadata| metadata.get("annotations"));
        annotations.map(driftless_yaml::Node::entries).unwrap_or_default()
    }

    fn find(&self, names: &[&str]) -> Option<(&'a Entry, &'a str)> {
        let entry = self.annotations().iter().find(|entry| names.contains(&&*entry.key))?;
        Some((entry, entry.value.as_scalar()?))
    }

    fn error(&self, entry: &Entry, message: impl Into<String>, help: &str) {
        self.value.report().say(entry.value.finding(path(entry), message).help(help));
    }

    fn wave(&self) -> Option<i32> {
        let (entry, text) = self.find(&WAVES)?;
        let wave = text.parse().ok();
        if wave.is_none() {
            self.error(
                entry,
                format!("`{text}` is not a sync wave"),
                "write a whole number in quotes, such as \"-1\"",
            );
        }
        wave
    }

    /// The setting for newer images: a word, or a range of versions.
    fn image_update(&self) -> Option<ImageUpdate> {
        let time = |name: &str| {
            let (entry, text) = self.find(&[name])?;
            let parsed = parse_duration(text);
            if let Err(message) = &parsed {
                self.error(entry, message.clone(), "such as `72h`");
            }
            parsed.ok()
        };
        let (min_age, every) = (time(UPDATE_MIN_AGE), time(UPDATE_EVERY));
        let tags = self.find(&[UPDATE_TAGS]).map(|(_, text)| text.to_owned());
        let Some((entry, text)) = self.find(&[UPDATE]) else {
            for (other, _) in
                [UPDATE_TAGS, UPDATE_MIN_AGE, UPDATE_EVERY].iter().filter_map(|name| self.find(&[name]))
            {
                self.error(other, format!("has no effect without `{UPDATE}`"), "add it, such as `digest`");
            }
            return None;
        };
        let word = ImageUpdate::of_word(text);
        let mode = word.map(|word| match word.mode {
            UpdateMode::Off => "off".to_owned(),
            UpdateMode::Report => "report".to_owned(),
            UpdateMode::Apply => "apply".to_owned(),
        });
        let semver = mode.is_none().then(|| text.to_owned());
        let update = ImageUpdate::of_fields(UpdateFields { mode, semver, tags, min_age, every });
        if let Err((_, message)) = &update {
            let help = "use `off`, `report`, `digest`, or a range of versions such as `~1.4`";
            self.error(entry, message.clone(), help);
        }
        update.ok()
    }

    /// The paths in the annotation, separated by commas.
    fn ignored_fields(&self) -> BTreeSet<IgnoredField> {
        let Some((entry, text)) = self.find(&[IGNORE_DIFFERENCES]) else { return BTreeSet::new() };
        let field = |path: &str| match IgnoredField::parse(path.trim()) {
            Ok(field) => Some(field),
            Err(error) => {
                self.error(entry, error.to_string(), "separate several fields by commas");
                None
            }
        };
        text.split(',').filter_map(field).collect()
    }

    /// The steps in the annotation, separated by commas.
    fn set_canary(&self, read: &mut [ReadWorkload]) {
        let Some((entry, text)) = self.find(&[CANARY]) else { return };
        let step = |text: &str| match CanaryStep::parse(text) {
            Ok(step) => Some(step),
            Err(error) => {
                self.error(
                    entry,
                    error.to_string(),
                    "separate several steps by commas, such as `20% for 10m, 50%`",
                );
                None
            }
        };
        let steps: Vec<CanaryStep> = text.split(',').filter_map(step).collect();
        for found in read {
            if found.kind != "Deployment" {
                let message =
                    format!("a {} has no canary: its pods are not replaced step by step", found.kind);
                return self.error(entry, message, "remove the annotation, or make it a Deployment");
            }
            found.workload.canary.clone_from(&steps);
        }
    }

    /// The annotation of a hook of Helm. As for Argo CD, it does not count if the object has another one.
    fn helm_hook(&self) -> Option<(&'a Entry, &'a str)> {
        if self.find(&HOOKS).is_some() { None } else { self.find(&[HELM_HOOK]) }
    }

    /// The order among the hooks of a chart, which the waves of a phase stand for. It does not depend on the annotation that makes the hook.
    fn helm_weight(&self) -> Option<i32> {
        let is_hook_of_chart =
            || self.helm_hook().is_some_and(|(_, events)| helm_hooks::phases(events).is_some());
        let is_hook = self.find(&HOOKS).is_some() || is_hook_of_chart();
        let (entry, text) = self.find(&[HELM_WEIGHT]).filter(|_| is_hook)?;
        let weight = text.parse().ok();
        if weight.is_none() {
            self.error(
                entry,
                format!("`{text}` is not a weight of a hook"),
                "write a whole number in quotes, such as \"-1\"",
            );
        }
        weight
    }

    /// The phase of a hook, and the annotation that gives it.
    fn hook(&self) -> Option<(&'a Entry, HookPhase)> {
        let Some((entry, text)) = self.find(&HOOKS) else { return self.hook_of_chart() };
        let phase = HookPhase::parse(text);
        if phase.is_none() {
            let help = "use `PreSync`, `PostSync`, `SyncFail` or `PreDelete`, one for each Job; a Job without this annotation is \
                        run once for each of its contents";
            self.error(entry, format!("the hook `{text}` is not supported"), help);
        }
        phase.map(|phase| (entry, phase))
    }

    fn hook_of_chart(&self) -> Option<(&'a Entry, HookPhase)> {
        let (entry, events) = self.helm_hook()?;
        let mut phases = helm_hooks::phases(events)?.into_iter();
        let phase = phases.next()?;
        if let Some(other) = phases.next() {
            let message = format!("the hook `{events}` of Helm is a {phase} and a {other} hook");
            let help =
                format!("choose one with the annotation `driftless.hook: {other}`, or make it two Jobs");
            self.error(entry, message, &help);
            return None;
        }
        Some((entry, phase))
    }

    fn check_delete_policy(&self) {
        let Some((entry, text)) = self.find(&[DELETE_POLICY, HELM_DELETE_POLICY]) else { return };
        let is_supported = |policy: &str| [BEFORE_CREATION, HELM_BEFORE_CREATION].contains(&policy.trim());
        if !text.split(',').all(is_supported) {
            let message = format!(
                "has no effect: the containers of a hook are kept until its next attempt (`{BEFORE_CREATION}`), for their logs"
            );
            self.value.report().say(entry.value.warning(path(entry), message));
        }
    }

    fn make_hook(&self, read: &mut [ReadWorkload], entry: &Entry, phase: HookPhase) {
        let [found] = read else {
            let help = "set `completions` and `parallelism` to 1";
            return self.error(entry, "a hook is a Job with one completion", help);
        };
        let kind = found.kind;
        match found.workload.job().cloned() {
            None => {
                self.error(entry, format!("a {kind} cannot be a hook"), "make it a Job");
            }
            Some(job)
                if job.indexed || job.completions != Some(1) || job.parallelism != 1 || job.suspended =>
            {
                let message = "a hook is a Job with one completion that is not suspended";
                self.error(entry, message, "set `completions` and `parallelism` to 1, and remove `suspend`");
            }
            Some(template) => {
                let kind = WorkloadKind::Hook { phase, template };
                found.workload = Workload { replicas: 0, kind, ..found.workload.clone() };
            }
        }
    }
}
